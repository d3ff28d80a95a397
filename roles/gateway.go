package roles

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	ipamv1alpha1 "github.com/liqod/liqod/api/ipam/v1alpha1"
	networkingv1beta1 "github.com/liqod/liqod/api/networking/v1beta1"
	"github.com/liqod/liqod/health"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/kube/serve"
	"github.com/liqod/liqod/netfabric/exchange"
	"github.com/liqod/liqod/netfabric/host"
	"github.com/liqod/liqod/netfabric/kernel"
	"github.com/liqod/liqod/netfabric/plan"
	"github.com/liqod/liqod/peering/link"
	"github.com/liqod/liqod/roles/config"
)

func buildGateway(_ context.Context, env Env) (Parts, error) {
	f, err := newFabric(env)
	if err != nil {
		return Parts{}, err
	}
	server, probe := ownServer(env, f.home.kube)
	cfg, err := gatewayConfig(env, f, server)
	if err != nil {
		return Parts{}, err
	}
	g := &gatewayRole{env: env, fabric: f, cfg: cfg, network: kernel.New(kernel.Config{Log: env.Log, Wrote: hostWrites(env)})}
	if err := g.prepare(); err != nil {
		return Parts{}, err
	}
	env.Ready.Add("gateway", g.hasNumber)
	return Parts{Actors: []Actor{
		{Name: "caches", Run: runFactories(f.factories...)},
		{Name: "gateways", Run: f.judge(env)},
		{Name: "api-server", Run: probe},
		{Name: "gateway", Run: g.run},
	}}, nil
}

// gatewayRole is role gateway. What depends on its number is added when it has one.
type gatewayRole struct {
	env     Env
	fabric  *fabric
	cfg     host.GatewayConfig
	network *kernel.Kernel

	announce host.AnnounceConfig
	numbers  map[int]numbered

	host loop.Value[*host.GatewayHost] // nil: it has no number yet
}

// numbered is what a gateway with a certain number has.
type numbered struct {
	endpoints []networkingv1beta1.Endpoint
	services  coreinformers.ServiceInformer // nil: endpoints are all
	keys      host.KeyStore
}

// prepare makes what each possible number needs, so that mistakes are found at the start. A
// gateway with a number of its own is complete then.
func (g *gatewayRole) prepare() error {
	cfg := g.env.Config.Gateway
	if cfg.Replicas > 0 && cfg.Number != 1 {
		return fmt.Errorf("gateway.number: %d is not accepted: a gateway of gateway.replicas takes a free number", cfg.Number)
	}
	name, err := gatewayName()
	if err != nil {
		return err
	}
	kube, namespace := g.fabric.home.kube, g.env.Config.Namespace
	g.announce = host.AnnounceConfig{
		Client: kube.CoordinationV1(), Namespace: namespace, Name: name, Number: cfg.Number,
		Duration: g.env.Config.Lease.Duration, RetryPeriod: g.env.Config.Lease.RetryPeriod, Clock: g.env.Clock, Log: g.env.Log,
	}
	first, last := cfg.Number, cfg.Number
	if cfg.Replicas > 0 {
		first, last = 1, cfg.Replicas
		g.announce.Gone = podLost(kube.CoreV1().Pods(namespace), func(number int) secretKeys {
			return secretKeys{kube.CoreV1().Secrets(namespace), nameOf(cfg, cfg.KeySecret, number)}
		})
	}
	g.numbers = map[int]numbered{}
	for number := first; number <= last; number++ {
		var n numbered
		if n.endpoints, err = endpointsOf(cfg, number); err != nil {
			return fmt.Errorf("gateway.endpoints: %w", err)
		}
		if cfg.Service != "" && len(n.endpoints) == 0 {
			n.services = g.fabric.service(namespace, nameOf(cfg, cfg.Service, number))
		}
		if n.keys, err = gatewayKeys(cfg, nameOf(cfg, cfg.KeySecret, number), kube.CoreV1().Secrets(namespace)); err != nil {
			return err
		}
		g.numbers[number] = n
	}
	announcer, err := host.NewAnnouncer(g.announce)
	if err != nil || cfg.Replicas > 0 {
		return err
	}
	return g.complete(announcer, cfg.Number)
}

// nameOf returns the name of the object that a gateway with a number has, where there are
// several numbers.
func nameOf(cfg config.Gateway, name string, number int) string {
	if cfg.Replicas == 0 || number == 1 || name == "" {
		return name
	}
	return fmt.Sprintf("%s-%d", name, number)
}

// endpointsOf returns the endpoints of the gateway with a number. A text may begin with the
// number and "="; others are for number 1, or for the only gateway.
func endpointsOf(cfg config.Gateway, number int) ([]networkingv1beta1.Endpoint, error) {
	var texts []string
	for _, text := range cfg.Endpoints {
		before, rest, found := strings.Cut(text, "=")
		of := number
		if cfg.Replicas > 0 {
			of = 1
		}
		if found {
			n, err := strconv.Atoi(before)
			if err != nil || n < 1 || n > max(cfg.Replicas, 1) {
				return nil, fmt.Errorf("endpoint %q: host:port is accepted, and behind one of the numbers 1 to %d and =", text, max(cfg.Replicas, 1))
			}
			of, text = n, rest
		}
		if of == number {
			texts = append(texts, text)
		}
	}
	return host.ParseEndpoints(texts)
}

// complete makes the gateway that has a number.
func (g *gatewayRole) complete(announcer *host.Announcer, number int) error {
	cfg, n := g.cfg, g.numbers[number]
	cfg.Host, cfg.Announcer, cfg.Keys, cfg.Endpoints, cfg.Services = g.network, announcer, n.keys, n.endpoints, n.services
	if g.env.Config.Gateway.Replicas > 0 {
		cfg.Replaced = true
		cfg.Activate = activate(g.fabric.home.kube.CoreV1().Pods(g.env.Config.Namespace), g.announce.Name, number)
	}
	made := host.NewGateway(cfg)
	if err := g.env.Registry.Register(made.Metrics(g.network)); err != nil {
		return fmt.Errorf("registering metrics: %w", err)
	}
	g.host.Swap(made)
	return nil
}

// run works until ctx is done, at first until a number is free.
func (g *gatewayRole) run(ctx context.Context) error {
	if replicas := g.env.Config.Gateway.Replicas; replicas > 0 {
		look := loop.NewSignal()
		g.fabric.sources.Gateways.Subscribe(look.Notify)
		announcer, err := host.Claim(ctx, g.announce, replicas, look)
		if err != nil || announcer == nil {
			return err
		}
		if err := g.complete(announcer, announcer.Number()); err != nil {
			return err
		}
		for _, f := range g.fabric.factories {
			f.Start(ctx.Done()) // the informers that it has just asked for
		}
	}
	defer loop.Start(ctx, func(ctx context.Context) {
		_ = g.host.Get().RecordRefusals(ctx, g.network, g.fabric.home.kube.CoreV1(), corev1.EventSource{Component: "liqod-gateway", Host: g.announce.Name})
	})()
	return g.host.Get().Run(ctx)
}

// hasNumber returns nil when the gateway has a number and is ready.
func (g *gatewayRole) hasNumber() error {
	made := g.host.Get()
	if made == nil {
		return errors.New("other gateways hold all numbers of gateway.replicas")
	}
	return made.Ready()
}

// ownServer probes the API server of this cluster as those of peers are probed. server
// returns the verdict, which the probes through tunnels carry to peers.
func ownServer(env Env, kube kubernetes.Interface) (server func() health.Verdict, probe func(context.Context) error) {
	cfg := env.Config.Probe
	prober := health.NewProber(cfg.Window())
	probe = func(ctx context.Context) error {
		prober.Run(ctx, cfg.Interval, cfg.Timeout, link.Readyz(kube), func(s health.State) {
			env.Log.Info("the API server has changed", zap.Stringer("verdict", s.Verdict), zap.String("reason", s.Reason))
		})
		return nil
	}
	return func() health.Verdict { return prober.State().Verdict }, probe
}

// tunnelPatience is how long a new tunnel counts as unknown, and not as down.
const tunnelPatience = 10 * time.Second

// gatewayConfig returns the configuration of the gateway without its Host and what its number
// decides. server returns the verdict on the API server of this cluster.
func gatewayConfig(env Env, f *fabric, server func() health.Verdict) (out host.GatewayConfig, err error) {
	cfg := env.Config.Gateway
	ranges, err := newRanges(env.Config.Networking, f.core, nil, env.Log)
	if err != nil {
		return out, err
	}
	out = host.GatewayConfig{
		ClusterID: env.Config.ClusterID, Ports: plan.Ports{Overlay: uint16(cfg.OverlayPort), Tunnel: uint16(cfg.TunnelPort)},
		AnySender: cfg.AnyOverlaySender, MTU: cfg.MTU, Closed: closedRanges(ranges, config.Prefixes(env.Config.Networking.ReservedSubnets)), NodeName: cfg.NodeName,
		KeyAge:  cfg.KeyAge,
		Sources: f.sources, Client: f.home.liqo, Lookup: lookup, Listen: listen,
		Timing:    host.EchoTiming{Interval: cfg.Probe.Interval, Silence: cfg.Probe.Silence, Patience: max(tunnelPatience, cfg.Probe.Silence), Answers: cfg.Probe.Answers},
		APIServer: server,
		Clock:     env.Clock, Log: env.Log, Observer: env.Observer,
	}
	if out.Relay, err = relay(f.home.config, env); err != nil {
		return out, err
	}
	if out.Addresses, err = gatewayAddresses(cfg.Addresses); err != nil {
		return out, err
	}
	if out.MTU == 0 {
		if out.MTU, err = host.UnderlayMTU(out.Addresses); err != nil {
			return out, fmt.Errorf("gateway.mtu is not set: %w", err)
		}
	}
	behind := informers.NewSharedInformerFactoryWithOptions(f.home.kube, 0, informers.WithTransform(host.TrimShared))
	out.Behind = host.NewBehind(f.liqo.Offloading().V1beta1().NamespaceOffloadings(), behind.Core().V1().Pods())
	if cfg.PodAddresses {
		pods := informers.NewSharedInformerFactoryWithOptions(f.home.kube, 0, informers.WithTransform(host.TrimShared))
		f.factories = append(f.factories, pods)
		out.Sources.Pods = pods.Core().V1().Pods()
	}
	out.Metrics = host.NewProbeMetrics(env.Registry.add)
	return out, nil
}

// service adds the informer of one Service.
func (f *fabric) service(namespace, name string) coreinformers.ServiceInformer {
	one := stripped(f.home.kube, informers.WithNamespace(namespace), named(name))
	f.factories = append(f.factories, one)
	return one.Core().V1().Services()
}

// gatewayName returns the name of the pod, or else the name of the host. A gateway keeps its
// name if it restarts.
func gatewayName() (string, error) {
	if pod := os.Getenv("POD_NAME"); pod != "" {
		return pod, nil
	}
	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("reading the name of this host: %w", err)
	}
	host, _, _ = strings.Cut(strings.ToLower(host), ".")
	return host, nil
}

// gatewayAddresses returns the addresses under which nodes reach this gateway.
func gatewayAddresses(texts []string) (out []netip.Addr, err error) {
	for _, text := range texts {
		addr, _ := netip.ParseAddr(text) // the configuration accepts addresses only
		out = append(out, addr.Unmap())
	}
	if len(out) == 0 {
		out = host.DefaultAddresses()
	}
	if len(out) == 0 {
		return nil, errors.New("gateway.addresses is needed: this host has no default route from which the address could be taken")
	}
	return out, nil
}

// closedRanges returns the known ranges of this cluster in which no gateway of a peer may
// have its address.
func closedRanges(ranges *exchange.Ranges, reserved []netip.Prefix) func() []ipamv1alpha1.NamedRange {
	return func() (out []ipamv1alpha1.NamedRange) {
		own, _ := ranges.Own()
		for _, r := range own.Services {
			out = append(out, ipamv1alpha1.NamedRange{Prefix: r, Name: "a Service range"})
		}
		for _, r := range reserved {
			out = append(out, ipamv1alpha1.NamedRange{Prefix: r, Name: "a reserved range"})
		}
		return out
	}
}

// relay returns a relay to the API server that config is for.
func relay(config *rest.Config, env Env) (*serve.Relay, error) {
	server, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, fmt.Errorf("reading the address of the API server: %w", err)
	}
	at := net.JoinHostPort(server.Hostname(), cmp.Or(server.Port(), "443"))
	return serve.NewRelay(func(ctx context.Context, _ netip.AddrPort) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", at)
	}, env.Closed, env.Log), nil
}

func lookup(ctx context.Context, host string) ([]netip.Addr, error) {
	return net.DefaultResolver.LookupNetIP(ctx, "ip", host+".") // without the search domains of the pod
}

func listen(at netip.AddrPort) (host.ProbeSocket, error) {
	return net.ListenUDP("udp", net.UDPAddrFromAddrPort(at))
}
