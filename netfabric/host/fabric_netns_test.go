package host

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/api/generated/clientset/versioned/fake"
	"github.com/liqod/liqod/api/generated/informers/externalversions"
	networkingv1beta1 "github.com/liqod/liqod/api/networking/v1beta1"
	"github.com/liqod/liqod/health"
	"github.com/liqod/liqod/kube/kubetest"
	"github.com/liqod/liqod/netfabric/kernel"
	"github.com/liqod/liqod/netfabric/plan"
)

const (
	// gatewayProcess is the environment variable with the description of a test process that
	// is a gateway, and nothing else: wireguard-go works in the namespace of its process.
	gatewayProcess = "LIQOD_TEST_GATEWAY"
	patience       = time.Minute
	homeNamespace  = "liqod"
)

func TestMain(m *testing.M) {
	if text := os.Getenv(gatewayProcess); text != "" {
		if err := runGateway(text); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// site is a cluster as its gateway is told of it.
type site struct {
	ClusterID string
	Keys      string // the folder of its keys
	Address   string // of the gateway, for the nodes
	Endpoint  string // of the gateway, for its peer; empty: it dials
	Nodes     []corev1.Node
}

// told is what a gateway tells: its Lease, and its Connections.
type told struct {
	Lease       *coordinationv1.Lease
	Connections []networkingv1beta1.Connection
	Ready       string
}

// apis are the fake API servers of one host, with running caches.
type apis struct {
	liqo    *fake.Clientset
	kube    *kubefake.Clientset
	sources Sources
	start   func(stop <-chan struct{})
	away    atomic.Bool // every request fails
}

func newAPIs(nodes []corev1.Node) (*apis, error) {
	a := &apis{liqo: fake.NewSimpleClientset(), kube: kubefake.NewSimpleClientset()}
	for i := range nodes {
		if err := a.kube.Tracker().Add(&nodes[i]); err != nil {
			return nil, err
		}
	}
	kubetest.WatchFromList(a.liqo)
	kubetest.WatchFromList(a.kube)
	fail := func(clienttesting.Action) (bool, runtime.Object, error) {
		return a.away.Load(), nil, apierrors.NewServiceUnavailable("the API server is away")
	}
	a.liqo.PrependReactor("*", "*", fail)
	a.kube.PrependReactor("*", "*", fail)
	liqo, kube := externalversions.NewSharedInformerFactory(a.liqo, 0), informers.NewSharedInformerFactory(a.kube, 0)
	gateways, err := NewLeaseGateways(kube.Coordination().V1().Leases(), zap.NewNop())
	if err != nil {
		return nil, err
	}
	a.sources = Sources{
		Connections: liqo.Networking().V1beta1().Connections(), IPs: liqo.IPAM().V1alpha1().IPs(),
		Nodes: kube.Core().V1().Nodes(), Gateways: gateways, Client: a.liqo.NetworkingV1beta1(),
	}
	a.start = func(stop <-chan struct{}) {
		liqo.Start(stop)
		kube.Start(stop)
	}
	return a, nil
}

// runGateway is the process of a gateway. Each line that comes in is a Connection; an empty
// one asks what there is.
func runGateway(text string) error {
	var s site
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	a, err := newAPIs(s.Nodes)
	if err != nil {
		return err
	}
	g, err := s.gateway(a)
	if err != nil {
		return err
	}
	a.start(ctx.Done())
	done := make(chan error, 1)
	go func() { done <- g.Run(ctx) }()
	go func() {
		in := bufio.NewReader(os.Stdin)
		for {
			line, err := in.ReadBytes('\n')
			if err == nil {
				err = a.obey(ctx, line, g)
			}
			if err != nil {
				stop()
				return
			}
		}
	}()
	err = <-done
	return errors.Join(err, a.tell(context.Background(), g))
}

func (s site) gateway(a *apis) (*GatewayHost, error) {
	metrics, err := NewProbeMetrics(prometheus.NewRegistry())
	if err != nil {
		return nil, err
	}
	var endpoints []string
	if s.Endpoint != "" {
		endpoints = append(endpoints, s.Endpoint)
	}
	list, err := ParseEndpoints(endpoints)
	if err != nil {
		return nil, err
	}
	log, err := zap.NewDevelopment(zap.IncreaseLevel(zap.WarnLevel))
	if err != nil {
		return nil, err
	}
	log = log.Named(s.ClusterID)
	announcer, err := NewAnnouncer(AnnounceConfig{Client: a.kube.CoordinationV1(), Namespace: homeNamespace, Name: "gw-" + s.ClusterID, Number: 1,
		Duration: 15 * time.Second, RetryPeriod: time.Second, Clock: clock.RealClock{}, Log: log})
	if err != nil {
		return nil, err
	}
	return NewGateway(GatewayConfig{
		ClusterID: s.ClusterID, Ports: plan.Ports{Overlay: plan.OverlayPort, Tunnel: plan.TunnelPort}, MTU: 1500,
		Addresses: []netip.Addr{netip.MustParseAddr(s.Address)}, Keys: fileKeys(s.Keys), Endpoints: list,
		Host: kernel.New(kernel.Config{Log: log}), Sources: a.sources, Client: a.liqo,
		Announcer: announcer,
		Lookup:    s.lookup,
		Listen: func(at netip.AddrPort) (ProbeSocket, error) {
			return net.ListenUDP("udp", net.UDPAddrFromAddrPort(at))
		},
		Timing:  EchoTiming{Interval: 100 * time.Millisecond, Silence: 2 * time.Second, Patience: 5 * time.Second, Answers: 2},
		Metrics: metrics, APIServer: func() health.Verdict { return health.Up }, Clock: clock.RealClock{}, Log: log,
	})
}

// lookup resolves a name by the file of names beside the keys.
func (s site) lookup(_ context.Context, host string) (out []netip.Addr, err error) {
	text, err := os.ReadFile(filepath.Join(s.Keys, "names"))
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(text)) {
		if address, name, _ := strings.Cut(strings.TrimSpace(line), " "); name == host {
			addr, err := netip.ParseAddr(address)
			return []netip.Addr{addr}, err
		}
	}
	return nil, errors.New("there is no such name")
}

func (a *apis) obey(ctx context.Context, line []byte, g *GatewayHost) error {
	if len(line) <= 1 {
		return a.tell(ctx, g)
	}
	switch string(line) {
	case rotateOrder + "\n":
		return a.rotate(ctx, g)
	case awayOrder + "\n":
		a.away.Store(!a.away.Load())
		return nil
	}
	var c networkingv1beta1.Connection
	if err := json.Unmarshal(line, &c); err != nil {
		return err
	}
	return a.connect(ctx, &c)
}

// connect writes a Connection.
func (a *apis) connect(ctx context.Context, c *networkingv1beta1.Connection) error {
	connections := a.liqo.NetworkingV1beta1().Connections(c.Namespace)
	_, err := connections.Create(ctx, c, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		_, err = connections.Update(ctx, c, metav1.UpdateOptions{})
	}
	return err
}

func (a *apis) tell(ctx context.Context, g *GatewayHost) error {
	var out told
	lease, err := a.kube.CoordinationV1().Leases(homeNamespace).Get(ctx, LeaseName(1), metav1.GetOptions{})
	if err == nil {
		out.Lease = lease
	}
	list, err := a.liqo.NetworkingV1beta1().Connections(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	out.Connections = list.Items
	if err := g.Ready(); err != nil {
		out.Ready = err.Error()
	}
	return json.NewEncoder(os.Stdout).Encode(out)
}

// netspace is a network namespace. Nothing of it is left when the test ends.
type netspace struct{ fd int }

func newNetspace(t *testing.T) *netspace {
	t.Helper()
	type result struct {
		fd  int
		err error
	}
	made := make(chan result)
	go func() {
		goruntime.LockOSThread() // never unlocked: the thread ends with the goroutine
		err := unix.Unshare(unix.CLONE_NEWNET)
		fd := -1
		if err == nil {
			fd, err = unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		}
		made <- result{fd, err}
	}()
	r := <-made
	if os.Getenv("CI") != "true" && (errors.Is(r.err, unix.EPERM) || errors.Is(r.err, unix.EACCES)) {
		t.Skipf("SKIPPED: this test needs root, or the right to make network namespaces: %v", r.err)
	}
	require.NoError(t, r.err)
	t.Cleanup(func() { _ = unix.Close(r.fd) })
	s := &netspace{r.fd}
	s.sh(t, "ip link set lo up")
	return s
}

// path leads other processes to the namespace.
func (s *netspace) path() string { return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), s.fd) }

// start starts a process in the namespace, with its own view of /proc/sys/net.
func (s *netspace) start(cmd *exec.Cmd) error {
	done := make(chan error)
	go func() {
		goruntime.LockOSThread()
		if err := unix.Setns(s.fd, unix.CLONE_NEWNET); err != nil {
			done <- err
			return
		}
		done <- cmd.Start()
	}()
	return <-done
}

// try runs a script in the namespace.
func (s *netspace) try(t *testing.T, script string) (string, error) {
	var out strings.Builder
	cmd := exec.CommandContext(t.Context(), "sh", "-ec", script)
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := s.start(cmd); err != nil {
		return "", err
	}
	err := cmd.Wait()
	return out.String(), err
}

func (s *netspace) sh(t *testing.T, script string) string {
	t.Helper()
	out, err := s.try(t, script)
	require.NoError(t, err, "%s: %s", script, out)
	return out
}

// plug connects two namespaces.
func plug(t *testing.T, a *netspace, nameA string, b *netspace, nameB string) {
	t.Helper()
	a.sh(t, fmt.Sprintf("ip link add %s type veth peer name %s netns %s; ip link set %s up", nameA, nameB, b.path(), nameA))
	b.sh(t, fmt.Sprintf("ip link set %s up", nameB))
}

// town is a cluster with a gateway, a node and a pod. All towns have the same addresses.
type town struct {
	site
	gateway, node, pod *netspace
	api                *apis // of the node
	agent              *NodeHost
	writes             atomic.Int32 // to the kernel, by the agents of the node

	process *exec.Cmd
	in      io.WriteCloser
	out     *json.Decoder
}

const (
	podAddress  = "10.244.1.10"
	nodeAddress = "192.168.0.11"
	nodeName    = "node-1"
)

func newTown(t *testing.T, id, public string, internet *netspace) *town {
	t.Helper()
	w := &town{gateway: newNetspace(t), node: newNetspace(t), pod: newNetspace(t)}
	w.site = site{ClusterID: id, Keys: t.TempDir(), Address: "192.168.0.13", Nodes: []corev1.Node{{
		ObjectMeta: metav1.ObjectMeta{Name: nodeName}, Spec: corev1.NodeSpec{PodCIDRs: []string{"10.244.1.0/24"}},
		Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: nodeAddress}}},
	}}}
	plug(t, w.node, "eth0", w.gateway, "eth0")
	plug(t, w.node, "pod", w.pod, "eth0")
	plug(t, internet, "to-"+id, w.gateway, "wan")
	router := netip.MustParseAddr(public).Prev().String()
	internet.sh(t, fmt.Sprintf("ip addr add %s/30 dev to-%s", router, id))
	w.gateway.sh(t, fmt.Sprintf("ip addr add 192.168.0.13/24 dev eth0; ip addr add %s/30 dev wan; ip route add default via %s", public, router))
	w.pod.sh(t, "ip addr add "+podAddress+"/24 dev eth0; ip route add default via 10.244.1.1")
	// As of a plain CNI, which masquerades what leaves the pod range.
	w.node.sh(t, `ip addr add 192.168.0.11/24 dev eth0; ip addr add 10.244.1.1/24 dev pod
echo 1 > /proc/sys/net/ipv4/ip_forward
nft 'table ip cni { chain post { type nat hook postrouting priority 100; ip saddr 10.244.0.0/16 ip daddr != 10.244.0.0/16 masquerade; }; }'`)
	var err error
	w.api, err = newAPIs(w.Nodes)
	require.NoError(t, err)
	return w
}

// up starts the gateway's process.
func (w *town) up(t *testing.T) {
	t.Helper()
	text, err := json.Marshal(w.site)
	require.NoError(t, err)
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), gatewayProcess+"="+string(text))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, w.gateway.start(cmd))
	w.process, w.in, w.out = cmd, in, json.NewDecoder(out)
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
}

// down ends the gateway's process, and returns what it told last.
func (w *town) down(t *testing.T, with os.Signal) (last told) {
	t.Helper()
	require.NoError(t, w.process.Process.Signal(with))
	if with == syscall.SIGTERM {
		require.NoError(t, w.out.Decode(&last))
		require.NoError(t, w.process.Wait())
		return last
	}
	_ = w.process.Wait()
	return last
}

// runNode runs the agent of the node until the function that it returns is called.
func (w *town) runNode(t *testing.T) (stop func()) {
	t.Helper()
	var err error
	w.agent, err = NewNode(NodeConfig{
		ClusterID: w.ClusterID, Name: nodeName, Overlay: plan.OverlayPort, MTU: 1500,
		Host:    kernel.New(kernel.Config{Namespace: w.node.fd, Log: zap.NewNop(), Wrote: func(string) { w.writes.Add(1) }}),
		Sources: w.api.sources, Clock: clock.RealClock{}, Log: zap.NewNop(),
		AllPods: organisation,
	})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	w.api.start(ctx.Done())
	done := make(chan error, 1)
	go func() { done <- w.agent.Run(ctx) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			require.NoError(t, <-done)
		})
	}
	t.Cleanup(stop)
	return stop
}

// restartNode ends the agent of the node, and starts it with caches of its own. The next one has
// nothing to write.
func (w *town) restartNode(t *testing.T, stop func()) {
	t.Helper()
	connections, err := w.api.sources.Connections.Lister().List(labels.Everything())
	require.NoError(t, err)
	lease, err := w.api.kube.CoordinationV1().Leases(homeNamespace).Get(t.Context(), LeaseName(1), metav1.GetOptions{})
	require.NoError(t, err)
	stop()
	w.api, err = newAPIs(w.Nodes)
	require.NoError(t, err)
	require.NoError(t, w.api.kube.Tracker().Add(lease))
	for _, c := range connections {
		require.NoError(t, w.api.liqo.Tracker().Add(c))
	}
	before := w.writes.Load()
	require.NotZero(t, before)
	w.runNode(t)
	require.Eventually(t, func() bool { return w.agent.Ready() == nil }, patience, 10*time.Millisecond)
	w.reaches(t, "after a restart of the node's agent")
	require.Equal(t, before, w.writes.Load(), "a restart with nothing changed writes nothing")
}

func (w *town) ask(t *testing.T) (out told) {
	t.Helper()
	_, err := w.in.Write([]byte("\n"))
	require.NoError(t, err)
	require.NoError(t, w.out.Decode(&out))
	return out
}

// eventually waits for what a gateway tells.
func (w *town) eventually(t *testing.T, what string, ok func(told) bool) (out told) {
	t.Helper()
	require.Eventually(t, func() bool {
		out = w.ask(t)
		return ok(out)
	}, patience, 50*time.Millisecond, "%s: %s", w.ClusterID, what)
	return out
}

// announced waits for the announcement, and gives it to the node.
func (w *town) announced(t *testing.T) Announcement {
	t.Helper()
	out := w.eventually(t, "the gateway announces itself", func(o told) bool {
		return o.Lease != nil && o.Lease.Annotations[GatewayKey] != "" && o.Ready == ""
	})
	leases := w.api.kube.CoordinationV1().Leases(homeNamespace)
	_, err := leases.Create(t.Context(), out.Lease, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		_, err = leases.Update(t.Context(), out.Lease, metav1.UpdateOptions{})
	}
	require.NoError(t, err)
	a, err := readAnnouncement(out.Lease)
	require.NoError(t, err)
	return a
}

// meet gives a town the Connection to another.
func (w *town) meet(t *testing.T, peer string, trust corev1beta1.Trust, gateway Announcement, podView, externalView string) {
	t.Helper()
	c := &networkingv1beta1.Connection{
		ObjectMeta: metav1.ObjectMeta{Namespace: corev1beta1.TenantNamespace(peer), Name: peer, Generation: 1},
		Spec: networkingv1beta1.ConnectionSpec{
			ClusterID: peer, Trust: string(trust), Gateways: []networkingv1beta1.Gateway{gateway.Gateway},
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
	text, err := json.Marshal(c)
	require.NoError(t, err)
	_, err = w.in.Write(append(text, '\n'))
	require.NoError(t, err)
	require.NoError(t, w.api.connect(t.Context(), c))
}

// in runs f on a thread in the namespace: the sockets that it opens stay there.
func (s *netspace) in(f func() error) error {
	done := make(chan error)
	go func() {
		goruntime.LockOSThread() // never unlocked: the thread ends with the goroutine
		err := unix.Setns(s.fd, unix.CLONE_NEWNET)
		if err == nil {
			err = f()
		}
		done <- err
	}()
	return <-done
}

// answers has the pod answer each packet with the address that it came from.
func (w *town) answers(t *testing.T) {
	t.Helper()
	var conn net.PacketConn
	require.NoError(t, w.pod.in(func() (err error) {
		conn, err = net.ListenPacket("udp4", "0.0.0.0:7777")
		return err
	}))
	t.Cleanup(func() { _ = conn.Close() })
	go func() {
		packet := make([]byte, 100)
		for {
			_, from, err := conn.ReadFrom(packet)
			if err != nil {
				return
			}
			_, _ = conn.WriteTo([]byte(from.String()), from)
		}
	}()
}

// asks sends a packet to the pod of the other town, and returns the answer.
func (w *town) asks() (answer string, err error) {
	err = w.pod.in(func() error {
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
	node, _ := w.node.try(t, state)
	gateway, _ := w.gateway.try(t, state)
	t.Fatalf("%s: the pod of %s has no answer: %v\nnode (%v): %s\ngateway: %s", why, w.ClusterID, err, w.agent.Ready(), node, gateway)
}

func isConnected(o told) bool {
	return len(o.Connections) == 1 && o.Connections[0].Status.Value == networkingv1beta1.Connected
}

// Two clusters with the same ranges: gateways and nodes follow API objects until packets
// pass, and repair what others break.
func TestGatewaysAndNodes(t *testing.T) {
	internet := newNetspace(t)
	internet.sh(t, "echo 1 > /proc/sys/net/ipv4/ip_forward")
	rome, milan := newTown(t, "rome", "203.0.113.2", internet), newTown(t, "milan", "198.51.100.2", internet)
	milan.Endpoint = "198.51.100.2:51840" // rome dials
	towns := []*town{rome, milan}
	var says []Announcement
	var stop func()
	for _, w := range towns {
		w.answers(t)
		w.up(t)
		stop = w.runNode(t)
		says = append(says, w.announced(t))
	}
	require.Equal(t, int32(1), says[0].Number)
	require.Empty(t, says[0].Endpoints)
	require.Equal(t, []networkingv1beta1.Endpoint{{Address: "198.51.100.2", Port: 51840}}, says[1].Endpoints)
	require.NotEmpty(t, says[0].WireGuard)
	trusts := func(i int, trust corev1beta1.Trust) {
		towns[i].meet(t, towns[1-i].ClusterID, trust, says[1-i], "10.200.0.0/16", "10.201.0.0/16")
	}
	met := func(i int) { trusts(i, corev1beta1.TrustOrganisation) }
	met(0)
	met(1)
	for _, w := range towns {
		w.reaches(t, "at first")
		out := w.eventually(t, "the peer answers probes", isConnected)
		status := out.Connections[0].Status
		require.Equal(t, "True", string(status.Conditions[0].Status), "%+v", status)
		require.NotNil(t, status.Latency)
		require.Len(t, status.Gateways, 1)
		require.Equal(t, "gw-"+w.ClusterID, status.Gateways[0].Name)
		require.NoError(t, w.agent.Ready())
	}
	milan.restartNode(t, stop)
	broken(t, rome)
	rome.apiServersAway(t, true)
	broken(t, rome)
	rome.apiServersAway(t, false)

	// The process of a gateway dies, and is started again with the same key.
	rome.down(t, unix.SIGKILL)
	milan.eventually(t, "the peer is silent", func(o told) bool { return !isConnected(o) })
	rome.up(t)
	rome.announced(t)
	met(0)
	rome.reaches(t, "after a kill")
	milan.reaches(t, "after a kill of the peer")

	// It ends by itself: its Lease is free, and the node keeps its way.
	last := rome.down(t, syscall.SIGTERM)
	require.Nil(t, last.Lease.Spec.HolderIdentity)
	require.Equal(t, networkingv1beta1.ReasonGatewayStopped, last.Connections[0].Status.Conditions[0].Reason)
	_, err := rome.api.kube.CoordinationV1().Leases(homeNamespace).Update(t.Context(), last.Lease, metav1.UpdateOptions{})
	require.NoError(t, err)
	require.Eventually(t, func() bool { return !rome.api.sources.Gateways.List()[0].Alive }, patience, 10*time.Millisecond)
	require.Contains(t, rome.node.sh(t, "ip route show table 6171"), "10.200.0.0/16 via 192.168.0.13 dev liqod-vx")
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

// awayOrder is the line by which the API server of a gateway goes away, or comes back.
const awayOrder = "away"

// apiServersAway takes the API servers of the gateway and of the node of a town away, or brings them
// back.
func (w *town) apiServersAway(t *testing.T, away bool) {
	t.Helper()
	w.api.away.Store(away)
	_, err := w.in.Write([]byte(awayOrder + "\n"))
	require.NoError(t, err)
}

// broken breaks what is applied in a town, one thing after the other.
func broken(t *testing.T, w *town) {
	for _, s := range []struct {
		name  string
		where *netspace
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
		s.where.sh(t, s.do)
		since := time.Now()
		require.Eventually(t, func() bool {
			_, err := s.where.try(t, s.check)
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
	a, err := newAPIs(nil)
	require.NoError(t, err)
	host := &countingHost{}
	n, err := NewNode(NodeConfig{ClusterID: "rome", Name: nodeName, Overlay: plan.OverlayPort, MTU: 1500, Host: host, Sources: a.sources, Clock: clock.RealClock{}, Log: zap.NewNop()})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- n.Run(ctx) }()
	cancel()
	require.NoError(t, <-done)
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
