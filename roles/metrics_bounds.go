package roles

import (
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
)

const (
	// mostValues is the number of values that a label has at most, if other clusters or users
	// choose its values.
	mostValues = 256
	// theRest is the value of such a label for all further values. It is no name of an object.
	theRest = "(rest)"
)

// bound limits the values of a label for counters and histograms, whose series stay until the
// process ends. Its methods are safe for concurrent use. The zero value is ready to use.
type bound struct {
	mu   sync.Mutex
	seen map[string]bool
}

// value returns name, or theRest if there are mostValues other names already.
func (b *bound) value(name string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.seen[name] {
		return name
	}
	if len(b.seen) >= mostValues {
		return theRest
	}
	if b.seen == nil {
		b.seen = map[string]bool{}
	}
	b.seen[name] = true
	return name
}

// usualResources come before all others that a peer names.
var usualResources = []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourcePods, corev1.ResourceEphemeralStorage, corev1.ResourceStorage}

// boundedResources returns the first mostValues resources of a list, the usual ones first.
func boundedResources(list corev1.ResourceList) []corev1.ResourceName {
	var usual, others []corev1.ResourceName
	for name := range list {
		if slices.Contains(usualResources, name) {
			usual = append(usual, name)
		} else {
			others = append(others, name)
		}
	}
	slices.Sort(others)
	all := append(usual, others...)
	return all[:min(len(all), mostValues)]
}

// gauges sends values that a collector has read, each once.
type gauges chan<- prometheus.Metric

// send leaves out a value with labels that are not valid.
func (g gauges) send(d *prometheus.Desc, value float64, labels ...string) {
	if m, err := prometheus.NewConstMetric(d, prometheus.GaugeValue, value, labels...); err == nil {
		g <- m
	}
}

// resources sends the amounts of a list in base units. labels come before the resource.
func (g gauges) resources(d *prometheus.Desc, list corev1.ResourceList, labels ...string) {
	for _, name := range boundedResources(list) {
		q := list[name]
		g.send(d, q.AsApproximateFloat64(), append(slices.Clip(labels), string(name))...)
	}
}

// truth returns 1 for true and 0 for false.
func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

// described are the metrics of a collector.
type described []*prometheus.Desc

// Describe implements prometheus.Collector.
func (d described) Describe(out chan<- *prometheus.Desc) {
	for _, one := range d {
		out <- one
	}
}
