package roles

import (
	"cmp"
	"context"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/lease"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/netfabric/exchange"
	"github.com/liqod/liqod/reflect/engine"
	"github.com/liqod/liqod/reflect/forge"
	"github.com/liqod/liqod/reflect/kinds"
	"github.com/liqod/liqod/roles/config"
	"github.com/liqod/liqod/shadow/virtualnode"
)

// reflection reflects the kinds that the virtual nodes of one provider share. It runs in
// one of their vkubelets at a time.
type reflection struct {
	of    *vkubelet
	lease *lease.Runner
	cfg   engine.Config // without Settled
	// resting is an engine that never runs.
	resting *engine.Engine
	// running is nil while another process reflects the shared kinds.
	running loop.Value[*engine.Engine]
}

func (v *vkubelet) newReflection(to engine.Target, config *rest.Config) (*reflection, error) {
	settings := v.env.Config
	runner, err := lease.New(lease.Config{
		Client: v.home.plain.kube.CoordinationV1(), Namespace: v.namespace, Name: offloadingv1beta1.ReflectionLease, Identity: v.home.identity,
		Duration: settings.Lease.Duration, RenewDeadline: settings.Lease.RenewDeadline, RetryPeriod: settings.Lease.RetryPeriod,
		Log: v.env.Log, Clock: v.env.Clock,
		// All writes of a reflection pass the fence of the vkubelet's own Lease, too.
		Inherits: v.home.lease.Took,
		Alone:    v.alone,
	})
	if err != nil {
		return nil, err
	}
	provider, err := v.home.toPeer(v.env, to.Destination, config, runner.Fence())
	if err != nil {
		return nil, err
	}
	to.Log = to.Log.Named("reflection")
	cfg := engine.Config{
		Target: to, Home: clientsOf(v.home.plain), Remote: clientsOf(provider),
		Kinds: choices(settings.Reflection, v.externalAddress()),
	}
	return &reflection{of: v, lease: runner, cfg: cfg, resting: engine.New(cfg)}, nil
}

// alone reports whether this virtual node is the only one of its provider.
func (v *vkubelet) alone() bool {
	return len(store.Listed(v.credentials.VirtualNodes.Lister().VirtualNodes(v.namespace).List(labels.Everything()))) == 1
}

// externalAddress returns the lookup of the addresses of endpoints that are no pods. It is nil without the
// network fabric.
func (v *vkubelet) externalAddress() forge.External {
	if v.remap == nil {
		return nil
	}
	ips := v.tenant.IPAM().V1alpha1().IPs().Lister()
	return func(namespace, address string) string {
		return exchange.EndpointAddress(ips, v.namespace, namespace, address)
	}
}

func clientsOf(c clients) engine.Clients { return engine.Clients{Kube: c.kube, Liqo: c.liqo} }

// choices returns the shared kinds with their settings.
func choices(r config.Reflection, external forge.External) []engine.Choice {
	kind := func(k config.Kind) engine.Setting {
		return engine.Setting{Policy: forge.Policy(k.Type), Workers: k.Workers}
	}
	services := kind(r.Service)
	return []engine.Choice{
		{Kind: kinds.Services(), Setting: services},
		{Kind: kinds.EndpointSlices(services, external), Setting: engine.Setting{Workers: r.EndpointSlice.Workers}},
		{Kind: kinds.Ingresses(), Setting: kind(r.Ingress)},
		{Kind: kinds.ConfigMaps(), Setting: kind(r.ConfigMap)},
		{Kind: kinds.Secrets(), Setting: kind(r.Secret)},
	}
}

// run reflects while this process holds the lease, until ctx is done. settled is engine.Config.Settled.
func (r *reflection) run(ctx context.Context, settled func(namespace, resource, name string)) error {
	cfg := r.cfg
	cfg.Settled = settled
	return r.lease.Run(ctx, func(ctx context.Context) error {
		e := engine.New(cfg)
		r.running.Swap(e)
		defer func() {
			r.running.Swap(nil)
			for _, name := range engine.LoopNames(r.cfg.Kinds) {
				r.of.env.Tracker.Forget(name)
			}
		}()
		return together(e.Run, func(ctx context.Context) error { return r.tellRefused(ctx, e) })(ctx)
	})
}

// refusedInterval is the time between two looks at what the provider refuses. A new namespace refuses everything
// for a moment.
const refusedInterval = 5 * time.Second

// tellRefused tells what the provider refuses until ctx is done.
func (r *reflection) tellRefused(ctx context.Context, e *engine.Engine) error {
	refused := func(text string) { r.of.keeper.SetRemote(func(s *virtualnode.Remote) { s.Refused = text }) }
	defer refused("")
	for range loop.Ticks(ctx, r.of.env.Clock, refusedInterval, nil) {
		refused(offloadingv1beta1.RefusedText(e.Refused()))
	}
	return nil
}

// reflects reports whether this process reflects the shared kinds now.
func (r *reflection) reflects() bool { return r.running.Get() != nil }

// behind is engine.Engine.Behind, by reads while another process reflects.
func (r *reflection) behind(ctx context.Context, namespace, remote string, named []forge.Named, existed time.Time) (forge.Named, bool, error) {
	if e := r.running.Get(); e != nil {
		return e.Behind(ctx, namespace, named, existed)
	}
	return r.resting.BehindLive(ctx, namespace, remote, named, existed)
}

// current returns the engine that runs, or the one that never does and holds no objects.
func (r *reflection) current() *engine.Engine { return cmp.Or(r.running.Get(), r.resting) }
