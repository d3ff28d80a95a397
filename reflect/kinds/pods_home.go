package kinds

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/utils/ptr"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/reflect/forge"
)

const (
	namespaceRetry = 2 * time.Second
	staleRetry     = 500 * time.Millisecond
	takenRetry     = 10 * time.Second
	// hostIPInterval is the time between two writes that only change the host IP: 20 per
	// second.
	hostIPInterval = 50 * time.Millisecond
	// hostIPPass is the delay before a retry for pods whose twin namespace had not synced.
	hostIPPass = 10 * time.Second
)

// status returns the status that the local pod should have.
func (p *Pods) status(local *corev1.Pod, shadow *offloadingv1beta1.ShadowPod, remote *corev1.Pod) corev1.PodStatus {
	return forge.Status(p.input(local, shadow, remote))
}

func (p *Pods) input(local *corev1.Pod, shadow *offloadingv1beta1.ShadowPod, remote *corev1.Pod) forge.StatusInput {
	return forge.StatusInput{
		Local: local, Shadow: shadow, Remote: remote,
		NodeReady: p.readiness() == corev1.ConditionTrue, NetworkUnavailable: p.networkDown(), HostIPs: p.cfg.HostIPs, Remapper: p.cfg.Remapper, Now: p.now(),
		Refused: func(reason, message string) { p.tellRefused(local, reason, message) },
	}
}

func (p *Pods) pending(local *corev1.Pod, reason, message string) corev1.PodStatus {
	return forge.PendingStatus(local, reason, message, p.now())
}

// networkDown reports whether the virtual node has no network to its provider. While that is
// unknown, the node has the last known state or says Unknown, and Unknown is not down.
func (p *Pods) networkDown() bool {
	n, err := p.cfg.Nodes.Lister().Get(p.cfg.Node)
	return err == nil && networkDown(n)
}

// readiness returns the readiness of the virtual node; "" if there is no Node.
func (p *Pods) readiness() corev1.ConditionStatus {
	n, err := p.cfg.Nodes.Lister().Get(p.cfg.Node)
	if err != nil {
		return "" // a lister returns no other error than NotFound
	}
	return readiness(n)
}

// report writes the status that follows from the objects. The Node is read before the
// status is computed: it may become ready in between, and a status that was computed for a
// Node in state Unknown would be written.
func (p *Pods) report(ctx context.Context, local *corev1.Pod, shadow *offloadingv1beta1.ShadowPod, remote *corev1.Pod) error {
	if p.readiness() == corev1.ConditionUnknown {
		return nil // as in writeStatus
	}
	return p.writeStatus(ctx, local, p.status(local, shadow, remote))
}

// writeStatus writes the status if it differs, at a limited rate. While the node controller reports the node
// as Unknown, nothing is written: this process is about to report the node's status,
// which enqueues all its pods.
func (p *Pods) writeStatus(ctx context.Context, local *corev1.Pod, want corev1.PodStatus) error {
	if p.readiness() == corev1.ConditionUnknown {
		return nil
	}
	moved := p.takeMoved(local.UID)
	if forge.EqualStatus(&local.Status, &want, !moved) {
		return nil
	}
	if wait := p.delay(local, &want); wait > 0 {
		if moved {
			p.markMoved(local.UID)
		}
		return loop.After(wait)
	}
	if err := p.patchStatus(ctx, local, want); err != nil {
		return err
	}
	if reason, message := symptom(want); reason != "" {
		if before, _ := symptom(local.Status); before != reason {
			p.cfg.Recorder.Event(local, corev1.EventTypeWarning, reason, message)
		}
	}
	return nil
}

func (p *Pods) patchStatus(ctx context.Context, local *corev1.Pod, want corev1.PodStatus) error {
	patch, err := statusPatch(local, want)
	if err != nil {
		return fmt.Errorf("comparing pod status: %w", err)
	}
	written, err := p.cfg.Home.CoreV1().Pods(local.Namespace).Patch(ctx, local.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	switch {
	case err == nil:
		p.locals.Wrote(written)
		return nil
	case apierrors.IsNotFound(err):
		return nil
	case apierrors.IsConflict(err):
		return loop.After(staleRetry) // the watch will report the change, which triggers a new sync
	}
	return fmt.Errorf("writing pod status: %w", err)
}

// statusPatch returns a patch with the UID and the resource version of the pod. With the
// UID it fails for a newer pod of the same name. With the resource version it fails if
// another process has written meanwhile, so that a delayed request does not restore an
// old status.
func statusPatch(local *corev1.Pod, want corev1.PodStatus) ([]byte, error) {
	have := local.Status
	leaveOutEqual(&have, &want)
	before, err := json.Marshal(corev1.Pod{Status: have})
	if err != nil {
		return nil, err
	}
	after, err := json.Marshal(corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: local.UID, ResourceVersion: local.ResourceVersion}, Status: want})
	if err != nil {
		return nil, err
	}
	return strategicpatch.CreateTwoWayMergePatch(before, after, corev1.Pod{})
}

// leaveOutEqual empties the lists of containers that both have: they are most of a status,
// are not part of the patch, and cost most of the time that it takes to make one. That
// counts when a provider is lost, as all pods get a patch at once.
func leaveOutEqual(a, b *corev1.PodStatus) {
	for _, lists := range [][2]*[]corev1.ContainerStatus{
		{&a.InitContainerStatuses, &b.InitContainerStatuses}, {&a.ContainerStatuses, &b.ContainerStatuses},
		{&a.EphemeralContainerStatuses, &b.EphemeralContainerStatuses},
	} {
		if equality.Semantic.DeepEqual(*lists[0], *lists[1]) {
			*lists[0], *lists[1] = nil, nil
		}
	}
}

// holdUnready sets Ready to False if the node is not ready and no other part of the
// status is known. The node controller does so only for nodes whose status is Unknown.
func (p *Pods) holdUnready(ctx context.Context, local *corev1.Pod) error {
	if local == nil || ended(local) {
		return nil
	}
	if ready := p.readiness(); ready == corev1.ConditionTrue || ready == corev1.ConditionUnknown {
		return nil // if Unknown, as in report
	}
	return p.writeStatus(ctx, local, forge.UnreadyStatus(local, p.now()))
}

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
		if err := p.withdraw(ctx, v, v.local.UID, remainingGrace(v.local, p.now().Unix())); err != nil {
			return err
		}
		if v.remote != nil && !ended(v.local) {
			return p.report(ctx, v.local, v.shadow, v.remote)
		}
		return nil // the end of the deletion triggers a new sync
	}
	if !p.wentWithLocal(v.local.UID) {
		if there, err := p.stillThere(ctx, v); err != nil || there {
			return err
		}
	}
	return p.release(ctx, v.local, p.lastSeen(v.local.UID))
}

// stillThere confirms by live reads that the provider has neither the ShadowPod nor the
// pod. If it has one of them, the caches lag behind, and the error requeues the key.
func (p *Pods) stillThere(ctx context.Context, v view) (bool, error) {
	if err := p.cfg.Verify(ctx); err != nil {
		return true, fmt.Errorf("verifying the provider before believing that the pod is gone: %w", err)
	}
	_, err := p.cfg.Remote.Liqo.OffloadingV1beta1().ShadowPods(v.twin.remote).Get(ctx, v.key.Name, metav1.GetOptions{})
	if err == nil {
		return true, loop.After(staleRetry)
	}
	if !apierrors.IsNotFound(err) {
		return true, fmt.Errorf("confirming that the ShadowPod is gone: %w", err)
	}
	pod, err := p.cfg.Remote.Kube.CoreV1().Pods(v.twin.remote).Get(ctx, v.key.Name, metav1.GetOptions{})
	if err == nil && pod.Labels[offloadingv1beta1.LocalPodUIDLabel] == string(v.local.UID) {
		return true, loop.After(staleRetry)
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return true, fmt.Errorf("confirming that the provider's pod is gone: %w", err)
	}
	return false, nil
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
	err := p.cfg.Home.CoreV1().Pods(local.Namespace).Delete(ctx, local.Name,
		metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0), Preconditions: metav1.NewUIDPreconditions(string(local.UID))})
	if store.IgnoreGone(err) != nil {
		return fmt.Errorf("releasing the pod: %w", err)
	}
	p.locals.Deleted(local.UID)
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
	case wanted && !ended(local) && mayBeThere(local):
		return p.withoutTwin(ctx, local, why)
	case local.DeletionTimestamp != nil:
		if p.namespaceMap() == nil {
			return loop.After(namespaceRetry) // the NamespaceMap will be created again, and decides
		}
		return p.release(ctx, local, p.lastSeen(local.UID))
	case started(local):
		return p.abort(ctx, local)
	default:
		return p.backOff(ctx, local, why)
	}
}

// mayBeThere reports whether the provider may have the pod according to its status. For a
// pod that is being deleted, any status from the provider counts, because the remote pod
// may have started since.
func mayBeThere(local *corev1.Pod) bool {
	return started(local) || (local.DeletionTimestamp != nil && local.Status.HostIP != "")
}

// withoutTwin handles a pod that has run while no usable twin is known. The remote pod is
// not touched. It counts as running unless the provider reports that the twin is being
// deleted.
func (p *Pods) withoutTwin(ctx context.Context, local *corev1.Pod, why string) error {
	m := p.namespaceMap()
	if local.DeletionTimestamp != nil {
		want := forge.UnreadyStatus(local, p.now())
		want.Reason, want.Message = "TwinNamespaceNotReady", "the pod ends when its twin namespace can be reached: "+why
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
	m := p.namespaceMap()
	if m == nil || m.Spec.DesiredMapping[namespace] == "" {
		return false, fmt.Sprintf("namespace %s is not offloaded to cluster %s: create a NamespaceOffloading that selects it, or keep the pod off virtual nodes", namespace, p.cfg.Destination)
	}
	why := fmt.Sprintf("namespace %s has no twin in cluster %s yet", namespace, p.cfg.Destination)
	if s, ok := m.Status.CurrentMapping[namespace]; ok && s.Message != "" {
		why += ": " + store.ClipMessage(s.Message)
	}
	return true, why
}

// abort ends a pod whose namespace is no longer offloaded: its twin is being deleted at
// the user's request. A missing NamespaceMap is not such a request, because the
// controller creates it again.
func (p *Pods) abort(ctx context.Context, local *corev1.Pod) error {
	m, err := p.cfg.HomeLiqo.OffloadingV1beta1().NamespaceMaps(p.cfg.TenantNamespace).Get(ctx, p.cfg.Destination, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("confirming that namespace %s is no longer offloaded: %w", local.Namespace, err)
	}
	if _, wanted := m.Spec.DesiredMapping[local.Namespace]; wanted {
		return loop.After(staleRetry)
	}
	p.cfg.Log.Info("pod aborted: its namespace is no longer offloaded", zap.String("namespace", local.Namespace), zap.String("pod", local.Name))
	return p.writeStatus(ctx, local, failed(p.input(local, nil, nil), "OffloadingAborted",
		fmt.Sprintf("namespace %s is no longer offloaded to cluster %s", local.Namespace, p.cfg.Destination)))
}

func (p *Pods) backOff(ctx context.Context, local *corev1.Pod, message string) error {
	want := p.pending(local, offloadingv1beta1.ReasonOffloadingBackOff, message)
	if ownedByDaemonSet(local) {
		return p.patchIfNew(ctx, local, want) // DaemonSets create a pod on every node, so these get no event
	}
	return p.writeStatus(ctx, local, want)
}

func (p *Pods) patchIfNew(ctx context.Context, local *corev1.Pod, want corev1.PodStatus) error {
	if forge.EqualStatus(&local.Status, &want, true) {
		return nil
	}
	if wait := p.delay(local, &want); wait > 0 {
		return loop.After(wait)
	}
	return p.patchStatus(ctx, local, want)
}

// refreshHostIPs rewrites the host IP of all pods at a limited rate, after the vkubelet
// has moved to another address. It returns when no pod has an outdated one.
func (p *Pods) refreshHostIPs(ctx context.Context) {
	tick := time.NewTicker(hostIPInterval)
	defer tick.Stop()
	for {
		var stale []*corev1.Pod
		for _, pod := range p.localPods(corev1.NamespaceAll) {
			if !ended(pod) && pod.Status.HostIP != "" && len(p.cfg.HostIPs) > 0 && pod.Status.HostIP != p.cfg.HostIPs[0].String() {
				stale = append(stale, pod)
			}
		}
		if len(stale) == 0 {
			return
		}
		for _, pod := range stale {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			p.markMoved(pod.UID)
			p.loop.Add(loop.Key{Namespace: pod.Namespace, Name: pod.Name})
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(hostIPPass):
		}
	}
}

func (p *Pods) markMoved(uid types.UID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.moved[uid] = true
}

func (p *Pods) takeMoved(uid types.UID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	moved := p.moved[uid]
	delete(p.moved, uid)
	return moved
}
