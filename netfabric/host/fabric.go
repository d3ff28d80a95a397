package host

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/utils/clock"

	networkingclient "github.com/liqod/liqod/api/generated/clientset/versioned/typed/networking/v1beta1"
	ipaminformers "github.com/liqod/liqod/api/generated/informers/externalversions/ipam/v1alpha1"
	networkinginformers "github.com/liqod/liqod/api/generated/informers/externalversions/networking/v1beta1"
	ipamv1alpha1 "github.com/liqod/liqod/api/ipam/v1alpha1"
	networkingv1beta1 "github.com/liqod/liqod/api/networking/v1beta1"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/netfabric/check"
	"github.com/liqod/liqod/netfabric/plan"
)

const (
	// verifyEvery is the time between two comparisons of the host with the plan that nothing
	// has called for. What another program changes is noticed at once.
	verifyEvery = 30 * time.Second
	// watchAgain is the time until the host is watched again, after that failed.
	watchAgain = time.Second
)

// fabricKey is the name of the key of the loops that bring a host to its plan.
const fabricKey = "host"

// atOnce makes the loop apply the plan when it begins, whatever objects there are.
func atOnce() []loop.Key { return []loop.Key{{Name: fabricKey}} }

// Host is the network of a host: a *kernel.Kernel.
type Host interface {
	Apply(ctx context.Context, want plan.State) error
	Watch(ctx context.Context, changed func()) error
}

// Sources are the informers of one cluster, of all namespaces.
type Sources struct {
	Connections networkinginformers.ConnectionInformer
	IPs         ipaminformers.IPInformer
	Nodes       coreinformers.NodeInformer
	Gateways    *LeaseGateways
	// Pods may be nil. A gateway needs them where nodes have no podCIDRs.
	Pods coreinformers.PodInformer
	// Client reads Connections live that are absent from the cache.
	Client networkingclient.ConnectionsGetter
}

// fabric is what nodes and gateways have in common: a loop of one key that plans and applies.
type fabric struct {
	*loop.Loop
	src  Sources
	host Host
	log  *zap.Logger
	clk  clock.WithTicker

	seen presence // the loop's

	result  loop.Value[*error]                  // of the last attempt; nil: there was none
	refused []string                            // as they were logged; the loop's
	owners  loop.Value[map[netip.Prefix]string] // peers of the last plan, by their ranges
}

func (f *fabric) watch() {
	f.Watch(
		store.AnyChange(f.src.Connections.Informer(), sameOrder, f.wake),
		store.AnyChange(f.src.Nodes.Informer(), check.SameNode, f.wake),
		loop.From(f.src.IPs.Informer(), loop.Constant(loop.Key{Name: fabricKey})),
	)
	if f.src.Pods != nil {
		f.Watch(store.AnyChange(f.src.Pods.Informer(), samePod, f.wake))
	}
	f.src.Gateways.Subscribe(f.wake)
	f.Await(f.src.Gateways.HasSynced)
}

// sameOrder reports whether two states of a Connection lead to the same plan. The gateways write
// its status.
func sameOrder(a, b *networkingv1beta1.Connection) bool {
	return a.UID == b.UID && (a.DeletionTimestamp == nil) == (b.DeletionTimestamp == nil) && equality.Semantic.DeepEqual(a.Spec, b.Spec)
}

func (f *fabric) wake() { f.Wake(loop.Key{Name: fabricKey}) }

// run works until ctx is done. Nothing is applied before all caches have been filled: what
// stands in the kernel, from an earlier process, stays. It stays at the end, too.
func (f *fabric) run(ctx context.Context) error {
	defer loop.Start(ctx, f.follow, func(ctx context.Context) {
		for range loop.Ticks(ctx, f.clk, verifyEvery, nil) {
			f.wake()
		}
	})()
	return f.Loop.Run(ctx, 1)
}

// follow wakes the loop after each change of the host.
func (f *fabric) follow(ctx context.Context) {
	for ctx.Err() == nil {
		err := f.host.Watch(ctx, f.wake)
		if ctx.Err() != nil {
			return
		}
		f.log.Warn("watching the network of this host failed; will try again", zap.Error(err))
		_ = loop.Sleep(ctx, f.clk, watchAgain) // the loop's condition looks at ctx
		f.wake()                               // what happened meanwhile
	}
}

// objects reads the caches. While they are behind the API server, it has the loop come back soon.
func (f *fabric) objects(ctx context.Context) (out Objects, err error) {
	ctx, cancel := context.WithTimeout(ctx, confirmTimeout)
	defer cancel()
	cached := store.All[*networkingv1beta1.Connection](f.src.Connections.Informer().GetStore())
	behind := false
	if out.Connections, behind, err = f.seen.confirm(ctx, cached); err != nil {
		return out, err
	}
	if behind {
		f.AddAfter(loop.Key{Name: fabricKey}, store.CatchUp)
	}
	out.IPs = store.All[*ipamv1alpha1.IP](f.src.IPs.Informer().GetStore())
	out.Nodes = store.All[*corev1.Node](f.src.Nodes.Informer().GetStore())
	out.Gateways = f.src.Gateways.List()
	if f.src.Pods != nil {
		out.Pods = podAddresses(store.All[*corev1.Pod](f.src.Pods.Informer().GetStore()))
	}
	return out, nil
}

// logRefused logs which objects are left out, when that changes.
func (f *fabric) logRefused(refused []Refusal) {
	var now []string
	for _, r := range refused {
		now = append(now, r.String())
	}
	before := f.refused
	f.refused = now
	for _, text := range now {
		if !slices.Contains(before, text) {
			f.log.Warn("an object cannot be used", zap.String("text", text))
		}
	}
	if len(before) > 0 && len(now) == 0 {
		f.log.Info("all objects can be used again")
	}
}

// ended keeps the result of an attempt, for Ready.
func (f *fabric) ended(err error) error {
	f.result.Swap(&err)
	return err
}

// Ready returns nil when the host is as planned, and else why it is not.
func (f *fabric) Ready() error {
	switch result := f.result.Get(); {
	case result == nil:
		return fmt.Errorf("nothing has been applied yet: the caches are not filled")
	case *result != nil:
		return fmt.Errorf("the host is not as planned: %s", store.OneLine(*result))
	}
	return nil
}

// underlayOf are the addresses at which a Node is reached by the others.
func underlayOf(n *corev1.Node) []netip.Addr {
	if internal := check.AddressesOf(n, corev1.NodeInternalIP); len(internal) > 0 {
		return internal
	}
	return check.Addresses(n)
}
