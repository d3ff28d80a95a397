package link

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap/zaptest"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coreinformers "k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/kube/kubetest"
	"github.com/liqod/liqod/kube/loop"
)

// TestHeartbeatPair: rome, the provider, hears of milan's API server by the Lease that it
// makes and milan renews. All loops of both are there.
func TestHeartbeatPair(t *testing.T) {
	kubetest.Bubble(t, func(t *testing.T) {
		const interval = 200 * time.Millisecond
		provider := newWorld(t, tenant("milan"), milan("liqo.io:peer:milan:1"))
		provider.core.PrependReactor("*", "*", kubetest.NewServer(provider.core.Tracker(), clock.RealClock{}).React)
		leases := coreinformers.NewSharedInformerFactoryWithOptions(provider.core, 0, coreinformers.WithTransform(TrimLease))
		pulse := NewPulse(PulseConfig{Interval: interval, Leases: leases.Coordination().V1().Leases(), Client: provider.core.CoordinationV1(),
			Env: loop.Env{Clock: clock.RealClock{}, Log: zaptest.NewLogger(t)}})
		provider.conditions.AddSource(server, &toldSource{}, pulse)
		invitations := NewInvitations(InvitationsConfig{
			Base: provider.base("rome"), Interval: interval, Directory: provider.directory,
			Connections: provider.liqoInformers.Networking().V1beta1().Connections(), Leases: leases.Coordination().V1().Leases(),
		})
		provider.liqoInformers.Start(t.Context().Done())
		leases.Start(t.Context().Done())

		consumer := newWorld(t, tenant("rome"), secret("rome", "k", "rome"))
		consumer.addPeer("rome", &peer{core: provider.core})
		var mu sync.Mutex
		var down error
		set := func(err error) {
			mu.Lock()
			defer mu.Unlock()
			down = err
		}
		heartbeat := NewHeartbeat(HeartbeatConfig{
			Base: consumer.base("milan"), Interval: interval, Timeout: time.Second, Directory: consumer.directory,
			Serving: func(context.Context) error {
				mu.Lock()
				defer mu.Unlock()
				return down
			},
			Identity:    func(context.Context, string, kubernetes.Interface) error { return nil },
			Connections: consumer.liqoInformers.Networking().V1beta1().Connections(), Clock: clock.RealClock{},
		})
		consumer.liqoInformers.Start(t.Context().Done())
		kubetest.Create(t, consumer.liqo.CoreV1beta1().ForeignClusters(), &corev1beta1.ForeignCluster{ObjectMeta: metav1.ObjectMeta{Name: "rome"}, Spec: corev1beta1.ForeignClusterSpec{ClusterID: "rome"}})

		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 4)
		provider.run()
		go func() { done <- pulse.Run(ctx, 1) }()
		go func() { done <- invitations.Run(ctx, 1) }()
		provider.eventually("the Lease is there", func() bool {
			_, err := provider.core.CoordinationV1().Leases("liqo-tenant-milan").Get(ctx, corev1beta1.HeartbeatLease, metav1.GetOptions{})
			return err == nil
		})
		require.Nil(t, meta.FindStatusCondition(provider.cluster("milan").Status.Conditions, server), "nobody has renewed it yet")
		go func() { done <- consumer.directory.Run(ctx) }()
		go func() { done <- heartbeat.Run(ctx, 1) }()

		provider.awaits(server, "True HeartbeatSeen")
		provider.awaits(ready, "True AllChecksPassed")
		set(errors.New("paused"))
		provider.awaits(server, "False HeartbeatMissed")
		provider.awaits(ready, "False HeartbeatMissed")
		set(nil)
		provider.awaits(server, "True HeartbeatSeen")
		provider.awaits(ready, "True AllChecksPassed")
		// Milan ends the peering: rome does not take its API server for down.
		require.NoError(t, consumer.core.CoreV1().Secrets("liqo-tenant-rome").Delete(t.Context(), "k", metav1.DeleteOptions{}))
		provider.awaits(server, "False EndedByPeer")
		provider.awaits(ready, "False EndedByPeer")
		cancel()
		require.NoError(t, errors.Join(<-done, <-done, <-done, <-done))
	})
}
