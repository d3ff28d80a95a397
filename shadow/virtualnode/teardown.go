package virtualnode

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	sharingv1alpha1 "github.com/liqod/liqod/api/sharing/v1alpha1"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/reasons"
)

// remove deletes what belongs to a VirtualNode, in this order: pods, vkubelet, Node,
// rights, finalizer. Each step starts when the previous one is complete. Each step reads
// live state, so another instance can continue the work. Of a VirtualNode that is lost, the
// Node and its pods stay.
func (l *Lifecycle) remove(ctx context.Context, vn *offloadingv1beta1.VirtualNode) error {
	if !slices.Contains(vn.Finalizers, offloadingv1beta1.VirtualNodeFinalizer) {
		return nil
	}
	node, err := l.liveNode(ctx, vn.Name)
	if err != nil {
		return err
	}
	lost, err := l.lost(ctx, vn)
	if err != nil {
		return err
	}
	// A foreign Node of that name keeps its pods.
	stays := lost || node != nil && !Ours(node, vn)
	if !stays {
		if done, err := l.drainNode(ctx, vn, node); !done {
			return err
		}
	}
	gone, err := l.removeDeployment(ctx, vn)
	if err != nil {
		return err
	}
	if !gone {
		return l.going(ctx, vn, reasons.Deleting, "the vkubelet is being removed")
	}
	if node != nil && !stays {
		if err := l.kube.CoreV1().Nodes().Delete(ctx, node.Name, byUID(node)); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("deleting Node %s: %w", node.Name, err)
		}
	}
	if err := l.removeRights(ctx, vn); err != nil {
		return err
	}
	if lost {
		return l.release(ctx, vn)
	}
	again, err := l.leftovers(ctx, vn)
	if err != nil {
		return err
	}
	if again {
		return l.going(ctx, vn, reasons.Deleting, "the Node is being removed")
	}
	return l.release(ctx, vn)
}

// lost reports whether vn goes only because somebody has deleted its tenant namespace, while
// its provider is still wanted. The vkubelet goes with the namespace, so nobody could end pods
// in order. The namespace and a VirtualNode of this name are made again, for the same Node.
func (l *Lifecycle) lost(ctx context.Context, vn *offloadingv1beta1.VirtualNode) (bool, error) {
	if vn.Labels[offloadingv1beta1.ManagedByLabel] != sharingv1alpha1.ManagedByOffer || l.wanted == nil {
		return false, nil
	}
	ns, err := store.Live(ctx, "Namespace", l.kube.CoreV1().Namespaces(), vn.Namespace)
	if err != nil || ns != nil && ns.DeletionTimestamp == nil {
		return false, err
	}
	return l.wanted(ctx, vn.Spec.ClusterID)
}

func (l *Lifecycle) liveNode(ctx context.Context, name string) (*corev1.Node, error) {
	return store.Live(ctx, "Node", l.kube.CoreV1().Nodes(), name)
}

// going shows the progress in the status, and requeues.
func (l *Lifecycle) going(ctx context.Context, vn *offloadingv1beta1.VirtualNode, reason, message string) error {
	if err := l.writeStatus(ctx, vn, goingConditions(reason, message)); err != nil {
		return err
	}
	return loop.After(l.drain.Poll)
}

// drainNode reports whether all pods that count are gone. node may be nil, as pods may
// outlive their Node.
func (l *Lifecycle) drainNode(ctx context.Context, vn *offloadingv1beta1.VirtualNode, node *corev1.Node) (bool, error) {
	if node != nil && (!node.Spec.Unschedulable || !offloadingv1beta1.IsVirtual(node)) {
		if err := l.cordon(ctx, node); err != nil {
			return false, err
		}
	}
	pods, err := l.podsOn(ctx, vn.Name)
	if err != nil {
		return false, err
	}
	// The deadlines count from vn's deletion, so a restart of this process does not extend them.
	p := planDrain(pods, vn.DeletionTimestamp.Time, l.clock.Now(), l.drain)
	if told, err := l.tellForced(ctx, vn, p); told || err != nil {
		return false, cmp.Or(err, loop.After(l.drain.Poll))
	}
	if node != nil && p.deletes() {
		if err := l.taint(ctx, node); err != nil {
			return false, err
		}
	}
	blocked, drainErr := l.pressAll(ctx, p)
	if p.left == 0 {
		return drainErr == nil, drainErr
	}
	err = l.going(ctx, vn, reasons.Draining, l.progress(vn, p, blocked))
	if drainErr != nil {
		return false, drainErr // requeues sooner, and is logged
	}
	return false, err
}

// progress returns a message about the remaining pods and the end of the wait. blocked are
// the refusals of evictions by disruption budgets.
func (l *Lifecycle) progress(vn *offloadingv1beta1.VirtualNode, p plan, blocked []string) string {
	deadline := vn.DeletionTimestamp.Add(l.drain.Timeout)
	left, they := "1 pod is left; it is", "it is"
	if p.left != 1 {
		left, they = fmt.Sprintf("%d pods are left; they are", p.left), "they are"
	}
	switch p.step {
	case stepEvict:
		return fmt.Sprintf("%s evicted until %s and deleted then%s", left, clockTime(deadline), refusedBy(blocked))
	case stepDelete:
		return fmt.Sprintf("%s being deleted, and %s removed without waiting for cluster %s at %s",
			left, they, vn.Spec.ClusterID, clockTime(deadline.Add(l.drain.ForceAfter)))
	default:
		return fmt.Sprintf("%s removed without waiting for cluster %s", left, vn.Spec.ClusterID)
	}
}

// mostBudgets limits the disruption budgets that a message names.
const mostBudgets = 3

// refusedBy returns the end of a message about refused evictions, or "".
func refusedBy(blocked []string) string {
	if len(blocked) == 0 {
		return ""
	}
	shown := blocked[:min(len(blocked), mostBudgets)]
	text := "; evictions are refused: " + strings.Join(shown, "; ")
	if more := len(blocked) - len(shown); more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	return text
}

func clockTime(t time.Time) string { return t.UTC().Format("15:04:05 MST") }

// cordon makes the Node unschedulable. It also restores the type label, because an
// admission policy lets the controller delete only Nodes with that label.
func (l *Lifecycle) cordon(ctx context.Context, node *corev1.Node) error {
	return l.patchNode(ctx, node.Name, "cordoning", map[string]any{
		"metadata": map[string]any{
			"uid":    node.UID,
			"labels": map[string]string{offloadingv1beta1.TypeLabel: offloadingv1beta1.TypeVirtualNode},
		},
		"spec": map[string]any{"unschedulable": true},
	})
}

// taint gives a Node the taint of virtual nodes, if it has been without (nodeTaint). Liqod may
// delete only pods that tolerate the taint; Kubernetes then deletes the others.
func (l *Lifecycle) taint(ctx context.Context, node *corev1.Node) error {
	own := offloadingv1beta1.VirtualNodeTaint()
	if slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.MatchTaint(&own) }) {
		return nil
	}
	return l.patchNode(ctx, node.Name, "tainting", map[string]any{
		"metadata": map[string]any{"uid": node.UID, "resourceVersion": node.ResourceVersion}, // the patch replaces the whole list
		"spec":     map[string]any{"taints": append(slices.Clone(node.Spec.Taints), own)},
	})
}

// patchNode merges changes into a Node, unless it is gone. doing is the word for errors.
func (l *Lifecycle) patchNode(ctx context.Context, name, doing string, changes map[string]any) error {
	patch, err := json.Marshal(changes)
	if err != nil {
		return fmt.Errorf("%s Node %s: encoding: %w", doing, name, err)
	}
	_, err = l.kube.CoreV1().Nodes().Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: fieldManager})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return wrap(err, "%s Node %s", doing, name)
}

// removeDeployment reports whether the vkubelet and its pods are gone. A running vkubelet
// would create the Node again. If its pods cannot terminate (their own node is lost), the
// wait ends after ForceAfter; their rights are removed next.
func (l *Lifecycle) removeDeployment(ctx context.Context, vn *offloadingv1beta1.VirtualNode) (bool, error) {
	deployments := l.kube.AppsV1().Deployments(vn.Namespace)
	d, err := deployments.Get(ctx, VirtualKubeletName(vn.Name), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return l.kubeletPodsGone(ctx, vn)
	case err != nil:
		return false, fmt.Errorf("reading Deployment: %w", err)
	case !owned(vn, d):
		return true, nil
	case d.DeletionTimestamp.IsZero():
		opts := byUID(d)
		foreground := metav1.DeletePropagationForeground
		opts.PropagationPolicy = &foreground
		err := deployments.Delete(ctx, d.Name, opts)
		return false, l.excuse(ctx, vn, absent(err, "Deployment", d))
	}
	return l.clock.Since(d.DeletionTimestamp.Time) > l.drain.ForceAfter, nil
}

func (l *Lifecycle) kubeletPodsGone(ctx context.Context, vn *offloadingv1beta1.VirtualNode) (bool, error) {
	list, err := l.kube.CoreV1().Pods(vn.Namespace).List(ctx, metav1.ListOptions{
		LabelSelector: labels.SelectorFromSet(ownLabels(vn)).String(),
	})
	if err != nil {
		return false, fmt.Errorf("listing the vkubelet's pods: %w", err)
	}
	for i := range list.Items {
		deleted := list.Items[i].DeletionTimestamp
		if deleted.IsZero() || l.clock.Since(deleted.Time) <= l.drain.ForceAfter {
			return false, nil
		}
	}
	return true, nil
}

// removeRights deletes the bindings, the PodDisruptionBudget, the ServiceAccount and the Leases. It lists live,
// because nothing would delete a binding that the cache lacks.
func (l *Lifecycle) removeRights(ctx context.Context, vn *offloadingv1beta1.VirtualNode) error {
	selector := metav1.ListOptions{LabelSelector: labels.SelectorFromSet(ownLabels(vn)).String()}
	bindings, err := l.kube.RbacV1().RoleBindings(metav1.NamespaceAll).List(ctx, selector)
	if err != nil {
		return fmt.Errorf("listing RoleBindings: %w", err)
	}
	var errs []error
	for i := range bindings.Items {
		b := &bindings.Items[i]
		errs = append(errs, absent(l.kube.RbacV1().RoleBindings(b.Namespace).Delete(ctx, b.Name, byUID(b)), "RoleBinding", b))
	}
	clusterBindings, err := l.kube.RbacV1().ClusterRoleBindings().List(ctx, selector)
	if err != nil {
		return fmt.Errorf("listing ClusterRoleBindings: %w", err)
	}
	for i := range clusterBindings.Items {
		b := &clusterBindings.Items[i]
		errs = append(errs, absent(l.kube.RbacV1().ClusterRoleBindings().Delete(ctx, b.Name, byUID(b)), "ClusterRoleBinding", b))
	}
	errs = append(errs, l.excuse(ctx, vn, l.removeBudgets(ctx, vn, selector)))
	accounts, err := l.kube.CoreV1().ServiceAccounts(vn.Namespace).List(ctx, selector)
	if err != nil {
		return fmt.Errorf("listing ServiceAccounts: %w", err)
	}
	for i := range accounts.Items {
		a := &accounts.Items[i]
		err := l.kube.CoreV1().ServiceAccounts(a.Namespace).Delete(ctx, a.Name, byUID(a))
		errs = append(errs, l.excuse(ctx, vn, absent(err, "ServiceAccount", a)))
	}
	for _, name := range l.leases(vn) {
		errs = append(errs, l.excuse(ctx, vn, l.removeLease(ctx, vn.Namespace, name)))
	}
	return errors.Join(errs...)
}

func (l *Lifecycle) removeBudgets(ctx context.Context, vn *offloadingv1beta1.VirtualNode, selector metav1.ListOptions) error {
	budgets, err := l.kube.PolicyV1().PodDisruptionBudgets(vn.Namespace).List(ctx, selector)
	if err != nil {
		return fmt.Errorf("listing PodDisruptionBudgets: %w", err)
	}
	var errs []error
	for i := range budgets.Items {
		b := &budgets.Items[i]
		errs = append(errs, absent(l.kube.PolicyV1().PodDisruptionBudgets(b.Namespace).Delete(ctx, b.Name, byUID(b)), "PodDisruptionBudget", b))
	}
	return errors.Join(errs...)
}

// leases returns the names of the vkubelet's Leases: the one of its replicas and, if vn is
// the last VirtualNode of its provider, the one by which the provider's vkubelets elect the
// one that reflects.
func (l *Lifecycle) leases(vn *offloadingv1beta1.VirtualNode) []string {
	names := []string{VirtualKubeletName(vn.Name)}
	all, err := l.virtualNodes.VirtualNodes(vn.Namespace).List(labels.Everything())
	if err == nil && !slices.ContainsFunc(all, func(o *offloadingv1beta1.VirtualNode) bool { return o.Name != vn.Name }) {
		names = append(names, offloadingv1beta1.ReflectionLease)
	}
	return names
}

func (l *Lifecycle) removeLease(ctx context.Context, namespace, name string) error {
	leases := l.kube.CoordinationV1().Leases(namespace)
	lease, err := leases.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading the Lease of the vkubelet: %w", err)
	}
	return absent(leases.Delete(ctx, lease.Name, byUID(lease)), "Lease", lease)
}

// excuse drops a Forbidden error in a tenant namespace that is being deleted. The
// controller's rights there may be gone already, and the namespace deletion removes the
// objects anyway. A VirtualNode that waited for them would block the namespace for ever.
func (l *Lifecycle) excuse(ctx context.Context, vn *offloadingv1beta1.VirtualNode, err error) error {
	if !apierrors.IsForbidden(err) {
		return err
	}
	namespace, getErr := l.kube.CoreV1().Namespaces().Get(ctx, vn.Namespace, metav1.GetOptions{})
	if apierrors.IsNotFound(getErr) || getErr == nil && !namespace.DeletionTimestamp.IsZero() {
		return nil
	}
	return err
}

func absent(err error, kind string, obj metav1.Object) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return wrap(err, "deleting %s %s", kind, qualified(obj))
}

// leftovers reports whether vn's Node exists (again). If not, it force-deletes pods that
// were bound to the Node after the drain; otherwise only the pod garbage collector would
// delete them, later.
func (l *Lifecycle) leftovers(ctx context.Context, vn *offloadingv1beta1.VirtualNode) (bool, error) {
	node, err := l.liveNode(ctx, vn.Name)
	if err != nil {
		return false, err
	}
	if node != nil {
		return Ours(node, vn), nil
	}
	pods, err := l.podsOn(ctx, vn.Name)
	if err != nil {
		return false, err
	}
	var errs []error
	for _, pod := range pods {
		_, err := l.press(ctx, pod, stepForce)
		errs = append(errs, err)
	}
	return false, errors.Join(errs...)
}

// release removes the finalizer.
func (l *Lifecycle) release(ctx context.Context, vn *offloadingv1beta1.VirtualNode) error {
	free := vn.DeepCopy()
	free.Finalizers = slices.DeleteFunc(free.Finalizers, func(f string) bool { return f == offloadingv1beta1.VirtualNodeFinalizer })
	_, err := l.liqo.OffloadingV1beta1().VirtualNodes(vn.Namespace).Update(ctx, free, metav1.UpdateOptions{FieldManager: fieldManager})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return wrap(err, "removing the finalizer")
}
