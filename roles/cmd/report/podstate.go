package report

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/utils/ptr"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/reasons"
	"github.com/liqod/liqod/shadow/rules"
)

// podState is how far a pod has come.
type podState string

const (
	podReady         podState = "ready"
	podNotReady      podState = "not ready"
	podRefused       podState = "refused"
	podUnschedulable podState = "unschedulable there"
	podWaiting       podState = "waiting"
	podEnded         podState = "ended"
)

// settling is the age up to which a pod with a warning counts as starting.
const settling = time.Minute

// checkID is the check that finds pods in a state.
func (p podState) checkID() ID {
	return cmp.Or(map[podState]ID{podRefused: idRefused, podUnschedulable: idUnschedulable, podWaiting: idWaiting}[p], idNotReady)
}

// podVerdict is the state of one pod, and its cause in the words of the cluster that reports it.
type podVerdict struct {
	state           podState
	level           Level
	reason, message string
	// pvc is the claim that the pod waits for, if that is the cause.
	pvc string
	// silent says that the status of the pod has no cause.
	silent bool
}

// judge returns the state of a pod. Everything that liqod shows about a pod follows from it.
func (s *Snapshot) judge(pod *corev1.Pod) podVerdict {
	if ended(pod) {
		return endOf(pod)
	}
	if pod.Spec.NodeName == "" {
		return s.unscheduled(pod)
	}
	ready := podCondition(pod, corev1.PodReady)
	if pod.DeletionTimestamp != nil {
		v := podVerdict{state: podNotReady, reason: offloadingv1beta1.ReasonTerminating, message: "it is being deleted"}
		v.level = s.levelSince(pod.DeletionTimestamp.Time, Problem, reasons.Entry(kindPod, v.reason))
		if v.level != OK {
			v.message += " for " + duration.HumanDuration(s.Taken.Sub(pod.DeletionTimestamp.Time))
		}
		return v
	}
	switch {
	case PodReady(pod):
		return podVerdict{state: podReady, level: OK}
	case pod.Status.Phase == corev1.PodPending && pod.Status.Reason != "":
		return s.withheld(pod)
	case ready.Reason == corev1.PodReasonUnschedulable:
		return s.claimed(pod, podVerdict{state: podUnschedulable, level: Problem, reason: ready.Reason, message: ready.Message})
	case ready.Reason == reasons.NodeNotReady, ready.Reason == reasons.NetworkUnavailable:
		return podVerdict{state: podNotReady, level: Problem, reason: ready.Reason, message: ready.Message}
	}
	if reason, message := containerCause(pod); reason != "" {
		return podVerdict{state: podNotReady, level: Problem, reason: reason, message: message}
	}
	return s.silent(pod, ready)
}

// endOf judges a pod that has ended. It needs nothing more from a cluster: a failed pod is a
// warning.
func endOf(pod *corev1.Pod) podVerdict {
	if pod.Status.Phase == corev1.PodSucceeded {
		return podVerdict{state: podEnded, level: OK, reason: reasons.Completed}
	}
	return podVerdict{state: podEnded, level: Warning, reason: cmp.Or(pod.Status.Reason, reasons.Failed), message: Trouble(pod)}
}

// unscheduled judges a pod without a node.
func (s *Snapshot) unscheduled(pod *corev1.Pod) podVerdict {
	scheduled := podCondition(pod, corev1.PodScheduled)
	switch {
	case scheduled.Status != corev1.ConditionFalse:
		return s.claimed(pod, s.warned(pod, podVerdict{state: podWaiting, level: s.levelSince(pod.CreationTimestamp.Time, Problem, reasons.Entry(kindPod, reasons.NotScheduled)),
			reason: reasons.NotScheduled, message: "no scheduler has given it a node", silent: true}))
	case scheduled.Reason == corev1.PodReasonSchedulingGated:
		return podVerdict{state: podWaiting, level: OK, reason: scheduled.Reason, message: scheduled.Message}
	}
	v := podVerdict{state: podWaiting, level: Problem, reason: scheduled.Reason, message: scheduled.Message}
	if s.asksInVain(pod) {
		v.message = "it asks for virtual nodes, and its namespace is not offloaded: " + v.message
	}
	return s.claimed(pod, v)
}

// asksInVain reports whether a pod selects virtual nodes although its namespace lets no pod go there.
func (s *Snapshot) asksInVain(pod *corev1.Pod) bool {
	o := s.offloadingOf(pod.Namespace)
	return s.Unread[ReadOffloadings] == nil && selectsVirtualNodes(pod) && (o == nil || o.Spec.PodOffloadingStrategy == offloadingv1beta1.PodsLocal)
}

// withheld judges a pod that is on a virtual node, and that the provider does not have.
func (s *Snapshot) withheld(pod *corev1.Pod) podVerdict {
	r := reasons.Entry(kindPod, pod.Status.Reason)
	v := podVerdict{state: podRefused, level: s.levelSince(lastChange(pod), Problem, r), reason: pod.Status.Reason, message: pod.Status.Message}
	if r.Waits {
		v.state = podWaiting
	}
	return v
}

// silent judges a pod that runs or starts, and whose status has no cause.
func (s *Snapshot) silent(pod *corev1.Pod, ready *corev1.PodCondition) podVerdict {
	v := podVerdict{state: podNotReady, level: s.levelSince(lastChange(pod), Problem, reasons.Entry(kindPod, reasons.NotReady)), reason: reasons.NotReady, message: "it has not become ready", silent: true}
	if ready.Reason != "" {
		v.reason, v.message = ready.Reason, ready.Message
	}
	return s.warned(pod, v)
}

// warned gives a verdict the cause that the last warning about the pod has, if there is one.
func (s *Snapshot) warned(pod *corev1.Pod, v podVerdict) podVerdict {
	e := s.warning(pod)
	if e == nil || EventTime(e).Before(since(pod).Add(-leadTime)) {
		return v
	}
	v.reason, v.message = e.Reason, e.Message
	if s.Taken.Sub(pod.CreationTimestamp.Time) > settling {
		v.level = Problem
	}
	return v
}

// lastChange is the time at which a pod became unready, or was created.
func lastChange(pod *corev1.Pod) time.Time {
	if c := podCondition(pod, corev1.PodReady); c.LastTransitionTime.After(pod.CreationTimestamp.Time) {
		return c.LastTransitionTime.Time
	}
	return pod.CreationTimestamp.Time
}

// leadTime is how long before a state the last warning about its cause may be, such as that of a probe.
const leadTime = 10 * time.Second

// since is when the state of a pod that is not ready began: when it became unready, or when its last
// container started after that. What was wrong before has passed.
func since(pod *corev1.Pod) time.Time {
	at := lastChange(pod)
	for _, c := range containers(pod) {
		if r := c.State.Running; r != nil && r.StartedAt.After(at) {
			at = r.StartedAt.Time
		}
	}
	return at
}

// podCondition returns a condition of a pod; an empty one if it has none.
func podCondition(pod *corev1.Pod, kind corev1.PodConditionType) *corev1.PodCondition {
	return cmp.Or(first(pod.Status.Conditions, func(c *corev1.PodCondition) bool { return c.Type == kind }), &corev1.PodCondition{})
}

// PodReady reports whether a pod is Ready.
func PodReady(pod *corev1.Pod) bool {
	return podCondition(pod, corev1.PodReady).Status == corev1.ConditionTrue
}

// containerCause returns the failure of the first container that has one, and in message those of all. A
// reason other than the first one is part of the message.
func containerCause(pod *corev1.Pod) (reason, message string) {
	for _, c := range containers(pod) {
		its, why := failure(&c)
		switch {
		case its == "":
		case reason == "":
			reason, message = its, fmt.Sprintf("container %s: %s", c.Name, why)
		case its == reason:
			message += fmt.Sprintf("; container %s: %s", c.Name, why)
		default:
			message += fmt.Sprintf("; container %s (%s): %s", c.Name, its, why)
		}
	}
	return reason, message
}

// Trouble returns what has ended a pod, or keeps it from running: the message of its status, or else the failures of
// its containers. It is empty if nothing says so.
func Trouble(pod *corev1.Pod) string {
	_, message := containerCause(pod)
	return cmp.Or(pod.Status.Message, message)
}

// containers are the states of a pod's containers, in the order in which they start.
func containers(pod *corev1.Pod) []corev1.ContainerStatus {
	return slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses)
}

// failedOf returns the first container that has a failure, or nil.
func failedOf(pod *corev1.Pod) *corev1.ContainerStatus {
	return first(containers(pod), func(c *corev1.ContainerStatus) bool {
		reason, _ := failure(c)
		return reason != ""
	})
}

// failure returns the reason why a container does not run; empty for one that runs, starts or
// has ended well.
func failure(c *corev1.ContainerStatus) (reason, message string) {
	if w := c.State.Waiting; w != nil {
		switch w.Reason {
		case "", reasons.ContainerCreating, reasons.PodInitializing, reasons.RemotePodTerminating, reasons.RemotePodMissing:
			return "", ""
		}
		message = cmp.Or(w.Message, w.Reason)
		// Only a back-off is about the container before.
		if t := c.LastTerminationState.Terminated; t != nil && w.Reason == reasons.CrashLoopBackOff {
			message = fmt.Sprintf("%s; it was started %s", ending(t), Count(int(c.RestartCount)+1, "time"))
		}
		return w.Reason, message
	}
	if t := c.State.Terminated; t != nil && t.ExitCode != 0 {
		return cmp.Or(t.Reason, "Error"), ending(t)
	}
	return "", ""
}

func ending(t *corev1.ContainerStateTerminated) string {
	text := fmt.Sprintf("it ended with exit code %d", t.ExitCode)
	if t.Reason != "" {
		text += " (" + t.Reason + ")"
	}
	if t.Message != "" {
		text += ": " + t.Message
	}
	return text
}

// warning is the newest warning about a pod or a claim, or nil.
func (s *Snapshot) warning(obj metav1.Object) *corev1.Event {
	all := where(s.Events, func(e *corev1.Event) bool {
		return e.Type == corev1.EventTypeWarning && e.InvolvedObject.Namespace == obj.GetNamespace() && e.InvolvedObject.Name == obj.GetName() && e.InvolvedObject.UID == obj.GetUID()
	})
	if len(all) == 0 {
		return nil
	}
	return slices.MaxFunc(all, func(a, b *corev1.Event) int { return EventTime(a).Compare(EventTime(b)) })
}

// EventTime is when an event happened last.
func EventTime(e *corev1.Event) time.Time {
	series := cmp.Or(e.Series, &corev1.EventSeries{})
	return cmp.Or(series.LastObservedTime.Time, e.LastTimestamp.Time, e.EventTime.Time, e.FirstTimestamp.Time, e.CreationTimestamp.Time)
}

// Unexplained returns the namespaces of pods that are not ready, and whose status has no cause. Their events have it.
func (s *Snapshot) Unexplained() []string {
	return s.namespacesOf(func(pod placedPod) bool { return pod.verdict.silent })
}

// Claiming returns the namespaces of pods that wait, and that have claims.
func (s *Snapshot) Claiming() []string {
	return s.namespacesOf(func(pod placedPod) bool {
		return len(claimsOf(pod.Pod)) > 0 && (pod.verdict.state == podWaiting || pod.verdict.state == podUnschedulable)
	})
}

// namespacesOf returns the namespaces with pods that a function selects, of those that providers run or are to run.
func (s *Snapshot) namespacesOf(is func(placedPod) bool) []string {
	return Names(s.workloads(), func(pod *placedPod) string {
		if is(*pod) {
			return pod.Namespace
		}
		return ""
	})
}

// claimed gives a verdict on a waiting pod the cause that one of its claims has, if there is one.
func (s *Snapshot) claimed(pod *corev1.Pod, v podVerdict) podVerdict {
	c := s.claimCause(pod)
	if c == nil {
		return v
	}
	v.state, v.reason, v.message, v.pvc, v.silent = podWaiting, c.reason, fmt.Sprintf("PersistentVolumeClaim %s %s", c.pvc, c.message), c.pvc, false
	v.level = s.levelSince(pod.CreationTimestamp.Time, Problem, reasons.Entry(kindClaim, c.reason), reasons.Entry(kindClaim, "*"))
	return v
}

// recent is the age up to which a warning about a claim counts.
const recent = time.Hour

// claimCause is why a claim keeps its pod from running.
type claimCause struct{ pvc, reason, message string }

// claimCause returns the first of a pod's claims that keeps it from running, or nil. It is nil for
// claims that could not be read.
func (s *Snapshot) claimCause(pod *corev1.Pod) *claimCause {
	if s.Claims == nil {
		return nil
	}
	for _, name := range claimsOf(pod) {
		claim := s.claimNamed(pod.Namespace, name)
		if claim == nil {
			return &claimCause{pvc: name, reason: reasons.ClaimMissing, message: "does not exist"}
		}
		if c := s.causeOf(pod, claim); c != nil {
			c.pvc = name
			return c
		}
	}
	return nil
}

// claimNamed returns a claim that was read, or nil.
func (s *Snapshot) claimNamed(namespace, name string) *corev1.PersistentVolumeClaim {
	return first(s.Claims, func(c *corev1.PersistentVolumeClaim) bool { return c.Namespace == namespace && c.Name == name })
}

func (s *Snapshot) causeOf(pod *corev1.Pod, pvc *corev1.PersistentVolumeClaim) *claimCause {
	class := rules.ClaimClass(pvc, s.Classes)
	of := fmt.Sprintf("(class %q)", class)
	own, _ := rules.OnOwnNodesOnly(pvc, nil, s.Classes)
	node := cmp.Or(pod.Spec.NodeName, pvc.Annotations[SelectedNode])
	virtual, bound := s.providerOf(node) != "", pvc.Status.Phase == corev1.ClaimBound
	known := slices.IndexFunc(s.Classes, func(c *storagev1.StorageClass) bool { return c.Name == class })
	if len(s.Classes) > 0 && virtual && own {
		return &claimCause{reason: reasons.ClaimNeedsOwnNode, message: fmt.Sprintf(
			"%s has its volume on nodes of this cluster only, and the scheduler has chosen virtual node %s of cluster %s", of, node, s.providerOf(node))}
	}
	switch e := s.warning(pvc); {
	case bound:
		return s.drawn(pod, pvc, of)
	case pvc.Status.Phase == corev1.ClaimLost:
		return &claimCause{reason: reasons.ClaimLost, message: of + " has lost its volume " + pvc.Spec.VolumeName}
	case known < 0 && class != "" && len(s.Classes) > 0:
		return &claimCause{reason: reasons.StorageClassMissing, message: fmt.Sprintf("has the class %q, which does not exist: it waits for a volume that somebody makes", class)}
	case e != nil && s.Taken.Sub(EventTime(e)) < recent:
		return &claimCause{reason: e.Reason, message: of + ": " + e.Message}
	case class == "" && pvc.Spec.VolumeName == "" && len(s.Classes) > 0:
		return &claimCause{reason: reasons.StorageClassMissing, message: "names no class, and this cluster has no default one: it waits for a volume that somebody makes"}
	case known >= 0 && node == "" && ptr.Deref(s.Classes[known].VolumeBindingMode, "") == storagev1.VolumeBindingWaitForFirstConsumer:
		return s.nowhere(pod, of, own) // else the claim is not the cause
	case known >= 0 && virtual:
		return &claimCause{reason: reasons.ClaimPending, message: fmt.Sprintf("%s waits for its volume in cluster %s", of, s.providerOf(node))}
	}
	return &claimCause{reason: reasons.ClaimPending, message: of + " waits for its volume"}
}

// claimsOf are the names of the claims that a pod uses. API servers do not check what a pod says there.
func claimsOf(pod *corev1.Pod) (names []string) {
	for _, v := range pod.Spec.Volumes {
		switch {
		case v.PersistentVolumeClaim != nil:
			names = append(names, v.PersistentVolumeClaim.ClaimName)
		case v.Ephemeral != nil:
			names = append(names, pod.Name+"-"+v.Name)
		}
	}
	return names
}

// stateReady is the word for the state of a pod that serves.
const stateReady = "Ready"

// Pod is a pod as status judges it. The page of dashboard has the fields with a name in JSON.
type Pod struct {
	Level Level  `json:"level"`
	Name  string `json:"name"`
	// Node is empty for a pod without one.
	Node string `json:"node"`
	// State is one word, and Why the cause in the words of the cluster that reports it.
	State string `json:"state"`
	Why   string `json:"why"`
	// Peer runs the pod. It is empty for a pod without a node, and for one on a node of this
	// cluster. Origin is the peer that has the pod, if it is one of a peer.
	Peer, Origin string `json:"-"`
	// Ready pods serve. Ended ones do not run any more. Judged says that the pod is one of those that
	// status counts: it has not ended, and a provider runs it or may get it.
	Ready, Ended, Judged bool `json:"-"`
}

// PodsOf returns the pods of a namespace in the order of the snapshot. Without Whole, the snapshot
// lacks those on nodes of this cluster.
func (s *Snapshot) PodsOf(namespace string) (out []Pod) {
	for _, pod := range where(s.Pods, func(pod *corev1.Pod) bool { return pod.Namespace == namespace }) {
		v := s.judge(pod)
		shown := Pod{
			Name: pod.Name, Node: pod.Spec.NodeName, Peer: s.providerOf(pod.Spec.NodeName), Level: v.level, State: v.reason, Why: v.message,
			Ready: v.state == podReady, Ended: v.state == podEnded, Origin: origin(pod), Judged: v.state != podEnded && s.concerns(pod),
		}
		if shown.Ready {
			shown.State = stateReady
		}
		out = append(out, shown)
	}
	return out
}

// origin is the peer that has a pod of this cluster; empty for other pods.
func origin(pod *corev1.Pod) string {
	if pod.Labels[offloadingv1beta1.ManagedByLabel] != offloadingv1beta1.ManagedByShadowPod {
		return ""
	}
	return pod.Labels[offloadingv1beta1.OriginLabel]
}

func ended(pod *corev1.Pod) bool {
	return offloadingv1beta1.Ended(pod.Status.Phase)
}
