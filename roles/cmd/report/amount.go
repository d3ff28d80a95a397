package report

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// bytesUnit is the unit of all amounts of bytes.
const bytesUnit = "Gi"

// mostPercent limits what Percent returns.
const mostPercent = 999

// Amount is a quantity of a resource as people read it: bytes in Gi, everything else in units.
func Amount(name corev1.ResourceName, q resource.Quantity) string {
	switch {
	case name == corev1.ResourceMemory, name == corev1.ResourceStorage, name == corev1.ResourceEphemeralStorage, strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix):
		return decimal(q.AsApproximateFloat64()/(1<<30)) + bytesUnit
	case name == corev1.ResourceCPU:
		return decimal(q.AsApproximateFloat64())
	}
	return q.String()
}

// decimal writes a number with at most two digits behind the point.
func decimal(f float64) string {
	return strconv.FormatFloat(math.Round(f*100)/100, 'f', -1, 64)
}

// Percent is how much of a capacity is used, at most 999. Of no capacity at all, any use is 100.
func Percent(used, capacity resource.Quantity) int {
	have, of := used.AsApproximateFloat64(), capacity.AsApproximateFloat64()
	switch {
	case have <= 0:
		return 0
	case of <= 0:
		return 100
	}
	return int(min(math.Round(have/of*100), mostPercent))
}

// share is how much of a resource is used, also in per cent.
func (r Room) share(name corev1.ResourceName) string {
	used, capacity := r.Used[name], r.Capacity[name]
	text := strings.TrimSuffix(Amount(name, used), bytesUnit) + "/" + Amount(name, capacity)
	if capacity.Sign() <= 0 {
		return text
	}
	return fmt.Sprintf("%s (%d%%)", text, Percent(used, capacity))
}

// Count says how many there are of something: 1 pod, 2 pods.
func Count(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %ss", n, one)
}

// Line is Printable, in one line: peers must not add lines of their own to a text either.
func Line(text string) string {
	return strings.NewReplacer("\n", " ", "\t", " ").Replace(Printable(text))
}

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
	worst, states := OK, map[podState]int{}
	for _, pod := range pods {
		states[pod.verdict.state]++
		if level := pod.verdict.level; level.Rank() > worst.Rank() {
			worst = level
			out.Cause = clip(fmt.Sprintf("%s: %s: %s", pod.Name, pod.verdict.reason, pod.verdict.message))
		}
	}
	out.Pods, out.Ready, out.NotReady = len(pods), states[podReady], states[podNotReady]
	out.Refused, out.Unschedulable, out.Waiting = states[podRefused], states[podUnschedulable], states[podWaiting]
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
