package roles

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/informers"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/liqod/liqod/health"
	"github.com/liqod/liqod/kube/client"
	"github.com/liqod/liqod/netfabric/exchange"
	"github.com/liqod/liqod/netfabric/host"
	"github.com/liqod/liqod/netfabric/ipam"
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
	wrote, err := hostWrites(env)
	if err != nil {
		return Parts{}, err
	}
	network := kernel.New(kernel.Config{Log: env.Log, Wrote: wrote})
	cfg.Host = network
	gateway, err := host.NewGateway(cfg)
	if err != nil {
		return Parts{}, err
	}
	if err := gateway.RegisterMetrics(env.Registry, network); err != nil {
		return Parts{}, err
	}
	env.Ready.Add("gateway", gateway.Ready)
	return Parts{Actors: []Actor{
		{Name: "caches", Run: runFactories(f.factories...)},
		{Name: "gateways", Run: f.judge(env)},
		{Name: "api-server", Run: probe},
		{Name: "gateway", Run: gateway.Run},
		{Name: "refusals", Run: func(ctx context.Context) error {
			return gateway.RecordRefusals(ctx, network, f.home.kube.CoreV1(), corev1.EventSource{Component: "liqod-gateway", Host: cfg.Announce.Name})
		}},
	}}, nil
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

// gatewayConfig returns the configuration of the gateway without its Host. server returns the
// verdict on the API server of this cluster.
func gatewayConfig(env Env, f *fabric, server func() health.Verdict) (out host.GatewayConfig, err error) {
	cfg := env.Config.Gateway
	ranges, err := newRanges(env.Config.Networking, f.core, nil, env.Log)
	if err != nil {
		return out, err
	}
	out = host.GatewayConfig{
		ClusterID: env.Config.ClusterID, Ports: plan.Ports{Overlay: uint16(cfg.OverlayPort), Tunnel: uint16(cfg.TunnelPort)},
		AnySender: cfg.AnyOverlaySender, MTU: cfg.MTU, Closed: closedRanges(ranges, config.Prefixes(env.Config.Networking.ReservedSubnets)), NodeName: cfg.NodeName,
		Sources: f.sources, Client: f.home.liqo, Lookup: lookup, Listen: listen,
		Timing:    host.EchoTiming{Interval: cfg.Probe.Interval, Silence: cfg.Probe.Silence, Patience: cfg.Probe.Patience, Answers: cfg.Probe.Answers},
		APIServer: server,
		Clock:     env.Clock, Log: env.Log, Observer: env.Observer,
	}
	if out.Addresses, err = gatewayAddresses(cfg.Addresses); err != nil {
		return out, err
	}
	if out.MTU == 0 {
		if out.MTU, err = host.UnderlayMTU(out.Addresses); err != nil {
			return out, fmt.Errorf("gateway.mtu is not set: %w", err)
		}
	}
	if out.Endpoints, err = host.ParseEndpoints(cfg.Endpoints); err != nil {
		return out, fmt.Errorf("gateway.endpoints: %w", err)
	}
	if cfg.Service != "" && len(out.Endpoints) == 0 {
		out.Services = f.service(env.Config.Namespace, cfg.Service)
	}
	behind := informers.NewSharedInformerFactoryWithOptions(f.home.kube, 0, informers.WithTransform(host.TrimPod))
	out.Behind = host.NewBehind(f.liqo.Offloading().V1beta1().NamespaceOffloadings(), behind.Core().V1().Pods())
	if cfg.PodAddresses {
		pods := informers.NewSharedInformerFactoryWithOptions(f.home.kube, 0, informers.WithTransform(host.TrimPod))
		f.factories = append(f.factories, pods)
		out.Sources.Pods = pods.Core().V1().Pods()
	}
	name, err := gatewayName()
	if err != nil {
		return out, err
	}
	out.Announce = host.AnnounceConfig{
		Client: f.home.kube.CoordinationV1(), Namespace: env.Config.Namespace, Name: name, Number: cfg.Number,
		Standby: cfg.Standby, Duration: env.Config.Lease.Duration, RetryPeriod: env.Config.Lease.RetryPeriod, Clock: env.Clock, Log: env.Log,
	}
	if cfg.Standby && os.Getenv("POD_NAME") != "" {
		out.Activate = activate(f.home.kube.CoreV1().Pods(env.Config.Namespace), name)
	}
	if out.Metrics, err = host.NewProbeMetrics(env.Registry); err != nil {
		return out, err
	}
	out.Key, err = gatewayKey(cfg, f.home.kube.CoreV1().Secrets(env.Config.Namespace))
	return out, err
}

// service adds the informer of one Service.
func (f *fabric) service(namespace, name string) coreinformers.ServiceInformer {
	one := informers.NewSharedInformerFactoryWithOptions(f.home.kube, 0, informers.WithNamespace(namespace), informers.WithTransform(client.StripManagedFields),
		informers.WithTweakListOptions(func(o *metav1.ListOptions) {
			o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
		}))
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
		addr, err := netip.ParseAddr(text)
		if err != nil {
			return nil, fmt.Errorf("gateway.addresses: %q: an IP address is accepted", text)
		}
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
func closedRanges(ranges *exchange.Ranges, reserved []netip.Prefix) func() []ipam.Range {
	return func() (out []ipam.Range) {
		own, _ := ranges.Own()
		for _, r := range own.Services {
			out = append(out, ipam.Range{Prefix: r, Name: "a Service range"})
		}
		for _, r := range reserved {
			out = append(out, ipam.Range{Prefix: r, Name: "a reserved range"})
		}
		return out
	}
}

func lookup(ctx context.Context, host string) ([]netip.Addr, error) {
	return net.DefaultResolver.LookupNetIP(ctx, "ip", host+".") // without the search domains of the pod
}

func listen(at netip.AddrPort) (host.ProbeSocket, error) {
	return net.ListenUDP("udp", net.UDPAddrFromAddrPort(at))
}
