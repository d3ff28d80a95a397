package host

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/clock"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	networkingv1beta1 "github.com/liqod/liqod/api/networking/v1beta1"
	"github.com/liqod/liqod/kube/kubetest"
	"github.com/liqod/liqod/netfabric/kernel"
	"github.com/liqod/liqod/netfabric/plan"
)

// lead connects a gateway, by its public address, to the internet.
func lead(t *testing.T, internet *kubetest.Netns, name string, gateway *kubetest.Netns, public string) {
	t.Helper()
	router := netip.MustParseAddr(public).Prev().String()
	kubetest.Cable(t, internet, name, gateway, "wan")
	internet.Sh(t, fmt.Sprintf("ip addr add %s/30 dev %s", router, name))
	gateway.Sh(t, fmt.Sprintf("ip addr add %s/30 dev wan; ip route add default via %s", public, router))
}

// town is a cluster with a gateway, a node and a pod. All towns have the same addresses.
type town struct {
	actor              // the gateway
	gateway, node, pod *kubetest.Netns
	api                *apis // of the node
	agent              *NodeHost
	stop               func()       // ends the agent
	writes             atomic.Int32 // to the kernel, by the agents of the node
}

const (
	podAddress  = "10.244.1.10"
	nodeAddress = "192.168.0.11"
	nodeName    = "node-1"
)

func newTown(t *testing.T, id, public string, internet *kubetest.Netns) *town {
	t.Helper()
	w := &town{gateway: kubetest.NewNetns(t), node: kubetest.NewNetns(t), pod: kubetest.NewNetns(t)}
	timing := EchoTiming{Interval: 100 * time.Millisecond, Silence: 2 * time.Second, Patience: 5 * time.Second, Answers: 2}
	w.at = w.gateway
	w.site = site{ClusterID: id, Number: 1, Keys: t.TempDir(), Address: "192.168.0.13", Timing: timing, Nodes: []corev1.Node{{
		ObjectMeta: metav1.ObjectMeta{Name: nodeName}, Spec: corev1.NodeSpec{PodCIDRs: []string{"10.244.1.0/24"}},
		Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: nodeAddress}}},
	}}}
	kubetest.Cable(t, w.node, "eth0", w.gateway, "eth0")
	kubetest.Cable(t, w.node, "pod", w.pod, "eth0")
	w.gateway.Sh(t, "ip addr add 192.168.0.13/24 dev eth0")
	lead(t, internet, "to-"+id, w.gateway, public)
	w.pod.Sh(t, "ip addr add "+podAddress+"/24 dev eth0; ip route add default via 10.244.1.1")
	// As of a plain CNI, which masquerades what leaves the pod range.
	w.node.Sh(t, `ip addr add 192.168.0.11/24 dev eth0; ip addr add 10.244.1.1/24 dev pod
echo 1 > /proc/sys/net/ipv4/ip_forward
nft 'table ip cni { chain post { type nat hook postrouting priority 100; ip saddr 10.244.0.0/16 ip daddr != 10.244.0.0/16 masquerade; }; }'`)
	w.serves(t, 7777, func(_ []byte, from net.Addr) []byte { return []byte(from.String()) })
	w.serves(t, 7778, func(packet []byte, _ net.Addr) []byte { return packet })
	w.api = apisWith(t, w.Nodes...)
	return w
}

// runNode runs the agent of the node until stop is called.
func (w *town) runNode(t *testing.T) {
	t.Helper()
	w.agent = NewNode(NodeConfig{
		ClusterID: w.ClusterID, Name: nodeName, Overlay: plan.OverlayPort, MTU: 1500,
		Host:    kernel.New(kernel.Config{Namespace: w.node.FD, Log: zap.NewNop(), Wrote: func(string) { w.writes.Add(1) }}),
		Sources: w.api.sources, Clock: clock.RealClock{}, Log: zap.NewNop(),
		AllPods: organisation,
	})
	w.stop = kubetest.Run(t, func(ctx context.Context) error {
		w.api.start(ctx.Done())
		return w.agent.Run(ctx)
	})
}

// restartNode ends the agent of the node, and starts it with caches of its own. The next one has
// nothing to write, unless the node was rebooted: then it has everything to write.
func (w *town) restartNode(t *testing.T, rebooted bool) {
	t.Helper()
	connections, err := w.api.sources.Connections.Lister().List(labels.Everything())
	require.NoError(t, err)
	lease := kubetest.Get(t, w.api.kube.CoordinationV1().Leases(homeNamespace), LeaseName(1))
	w.stop()
	if rebooted {
		require.NoError(t, kernel.New(kernel.Config{Namespace: w.node.FD, Log: zap.NewNop()}).Apply(t.Context(), plan.State{}))
	}
	w.api = apisWith(t, w.Nodes...)
	require.NoError(t, w.api.kube.Tracker().Add(lease))
	for _, c := range connections {
		require.NoError(t, w.api.liqo.Tracker().Add(c))
	}
	before, since := w.writes.Load(), time.Now()
	require.NotZero(t, before)
	w.runNode(t)
	require.Eventually(t, func() bool { return w.agent.Ready() == nil }, patience, 10*time.Millisecond)
	w.reaches(t, "after a restart of the node's agent")
	took := time.Since(since)
	t.Logf("the agent of the node was restarted, the node rebooted: %t; packets pass after %s", rebooted, took.Round(time.Millisecond))
	require.Less(t, took, repaired)
	require.Equal(t, rebooted, w.writes.Load() > before, "a restart with nothing changed writes nothing")
}

// restartGateway kills the gateway of a town, and starts it again with the objects that it had. The
// next process writes what went with the tunnel device, which lived in the process, and what somebody
// has deleted meanwhile, but nothing else.
func restartGateway(t *testing.T, w, peer *town) {
	t.Helper()
	last := w.ask(t)
	w.down(t, unix.SIGKILL)
	peer.eventually(t, "the peer is silent", func(o told) bool { return !isConnected(o) })
	w.gateway.Sh(t, "ip rule del priority 92; nft delete element inet liqod senders4 '{ "+nodeAddress+" }'")
	w.Leases, w.Connections = []coordinationv1.Lease{*last.Lease}, last.Connections
	since := time.Now()
	w.up(t)
	w.Leases, w.Connections = nil, nil
	w.announced(t)
	w.reaches(t, "after a kill")
	t.Logf("the gateway was started again: packets pass after %s", time.Since(since).Round(time.Millisecond))
	lines := func(list string) int { return strings.Count(w.gateway.Sh(t, list), "\n") }
	writes := w.ask(t).Writes
	delete(writes, "peer") // again with each endpoint that is tried
	require.Equal(t, map[string]int{
		"link":    2, // made, and set up
		"address": lines("ip -o address show liqod-wg scope global"), "route": lines("ip route show table 6171"),
		"rule": 1, "element": 1,
	}, writes)
}

// announced waits for the announcement, and gives it to the node.
func (w *town) announced(t *testing.T) Announcement {
	t.Helper()
	out := w.eventually(t, "the gateway announces itself", func(o told) bool {
		return o.Lease != nil && o.Lease.Annotations[GatewayKey] != "" && o.Ready == ""
	})
	require.NoError(t, w.api.lease(t.Context(), out.Lease))
	a, err := readAnnouncement(out.Lease)
	require.NoError(t, err)
	return a
}

// meet gives a town the Connection to another.
func (w *town) meet(t *testing.T, peer string, trust corev1beta1.Trust, gateway Announcement, podView, externalView string) {
	t.Helper()
	c := connectionTo(peer, trust, podView, externalView, gateway.Gateway)
	w.give(t, order{Connection: c})
	require.NoError(t, w.api.connect(t.Context(), c))
}

// connectionTo returns the Connection of a town to another.
func connectionTo(peer string, trust corev1beta1.Trust, podView, externalView string, gateways ...networkingv1beta1.Gateway) *networkingv1beta1.Connection {
	return &networkingv1beta1.Connection{
		ObjectMeta: metav1.ObjectMeta{Namespace: corev1beta1.TenantNamespace(peer), Name: peer, Generation: 1},
		Spec: networkingv1beta1.ConnectionSpec{
			ClusterID: peer, Trust: string(trust), Gateways: gateways,
			// By chance both see each other under the same ranges.
			Local: []networkingv1beta1.Mapping{
				{Own: "10.244.0.0/16", View: networkingv1beta1.CIDR(podView), Use: networkingv1beta1.RangePod},
				{Own: "10.70.0.0/16", View: networkingv1beta1.CIDR(externalView), Use: networkingv1beta1.RangeExternal},
			},
			Remote: []networkingv1beta1.Mapping{
				{Own: "10.244.0.0/16", View: networkingv1beta1.CIDR(podView), Use: networkingv1beta1.RangePod},
				{Own: "10.70.0.0/16", View: networkingv1beta1.CIDR(externalView), Use: networkingv1beta1.RangeExternal},
			},
		},
	}
}

// serves has the pod answer each packet to a port.
func (w *town) serves(t *testing.T, port int, answer func(packet []byte, from net.Addr) []byte) {
	t.Helper()
	var conn net.PacketConn
	require.NoError(t, w.pod.Do(func() (err error) {
		conn, err = net.ListenPacket("udp4", fmt.Sprintf("0.0.0.0:%d", port))
		return err
	}))
	t.Cleanup(func() { _ = conn.Close() })
	go func() {
		packet := make([]byte, 100)
		for {
			n, from, err := conn.ReadFrom(packet)
			if err != nil {
				return
			}
			_, _ = conn.WriteTo(answer(packet[:n], from), from)
		}
	}()
}

// asks sends a packet to the pod of the other town, and returns the answer.
func (w *town) asks() (answer string, err error) {
	err = w.pod.Do(func() error {
		conn, err := net.Dial("udp4", "10.200.1.10:7777")
		if err != nil {
			return err
		}
		defer conn.Close()
		if _, err := conn.Write([]byte("?")); err != nil {
			return err
		}
		packet := make([]byte, 100)
		_ = conn.SetReadDeadline(time.Now().Add(time.Second))
		n, err := conn.Read(packet)
		answer = string(packet[:n])
		return err
	})
	return answer, err
}

// reaches waits until the pod has an answer from the pod of the other town, which sees it
// under its view.
func (w *town) reaches(t *testing.T, why string) {
	t.Helper()
	var err error
	for until := time.Now().Add(patience); time.Now().Before(until); {
		var answer string
		if answer, err = w.asks(); err == nil {
			require.True(t, strings.HasPrefix(answer, "10.200.1.10:"), answer)
			return
		}
	}
	const state = "ip rule; ip route show table all; nft list ruleset"
	node, _ := w.node.Try(t, state)
	gateway, _ := w.gateway.Try(t, state)
	t.Fatalf("%s: the pod of %s has no answer: %v\nnode (%v): %s\ngateway: %s", why, w.ClusterID, err, w.agent.Ready(), node, gateway)
}

func isConnected(o told) bool {
	return len(o.Connections) == 1 && o.Connections[0].Status.Value == networkingv1beta1.Connected
}

// Two clusters with the same ranges: gateways and nodes follow API objects until packets
// pass, and repair what others break.
func TestGatewaysAndNodes(t *testing.T) {
	p := newPairOfTowns(t)
	rome, milan := p.rome, p.milan
	towns, says := []*town{rome, milan}, []Announcement{p.exchange(t, rome), p.exchange(t, milan)}
	require.Equal(t, int32(1), says[0].Number)
	require.Empty(t, says[0].Endpoints)
	require.Equal(t, []networkingv1beta1.Endpoint{{Address: "198.51.100.2", Port: 51840}}, says[1].Endpoints)
	require.NotEmpty(t, says[0].WireGuard)
	trusts := func(i int, trust corev1beta1.Trust) {
		towns[i].meet(t, towns[1-i].ClusterID, trust, says[1-i], "10.200.0.0/16", "10.201.0.0/16")
	}
	met := func(i int) { trusts(i, corev1beta1.TrustOrganisation) }
	for _, w := range towns {
		out := w.eventually(t, "the peer answers probes", isConnected)
		status := out.Connections[0].Status
		require.Equal(t, "True", string(status.Conditions[0].Status), "%+v", status)
		require.NotNil(t, status.Latency)
		require.Len(t, status.Gateways, 1)
		require.Equal(t, gatewayOf(w.ClusterID, 1), status.Gateways[0].Name)
		require.NoError(t, w.agent.Ready())
	}
	milan.restartNode(t, false)
	milan.restartNode(t, true)
	broken(t, rome)
	rome.apiServersAway(t, true)
	broken(t, rome)
	rome.apiServersAway(t, false)

	// The process of a gateway dies, and is started again with the same key.
	restartGateway(t, rome, milan)
	milan.reaches(t, "after a kill of the peer")

	// It ends by itself: its Lease is free, and the node keeps its way.
	last := rome.down(t, syscall.SIGTERM)
	require.Empty(t, *last.Lease.Spec.HolderIdentity)
	require.Equal(t, networkingv1beta1.ReasonGatewayStopped, last.Connections[0].Status.Conditions[0].Reason)
	kubetest.Update(t, rome.api.kube.CoordinationV1().Leases(homeNamespace), last.Lease)
	require.Eventually(t, func() bool { return !rome.api.sources.Gateways.List()[0].Alive }, patience, 10*time.Millisecond)
	require.Contains(t, rome.node.Sh(t, "ip route show table 6171"), "10.200.0.0/16 via 192.168.0.13 dev liqod-vx")
	rome.up(t)
	rome.announced(t)
	met(0)
	rome.reaches(t, "after a stop")
	milan.eventually(t, "the peer answers probes again", isConnected)

	// The trust in the peer opens the pods of a node, and closes them. Its own pods reach the peer.
	for _, trust := range []corev1beta1.Trust{corev1beta1.TrustStrict, ""} {
		trusts(1, trust)
		require.Eventually(t, func() bool {
			_, err := rome.asks()
			return err != nil
		}, patience, 10*time.Millisecond, "trust %q", trust)
		milan.reaches(t, "without trust in the peer")
		met(1)
		rome.reaches(t, "with the trust of the peer")
	}
}

// apiServersAway takes the API servers of the gateway and of the node of a town away, or brings them
// back.
func (w *town) apiServersAway(t *testing.T, away bool) {
	t.Helper()
	w.api.away.Store(away)
	w.give(t, order{Turn: true})
}

// broken breaks what is applied in a town, one thing after the other.
func broken(t *testing.T, w *town) {
	for _, s := range []struct {
		name  string
		where *kubetest.Netns
		do    string
		check string // succeeds when it is repaired
	}{
		{"a deleted table of the node", w.node, "nft delete table inet liqod", "nft list table inet liqod"},
		{"a flushed table of the gateway", w.gateway, "nft flush table inet liqod", "nft list chain inet liqod guard_in | grep drop"},
		{"a rule of the node", w.node, "ip rule del priority 91", "ip rule show priority 91 | grep 6171"},
		{"a rule of the gateway", w.gateway, "ip rule del priority 92", "ip rule show priority 92 | grep 6172"},
		{"a link of the node", w.node, "ip link set liqod-vx down", "ip link show liqod-vx up | grep liqod-vx"},
		{"a link of the gateway", w.gateway, "ip link set liqod-wg down", "ip link show liqod-wg up | grep liqod-wg"},
		{"the device of the node", w.node, "ip link del liqod-vx", "ip route show table 6171 | grep liqod-vx"},
		{"the tunnel device", w.gateway, "ip link del liqod-wg", "ip route show table 6171 | grep liqod-wg"},
		{"all tables of the node", w.node, "nft flush ruleset", "nft list table inet liqod"},
		{"all tables of the gateway", w.gateway, "nft flush ruleset", "nft list table inet liqod"},
		{"the outer link of the node", w.node, "ip link set eth0 down; ip link set eth0 up", "ip link show liqod-vx up | grep liqod-vx"},
		{"the link of the gateway to its nodes", w.gateway, "ip link set eth0 down; ip link set eth0 up", "ip link show liqod-vx up | grep liqod-vx"},
		// Who sets up the network of the host adds its default route again.
		{"the outer link of the gateway", w.gateway, "ip link set wan down; ip link set wan up; ip route add default via 203.0.113.1", "ip link show liqod-wg up | grep liqod-wg"},
	} {
		s.where.Sh(t, s.do)
		since := time.Now()
		require.Eventually(t, func() bool {
			_, err := s.where.Try(t, s.check)
			return err == nil
		}, patience, 20*time.Millisecond, s.name)
		w.reaches(t, s.name)
		took := time.Since(since)
		t.Logf("%s: packets pass after %s", s.name, took.Round(time.Millisecond))
		require.Less(t, took, repaired, s.name)
	}
}

// repaired is the longest time until packets pass again after somebody has broken something. It is
// less than the time between two comparisons of the host with the plan.
const repaired = 5 * time.Second

// A node that is started while its API server is away leaves alone what stands.
func TestANodeWaitsForItsCaches(t *testing.T) {
	a := apisWith(t)
	host := &countingHost{}
	n := NewNode(NodeConfig{ClusterID: "rome", Name: nodeName, Overlay: plan.OverlayPort, MTU: 1500, Host: host, Sources: a.sources, Clock: clock.RealClock{}, Log: zap.NewNop()})
	stop := kubetest.Run(t, n.Run)
	stop()
	require.Zero(t, host.applied)
	require.ErrorContains(t, n.Ready(), "nothing has been applied yet")
}

type countingHost struct{ applied int }

func (h *countingHost) Apply(context.Context, plan.State) error {
	h.applied++
	return nil
}

func (h *countingHost) Watch(ctx context.Context, _ func()) error {
	<-ctx.Done()
	return nil
}
