package report

import corev1 "k8s.io/api/core/v1"

// stateReady is the word for the state of a pod that serves.
const stateReady = "Ready"

// Pod is a pod as status judges it.
type Pod struct {
	Name string
	// Node is empty for a pod without one.
	Node string
	// Peer runs the pod. It is empty for a pod without a node, and for one on a node of this
	// cluster.
	Peer  string
	Level Level
	// State is one word, and Why the cause in the words of the cluster that reports it.
	State, Why string
	// Ready pods serve. Ended ones do not run any more.
	Ready, Ended bool
	// Judged says that the pod is one of those that status counts: it has not ended, and a
	// provider runs it or may get it.
	Judged bool
}

// PodsOf returns the pods of a namespace in the order of the snapshot. Without Whole, the snapshot
// lacks those on nodes of this cluster.
func (s *Snapshot) PodsOf(namespace string) (out []Pod) {
	for i := range s.Pods {
		if pod := &s.Pods[i]; pod.Namespace == namespace {
			out = append(out, s.shown(pod))
		}
	}
	return out
}

func (s *Snapshot) shown(pod *corev1.Pod) Pod {
	v := s.judge(pod)
	out := Pod{
		Name: pod.Name, Node: pod.Spec.NodeName, Peer: s.providerOf(pod.Spec.NodeName), Level: v.level, State: v.reason, Why: v.message,
		Ready: v.state == podReady, Ended: v.state == podEnded,
	}
	if out.Ready {
		out.State = stateReady
	}
	out.Judged = !out.Ended && s.concerns(pod)
	return out
}
