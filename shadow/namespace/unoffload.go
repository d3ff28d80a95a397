package namespace

import (
	"context"
	"errors"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/kube/store"
)

// markAnnotation on a namespace records that Offloading has set the scheduling label, and
// the value that the label had before.
const markAnnotation = "offloading.liqo.io/scheduling-enabled-before"

// end reverts a NamespaceOffloading that is being deleted. It writes to this cluster only.
// The providers delete their twins when they receive the changed map.
func (o *Offloading) end(ctx context.Context, nso *offloadingv1beta1.NamespaceOffloading) error {
	if !slices.Contains(nso.Finalizers, offloadingv1beta1.NamespaceOffloadingFinalizer) {
		return nil
	}
	if err := o.unmark(ctx, nso.Namespace); err != nil {
		return err
	}
	// The cache may not show an entry that was just written, so all possible providers are
	// checked.
	ids := map[string]bool{}
	for id := range nso.Status.RemoteNamespacesConditions {
		ids[id] = true
	}
	for _, vn := range store.Listed(o.cfg.VirtualNodes.Lister().List(labels.Everything())) {
		ids[vn.Spec.ClusterID] = true
	}
	if err := o.unset(ctx, nso.Namespace, ids); err != nil {
		return err
	}
	_, err := o.finalizer(ctx, nso, false)
	return store.IgnoreNotFound(err)
}

// endWith calls end for a NamespaceOffloading whose namespace is being deleted. Kubernetes
// deletes the pods of a namespace before its other objects, and pods at an unreachable
// provider are released only once the namespace is not offloaded.
func (o *Offloading) endWith(ctx context.Context, nso *offloadingv1beta1.NamespaceOffloading, ns *corev1.Namespace) error {
	live, err := store.Live(ctx, "namespace", o.cfg.Kube.CoreV1().Namespaces(), ns.Name)
	if err != nil || live == nil {
		return err // without the namespace the NamespaceOffloading is gone, too
	}
	if live.DeletionTimestamp == nil {
		return loop.After(cacheDelay) // a new namespace of the same name
	}
	return o.end(ctx, nso)
}

// sweep removes the entries and the mark of a NamespaceOffloading that was deleted without
// its finalizer.
func (o *Offloading) sweep(ctx context.Context, namespace string) error {
	providers := o.entries.providers(namespace)
	ns := store.Known(o.cfg.Namespaces.Lister().Get(namespace))
	marked := ns != nil && hasMark(ns)
	if len(providers) == 0 && !marked {
		return nil
	}
	offloadings := o.cfg.Liqo.OffloadingV1beta1().NamespaceOffloadings(namespace)
	if err := store.ConfirmGone(ctx, "NamespaceOffloading", offloadings, offloadingv1beta1.NamespaceOffloadingName); err != nil {
		return err
	}
	if err := o.unmark(ctx, namespace); err != nil {
		return err
	}
	return o.unset(ctx, namespace, map[string]bool{})
}

// unset removes the entries of a namespace from the maps of the given providers, and from
// all cached maps that have one.
func (o *Offloading) unset(ctx context.Context, namespace string, ids map[string]bool) error {
	providers := o.entries.providers(namespace)
	for _, id := range providers {
		ids[id] = true
	}
	var errs []error
	for _, id := range slices.Sorted(maps.Keys(ids)) {
		errs = append(errs, o.entries.unset(ctx, id, namespace))
	}
	return errors.Join(errs...)
}

func hasMark(ns *corev1.Namespace) bool {
	_, ok := ns.Annotations[markAnnotation]
	return ok
}

// mark sets the scheduling label of the namespace, which makes the webhook handle its pods.
func (o *Offloading) mark(ctx context.Context, ns *corev1.Namespace) error {
	have := ns.Labels[offloadingv1beta1.SchedulingEnabledLabel]
	if have == "true" {
		return nil
	}
	set := map[string]any{"labels": map[string]any{offloadingv1beta1.SchedulingEnabledLabel: "true"}}
	if !hasMark(ns) {
		set["annotations"] = map[string]any{markAnnotation: have}
	}
	return store.IgnoreNotFound(patchNamespace(ctx, o.cfg.Kube, ns, set))
}

// unmark reverts mark, and restores the value that the label had before.
func (o *Offloading) unmark(ctx context.Context, namespace string) error {
	ns, err := store.Live(ctx, "namespace", o.cfg.Kube.CoreV1().Namespaces(), namespace)
	if err != nil || ns == nil {
		return err
	}
	before, ok := ns.Annotations[markAnnotation]
	if !ok {
		return nil
	}
	var label any
	if before != "" {
		label = before
	}
	return store.IgnoreNotFound(patchNamespace(ctx, o.cfg.Kube, ns, map[string]any{
		"labels":      map[string]any{offloadingv1beta1.SchedulingEnabledLabel: label},
		"annotations": map[string]any{markAnnotation: nil},
	}))
}

// patchNamespace changes the metadata of a namespace. It fails with a conflict if the namespace has changed since
// it was read.
func patchNamespace(ctx context.Context, kube kubernetes.Interface, ns *corev1.Namespace, metadata store.Patch) error {
	metadata["resourceVersion"] = ns.ResourceVersion
	_, err := store.Merge(ctx, "namespace", kube.CoreV1().Namespaces(), "", ns, store.Patch{"metadata": metadata})
	return err
}
