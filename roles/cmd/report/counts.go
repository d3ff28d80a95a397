package report

import (
	"fmt"
	"strings"
)

// PodCounts has the pods of a namespace that have not ended, by state.
type PodCounts struct {
	// Pods is the number of all of them.
	Pods int `json:"pods"`
	// Ready pods serve.
	Ready int `json:"ready"`
	// NotReady pods start, fail or end.
	NotReady int `json:"notReady"`
	// Refused pods are not accepted by the provider, or cannot be offloaded.
	Refused int `json:"refused"`
	// Unschedulable pods fit no node of the provider.
	Unschedulable int `json:"unschedulable"`
	// Waiting pods wait for a node of this cluster, or for room in the provider.
	Waiting int `json:"waiting"`
	// Cause is the first cause of those that are not ready, in the words of the cluster that
	// reports it.
	Cause string `json:"cause,omitempty"`
}

func countPods(pods []placedPod) (out PodCounts) {
	worst := OK
	for _, pod := range pods {
		out.Pods++
		switch pod.verdict.state {
		case podReady:
			out.Ready++
		case podRefused:
			out.Refused++
		case podUnschedulable:
			out.Unschedulable++
		case podWaiting:
			out.Waiting++
		default:
			out.NotReady++
		}
		if level := pod.verdict.level; level.Rank() > worst.Rank() {
			worst = level
			out.Cause = clip(fmt.Sprintf("%s: %s: %s", pod.Name, pod.verdict.reason, pod.verdict.message))
		}
	}
	return out
}

// String is "3 pods" if all are ready, else it has the number of each state.
func (c PodCounts) String() string {
	if c.Ready == c.Pods {
		return Count(c.Pods, "pod")
	}
	var parts []string
	for _, part := range []struct {
		n     int
		state podState
	}{{c.NotReady, podNotReady}, {c.Refused, podRefused}, {c.Unschedulable, podUnschedulable}, {c.Waiting, podWaiting}} {
		if part.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", part.n, part.state))
		}
	}
	return fmt.Sprintf("%d of %s ready (%s)", c.Ready, Count(c.Pods, "pod"), strings.Join(parts, ", "))
}
