package host

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	networkingv1beta1 "github.com/liqod/liqod/api/networking/v1beta1"
	"github.com/liqod/liqod/health"
	"github.com/liqod/liqod/netfabric/kernel"
	"github.com/liqod/liqod/netfabric/plan"
)

// standbyGateway is a gateway with others that stand by for it.
type standbyGateway struct {
	*GatewayHost
	host      *fakeHost
	activated atomic.Int32
	stop      func()
	done      chan error
}

func startStandby(t *testing.T, a *apis, key kernel.Key, name, address string) *standbyGateway {
	t.Helper()
	s := &standbyGateway{host: &fakeHost{}, done: make(chan error, 1)}
	metrics, err := NewProbeMetrics(prometheus.NewRegistry())
	require.NoError(t, err)
	s.GatewayHost, err = NewGateway(GatewayConfig{
		ClusterID: "rome", Ports: plan.Ports{Overlay: plan.OverlayPort, Tunnel: plan.TunnelPort}, MTU: 1500,
		Addresses: []netip.Addr{netip.MustParseAddr(address)}, Key: func(context.Context) (kernel.Key, error) { return key, nil },
		Host: s.host, Sources: a.sources, Client: a.liqo,
		Announce: AnnounceConfig{
			Client: a.kube.CoordinationV1(), Namespace: homeNamespace, Name: name, Number: 1, Standby: true,
			Duration: time.Hour, RetryPeriod: 100 * time.Millisecond, Clock: clock.RealClock{}, Log: zap.NewNop(),
		},
		Activate: func(context.Context) error {
			if s.activated.Add(1) == 1 {
				return errors.New("the API server is away")
			}
			return nil
		},
		Lookup: func(context.Context, string) ([]netip.Addr, error) { return nil, errors.New("no names here") },
		Listen: func(netip.AddrPort) (ProbeSocket, error) { // the fake host has no such address
			return net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		},
		Timing:  EchoTiming{Interval: 10 * time.Millisecond, Silence: 40 * time.Millisecond, Patience: 40 * time.Millisecond, Answers: 1},
		Metrics: metrics, APIServer: func() health.Verdict { return health.Up }, Clock: clock.RealClock{}, Log: zap.NewNop(),
	})
	require.NoError(t, err)
	return s
}

func (s *standbyGateway) run(ctx context.Context) {
	ctx, s.stop = context.WithCancel(ctx)
	go func() { s.done <- s.Run(ctx) }()
}

// tunnels is the number of tunnels of its host; -1: the host has no device for any.
func (s *standbyGateway) tunnels() int {
	state, _ := s.host.last()
	if state.Device.Name == "" {
		return -1
	}
	return len(state.Device.Peers)
}

func TestGatewayStandsBy(t *testing.T) {
	t.Parallel()
	a, err := newAPIs([]corev1.Node{*hostNode(nodeName, "192.0.2.11", "10.244.1.0/24")})
	require.NoError(t, err)
	require.NoError(t, a.connect(t.Context(), linked("milan", 1, publicKeys(t, 1)[0])))
	key, err := kernel.GenerateKey()
	require.NoError(t, err)
	one, two := startStandby(t, a, key, "gw-a", "192.0.2.13"), startStandby(t, a, key, "gw-b", "192.0.2.14")
	a.start(t.Context().Done())
	eventually := func(what string, ok func() bool) {
		t.Helper()
		require.Eventually(t, ok, patience, 5*time.Millisecond, what)
	}
	lease := func() (holder string, say Announcement) {
		l, err := a.kube.CoordinationV1().Leases(homeNamespace).Get(t.Context(), leaseName(1), metav1.GetOptions{})
		require.NoError(t, err)
		if l.Spec.HolderIdentity != nil {
			holder = *l.Spec.HolderIdentity
		}
		say, _ = readAnnouncement(l)
		return holder, say
	}
	status := func() networkingv1beta1.ConnectionStatus {
		c, err := a.liqo.NetworkingV1beta1().Connections("liqo-tenant-milan").Get(t.Context(), "milan", metav1.GetOptions{})
		require.NoError(t, err)
		return c.Status
	}

	one.run(t.Context())
	eventually("the first one is active, and activated again after a failure", func() bool {
		return one.Ready() == nil && one.tunnels() == 1 && one.activated.Load() == 2
	})
	two.run(t.Context())
	eventually("the second one is ready", func() bool { return two.Ready() == nil })
	require.Equal(t, -1, two.tunnels())
	require.Zero(t, two.activated.Load())
	eventually("the first one writes the status", func() bool { return len(status().Gateways) == 1 && status().Gateways[0].Name == "gw-a" })

	// The first one stops: its tunnels are down before the second one takes over.
	one.stop()
	require.NoError(t, <-one.done)
	require.Equal(t, -1, one.tunnels())
	eventually("the second one takes over", func() bool {
		holder, say := lease()
		return holder == "gw-b" && say.Name == "gw-b" && two.tunnels() == 1 && two.activated.Load() == 2 && two.Ready() == nil
	})
	_, say := lease()
	require.Equal(t, key.Public(), say.PublicKey)
	require.Equal(t, []string{"192.0.2.14"}, say.Addresses)
	eventually("it writes the status alone", func() bool { return len(status().Gateways) == 1 && status().Gateways[0].Name == "gw-b" })

	// Its Lease is taken from it, as after a time in which it did not run.
	l, err := a.kube.CoordinationV1().Leases(homeNamespace).Get(t.Context(), leaseName(1), metav1.GetOptions{})
	require.NoError(t, err)
	other, now := "gw-c", metav1.NowMicro()
	l.Spec.HolderIdentity, l.Spec.RenewTime = &other, &now
	eventually("the Lease is another's", func() bool {
		_, err = a.kube.CoordinationV1().Leases(homeNamespace).Update(t.Context(), l, metav1.UpdateOptions{})
		require.NoError(t, err)
		return two.announcer.StandsBy()
	})
	eventually("it has no tunnels", func() bool { return two.tunnels() == -1 && two.Ready() == nil })
	two.stop()
	require.NoError(t, <-two.done)
	holder, _ := lease()
	require.Equal(t, "gw-c", holder, "it gives back nothing that is not its own")
}
