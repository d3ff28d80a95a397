package virtualnode

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/utils/ptr"
)

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
	list, err := l.kube.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("spec.nodeName", name).String(),
	})
	if err != nil {
		return nil, fmt.Errorf("listing the pods of Node %s: %w", name, err)
	}
	pods := make([]*corev1.Pod, 0, len(list.Items))
	for i := range list.Items {
		pods = append(pods, &list.Items[i])
	}
	return pods, nil
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
	opts := byUID(pod)
	var err error
	switch {
	case s == stepForce:
		opts.GracePeriodSeconds = ptr.To[int64](0)
		err = l.kube.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, opts)
	case s == stepDelete || stays(pod):
		opts.GracePeriodSeconds = l.boundedGrace(pod)
		err = l.kube.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, opts)
	default:
		err = l.kube.PolicyV1().Evictions(pod.Namespace).Evict(ctx, &policyv1.Eviction{
			ObjectMeta:    metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
			DeleteOptions: &opts,
		})
	}
	switch {
	case apierrors.IsNotFound(err) || apierrors.IsConflict(err):
		return "", nil // gone, or replaced by a pod of the same name
	case apierrors.IsTooManyRequests(err):
		return budgetOf(pod, err), nil // the next poll retries
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return "", nil // the deletion of its namespace removes it
	}
	return "", wrap(err, "removing pod %s/%s", pod.Namespace, pod.Name)
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
	limit := int64(l.drain.ForceAfter / time.Second)
	if own := pod.Spec.TerminationGracePeriodSeconds; own == nil || *own <= limit {
		return nil
	}
	return &limit
}
