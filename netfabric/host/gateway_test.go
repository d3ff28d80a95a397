package host

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/utils/clock"

	networkingv1beta1 "github.com/liqod/liqod/api/networking/v1beta1"
	"github.com/liqod/liqod/health"
	"github.com/liqod/liqod/kube/kubetest"
	"github.com/liqod/liqod/netfabric/check"
	"github.com/liqod/liqod/netfabric/kernel"
	"github.com/liqod/liqod/netfabric/plan"
)

// fakeHost is a host that takes what it is told.
type fakeHost struct {
	mu      sync.Mutex
	applied []plan.State
	err     error
	dialled []string
	changed func()
	key     kernel.Key
}

func (h *fakeHost) SetKey(key kernel.Key) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.key = key
}

func (h *fakeHost) Apply(_ context.Context, want plan.State) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.applied = append(h.applied, want)
	return h.err
}

func (h *fakeHost) Watch(ctx context.Context, changed func()) error {
	h.mu.Lock()
	h.changed = changed
	h.mu.Unlock()
	<-ctx.Done()
	return nil
}

func (h *fakeHost) Tunnel() (kernel.Mode, map[string]kernel.Peer, error) {
	return kernel.InKernel, map[string]kernel.Peer{"unknown": {Received: 7}}, nil
}

func (h *fakeHost) Redial(_ plan.Device, key string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.dialled = append(h.dialled, key)
	return nil
}

func (h *fakeHost) Counters(context.Context) (map[string]uint64, error) {
	return map[string]uint64{"from_peer": 3}, nil
}

func (h *fakeHost) Refused() (map[netip.Prefix]uint64, error) {
	return map[netip.Prefix]uint64{netip.MustParsePrefix("10.201.0.0/16"): 2, netip.MustParsePrefix("10.101.0.0/16"): 3, netip.MustParsePrefix("10.9.0.0/16"): 7}, nil
}

func (h *fakeHost) last() (s plan.State, n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.applied) > 0 {
		s = h.applied[len(h.applied)-1]
	}
	return s, len(h.applied)
}

func (h *fakeHost) fail(err error) {
	h.mu.Lock()
	h.err = err
	changed := h.changed
	h.mu.Unlock()
	changed()
}

// fakeGateway is the configuration of a gateway of rome with a fake host. It resolves no names.
func fakeGateway(a *apis, announcer *Announcer, keys KeyStore) GatewayConfig {
	return GatewayConfig{
		ClusterID: "rome", Ports: plan.Ports{Overlay: plan.OverlayPort, Tunnel: plan.TunnelPort}, MTU: 1500,
		Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.13")}, Keys: keys, Host: &fakeHost{}, Sources: a.sources, Client: a.liqo, Announcer: announcer,
		Lookup: func(context.Context, string) ([]netip.Addr, error) { return nil, errors.New("no names here") },
		Listen: func(netip.AddrPort) (ProbeSocket, error) { // the fake host has no such address
			return net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
		},
		Timing:  EchoTiming{Interval: 10 * time.Millisecond, Silence: 40 * time.Millisecond, Patience: 40 * time.Millisecond, Answers: 1},
		Metrics: NewProbeMetrics(prometheus.NewRegistry().MustRegister), APIServer: func() health.Verdict { return health.Up }, Clock: clock.RealClock{}, Log: zap.NewNop(),
	}
}

// A gateway follows Connections, Nodes and its Service. One bad peer, and a host that
// refuses, are said in the status of Connections.
func TestGatewayFollowsObjects(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	node := hostNode(nodeName, "192.0.2.11", "10.244.1.0/24")
	a, err := newAPIs([]corev1.Node{*node})
	require.NoError(t, err)
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: homeNamespace, Name: "liqod-gateway"}, Spec: corev1.ServiceSpec{
		Type: corev1.ServiceTypeNodePort, IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol}, Ports: []corev1.ServicePort{{Protocol: corev1.ProtocolUDP, Port: 51840, NodePort: 31000}},
	}}
	require.NoError(t, a.kube.Tracker().Add(service))
	services := informers.NewSharedInformerFactoryWithOptions(a.kube, 0, informers.WithNamespace(homeNamespace))
	key := newKey(t)
	registry := prometheus.NewRegistry()
	metrics := NewProbeMetrics(registry.MustRegister)
	host, asked := &fakeHost{}, make(chan struct{}, 10)
	keys := &memoryKeys{keys: Keys{Key: key}, before: func(string) error {
		asked <- struct{}{}
		if len(asked) == 1 {
			return errors.New("the API server is away")
		}
		return nil
	}}
	announcer, err := NewAnnouncer(AnnounceConfig{
		Client: a.kube.CoordinationV1(), Namespace: homeNamespace, Name: "gw-a", Number: 1, Duration: 15 * time.Second, RetryPeriod: 100 * time.Millisecond,
		Clock: clock.RealClock{}, Log: zap.NewNop(),
	})
	require.NoError(t, err)
	cfg := fakeGateway(a, announcer, keys)
	cfg.Services, cfg.NodeName, cfg.Host, cfg.Metrics = services.Core().V1().Services(), nodeName, host, metrics
	g := NewGateway(cfg)
	require.NoError(t, registry.Register(g.Metrics(host)))
	a.start(ctx.Done())
	services.Start(ctx.Done())
	done := make(chan error, 1)
	go func() { done <- g.Run(ctx) }()

	announcement := func() (out Announcement) {
		lease, err := a.kube.CoordinationV1().Leases(homeNamespace).Get(t.Context(), LeaseName(1), metav1.GetOptions{})
		if err == nil {
			out, _ = readAnnouncement(lease)
		}
		return out
	}
	eventually := func(what string, ok func() bool) {
		t.Helper()
		require.Eventually(t, ok, patience, 5*time.Millisecond, what)
	}
	eventually("why there is no key is said", func() bool { return strings.Contains(fmt.Sprint(g.Ready()), "has no key: the API server is away") })
	eventually("it is announced", func() bool { return announcement().Name == "gw-a" && g.Ready() == nil })
	require.Equal(t, networkingv1beta1.WireGuardKernel, announcement().WireGuard)
	require.Equal(t, key.Public(), announcement().PublicKey)
	require.True(t, check.Proved(key.Public(), "rome", announcement().Proofs))
	require.Equal(t, key, host.key)
	require.Equal(t, []networkingv1beta1.Endpoint{{Address: "192.0.2.11", Port: 31000}}, announcement().Endpoints)
	service.Spec.Ports[0].NodePort = 32000
	kubetest.Update(t, a.kube.CoreV1().Services(homeNamespace), service)
	eventually("a changed Service is announced", func() bool {
		return slices.Equal(announcement().Endpoints, []networkingv1beta1.Endpoint{{Address: "192.0.2.11", Port: 32000}})
	})

	// Of a Connection that no plan has been applied with yet, nothing is said.
	_, says := g.facts(linked("paris", 3, publicKeys(t, 1)[0]))
	require.False(t, says)

	peers := publicKeys(t, 2)
	good, bad := linked("milan", 1, peers[0]), linked("oslo", 2, peers[1])
	bad.Spec.Remote[0].View = "10.244.0.0/16"
	require.NoError(t, a.connect(t.Context(), good))
	require.NoError(t, a.connect(t.Context(), bad))
	status := func(peer string) networkingv1beta1.ConnectionStatus {
		c := kubetest.Get(t, a.liqo.NetworkingV1beta1().Connections("liqo-tenant-"+peer), peer)
		return c.Status
	}
	eventually("the bad peer is told of", func() bool { return status("oslo").Value == networkingv1beta1.ConnectionError })
	require.Equal(t, networkingv1beta1.ReasonInvalid, status("oslo").Conditions[0].Reason)
	require.Contains(t, status("oslo").Conditions[0].Message, "10.244.0.0/16")
	eventually("the good peer is silent", func() bool {
		s := status("milan")
		return s.Value == networkingv1beta1.Connecting && len(s.Conditions) == 2 && s.Conditions[0].Status == metav1.ConditionFalse
	})
	require.Equal(t, "203.0.113.7:51840", status("milan").Gateways[0].Endpoint)
	state, _ := host.last()
	require.Len(t, state.Device.Peers, 1)
	require.Equal(t, peers[0], state.Device.Peers[0].Key)
	eventually("the silent peer is dialled anew", func() bool {
		host.mu.Lock()
		defer host.mu.Unlock()
		return slices.Contains(host.dialled, peers[0])
	})

	_, before := host.last()
	host.fail(errors.New("no device"))
	eventually("a change of the host is looked at", func() bool { _, n := host.last(); return n > before })
	eventually("it is not ready", func() bool { return g.Ready() != nil })
	eventually("the good peer is told of, too", func() bool { return status("milan").Value == networkingv1beta1.ConnectionError })
	require.Contains(t, status("milan").Conditions[0].Message, "no device")
	host.fail(nil)
	eventually("it is ready again", func() bool { return g.Ready() == nil })

	require.Equal(t, 1, testutil.CollectAndCount(registry, "liqod_guard_dropped_packets_total"))
	require.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP liqod_guard_refused_packets_total Packets of a peer that the nftables table of liqod has dropped, since it has the ranges of the peer.
# TYPE liqod_guard_refused_packets_total counter
liqod_guard_refused_packets_total{peer="milan"} 5
`), "liqod_guard_refused_packets_total"))
	require.Zero(t, testutil.CollectAndCount(registry, "liqod_tunnel_received_bytes_total"), "nobody knows that key")
	cancel()
	require.NoError(t, <-done)
	require.Equal(t, networkingv1beta1.ReasonGatewayStopped, status("milan").Conditions[0].Reason)
	lease := kubetest.Get(t, a.kube.CoordinationV1().Leases(homeNamespace), LeaseName(1))
	require.Empty(t, *lease.Spec.HolderIdentity)
}

// The host follows what a Connection asks for, and not its status; and of a tunnel's states
// only the verdict.
func TestWhatTheHostFollows(t *testing.T) {
	t.Parallel()
	c := linked("milan", 1, publicKeys(t, 1)[0])
	noted, changed, ending := c.DeepCopy(), c.DeepCopy(), c.DeepCopy()
	noted.Status.Value = networkingv1beta1.Connected
	changed.Spec.MTU = 1300
	ending.DeletionTimestamp = &metav1.Time{Time: noon}
	require.True(t, sameOrder(c, noted))
	require.False(t, sameOrder(c, changed))
	require.False(t, sameOrder(c, ending))

	var last target
	turned := func(s EchoState) bool { _, is := last.changed(s, noon); last.reported = s; return is }
	up := EchoState{Verdict: health.Up, Since: noon, RTT: time.Millisecond}
	slower, down, again := up, up, up
	slower.RTT = time.Second
	down.Verdict, down.Since = health.Down, noon.Add(time.Second)
	again.Since = noon.Add(2 * time.Second)
	require.True(t, turned(up))
	require.False(t, turned(slower))
	require.True(t, turned(down))
	require.True(t, turned(again))
}

// A node that hears no gateway goes by their Leases, and one that hears some by what it hears.
func TestNodeChoosesAGateway(t *testing.T) {
	t.Parallel()
	keys := publicKeys(t, 2)
	one, two := ownGateway(keys[0]), ownGateway(keys[1])
	two.Name, two.Number, two.Addresses, two.MTU = "gw-b", 2, []string{"192.0.2.14"}, 1450
	both := []plan.Candidate{{Number: 1}, {Number: 2}}
	plan.Prefer("rome", "milan", both)
	first, second := one, two
	if both[0].Number == 2 {
		first, second = two, one
	}
	n := &NodeHost{cfg: NodeConfig{ClusterID: "rome", Clock: clock.RealClock{}}, probes: NewNodeProbes(nil, clock.RealClock{}, zap.NewNop(), func() {}), via: map[string]int{}}
	for i, step := range []struct {
		gateways []Announcement
		want     string
	}{
		{nil, ""},
		{[]Announcement{one, two}, first.Name},
		{[]Announcement{dead(first, first.Number), second}, second.Name},
		{[]Announcement{dead(one, 1), dead(two, 2)}, second.Name},
		{nil, ""},
	} {
		require.Equal(t, step.want, n.choose("milan", step.gateways, n.via), "step %d", i)
	}
	near := map[int32]*nearGateway{1: {number: 1, alive: true}, 2: {number: 2, alive: true}}
	n.probes.gateways = map[netip.Addr]*nearGateway{netip.MustParseAddr("10.70.0.2"): near[1], netip.MustParseAddr("10.70.0.3"): near[2]}
	leases := []Announcement{dead(one, 1), dead(two, 2)} // as without an API server
	require.Equal(t, first.Name, n.choose("milan", leases, n.via))
	near[first.Number].away = []uint64{HashCluster("milan").short()}
	require.Equal(t, second.Name, n.choose("milan", leases, n.via))
	near[second.Number].none = true
	require.Equal(t, first.Name, n.choose("milan", leases, n.via), "none serves it")
	near[first.Number].alive = false
	require.Equal(t, second.Name, n.choose("milan", leases, n.via))

	require.Equal(t, 1450, smallestUnderlay(1500, []Announcement{one, two}))
	require.Equal(t, 1400, smallestUnderlay(1400, []Announcement{one, two}))
}
