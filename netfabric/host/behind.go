package host

import (
	"context"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	coreinformers "k8s.io/client-go/informers/core/v1"

	offloadinginformers "github.com/liqod/liqod/api/generated/informers/externalversions/offloading/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/netfabric/plan"
)

// Behind finds the pods in one peer that another peer reaches through a gateway of this cluster,
// those of namespaces that are offloaded to both; and the pods in peers that reach Services of this cluster. Pods are watched only from the first such
// namespace on.
type Behind struct {
	offloadings offloadinginformers.NamespaceOffloadingInformer
	pods        coreinformers.PodInformer
	needed      loop.Signal
}

// NewBehind starts nothing. Run starts the informer of pods, which is of all namespaces and of
// nobody else; the caller starts the other one.
func NewBehind(offloadings offloadinginformers.NamespaceOffloadingInformer, pods coreinformers.PodInformer) *Behind {
	return &Behind{offloadings: offloadings, pods: pods, needed: loop.NewSignal()}
}

// watch has a loop call changed when other pods may be reached than before. The loop does not wait for the
// Pods, which are watched later.
func (b *Behind) watch(l *loop.Loop, changed func()) {
	l.Watch(store.AnyChange(b.offloadings.Informer(), offloadingv1beta1.SameProviders, changed))
	_, _ = loop.Register(store.AnyChange(b.pods.Informer(), samePod, changed)) // fails only for a stopped informer
}

// run watches the pods when they are needed, until ctx is done.
func (b *Behind) run(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-b.needed:
		b.pods.Informer().RunWithContext(ctx)
	}
}

// read reads the caches. known is false while pods are needed and not known yet.
func (b *Behind) read() (out Shared, known bool) {
	offloadings := store.All[*offloadingv1beta1.NamespaceOffloading](b.offloadings.Informer().GetStore())
	meet := map[string]bool{}
	for _, o := range offloadings {
		providers := len(offloadingv1beta1.ProvidersOf(o))
		meet[o.Namespace] = meet[o.Namespace] || providers > 1 || providers > 0 && o.Spec.Services == offloadingv1beta1.ServicesHome
	}
	out.Offloadings = slices.DeleteFunc(offloadings, func(o *offloadingv1beta1.NamespaceOffloading) bool { return !meet[o.Namespace] })
	if len(out.Offloadings) == 0 {
		return Shared{}, true
	}
	b.needed.Notify()
	if !b.pods.Informer().HasSynced() {
		return out, false
	}
	pods := store.All[*corev1.Pod](b.pods.Informer().GetStore())
	out.Pods = slices.DeleteFunc(pods, func(p *corev1.Pod) bool { return !meet[p.Namespace] })
	return out, true
}

// lead gives a peer the ranges of third clusters, each while the Connection of that cluster is in
// use, and there the pods that are shared with it.
func (b *builder) lead(peer *plan.Peer, c candidate, peers []candidate) {
	var given []netip.Prefix
	for _, m := range c.behind {
		other := func(o candidate) bool { return o.peer.ID != peer.ID && slices.Contains(o.peer.Theirs.Pods, m.Own) }
		if slices.ContainsFunc(peers, other) {
			peer.Ours, given = append(slices.Clip(peer.Ours), m), append(given, m.Own)
		}
	}
	peer.Through = within(b.shared.reach[peer.ID], given)
}
