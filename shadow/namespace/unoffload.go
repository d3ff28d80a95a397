package namespace

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/loop"
)

// markAnnotation on a namespace says that the scheduling label is ours, and what stood
// there before.
const markAnnotation = "offloading.liqo.io/scheduling-enabled-before"

// end takes an offloading back that is being deleted. Only this cluster is written:
// what the providers still have is removed there when they see their map again.
func (o *Offloading) end(ctx context.Context, nso *offloadingv1beta1.NamespaceOffloading) error {
	if !slices.Contains(nso.Finalizers, offloadingv1beta1.NamespaceOffloadingFinalizer) {
		return nil
	}
	if err := o.unmark(ctx, nso.Namespace); err != nil {
		return err
	}
	// A map may have been written a moment ago and not be in the cache yet: every
	// provider that could have been asked is looked at.
	ids := map[string]bool{}
	for id := range nso.Status.RemoteNamespacesConditions {
		ids[id] = true
	}
	vns, err := o.virtualNodes.List(labels.Everything())
	if err != nil {
		return fmt.Errorf("listing VirtualNodes: %w", err)
	}
	for _, vn := range vns {
		ids[vn.Spec.ClusterID] = true
	}
	if err := o.unset(ctx, nso.Namespace, ids); err != nil {
		return err
	}
	body, err := finalizersPatch(nso, without(nso.Finalizers, offloadingv1beta1.NamespaceOffloadingFinalizer))
	if err != nil {
		return err
	}
	_, err = o.cfg.Liqo.OffloadingV1beta1().NamespaceOffloadings(nso.Namespace).Patch(ctx, nso.Name, types.MergePatchType, body, metav1.PatchOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("removing the finalizer: %w", err)
	}
	return nil
}

// endWith is end for an offloading whose namespace is being deleted. Kubernetes deletes
// a namespace's pods before anything else in it, and those that run at a provider that
// is away leave only once the namespace is no longer offloaded.
func (o *Offloading) endWith(ctx context.Context, nso *offloadingv1beta1.NamespaceOffloading, ns *corev1.Namespace) error {
	live, err := o.cfg.Kube.CoreV1().Namespaces().Get(ctx, ns.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil // the NamespaceOffloading went with it
	}
	if err != nil {
		return fmt.Errorf("confirming that the namespace is being deleted: %w", err)
	}
	if live.DeletionTimestamp == nil {
		return loop.After(cacheDelay) // a successor of the same name
	}
	return o.end(ctx, nso)
}

// sweep removes what an offloading has left that went without its finalizer.
func (o *Offloading) sweep(ctx context.Context, namespace string) error {
	providers, err := o.entries.providers(namespace)
	if err != nil {
		return err
	}
	ns, err := o.namespaces.Get(namespace)
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("reading the namespace: %w", err)
	}
	marked := err == nil && hasMark(ns)
	if len(providers) == 0 && !marked {
		return nil
	}
	_, err = o.cfg.Liqo.OffloadingV1beta1().NamespaceOffloadings(namespace).Get(ctx, offloadingv1beta1.NamespaceOffloadingName, metav1.GetOptions{})
	switch {
	case err == nil:
		return loop.After(cacheDelay)
	case !apierrors.IsNotFound(err):
		return fmt.Errorf("confirming that the NamespaceOffloading is gone: %w", err)
	}
	if err := o.unmark(ctx, namespace); err != nil {
		return err
	}
	return o.unset(ctx, namespace, map[string]bool{})
}

// unset removes the entries of a namespace from the maps of the given providers and of
// those that are known to have one.
func (o *Offloading) unset(ctx context.Context, namespace string, ids map[string]bool) error {
	providers, err := o.entries.providers(namespace)
	if err != nil {
		return err
	}
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

// mark makes the webhook look at the namespace's pods.
func (o *Offloading) mark(ctx context.Context, ns *corev1.Namespace) error {
	have := ns.Labels[offloadingv1beta1.SchedulingEnabledLabel]
	if have == "true" {
		return nil
	}
	set := map[string]any{"labels": map[string]any{offloadingv1beta1.SchedulingEnabledLabel: "true"}}
	if !hasMark(ns) {
		set["annotations"] = map[string]any{markAnnotation: have}
	}
	return o.patchNamespace(ctx, ns, set)
}

// unmark takes mark back, and leaves a label that the user had set.
func (o *Offloading) unmark(ctx context.Context, namespace string) error {
	ns, err := o.cfg.Kube.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading the namespace: %w", err)
	}
	before, ok := ns.Annotations[markAnnotation]
	if !ok {
		return nil
	}
	var label any
	if before != "" {
		label = before
	}
	return o.patchNamespace(ctx, ns, map[string]any{
		"labels":      map[string]any{offloadingv1beta1.SchedulingEnabledLabel: label},
		"annotations": map[string]any{markAnnotation: nil},
	})
}

func (o *Offloading) patchNamespace(ctx context.Context, ns *corev1.Namespace, metadata map[string]any) error {
	metadata["uid"] = ns.UID
	metadata["resourceVersion"] = ns.ResourceVersion
	body, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return fmt.Errorf("encoding the label %s: %w", offloadingv1beta1.SchedulingEnabledLabel, err)
	}
	_, err = o.cfg.Kube.CoreV1().Namespaces().Patch(ctx, ns.Name, types.MergePatchType, body, metav1.PatchOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("writing the label %s: %w", offloadingv1beta1.SchedulingEnabledLabel, err)
	}
	return nil
}
