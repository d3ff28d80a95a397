package roles

import (
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/time/rate"

	"github.com/liqod/liqod/kube/client"
)

// tellRefusals is the shortest time between two lines in the log about the same peer and
// reason.
const tellRefusals = time.Minute

// foreign describes the API server of a peer. What is refused of it is counted and, from
// time to time, logged.
func (e Env) foreign(peer string) client.Foreign {
	var mu sync.Mutex
	told := map[string]*rate.Sometimes{}
	return client.Foreign{Name: peer, Refused: func(r *client.Refusal) {
		e.Refused(peer, r.Reason)
		mu.Lock()
		defer mu.Unlock()
		if told[r.Reason] == nil {
			told[r.Reason] = &rate.Sometimes{First: 1, Interval: tellRefusals}
		}
		told[r.Reason].Do(func() {
			e.Log.Warn("refused what the API server of a peer sent", zap.String("peer", peer), zap.String("reason", r.Reason), zap.Error(r))
		})
	}}
}
