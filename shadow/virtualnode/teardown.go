package virtualnode

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

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
		if err := store.Delete(ctx, "Node", l.cfg.Kube.CoreV1().Nodes(), node); err != nil {
			return err
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
	if vn.Labels[offloadingv1beta1.ManagedByLabel] != sharingv1alpha1.ManagedByOffer || l.cfg.Wanted == nil {
		return false, nil
	}
	ns, err := store.Live(ctx, "Namespace", l.cfg.Kube.CoreV1().Namespaces(), vn.Namespace)
	if err != nil || ns != nil && ns.DeletionTimestamp == nil {
		return false, err
	}
	return l.cfg.Wanted(ctx, vn.Spec.ClusterID)
}

func (l *Lifecycle) liveNode(ctx context.Context, name string) (*corev1.Node, error) {
	return store.Live(ctx, "Node", l.cfg.Kube.CoreV1().Nodes(), name)
}

// going shows the progress in the status, and requeues.
func (l *Lifecycle) going(ctx context.Context, vn *offloadingv1beta1.VirtualNode, reason, message string) error {
	if err := l.writeStatus(ctx, vn, notReady(reason, message)); err != nil {
		return err
	}
	return loop.After(drainPoll)
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
	p := planDrain(pods, vn.DeletionTimestamp.Time, l.cfg.Clock.Now(), l.cfg.Drain)
	if told, err := l.tellForced(ctx, vn, p); told || err != nil {
		return false, cmp.Or(err, loop.After(drainPoll))
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
	deadline := vn.DeletionTimestamp.Add(l.cfg.Drain.Timeout)
	left, they := "1 pod is left; it is", "it is"
	if p.left != 1 {
		left, they = fmt.Sprintf("%d pods are left; they are", p.left), "they are"
	}
	switch p.step {
	case stepEvict:
		return fmt.Sprintf("%s evicted until %s and deleted then%s", left, clockTime(deadline), refusedBy(blocked))
	case stepDelete:
		return fmt.Sprintf("%s being deleted, and %s removed without waiting for cluster %s at %s",
			left, they, vn.Spec.ClusterID, clockTime(deadline.Add(l.cfg.Drain.ForceAfter)))
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
	return "; evictions are refused: " + store.First(blocked, mostBudgets, "; ", "; and %d more")
}

func clockTime(t time.Time) string { return t.UTC().Format("15:04:05 MST") }

// cordon makes the Node unschedulable. It also restores the type label, because an
// admission policy lets the controller delete only Nodes with that label.
func (l *Lifecycle) cordon(ctx context.Context, node *corev1.Node) error {
	_, err := store.Merge(ctx, "Node", l.cfg.Kube.CoreV1().Nodes(), fieldManager, node, store.Patch{
		"metadata": store.Patch{"labels": map[string]string{offloadingv1beta1.TypeLabel: offloadingv1beta1.TypeVirtualNode}},
		"spec":     store.Patch{"unschedulable": true},
	})
	return store.IgnoreNotFound(err)
}

// taint gives a Node the taint of virtual nodes, if it has been without (nodeTaint). Liqod may
// delete only pods that tolerate the taint; Kubernetes then deletes the others.
func (l *Lifecycle) taint(ctx context.Context, node *corev1.Node) error {
	own := offloadingv1beta1.VirtualNodeTaint()
	if slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.MatchTaint(&own) }) {
		return nil
	}
	_, err := store.Merge(ctx, "Node", l.cfg.Kube.CoreV1().Nodes(), fieldManager, node, store.Patch{
		"metadata": store.Patch{"resourceVersion": node.ResourceVersion}, // the patch replaces the whole list
		"spec":     store.Patch{"taints": append(slices.Clone(node.Spec.Taints), own)},
	})
	return store.IgnoreNotFound(err)
}

// removeDeployment reports whether the vkubelet and its pods are gone. A running vkubelet
// would create the Node again. If its pods cannot terminate (their own node is lost), the
// wait ends after ForceAfter; their rights are removed next.
func (l *Lifecycle) removeDeployment(ctx context.Context, vn *offloadingv1beta1.VirtualNode) (bool, error) {
	deployments := l.cfg.Kube.AppsV1().Deployments(vn.Namespace)
	d, err := store.Live(ctx, "Deployment", deployments, VirtualKubeletName(vn.Name))
	switch {
	case err != nil:
		return false, err
	case d == nil:
		return l.kubeletPodsGone(ctx, vn)
	case !owned(vn, d):
		return true, nil
	case d.DeletionTimestamp.IsZero():
		foreground := metav1.DeletePropagationForeground
		return false, l.excuse(ctx, vn, store.Delete(ctx, "Deployment", deployments, d, func(o *metav1.DeleteOptions) { o.PropagationPolicy = &foreground }))
	}
	return l.cfg.Clock.Since(d.DeletionTimestamp.Time) > l.cfg.Drain.ForceAfter, nil
}

func (l *Lifecycle) kubeletPodsGone(ctx context.Context, vn *offloadingv1beta1.VirtualNode) (bool, error) {
	pods, err := kubeletPods(ctx, l.cfg.Kube, vn)
	return err == nil && !slices.ContainsFunc(pods, func(pod *corev1.Pod) bool {
		deleted := pod.DeletionTimestamp
		return deleted.IsZero() || l.cfg.Clock.Since(deleted.Time) <= l.cfg.Drain.ForceAfter
	}), err
}

// kubeletPods lists the pods of vn's vkubelet live.
func kubeletPods(ctx context.Context, kube kubernetes.Interface, vn *offloadingv1beta1.VirtualNode) ([]*corev1.Pod, error) {
	return store.Find[*corev1.Pod](ctx, "pod", kube.CoreV1().Pods(vn.Namespace), metav1.ListOptions{LabelSelector: labels.SelectorFromSet(ownLabels(vn)).String()})
}

// removeRights deletes the bindings, the PodDisruptionBudget, the ServiceAccount and the Leases. It lists live,
// because nothing would delete a binding that the cache lacks.
func (l *Lifecycle) removeRights(ctx context.Context, vn *offloadingv1beta1.VirtualNode) error {
	selector := metav1.ListOptions{LabelSelector: labels.SelectorFromSet(ownLabels(vn)).String()}
	bindings, err := store.Find[*rbacv1.RoleBinding](ctx, "RoleBinding", l.cfg.Kube.RbacV1().RoleBindings(metav1.NamespaceAll), selector)
	errs := []error{err}
	for _, b := range bindings {
		errs = append(errs, store.Delete(ctx, "RoleBinding", l.cfg.Kube.RbacV1().RoleBindings(b.Namespace), b))
	}
	_, err = store.Sweep[*rbacv1.ClusterRoleBinding](ctx, "ClusterRoleBinding", l.cfg.Kube.RbacV1().ClusterRoleBindings(), selector, nil)
	errs = append(errs, err)
	_, err = store.Sweep[*policyv1.PodDisruptionBudget](ctx, "PodDisruptionBudget", l.cfg.Kube.PolicyV1().PodDisruptionBudgets(vn.Namespace), selector, nil)
	errs = append(errs, l.excuse(ctx, vn, err))
	_, err = store.Sweep[*corev1.ServiceAccount](ctx, "ServiceAccount", l.cfg.Kube.CoreV1().ServiceAccounts(vn.Namespace), selector, nil)
	errs = append(errs, l.excuse(ctx, vn, err))
	for _, name := range l.leases(vn) {
		errs = append(errs, l.excuse(ctx, vn, l.removeLease(ctx, vn.Namespace, name)))
	}
	return errors.Join(errs...)
}

// leases returns the names of the vkubelet's Leases: the one of its replicas and, if vn is
// the last VirtualNode of its provider, the one by which the provider's vkubelets elect the
// one that reflects.
func (l *Lifecycle) leases(vn *offloadingv1beta1.VirtualNode) []string {
	names := []string{VirtualKubeletName(vn.Name)}
	all, err := l.cfg.VirtualNodes.Lister().VirtualNodes(vn.Namespace).List(labels.Everything())
	if err == nil && !slices.ContainsFunc(all, func(o *offloadingv1beta1.VirtualNode) bool { return o.Name != vn.Name }) {
		names = append(names, offloadingv1beta1.ReflectionLease)
	}
	return names
}

func (l *Lifecycle) removeLease(ctx context.Context, namespace, name string) error {
	leases := l.cfg.Kube.CoordinationV1().Leases(namespace)
	lease, err := store.Live(ctx, "Lease", leases, name)
	if err != nil || lease == nil {
		return err
	}
	return store.Delete(ctx, "Lease", leases, lease)
}

// excuse drops a Forbidden error in a tenant namespace that is being deleted. The
// controller's rights there may be gone already, and the namespace deletion removes the
// objects anyway. A VirtualNode that waited for them would block the namespace for ever.
func (l *Lifecycle) excuse(ctx context.Context, vn *offloadingv1beta1.VirtualNode, err error) error {
	if !apierrors.IsForbidden(err) {
		return err
	}
	namespace, getErr := l.cfg.Kube.CoreV1().Namespaces().Get(ctx, vn.Namespace, metav1.GetOptions{})
	if apierrors.IsNotFound(getErr) || getErr == nil && !namespace.DeletionTimestamp.IsZero() {
		return nil
	}
	return err
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
	_, err := store.Write(ctx, "VirtualNode", l.cfg.Liqo.OffloadingV1beta1().VirtualNodes(vn.Namespace), fieldManager, vn, free)
	return store.IgnoreNotFound(err)
}

// evictionsAtOnce limits the concurrent requests of one drain.
const evictionsAtOnce = 16

// step is the way in which a drain removes pods.
type step int

const (
	stepEvict  step = iota // evict, within disruption budgets
	stepDelete             // delete with grace period
	stepForce              // force-delete, without waiting for the provider
)

// plan has the pods that the next step of a drain acts on. left is the number of pods that
// must be gone before the drain ends.
type plan struct {
	step step
	pods []*corev1.Pod
	left int
}

// planDrain plans the next step for the pods of a node whose drain began at start.
// DaemonSet pods and mirror pods go last. A DaemonSet pod created after start does not
// count: as long as the Node exists, its DaemonSet replaces every deleted pod.
func planDrain(pods []*corev1.Pod, start, now time.Time, cfg DrainConfig) plan {
	p := plan{step: stepAt(start, now, cfg)}
	var ordinary, daemons []*corev1.Pod
	for _, pod := range pods {
		switch {
		case ended(pod):
		case !stays(pod):
			ordinary = append(ordinary, pod)
		case !pod.CreationTimestamp.After(start):
			daemons = append(daemons, pod)
		}
	}
	p.left = len(ordinary) + len(daemons)
	candidates := ordinary
	if len(ordinary) == 0 || p.step == stepForce {
		candidates = append(candidates, daemons...)
	}
	for _, pod := range candidates {
		if pod.DeletionTimestamp.IsZero() || p.step == stepForce {
			p.pods = append(p.pods, pod)
		}
	}
	return p
}

// deletes reports whether the plan deletes pods, and does not only evict them.
func (p plan) deletes() bool {
	return len(p.pods) > 0 && (p.step != stepEvict || slices.ContainsFunc(p.pods, stays))
}

// ended reports whether pod is terminated and only finalizers keep it, so that no request
// can speed up its removal.
func ended(pod *corev1.Pod) bool {
	return !pod.DeletionTimestamp.IsZero() && ptr.Deref(pod.DeletionGracePeriodSeconds, 1) == 0
}

func stepAt(start, now time.Time, cfg DrainConfig) step {
	switch deadline := start.Add(cfg.Timeout); {
	case now.Before(deadline):
		return stepEvict
	case now.Before(deadline.Add(cfg.ForceAfter)):
		return stepDelete
	default:
		return stepForce
	}
}

// stays reports whether an eviction of pod is pointless. A DaemonSet creates its pod again,
// and a mirror pod belongs to its kubelet.
func stays(pod *corev1.Pod) bool {
	if _, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]; mirror {
		return true
	}
	owner := metav1.GetControllerOf(pod)
	return owner != nil && owner.Kind == "DaemonSet"
}

// podsOn lists the pods bound to the node called name. It reads live.
func (l *Lifecycle) podsOn(ctx context.Context, name string) ([]*corev1.Pod, error) {
	return store.Find[*corev1.Pod](ctx, "pod", l.cfg.Kube.CoreV1().Pods(metav1.NamespaceAll), metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("spec.nodeName", name).String(),
	})
}

// pressAll applies the plan's step to each of its pods once. blocked are the sorted refusals
// of disruption budgets, each once.
func (l *Lifecycle) pressAll(ctx context.Context, p plan) (blocked []string, err error) {
	errs, refusals := make([]error, len(p.pods)), make([]string, len(p.pods))
	var group errgroup.Group
	group.SetLimit(evictionsAtOnce)
	for i, pod := range p.pods {
		group.Go(func() error {
			refusals[i], errs[i] = l.press(ctx, pod, p.step)
			return nil
		})
	}
	_ = group.Wait() // the errors are in errs: one failure does not stop the others
	slices.Sort(refusals)
	refusals = slices.DeleteFunc(slices.Compact(refusals), func(r string) bool { return r == "" })
	return refusals, errors.Join(errs...)
}

// press applies step s to one pod. A refusal that ends by itself is not an error. blocked is
// the refusal of a disruption budget.
func (l *Lifecycle) press(ctx context.Context, pod *corev1.Pod, s step) (blocked string, failed error) {
	opts := store.DeleteUID(pod)
	var err error
	switch {
	case s != stepEvict || stays(pod):
		opts.GracePeriodSeconds = l.boundedGrace(pod)
		if s == stepForce {
			opts.GracePeriodSeconds = ptr.To[int64](0)
		}
		err = l.cfg.Kube.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, opts)
	default:
		err = l.cfg.Kube.PolicyV1().Evictions(pod.Namespace).Evict(ctx, &policyv1.Eviction{
			ObjectMeta:    metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
			DeleteOptions: &opts,
		})
	}
	switch {
	case apierrors.IsNotFound(err) || apierrors.IsConflict(err):
		return "", nil // gone, or replaced by a pod of the same name
	case apierrors.IsTooManyRequests(err):
		return budgetOf(pod, err), nil // the next poll retries
	case err == nil, apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return "", nil // the deletion of its namespace removes it
	}
	return "", fmt.Errorf("removing pod %s/%s: %w", pod.Namespace, pod.Name, err)
}

// budgetOf returns what the API server says about the disruption budget that refuses the
// eviction of a pod, or "" if something else refuses it. The answer names the budget, so it
// needs no right to read budgets.
func budgetOf(pod *corev1.Pod, err error) string {
	cause, ok := apierrors.StatusCause(err, policyv1.DisruptionBudgetCause)
	if !ok || cause.Message == "" {
		return ""
	}
	return fmt.Sprintf("in namespace %s, %s", pod.Namespace, strings.TrimSuffix(cause.Message, "."))
}

// boundedGrace returns the grace period for a deletion, in seconds: nil for the pod's own,
// else ForceAfter, after which the pod is force-deleted anyway.
func (l *Lifecycle) boundedGrace(pod *corev1.Pod) *int64 {
	limit := int64(l.cfg.Drain.ForceAfter / time.Second)
	if own := pod.Spec.TerminationGracePeriodSeconds; own == nil || *own <= limit {
		return nil
	}
	return &limit
}
