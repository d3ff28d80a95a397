package link

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/utils/clock"

	"github.com/liqod/liqod/kube/loop"
)

// TestProbesAreTimed: an answer, an error and the end of the timeout count; a check that ended
// because another one was answered does not.
func TestProbesAreTimed(t *testing.T) {
	refused := errors.New("connection refused")
	silent := func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	}
	for name, tc := range map[string]struct {
		check func(context.Context) error
		ended time.Duration
		want  time.Duration // 0: it does not count
		ok    bool
	}{
		"an answer": {func(context.Context) error { time.Sleep(time.Second); return nil }, time.Minute, time.Second, true},
		"an error":  {func(context.Context) error { time.Sleep(time.Second); return refused }, time.Minute, time.Second, false},
		"silence":   {silent, 4 * time.Second, 4 * time.Second, false},
		"overtaken": {silent, time.Second, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var have time.Duration
				var failed error
				c := &Conditions{cfg: ConditionsConfig{Timeout: 4 * time.Second, Base: Base{Env: loop.Env{Clock: clock.RealClock{}}}, Probed: func(id string, d time.Duration, err error) {
					require.Equal(t, "milan", id)
					have, failed = d, err
				}}}
				ctx, cancel := context.WithTimeout(t.Context(), tc.ended)
				defer cancel()
				err := c.timed("milan", tc.check)(ctx)
				require.Equal(t, tc.want, have)
				require.Equal(t, tc.ok, err == nil)
				if tc.want > 0 {
					require.Equal(t, err, failed)
				}
			})
		})
	}
}
