package pod

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/reasons"
)

// errNoSubresource: the API server lacks the subresource of a change.
var errNoSubresource = errors.New("this cluster's API server does not make this change to a running pod")

// errPodResourcesKept: the API server accepted a resize and did not apply it.
var errPodResourcesKept = errors.New("spec.resources: this cluster's API server does not change the resources of a running pod as a whole")

// errNoRoom: the consumer's Quotas do not allow the resize.
var errNoRoom = errors.New("spec.resources")

// errLater: it is not decided yet whether they do. The key is woken then.
var errLater = errors.New("not decided yet")

// update sends the resize, then the new ephemeral containers, then all other changes. A
// refused part does not keep the others back.
func (e *Enforcer) update(ctx context.Context, f facts) error {
	resources := readApplied(f.want).Resources
	refused := e.resize(ctx, f)
	if errors.Is(refused, errLater) {
		return nil
	}
	full := errors.Is(refused, errNoRoom)
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
		e.memory.refusals.Forget(f.written())
		return nil
	}
	a := deny(f, reasons.UpdateRefused, refused.Error())
	a.retry = !full // quota wakes a pod that waits only for room
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
	switch room := e.quota.Grow(f.shadow, f.pod, f.want); {
	case room.Later:
		return errLater
	case !room.OK():
		return fmt.Errorf("%w: %s", errNoRoom, room.Message)
	}
	pod, err := e.patch(ctx, f.pod, patch, "resize")
	if err != nil {
		if final(err) && !apierrors.IsInternalError(err) {
			e.quota.Resized(f.pod, nil)
		}
		return err
	}
	e.quota.Resized(f.pod, pod)
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
func (e *Enforcer) patch(ctx context.Context, pod *corev1.Pod, patch store.Patch, subresource ...string) (*corev1.Pod, error) {
	if len(patch) == 0 {
		return pod, nil
	}
	data, err := store.EncodePatch(patch, pod)
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
	live, err := e.pods.Live(ctx, cache.MetaObjectToName(pod))
	return err == nil && live != nil && live.UID == pod.UID
}
