package exchange

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	networkingv1beta1 "github.com/liqod/liqod/api/networking/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	sharingv1alpha1 "github.com/liqod/liqod/api/sharing/v1alpha1"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/netfabric/check"
)

// Publisher writes a Configuration with this cluster's network for each peer, and with the ranges of
// other peers that share a namespace with it, while an offer
// between the two is in use and the ForeignCluster does not disable networking. Keys are cluster
// ids.
type Publisher struct {
	*loop.Loop
	cfg NegotiationConfig
}

// NewPublisher registers with the informers and starts nothing.
func NewPublisher(cfg NegotiationConfig) *Publisher {
	p := &Publisher{cfg: cfg}
	p.Loop = loop.New(loop.Config{Name: "publish", Sync: p.sync, Log: cfg.Log, Observer: cfg.Observer},
		loop.From(cfg.ForeignClusters.Informer(), loop.Self),
		loop.From(cfg.Offers.Informer(), peerKey),
		loop.From(cfg.Configurations.Informer(), peerKey),
	)
	// What changes for one peer may give another one more, or less.
	cfg.Own.Subscribe(p.wakeAll)
	cfg.Gateways.Subscribe(p.wakeAll)
	p.Watch(
		store.AnyChange(cfg.Connections.Informer(), sameTransit, p.wakeAll),
		store.AnyChange(cfg.Offloadings.Informer(), offloadingv1beta1.SameProviders, p.wakeAll),
	)
	p.Await(cfg.Own.HasSynced)
	return p
}

func (p *Publisher) wakeAll() {
	p.Wake(loop.Keys(store.All[*corev1beta1.ForeignCluster](p.cfg.ForeignClusters.Informer().GetStore()))...)
}

// wanted reports whether a peer gets a Configuration. A peering that ends keeps it while its
// offers are in use.
func wanted(fc *corev1beta1.ForeignCluster, offers []*sharingv1alpha1.ResourceOffer) bool {
	return fc != nil && !disabled(fc) && slices.ContainsFunc(offers, inUse)
}

// inUse reports whether the cluster that got an offer uses it. A withdrawn offer is in use until
// its virtual node is gone: the pods need the network to end well.
func inUse(o *sharingv1alpha1.ResourceOffer) bool {
	return o.Status.Phase == sharingv1alpha1.OfferAccepted || o.Status.VirtualNode != ""
}

func (p *Publisher) sync(ctx context.Context, key loop.Key) error {
	peer := key.Name
	namespace := corev1beta1.TenantNamespace(peer)
	offers := store.AllIn[*sharingv1alpha1.ResourceOffer](p.cfg.Offers.Informer().GetStore(), namespace)
	have := store.Cached[*networkingv1beta1.Configuration](p.cfg.Configurations.Informer().GetStore(), loop.Key{Namespace: namespace, Name: peer})
	if !p.cfg.Off && wanted(clusterOf(p.cfg.ForeignClusters, peer), offers) {
		return p.keep(ctx, peer, have)
	}
	if have == nil || !isMine(have) {
		return nil // or it is being deleted
	}
	return p.withdraw(ctx, peer, have)
}

// keep makes the Configuration for a peer, or makes the one that is there as it should be.
func (p *Publisher) keep(ctx context.Context, peer string, have *networkingv1beta1.Configuration) error {
	namespace := corev1beta1.TenantNamespace(peer)
	if have != nil && !managed(have) {
		return fmt.Errorf("publishing for %s: Configuration %s/%s is in the way: it has no label %s=%s, so liqod has not made it; delete it",
			peer, namespace, peer, offloadingv1beta1.ManagedByLabel, networkingv1beta1.ManagedByConfiguration)
	}
	if have != nil && have.DeletionTimestamp != nil {
		return nil // made again when it is gone
	}
	spec, known, err := p.spec()
	if err != nil || !known {
		return err
	}
	p.addTransit(&spec, peer, have)
	p.addServices(&spec, peer)
	spec.Admits = p.admits(peer)
	next := &networkingv1beta1.Configuration{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: peer, Labels: made(peer)}}
	if have != nil {
		next = have.DeepCopy()
		delete(next.Labels, offloadingv1beta1.ReplicatedLabel)
	}
	next.Spec = spec
	return write(ctx, "Configuration", p.cfg.Client.NetworkingV1beta1().Configurations(namespace), have, next)
}

// withdraw deletes the Configuration for a peer, when the API server agrees with the caches
// that none is wanted.
func (p *Publisher) withdraw(ctx context.Context, peer string, have *networkingv1beta1.Configuration) error {
	wanted, err := p.Wanted(ctx, peer)
	if err != nil {
		return err
	}
	if wanted {
		return loop.After(store.CatchUp)
	}
	p.cfg.Log.Info("configuration withdrawn", zap.String("peer", peer))
	return store.Delete(ctx, "Configuration", p.cfg.Client.NetworkingV1beta1().Configurations(have.Namespace), have)
}

// Wanted reports, by live reads, whether a peer shall have a Configuration.
func (p *Publisher) Wanted(ctx context.Context, peer string) (bool, error) {
	if p.cfg.Off {
		return false, nil
	}
	fc, err := store.Live(ctx, "ForeignCluster", p.cfg.Client.CoreV1beta1().ForeignClusters(), peer)
	if err != nil {
		return false, err
	}
	offers, err := store.Find[*sharingv1alpha1.ResourceOffer](ctx, "ResourceOffer", p.cfg.Client.SharingV1alpha1().ResourceOffers(corev1beta1.TenantNamespace(peer)), metav1.ListOptions{})
	return err == nil && wanted(fc, offers), err
}

// spec returns this cluster's own ranges and gateways, the same for every peer. known is false while
// they are unknown.
func (p *Publisher) spec() (spec networkingv1beta1.ConfigurationSpec, known bool, err error) {
	gateways, known := p.cfg.Gateways.Gateways()
	if !known {
		return spec, false, nil
	}
	own, err := p.cfg.Own.Own()
	if err != nil {
		return spec, false, fmt.Errorf("the ranges of this cluster cannot be published: %w", err)
	}
	spec.Local.CIDR = networkingv1beta1.ClusterCIDR{Pod: texts(p.cfg.Own.publishedPods(own, p.published())), External: texts(own.External)}
	spec.Gateways, spec.MTU = gateways, p.cfg.Gateways.MTU()
	var wrong check.Problems
	check.Ranges(spec.Local.CIDR, &wrong)
	if len(wrong) > 0 {
		return spec, false, fmt.Errorf("the ranges of this cluster cannot be published: %s", wrong)
	}
	return spec, true, nil
}

func texts(ranges []netip.Prefix) (out []networkingv1beta1.CIDR) {
	for _, p := range ranges {
		out = append(out, networkingv1beta1.CIDR(p.String()))
	}
	return out
}

// published returns the pod ranges in the Configuration for each peer.
func (p *Publisher) published() (out [][]netip.Prefix) {
	all := store.All[*networkingv1beta1.Configuration](p.cfg.Configurations.Informer().GetStore())
	slices.SortFunc(all, func(a, b *networkingv1beta1.Configuration) int { return strings.Compare(a.Namespace, b.Namespace) })
	for _, c := range all {
		if !isMine(c) {
			continue
		}
		var pods []netip.Prefix
		for _, r := range check.OwnRanges(c) {
			if r.Use == networkingv1beta1.RangePod {
				pods = append(pods, r.Prefix)
			}
		}
		out = append(out, pods)
	}
	return out
}
