package dashboard

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/roles/cmd/report"
)

// shownPods is how many pods of a namespace the page lists, those in trouble first.
const shownPods = 100

// Namespace is an offloaded namespace, and where its pods run.
type Namespace struct {
	Name     Text         `json:"name"`
	Level    report.Level `json:"level"`
	Strategy Text         `json:"strategy"`
	Phase    Text         `json:"phase"`
	Message  Text         `json:"message"`
	Remote   Text         `json:"remote"`
	Places   []Place      `json:"places"`
	// Broken is how many pods are in trouble.
	Broken int `json:"broken"`
	// Waiting is how many others are not ready: they start, end, or have lost their cluster.
	Waiting int   `json:"waiting"`
	Pods    []Pod `json:"pods"`
	// More is how many pods are not in Pods.
	More int `json:"more"`
	// Unread says that the pods could not be read.
	Unread bool `json:"unread"`
}

// Kinds of places.
const (
	placeHere    = "here"
	placePeer    = "peer"
	placeNowhere = "nowhere"
)

// Place is where pods run: this cluster, a peer, or no node yet.
type Place struct {
	Kind  string `json:"kind"`
	Name  Text   `json:"name"`
	Pods  int    `json:"pods"`
	Ready int    `json:"ready"`
	// Note says why the namespace is not ready there.
	Note Text `json:"note"`
}

// Pod is a pod of an offloaded namespace.
type Pod struct {
	Level report.Level `json:"level"`
	Name  Text         `json:"name"`
	Place Text         `json:"place"`
	Node  Text         `json:"node"`
	State Text         `json:"state"`
	Why   Text         `json:"why"`
}

func namespace(p *picture, from *report.Namespace, findings []report.Finding) Namespace {
	out := Namespace{
		Name: Text(from.Name), Strategy: Text(from.Strategy), Phase: Text(from.Phase), Message: Text(from.Message), Remote: Text(from.RemoteName),
		Level: namespaceLevel(from, findings), Places: []Place{{Kind: placeHere, Name: Text(p.ClusterID)}}, Pods: []Pod{},
	}
	for _, in := range from.Peers {
		place := Place{Kind: placePeer, Name: Text(in.ClusterID)}
		if !in.Ready {
			place.Note = Text(cmp.Or(in.Message, "not ready there"))
		}
		out.Places = append(out.Places, place)
	}
	pods, ok := p.pods[from.Name]
	if !ok {
		out.Unread = true
		out.Level = report.Worse(out.Level, report.Unknown)
		return out
	}
	for i := range pods {
		out.count(p, &pods[i])
	}
	slices.SortStableFunc(out.Pods, func(a, b Pod) int {
		return cmp.Or(cmp.Compare(b.Level.Rank(), a.Level.Rank()), cmp.Compare(a.Name, b.Name))
	})
	if len(out.Pods) > shownPods {
		out.More = len(out.Pods) - shownPods
		out.Pods = out.Pods[:shownPods]
	}
	return out
}

// namespaceLevel is how well the offloading of a namespace is, apart from its pods.
func namespaceLevel(from *report.Namespace, findings []report.Finding) report.Level {
	for _, f := range findings {
		if f.Subject == "namespace "+from.Name && f.Peer == "" {
			return f.Level
		}
	}
	switch from.Phase {
	case offloadingv1beta1.PhaseReady:
		return report.OK
	case offloadingv1beta1.PhaseInProgress, offloadingv1beta1.PhaseTerminating:
		return report.Warning
	case "":
		return report.Unknown
	}
	return report.Problem
}

// count adds a pod to the place where it runs.
func (n *Namespace) count(p *picture, pod *corev1.Pod) {
	level, state, why := podState(pod)
	kind, name := p.place(pod)
	shown := Pod{Level: level, Name: Text(pod.Name), Place: Text(name), Node: Text(pod.Spec.NodeName), State: Text(state), Why: Text(why)}
	n.Pods = append(n.Pods, shown)
	n.Level = report.Worse(n.Level, level)
	switch level {
	case report.Problem:
		n.Broken++
	case report.Warning:
		n.Waiting++
	}
	if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return
	}
	i := slices.IndexFunc(n.Places, func(place Place) bool { return place.Kind == kind && place.Name == Text(name) })
	if i < 0 {
		i = len(n.Places)
		n.Places = append(n.Places, Place{Kind: kind, Name: Text(name)})
	}
	n.Places[i].Pods++
	if state == stateReady {
		n.Places[i].Ready++
	}
}

// place says where a pod runs.
func (p *picture) place(pod *corev1.Pod) (kind, name string) {
	if pod.Spec.NodeName == "" {
		return placeNowhere, "no node yet"
	}
	for i := range p.VirtualNodes {
		if p.VirtualNodes[i].Name == pod.Spec.NodeName {
			return placePeer, p.VirtualNodes[i].Spec.ClusterID
		}
	}
	return placeHere, p.ClusterID
}

// stateReady is the state of a pod that runs and is ready.
const stateReady = "Ready"

// podState says how a pod is, in the words of kubectl, and why.
func podState(pod *corev1.Pod) (level report.Level, state, why string) {
	ready := report.PodCondition(pod, corev1.PodReady)
	scheduled := report.PodCondition(pod, corev1.PodScheduled)
	waiting := firstTrouble(pod)
	switch {
	case pod.Status.Phase == corev1.PodSucceeded:
		return report.OK, "Completed", ""
	case pod.Status.Phase == corev1.PodFailed:
		return report.Problem, cmp.Or(pod.Status.Reason, "Failed"), pod.Status.Message
	case pod.DeletionTimestamp != nil:
		return report.Warning, "Terminating", pod.Status.Message
	case waiting != nil:
		return report.Problem, waiting.Reason, waiting.Message
	case pod.Spec.NodeName == "" && scheduled != nil && scheduled.Status == corev1.ConditionFalse:
		return report.Problem, cmp.Or(scheduled.Reason, "Unschedulable"), scheduled.Message
	case pod.Status.Phase == corev1.PodPending && pod.Status.Reason != "":
		return report.Problem, pod.Status.Reason, pod.Status.Message
	case ready != nil && ready.Status == corev1.ConditionTrue:
		return report.OK, stateReady, ""
	case ready != nil && pod.Status.Phase == corev1.PodRunning:
		return report.Warning, "NotReady", cmp.Or(ready.Message, ready.Reason)
	}
	return report.Warning, "Pending", pod.Status.Message
}

// firstTrouble is the first container that waits for something other than its start.
func firstTrouble(pod *corev1.Pod) *corev1.ContainerStateWaiting {
	for _, list := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for i := range list {
			w := list[i].State.Waiting
			if w == nil || w.Reason == "" || w.Reason == "ContainerCreating" || w.Reason == "PodInitializing" {
				continue
			}
			message := w.Message
			if ended := list[i].LastTerminationState.Terminated; message == "" && ended != nil {
				message = fmt.Sprintf("container %s ended with code %d", list[i].Name, ended.ExitCode)
			}
			return &corev1.ContainerStateWaiting{Reason: w.Reason, Message: message}
		}
	}
	return nil
}
