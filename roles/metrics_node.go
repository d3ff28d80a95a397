package roles

import (
	"crypto/tls"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/labels"
	corelisters "k8s.io/client-go/listers/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/serve"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/shadow/rules"
)

// nodeMetrics collects the capacity and the pods of a virtual node from the caches of its
// vkubelet, at the time of the scrape. Only the active replica has them.
type nodeMetrics struct {
	described

	node, peer string
	nodes      corelisters.NodeLister
	held       func() corelisters.PodLister // nil in a standby

	allocatable, requested, pods *prometheus.Desc
}

func newNodeMetrics(tenant, node string, nodes corelisters.NodeLister, held func() corelisters.PodLister) *nodeMetrics {
	m := &nodeMetrics{
		node: node, peer: strings.TrimPrefix(tenant, corev1beta1.TenantNamespacePrefix), nodes: nodes, held: held,
		allocatable: describe("liqod_virtual_node_allocatable", "Capacity of a virtual node for pods, in the resource's base unit.", "peer", "virtual_node", "resource"),
		requested:   describe("liqod_virtual_node_requested", "Sum of the requests of the pods on a virtual node that have not ended; resource pods is their number.", "peer", "virtual_node", "resource"),
		pods: describe("liqod_offloaded_pods", "Pods on a virtual node; the namespaces beyond the first 256 are counted together as (rest).",
			"peer", "virtual_node", "workload_namespace", "phase", "ready"),
	}
	m.described = described{m.allocatable, m.requested, m.pods}
	return m
}

// addMetrics registers the metrics of the virtual node and of its serving certificate.
func (v *vkubelet) addMetrics() {
	v.env.Registry.add(newNodeMetrics(v.namespace, v.name, v.nodes.Core().V1().Nodes().Lister(), v.heldPods))
	v.env.Expiries.serving("kubelet", func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
		if !v.serving.Issued() {
			return nil, serve.ErrNoCertificate // but a self-signed one
		}
		return v.serving.GetCertificate(hello)
	})
}

// Collect implements prometheus.Collector.
func (m *nodeMetrics) Collect(out chan<- prometheus.Metric) {
	lister := m.held()
	if lister == nil {
		return
	}
	if node, err := m.nodes.Get(m.node); err == nil {
		gauges(out).resources(m.allocatable, node.Status.Allocatable, m.peer, m.node)
	}
	pods, _ := lister.List(labels.Everything()) // it fails only for an invalid selector
	gauges(out).resources(m.requested, requestsOf(pods), m.peer, m.node)
	for s, n := range podsByPhase(pods) {
		gauges(out).send(m.pods, n, m.peer, m.node, s.namespace, s.phase, strconv.FormatBool(s.ready))
	}
}

// requestsOf returns the sum of the requests of the pods that have not ended, and their number
// as resource pods.
func requestsOf(pods []*corev1.Pod) corev1.ResourceList {
	sum, number := corev1.ResourceList{}, int64(0)
	for _, pod := range pods {
		if offloadingv1beta1.Ended(pod.Status.Phase) {
			continue
		}
		number++
		rules.AddResources(sum, resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{}))
	}
	sum[corev1.ResourcePods] = *resource.NewQuantity(number, resource.DecimalSI)
	return sum
}

// podSeries are the labels of a number of pods.
type podSeries struct {
	namespace, phase string
	ready            bool
}

// podsByPhase counts pods. Namespaces beyond the first mostValues are counted together.
func podsByPhase(pods []*corev1.Pod) map[podSeries]float64 {
	names := map[string]bool{}
	for _, pod := range pods {
		names[pod.Namespace] = true
	}
	sorted := slices.Sorted(maps.Keys(names))
	for _, name := range sorted[min(len(sorted), mostValues):] {
		names[name] = false
	}
	out := map[podSeries]float64{}
	for _, pod := range pods {
		s := podSeries{namespace: pod.Namespace, phase: phaseOf(pod)}
		if !names[s.namespace] {
			s.namespace = theRest
		}
		s.ready = store.PodCondition(&pod.Status, corev1.PodReady).Status == corev1.ConditionTrue
		out[s]++
	}
	return out
}
