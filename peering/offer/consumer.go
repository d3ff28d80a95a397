package offer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	offloadinginformers "github.com/liqod/liqod/api/generated/informers/externalversions/offloading/v1beta1"
	sharinginformers "github.com/liqod/liqod/api/generated/informers/externalversions/sharing/v1alpha1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	sharingv1alpha1 "github.com/liqod/liqod/api/sharing/v1alpha1"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/peering/link"
)

// cacheDelay is how long a cache is given to catch up with the result of a live read.
const cacheDelay = time.Second

// ConsumerConfig is the input of NewConsumer. All fields are required.
type ConsumerConfig struct {
	link.Base

	// The informers watch this cluster in all namespaces.
	VirtualNodes offloadinginformers.VirtualNodeInformer
	Requests     sharinginformers.ResourceRequestInformer
	Offers       sharinginformers.ResourceOfferInformer

	// Credentials returns the name of the Secret with the credentials for a peer, in the
	// peer's tenant namespace. It returns false if there are no valid ones. Its
	// implementation must call Changed after a change.
	Credentials func(clusterID string) (secret string, ok bool)
	// Outgoing decides for ForeignClusters with outgoingPeeringEnabled Auto. Accept is
	// Automatic, or else an offer is accepted once a person sets sharingv1alpha1.AcceptedAnnotation.
	Outgoing link.Policy
	Accept   Mode
	// LeftOut reports whether a provider may not give a label to its virtual nodes.
	LeftOut func(provider, key string) bool
}

// Consumer writes a ResourceRequest for each peer whose capacity this cluster wants, and
// creates VirtualNodes for the offers. Its keys are cluster ids.
type Consumer struct {
	*loop.Loop
	cfg ConsumerConfig
}

// NewConsumer returns a Consumer and registers its event handlers on the informers. It
// starts nothing.
func NewConsumer(cfg ConsumerConfig) *Consumer {
	c := &Consumer{cfg: cfg}
	c.Loop = loop.New(loop.Config{Name: "consumer", Sync: c.sync, Log: cfg.Log, Observer: cfg.Observer},
		loop.From(cfg.ForeignClusters.Informer(), link.ClusterKey),
		loop.From(cfg.VirtualNodes.Informer(), tenantKey),
		loop.From(cfg.Requests.Informer(), tenantKey),
		loop.From(cfg.Offers.Informer(), tenantKey),
	)
	return c
}

// Changed queues a peer after a change of the credentials for it. It does not block, and is
// safe for concurrent use.
func (c *Consumer) Changed(clusterID string) { c.Wake(loop.Key{Name: clusterID}) }

// tenantKey returns the peer of the tenant namespace that an object is in.
func tenantKey(obj any) []loop.Key {
	m, ok := obj.(metav1.Object)
	if !ok || corev1beta1.PeerOfNamespace(m.GetNamespace()) == "" {
		return nil
	}
	return []loop.Key{{Name: corev1beta1.PeerOfNamespace(m.GetNamespace())}}
}

// replicated reports whether an object is a copy of a peer's object.
func replicated(o metav1.Object) bool {
	return o.GetLabels()[offloadingv1beta1.ReplicatedLabel] == "true"
}

// state is what the caches have about one provider.
type state struct {
	provider string
	wanted   bool
	asked    corev1beta1.CapacityRequest
	secret   string
	request  *sharingv1alpha1.ResourceRequest
	offers   []*sharingv1alpha1.ResourceOffer
	nodes    map[string]*offloadingv1beta1.VirtualNode
}

func (c *Consumer) sync(ctx context.Context, key loop.Key) error {
	s := c.gather(key.Name)
	if !s.wanted && s.holds() {
		// A stale cache must not give up what is in use.
		wanted, err := c.Wanted(ctx, s.provider)
		if err != nil {
			return err
		}
		if wanted {
			return loop.After(cacheDelay)
		}
	}
	errs := []error{c.ask(ctx, s)}
	var again time.Duration
	for _, o := range s.offers {
		next, err := c.treat(ctx, s, o)
		errs = append(errs, err)
		if next > 0 && (again == 0 || next < again) {
			again = next
		}
	}
	errs = append(errs, c.orphans(ctx, s))
	if err := errors.Join(errs...); err != nil || again == 0 {
		return err
	}
	return loop.After(again)
}

// gather reads the state of one provider from the caches.
func (c *Consumer) gather(provider string) (s state) {
	s = state{provider: provider, nodes: map[string]*offloadingv1beta1.VirtualNode{}}
	fc := store.Known(c.cfg.ForeignClusters.Lister().Get(provider))
	if fc != nil && fc.DeletionTimestamp == nil {
		s.wanted, s.asked = link.OutgoingWanted(fc, c.cfg.Outgoing), fc.Spec.Request
	}
	s.secret, _ = c.cfg.Credentials(provider)
	namespace := corev1beta1.TenantNamespace(provider)
	request := store.Known(c.cfg.Requests.Lister().ResourceRequests(namespace).Get(provider))
	if request != nil && !replicated(request) {
		s.request = request
	}
	offers := store.Listed(c.cfg.Offers.Lister().ResourceOffers(namespace).List(labels.Everything()))
	s.offers = slices.DeleteFunc(offers, func(o *sharingv1alpha1.ResourceOffer) bool { return !replicated(o) })
	for _, vn := range store.Listed(c.cfg.VirtualNodes.Lister().VirtualNodes(namespace).List(labels.Everything())) {
		s.nodes[vn.Name] = vn
	}
	return s
}

// holds reports whether there is a request or a virtual node to delete when the provider is
// not wanted.
func (s state) holds() bool {
	made := func(vn *offloadingv1beta1.VirtualNode) bool { return ours(vn) && vn.DeletionTimestamp == nil }
	return s.request != nil && s.request.DeletionTimestamp == nil || slices.ContainsFunc(slices.Collect(maps.Values(s.nodes)), made)
}

// Wanted reports whether capacity of a peer is wanted. It reads live.
func (c *Consumer) Wanted(ctx context.Context, clusterID string) (bool, error) {
	fc, err := store.Live(ctx, "ForeignCluster", c.cfg.Liqo.CoreV1beta1().ForeignClusters(), clusterID)
	return fc != nil && link.OutgoingWanted(fc, c.cfg.Outgoing), err
}

// ask writes the ResourceRequest that the ForeignCluster describes. It creates none without
// credentials, but keeps an existing one.
func (c *Consumer) ask(ctx context.Context, s state) error {
	requests := c.cfg.Liqo.SharingV1alpha1().ResourceRequests(corev1beta1.TenantNamespace(s.provider))
	switch {
	case s.request != nil && s.request.DeletionTimestamp != nil:
		return nil // created again once it is gone
	case s.request == nil && (!s.wanted || s.secret == ""):
		return nil
	case !s.wanted:
		return store.Delete(ctx, "ResourceRequest", requests, s.request)
	}
	kind := store.Kind[*sharingv1alpha1.ResourceRequest]{Name: "ResourceRequest", Client: requests, Ours: func(have *sharingv1alpha1.ResourceRequest) error {
		switch {
		case replicated(have):
			return fmt.Errorf("creating ResourceRequest %s: its name is taken by a copy of a peer's", s.provider)
		case have.DeletionTimestamp != nil:
			return loop.After(cacheDelay)
		}
		return nil
	}, Set: func(next, want *sharingv1alpha1.ResourceRequest) bool {
		next.Spec = want.Spec
		return true
	}}
	return kind.Apply(ctx, s.request, &sharingv1alpha1.ResourceRequest{
		ObjectMeta: metav1.ObjectMeta{Name: s.provider, Namespace: corev1beta1.TenantNamespace(s.provider), Labels: map[string]string{corev1beta1.RemoteClusterIDLabel: s.provider}},
		Spec:       sharingv1alpha1.ResourceRequestSpec{ConsumerClusterID: c.cfg.ClusterID, ProviderClusterID: s.provider, CapacityRequest: s.asked},
	})
}

// treat carries out the plan for one offer. It returns the delay before the next sync; 0:
// none is needed.
func (c *Consumer) treat(ctx context.Context, s state, o *sharingv1alpha1.ResourceOffer) (time.Duration, error) {
	if o.DeletionTimestamp != nil {
		return 0, nil
	}
	r := received{clusterID: c.cfg.ClusterID, provider: s.provider, offer: o, node: s.nodes[o.Name],
		wanted: s.wanted, secret: s.secret, mode: c.cfg.Accept, now: c.cfg.Clock.Now()}
	if r.node == nil && o.Status.VirtualNode != "" { // the cache may lack it
		var err error
		if r.node, err = store.Live(ctx, "VirtualNode", c.cfg.Liqo.OffloadingV1beta1().VirtualNodes(o.Namespace), o.Name); err != nil {
			return 0, err
		}
	}
	p := r.decide()
	if p.wait {
		return p.again, nil
	}
	// A status that shows the offer as used is written before the virtual node is created.
	// A status that shows it as unused is written after the virtual node is gone.
	err := c.answer(ctx, o, p.status)
	switch {
	case err != nil:
	case p.drain && r.node.DeletionTimestamp == nil:
		err = c.drain(ctx, r.node)
	case p.keep:
		err = c.keep(ctx, r)
	}
	return p.again, err
}

// answer writes the status of an offer if it differs.
func (c *Consumer) answer(ctx context.Context, o *sharingv1alpha1.ResourceOffer, status sharingv1alpha1.ResourceOfferStatus) error {
	status.ObservedGeneration = o.Generation
	next := o.DeepCopy()
	next.Status = status
	return store.WriteStatus(ctx, "ResourceOffer", c.cfg.Liqo.SharingV1alpha1().ResourceOffers(o.Namespace), "", o, next)
}

func (c *Consumer) drain(ctx context.Context, vn *offloadingv1beta1.VirtualNode) error {
	c.cfg.Log.Info("deleting the virtual node of an offer", zap.String("virtualNode", vn.Name), zap.String("peer", vn.Spec.ClusterID))
	return store.Delete(ctx, "VirtualNode", c.cfg.Liqo.OffloadingV1beta1().VirtualNodes(vn.Namespace), vn)
}

// keep creates or updates the VirtualNode of an offer. One that is being deleted is created
// again once it is gone.
func (c *Consumer) keep(ctx context.Context, r received) error {
	nodes := c.cfg.Liqo.OffloadingV1beta1().VirtualNodes(r.offer.Namespace)
	r.offer = r.offer.DeepCopy()
	maps.DeleteFunc(r.offer.Spec.Labels, func(key, _ string) bool { return c.cfg.LeftOut(r.provider, key) })
	secret := r.secret
	if r.node != nil && r.node.DeletionTimestamp != nil {
		return nil
	}
	if secret == "" { // missing at the moment
		secret = r.node.Spec.KubeconfigSecretRef.Name
	}
	_, err := store.Write(ctx, "VirtualNode", nodes, "", r.node, virtualNode(r.node, r.offer, secret))
	return err
}

// orphans deletes the VirtualNodes whose offers are gone, if the provider is not wanted. If
// it is wanted, the offer was deleted here by hand, and the replication restores it.
func (c *Consumer) orphans(ctx context.Context, s state) error {
	if s.wanted {
		return nil
	}
	offered := map[string]bool{}
	for _, o := range s.offers {
		offered[o.Name] = true
	}
	var errs []error
	for name, vn := range s.nodes {
		if ours(vn) && !offered[name] && vn.DeletionTimestamp == nil {
			errs = append(errs, c.drain(ctx, vn))
		}
	}
	return errors.Join(errs...)
}
