package namespace

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	coreinformers "k8s.io/client-go/informers/core/v1"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	informers "github.com/liqod/liqod/api/generated/informers/externalversions/offloading/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/kube/store"
)

// OffloadingConfig is the input of NewOffloading. All fields are required.
type OffloadingConfig struct {
	Base

	// The informers watch this cluster in all namespaces.
	Offloadings  informers.NamespaceOffloadingInformer
	VirtualNodes informers.VirtualNodeInformer
	// Nodes may be restricted to the label liqo.io/type=virtual-node.
	Nodes coreinformers.NodeInformer
}

// Offloading executes NamespaceOffloadings in the consumer. It writes an entry to the
// NamespaceMap of every selected provider, labels the namespace for the pod webhook, and
// shows the providers' answers in the status. It never waits for a provider, not even when
// a NamespaceOffloading or its namespace is deleted. It runs under a lease.
type Offloading struct {
	*loop.Loop
	cfg     OffloadingConfig
	entries *entries
}

// NewOffloading returns an Offloading and registers its event handlers on the informers. It
// starts nothing.
func NewOffloading(cfg OffloadingConfig) *Offloading {
	o := &Offloading{
		cfg:     cfg,
		entries: &entries{liqo: cfg.Liqo, lister: cfg.Maps.Lister(), offloadings: cfg.Offloadings.Lister()},
	}
	o.Loop = loop.New(loop.Config{Name: "namespaceoffloading", Sync: o.sync, Beside: o.entered, Log: cfg.Log, Observer: cfg.Observer},
		loop.From(cfg.Offloadings.Informer(), loop.Self),
		loop.From(cfg.Namespaces.Informer(), func(ns *corev1.Namespace) []loop.Key { return []loop.Key{offloadingKey(ns.Name)} }),
	)
	// Few changes of these kinds matter, and each affects many keys.
	o.Watch(
		store.AnyChange(cfg.VirtualNodes.Informer(), sameSelected, o.everyone),
		store.AnyChange(cfg.Nodes.Informer(), func(b, a *corev1.Node) bool { return maps.Equal(a.Labels, b.Labels) }, o.everyone),
		loop.On(cfg.Maps.Informer(), store.OnChange(o.mapChanged)),
	)
	return o
}

// entered returns the keys of the namespaces with an entry in a map. Its NamespaceOffloading may have been
// deleted while no process was leading, and then no event queues it.
func (o *Offloading) entered() (keys []loop.Key) {
	for _, m := range store.All[*offloadingv1beta1.NamespaceMap](o.cfg.Maps.Informer().GetStore()) {
		for ns := range asMap(m).Spec.DesiredMapping {
			keys = append(keys, offloadingKey(ns))
		}
	}
	return keys
}

func (o *Offloading) sync(ctx context.Context, key loop.Key) error {
	if key.Name != offloadingv1beta1.NamespaceOffloadingName {
		return nil
	}
	nso := store.Known(o.cfg.Offloadings.Lister().NamespaceOffloadings(key.Namespace).Get(key.Name))
	switch {
	case nso == nil:
		return o.sweep(ctx, key.Namespace)
	case nso.DeletionTimestamp != nil:
		return o.end(ctx, nso)
	}
	ns := store.Known(o.cfg.Namespaces.Lister().Get(key.Namespace))
	switch {
	case ns == nil:
		return nil // the event of the namespace queues the key again
	case ns.DeletionTimestamp != nil:
		return o.endWith(ctx, nso, ns)
	}
	return o.offload(ctx, nso, ns)
}

// offload executes one NamespaceOffloading.
func (o *Offloading) offload(ctx context.Context, nso *offloadingv1beta1.NamespaceOffloading, ns *corev1.Namespace) error {
	name, choices, err := o.plan(nso, ns)
	if err != nil {
		return o.report(ctx, nso, summary{invalid: err.Error(), now: o.cfg.Clock.Now()})
	}
	if nso, err = o.finalizer(ctx, nso, true); err != nil {
		return err
	}
	if err := o.mark(ctx, ns); err != nil {
		return err
	}
	providers := o.entries.providers(ns.Name)
	for _, id := range providers {
		choices[id] = max(choices[id], notSelected)
	}
	s := summary{name: name, outcomes: map[string]outcome{}, now: o.cfg.Clock.Now()}
	var errs []error
	for id, c := range choices {
		out := outcome{choice: c}
		switch c {
		case selected:
			out.problem, err = o.ask(ctx, nso, id, name)
		case notSelected:
			out.choice, err = o.withdraw(ctx, nso, id, slices.Contains(providers, id))
		default:
			err = nil // undecided: an existing entry stays
		}
		errs = append(errs, err)
		m := asMap(o.entries.home(id))
		out.trouble = trouble(m)
		if answer, ok := m.Status.CurrentMapping[ns.Name]; ok {
			out.answer = &answer
		}
		if _, asked := m.Spec.DesiredMapping[ns.Name]; !asked && out.choice == undecided {
			out.choice = notSelected
		}
		s.outcomes[id] = out
	}
	return errors.Join(append(errs, o.report(ctx, nso, s))...)
}

// ask adds an entry for the twin to the map of a provider, after a live read has confirmed
// that the NamespaceOffloading exists. After a restore of etcd the cache may still have a
// NamespaceOffloading that etcd has not. The entry for it would be removed as soon as the
// cache catches up, and the twin with it.
func (o *Offloading) ask(ctx context.Context, nso *offloadingv1beta1.NamespaceOffloading, id, name string) (string, error) {
	want := entryOf(nso, name)
	if o.entries.has(id, nso.Namespace, want) {
		return "", nil
	}
	live, err := store.Live(ctx, "NamespaceOffloading", o.cfg.Liqo.OffloadingV1beta1().NamespaceOffloadings(nso.Namespace), nso.Name)
	if err != nil {
		return "", err
	}
	if live == nil || live.UID != nso.UID {
		return "", loop.After(cacheDelay)
	}
	return o.entries.set(ctx, id, nso.Namespace, want)
}

// plan returns the name of the twins, and the choice for each cluster. An error is a
// message for the author of the NamespaceOffloading.
func (o *Offloading) plan(nso *offloadingv1beta1.NamespaceOffloading, ns *corev1.Namespace) (string, map[string]choice, error) {
	if why := refusal(ns, o.cfg.OwnNamespace); why != "" {
		return "", nil, errors.New(why)
	}
	name, err := remoteName(&nso.Spec, ns.Name, o.cfg.ClusterID)
	if err != nil {
		return "", nil, err
	}
	vns := store.Listed(o.cfg.VirtualNodes.Lister().List(labels.Everything()))
	choices, err := choose(&nso.Spec.ClusterSelector, vns, func(name string) *corev1.Node {
		if n := store.Known(o.cfg.Nodes.Lister().Get(name)); n != nil && offloadingv1beta1.IsVirtual(n) {
			return n
		}
		return nil
	})
	if err != nil {
		return "", nil, err
	}
	if nso.Status.ObservedGeneration != nso.Generation {
		// The author has just changed the selector. A missing Node then counts with the
		// labels that it is going to have.
		for id, c := range choices {
			if c == undecided {
				choices[id] = notSelected
			}
		}
	}
	return name, choices, nil
}

// withdraw removes the entry for a cluster that is no longer selected. The provider deletes
// the twin then, so a live read confirms it first. has reports whether there is an entry. Where
// the tenant namespace is being deleted, map and virtual nodes go because of that: the end of the
// peering, and nothing else, withdraws the entries.
func (o *Offloading) withdraw(ctx context.Context, nso *offloadingv1beta1.NamespaceOffloading, id string, has bool) (choice, error) {
	if !has {
		return notSelected, nil
	}
	tenant, err := store.Live(ctx, "Namespace", o.cfg.Kube.CoreV1().Namespaces(), corev1beta1.TenantNamespace(id))
	if err != nil || tenant != nil && tenant.DeletionTimestamp != nil {
		return undecided, err
	}
	live, err := o.cfg.Liqo.OffloadingV1beta1().NamespaceOffloadings(nso.Namespace).Get(ctx, nso.Name, metav1.GetOptions{})
	if err != nil {
		return undecided, fmt.Errorf("confirming the selector: %w", err)
	}
	vns, err := store.Find[*offloadingv1beta1.VirtualNode](ctx, "VirtualNode", o.cfg.Liqo.OffloadingV1beta1().VirtualNodes(metav1.NamespaceAll), metav1.ListOptions{})
	if err != nil {
		return undecided, fmt.Errorf("confirming that no virtual node matches: %w", err)
	}
	nodes, err := store.Find[*corev1.Node](ctx, "Node", o.cfg.Kube.CoreV1().Nodes(), metav1.ListOptions{
		LabelSelector: offloadingv1beta1.TypeLabel + "=" + offloadingv1beta1.TypeVirtualNode})
	if err != nil {
		return undecided, fmt.Errorf("confirming that no virtual node matches: %w", err)
	}
	byName := map[string]*corev1.Node{}
	for _, n := range nodes {
		byName[n.Name] = n
	}
	choices, err := choose(&live.Spec.ClusterSelector, vns, func(name string) *corev1.Node { return byName[name] })
	stale := err != nil || live.UID != nso.UID || live.Generation != nso.Generation
	fresh := nso.Status.ObservedGeneration != nso.Generation && choices[id] == undecided
	if stale || (choices[id] != notSelected && !fresh) {
		o.cfg.Log.Info("cache disagrees with the API server; twin kept for now", zap.String("namespace", nso.Namespace), zap.String("peer", id))
		return undecided, nil // the missing event queues this key again
	}
	return notSelected, o.entries.unset(ctx, id, nso.Namespace)
}

func (o *Offloading) finalizer(ctx context.Context, nso *offloadingv1beta1.NamespaceOffloading, want bool) (*offloadingv1beta1.NamespaceOffloading, error) {
	return store.SetFinalizer(ctx, o.cfg.Liqo.OffloadingV1beta1().NamespaceOffloadings(nso.Namespace), nso, offloadingv1beta1.NamespaceOffloadingFinalizer, want, "")
}

// report writes the status if it has changed.
func (o *Offloading) report(ctx context.Context, nso *offloadingv1beta1.NamespaceOffloading, s summary) error {
	next := nso.DeepCopy()
	next.Status = s.status(nso)
	return store.IgnoreNotFound(store.WriteStatus(ctx, "NamespaceOffloading", o.cfg.Liqo.OffloadingV1beta1().NamespaceOffloadings(nso.Namespace), "", nso, next))
}
