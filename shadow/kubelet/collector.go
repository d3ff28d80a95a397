package kubelet

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	statsv1alpha1 "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// resourceMetrics shows a summary as the metrics of a kubelet's /metrics/resource, with the
// names that Kubernetes keeps stable.
type resourceMetrics struct {
	// Summary to show; nil for none.
	Summary *statsv1alpha1.Summary
	// Failed says that something of it could not be read.
	Failed bool
}

// descriptions are the metrics of one kind of thing.
type descriptions struct{ cpu, memory, start *prometheus.Desc }

var (
	nodeKinds = descriptions{
		cpu:    prometheus.NewDesc("node_cpu_usage_seconds_total", "Cumulative cpu time consumed by the node in core-seconds", nil, nil),
		memory: prometheus.NewDesc("node_memory_working_set_bytes", "Current working set of the node in bytes", nil, nil),
	}
	podKinds = descriptions{
		cpu:    prometheus.NewDesc("pod_cpu_usage_seconds_total", "Cumulative cpu time consumed by the pod in core-seconds", []string{"pod", "namespace"}, nil),
		memory: prometheus.NewDesc("pod_memory_working_set_bytes", "Current working set of the pod in bytes", []string{"pod", "namespace"}, nil),
	}
	containerKinds = descriptions{
		cpu: prometheus.NewDesc("container_cpu_usage_seconds_total", "Cumulative cpu time consumed by the container in core-seconds",
			[]string{"container", "pod", "namespace"}, nil),
		memory: prometheus.NewDesc("container_memory_working_set_bytes", "Current working set of the container in bytes",
			[]string{"container", "pod", "namespace"}, nil),
		start: prometheus.NewDesc("container_start_time_seconds", "Start time of the container since unix epoch in seconds",
			[]string{"container", "pod", "namespace"}, nil),
	}
	scrapeError = prometheus.NewDesc("resource_scrape_error", "1 if there was an error while getting container metrics, 0 otherwise", nil, nil)
)

// Describe implements prometheus.Collector. It describes nothing: the labels are those of
// the pods of the moment.
func (resourceMetrics) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c resourceMetrics) Collect(out chan<- prometheus.Metric) {
	value := 0.0
	if c.Failed {
		value = 1
	}
	out <- prometheus.MustNewConstMetric(scrapeError, prometheus.GaugeValue, value)
	if c.Summary == nil {
		return
	}
	nodeKinds.show(out, c.Summary.Node.CPU, c.Summary.Node.Memory, metav1.Time{})
	for i := range c.Summary.Pods {
		pod := &c.Summary.Pods[i]
		podKinds.show(out, pod.CPU, pod.Memory, metav1.Time{}, pod.PodRef.Name, pod.PodRef.Namespace)
		for j := range pod.Containers {
			it := &pod.Containers[j]
			containerKinds.show(out, it.CPU, it.Memory, it.StartTime, it.Name, pod.PodRef.Name, pod.PodRef.Namespace)
		}
	}
}

// show emits what is known. Amounts carry the time of their measurement.
func (k descriptions) show(out chan<- prometheus.Metric, cpu *statsv1alpha1.CPUStats, memory *statsv1alpha1.MemoryStats, start metav1.Time, labels ...string) {
	if cpu != nil && cpu.UsageCoreNanoSeconds != nil {
		out <- prometheus.NewMetricWithTimestamp(cpu.Time.Time, prometheus.MustNewConstMetric(
			k.cpu, prometheus.CounterValue, float64(*cpu.UsageCoreNanoSeconds)/float64(time.Second), labels...))
	}
	if memory != nil && memory.WorkingSetBytes != nil {
		out <- prometheus.NewMetricWithTimestamp(memory.Time.Time, prometheus.MustNewConstMetric(
			k.memory, prometheus.GaugeValue, float64(*memory.WorkingSetBytes), labels...))
	}
	if k.start != nil && !start.IsZero() {
		out <- prometheus.MustNewConstMetric(k.start, prometheus.GaugeValue, float64(start.UnixNano())/float64(time.Second), labels...)
	}
}
