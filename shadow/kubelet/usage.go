package kubelet

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	statsv1alpha1 "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"
)

const (
	// firstCount is where counters begin, in core nanoseconds: metrics-server takes 0 for no
	// measurement and drops the whole pod.
	firstCount = 1000
	// youngAge is the age up to which a container is taken to have had its first rate since it
	// started: metrics-server computes the first rate of a young container from its start.
	// What is older begins at firstCount, so that no reader sees the past as one second's work.
	youngAge = time.Minute
	// maxClockAhead is how far the provider's clock may be before this one. What claims more would
	// stop its counter until then.
	maxClockAhead = 5 * time.Minute
)

// nodeCounters keeps the counters of one node: what a kubelet reports of its pods' CPU and
// memory, made from what a provider's metrics API says of them. It reads no clock and asks
// nobody. It is not safe for concurrent use.
//
// The metrics API tells rates over a window; a kubelet reports counters, of which its
// readers make rates again. nodeCounters therefore integrates: between two measurements a
// counter grows by the newer rate times the time between them, so that a reader of every
// measurement computes exactly the provider's rate.
type nodeCounters struct {
	node     string
	since    time.Time
	counters map[counterKey]counter
	total    counter
}

// newNodeCounters returns the counters of the node of that name that count since a time.
func newNodeCounters(node string, since time.Time) *nodeCounters {
	return &nodeCounters{node: node, since: since, counters: map[counterKey]counter{}, total: counter{at: since, coreNanos: firstCount}}
}

// counterKey names a container of a pod, or with an empty name the pod itself.
type counterKey struct {
	pod       types.UID
	container string
}

// counter is CPU time used since a moment.
type counter struct {
	start     time.Time // of what is counted; zero: not known
	at        time.Time // of the newest measurement
	nanoCores uint64    // rate in it
	coreNanos float64
}

// next returns the counter after a measurement. Another start than before is another
// container: it counts anew. A measurement that is not newer changes nothing.
func (c counter) next(start, at time.Time, nanoCores uint64) counter {
	if start.IsZero() {
		start = c.start
	}
	if c.at.IsZero() || !c.start.Equal(start) {
		first := counter{start: start, at: at, nanoCores: nanoCores, coreNanos: firstCount}
		if age := at.Sub(start); !start.IsZero() && age > 0 && age <= youngAge {
			first.coreNanos += float64(nanoCores) * age.Seconds()
		}
		return first
	}
	if !at.After(c.at) {
		return c
	}
	c.coreNanos += float64(nanoCores) * at.Sub(c.at).Seconds()
	c.at, c.nanoCores = at, nanoCores
	return c
}

func (c counter) stats() *statsv1alpha1.CPUStats {
	return &statsv1alpha1.CPUStats{Time: metav1.NewTime(c.at), UsageNanoCores: &c.nanoCores, UsageCoreNanoSeconds: new(uint64(c.coreNanos))}
}

// summary takes in the measurements of the node's pods, by the UID of the local pod, and
// returns what the node's kubelet reports at now: the measured pods in the order of their
// names, and the sums as the node. Containers that a pod does not have here are left out.
// What is counted for pods that are not among pods any more is forgotten. With known
// false nothing is known of the pods, and the node is reported without amounts.
func (m *nodeCounters) summary(now time.Time, pods []*corev1.Pod, measured map[types.UID]*metricsv1beta1.PodMetrics, known bool) *statsv1alpha1.Summary {
	out := &statsv1alpha1.Summary{
		Node: statsv1alpha1.NodeStats{NodeName: m.node, StartTime: metav1.NewTime(m.since)},
		Pods: []statsv1alpha1.PodStats{},
	}
	kept := make(map[counterKey]counter, len(m.counters))
	var nanoCores, bytes uint64
	for _, pod := range pods {
		m.keep(kept, pod)
		sample := measured[pod.UID]
		if sample == nil || sample.Timestamp.After(now.Add(maxClockAhead)) {
			continue
		}
		if stats, ok := m.pod(kept, pod, sample); ok {
			out.Pods = append(out.Pods, stats)
			nanoCores += *stats.CPU.UsageNanoCores
			bytes += *stats.Memory.WorkingSetBytes
		}
	}
	m.counters = kept
	slices.SortFunc(out.Pods, func(a, b statsv1alpha1.PodStats) int {
		return cmp.Or(cmp.Compare(a.PodRef.Namespace, b.PodRef.Namespace), cmp.Compare(a.PodRef.Name, b.PodRef.Name))
	})
	m.total = m.total.next(time.Time{}, now, nanoCores)
	m.total.nanoCores = nanoCores // also when no time has passed
	if known {
		out.Node.CPU = m.total.stats()
		// As in a counter: 0 is no measurement to metrics-server.
		out.Node.Memory = &statsv1alpha1.MemoryStats{Time: metav1.NewTime(now), WorkingSetBytes: new(max(bytes, 1))}
	}
	return out
}

// keep takes over what is counted for a pod: a measurement that is missing once does not
// make its counters begin again.
func (m *nodeCounters) keep(kept map[counterKey]counter, pod *corev1.Pod) {
	names := []string{""}
	for _, c := range started(pod) {
		names = append(names, c.name)
	}
	for _, name := range names {
		key := counterKey{pod.UID, name}
		if c, ok := m.counters[key]; ok {
			kept[key] = c
		}
	}
}

// pod reports a pod, and false if nothing of it was measured.
func (m *nodeCounters) pod(kept map[counterKey]counter, pod *corev1.Pod, sample *metricsv1beta1.PodMetrics) (statsv1alpha1.PodStats, bool) {
	at := sample.Timestamp.Time
	out := statsv1alpha1.PodStats{PodRef: statsv1alpha1.PodReference{Name: pod.Name, Namespace: pod.Namespace, UID: string(pod.UID)}}
	if pod.Status.StartTime != nil {
		out.StartTime = *pod.Status.StartTime
	}
	var nanoCores, bytes uint64
	for _, c := range started(pod) {
		i := slices.IndexFunc(sample.Containers, func(s metricsv1beta1.ContainerMetrics) bool { return s.Name == c.name })
		if i < 0 {
			continue
		}
		cpu, memory := amounts(sample.Containers[i].Usage)
		key := counterKey{pod.UID, c.name}
		kept[key] = kept[key].next(c.start, at, cpu)
		out.Containers = append(out.Containers, statsv1alpha1.ContainerStats{
			Name: c.name, StartTime: metav1.NewTime(kept[key].start), CPU: kept[key].stats(),
			Memory: &statsv1alpha1.MemoryStats{Time: metav1.NewTime(at), WorkingSetBytes: &memory},
		})
		nanoCores += cpu
		bytes += memory
	}
	if len(out.Containers) == 0 {
		return out, false
	}
	key := counterKey{pod: pod.UID}
	kept[key] = kept[key].next(out.StartTime.Time, at, nanoCores)
	out.CPU = kept[key].stats()
	out.Memory = &statsv1alpha1.MemoryStats{Time: metav1.NewTime(at), WorkingSetBytes: &bytes}
	return out, true
}

// container is one that a pod has here.
type container struct {
	name  string
	start time.Time // zero: not known
}

// started returns the pod's containers with the time at which each that runs began.
func started(pod *corev1.Pod) []container {
	begun := map[string]time.Time{}
	for _, s := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses, pod.Status.EphemeralContainerStatuses) {
		if r := s.State.Running; r != nil {
			begun[s.Name] = r.StartedAt.Time
		}
	}
	var out []container
	for _, name := range containers(pod) {
		out = append(out, container{name, begun[name]})
	}
	return out
}

// amounts returns nano cores and bytes; below 0 counts as 0.
func amounts(list corev1.ResourceList) (nanoCores, bytes uint64) {
	cpu, memory := list[corev1.ResourceCPU], list[corev1.ResourceMemory]
	return uint64(max(cpu.ScaledValue(resource.Nano), 0)), uint64(max(memory.Value(), 0))
}
