package workload

import (
	"context"
	"errors"
	"fmt"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/apply"
	"github.com/liqod/liqod/kube/loop"
)

// errNoSubresource: the API server lacks the subresource of a change.
var errNoSubresource = errors.New("this cluster's API server does not make this change to a running pod")

// errPodResourcesKept: the API server accepted a resize and did not apply it.
var errPodResourcesKept = errors.New("spec.resources: this cluster's API server does not change the resources of a running pod as a whole")

// do carries out an action. It decides nothing itself, except how to react to the API
// server's answers.
func (e *Enforcer) do(ctx context.Context, key loop.Key, f facts, a action) error {
	if f.pod != nil && f.shadow != nil && owns(f.shadow, f.pod) {
		e.settle(key, f)
	}
	switch a.verb {
	case wait:
		return loop.After(a.after)
	case startLeaving:
		e.memory.leave(f.pod.UID, f.now)
		return loop.After(a.after)
	case createPod:
		return e.create(ctx, key, f)
	case updatePod:
		return e.update(ctx, key, f)
	case deletePod:
		return e.deletePod(ctx, f.pod)
	case releasePod:
		return e.release(ctx, f.pod)
	case recordEnd:
		return e.recordEnd(ctx, f, a)
	case recordLoss:
		return e.recordLoss(ctx, f.shadow, a.lost)
	case setCondition:
		return e.deny(ctx, f, a)
	case removeCondition:
		return e.removeCondition(ctx, f.shadow)
	default:
		return nil
	}
}

// settle drops what memory holds for a pod that exists and is wanted.
func (e *Enforcer) settle(key loop.Key, f facts) {
	e.memory.arrived(f.pod.UID)
	if f.lost != nil && f.lost.UID != f.pod.UID && !uncounted(f) {
		e.memory.forget(key, f.lost)
	}
}

func (e *Enforcer) create(ctx context.Context, key loop.Key, f facts) error {
	consumer := f.want.Labels[offloadingv1beta1.OriginLabel]
	e.memory.asking(key, f.shadow.UID)
	foreseen := e.ledger.send(consumer, key)
	pod, err := e.cfg.Kube.CoreV1().Pods(key.Namespace).Create(ctx, f.want, metav1.CreateOptions{FieldManager: FieldManager})
	switch {
	case err == nil:
		e.memory.forget(key, f.lost)
		e.memory.refusals.Forget(f.shadow.UID)
		e.cfg.Log.Debug("remote pod created", zap.Stringer("key", key))
		return e.created(ctx, key, pod, foreseen)
	case apierrors.IsAlreadyExists(err):
		return e.afterCollision(ctx, key)
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		e.wake(e.ledger.refused(consumer, key))
		a := deny(f, ReasonNamespaceTerminating, fmt.Sprintf("namespace %s is being deleted: no pod can be created there", key.Namespace))
		a.retry = true
		return e.deny(ctx, f, a)
	case loop.IsRefusal(err):
		if !apierrors.IsInternalError(err) { // an internal error may follow the creation
			e.wake(e.ledger.refused(consumer, key))
		}
		a := deny(f, offloadingv1beta1.ReasonPodRefused, offloadingv1beta1.ExplainBound(err.Error()))
		a.retry = true
		return e.deny(ctx, f, a)
	default:
		return fmt.Errorf("creating the pod of ShadowPod %s: %w", key, err)
	}
}

// created counts the new pod in the ledger.
func (e *Enforcer) created(ctx context.Context, key loop.Key, pod *corev1.Pod, foreseen corev1.ResourceList) error {
	larger, beyond, woken := e.ledger.created(pod, foreseen)
	e.wake(woken)
	if foreseen != nil {
		e.trials.learn(key.Namespace, larger)
	}
	if !beyond {
		return nil
	}
	return e.surprise(ctx, key, pod)
}

// afterCollision handles a creation that failed because the name is taken. The pod may
// belong to this ShadowPod (its answer or its event was lost), to an earlier ShadowPod, or
// to another author.
func (e *Enforcer) afterCollision(ctx context.Context, key loop.Key) error {
	f, err := e.live(ctx, key)
	if err != nil {
		return err
	}
	switch {
	case f.pod == nil:
	case f.shadow != nil && owns(f.shadow, f.pod):
		e.wake(e.ledger.seen(f.pod))
	default:
		e.wake(e.ledger.absent(key))
	}
	a := decide(f)
	if a.verb == createPod {
		return loop.After(takenRetry) // the other pod was deleted in between
	}
	return e.do(ctx, key, f, a)
}

// update sends the resize, then the new ephemeral containers, then all other changes. A
// refused part does not keep the others back.
func (e *Enforcer) update(ctx context.Context, key loop.Key, f facts) error {
	resources := readApplied(f.want).Resources
	parked, refused := e.outgrown(key, f)
	if parked {
		return nil
	}
	full := errors.Is(refused, errNoRoom)
	if refused == nil {
		refused = e.resize(ctx, f)
	}
	if refused != nil && !final(refused) {
		return fmt.Errorf("resizing pod %s/%s: %w", f.pod.Namespace, f.pod.Name, refused)
	}
	if refused != nil {
		resources = readApplied(f.pod).Resources
	}
	if _, err := e.patch(ctx, f.pod, ephemeralChanges(f.shadow, f.pod, e.cfg.AlwaysPull), "ephemeralcontainers"); err != nil {
		if !final(err) {
			return fmt.Errorf("adding ephemeral containers to pod %s/%s: %w", f.pod.Namespace, f.pod.Name, err)
		}
		refused, full = errors.Join(refused, fmt.Errorf("spec.ephemeralContainers: %w", err)), false
	}
	if _, err := e.patch(ctx, f.pod, changes(f.want, f.pod, resources)); err != nil {
		if !loop.IsRefusal(err) {
			return fmt.Errorf("updating pod %s/%s: %w", f.pod.Namespace, f.pod.Name, err)
		}
		refused, full = errors.Join(refused, err), false
	}
	if refused == nil {
		e.memory.refusals.Forget(f.shadow.UID)
		return nil
	}
	a := deny(f, ReasonUpdateRefused, refused.Error())
	a.retry = !full // the ledger wakes a pod that waits only for room
	return e.deny(ctx, f, a)
}

// final reports whether an immediate retry would fail in the same way.
func final(err error) bool {
	return loop.IsRefusal(err) || errors.Is(err, errPodResourcesKept) || errors.Is(err, errNoSubresource) || errors.Is(err, errNoRoom)
}

func (e *Enforcer) resize(ctx context.Context, f facts) error {
	patch := resourceChanges(f.want, f.pod)
	if len(patch) == 0 {
		return nil
	}
	pod, err := e.patch(ctx, f.pod, patch, "resize")
	if err != nil {
		if final(err) && !apierrors.IsInternalError(err) {
			e.wake(e.ledger.resized(f.pod.UID, nil))
		}
		return err
	}
	e.wake(e.ledger.resized(f.pod.UID, pod))
	if pod == nil || readApplied(f.pod).Resources >= readApplied(f.want).Resources {
		return nil
	}
	// An API server without support for pod-level resize may accept the patch and ignore
	// it.
	if len(podQuantityChanges(&f.want.Spec, &pod.Spec)) > 0 {
		return errPodResourcesKept
	}
	return nil
}

// patch returns the patched pod, or nil if the pod is gone. The deletion of a pod has its
// own event, so it is no error here.
func (e *Enforcer) patch(ctx context.Context, pod *corev1.Pod, patch apply.Patch, subresource ...string) (*corev1.Pod, error) {
	if len(patch) == 0 {
		return pod, nil
	}
	data, err := apply.EncodePatch(patch, pod)
	if err != nil {
		return nil, err
	}
	next, err := e.cfg.Kube.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, data,
		metav1.PatchOptions{FieldManager: FieldManager}, subresource...)
	switch {
	case apierrors.IsNotFound(err) && len(subresource) > 0 && e.has(ctx, pod):
		return nil, fmt.Errorf("%w: it has no pods/%s", errNoSubresource, subresource[0])
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return next, nil
}

// has reports whether the pod still exists. If so, a "not found" concerned its subresource.
func (e *Enforcer) has(ctx context.Context, pod *corev1.Pod) bool {
	live, err := e.cfg.Kube.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
	return err == nil && live.UID == pod.UID
}

func (e *Enforcer) deletePod(ctx context.Context, pod *corev1.Pod) error {
	err := e.cfg.Kube.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, *metav1.NewPreconditionDeleteOptions(string(pod.UID)))
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting pod %s/%s, which no ShadowPod asks for: %w", pod.Namespace, pod.Name, err)
	}
	e.cfg.Log.Info("remote pod without ShadowPod deleted", zap.String("key", pod.Namespace+"/"+pod.Name))
	return nil
}

// release removes liqod's finalizer. The patch fails with a conflict if the pod has changed
// since it was read.
func (e *Enforcer) release(ctx context.Context, pod *corev1.Pod) error {
	data, kind, err := apply.FinalizerPatch(pod, offloadingv1beta1.RemotePodFinalizer, false)
	if err != nil || data == nil {
		return err
	}
	_, err = e.cfg.Kube.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, kind, data, metav1.PatchOptions{FieldManager: FieldManager})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("releasing pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}
