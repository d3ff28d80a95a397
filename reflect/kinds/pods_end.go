package kinds

import (
	"context"
	"fmt"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/reasons"
	"github.com/liqod/liqod/reflect/engine"
	"github.com/liqod/liqod/reflect/forge"
)

// terminate handles a pod that is being deleted. It deletes the ShadowPod and the remote
// pod, writes the final status, and then deletes the local pod.
func (p *Pods) terminate(ctx context.Context, v view) error {
	if p.locals.WasDeleted(v.local.UID) {
		return nil // released already: the watch will report it
	}
	if v.shadow != nil && offloadingv1beta1.Ended(v.shadow.Status.Phase) && !ended(v.local) {
		// The end of the pod may be recorded only in the ShadowPod, which is deleted next.
		return p.patchStatus(ctx, v.local, p.status(v.local, v.shadow, v.remote)) // the change triggers a new sync
	}
	if v.shadow != nil || v.remote != nil {
		if err := p.withdraw(ctx, v, v.local.UID, ptr.To(max(v.local.DeletionTimestamp.Unix()-p.now().Unix(), 1))); err != nil {
			return err
		}
		if v.remote != nil && !ended(v.local) {
			return p.report(ctx, v.local, v.shadow, v.remote)
		}
		return nil // the end of the deletion triggers a new sync
	}
	if !p.memo(v.local.UID).withLocal {
		if err := p.confirmNothingThere(ctx, v); err != nil {
			return err
		}
	}
	return p.release(ctx, v.local, p.memo(v.local.UID).last)
}

// confirmNothingThere confirms by live reads that the provider has neither the ShadowPod nor the
// pod.
func (p *Pods) confirmNothingThere(ctx context.Context, v view) error {
	if err := p.cfg.Verify(ctx); err != nil {
		return fmt.Errorf("verifying the provider before believing that the pod is gone: %w", err)
	}
	if err := v.twin.shadows.ConfirmGone(ctx, v.there()); err != nil {
		return err
	}
	return v.twin.pods.ConfirmNone(ctx, v.there(), func(pod *corev1.Pod) bool { return localUID(pod) == v.local.UID })
}

// within sets the grace period of a deletion, in seconds; nil: that of the pod.
func within(grace *int64) func(*metav1.DeleteOptions) {
	return func(o *metav1.DeleteOptions) { o.GracePeriodSeconds = grace }
}

// release writes the final status and deletes the local pod without a grace period.
func (p *Pods) release(ctx context.Context, local, last *corev1.Pod) error {
	if !ended(local) {
		if err := p.patchStatus(ctx, local, forge.FinalStatus(p.input(local, nil, last))); err != nil {
			return err
		}
	}
	if p.locals.WasDeleted(local.UID) {
		return nil
	}
	if err := p.locals.Delete(ctx, local, within(ptr.To[int64](0))); err != nil {
		return err
	}
	p.forget(local.UID)
	return nil
}

// notOffloaded handles the pods of namespaces without a twin: pods that wait for one,
// pods whose namespace is no longer offloaded, and pods that are being deleted.
func (p *Pods) notOffloaded(ctx context.Context, local *corev1.Pod) error {
	if local == nil || (ended(local) && local.DeletionTimestamp == nil) {
		return nil
	}
	wanted, why := p.wanted(local.Namespace)
	switch {
	// For a pod that is being deleted, any status from the provider counts, because the remote
	// pod may have started since.
	case wanted && !ended(local) && (started(local) || local.DeletionTimestamp != nil && local.Status.HostIP != ""):
		return p.withoutTwin(ctx, local, why)
	case local.DeletionTimestamp != nil:
		if p.cfg.Namespaces.Map() == nil {
			return loop.After(engine.NamespaceRetry) // the NamespaceMap will be created again, and decides
		}
		return p.release(ctx, local, p.memo(local.UID).last)
	case started(local) || p.takenBack(local):
		return p.abort(ctx, local)
	default:
		return p.writeStatus(ctx, local, p.pending(local, offloadingv1beta1.ReasonOffloadingBackOff, why))
	}
}

// withoutTwin handles a pod that has run while no usable twin is known. The remote pod is
// not touched. It counts as running unless the provider reports that the twin is being
// deleted.
func (p *Pods) withoutTwin(ctx context.Context, local *corev1.Pod, why string) error {
	m := p.cfg.Namespaces.Map()
	if local.DeletionTimestamp != nil {
		want := forge.UnreadyStatus(local, p.now())
		want.Reason, want.Message = reasons.TwinNamespaceNotReady, "the pod ends when its twin namespace can be reached: "+why
		return p.writeStatus(ctx, local, want)
	}
	if m == nil || m.Status.CurrentMapping[local.Namespace].Phase != offloadingv1beta1.MappingTerminating {
		return nil
	}
	return p.report(ctx, local, nil, nil)
}

// wanted reports whether a namespace should be offloaded, and the reason why it is not
// yet.
func (p *Pods) wanted(namespace string) (bool, string) {
	m := p.cfg.Namespaces.Map()
	if m == nil || m.Spec.DesiredMapping[namespace] == "" {
		return false, fmt.Sprintf("namespace %s is not offloaded to cluster %s: create a NamespaceOffloading that selects it, or keep the pod off virtual nodes", namespace, p.cfg.Destination)
	}
	why := fmt.Sprintf("namespace %s has no twin in cluster %s yet", namespace, p.cfg.Destination)
	if s, ok := m.Status.CurrentMapping[namespace]; ok && s.Message != "" {
		why += ": " + store.ClipMessage(s.Message)
	}
	return true, why
}

// takenBack reports whether a pod was created before its namespace was taken back. Such a pod
// was on its way to the provider, and a later one is like those of a namespace that was never offloaded.
func (p *Pods) takenBack(local *corev1.Pod) bool {
	p.noteTakenBack(local.Namespace)
	at := p.endings.Begun(local.Namespace)
	return !at.IsZero() && !local.CreationTimestamp.After(at)
}

// noteTakenBack records that a namespace is no longer offloaded while the provider still has its twin.
func (p *Pods) noteTakenBack(namespace string) {
	m := p.cfg.Namespaces.Map()
	if m == nil {
		return
	}
	_, wanted := m.Spec.DesiredMapping[namespace]
	if _, there := m.Status.CurrentMapping[namespace]; wanted {
		p.endings.End(namespace)
	} else if there {
		p.endings.Begin(namespace, p.cfg.Clock.Now())
	}
}

// abort ends a pod whose namespace is no longer offloaded: its twin is being deleted at
// the user's request. A missing NamespaceMap is not such a request, because the
// controller creates it again.
func (p *Pods) abort(ctx context.Context, local *corev1.Pod) error {
	m, err := store.Live(ctx, "NamespaceMap", p.cfg.HomeLiqo.OffloadingV1beta1().NamespaceMaps(p.cfg.TenantNamespace), p.cfg.Destination)
	if err != nil || m == nil {
		return err
	}
	if _, wanted := m.Spec.DesiredMapping[local.Namespace]; wanted {
		return loop.After(store.CatchUp)
	}
	p.cfg.Log.Info("pod aborted: its namespace is no longer offloaded", zap.String("namespace", local.Namespace), zap.String("pod", local.Name))
	return p.writeStatus(ctx, local, failed(p.input(local, nil, nil), reasons.OffloadingAborted,
		fmt.Sprintf("namespace %s is no longer offloaded to cluster %s", local.Namespace, p.cfg.Destination)))
}

// offloadAgain handles a pod that has run and whose ShadowPod is gone: a client in the
// provider deleted it, or its namespace.
func (p *Pods) offloadAgain(ctx context.Context, v view) error {
	if err := v.twin.shadows.ConfirmGone(ctx, v.there()); err != nil {
		return err
	}
	if err := p.cfg.Verify(ctx); err != nil {
		return fmt.Errorf("verifying the provider before believing that the pod is lost: %w", err)
	}
	if offloadingv1beta1.MayRunAgain(v.local) {
		return p.create(ctx, v)
	}
	p.cfg.Log.Warn("pod lost in the provider", zap.Stringer("key", v.key))
	p.cfg.Recorder.Event(v.local, corev1.EventTypeWarning, offloadingv1beta1.ReasonRemotePodLost,
		fmt.Sprintf("the pod was lost in cluster %s and may not run again under its restart policy", p.cfg.Destination))
	return p.writeStatus(ctx, v.local, lost(p.input(v.local, nil, nil), p.cfg.Destination))
}

// withdrawOrphan deletes objects in the provider that belong to no local pod or to an
// earlier pod of the same name. A live read confirms the absence of the local pod. If
// this cluster may have lost the pod by a restored backup, the objects are kept.
func (p *Pods) withdrawOrphan(ctx context.Context, v view) error {
	var uid types.UID
	switch {
	case v.shadow != nil && engine.IsKept(v.shadow):
		return p.waitForKept(ctx, v)
	case v.shadow != nil:
		uid = localUID(v.shadow)
	case v.remote != nil:
		uid = localUID(v.remote)
	default:
		return nil
	}
	live, revision, err := p.liveLocal(ctx, v.key)
	if err != nil {
		return fmt.Errorf("confirming that the pod is gone: %w", err)
	}
	if live != nil && live.UID == uid {
		return loop.After(store.CatchUp) // the cache is behind
	}
	if v.shadow != nil && v.shadow.DeletionTimestamp == nil && p.forgotten(v, revision) {
		if v.twin.inDoubt(uid, p.cfg.Clock.Now()) {
			return loop.After(store.CatchUp)
		}
		return p.keep(ctx, v)
	}
	if v.shadow == nil && v.remote.DeletionTimestamp == nil {
		// If a ShadowPod exists for it, that one decides about the pod.
		err := v.twin.shadows.ConfirmNone(ctx, v.there(), func(s *offloadingv1beta1.ShadowPod) bool { return localUID(s) == uid })
		if err != nil {
			return err
		}
	}
	return p.withdraw(ctx, v, uid, nil)
}

// withdraw deletes the ShadowPod and then the remote pod of the local pod with this UID,
// each with its own UID as a precondition. grace is the grace period of the pod in
// seconds; nil means its own.
func (p *Pods) withdraw(ctx context.Context, v view, local types.UID, grace *int64) error {
	if v.shadow != nil && localUID(v.shadow) == local && v.shadow.DeletionTimestamp == nil && !v.twin.shadows.WasDeleted(v.shadow.UID) {
		if err := v.twin.shadows.Delete(ctx, v.shadow); err != nil {
			return err
		}
	}
	if v.remote == nil || localUID(v.remote) != local || !shortens(v.remote, grace, p.now().Unix()) || (v.remote.DeletionTimestamp == nil && v.twin.pods.WasDeleted(v.remote.UID)) {
		return nil
	}
	return v.twin.pods.Delete(ctx, v.remote, within(grace))
}

// shortens reports whether a deletion with this grace period would end the pod earlier
// than planned.
func shortens(remote *corev1.Pod, grace *int64, now int64) bool {
	if remote.DeletionTimestamp == nil {
		return true
	}
	return grace != nil && now+*grace+1 < remote.DeletionTimestamp.Unix()
}
