package kinds

import (
	"context"
	"errors"
	"fmt"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/reflect/engine"
	"github.com/liqod/liqod/reflect/forge"
)

// fieldManager identifies the writes of this package in managedFields.
const fieldManager = "liqod-vkubelet"

// reasonUpdateRefused is the reason of events about changes of a pod that the provider
// rejects.
const reasonUpdateRefused = "UpdateRefused"

// reflect updates the ShadowPod and the local status. The status is written even if the
// provider rejects the update of the ShadowPod.
func (p *Pods) reflect(ctx context.Context, v view) error {
	err := p.carry(ctx, v)
	if err != nil && !isRefusal(err) {
		return err
	}
	p.tellNotCarried(v, err)
	p.tellLeftOut(v)
	return errors.Join(p.report(ctx, v.local, v.shadow, v.remote), err)
}

// carry writes changes of the local pod to its ShadowPod.
func (p *Pods) carry(ctx context.Context, v view) error {
	want, differs := forge.UpdateShadowPod(v.shadow, v.local, p.options(v))
	if !differs {
		return nil
	}
	written, err := p.cfg.Remote.Liqo.OffloadingV1beta1().ShadowPods(v.twin.remote).Update(ctx, want, metav1.UpdateOptions{FieldManager: fieldManager})
	if err != nil {
		return fmt.Errorf("updating the ShadowPod: %w", err)
	}
	p.shadows.Wrote(written)
	return nil
}

// isRefusal reports whether the provider's API server rejected the content of a write.
func isRefusal(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err)
}

// tellNotCarried records an event about a change that the provider rejects: of the
// ShadowPod (refused), or of a running pod. If the remote pod does not exist, the status
// of the local pod has the reason instead.
func (p *Pods) tellNotCarried(v view, refused error) {
	reason, what := notCarried(v)
	if refused != nil {
		reason, what = reasonUpdateRefused, refused.Error()
	}
	what = store.ClipMessage(what)
	p.mu.Lock()
	news := p.told[v.local.UID] != what
	if what == "" {
		delete(p.told, v.local.UID)
	} else {
		p.told[v.local.UID] = what
	}
	p.mu.Unlock()
	if news && what != "" {
		p.cfg.Recorder.Event(v.local, corev1.EventTypeWarning, reason, fmt.Sprintf("in cluster %s: %s", p.cfg.Destination, what))
	}
}

// tellLeftOut records an event about annotations that the provider does not accept, once for
// each pod and list of them.
func (p *Pods) tellLeftOut(v view) {
	if v.remote == nil {
		return
	}
	keys := v.remote.Annotations[offloadingv1beta1.LeftOutAnnotation]
	if keys == "" || !p.isNews(v.local.UID, forge.ReasonAnnotationsLeftOut+keys) {
		return
	}
	p.cfg.Recorder.Event(v.local, corev1.EventTypeWarning, forge.ReasonAnnotationsLeftOut, forge.LeftOutMessage(p.cfg.Destination, keys))
}

func notCarried(v view) (reason, what string) {
	if v.remote == nil {
		return "", ""
	}
	if c := meta.FindStatusCondition(v.shadow.Status.Conditions, offloadingv1beta1.ShadowPodEnforced); c != nil && c.Status == metav1.ConditionFalse {
		return c.Reason, c.Message
	}
	return "", ""
}

func (p *Pods) options(v view) forge.PodOptions {
	access, _ := p.apiAccess() // awaitsAPI has the error
	o := forge.PodOptions{
		OriginClusterID: p.cfg.Origin, DestinationClusterID: p.cfg.Destination,
		NodeName: p.cfg.Node, RemoteNamespace: v.twin.remote,
		API: access,
	}
	vn := p.virtualNode()
	o.SkipLabels, o.SkipAnnotations = engine.NotReflected(vn, p.cfg.SkipLabels, p.cfg.SkipAnnotations)
	if vn != nil {
		o.Patch = vn.Spec.OffloadingPatch
	}
	return o
}

// offload creates the ShadowPod, with one write.
func (p *Pods) offload(ctx context.Context, v view) error {
	if v.remote != nil {
		// The remote pod remains from a ShadowPod that was deleted in the provider: wait
		// until it is gone.
		return p.report(ctx, v.local, nil, v.remote)
	}
	if started(v.local) {
		return p.offloadAgain(ctx, v)
	}
	if admitted, err := p.admit(ctx, v); !admitted {
		return err
	}
	return p.create(ctx, v)
}

func (p *Pods) create(ctx context.Context, v view) error {
	if vn := p.virtualNode(); vn == nil || vn.DeletionTimestamp != nil {
		return nil // the node is being drained: a new pod would be evicted at once
	}
	withheld, err := p.cfg.Claims.withheld(ctx, v.local, v.twin.remote)
	if err != nil {
		return err
	}
	if withheld != "" {
		return errors.Join(p.writeStatus(ctx, v.local, p.pending(v.local, reasonRemoteVolumeTaken, withheld)), loop.After(takenRetry))
	}
	o := p.options(v)
	if why := p.awaitsAPI(v.local, o); why != "" {
		return errors.Join(p.writeStatus(ctx, v.local, p.pending(v.local, reasonHomeAPIUnknown, why)), loop.After(homeAPIRetry))
	}
	if o.ClaimedVolumes, err = p.cfg.Claims.ephemeral(ctx, v.local); err != nil {
		return err
	}
	want, err := forge.ShadowPod(v.local, o)
	var refused *forge.Refused
	if errors.As(err, &refused) {
		return p.writeStatus(ctx, v.local, p.pending(v.local, refused.Reason, refused.Message))
	}
	if err != nil {
		return fmt.Errorf("forging the ShadowPod: %w", err)
	}
	written, err := p.cfg.Remote.Liqo.OffloadingV1beta1().ShadowPods(v.twin.remote).Create(ctx, want, metav1.CreateOptions{FieldManager: fieldManager})
	switch {
	case err == nil:
		p.shadows.Wrote(written)
		return nil
	case apierrors.IsAlreadyExists(err):
		return p.taken(ctx, v)
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return errors.Join(p.writeStatus(ctx, v.local, p.pending(v.local, "TwinNamespaceTerminating",
			fmt.Sprintf("the namespace %s of cluster %s is being deleted; waiting until it is there again", v.twin.remote, p.cfg.Destination))), loop.After(namespaceRetry))
	case isRefusal(err):
		return errors.Join(p.writeStatus(ctx, v.local, p.pending(v.local, offloadingv1beta1.ReasonPodRefused,
			store.ClipMessage(fmt.Sprintf("cluster %s refuses the ShadowPod: %s", p.cfg.Destination, offloadingv1beta1.ExplainBound(err.Error()))))),
			fmt.Errorf("creating the ShadowPod: %w", err))
	default:
		return fmt.Errorf("creating the ShadowPod: %w", err)
	}
}

// taken reads the ShadowPod that occupies the name. If it belongs to this virtual node,
// the watch will report it. If it belongs to another one, the status says so.
func (p *Pods) taken(ctx context.Context, v view) error {
	have, err := p.cfg.Remote.Liqo.OffloadingV1beta1().ShadowPods(v.twin.remote).Get(ctx, v.key.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || (err == nil && have.Labels[offloadingv1beta1.NodeNameLabel] == p.cfg.Node) {
		return loop.After(staleRetry)
	}
	if err != nil {
		return fmt.Errorf("looking at the ShadowPod that has the name: %w", err)
	}
	return errors.Join(p.writeStatus(ctx, v.local, p.pending(v.local, "ShadowPodTaken", fmt.Sprintf(
		"a ShadowPod %s/%s of virtual node %q has the name in cluster %s; waiting until it is gone",
		v.twin.remote, v.key.Name, have.Labels[offloadingv1beta1.NodeNameLabel], p.cfg.Destination))), loop.After(takenRetry))
}

// offloadAgain handles a pod that has run and whose ShadowPod is gone: a client in the
// provider deleted it, or its namespace.
func (p *Pods) offloadAgain(ctx context.Context, v view) error {
	_, err := p.cfg.Remote.Liqo.OffloadingV1beta1().ShadowPods(v.twin.remote).Get(ctx, v.key.Name, metav1.GetOptions{})
	if err == nil {
		return loop.After(staleRetry)
	}
	if !apierrors.IsNotFound(err) {
		return fmt.Errorf("confirming that the ShadowPod is gone: %w", err)
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
	case v.shadow != nil && isKept(v.shadow):
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
		return loop.After(staleRetry) // the cache is behind
	}
	if v.shadow != nil && v.shadow.DeletionTimestamp == nil && p.forgotten(v.shadow, revision) {
		if p.inDoubt(v.shadow) {
			return loop.After(staleRetry)
		}
		return p.keep(ctx, v)
	}
	if v.shadow == nil && v.remote.DeletionTimestamp == nil {
		if asked, err := p.askedFor(ctx, v, uid); err != nil || asked {
			return err
		}
	}
	return p.withdraw(ctx, v, uid, nil)
}

// askedFor reports, by a live read, whether a ShadowPod exists for the remote pod. If it
// does, the cache lags behind, and the error requeues the key: the ShadowPod decides
// about the remote pod.
func (p *Pods) askedFor(ctx context.Context, v view, local types.UID) (bool, error) {
	shadow, err := p.cfg.Remote.Liqo.OffloadingV1beta1().ShadowPods(v.twin.remote).Get(ctx, v.key.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err) || (err == nil && localUID(shadow) != local):
		return false, nil
	case err != nil:
		return true, fmt.Errorf("confirming that the ShadowPod is gone: %w", err)
	}
	return true, loop.After(staleRetry)
}

func localUID(obj metav1.Object) types.UID {
	return types.UID(obj.GetLabels()[offloadingv1beta1.LocalPodUIDLabel])
}

// withdraw deletes the ShadowPod and then the remote pod of the local pod with this UID,
// each with its own UID as a precondition. grace is the grace period of the pod in
// seconds; nil means its own.
func (p *Pods) withdraw(ctx context.Context, v view, local types.UID, grace *int64) error {
	if v.shadow != nil && localUID(v.shadow) == local && v.shadow.DeletionTimestamp == nil && !p.shadows.WasDeleted(v.shadow.UID) {
		err := p.cfg.Remote.Liqo.OffloadingV1beta1().ShadowPods(v.twin.remote).Delete(ctx, v.shadow.Name,
			metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(v.shadow.UID))})
		if store.IgnoreGone(err) != nil {
			return fmt.Errorf("deleting the ShadowPod: %w", err)
		}
		p.shadows.Deleted(v.shadow.UID)
	}
	if v.remote == nil || localUID(v.remote) != local || !shortens(v.remote, grace, p.now().Unix()) || (v.remote.DeletionTimestamp == nil && p.remotes.WasDeleted(v.remote.UID)) {
		return nil
	}
	err := p.cfg.Remote.Kube.CoreV1().Pods(v.twin.remote).Delete(ctx, v.remote.Name,
		metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(v.remote.UID)), GracePeriodSeconds: grace})
	if store.IgnoreGone(err) != nil {
		return fmt.Errorf("deleting the pod in the provider: %w", err)
	}
	p.remotes.Deleted(v.remote.UID)
	return nil
}

// shortens reports whether a deletion with this grace period would end the pod earlier
// than planned.
func shortens(remote *corev1.Pod, grace *int64, now int64) bool {
	if remote.DeletionTimestamp == nil {
		return true
	}
	return grace != nil && now+*grace+1 < remote.DeletionTimestamp.Unix()
}

// remainingGrace returns the rest of the local pod's grace period in seconds, at least 1.
func remainingGrace(local *corev1.Pod, now int64) *int64 {
	left := local.DeletionTimestamp.Unix() - now
	return ptr.To(max(left, 1))
}
