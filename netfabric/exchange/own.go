package exchange

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coreinformers "k8s.io/client-go/informers/core/v1"
	discoveryinformers "k8s.io/client-go/informers/discovery/v1"
	serviceinformers "k8s.io/client-go/informers/networking/v1"
	"k8s.io/client-go/tools/cache"

	ipamv1alpha1 "github.com/liqod/liqod/api/ipam/v1alpha1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/netfabric/check"
	"github.com/liqod/liqod/netfabric/plan"
)

// RangesConfig configures Ranges.
type RangesConfig struct {
	// Given are the configured ranges. The found ones are added.
	Given check.Own
	Nodes coreinformers.NodeInformer
	// ServiceCIDRs may be nil: then Given has all ranges of Services.
	ServiceCIDRs serviceinformers.ServiceCIDRInformer
	// APIServer has the EndpointSlices of APIServerService in namespace default, and may have
	// others. It is nil where nobody needs the addresses.
	APIServer discoveryinformers.EndpointSliceInformer

	Log *zap.Logger
}

// Ranges finds the ranges of this cluster: those of pods and the addresses of nodes in its
// Nodes, those of Services in its ServiceCIDRs. It is safe for concurrent use.
type Ranges struct {
	cfg    RangesConfig
	synced cache.InformerSynced

	listeners loop.Listeners[struct{}]

	// failed is the reason why the ServiceCIDRs have not been read; nil: no attempt has failed.
	failed loop.Value[error]
}

// NewRanges registers with the informers and starts nothing.
func NewRanges(cfg RangesConfig) (*Ranges, error) {
	r := &Ranges{cfg: cfg}
	sources := []loop.Source{store.AnyChange(cfg.Nodes.Informer(), check.SameNode, r.changed)}
	if cfg.APIServer != nil {
		sources = append(sources, store.AnyChange(cfg.APIServer.Informer(), store.SameBy(apiServerAddresses), r.changed))
	}
	if cfg.ServiceCIDRs != nil {
		informer := cfg.ServiceCIDRs.Informer()
		if err := informer.SetWatchErrorHandlerWithContext(r.notRead); err != nil {
			return nil, fmt.Errorf("watching ServiceCIDRs: %w", err)
		}
		same := func(a, b *networkingv1.ServiceCIDR) bool { return slices.Equal(a.Spec.CIDRs, b.Spec.CIDRs) }
		sources = append(sources, store.AnyChange(informer, same, r.changed))
	}
	var err error
	r.synced, err = loop.Register(sources...)
	return r, err
}

// Subscribe makes f be called when the ranges may have changed. f returns at once.
func (r *Ranges) Subscribe(f func()) { r.listeners.Subscribe(func(struct{}) { f() }) }

func (r *Ranges) changed() { r.listeners.Tell(struct{}{}) }

// Run notifies the subscribers when the caches are filled, and ends with ctx.
func (r *Ranges) Run(ctx context.Context) error {
	if cache.WaitForCacheSync(ctx.Done(), r.synced) {
		r.changed() // a cache calls its handlers before HasSynced
	}
	<-ctx.Done()
	return nil
}

// HasSynced reports whether the Nodes and the EndpointSlices of the API server are read, and the
// ServiceCIDRs are read or cannot be.
func (r *Ranges) HasSynced() bool {
	return r.cfg.Nodes.Informer().HasSynced() && (r.cfg.APIServer == nil || r.cfg.APIServer.Informer().HasSynced()) &&
		(r.cfg.ServiceCIDRs == nil || r.cfg.ServiceCIDRs.Informer().HasSynced() || r.failed.Get() != nil)
}

// notRead takes note of an error of the informer of ServiceCIDRs, which tries again by
// itself: an API that comes with an upgrade of the cluster is found.
func (r *Ranges) notRead(ctx context.Context, reflector *cache.Reflector, err error) {
	if r.cfg.ServiceCIDRs.Informer().HasSynced() {
		cache.DefaultWatchErrorHandler(ctx, reflector, err)
		return
	}
	if before := r.failed.Swap(err); before == nil || before.Error() != err.Error() {
		r.cfg.Log.Warn("the ServiceCIDRs of this cluster are not read", zap.Error(err))
		r.changed()
	}
}

// Own returns the ranges of this cluster. The error names the ranges that are unknown, and those
// that may not overlap; then the result is not reliable. Wait comes first.
func (r *Ranges) Own() (check.Own, error) {
	own := r.cfg.Given
	pods, nodes := r.nodes()
	own.Pods, own.Nodes = slices.Concat(own.Pods, pods), slices.Concat(own.Nodes, nodes)
	own.APIServer = slices.Concat(own.APIServer, r.apiServer())
	var unknown error
	if len(own.Pods) == 0 {
		unknown = errNoPodRange
	}
	services, err := r.services()
	own.Services = slices.Concat(own.Services, services)
	return own, errors.Join(unknown, err, apart(own))
}

// Addresses returns where this cluster is, as far as that is known: its pods, Services, nodes
// and API server, and its reserved ranges.
func (r *Ranges) Addresses() []netip.Prefix {
	own, err := r.Own()
	if err != nil {
		r.cfg.Log.Debug("not all ranges of this cluster are known", zap.Error(err))
	}
	return slices.Concat(own.Pods, own.Services, own.Reserved, check.Singles(own.Nodes), check.Singles(own.APIServer))
}

// errNoPodRange is the error if no range of pods is known.
var errNoPodRange = errors.New("no pod range of this cluster is known, because no Node has a podCIDR: set networking.podCIDRs")

// apart returns an error if an external range overlaps another range of the cluster: it would
// lead to two places. The settings have been compared with each other at the start.
func apart(o check.Own) error {
	found := slices.Concat(check.Named("a pod range of this cluster", o.Pods), check.Named("a range of Services of this cluster", o.Services), check.Named("a node of this cluster", check.Singles(o.Nodes)))
	for _, p := range o.External {
		if is := check.Overlap(p, found); is != "" {
			return fmt.Errorf("%s: %s overlaps %s: set a range that is free in this cluster", settingExternal, p, is)
		}
	}
	return nil
}

// nodes returns the podCIDRs and the addresses of the Nodes, in the order of their names.
func (r *Ranges) nodes() (pods []netip.Prefix, at []netip.Addr) {
	nodes := slices.DeleteFunc(store.All[*corev1.Node](r.cfg.Nodes.Informer().GetStore()), offloadingv1beta1.IsVirtual)
	slices.SortFunc(nodes, func(a, b *corev1.Node) int { return strings.Compare(a.Name, b.Name) })
	for _, n := range nodes {
		pods, at = append(pods, check.PodRanges(n)...), append(at, check.Addresses(n)...)
	}
	return pods, at
}

// apiServer returns the addresses of the API server, in order.
func (r *Ranges) apiServer() (out []netip.Addr) {
	if r.cfg.APIServer == nil {
		return nil
	}
	for _, s := range store.All[*discoveryv1.EndpointSlice](r.cfg.APIServer.Informer().GetStore()) {
		out = append(out, apiServerAddresses(s)...)
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return slices.Compact(out)
}

// apiServerAddresses returns the addresses in an EndpointSlice of the API server, and none
// for any other.
func apiServerAddresses(s *discoveryv1.EndpointSlice) []netip.Addr {
	if s.Namespace != metav1.NamespaceDefault || s.Labels[discoveryv1.LabelServiceName] != APIServerService {
		return nil
	}
	return check.EndpointAddresses(s)
}

// services returns the ranges of the ServiceCIDRs. Where there are none to be read, those that
// are given are all; that there are none at all is never taken for known.
func (r *Ranges) services() ([]netip.Prefix, error) {
	given := len(r.cfg.Given.Services) > 0
	if r.cfg.ServiceCIDRs != nil && r.cfg.ServiceCIDRs.Informer().HasSynced() {
		found := serviceRanges(store.All[*networkingv1.ServiceCIDR](r.cfg.ServiceCIDRs.Informer().GetStore()))
		if len(found) == 0 && !given {
			return nil, errors.New("no range of Services of this cluster is known, because it has no ServiceCIDR: set networking.serviceCIDRs")
		}
		return found, nil
	}
	const unknown = "the ranges of Services of this cluster are not known"
	switch err := r.failed.Get(); {
	case given && (r.cfg.ServiceCIDRs == nil || apierrors.IsNotFound(err) || apierrors.IsForbidden(err)):
		return nil, nil
	case r.cfg.ServiceCIDRs == nil || apierrors.IsNotFound(err):
		return nil, errors.New(unknown + ", because its API server has no ServiceCIDRs (Kubernetes has them from 1.33 on): set networking.serviceCIDRs")
	case apierrors.IsForbidden(err):
		return nil, fmt.Errorf("%s: set networking.serviceCIDRs, or give the right to list and watch ServiceCIDRs: %w", unknown, err)
	case err != nil:
		return nil, fmt.Errorf("%s, and are asked for again: %w", unknown, err)
	}
	return nil, errors.New(unknown + " yet")
}

// serviceRanges are the ranges of ServiceCIDRs, in order.
func serviceRanges(objects []*networkingv1.ServiceCIDR) (out []netip.Prefix) {
	for _, s := range objects {
		for _, p := range ipamv1alpha1.Ranges(s.Spec.CIDRs) {
			out = append(out, p.Masked())
		}
	}
	slices.SortFunc(out, netip.Prefix.Compare)
	return out
}

// publishedPods returns the pod ranges for peers: the given ones, or else ranges that cover the
// podCIDRs of the Nodes. before are those that peers have, one peer after the other.
func (r *Ranges) publishedPods(own check.Own, before [][]netip.Prefix) []netip.Prefix {
	if len(r.cfg.Given.Pods) > 0 {
		return r.cfg.Given.Pods
	}
	return coverPods(own.Pods, slices.Concat(check.Singles(own.Nodes), check.Singles(own.APIServer), own.External, own.Services, own.Reserved), before)
}

// Reserved implements Reserved. Where the ranges of pods are found, so is the room for those
// of the next Nodes.
func (r *Ranges) Reserved() ([]ipamv1alpha1.NamedRange, error) {
	own, err := r.Own()
	if err != nil {
		return nil, err
	}
	if len(r.cfg.Given.Pods) == 0 {
		own.Pods = coverPods(own.Pods, nil, nil)
	}
	return slices.Concat(
		check.Named("a pod range of this cluster", own.Pods), check.Named("a range of Services of this cluster", own.Services),
		check.Named("a node of this cluster", check.Singles(own.Nodes)), check.Named("an API server of this cluster", check.Singles(own.APIServer)), check.Named("a reserved range of this cluster", own.Reserved)), nil
}

// Bits of the ranges that are taken for a cluster's, where only those of its Nodes are known:
// the defaults of the usual installers. A new Node then changes nothing.
const (
	clusterBits4 = 16
	clusterBits6 = 56
)

// coverPods returns ranges that hold the podCIDRs of all Nodes. A published range stays as long
// as it holds them; if it holds some of them, a range for the others is added: a replaced range
// cuts all peers until they have a view of the new one. A range is not made wider than necessary
// if that would include some of avoid.
func coverPods(nodes, avoid []netip.Prefix, before [][]netip.Prefix) []netip.Prefix {
	outside := func(told []netip.Prefix) []netip.Prefix {
		return slices.DeleteFunc(slices.Clone(nodes), func(p netip.Prefix) bool { return plan.Within(p, told) })
	}
	for _, told := range before {
		if len(nodes) > 0 && len(told) > 0 && len(outside(told)) == 0 {
			return told
		}
	}
	for _, told := range before {
		rest := outside(told)
		if len(rest) == len(nodes) {
			continue // it holds none
		}
		more := coverEach(rest, avoid, told)
		apart := !slices.ContainsFunc(more, func(p netip.Prefix) bool { return slices.ContainsFunc(told, p.Overlaps) })
		if apart && len(told)+len(more) <= check.MaxPodRanges {
			return slices.Concat(told, more)
		}
	}
	return coverEach(nodes, avoid, nil)
}

// coverEach returns one range of each family that holds all of nodes. It is as wide as told and
// the default of installers allow.
func coverEach(nodes, avoid, told []netip.Prefix) (out []netip.Prefix) {
	for _, family := range []struct {
		is   func(netip.Addr) bool
		bits int
	}{{netip.Addr.Is4, clusterBits4}, {netip.Addr.Is6, clusterBits6}} {
		mine := slices.DeleteFunc(slices.Clone(nodes), func(p netip.Prefix) bool { return !family.is(p.Addr()) })
		if len(mine) == 0 {
			continue
		}
		least := smallestCover(mine)
		wide := netip.PrefixFrom(least.Addr(), min(least.Bits(), family.bits)).Masked()
		if slices.ContainsFunc(avoid, wide.Overlaps) {
			wide = least
		}
		for wide.Bits() < least.Bits() && slices.ContainsFunc(told, wide.Overlaps) {
			wide = netip.PrefixFrom(least.Addr(), wide.Bits()+1).Masked()
		}
		out = append(out, wide)
	}
	return out
}

// smallestCover is the smallest range that holds all, which are of one family.
func smallestCover(all []netip.Prefix) netip.Prefix {
	cover := all[0]
	for _, p := range all[1:] {
		for !plan.Within(p, []netip.Prefix{cover}) {
			cover = netip.PrefixFrom(cover.Addr(), cover.Bits()-1).Masked()
		}
	}
	return cover
}
