package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/utils/clock"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/api/generated/clientset/versioned"
	ipamv1alpha1 "github.com/liqod/liqod/api/ipam/v1alpha1"
	networkingv1beta1 "github.com/liqod/liqod/api/networking/v1beta1"
	"github.com/liqod/liqod/health"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/kube/serve"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/netfabric/check"
	"github.com/liqod/liqod/netfabric/kernel"
	"github.com/liqod/liqod/netfabric/plan"
)

// TunnelHost is the network of a gateway: a *kernel.Kernel.
type TunnelHost interface {
	Host
	Tunnel() (kernel.Mode, map[string]kernel.Peer, error)
	Redial(want plan.Device, key string) error
	SetKey(key kernel.Key)
}

// GatewayConfig configures a Gateway.
type GatewayConfig struct {
	ClusterID string
	Ports     plan.Ports
	AnySender bool                             // as in Settings
	MTU       int                              // of the underlay
	Addresses []netip.Addr                     // of the underlay, at most one of each family
	Closed    func() []ipamv1alpha1.NamedRange // as in Settings, as they are now; it may be nil
	// Keys has the private key. It is read until it returns no error.
	Keys KeyStore
	// KeyAge is the age from which on the key is replaced; 0: it never is.
	KeyAge time.Duration

	// Endpoints are where peers reach this gateway. Without any, those of a Service are taken:
	// the only object that Services sees, which may be nil.
	Endpoints []networkingv1beta1.Endpoint
	Services  coreinformers.ServiceInformer
	NodeName  string // of the node that it runs on; may be empty

	Host    TunnelHost
	Sources Sources
	Behind  *Behind      // nil: no peer reaches another one through this gateway
	Relay   *serve.Relay // to the API server of this cluster; nil: no peer reaches it
	// Client is of this cluster.
	Client versioned.Interface
	// Announcer of this gateway. Nothing else runs it.
	Announcer *Announcer
	// Activate is called until it returns no error, once the tunnels are in place: peers are to
	// be led here. It may be nil.
	Activate func(context.Context) error
	// Replaced means that the next gateway with this number has its key too: the tunnels are
	// taken down before the number is given back.
	Replaced bool
	// Lookup resolves names of endpoints, as that of a *net.Resolver does.
	Lookup func(ctx context.Context, host string) ([]netip.Addr, error)
	// Listen opens the socket of probes. The address is on the tunnel device then.
	Listen    func(netip.AddrPort) (ProbeSocket, error)
	Timing    EchoTiming
	Metrics   *ProbeMetrics
	APIServer func() health.Verdict // of this cluster

	Clock clock.WithTicker
	Log   *zap.Logger
	// Observer may be nil.
	Observer loop.Observer
}

// GatewayHost brings the network of one gateway to its plan, and keeps it there. It announces
// the gateway to its cluster, probes those of peers, and writes the status of Connections.
type GatewayHost struct {
	*fabric
	cfg       GatewayConfig
	status    *loop.Loop
	announcer *Announcer
	resolver  *Resolver
	echoes    *echoes
	nodes     *NodeAnswers

	// Of the loop of the host alone.
	key       kernel.Key
	use       map[string]int      // by id of the peer
	device    plan.Device         // of the last plan
	dialled   map[string]attempts // by public key
	answering int                 // tunnels that answer, and are not Up yet
	said      *Announcement
	activated bool

	rotation rotation

	view loop.Value[view]
	// keyless is the reason why there is no key.
	keyless loop.Value[error]
}

// view is what the loop of the host has done last, for the status of Connections.
type view struct {
	refused   map[string]string // by name of the Connection
	planned   map[loop.Key]planned
	applied   error
	use       map[string]int
	device    plan.Device
	wireGuard networkingv1beta1.WireGuard
}

// planned is the state of a Connection that a plan followed from.
type planned struct {
	uid        types.UID
	generation int64
}

// NewGateway registers with the informers and starts nothing.
func NewGateway(cfg GatewayConfig) *GatewayHost {
	g := &GatewayHost{cfg: cfg, use: map[string]int{}, announcer: cfg.Announcer, nodes: NewNodeAnswers(cfg.Clock)}
	g.keyless.Swap(errors.New("it has not been read yet"))
	g.fabric = &fabric{src: cfg.Sources, host: cfg.Host, log: cfg.Log, clk: cfg.Clock, seen: presence{client: cfg.Sources.Client}}
	g.Loop = loop.New(loop.Config{Name: "gateway", Sync: g.sync, Beside: atOnce, Log: cfg.Log, Observer: cfg.Observer})
	g.status = loop.New(loop.Config{Name: "connections", Sync: g.report, Log: cfg.Log, Observer: cfg.Observer}, loop.From(cfg.Sources.Connections.Informer(), loop.Self))
	g.announcer.onActive = g.wake
	g.rotation.begin = loop.NewSignal()
	g.resolver = NewResolver(cfg.Lookup, cfg.Clock, cfg.Log, g.wake)
	g.echoes = &echoes{listen: cfg.Listen, failed: g.unprobed, cfg: EchoConfig{
		ClusterID: cfg.ClusterID, Port: plan.ProbePort, Timing: cfg.Timing, APIServer: cfg.APIServer, Metrics: cfg.Metrics, Clock: cfg.Clock,
		Keys:    func(public string) (ProbeKeys, error) { return NewProbeKeys(g.key, public) },
		Tunnels: g.tunnels, Nodes: g.nodes, OnChange: g.heard, OnTurn: g.wake,
	}}
	g.watch()
	if cfg.Services != nil {
		g.Watch(loop.From(cfg.Services.Informer(), loop.Constant(loop.Key{Name: fabricKey})))
	}
	if cfg.Behind != nil {
		cfg.Behind.watch(g.Loop, g.wake)
	}
	return g
}

// Run works until ctx is done. What is applied in the kernel stays then; a tunnel device in
// the process ends with the process. One with other gateways beside it first has nodes and
// peers leave it. It ends with an error if another gateway takes its number.
func (g *GatewayHost) Run(ctx context.Context) error {
	if !g.awaitKey(ctx) {
		return nil
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	var errs [3]error
	working, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	announcing, release := context.WithCancel(context.WithoutCancel(ctx))
	defer release()
	defer context.AfterFunc(ctx, func() { g.leave(); end() })()
	wg.Go(func() {
		errs[0] = g.announcer.Run(announcing)
		end() // another gateway has the number
	})
	wg.Go(func() { errs[1] = g.resolver.Run(working) })
	wg.Go(func() { g.rotate(working) })
	wg.Go(func() { g.followKeys(working) })
	if g.cfg.Behind != nil {
		wg.Go(func() { g.cfg.Behind.run(working) })
	}
	wg.Go(func() { errs[2] = g.status.Run(working, statusWorkers) })
	err := g.run(working)
	g.echoes.stop()
	if g.cfg.Relay != nil {
		err = errors.Join(err, g.cfg.Relay.Follow(nil))
	}
	if g.cfg.Replaced || ctx.Err() == nil {
		g.withdraw(ctx)
	}
	release()
	wg.Wait()
	g.farewell(ctx)
	return errors.Join(append(errs[:], err)...)
}

// leaveFor is how long a gateway still carries packets after it has had nodes and peers leave it.
const leaveFor = 2 * time.Second

// leave has nodes and peers use the other gateways of this cluster, if there are any.
func (g *GatewayHost) leave() {
	others := slices.ContainsFunc(g.cfg.Sources.Gateways.List(), func(a Announcement) bool { return a.Alive && a.Number != int32(g.announcer.cfg.Number) })
	if !others || !g.announcer.Active() {
		return
	}
	g.echoes.leave()
	<-g.clk.After(leaveFor)
}

// withdrawTimeout bounds how long a gateway that stops takes its tunnels down.
const withdrawTimeout = 3 * time.Second

// withdraw takes the tunnels down: another gateway may have the key, and peers answer to
// whichever has sent last.
func (g *GatewayHost) withdraw(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), withdrawTimeout)
	defer cancel()
	if err := g.cfg.Host.Apply(ctx, plan.State{}); err != nil {
		g.log.Warn("the tunnels of this gateway are not down; another gateway with its key takes over", zap.Error(err))
	}
}

const statusWorkers = 2

// keyTimeout bounds one attempt to get the key, and keyAgain is the time until the next.
const (
	keyTimeout = 10 * time.Second
	keyAgain   = 2 * time.Second
)

// awaitKey gets the private key. It reports false when ctx is done before. What stands in the
// kernel, from an earlier process, goes on meanwhile.
func (g *GatewayHost) awaitKey(ctx context.Context) bool {
	said := ""
	for range loop.Rounds(ctx, g.clk, keyAgain, nil) {
		err := g.readKeys(ctx)
		g.keyless.Swap(err)
		if err == nil {
			return true
		}
		if text := err.Error(); text != said && ctx.Err() == nil {
			said = text
			g.log.Warn("reading the key of this gateway failed; will retry", zap.Error(err))
		}
	}
	return false
}

func (g *GatewayHost) sync(ctx context.Context, key loop.Key) error {
	if key.Name == dialKey {
		return g.dial()
	}
	if !g.announcer.Active() {
		return nil // the announcer wakes this loop. The host stays as it is, from an earlier process
	}
	keys := g.takeKey()
	objects, err := g.objects(ctx)
	if err != nil {
		return g.ended(err)
	}
	if g.addBehind(&objects) {
		return loop.After(store.CatchUp)
	}
	objects.Gateways = g.withSelf(objects.Gateways)
	g.chooseAll(objects.Connections)
	in, refused, err := BuildInput(objects, g.settings())
	g.logRefused(refused)
	if err != nil {
		return g.ended(err)
	}
	g.keepOwners(in.Peers)
	g.rotation.watch(in.Peers)
	state, err := plan.Gateway(in)
	if err != nil {
		return g.ended(err)
	}
	errApply := g.cfg.Host.Apply(ctx, state)
	mode, peers, errTunnel := g.cfg.Host.Tunnel()
	if errors.Is(errTunnel, fs.ErrNotExist) && errApply != nil {
		errTunnel = nil // errApply is the reason
	}
	if errTunnel == nil && mode != "" {
		g.announceSelf(mode, objects.Nodes, keys)
	}
	errActive := g.activate(ctx, mode)
	g.nodes.follow(in.Nodes)
	errEcho := g.echoes.follow(ctx, in, deviceKeys{g.key.Public(), peers})
	var errRelay error
	if g.cfg.Relay != nil {
		errRelay = g.cfg.Relay.Follow(relayedBy(in))
	}
	g.device = state.Device
	g.device.Peers = slices.Clone(state.Device.Peers) // dial changes their endpoints
	g.Wake(loop.Key{Name: dialKey})
	g.show(refused, errApply, state.Device, mode, objects.Connections)
	return g.ended(errors.Join(errApply, errTunnel, errActive, errEcho, errRelay))
}

// relayedBy returns the addresses and ports of the IPs that gateways serve.
func relayedBy(in plan.Input) (out []netip.AddrPort) {
	for _, ip := range in.IPs {
		for _, p := range ip.Ports {
			if ip.OnGateways() && p.Proto == "tcp" {
				out = append(out, netip.AddrPortFrom(ip.External, p.Port))
			}
		}
	}
	return out
}

// addBehind adds the pods in third clusters. wait is true for a gateway that has just begun and does
// not know them yet: what an earlier process lets through goes on meanwhile.
func (g *GatewayHost) addBehind(objects *Objects) (wait bool) {
	if g.cfg.Behind == nil {
		return false
	}
	known := false
	objects.Shared, known = g.cfg.Behind.read()
	return !known && g.result.Get() == nil
}

func (g *GatewayHost) settings() Settings {
	set := Settings{
		ClusterID: g.cfg.ClusterID, Self: g.announcer.cfg.Name, Ports: g.cfg.Ports, AnySender: g.cfg.AnySender, MTU: g.cfg.MTU,
		Use: g.use, Tunnels: g.tunnels(), Endpoint: g.resolver.Endpoint,
	}
	if g.cfg.Closed != nil {
		set.Closed = g.cfg.Closed()
	}
	return set
}

// withSelf are the own gateways with this one as it is, whatever the cache has.
func (g *GatewayHost) withSelf(list []Announcement) []Announcement {
	self := g.self()
	self.Name, self.Number, self.Alive = g.announcer.cfg.Name, int32(g.announcer.cfg.Number), true
	list = slices.DeleteFunc(list, func(a Announcement) bool { return a.Name == self.Name || a.Number == self.Number })
	return append(list, self)
}

// self is what this gateway announces whatever its tunnels do.
func (g *GatewayHost) self() Announcement {
	out := Announcement{MTU: g.cfg.MTU, NodeName: g.cfg.NodeName}
	out.PublicKey = g.key.Public()
	for _, a := range g.cfg.Addresses {
		out.Addresses = append(out.Addresses, a.String())
	}
	return out
}

// chooseAll chooses the gateway in use of each peer.
func (g *GatewayHost) chooseAll(connections []*networkingv1beta1.Connection) {
	use := map[string]int{}
	for _, c := range connections {
		id := c.Spec.ClusterID
		if c.Namespace != corev1beta1.TenantNamespace(id) {
			continue
		}
		var candidates []plan.Candidate
		for _, remote := range c.Spec.Gateways {
			state, _ := g.echoes.state(remote.PublicKey)
			serves := state.Verdict == health.Up && !state.Away
			candidates = append(candidates, plan.Candidate{Number: int(remote.Number), Alive: state.Answers, Serves: serves})
		}
		plan.Prefer(id, g.cfg.ClusterID, candidates)
		use[id] = plan.Choose(g.use[id], candidates)
	}
	g.use = use
}

// activate leads peers here, once there is a device for them.
func (g *GatewayHost) activate(ctx context.Context, mode kernel.Mode) error {
	if g.cfg.Activate == nil || g.activated || mode == "" {
		return nil
	}
	if err := g.cfg.Activate(ctx); err != nil {
		return err
	}
	g.activated = true
	return nil
}

// announceSelf announces this gateway when its Announcement changes.
func (g *GatewayHost) announceSelf(mode kernel.Mode, nodes []*corev1.Node, keys Keys) {
	say := g.self()
	say.WireGuard, say.Endpoints = wireGuard(mode), g.endpoints(nodes)
	say.Proofs = []string{check.Prove(g.key, g.cfg.ClusterID)}
	if keys.Next != (kernel.Key{}) {
		say.NextPublicKey = keys.Next.Public()
		say.Proofs = append(say.Proofs, check.Prove(keys.Next, g.cfg.ClusterID))
		say.Waits, _ = g.echoes.waiting(say.NextPublicKey)
	}
	if g.said != nil && g.said.same(say) {
		return
	}
	g.said = &say
	g.announcer.Announce(say)
	var texts []string
	for _, e := range say.Endpoints {
		texts = append(texts, fmt.Sprintf("%s port %d", e.Address, e.Port))
	}
	g.log.Info("announcing this gateway", zap.String("publicKey", say.PublicKey), zap.String("wireGuard", string(say.WireGuard)), zap.Strings("endpoints", texts))
}

// wireGuard returns what runs the tunnels in a mode; empty: there is no device.
func wireGuard(mode kernel.Mode) networkingv1beta1.WireGuard {
	return map[kernel.Mode]networkingv1beta1.WireGuard{
		kernel.InKernel: networkingv1beta1.WireGuardKernel, kernel.InProcess: networkingv1beta1.WireGuardUserspace,
	}[mode]
}

// endpoints are where peers reach this gateway.
func (g *GatewayHost) endpoints(nodes []*corev1.Node) []networkingv1beta1.Endpoint {
	if len(g.cfg.Endpoints) > 0 || g.cfg.Services == nil {
		return g.cfg.Endpoints
	}
	services := store.All[*corev1.Service](g.cfg.Services.Informer().GetStore())
	if len(services) == 0 {
		return nil
	}
	return serviceEndpoints(services[0], nodes, g.cfg.NodeName)
}

// show keeps what the status of Connections follows from, and has it written.
func (g *GatewayHost) show(refused []Refusal, applied error, device plan.Device, mode kernel.Mode, connections []*networkingv1beta1.Connection) {
	next := view{refused: map[string]string{}, planned: map[loop.Key]planned{}, applied: applied, use: g.use, device: device, wireGuard: wireGuard(mode)}
	for _, r := range refused {
		if r.Kind == "Connection" {
			next.refused[r.Namespace+"/"+r.Name] = strings.ReplaceAll(r.Message, "\n", "; ")
		}
	}
	for _, c := range connections {
		next.planned[loop.Key{Namespace: c.Namespace, Name: c.Name}] = planned{c.UID, c.Generation}
	}
	g.view.Swap(next)
	g.status.Wake(loop.Keys(connections)...)
}

// heard follows the state of the tunnel to a gateway.
func (g *GatewayHost) heard(p EchoPeer, s EchoState) {
	g.log.Info("the tunnel to a gateway has changed", zap.String("peer", p.Cluster), zap.String("gateway", p.Gateway),
		zap.Stringer("verdict", s.Verdict), zap.Bool("serves", !s.Away), zap.Duration("rtt", s.RTT), zap.String("message", s.Message))
	g.status.Wake(loop.Key{Namespace: corev1beta1.TenantNamespace(p.Cluster), Name: p.Cluster})
}

// unprobed repeats the attempt to probe.
func (g *GatewayHost) unprobed(err error) {
	g.log.Warn("probing failed; will try again", zap.Error(err))
	g.AddAfter(loop.Key{Name: fabricKey}, watchAgain)
}

// tunnels returns the peers of the tunnel device, by public key: none without a device.
func (g *GatewayHost) tunnels() map[string]kernel.Peer {
	_, peers, _ := g.cfg.Host.Tunnel()
	return peers
}

// Ready returns nil when the gateway has its key and its number, and its host is as planned.
func (g *GatewayHost) Ready() error {
	if keyless := g.keyless.Get(); keyless != nil {
		return fmt.Errorf("this gateway has no key: %w", keyless)
	}
	if !g.announcer.Active() {
		return errors.New("this gateway does not hold the Lease of its number")
	}
	return g.fabric.Ready()
}
