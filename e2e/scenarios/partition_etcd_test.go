package scenarios

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/e2e/lab"
)

const (
	// slowWrite is how much longer each write to etcd takes.
	slowWrite = 500 * time.Millisecond
	slowPods  = 10
)

// TestSlowEtcd: an etcd that needs half a second for a write, in the provider and then at
// home, makes everything slower, and nothing is lost or counts as down.
func TestSlowEtcd(t *testing.T) {
	w := newAdjustedWorld(t, func(o *lab.ClusterOptions) {
		o.EtcdFront, o.Audit = true, false
		o.NodeGrace = 5 * time.Minute // the heartbeats of simulated nodes are not under test
	})
	w.deploy(t, "slow", slowPods)
	for _, c := range []*lab.Cluster{w.milan.Cluster, w.rome.Cluster} {
		t.Run(c.Name, func(t *testing.T) { slowEtcd(t, w, c) })
	}
}

// slowEtcd scales a Deployment up and down while the etcd of a cluster is slow, and then
// lets the provider be away.
func slowEtcd(t *testing.T, w *world, c *lab.Cluster) {
	before, transitions := lives(t, w.rome.Cluster, "slow"), w.transitions(t, "milan")
	there := lives(t, w.milan.Cluster, "slow-rome")
	c.SlowWrites(slowWrite)
	defer c.SlowWrites(0)
	w.scale(t, "slow", "web", 2*slowPods)
	within(t, longest, "more pods run", w.available("web", "slow", 2*slowPods))
	w.scale(t, "slow", "web", slowPods)
	for where, in := range map[*lab.Cluster]string{w.rome.Cluster: "slow", w.milan.Cluster: "slow-rome"} {
		within(t, longest, "they are gone from "+where.Name, w.bound(where, in, slowPods, true))
	}
	require.Positive(t, c.SlowedWrites())
	t.Logf("%d writes took %s longer", c.SlowedWrites(), slowWrite)
	within(t, longest, "the provider counts as up", peerSays(w.rome, "milan", corev1beta1.ConditionAPIServer, metav1.ConditionTrue, corev1beta1.ReasonAPIServerReady))
	if seen := transitions(); *all { // on a busy machine, an API server with a slow etcd may miss its probes
		require.Equal(t, []corev1.ConditionStatus{corev1.ConditionTrue}, seen, "the Node was Ready all the time")
	}

	kept, keptThere := lives(t, w.rome.Cluster, "slow"), lives(t, w.milan.Cluster, "slow-rome")
	w.milan.Proxied().Drop()
	within(t, longest, "an outage of the provider is noticed", w.node("milan", corev1.ConditionFalse))
	within(t, longest, "its pods are not Ready", w.ready("slow", corev1.ConditionFalse))
	w.milan.Proxied().Pass()
	within(t, longest, "the provider is back", w.node("milan", corev1.ConditionTrue))
	within(t, longest, "its pods are Ready again", w.available("web", "slow", slowPods))
	requireLiving(t, kept, lives(t, w.rome.Cluster, "slow"))
	requireLiving(t, keptThere, lives(t, w.milan.Cluster, "slow-rome"))
	survivors(t, before, kept)
	survivors(t, there, keptThere)
}

// survivors requires that a pod of before that is still there has not been started again.
func survivors(t *testing.T, before, after map[string]life) {
	t.Helper()
	for name, was := range before {
		if is, stays := after[name]; stays {
			require.Equal(t, was, is, "pod %s", name)
		}
	}
}
