package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
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

// settling is the age up to which a pod without a known failure counts as starting. Beyond
// slow it is a problem.
const settling = time.Minute

// Reasons of this package for pods whose status has none.
const (
	reasonNotScheduled = "NotScheduled"
	reasonStarting     = "NotReady"
	reasonTerminating  = "Terminating"
	reasonCompleted    = "Completed"
	reasonFailed       = "Failed"
)

// Reasons that vkubelets write into the Ready condition of pods that run.
const (
	reasonNodeNotReady       = "NodeNotReady"
	reasonNetworkUnavailable = "NetworkUnavailable"
	// Containers that the provider is going to start have these, too.
	reasonRemotePodTerminating = "RemotePodTerminating"
	reasonRemotePodMissing     = "RemotePodMissing"
)

// podVerdict is the state of one pod, and its cause in the words of the cluster that reports it.
type podVerdict struct {
	state           podState
	level           Level
	reason, message string
	// silent says that the status of the pod has no cause.
	silent bool
}

// waits are the reasons of Pending pods on virtual nodes that end without a change of the pod.
// The value says whether a person has to act.
var waits = map[string]bool{
	offloadingv1beta1.ReasonQuotaExceeded:     true,
	offloadingv1beta1.ReasonQuotaCordoned:     true,
	offloadingv1beta1.ReasonRemotePodKept:     true,
	offloadingv1beta1.ReasonControllerSilent:  true,
	offloadingv1beta1.ReasonOffloadingBackOff: false,
	"TwinNamespaceTerminating":                false,
	"ShadowPodTaken":                          false,
	"RemoteVolumeTaken":                       false,
	"HomeAPIServerUnknown":                    false,
	string(corev1.NamespaceTerminatingCause):  false,
}

// judge returns the state of a pod. Everything that liqod shows about a pod follows from it.
func (s *Snapshot) judge(pod *corev1.Pod) podVerdict {
	if ended(pod) {
		return endOf(pod)
	}
	if pod.Spec.NodeName == "" {
		return s.unscheduled(pod)
	}
	ready := PodCondition(pod, corev1.PodReady)
	if pod.DeletionTimestamp != nil {
		return podVerdict{state: podNotReady, level: s.overdue(pod.DeletionTimestamp.Time), reason: reasonTerminating,
			message: "it is being deleted for " + duration.HumanDuration(s.Taken.Sub(pod.DeletionTimestamp.Time))}
	}
	switch {
	case ready != nil && ready.Status == corev1.ConditionTrue:
		return podVerdict{state: podReady, level: OK}
	case pod.Status.Phase == corev1.PodPending && pod.Status.Reason != "":
		return s.withheld(pod)
	case ready != nil && ready.Reason == corev1.PodReasonUnschedulable:
		return podVerdict{state: podUnschedulable, level: Problem, reason: ready.Reason, message: ready.Message}
	case ready != nil && (ready.Reason == reasonNodeNotReady || ready.Reason == reasonNetworkUnavailable):
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
		return podVerdict{state: podEnded, level: OK, reason: reasonCompleted}
	}
	v := podVerdict{state: podEnded, level: Warning, reason: cmp.Or(pod.Status.Reason, reasonFailed), message: pod.Status.Message}
	if v.message == "" {
		_, v.message = containerCause(pod)
	}
	return v
}

// unscheduled judges a pod without a node.
func (s *Snapshot) unscheduled(pod *corev1.Pod) podVerdict {
	scheduled := PodCondition(pod, corev1.PodScheduled)
	switch {
	case scheduled == nil || scheduled.Status != corev1.ConditionFalse:
		return s.warned(pod, podVerdict{state: podWaiting, level: s.overdue(pod.CreationTimestamp.Time), reason: reasonNotScheduled,
			message: "no scheduler has given it a node", silent: true})
	case scheduled.Reason == corev1.PodReasonSchedulingGated:
		return podVerdict{state: podWaiting, level: OK, reason: scheduled.Reason, message: scheduled.Message}
	}
	return podVerdict{state: podWaiting, level: Problem, reason: scheduled.Reason, message: scheduled.Message}
}

// withheld judges a pod that is on a virtual node, and that the provider does not have.
func (s *Snapshot) withheld(pod *corev1.Pod) podVerdict {
	v := podVerdict{state: podRefused, level: Problem, reason: pod.Status.Reason, message: pod.Status.Message}
	if act, waiting := waits[pod.Status.Reason]; waiting {
		v.state = podWaiting
		if !act {
			v.level = s.overdue(lastChange(pod))
		}
	}
	return v
}

// silent judges a pod that runs or starts, and whose status has no cause.
func (s *Snapshot) silent(pod *corev1.Pod, ready *corev1.PodCondition) podVerdict {
	v := podVerdict{state: podNotReady, level: s.overdue(lastChange(pod)), reason: reasonStarting, message: "it has not become ready", silent: true}
	if ready != nil && ready.Reason != "" {
		v.reason, v.message = ready.Reason, ready.Message
	}
	return s.warned(pod, v)
}

// warned gives a verdict the cause that the last warning about the pod has, if there is one.
func (s *Snapshot) warned(pod *corev1.Pod, v podVerdict) podVerdict {
	e := s.warning(pod)
	if e == nil {
		return v
	}
	v.reason, v.message = e.Reason, e.Message
	if s.Taken.Sub(pod.CreationTimestamp.Time) > settling {
		v.level = Problem
	}
	return v
}

// overdue is the level of a state that should pass, and that began at a time.
func (s *Snapshot) overdue(since time.Time) Level {
	switch age := s.Taken.Sub(since); {
	case age > slow:
		return Problem
	case age > settling:
		return Warning
	}
	return OK
}

// lastChange is the time at which a pod became unready, or was created.
func lastChange(pod *corev1.Pod) time.Time {
	if c := PodCondition(pod, corev1.PodReady); c != nil && c.LastTransitionTime.After(pod.CreationTimestamp.Time) {
		return c.LastTransitionTime.Time
	}
	return pod.CreationTimestamp.Time
}

// PodCondition returns a condition of a pod, or nil.
func PodCondition(pod *corev1.Pod, kind corev1.PodConditionType) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == kind {
			return &pod.Status.Conditions[i]
		}
	}
	return nil
}

// containerCause returns the failure of the first container that has one.
func containerCause(pod *corev1.Pod) (reason, message string) {
	for _, set := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for i := range set {
			if reason, message = failure(&set[i]); reason != "" {
				return reason, fmt.Sprintf("container %s: %s", set[i].Name, message)
			}
		}
	}
	return "", ""
}

// failure returns the reason why a container does not run; empty for one that runs, starts or
// has ended well.
func failure(c *corev1.ContainerStatus) (reason, message string) {
	if w := c.State.Waiting; w != nil {
		switch w.Reason {
		case "", "ContainerCreating", "PodInitializing", reasonRemotePodTerminating, reasonRemotePodMissing:
			return "", ""
		}
		message = w.Message
		if t := c.LastTerminationState.Terminated; t != nil {
			message = fmt.Sprintf("%s; it was started %s", ending(t), times(int(c.RestartCount)+1))
		}
		if message == "" {
			message = w.Reason
		}
		return w.Reason, message
	}
	if t := c.State.Terminated; t != nil && t.ExitCode != 0 {
		reason = t.Reason
		if reason == "" {
			reason = "Error"
		}
		return reason, ending(t)
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

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

// warning is the newest warning about a pod, or nil.
func (s *Snapshot) warning(pod *corev1.Pod) *corev1.Event {
	var last *corev1.Event
	for i := range s.Events {
		e := &s.Events[i]
		if e.Type != corev1.EventTypeWarning || e.InvolvedObject.Namespace != pod.Namespace || e.InvolvedObject.Name != pod.Name || e.InvolvedObject.UID != pod.UID {
			continue
		}
		if last == nil || eventTime(e).After(eventTime(last)) {
			last = e
		}
	}
	return last
}

func eventTime(e *corev1.Event) time.Time {
	for _, t := range []time.Time{e.LastTimestamp.Time, e.EventTime.Time, e.FirstTimestamp.Time} {
		if !t.IsZero() {
			return t
		}
	}
	return e.CreationTimestamp.Time
}

// Unexplained returns the namespaces of pods that are not ready, and whose status has no cause. Their events have it.
func (s *Snapshot) Unexplained() []string {
	found := map[string]bool{}
	for i := range s.Pods {
		if pod := &s.Pods[i]; !ended(pod) && s.concerns(pod) && s.judge(pod).silent {
			found[pod.Namespace] = true
		}
	}
	return slices.Sorted(maps.Keys(found))
}
