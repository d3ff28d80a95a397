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
	"github.com/liqod/liqod/kube/apply"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/reflect/engine"
	"github.com/liqod/liqod/reflect/forge"
)

// fieldManager is the name under which this package writes.
const fieldManager = "liqod-vkubelet"

// reasonUpdateRefused is the reason of events about changes of pods that the provider refuses.
const reasonUpdateRefused = "UpdateRefused"

// reflect keeps the ShadowPod as the local pod asks, and the local status as the
// provider's pod says, whatever the provider refuses of the former.
func (p *Pods) reflect(ctx context.Context, v view) error {
	err := p.carry(ctx, v)
	if err != nil && !isRefusal(err) {
		return err
	}
	p.tellNotCarried(v, err)
	return errors.Join(p.writeStatus(ctx, v.local, p.status(v.local, v.shadow, v.remote)), err)
}

// carry writes what has changed in the local pod into its ShadowPod.
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

// isRefusal reports whether the provider's API server does not accept what is written.
func isRefusal(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err)
}

// tellNotCarried tells, once, of a change which the provider refuses: of its ShadowPod, for
// the reason in refused, or of a pod that runs. One that does not run says so in its status.
func (p *Pods) tellNotCarried(v view, refused error) {
	reason, what := notCarried(v)
	if refused != nil {
		reason, what = reasonUpdateRefused, refused.Error()
	}
	what = apply.ClipMessage(what)
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
	o := forge.PodOptions{
		OriginClusterID: p.cfg.Origin, DestinationClusterID: p.cfg.Destination,
		NodeName: p.cfg.Node, RemoteNamespace: v.twin.remote,
		API: p.cfg.API,
	}
	vn := p.virtualNode()
	o.SkipLabels, o.SkipAnnotations = engine.NotReflected(vn, p.cfg.SkipLabels, p.cfg.SkipAnnotations)
	if vn != nil {
		o.Patch = vn.Spec.OffloadingPatch
	}
	return o
}

// offload asks the provider for the pod: one write.
func (p *Pods) offload(ctx context.Context, v view) error {
	if v.remote != nil {
		// The remains of a ShadowPod that was deleted there: wait until they are gone.
		return p.writeStatus(ctx, v.local, p.status(v.local, nil, v.remote))
	}
	if started(v.local) {
		return p.offloadAgain(ctx, v)
	}
	return p.create(ctx, v)
}

func (p *Pods) create(ctx context.Context, v view) error {
	if vn := p.virtualNode(); vn == nil || vn.DeletionTimestamp != nil {
		return nil // the node is being drained: what comes now would have to go at once
	}
	withheld, err := p.cfg.Claims.withheld(ctx, v.local, v.twin.remote)
	if err != nil {
		return err
	}
	if withheld != "" {
		return errors.Join(p.writeStatus(ctx, v.local, p.pending(v.local, reasonRemoteVolumeTaken, withheld)), loop.After(takenRetry))
	}
	o := p.options(v)
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
			apply.ClipMessage(fmt.Sprintf("cluster %s refuses the ShadowPod: %v", p.cfg.Destination, err)))),
			fmt.Errorf("creating the ShadowPod: %w", err))
	default:
		return fmt.Errorf("creating the ShadowPod: %w", err)
	}
}

// taken looks at the ShadowPod that has the name already. One of ours is about to be
// shown by the watch; one that belongs to something else is in the way, and is said.
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

// offloadAgain handles a pod that runs, as far as is known here, while the provider
// shows no ShadowPod for it: somebody there removed it (or its namespace).
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
	if mayRunAgain(v.local) {
		return p.create(ctx, v)
	}
	p.cfg.Log.Warn("pod lost in the provider", zap.Stringer("key", v.key))
	p.cfg.Recorder.Event(v.local, corev1.EventTypeWarning, offloadingv1beta1.ReasonRemotePodLost,
		fmt.Sprintf("the pod was lost in cluster %s and may not run again under its restart policy", p.cfg.Destination))
	return p.writeStatus(ctx, v.local, lost(p.input(v.local, nil, nil), p.cfg.Destination))
}

// withdrawOrphan removes from the provider what belongs to no local pod, or to a
// predecessor of the same name. The local pod's absence is confirmed by a live read, and
// is no reason when this cluster has forgotten what it knew.
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

// askedFor confirms by a live read that no ShadowPod asks for the provider's pod of that
// local pod. When one does, the cache is behind and it asks to be called again: what is to
// become of the pod follows from the ShadowPod.
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

// withdraw deletes the ShadowPod, then the provider's pod, of the local pod with that
// UID, each by its own UID. The pod gets the grace in seconds, its own when nil.
func (p *Pods) withdraw(ctx context.Context, v view, local types.UID, grace *int64) error {
	if v.shadow != nil && localUID(v.shadow) == local && v.shadow.DeletionTimestamp == nil && !p.shadows.WasDeleted(v.shadow.UID) {
		err := p.cfg.Remote.Liqo.OffloadingV1beta1().ShadowPods(v.twin.remote).Delete(ctx, v.shadow.Name,
			metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(v.shadow.UID))})
		if ignoreGone(err) != nil {
			return fmt.Errorf("deleting the ShadowPod: %w", err)
		}
		p.shadows.Deleted(v.shadow.UID)
	}
	if v.remote == nil || localUID(v.remote) != local || !shortens(v.remote, grace, p.now().Unix()) || (v.remote.DeletionTimestamp == nil && p.remotes.WasDeleted(v.remote.UID)) {
		return nil
	}
	err := p.cfg.Remote.Kube.CoreV1().Pods(v.twin.remote).Delete(ctx, v.remote.Name,
		metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(v.remote.UID)), GracePeriodSeconds: grace})
	if ignoreGone(err) != nil {
		return fmt.Errorf("deleting the pod in the provider: %w", err)
	}
	p.remotes.Deleted(v.remote.UID)
	return nil
}

// shortens reports whether a delete with that grace says anything new to the pod.
func shortens(remote *corev1.Pod, grace *int64, now int64) bool {
	if remote.DeletionTimestamp == nil {
		return true
	}
	return grace != nil && now+*grace+1 < remote.DeletionTimestamp.Unix()
}

// ignoreGone drops the errors that say that the object, or the one of that UID, is
// no more.
func ignoreGone(err error) error {
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// remainingGrace is what is left of the local pod's grace, at least a second.
func remainingGrace(local *corev1.Pod, now int64) *int64 {
	left := local.DeletionTimestamp.Unix() - now
	return ptr.To(max(left, 1))
}
