package link

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/kube/kubetest"
)

// statusWrites is the number of writes of ForeignClusters.
func (w *world) statusWrites() (n int) {
	for _, a := range w.liqo.Actions() {
		if a.Matches("update", "foreignclusters") {
			n++
		}
	}
	return n
}

// TestAPeerThatTurnsItsConditions: 50 turns a second cost one write of the status in ten seconds
// at most, and one real outage is written at once.
func TestAPeerThatTurnsItsConditions(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{corev1beta1.ConditionNetwork, corev1beta1.ConditionAPIServer} {
		for name, turns := range map[string][]*metav1.Condition{
			"up and down":                           {says("True", "Up"), says("False", "Down")},
			"a heartbeat that is taken back":        {says("True", "Up"), nil},
			"down, taken back, and renewed at once": {says("False", "Down"), nil, says("True", "Up")},
		} {
			t.Run(kind+"/"+name, func(t *testing.T) {
				kubetest.Bubble(t, func(t *testing.T) {
					w := newWorld(t, tenant("milan"), milan("liqo.io:peer:milan:1"))
					s := &source{}
					w.conditions.AddSource(kind, s)
					w.run()
					s.set(says("True", "Up"))
					w.awaits(ready, "True AllChecksPassed")
					w.settled()
					s.set(says("False", "Down"))
					before := time.Now()
					w.awaits(ready, "False Down")
					s.set(says("True", "Up"))
					w.awaits(ready, "True AllChecksPassed")
					require.Less(t, time.Since(before), time.Second, "a real outage begins and ends at once")
					w.settled()

					writes := w.statusWrites()
					for i := range 50 * 60 {
						s.set(turns[i%len(turns)])
						time.Sleep(20 * time.Millisecond) // the bubble's clock
					}
					require.LessOrEqual(t, w.statusWrites()-writes, 6)
					s.set(says("True", "Up"))
					w.settled()
					require.True(t, w.is("milan", ready, "True AllChecksPassed"), "it counts again when it no longer turns")
				})
			})
		}
	}
}

// TestAnAPIServerThatFlaps: probes of a peer that answers for some seconds and fails for some.
func TestAnAPIServerThatFlaps(t *testing.T) {
	kubetest.Bubble(t, func(t *testing.T) {
		w := newWorld(t, tenant("milan"), milan(""), secret("milan", "kubeconfig", "k1"))
		p := newPeer("uid-1")
		w.addPeer("k1", p)
		w.run()
		w.awaits(ready, "True AllChecksPassed")
		w.settled()
		writes := w.statusWrites()
		for range 75 {
			p.set(errors.New("connection refused"))
			time.Sleep(4 * time.Second) // the bubble's clock
			p.set(nil)
			time.Sleep(4 * time.Second)
		}
		require.LessOrEqual(t, w.statusWrites()-writes, 3+60)
		w.settled()
		require.True(t, w.is("milan", ready, "True AllChecksPassed"))
	})
}
