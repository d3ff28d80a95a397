package kinds

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/reasons"
	"github.com/liqod/liqod/reflect/engine"
	"github.com/liqod/liqod/reflect/forge"
)

// started reports whether any container of the pod has run according to its status.
func started(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodRunning || slices.ContainsFunc(slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses), func(s corev1.ContainerStatus) bool {
		return s.State.Running != nil || s.State.Terminated != nil || s.LastTerminationState.Terminated != nil
	})
}

// lost returns the status of a pod that was lost and may not run again. Its controller
// decides about a replacement.
func lost(in forge.StatusInput, destination string) corev1.PodStatus {
	s := failed(in, offloadingv1beta1.ReasonRemotePodLost,
		fmt.Sprintf("the pod was lost in cluster %s and may not run again under its restart policy", destination))
	store.SetPodCondition(&s, corev1.PodCondition{
		Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: offloadingv1beta1.ReasonRemotePodLost, Message: s.Message,
		ObservedGeneration: in.Local.Generation, LastTransitionTime: in.Now,
	})
	return s
}

// failed returns a final status with phase Failed and the given reason.
func failed(in forge.StatusInput, reason, message string) corev1.PodStatus {
	s := forge.FinalStatus(in)
	s.Phase, s.Reason, s.Message = corev1.PodFailed, reason, message
	for _, c := range slices.Concat(s.InitContainerStatuses, s.ContainerStatuses) {
		if t := c.State.Terminated; t != nil && t.Reason == reasons.ContainerStatusUnknown {
			t.Reason = reason // kubectl shows it as the state of the pod
		}
	}
	return s
}

// symptom returns the reason why a pod does not run, if an event should report it, or "".
func symptom(s corev1.PodStatus) (reason, message string) {
	if s.Phase == corev1.PodPending && s.Reason != "" {
		return s.Reason, s.Message
	}
	if c := store.PodCondition(&s, corev1.PodReady); c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable {
		return c.Reason, c.Message
	}
	waits := []string{reasons.ErrImagePull, reasons.ImagePullBackOff, reasons.InvalidImageName, reasons.ErrImageNeverPull, reasons.CreateContainerConfigError}
	for _, c := range slices.Concat(s.InitContainerStatuses, s.ContainerStatuses) {
		if w := c.State.Waiting; w != nil && slices.Contains(waits, w.Reason) {
			return reasons.RemoteContainerWaiting, fmt.Sprintf("container %s: %s: %s", c.Name, w.Reason, w.Message)
		}
	}
	return "", ""
}

func ended(pod *corev1.Pod) bool { return offloadingv1beta1.Ended(pod.Status.Phase) }

// refusalReason returns the reason of a pod whose ShadowPod the provider refuses. The webhook of the provider may
// give the cause: only those of Quotas are accepted.
func refusalReason(err error) string {
	for _, reason := range []string{offloadingv1beta1.ReasonQuotaTooSmall, offloadingv1beta1.ReasonQuotaUndeclared, offloadingv1beta1.ReasonQuotaNodeSelector} {
		if apierrors.HasStatusCause(err, metav1.CauseType(reason)) {
			return reason
		}
	}
	return offloadingv1beta1.ReasonPodRefused
}

// creation is the create of an object, and what follows if another object has the name, or the API server
// refuses it.
type creation[T store.Object] struct {
	all    *store.Store[T]
	client interface {
		Create(ctx context.Context, obj T, opts metav1.CreateOptions) (T, error)
	}
	// mine reports whether an object belongs to the one that is created for. stranger says that one that does not
	// has the name.
	mine     func(have T) bool
	stranger func(have T) error
	// ending, unless it is nil, says that the namespace is being deleted. failed returns the error of the sync
	// for any other error of the create.
	ending func() error
	failed func(err error) error
}

func (c creation[T]) create(ctx context.Context, want T) (T, error) {
	written, err := c.all.Note(c.client.Create(ctx, want, metav1.CreateOptions{FieldManager: engine.FieldManager}))
	switch {
	case err == nil:
		return written, nil
	case apierrors.IsAlreadyExists(err):
		return written, taken(ctx, c.all, cache.MetaObjectToName(want), c.mine, c.stranger)
	case !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return written, c.failed(err)
	case c.ending != nil:
		return written, errors.Join(c.ending(), loop.After(engine.NamespaceRetry))
	}
	return written, loop.After(engine.NamespaceRetry)
}

// taken reads the object that occupies a name, and returns the error by which the key is tried again. If the object is
// ours, or gone, the watch will report it. Otherwise tell says that it has the name.
func taken[T store.Object](ctx context.Context, all *store.Store[T], name loop.Key, mine func(T) bool, tell func(have T) error) error {
	var none T
	have, err := all.Live(ctx, name)
	switch {
	case err != nil:
		return err
	case have == none || mine(have):
		return loop.After(store.CatchUp) // the cache is behind
	}
	return errors.Join(tell(have), loop.After(engine.TakenRetry))
}

func localUID(obj metav1.Object) types.UID {
	return types.UID(obj.GetLabels()[offloadingv1beta1.LocalPodUIDLabel])
}
