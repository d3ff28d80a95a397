package offer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"
	coreinformers "k8s.io/client-go/informers/core/v1"
	networkinginformers "k8s.io/client-go/informers/networking/v1"
	storageinformers "k8s.io/client-go/informers/storage/v1"
	"k8s.io/client-go/tools/cache"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	offloadinginformers "github.com/liqod/liqod/api/generated/informers/externalversions/offloading/v1beta1"
	sharinginformers "github.com/liqod/liqod/api/generated/informers/externalversions/sharing/v1alpha1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	sharingv1alpha1 "github.com/liqod/liqod/api/sharing/v1alpha1"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/peering/link"
	"github.com/liqod/liqod/reasons"
)

const (
	// settleDelay is how long changes of the free capacity are collected before the offers
	// follow.
	settleDelay = time.Second
	// missedHold is how long the provider waits after the request of a consumer with used
	// offers disappears. If the request was deleted here by hand, the consumer restores it
	// in that time, provided that it can reach this cluster.
	missedHold = 10 * time.Second
)

// ProviderConfig is the input of NewProvider. All fields are required.
type ProviderConfig struct {
	link.Base

	// The informers watch this cluster in all namespaces.
	Requests       sharinginformers.ResourceRequestInformer
	Offers         sharinginformers.ResourceOfferInformer
	Quotas         offloadinginformers.QuotaInformer
	Nodes          coreinformers.NodeInformer
	StorageClasses storageinformers.StorageClassInformer
	IngressClasses networkinginformers.IngressClassInformer

	// Policy says what is shared. Incoming decides for ForeignClusters with
	// incomingPeeringEnabled Auto.
	Policy   Policy
	Incoming link.Policy
}

// Provider answers the requests of consumers, and keeps the Quotas of their offers. Its
// keys are cluster ids. A single worker handles all keys, and reads the offers to other
// consumers live before it writes an offer, so capacity is not offered twice.
type Provider struct {
	loop  *loop.Loop
	cfg   ProviderConfig
	usage *usage

	missed loop.Since[string] // consumers whose request is missing
}

// NewProvider returns a Provider and registers its event handlers on the informers. It
// starts nothing.
func NewProvider(cfg ProviderConfig) *Provider {
	p := &Provider{cfg: cfg}
	p.usage = &usage{kube: cfg.Kube, changed: p.capacityChanged}
	p.loop = loop.New(loop.Config{Name: "provider", Sync: p.sync, Log: cfg.Log, Observer: cfg.Observer},
		loop.From(cfg.ForeignClusters.Informer(), link.ClusterKey),
		loop.From(cfg.Requests.Informer(), tenantKey),
		loop.From(cfg.Offers.Informer(), tenantKey),
		loop.From(cfg.Quotas.Informer(), tenantKey),
		loop.From(cfg.StorageClasses.Informer(), p.everyConsumer),
		loop.From(cfg.IngressClasses.Informer(), p.everyConsumer),
	)
	p.loop.Watch(store.AnyChange(cfg.Nodes.Informer(), sameCapacity, p.capacityChanged))
	return p
}

// sameCapacity reports whether two states of a node are equal in the fields that offers
// depend on.
func sameCapacity(a, b *corev1.Node) bool {
	return takesPods(a) == takesPods(b) && slices.Equal(pressuresOf([]*corev1.Node{a}, nil), pressuresOf([]*corev1.Node{b}, nil)) && maps.Equal(a.Labels, b.Labels) &&
		equality.Semantic.DeepEqual(a.Status.Allocatable, b.Status.Allocatable)
}

// Run blocks until ctx is done and the worker and the watch of pods have stopped. It may be
// called again after that.
func (p *Provider) Run(ctx context.Context) error {
	err := p.loop.Run(ctx, 1) // one worker: decisions depend on each other
	p.usage.end()
	return err
}

// consumers returns the keys of all peers with a request or an offer.
func (p *Provider) consumers() []loop.Key {
	keys := sets.New[loop.Key]()
	for _, inf := range []cache.SharedIndexInformer{p.cfg.Requests.Informer(), p.cfg.Offers.Informer()} {
		for _, obj := range inf.GetStore().List() {
			keys.Insert(tenantKey(obj)...)
		}
	}
	return keys.UnsortedList()
}

func (p *Provider) everyConsumer(any) []loop.Key { return p.consumers() }

// capacityChanged queues all consumers after settleDelay, while the loop runs.
func (p *Provider) capacityChanged() {
	for _, key := range p.consumers() {
		p.loop.AddAfter(key, settleDelay)
	}
}

// world is the state that a sync reads, from the caches or live.
type world struct {
	request *sharingv1alpha1.ResourceRequest // of the consumer; nil: none
	cluster *corev1beta1.ForeignCluster      // the record of the consumer; nil: none
	offers  []*sharingv1alpha1.ResourceOffer // of this cluster, to all consumers
	quotas  []*offloadingv1beta1.Quota       // of offers, to all consumers
}

func (p *Provider) sync(ctx context.Context, key loop.Key) error {
	consumer := key.Name
	w := p.cached(consumer)
	d, err := p.decide(ctx, consumer, w)
	if err != nil {
		return err
	}
	changes := p.changes(consumer, w, d)
	if !changes.any() {
		return p.again(consumer, w)
	}
	// The caches may lag, and the offers to other consumers count, too.
	if w, err = p.live(ctx, consumer); err != nil {
		return err
	}
	if w.request == nil && slices.ContainsFunc(w.of(consumer), inUse) {
		now := p.cfg.Clock.Now()
		if wait := missedHold - now.Sub(p.missed.Begin(consumer, now)); wait > 0 {
			return loop.After(wait)
		}
	}
	if d, err = p.decide(ctx, consumer, w); err != nil {
		return err
	}
	if err := p.write(ctx, consumer, p.changes(consumer, w, d)); err != nil {
		return err
	}
	return p.again(consumer, w)
}

// again requeues the key for the time at which an offer has to be prolonged or expires.
func (p *Provider) again(consumer string, w world) error {
	if w.request != nil {
		p.missed.End(consumer)
	}
	now, next := p.cfg.Clock.Now(), time.Duration(0)
	for _, o := range w.of(consumer) {
		if o.Spec.ExpirationTime == nil || o.Spec.WithdrawalTimestamp != nil {
			continue
		}
		left := o.Spec.ExpirationTime.Sub(now)
		if p.cfg.Policy.Expiration > 0 {
			left -= p.cfg.Policy.Expiration / 2
		}
		if left = max(left, time.Second); next == 0 || left < next {
			next = left
		}
	}
	if next == 0 {
		return nil
	}
	return loop.After(next)
}

// of returns the offers to one consumer.
func (w world) of(consumer string) []*sharingv1alpha1.ResourceOffer {
	namespace := corev1beta1.TenantNamespace(consumer)
	return slices.DeleteFunc(slices.Clone(w.offers), func(o *sharingv1alpha1.ResourceOffer) bool { return o.Namespace != namespace })
}

// own reports whether this cluster made an offer.
func (p *Provider) own(o *sharingv1alpha1.ResourceOffer) bool {
	return !replicated(o) && o.Spec.ProviderClusterID == p.cfg.ClusterID && sharingv1alpha1.ValidOfferName(p.cfg.ClusterID, o.Name)
}

func managed(q *offloadingv1beta1.Quota) bool {
	return q.Labels[offloadingv1beta1.ManagedByLabel] == sharingv1alpha1.ManagedByOffer
}

// cached reads the world from the caches.
func (p *Provider) cached(consumer string) (w world) {
	offers := store.Listed(p.cfg.Offers.Lister().List(labels.Everything()))
	quotas := store.Listed(p.cfg.Quotas.Lister().List(labels.Everything()))
	cluster := store.Known(p.cfg.ForeignClusters.Lister().Get(consumer))
	request := store.Known(p.cfg.Requests.Lister().ResourceRequests(corev1beta1.TenantNamespace(consumer)).Get(p.cfg.ClusterID))
	return p.pick(request, cluster, offers, quotas)
}

// live reads the world from the API server.
func (p *Provider) live(ctx context.Context, consumer string) (w world, err error) {
	offers, err := store.Find[*sharingv1alpha1.ResourceOffer](ctx, "ResourceOffer", p.cfg.Liqo.SharingV1alpha1().ResourceOffers(metav1.NamespaceAll), metav1.ListOptions{})
	if err != nil {
		return w, err
	}
	quotas, err := store.Find[*offloadingv1beta1.Quota](ctx, "Quota", p.cfg.Liqo.OffloadingV1beta1().Quotas(metav1.NamespaceAll), metav1.ListOptions{})
	if err != nil {
		return w, err
	}
	cluster, err := store.Live(ctx, "ForeignCluster", p.cfg.Liqo.CoreV1beta1().ForeignClusters(), consumer)
	if err != nil {
		return w, err
	}
	request, err := store.Live(ctx, "ResourceRequest", p.cfg.Liqo.SharingV1alpha1().ResourceRequests(corev1beta1.TenantNamespace(consumer)), p.cfg.ClusterID)
	if err != nil {
		return w, err
	}
	return p.pick(request, cluster, offers, quotas), nil
}

// pick selects the request if it is the consumer's own, and the offers and Quotas that this
// cluster made.
func (p *Provider) pick(request *sharingv1alpha1.ResourceRequest, cluster *corev1beta1.ForeignCluster,
	offers []*sharingv1alpha1.ResourceOffer, quotas []*offloadingv1beta1.Quota) (w world) {
	if request != nil && request.DeletionTimestamp == nil && replicated(request) {
		w.request = request
	}
	if cluster != nil && cluster.DeletionTimestamp == nil {
		w.cluster = cluster
	}
	w.offers = slices.DeleteFunc(offers, func(o *sharingv1alpha1.ResourceOffer) bool { return !p.own(o) })
	w.quotas = slices.DeleteFunc(quotas, func(q *offloadingv1beta1.Quota) bool { return !managed(q) })
	return w
}

// decide gathers the facts and calls Decide. Its error requeues the key until the pods of the
// cluster are known.
func (p *Provider) decide(ctx context.Context, consumer string, w world) (Decision, error) {
	f := Facts{Provider: p.cfg.ClusterID, Consumer: consumer, Offers: w.of(consumer), Now: p.cfg.Clock.Now()}
	if w.request != nil {
		f.Request = &w.request.Spec.CapacityRequest
		f.Refused, f.RefusedMessage = p.refuses(consumer, w)
	}
	if f.Request == nil || f.Refused != "" || p.cfg.Policy.Mode == Never {
		return Decide(f, p.cfg.Policy), nil
	}
	used, err := p.usage.get(ctx)
	if err != nil {
		return Decision{}, err
	}
	f.Used, f.Others, f.Classes = used, holdings(consumer, w), p.classes()
	f.Nodes = store.Listed(p.cfg.Nodes.Lister().List(labels.Everything()))
	return Decide(f, p.cfg.Policy), nil
}

// refuses returns the reason for which a consumer gets nothing, whatever capacity there is.
func (p *Provider) refuses(consumer string, w world) (reason, message string) {
	s := w.request.Spec
	switch {
	case s.ConsumerClusterID != consumer || s.ProviderClusterID != p.cfg.ClusterID:
		return reasons.InvalidRequest, fmt.Sprintf("it is a request of %[2]q to %[1]q: a request of %[3]s to %[4]s is accepted", s.ProviderClusterID, s.ConsumerClusterID, consumer, p.cfg.ClusterID)
	case w.cluster == nil:
		return sharingv1alpha1.ReasonNotAllowed, fmt.Sprintf("cluster %s has no ForeignCluster for %s", p.cfg.ClusterID, consumer)
	case !link.IncomingWanted(w.cluster, p.cfg.Incoming):
		return sharingv1alpha1.ReasonNotAllowed, fmt.Sprintf("cluster %s does not let %s use it (incomingPeeringEnabled)", p.cfg.ClusterID, consumer)
	}
	return "", ""
}

// holdings returns the capacity promised to the other consumers: for each offer, the larger
// of the offer and its Quota.
func holdings(consumer string, w world) (out []Holding) {
	quotas := map[loop.Key]corev1.ResourceList{}
	for _, q := range w.quotas {
		quotas[cache.MetaObjectToName(q)] = q.Spec.Resources
	}
	for _, o := range w.offers {
		key := cache.MetaObjectToName(o)
		h := Holding{Consumer: corev1beta1.PeerOfNamespace(o.Namespace), NodeSelector: o.Spec.NodeSelector, Resources: corev1.ResourceList{}}
		if o.Spec.WithdrawalTimestamp == nil {
			atLeast(h.Resources, o.Spec.ResourceQuota.Hard)
		}
		atLeast(h.Resources, quotas[key])
		delete(quotas, key)
		out = append(out, h)
	}
	for key, amounts := range quotas {
		out = append(out, Holding{Consumer: corev1beta1.PeerOfNamespace(key.Namespace), Resources: amounts})
	}
	return slices.DeleteFunc(out, func(h Holding) bool { return h.Consumer == consumer })
}

// classes returns the classes of the cluster, the default first, then by name.
func (p *Provider) classes() (c Classes) {
	storage := store.Listed(p.cfg.StorageClasses.Lister().List(labels.Everything()))
	ingress := store.Listed(p.cfg.IngressClasses.Lister().List(labels.Everything()))
	storage = slices.DeleteFunc(storage, func(s *storagev1.StorageClass) bool { return !offerable(s, p.cfg.Policy.StorageClasses) })
	return Classes{inOrder(storage, "storageclass.kubernetes.io/is-default-class"), inOrder(ingress, "ingressclass.kubernetes.io/is-default-class")}
}

// offerable reports whether volumes of a class can be made for peers. allowed are the classes of the
// policy: "*" does not stand for classes whose volumes people make, of which peers get none. A class
// of liqod itself, which may be borrowed from a provider, is not offered again.
func offerable(s *storagev1.StorageClass, allowed []string) bool {
	return s.Provisioner != offloadingv1beta1.StorageProvisioner && (s.Provisioner != "kubernetes.io/no-provisioner" || slices.Contains(allowed, s.Name))
}

// inOrder returns the names of classes, the default class first: of several the newest, as in API
// servers. Then come the other default classes, and all others by name.
func inOrder[T metav1.Object](classes []T, defaultAnnotation string) []string {
	isDefault := func(o T) int {
		if o.GetAnnotations()[defaultAnnotation] == "true" {
			return 1
		}
		return 0
	}
	slices.SortFunc(classes, func(a, b T) int {
		newer := 0
		if isDefault(a) == 1 {
			newer = b.GetCreationTimestamp().Compare(a.GetCreationTimestamp().Time)
		}
		return cmp.Or(isDefault(b)-isDefault(a), newer, cmp.Compare(a.GetName(), b.GetName()))
	})
	out := make([]string, 0, len(classes))
	for _, c := range classes {
		out = append(out, c.GetName())
	}
	return out
}

// changes are the writes of a decision, in their order.
type changes struct {
	quotas  []change[*offloadingv1beta1.Quota]
	offers  []change[*sharingv1alpha1.ResourceOffer]
	request *sharingv1alpha1.ResourceRequest // with the new status; nil: no write
}

func (c changes) any() bool {
	return len(c.quotas)+len(c.offers) > 0 || c.request != nil
}

// change is one write. have is nil for a creation, want is nil for a deletion.
type change[T store.Object] struct{ have, want T }

func (c change[T]) write(ctx context.Context, kind string, client interface {
	store.Writer[T]
	store.Deleter
},
) error {
	var none T
	if c.want == none {
		return store.Delete(ctx, kind, client, c.have)
	}
	_, err := store.Write(ctx, kind, client, "", c.have, c.want)
	return err
}

// changes compares a decision with the existing objects.
func (p *Provider) changes(consumer string, w world, d Decision) (c changes) {
	have := map[string]*sharingv1alpha1.ResourceOffer{}
	for _, o := range w.of(consumer) {
		have[o.Name] = o
		spec, wanted := d.Offers[o.Name]
		next := o.DeepCopy()
		switch {
		case o.DeletionTimestamp != nil:
			continue // created again once it is gone
		case wanted:
			next.Spec = spec
		case !inUse(o):
			next = nil
		case o.Spec.WithdrawalTimestamp == nil:
			next.Spec.WithdrawalTimestamp = seconds(p.cfg.Clock.Now())
		}
		if next == nil || !equality.Semantic.DeepEqual(next.Spec, o.Spec) {
			c.offers = append(c.offers, change[*sharingv1alpha1.ResourceOffer]{o, next})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(d.Offers)) {
		if have[name] == nil {
			c.offers = append(c.offers, change[*sharingv1alpha1.ResourceOffer]{want: &sharingv1alpha1.ResourceOffer{
				ObjectMeta: metav1.ObjectMeta{Namespace: corev1beta1.TenantNamespace(consumer), Name: name,
					Labels: map[string]string{corev1beta1.RemoteClusterIDLabel: consumer}},
				Spec: d.Offers[name],
			}})
		}
	}
	c.quotas = quotaChanges(consumer, w, d, p.cfg.Policy.Enforcement)
	if w.request != nil {
		status := sharingv1alpha1.ResourceRequestStatus{ObservedGeneration: w.request.Generation, Phase: d.Phase, Reason: d.Reason, Message: store.ClipMessage(d.Message)}
		if status != w.request.Status {
			c.request = w.request.DeepCopy()
			c.request.Status = status
		}
	}
	return c
}

// write carries out the changes. A Quota is written before its offer, so that no offer is
// ever without a limit.
func (p *Provider) write(ctx context.Context, consumer string, c changes) error {
	namespace := corev1beta1.TenantNamespace(consumer)
	for _, q := range c.quotas {
		if err := q.write(ctx, "Quota", p.cfg.Liqo.OffloadingV1beta1().Quotas(namespace)); err != nil {
			return err
		}
	}
	var errs []error // of creations: one does not wait for another
	for _, o := range c.offers {
		err := o.write(ctx, "ResourceOffer", p.cfg.Liqo.SharingV1alpha1().ResourceOffers(namespace))
		if err != nil && o.have != nil {
			return err
		}
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if c.request == nil {
		return nil
	}
	return store.WriteStatus(ctx, "ResourceRequest", p.cfg.Liqo.SharingV1alpha1().ResourceRequests(c.request.Namespace), "", nil, c.request)
}
