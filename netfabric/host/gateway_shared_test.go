package host

import (
	"context"
	"errors"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/liqod/liqod/kube/kubetest"
	"github.com/liqod/liqod/netfabric/kernel"
)

// sharedGateway is a gateway that shares the numbers of its cluster with others.
type sharedGateway struct {
	*GatewayHost
	host      *fakeHost
	activated atomic.Int32
	stop      func()
	done      chan error
}

func newShared(t *testing.T, a *apis, key kernel.Key, name, address string, replicas int) *sharedGateway {
	t.Helper()
	announcer, err := Claim(t.Context(), AnnounceConfig{
		Client: a.kube.CoordinationV1(), Namespace: homeNamespace, Name: name, Duration: time.Hour, RetryPeriod: 100 * time.Millisecond,
		Clock: clock.RealClock{}, Log: zap.NewNop(),
	}, replicas, nil)
	require.NoError(t, err)
	s := &sharedGateway{host: &fakeHost{}, done: make(chan error, 1)}
	cfg := fakeGateway(a, announcer, &memoryKeys{keys: Keys{Key: key}})
	cfg.Addresses, cfg.Host, cfg.Replaced = []netip.Addr{netip.MustParseAddr(address)}, s.host, true
	cfg.Activate = func(context.Context) error {
		if s.activated.Add(1) == 1 {
			return errors.New("the API server is away")
		}
		return nil
	}
	s.GatewayHost = NewGateway(cfg)
	return s
}

func (s *sharedGateway) run(ctx context.Context) {
	ctx, s.stop = context.WithCancel(ctx)
	go func() { s.done <- s.Run(ctx) }()
}

// tunnels is the number of tunnels of its host; -1: the host has no device for any.
func (s *sharedGateway) tunnels() int {
	state, _ := s.host.last()
	if state.Device.Name == "" {
		return -1
	}
	return len(state.Device.Peers)
}

// Two gateways share two numbers. One that stops leaves its peer to the other, and gives its
// number back when its tunnels are down. One that loses its number ends.
func TestSharedGateways(t *testing.T) {
	t.Parallel()
	a := apisWith(t, *hostNode(nodeName, "192.0.2.11", "10.244.1.0/24"))
	require.NoError(t, a.connect(t.Context(), linked("milan", 1, publicKeys(t, 1)[0])))
	keys := []kernel.Key{newKey(t), newKey(t)}
	one, two := newShared(t, a, keys[0], "gw-a", "192.0.2.13", 2), newShared(t, a, keys[1], "gw-b", "192.0.2.14", 2)
	a.start(t.Context().Done())
	eventually := func(what string, ok func() bool) {
		t.Helper()
		require.Eventually(t, ok, patience, 5*time.Millisecond, what)
	}
	lease := func(number int) (holder string, say Announcement) {
		l := kubetest.Get(t, a.kube.CoordinationV1().Leases(homeNamespace), LeaseName(number))
		if l.Spec.HolderIdentity != nil {
			holder = *l.Spec.HolderIdentity
		}
		say, _ = readAnnouncement(l)
		return holder, say
	}
	one.run(t.Context())
	two.run(t.Context())
	eventually("both have a tunnel, and are activated again after a failure", func() bool {
		return one.Ready() == nil && two.Ready() == nil && one.tunnels() == 1 && two.tunnels() == 1 && one.activated.Load() == 2 && two.activated.Load() == 2
	})
	eventually("they hear of each other", func() bool { return len(a.sources.Gateways.List()) == 2 })
	_, say := lease(1)
	require.Equal(t, keys[0].Public(), say.PublicKey)
	_, say = lease(2)
	require.Equal(t, keys[1].Public(), say.PublicKey)

	one.stop()
	eventually("it has nodes and peers leave it", func() bool {
		one.echoes.mu.Lock()
		defer one.echoes.mu.Unlock()
		return one.echoes.echo != nil && leaving(one.echoes.echo)
	})
	require.Equal(t, 1, one.tunnels(), "its tunnels carry what is still under way")
	require.NoError(t, <-one.done)
	require.Equal(t, -1, one.tunnels())
	holder, _ := lease(1)
	require.Empty(t, holder)
	again := newShared(t, a, keys[0], "gw-c", "192.0.2.15", 2)
	require.Equal(t, 1, again.announcer.Number())

	// Its Lease is taken from it, as after a time in which it did not run.
	l := kubetest.Get(t, a.kube.CoordinationV1().Leases(homeNamespace), LeaseName(2))
	other, now := "gw-d", metav1.NowMicro()
	l.Spec.HolderIdentity, l.Spec.RenewTime = &other, &now
	eventually("the Lease is another's", func() bool {
		kubetest.Update(t, a.kube.CoordinationV1().Leases(homeNamespace), l)
		return !two.announcer.Active()
	})
	require.ErrorContains(t, <-two.done, "gateway gw-d holds Lease")
	require.Equal(t, -1, two.tunnels())
	holder, _ = lease(2)
	require.Equal(t, "gw-d", holder, "it gives back nothing that is not its own")
}

func leaving(e *Echo) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.leaving
}
