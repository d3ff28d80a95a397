package kinds

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/reasons"
	"github.com/liqod/liqod/reflect/forge"
)

const (
	// hostIPInterval is the time between two writes that only change the host IP: 20 per
	// second.
	hostIPInterval = 50 * time.Millisecond
	// hostIPPass is the delay before a retry for pods whose twin namespace had not synced.
	hostIPPass = 10 * time.Second
	// silentPatience is how long a pod waits in silence for a provider's controller that has not
	// shown that it runs: the vkubelet notices within a second or two that it is back.
	silentPatience = 5 * time.Second
)

// status returns the status that the local pod should have.
func (p *Pods) status(local *corev1.Pod, shadow *offloadingv1beta1.ShadowPod, remote *corev1.Pod) corev1.PodStatus {
	return forge.Status(p.input(local, shadow, remote))
}

func (p *Pods) input(local *corev1.Pod, shadow *offloadingv1beta1.ShadowPod, remote *corev1.Pod) forge.StatusInput {
	return forge.StatusInput{
		Silent: p.cfg.Silent(), Local: local, Shadow: shadow, Remote: remote,
		NodeReady: p.readiness() == corev1.ConditionTrue, NetworkUnavailable: networkDown(p.ownNode()), HostIPs: p.cfg.HostIPs, Remapper: p.cfg.Remapper, Now: p.now(),
		Refused: func(reason, message string) { p.tellRefused(local, reason, message) },
	}
}

func (p *Pods) pending(local *corev1.Pod, reason, message string) corev1.PodStatus {
	return forge.PendingStatus(local, reason, message, p.now())
}

// ownNode returns the virtual node; nil: there is none.
func (p *Pods) ownNode() *corev1.Node { return store.Known(p.cfg.Nodes.Lister().Get(p.cfg.Node)) }

// readiness returns the readiness of the virtual node; "" if there is no Node.
func (p *Pods) readiness() corev1.ConditionStatus { return readiness(p.ownNode()) }

// report writes the status that follows from the objects. The Node is read before the
// status is computed: it may become ready in between, and a status that was computed for a
// Node in state Unknown would be written.
func (p *Pods) report(ctx context.Context, local *corev1.Pod, shadow *offloadingv1beta1.ShadowPod, remote *corev1.Pod) error {
	if p.readiness() == corev1.ConditionUnknown {
		return nil // as in writeStatus
	}
	want := p.status(local, shadow, remote)
	if want.Reason == offloadingv1beta1.ReasonControllerSilent && local.Status.Reason != want.Reason {
		if left := silentPatience - p.now().Sub(boundSince(local)); left > 0 {
			return loop.After(left)
		}
	}
	return p.writeStatus(ctx, local, want)
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
	// The event comes first: where the answer to the write is lost, the next sync finds nothing
	// to write.
	if reason, message := symptom(want); reason != "" && !expected(local, reason) {
		if before, _ := symptom(local.Status); before != reason {
			severity := corev1.EventTypeWarning
			if reason == reasons.NotReflectedYet {
				severity = corev1.EventTypeNormal // as at most first starts; a pod that starts without has a warning
			}
			p.cfg.Recorder.Event(local, severity, reason, message)
		}
	}
	return p.patchStatus(ctx, local, want)
}

// expected reports whether the users expect the reason for which a pod does not run: DaemonSets create a pod on
// every node, also for namespaces that are not offloaded.
func expected(local *corev1.Pod, reason string) bool {
	o := metav1.GetControllerOf(local)
	return reason == offloadingv1beta1.ReasonOffloadingBackOff && o != nil && o.Kind == "DaemonSet"
}

func (p *Pods) patchStatus(ctx context.Context, local *corev1.Pod, want corev1.PodStatus) error {
	patch, err := statusPatch(local, want)
	if err != nil {
		return fmt.Errorf("comparing pod status: %w", err)
	}
	_, err = p.locals.Note(p.cfg.Home.CoreV1().Pods(local.Namespace).Patch(ctx, local.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status"))
	switch {
	case err == nil, apierrors.IsNotFound(err):
		return nil
	case apierrors.IsConflict(err):
		return loop.After(store.CatchUp) // the watch will report the change, which triggers a new sync
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
	return store.StrategicPatch(&corev1.Pod{Status: have},
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: local.UID, ResourceVersion: local.ResourceVersion}, Status: want})
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

// refreshHostIPs rewrites the host IP of all pods at a limited rate, after the vkubelet
// has moved to another address. It returns when no pod has an outdated one.
func (p *Pods) refreshHostIPs(ctx context.Context) {
	for {
		stale := slices.DeleteFunc(p.localPods(corev1.NamespaceAll), func(pod *corev1.Pod) bool {
			return ended(pod) || pod.Status.HostIP == "" || len(p.cfg.HostIPs) == 0 || pod.Status.HostIP == p.cfg.HostIPs[0].String()
		})
		if len(stale) == 0 {
			return
		}
		for _, pod := range stale {
			if loop.Pause(ctx, hostIPInterval) != nil {
				return
			}
			p.markMoved(pod.UID)
			p.loop.Add(loop.Key{Namespace: pod.Namespace, Name: pod.Name})
		}
		if loop.Pause(ctx, hostIPPass) != nil {
			return
		}
	}
}

func (p *Pods) markMoved(uid types.UID) { p.change(uid, func(r *memo) { r.moved = true }) }

func (p *Pods) takeMoved(uid types.UID) (moved bool) {
	p.change(uid, func(r *memo) { moved, r.moved = r.moved, false })
	return moved
}

const (
	// statusBurst is the number of writes of a pod's status that are not delayed: more than
	// a pod needs to start, and to end. statusInterval is the time between the writes after
	// those.
	statusBurst    = 20
	statusInterval = 10 * time.Second
	// mostTold is the number of different refusals of which a pod gets an event.
	mostTold      = 8
	delayPatience = 5 * time.Second
	// RefusedRate means that the status of a pod changes too often, and is written later.
	RefusedRate = "status-rate"
)

// delay returns how long a write of the status has to wait, because a provider whose pods
// change all the time would fill the etcd of this cluster. Whatever the status is then is
// written. The end of a pod never waits, nor does the end of its readiness: each follows a
// write that was counted.
func (p *Pods) delay(local *corev1.Pod, want *corev1.PodStatus) (wait time.Duration) {
	now, u := p.cfg.Clock.Now(), urgencyOf(local, want)
	p.change(local.UID, func(r *memo) {
		if u != atOnce {
			wait = r.writes.wait(now, 1, float64(time.Minute/statusInterval), statusBurst)
		}
		if wait == 0 {
			wait = p.spend(r, now, statusCost(local, want), u)
		}
		if wait == 0 && u != atOnce {
			r.writes.amount++
		}
	})
	if wait > 0 {
		p.cfg.Refused(RefusedRate)
	}
	if wait >= delayPatience && p.isNews(local.UID, reasons.RemoteStatusDelayed) {
		p.cfg.Recorder.Event(local, corev1.EventTypeWarning, reasons.RemoteStatusDelayed, fmt.Sprintf(
			"cluster %s changes the status of its pods so often that this cluster writes that of this pod later; it may be older than %s here", p.cfg.Destination, delayPatience))
	}
	return wait
}

func isReady(s *corev1.PodStatus) bool {
	return store.PodCondition(s, corev1.PodReady).Status == corev1.ConditionTrue
}

// tellRefused counts a part of the provider's status that was left out, and records an
// event about it, once for each pod and message.
func (p *Pods) tellRefused(local *corev1.Pod, reason, message string) {
	if !p.isNews(local.UID, reason+message) {
		return
	}
	p.cfg.Refused(reason)
	p.cfg.Recorder.Event(local, corev1.EventTypeWarning, reasons.RemoteStatusRefused, store.ClipMessage(message))
}

func (p *Pods) isNews(uid types.UID, what string) (news bool) {
	p.change(uid, func(r *memo) {
		if news = !r.told[what] && len(r.told) < mostTold; news {
			if r.told == nil {
				r.told = map[string]bool{}
			}
			r.told[what] = true
		}
	})
	return news
}

// Limits of the bytes of statuses that a provider makes this cluster write to its etcd. They are
// counted for a virtual node. The parts for each pod are there because more pods change more often.
// A write also stores the rest of the pod, which the users of this cluster have made: the number of
// writes bounds that.
const (
	// podBytes is free for each pod: enough for its start and its end.
	podBytes = 64 << 10
	// After that the pods share these bytes each minute, and these at once.
	nodeBytesPerMinute, nodeBytesPerMinuteAndPod = 128 << 10, 256
	nodeBytesBurst, nodeBytesBurstOfPod          = 1 << 20, 64 << 10
	// leastCost is the cost of a small status, and containerBytes the size of the status of a container
	// with no more than the local pod makes necessary.
	leastCost, containerBytes = 1 << 10, 1 << 10
	// endpointCost is added for a change of the readiness or the address of a pod, which the
	// EndpointSlices of this cluster follow.
	endpointCost = 8 << 10
)

// urgency says how long a write of a status may wait for others.
type urgency int

const (
	// noise may use half of the budget.
	noise urgency = iota
	// urgent is a change of the phase, of the readiness or the address. The half that noise
	// leaves is for these.
	urgent
	// atOnce is the end of a pod, or of its readiness. Later writes wait for the bytes.
	atOnce
)

func urgencyOf(local *corev1.Pod, want *corev1.PodStatus) urgency {
	switch {
	case offloadingv1beta1.Ended(want.Phase), isReady(&local.Status) && !isReady(want):
		return atOnce
	case local.Status.Phase != want.Phase, movesEndpoints(local, want):
		return urgent
	}
	return noise
}

func movesEndpoints(local *corev1.Pod, want *corev1.PodStatus) bool {
	return isReady(&local.Status) != isReady(want) || local.Status.PodIP != want.PodIP
}

// statusCost returns about how many bytes of a write of the status the provider has made.
func statusCost(local *corev1.Pod, want *corev1.PodStatus) int {
	spec := &local.Spec
	own := containerBytes * (len(spec.InitContainers) + len(spec.Containers) + len(spec.EphemeralContainers))
	cost := max(leastCost, want.Size()-own)
	if movesEndpoints(local, want) {
		cost += endpointCost
	}
	return cost
}

// spent is what counts against a budget and has not been forgotten yet. It is not
// a rate.Limiter, because that one has no more to give when its burst grows with the pods.
type spent struct {
	amount float64
	at     time.Time
}

// wait forgets what perMinute allows since the last call. It returns how long the cost has to wait
// until burst has room for it; 0 means that it has. A cost above burst waits until nothing else counts.
func (s *spent) wait(now time.Time, cost, perMinute, burst float64) time.Duration {
	s.amount = max(0, s.amount-max(0, now.Sub(s.at).Minutes())*perMinute)
	s.at = now
	beyond := s.amount + min(cost, burst) - burst
	if beyond <= 0 {
		return 0
	}
	return time.Duration(beyond/perMinute*float64(time.Minute)) + time.Millisecond
}

// spend takes the bytes of a write from what is free for its pod, or from the budget of the
// node. It returns how long the write has to wait instead; 0 means that it is counted. The
// caller holds mu.
func (p *Pods) spend(r *memo, now time.Time, cost int, u urgency) time.Duration {
	if r.bytes+cost <= podBytes {
		r.bytes += cost
		return 0
	}
	pods := len(p.memos)
	perMinute, burst := float64(nodeBytesPerMinute+nodeBytesPerMinuteAndPod*pods), float64(nodeBytesBurst+nodeBytesBurstOfPod*pods)
	soonest := time.Second
	if u == noise {
		soonest, burst = statusInterval, burst/2
	}
	if wait := p.spent.wait(now, float64(cost), perMinute, burst); wait > 0 && u != atOnce {
		return max(soonest, wait)
	}
	p.spent.amount += min(float64(cost), burst)
	return 0
}

// readiness returns the status of the Ready condition. The node controller sets it to
// Unknown when the vkubelet has stopped reporting. It is "" before the first report, and without a Node.
func readiness(n *corev1.Node) corev1.ConditionStatus {
	if n == nil {
		return ""
	}
	return store.NodeCondition(&n.Status, corev1.NodeReady).Status
}

// networkDown reports whether a virtual node has no network to its provider. While that is
// unknown, the node has the last known state or says Unknown, and Unknown is not down.
func networkDown(n *corev1.Node) bool {
	return n != nil && store.NodeCondition(&n.Status, corev1.NodeNetworkUnavailable).Status == corev1.ConditionTrue
}

// boundSince returns when the pod was bound to its node, as far as it is known.
func boundSince(local *corev1.Pod) time.Time {
	if c := store.PodCondition(&local.Status, corev1.PodScheduled); c.Status == corev1.ConditionTrue {
		return c.LastTransitionTime.Time
	}
	return local.CreationTimestamp.Time
}
