package roles

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	kubefake "k8s.io/client-go/kubernetes/fake"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/api/generated/clientset/versioned/fake"
	"github.com/liqod/liqod/api/generated/informers/externalversions"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	sharingv1alpha1 "github.com/liqod/liqod/api/sharing/v1alpha1"
	"github.com/liqod/liqod/health"
	"github.com/liqod/liqod/kube/client"
	"github.com/liqod/liqod/kube/kubetest"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/kube/serve"
	"github.com/liqod/liqod/shadow/pod"
)

// observed returns the values of all series by their names and the values of their labels; of a histogram, the number of
// its observations.
func observed(t *testing.T, registry prometheus.Gatherer) map[string]float64 {
	t.Helper()
	out := map[string]float64{}
	eachSeries(t, registry, func(name string, labels []*dto.LabelPair, value float64) {
		for _, l := range labels {
			name += " " + l.GetValue()
		}
		out[name] = value
	})
	return out
}

func eachSeries(t *testing.T, registry prometheus.Gatherer, do func(name string, labels []*dto.LabelPair, value float64)) {
	t.Helper()
	families := must(registry.Gather())
	for _, f := range families {
		for _, m := range f.GetMetric() {
			do(f.GetName(), m.GetLabel(), m.GetGauge().GetValue()+m.GetCounter().GetValue()+float64(m.GetHistogram().GetSampleCount()))
		}
	}
}

// valuesOf returns the sum of a metric for each value of a label.
func valuesOf(t *testing.T, registry prometheus.Gatherer, metric, label string) map[string]float64 {
	t.Helper()
	out := map[string]float64{}
	eachSeries(t, registry, func(name string, labels []*dto.LabelPair, value float64) {
		for _, l := range labels {
			if name == metric && l.GetName() == label {
				out[l.GetValue()] += value
			}
		}
	})
	return out
}

// TestLabelsAreBounded: another cluster chooses names, statuses and resources; the number of
// series stays bounded, and cpu and memory stay among them.
func TestLabelsAreBounded(t *testing.T) {
	t.Parallel()
	served := prometheus.NewRegistry()
	to := &registry{Registerer: served}
	m := newMetrics(to, "v1", func() map[string]time.Duration { return nil })
	for code := range 1000 {
		requests{m, "milan"}.Request("get", strconv.Itoa(code), time.Second)
	}
	requests{m, "milan"}.Request("get", "timeout", time.Second)
	codes := valuesOf(t, served, "liqod_client_requests_total", "code")
	require.Less(t, len(codes), 100)
	require.InDelta(t, 1, codes["200"], 0)
	require.InDelta(t, 1, codes["timeout"], 0)
	require.Greater(t, codes["other"], 900.0)

	observer := loops{queues{m}, health.NewTracker(time.Minute, clock.RealClock{})}
	for i := range 1000 {
		observer.Synced(fmt.Sprint("replica-", i), loop.Key{}, time.Second, nil)
		observer.NewAddsMetric(fmt.Sprint("replica-", i)).Inc()
	}
	for _, name := range []string{"liqod_loop_sync_seconds", "liqod_loop_adds_total"} {
		have := valuesOf(t, served, name, "loop")
		require.Len(t, have, mostValues+1)
		require.InDelta(t, 1000-mostValues, have[theRest], 0)
	}

	probed := probeSeconds(to)
	for i := range 1000 {
		probed(fmt.Sprint("peer-", i), time.Second, errors.New("refused"))
	}
	peers := valuesOf(t, served, "liqod_peer_probe_seconds", "peer")
	require.Len(t, peers, mostValues+1)
	require.InDelta(t, 1000-mostValues, peers[theRest], 0)
	require.Equal(t, []string{"error", "ok"}, slices.Sorted(maps.Keys(valuesOf(t, served, "liqod_peer_probe_seconds", "result"))),
		"a result that has not come yet has a series")

	many := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1500m"), corev1.ResourceMemory: resource.MustParse("1Gi")}
	for i := range 1000 {
		many[corev1.ResourceName(fmt.Sprintf("a.example/%d", i))] = resource.MustParse("1")
	}
	require.NoError(t, served.Register(newQuotaMetrics(func() []pod.Account {
		return []pod.Account{{Consumer: "rome", Used: many, Limit: many, Waiting: 2}}
	})))
	used := valuesOf(t, served, "liqod_quota_used", "resource")
	require.Len(t, used, mostValues)
	require.InDelta(t, 1.5, used["cpu"], 1e-9)
	require.InDelta(t, 1<<30, used["memory"], 0)
}

// TestPeerMetrics: a scrape shows each peer once, also if two ForeignClusters name it, and
// objects of unknown peers together. A standby shows nothing.
func TestPeerMetrics(t *testing.T) {
	t.Parallel()
	cluster := func(name string, conditions ...metav1.Condition) *corev1beta1.ForeignCluster {
		return &corev1beta1.ForeignCluster{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1beta1.ForeignClusterSpec{ClusterID: name},
			Status: corev1beta1.ForeignClusterStatus{Conditions: conditions}}
	}
	condition := func(kind string, status metav1.ConditionStatus) metav1.Condition {
		return metav1.Condition{Type: kind, Status: status}
	}
	twins := func(namespace, peer string, replicated bool, desired map[string]string, current map[string]offloadingv1beta1.RemoteNamespaceStatus) runtime.Object {
		return &offloadingv1beta1.NamespaceMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "map", Labels: map[string]string{
				corev1beta1.RemoteClusterIDLabel: peer, offloadingv1beta1.ReplicatedLabel: strconv.FormatBool(replicated),
			}},
			Spec: offloadingv1beta1.NamespaceMapSpec{DesiredMapping: desired}, Status: offloadingv1beta1.NamespaceMapStatus{CurrentMapping: current},
		}
	}
	offer := func(name, provider, consumer string, phase sharingv1alpha1.OfferPhase) runtime.Object {
		return &sharingv1alpha1.ResourceOffer{
			ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-milan", Name: name},
			Spec:       sharingv1alpha1.ResourceOfferSpec{ProviderClusterID: provider, ConsumerClusterID: consumer, Approved: phase != ""},
			Status:     sharingv1alpha1.ResourceOfferStatus{Phase: phase},
		}
	}
	withdrawn := offer("rome-3", "rome", "milan", "").(*sharingv1alpha1.ResourceOffer)
	withdrawn.Spec.WithdrawalTimestamp, withdrawn.Status.Phase = &metav1.Time{Time: time.Now()}, sharingv1alpha1.OfferRefused
	liqo := externalversions.NewSharedInformerFactory(fake.NewSimpleClientset(
		cluster("milan", condition(corev1beta1.ConditionAPIServer, metav1.ConditionFalse), condition(corev1beta1.ConditionNetwork, metav1.ConditionUnknown),
			condition("Made-up", metav1.ConditionTrue)),
		twins("liqo-tenant-milan", "milan", false, map[string]string{"a": "a", "b": "b", "c": "c"}, map[string]offloadingv1beta1.RemoteNamespaceStatus{
			"a": {Phase: offloadingv1beta1.MappingAccepted}, "b": {Phase: "Hostile"},
		}),
		twins("liqo-tenant-oslo", "oslo", true, nil, map[string]offloadingv1beta1.RemoteNamespaceStatus{"x": {Phase: offloadingv1beta1.MappingTerminating}}),
		offer("milan", "milan", "rome", sharingv1alpha1.OfferManualActionRequired), offer("milan-2", "milan", "rome", "Hostile"),
		offer("rome", "rome", "milan", sharingv1alpha1.OfferAccepted), offer("rome-2", "rome", "milan", ""), withdrawn,
	), 0)
	pod := func(name, origin string, phase corev1.PodPhase) runtime.Object {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "twin", Name: name, Labels: map[string]string{offloadingv1beta1.OriginLabel: origin}}, Status: corev1.PodStatus{Phase: phase}}
	}
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "milan", Labels: map[string]string{offloadingv1beta1.TypeLabel: offloadingv1beta1.TypeVirtualNode, corev1beta1.RemoteClusterIDLabel: "milan"}},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue},
			{Type: offloadingv1beta1.ReasonControllerSilent, Status: corev1.ConditionTrue}}},
	}
	kept := func(name string, labels map[string]string) runtime.Object {
		return &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels, Annotations: map[string]string{offloadingv1beta1.DataKeptAnnotation: "its namespace was deleted"}}}
	}
	claim := func(name string, annotations map[string]string) runtime.Object {
		return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Annotations: annotations}}
	}
	core := informers.NewSharedInformerFactory(kubefake.NewClientset(node, kept("here", nil), kept("there", map[string]string{corev1beta1.RemoteClusterIDLabel: "milan"}),
		kept("gone", map[string]string{corev1beta1.RemoteClusterIDLabel: "oslo"}), &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "used"}},
		claim("moves", map[string]string{offloadingv1beta1.MoveToAnnotation: "milan"}), claim("stays", nil), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker"}},
		pod("a", "milan", corev1.PodRunning), pod("b", "milan", "Hostile"), pod("c", "unknown", corev1.PodFailed)), 0)
	m := &peerMetrics{
		clusterID: "rome", clusters: liqo.Core().V1beta1().ForeignClusters(), maps: liqo.Offloading().V1beta1().NamespaceMaps(),
		offers: liqo.Sharing().V1alpha1().ResourceOffers(), nodes: core.Core().V1().Nodes(), pods: core.Core().V1().Pods(),
		claims: core.Core().V1().PersistentVolumeClaims(), volumes: []cache.SharedIndexInformer{core.Core().V1().PersistentVolumes().Informer()},
	}
	m.describe()
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(m))
	stop := kubetest.Run(t, m.run)
	_ = m.clusters.Informer()
	require.Eventually(t, func() bool { // run makes the informers
		liqo.Start(t.Context().Done())
		core.Start(t.Context().Done())
		return m.leading.Load()
	}, time.Minute, 10*time.Millisecond)
	require.Equal(t, map[string]float64{
		"liqod_peer_up APIServerStatus milan": 0, "liqod_peer_unknown APIServerStatus milan": 0,
		"liqod_peer_up NetworkStatus milan": 0, "liqod_peer_unknown NetworkStatus milan": 1,
		"liqod_virtual_node_ready milan milan": 1, "liqod_virtual_node_controller_silent milan milan": 1, "liqod_virtual_node_reflection_refused milan milan": 0,
		"liqod_peer_pods milan Running": 1, "liqod_peer_pods milan Pending": 1, "liqod_peer_pods (rest) Failed": 1,
		"liqod_namespaces outgoing milan Accepted": 1, "liqod_namespaces outgoing milan Waiting": 2, "liqod_namespaces incoming (rest) Terminating": 1,
		"liqod_offers outgoing milan ManualActionRequired": 1, "liqod_offers outgoing milan Pending": 1, "liqod_offers incoming milan Accepted": 1,
		"liqod_offers incoming milan ManualActionRequired": 1, "liqod_offers incoming milan Refused": 1,
		"liqod_volumes_moving": 1, "liqod_volumes_kept milan": 1, "liqod_volumes_kept rome": 1, "liqod_volumes_kept (rest)": 1,
	}, observed(t, registry))
	stop()
	require.Empty(t, observed(t, registry))
}

// TestNodeMetrics: pods are counted by namespace, in a bounded number of series.
func TestNodeMetrics(t *testing.T) {
	t.Parallel()
	pods := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	add := func(namespace, name string, phase corev1.PodPhase, ready corev1.ConditionStatus) {
		require.NoError(t, pods.Add(&corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m")},
			}}}},
			Status: corev1.PodStatus{Phase: phase, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}},
		}))
	}
	for i := range 1000 {
		add(fmt.Sprintf("ns-%04d", i), "a", corev1.PodRunning, corev1.ConditionTrue)
	}
	add("ns-0000", "b", "", corev1.ConditionFalse)
	add("ns-0000", "c", corev1.PodSucceeded, corev1.ConditionFalse)
	nodes := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	require.NoError(t, nodes.Add(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "milan"}, Status: corev1.NodeStatus{
		Allocatable: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("8"), "a.example/\xff": resource.MustParse("1")},
	}}))
	var held corelisters.PodLister
	m := newNodeMetrics("liqo-tenant-milan", "milan", corelisters.NewNodeLister(nodes), func() corelisters.PodLister { return held })
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(m))
	require.Zero(t, testutil.CollectAndCount(m), "a standby")
	held = corelisters.NewPodLister(pods)
	namespaces := valuesOf(t, registry, "liqod_offloaded_pods", "workload_namespace")
	require.Len(t, namespaces, mostValues+1)
	require.InDelta(t, 3, namespaces["ns-0000"], 0)
	require.InDelta(t, 1000-mostValues, namespaces[theRest], 0)
	require.Equal(t, map[string]float64{"true": 1000, "false": 2}, valuesOf(t, registry, "liqod_offloaded_pods", "ready"))
	require.Equal(t, map[string]float64{"milan": 1002}, valuesOf(t, registry, "liqod_offloaded_pods", "peer"))
	require.Equal(t, map[string]float64{"Pending": 1, "Running": 1000, "Succeeded": 1}, valuesOf(t, registry, "liqod_offloaded_pods", "phase"))
	require.Equal(t, map[string]float64{"cpu": 8}, valuesOf(t, registry, "liqod_virtual_node_allocatable", "resource"), "a name that is not valid is left out")
	requested := valuesOf(t, registry, "liqod_virtual_node_requested", "resource")
	require.InDelta(t, 100.1, requested["cpu"], 1e-9)
	require.InDelta(t, 1001, requested["pods"], 0)
}

// TestExpiries: each certificate is shown once. Those without an end, or that do not exist
// yet, are not shown.
func TestExpiries(t *testing.T) {
	t.Parallel()
	(*expiries)(nil).add(nil) // a role in a test
	from, until := time.Unix(1000, 0), time.Unix(2000, 0)
	e := newExpiries()
	e.add(func() []expiry {
		return []expiry{
			{certificate: "identity", peer: "milan", life: client.Life{From: from, Until: until}},
			{certificate: "identity", peer: "milan", life: client.Life{From: from, Until: until.Add(time.Hour)}},
			{certificate: "identity", peer: "oslo"},
		}
	})
	e.serving("webhook", func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return nil, serve.ErrNoCertificate })
	e.serving("kubelet", func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		return &tls.Certificate{Leaf: &x509.Certificate{NotBefore: from, NotAfter: until}}, nil
	})
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(e))
	require.Equal(t, map[string]float64{"identity": 2000, "kubelet": 2000}, valuesOf(t, registry, "liqod_certificate_expiry_timestamp_seconds", "certificate"))
	require.Equal(t, map[string]float64{"identity": 1000, "kubelet": 1000}, valuesOf(t, registry, "liqod_certificate_issued_timestamp_seconds", "certificate"))
}

func TestWebhookMetrics(t *testing.T) {
	t.Parallel()
	served := prometheus.NewRegistry()
	rules := map[string]serve.Rule{}
	for path, answer := range map[string]serve.Decision{
		"/a": serve.Allow(), "/b": serve.Allow(serve.Operation{Op: "add"}), "/c": serve.Deny("no"),
	} {
		rules[path] = func(context.Context, *admissionv1.AdmissionRequest) serve.Decision { return answer }
	}
	measure(&registry{Registerer: served}, rules)
	for _, decide := range rules {
		decide(t.Context(), nil)
	}
	require.Equal(t, map[string]float64{"allowed": 1, "changed": 1, "denied": 1}, valuesOf(t, served, "liqod_webhook_seconds", "result"))
	require.Equal(t, map[string]float64{"/a": 1, "/b": 1, "/c": 1}, valuesOf(t, served, "liqod_webhook_seconds", "webhook"))
}
