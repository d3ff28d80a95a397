package host

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"

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
		if err := runSite(text); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// site is what the process of a gateway, or of a node's agent, works with: its settings, and the
// objects that it finds in its API server.
type site struct {
	ClusterID   string
	Agent       bool   // the process is the agent of the node, and not a gateway
	Number      int    // of the gateway
	Keys        string // the folder of the gateway's keys
	Address     string // of the gateway, for the nodes
	Endpoint    string // of the gateway, for its peer; empty: it dials
	Replaced    bool   // the next gateway has its key too
	Timing      EchoTiming
	Nodes       []corev1.Node
	Leases      []coordinationv1.Lease
	Connections []networkingv1beta1.Connection

	wrote *tally // of the process itself
}

// tally counts writes to the kernel by the kind of what was written.
type tally struct {
	mu sync.Mutex
	of map[string]int
}

func (c *tally) count(kind string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.of[kind]++
}

func (c *tally) read() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.of)
}

// order is a line for a process.
type order struct {
	Rotate     bool // the gateway replaces its key
	Turn       bool // the API server goes away, or comes back
	Lease      *coordinationv1.Lease
	Connection *networkingv1beta1.Connection
}

// told is the answer of a process: the Lease of its gateway, its Connections, why it is not ready, and
// how often it has written to the kernel.
type told struct {
	Lease       *coordinationv1.Lease
	Connections []networkingv1beta1.Connection
	Ready       string
	Writes      map[string]int
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
	gateways := NewLeaseGateways(kube.Coordination().V1().Leases(), clock.RealClock{}, zap.NewNop())
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

func apisWith(t *testing.T, nodes ...corev1.Node) *apis {
	t.Helper()
	a, err := newAPIs(nodes)
	require.NoError(t, err)
	return a
}

// worker is what a process runs.
type worker interface {
	Run(ctx context.Context) error
	Ready() error
}

// runSite is the process of a gateway or of an agent. Each line that comes in is an order; the
// process answers an empty one.
func runSite(text string) error {
	var s site
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return err
	}
	s.wrote = &tally{of: map[string]int{}}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	a, err := newAPIs(s.Nodes)
	if err != nil {
		return err
	}
	for i := range s.Leases {
		err = errors.Join(err, a.lease(ctx, &s.Leases[i]))
	}
	for i := range s.Connections {
		err = errors.Join(err, a.connect(ctx, &s.Connections[i]))
	}
	if err != nil {
		return err
	}
	h, err := s.worker(a)
	if err != nil {
		return err
	}
	a.start(ctx.Done())
	done := make(chan error, 1)
	go func() { done <- h.Run(ctx) }()
	go func() {
		in := bufio.NewReader(os.Stdin)
		for {
			line, err := in.ReadBytes('\n')
			if err == nil {
				err = a.obey(ctx, line, s, h)
			}
			if err != nil {
				stop()
				return
			}
		}
	}()
	err = <-done
	return errors.Join(err, a.tell(context.Background(), s, h))
}

func (s site) worker(a *apis) (worker, error) {
	log, err := zap.NewDevelopment(zap.IncreaseLevel(zap.WarnLevel))
	if err != nil {
		return nil, err
	}
	log = log.Named(s.ClusterID)
	if !s.Agent {
		return s.gateway(a, log)
	}
	return NewNode(NodeConfig{
		ClusterID: s.ClusterID, Name: nodeName, Overlay: plan.OverlayPort, MTU: 1500, Host: kernel.New(kernel.Config{Log: log}),
		Sources: a.sources, Open: func() (ProbeSocket, error) { return net.ListenUDP("udp", nil) }, AllPods: organisation, Clock: clock.RealClock{}, Log: log,
	}), nil
}

func (s site) gateway(a *apis, log *zap.Logger) (*GatewayHost, error) {
	metrics := NewProbeMetrics(prometheus.NewRegistry().MustRegister)
	var endpoints []string
	if s.Endpoint != "" {
		endpoints = append(endpoints, s.Endpoint)
	}
	list, err := ParseEndpoints(endpoints)
	if err != nil {
		return nil, err
	}
	announcer, err := NewAnnouncer(AnnounceConfig{Client: a.kube.CoordinationV1(), Namespace: homeNamespace, Name: gatewayOf(s.ClusterID, s.Number), Number: s.Number,
		Duration: 15 * time.Second, RetryPeriod: time.Second, Clock: clock.RealClock{}, Log: log})
	if err != nil {
		return nil, err
	}
	return NewGateway(GatewayConfig{
		ClusterID: s.ClusterID, Ports: plan.Ports{Overlay: plan.OverlayPort, Tunnel: plan.TunnelPort}, MTU: 1500,
		Addresses: []netip.Addr{netip.MustParseAddr(s.Address)}, Keys: fileKeys(s.Keys), Endpoints: list,
		Host: kernel.New(kernel.Config{Log: log, Wrote: s.wrote.count}), Sources: a.sources, Client: a.liqo,
		Announcer: announcer, Replaced: s.Replaced,
		Lookup: s.lookup,
		Listen: func(at netip.AddrPort) (ProbeSocket, error) {
			return net.ListenUDP("udp", net.UDPAddrFromAddrPort(at))
		},
		Timing:  s.Timing,
		Metrics: metrics, APIServer: func() health.Verdict { return health.Up }, Clock: clock.RealClock{}, Log: log,
	}), nil
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

// gatewayOf returns the name of a gateway.
func gatewayOf(clusterID string, number int) string {
	return fmt.Sprintf("gw-%s-%d", clusterID, number)
}

func (a *apis) obey(ctx context.Context, line []byte, s site, h worker) error {
	if len(line) <= 1 {
		return a.tell(ctx, s, h)
	}
	var o order
	if err := json.Unmarshal(line, &o); err != nil {
		return err
	}
	switch {
	case o.Rotate:
		return a.rotate(ctx, h.(*GatewayHost))
	case o.Turn:
		a.away.Store(!a.away.Load())
		return nil
	case o.Lease != nil:
		return a.lease(ctx, o.Lease)
	}
	return a.connect(ctx, o.Connection)
}

// lease writes a Lease.
func (a *apis) lease(ctx context.Context, l *coordinationv1.Lease) error {
	leases := a.kube.CoordinationV1().Leases(homeNamespace)
	_, err := leases.Create(ctx, l, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		_, err = leases.Update(ctx, l, metav1.UpdateOptions{})
	}
	return err
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

func (a *apis) tell(ctx context.Context, s site, h worker) error {
	out := told{Writes: s.wrote.read()}
	lease, err := a.kube.CoordinationV1().Leases(homeNamespace).Get(ctx, LeaseName(s.Number), metav1.GetOptions{})
	if err == nil {
		out.Lease = lease
	}
	list, err := a.liqo.NetworkingV1beta1().Connections(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	out.Connections = list.Items
	if err := h.Ready(); err != nil {
		out.Ready = err.Error()
	}
	return json.NewEncoder(os.Stdout).Encode(out)
}

// actor is a process, and where it runs.
type actor struct {
	site
	at *kubetest.Netns

	process *exec.Cmd
	in      io.WriteCloser
	out     *json.Decoder
}

// up starts the process.
func (w *actor) up(t *testing.T) {
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
	require.NoError(t, w.at.Do(cmd.Start))
	w.process, w.in, w.out = cmd, in, json.NewDecoder(out)
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
}

// down ends the process. It returns the last answer, which a killed process does not give.
func (w *actor) down(t *testing.T, with os.Signal) (last told) {
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

func (w *actor) ask(t *testing.T) (out told) {
	t.Helper()
	_, err := w.in.Write([]byte("\n"))
	require.NoError(t, err)
	require.NoError(t, w.out.Decode(&out))
	return out
}

// give gives the process an order.
func (w *actor) give(t *testing.T, o order) {
	t.Helper()
	text, err := json.Marshal(o)
	require.NoError(t, err)
	_, err = w.in.Write(append(text, '\n'))
	require.NoError(t, err)
}

// eventually waits for an answer of the process.
func (w *actor) eventually(t *testing.T, what string, ok func(told) bool) (out told) {
	t.Helper()
	require.Eventually(t, func() bool {
		out = w.ask(t)
		return ok(out)
	}, patience, 50*time.Millisecond, "%s: %s", w.ClusterID, what)
	return out
}
