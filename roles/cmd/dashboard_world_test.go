package cmd

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/version"
	fakediscovery "k8s.io/client-go/discovery/fake"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	liqodfake "github.com/liqod/liqod/api/generated/clientset/versioned/fake"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	ipamv1alpha1 "github.com/liqod/liqod/api/ipam/v1alpha1"
	networkingv1beta1 "github.com/liqod/liqod/api/networking/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	sharingv1alpha1 "github.com/liqod/liqod/api/sharing/v1alpha1"
	"github.com/liqod/liqod/kube/serve"
	"github.com/liqod/liqod/roles/cmd/report"
)

// painted is a cluster rome with three peers: it uses milan and turin, and serves milan and
// paris.
type painted struct {
	now   time.Time
	core  []runtime.Object
	liqod []runtime.Object
}

func paint(t *testing.T) *painted {
	t.Helper()
	p := &painted{now: time.Now().UTC()}
	p.installation(t)
	p.provider("milan", corev1beta1.RoleConsumerAndProvider, "16", "64Gi", "v1.36.3")
	p.provider("turin", corev1beta1.RoleProvider, "8", "32Gi", "v1.35.1")
	p.peer("paris", corev1beta1.RoleConsumer)
	p.twin("milan", "lab", 4)
	p.twin("paris", "render", 11)
	p.given("milan", "4", "16Gi", "30")
	p.given("paris", "6", "12Gi", "20")
	p.tunnel("milan", "11ms")
	p.tunnel("turin", "18ms")
	p.tunnel("paris", "32ms")
	p.namespace("shop", offloadingv1beta1.PodsLocalAndRemote, "milan", "turin")
	p.pods("shop", "web", "milan", 9, "750m", "3Gi")
	p.pods("shop", "cart", "turin", 3, "500m", "2Gi")
	p.pods("shop", "db", "rome-1", 6, "1", "4Gi")
	p.claim("cart-0", "turin")
	p.namespace("batch", offloadingv1beta1.PodsRemote, "turin")
	p.pods("batch", "render", "turin", 5, "1", "4Gi")
	p.event("shop", "Pod", "web-3", "Pulled", `Container image "registry.example.com/web:4.2" already present on machine`, "milan", corev1.EventTypeNormal, 41*time.Second, 1)
	p.event("shop", "Pod", "web-3", "Started", "Started container web", "milan", corev1.EventTypeNormal, 40*time.Second, 1)
	p.event("batch", "Pod", "render-2", "Scheduled", "Successfully assigned batch/render-2 to turin", "", corev1.EventTypeNormal, 95*time.Second, 1)
	p.event("batch", "Pod", "render-2", "Started", "Started container render", "turin", corev1.EventTypeNormal, 92*time.Second, 1)
	p.event("default", "Node", "milan", "NodeReady", "Node milan status is now: NodeReady", "", corev1.EventTypeNormal, 26*time.Minute, 1)
	return p
}

// cluster makes fake clients of the painted objects.
func (p *painted) cluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{core: fake.NewClientset(p.core...), liqod: liqodfake.NewSimpleClientset(p.liqod...)}
	c.measure()
	discovery, ok := c.core.Discovery().(*fakediscovery.FakeDiscovery)
	require.True(t, ok)
	discovery.FakedServerVersion = &version.Info{GitVersion: "v1.36.3"}
	for group, kinds := range map[string][]string{
		corev1beta1.SchemeGroupVersion.String():       {"foreignclusters"},
		offloadingv1beta1.SchemeGroupVersion.String(): {"virtualnodes", "namespaceoffloadings", "namespacemaps", "quotas", "shadowpods", "shadowendpointslices"},
		sharingv1alpha1.SchemeGroupVersion.String():   {"resourceoffers", "resourcerequests"},
		networkingv1beta1.SchemeGroupVersion.String(): {"configurations", "connections"},
		ipamv1alpha1.SchemeGroupVersion.String():      {"addresspools", "ips", "networks"},
	} {
		list := &metav1.APIResourceList{GroupVersion: group}
		for _, kind := range kinds {
			list.APIResources = append(list.APIResources, metav1.APIResource{Name: kind})
		}
		discovery.Resources = append(discovery.Resources, list)
	}
	return c
}

func (p *painted) ago(d time.Duration) metav1.Time { return metav1.NewTime(p.now.Add(-d)) }

// claim adds a claim of the namespace shop, whose volume is in a peer.
func (p *painted) claim(name, peer string) {
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(name), Annotations: map[string]string{"volume.kubernetes.io/storage-provisioner": offloadingv1beta1.StorageProvisioner}},
		Spec:       corev1.PersistentVolumeClaimSpec{VolumeName: "pvc-" + name, StorageClassName: new("liqo")},
		Status:     corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound, Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("8Gi")}},
	}
	p.core = append(p.core, claim, &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name: claim.Spec.VolumeName, Labels: map[string]string{corev1beta1.RemoteClusterIDLabel: peer},
			Annotations: map[string]string{"pv.kubernetes.io/provisioned-by": offloadingv1beta1.StorageProvisioner},
		},
		Spec: corev1.PersistentVolumeSpec{ClaimRef: &corev1.ObjectReference{Namespace: claim.Namespace, Name: name, UID: claim.UID}},
	})
}

func (p *painted) installation(t *testing.T) {
	t.Helper()
	ca := must(serve.NewCA("test", p.now, 24*time.Hour))
	labels := map[string]string{"app.kubernetes.io/name": "liqod"}
	p.core = append(p.core, binding("liqod"),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "liqod", Name: "liqod"}, Data: map[string]string{"config.yaml": "clusterID: rome\n"}},
		&admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "liqod", Labels: labels}, Webhooks: []admissionregistrationv1.MutatingWebhook{
			{Name: "pod.mutate.liqo.io", ClientConfig: admissionregistrationv1.WebhookClientConfig{CABundle: ca.CertPEM()}}}},
		&admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "liqod", Labels: labels}, Webhooks: []admissionregistrationv1.ValidatingWebhook{
			{Name: "virtualnode.validate.liqo.io", ClientConfig: admissionregistrationv1.WebhookClientConfig{CABundle: ca.CertPEM()}}}},
		&appsv1.DaemonSet{
			ObjectMeta: metav1.ObjectMeta{Namespace: "liqod", Name: "liqod-route", Labels: map[string]string{"app.kubernetes.io/name": "liqod", report.ComponentLabel: "route"}},
			Spec: appsv1.DaemonSetSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Affinity: &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
					{Key: offloadingv1beta1.TypeLabel, Operator: corev1.NodeSelectorOpNotIn, Values: []string{offloadingv1beta1.TypeVirtualNode}}}}}}}}}}},
			Status: appsv1.DaemonSetStatus{NumberReady: 3, DesiredNumberScheduled: 3},
		})
	p.core = append(p.core, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "liqod", Name: "liqod-gateway-5f7b9d4c8-q4l2m", Labels: map[string]string{
		"app.kubernetes.io/name": "liqod", report.ComponentLabel: report.Gateway}}, Spec: corev1.PodSpec{NodeName: "rome-1"}, Status: corev1.PodStatus{Phase: corev1.PodRunning}})
	for _, role := range []string{report.Controller, report.Webhook, report.Gateway, "ipam"} {
		p.core = append(p.core, deploymentOf("liqod", report.LeaseName(role), map[string]string{
			"app.kubernetes.io/name": "liqod", "app.kubernetes.io/version": "0.1.0", report.ComponentLabel: role}))
	}
	for _, role := range []string{report.Controller, report.Webhook} {
		p.core = append(p.core, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "liqod", Name: report.LeaseName(role)}, Spec: coordinationv1.LeaseSpec{
			HolderIdentity: ptr.To("liqod-" + role + "-7d9c4bf6c5-x2x9k"), LeaseDurationSeconds: ptr.To[int32](3600), RenewTime: ptr.To(metav1.NewMicroTime(p.now))}})
	}
}

func deploymentOf(namespace, name string, labels map[string]string) *appsv1.Deployment {
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels},
		Spec: appsv1.DeploymentSpec{Replicas: ptr.To[int32](2), Template: corev1.PodTemplateSpec{
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Image: "liqod:0.1.0"}}}}},
		Status: appsv1.DeploymentStatus{ReadyReplicas: 2},
	}
}

func (p *painted) condition(kind string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message, LastTransitionTime: p.ago(2 * time.Minute)}
}

func (p *painted) peer(id string, role corev1beta1.RoleType) *corev1beta1.ForeignCluster {
	fc := &corev1beta1.ForeignCluster{
		ObjectMeta: metav1.ObjectMeta{Name: id},
		Spec:       corev1beta1.ForeignClusterSpec{ClusterID: id, UserName: "liqo.io:peer:" + id + ":1"},
		Status: corev1beta1.ForeignClusterStatus{Role: role, Version: "0.1.0", Conditions: []metav1.Condition{
			p.condition(corev1beta1.ConditionAPIServer, metav1.ConditionTrue, corev1beta1.ReasonAPIServerReady, "the API server answers"),
			p.condition(corev1beta1.ConditionNetwork, metav1.ConditionTrue, "Answered", id+" answers probes"),
			p.condition(corev1beta1.ConditionReady, metav1.ConditionTrue, corev1beta1.ReasonAllChecksPassed, "all checks pass"),
		}},
	}
	p.liqod = append(p.liqod, fc)
	p.core = append(p.core, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: corev1beta1.TenantNamespace(id), Labels: map[string]string{
		corev1beta1.RemoteClusterIDLabel: id, corev1beta1.TenantNamespaceLabel: "true"}}})
	return fc
}

// provider is a peer with a virtual node.
func (p *painted) provider(id string, role corev1beta1.RoleType, cpu, memory, kubernetes string) {
	p.peer(id, role).Status.APIServerURL = "https://api." + id + ".example.com:6443"
	tenant := corev1beta1.TenantNamespace(id)
	p.liqod = append(p.liqod,
		&offloadingv1beta1.VirtualNode{
			ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: id}, Spec: offloadingv1beta1.VirtualNodeSpec{ClusterID: id},
			Status: offloadingv1beta1.VirtualNodeStatus{Conditions: []metav1.Condition{p.condition(offloadingv1beta1.VirtualNodeVirtualKubelet, metav1.ConditionTrue, "Running", "2 of 2")}},
		},
		&offloadingv1beta1.NamespaceMap{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: id}, Status: offloadingv1beta1.NamespaceMapStatus{
			Conditions: []metav1.Condition{p.condition("Ready", metav1.ConditionTrue, "Ready", "all stand")}}},
		&sharingv1alpha1.ResourceOffer{ObjectMeta: metav1.ObjectMeta{Namespace: tenant, Name: id}, Spec: sharingv1alpha1.ResourceOfferSpec{
			ProviderClusterID: id, Approved: true, ResourceQuota: corev1.ResourceQuotaSpec{Hard: room(cpu, memory)}},
			Status: sharingv1alpha1.ResourceOfferStatus{Phase: sharingv1alpha1.OfferAccepted}})
	p.core = append(p.core, deploymentOf(tenant, "vk-"+id, map[string]string{offloadingv1beta1.VirtualNodeLabel: id}), &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: id, Labels: map[string]string{offloadingv1beta1.TypeLabel: offloadingv1beta1.TypeVirtualNode}},
		Spec: corev1.NodeSpec{Taints: []corev1.Taint{
			{Key: offloadingv1beta1.VirtualNodeTaintKey, Value: offloadingv1beta1.VirtualNodeTaintValue, Effect: corev1.TaintEffectNoExecute}}},
		Status: corev1.NodeStatus{
			Allocatable: room(cpu, memory), NodeInfo: corev1.NodeSystemInfo{KubeletVersion: kubernetes},
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "RemoteReady"}},
		},
	})
}

func room(cpu, memory string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory), corev1.ResourcePods: resource.MustParse("110")}
}

// twin is a namespace of a peer in rome, with pods.
func (p *painted) twin(peer, name string, pods int) {
	twin := name + "-" + peer
	p.liqod = append(p.liqod, &offloadingv1beta1.NamespaceMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: corev1beta1.TenantNamespace(peer), Name: "rome", Labels: map[string]string{
			offloadingv1beta1.ReplicatedLabel: "true", offloadingv1beta1.OriginIDLabel: peer}},
		Status: offloadingv1beta1.NamespaceMapStatus{CurrentMapping: map[string]offloadingv1beta1.RemoteNamespaceStatus{
			name: {RemoteNamespace: twin, Phase: offloadingv1beta1.MappingAccepted}}},
	})
	for i := range pods {
		pod := p.pod(twin, fmt.Sprintf("%s-%d", name, i), "rome-2", "500m", "1Gi")
		pod.Labels = map[string]string{offloadingv1beta1.OriginLabel: peer, offloadingv1beta1.ManagedByLabel: offloadingv1beta1.ManagedByShadowPod}
	}
}

// given is the Quota of an offer to a peer.
func (p *painted) given(peer, cpu, memory, pods string) {
	p.liqod = append(p.liqod, &offloadingv1beta1.Quota{ObjectMeta: metav1.ObjectMeta{Namespace: corev1beta1.TenantNamespace(peer), Name: peer}, Spec: offloadingv1beta1.QuotaSpec{
		Resources: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory), corev1.ResourcePods: resource.MustParse(pods)}}})
}

// tunnel is the Connection with a peer.
func (p *painted) tunnel(peer, latency string) {
	p.liqod = append(p.liqod, &networkingv1beta1.Connection{ObjectMeta: metav1.ObjectMeta{Namespace: corev1beta1.TenantNamespace(peer), Name: peer}, Status: networkingv1beta1.ConnectionStatus{
		Value: networkingv1beta1.Connected, Latency: &networkingv1beta1.Latency{Value: latency, Timestamp: p.ago(time.Hour)}}})
}

// measure lets a gateway have metrics: at each reading it has sent 3 MB more to each peer, and received 1 MB.
// Half of the probes take 10 ms, and half 14 ms; one of 50 is lost.
func (c *cluster) measure() {
	var readings atomic.Int64
	c.core.AddProxyReactor("pods", func(clienttesting.Action) (bool, rest.ResponseWrapper, error) {
		var text strings.Builder
		n := readings.Add(1)
		for _, peer := range []string{"milan", "turin", "paris"} {
			labels := fmt.Sprintf("peer=%q,gateway=\"a\"", peer)
			fmt.Fprintf(&text, "liqod_tunnel_sent_bytes_total{%[1]s} %[2]d\nliqod_tunnel_received_bytes_total{%[1]s} %[3]d\n", labels, n*3_000_000, n*1_000_000)
			fmt.Fprintf(&text, "liqod_tunnel_probe_sent_total{%[1]s,kind=\"request\"} %[2]d\nliqod_tunnel_probe_lost_total{%[1]s} %[3]d\n", labels, n*50, n)
			fmt.Fprintf(&text, "liqod_tunnel_probe_rtt_seconds_sum{%[1]s} %[2]f\nliqod_tunnel_probe_rtt_seconds_count{%[1]s} %[3]d\n", labels, float64(n)*0.6, n*50)
		}
		text.WriteString("liqod_consumer_refused_total{consumer=\"paris\",reason=\"Quota\"} 7\n")
		return true, answerOf(typed(text.String())), nil
	})
}

// typed puts the types of metrics before their lines.
func typed(lines string) string {
	types := "# TYPE liqod_tunnel_probe_rtt_seconds histogram\n"
	for _, name := range []string{"liqod_tunnel_sent_bytes_total", "liqod_tunnel_received_bytes_total", "liqod_tunnel_probe_sent_total", "liqod_tunnel_probe_lost_total", "liqod_consumer_refused_total"} {
		types += "# TYPE " + name + " counter\n"
	}
	return types + lines
}

func (p *painted) namespace(name string, strategy offloadingv1beta1.PodOffloadingStrategy, peers ...string) {
	o := &offloadingv1beta1.NamespaceOffloading{
		ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: offloadingv1beta1.NamespaceOffloadingName},
		Spec:       offloadingv1beta1.NamespaceOffloadingSpec{PodOffloadingStrategy: strategy},
		Status: offloadingv1beta1.NamespaceOffloadingStatus{
			OffloadingPhase: offloadingv1beta1.PhaseReady, RemoteNamespaceName: name + "-rome", RemoteNamespacesConditions: map[string][]metav1.Condition{},
			Conditions: []metav1.Condition{p.condition("Ready", metav1.ConditionTrue, "Ready", "the namespace stands in all clusters")},
		},
	}
	for _, id := range peers {
		o.Status.RemoteNamespacesConditions[id] = []metav1.Condition{
			p.condition(offloadingv1beta1.RemoteNamespaceOffloadingRequired, metav1.ConditionTrue, offloadingv1beta1.ReasonClusterSelected, ""),
			p.condition("Ready", metav1.ConditionTrue, offloadingv1beta1.ReasonNamespaceCreated, "")}
	}
	p.liqod = append(p.liqod, o)
}

func (p *painted) pods(namespace, name, node string, n int, cpu, memory string) {
	for i := range n {
		p.pod(namespace, fmt.Sprintf("%s-%d", name, i), node, cpu, memory)
	}
}

func (p *painted) pod(namespace, name, node, cpu, memory string) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: corev1.PodSpec{NodeName: node, Tolerations: []corev1.Toleration{{Key: offloadingv1beta1.VirtualNodeTaintKey, Operator: corev1.TolerationOpExists}}, Containers: []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}}}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}},
	}
	p.core = append(p.core, pod)
	return pod
}

func (p *painted) event(namespace, kind, name, reason, message, from, level string, age time.Duration, count int32) {
	about := corev1.ObjectReference{Kind: kind, Name: name, Namespace: namespace}
	if kind == "Node" {
		about.Namespace = ""
	}
	e := &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("%s.%d", name, len(p.core))},
		InvolvedObject: about, Reason: reason, Message: message, Type: level, Count: count, LastTimestamp: p.ago(age),
	}
	if from != "" {
		e.Labels = map[string]string{offloadingv1beta1.OriginLabel: from}
	}
	p.core = append(p.core, e)
}

func objects[T runtime.Object](from []runtime.Object, do func(T)) {
	for _, obj := range from {
		if o, ok := obj.(T); ok {
			do(o)
		}
	}
}

// says changes conditions of a peer.
func (p *painted) says(id string, conditions ...metav1.Condition) {
	objects(p.liqod, func(fc *corev1beta1.ForeignCluster) {
		for _, c := range conditions {
			if fc.Name == id {
				c.LastTransitionTime = p.ago(95 * time.Second)
				fc.Status.Conditions = append([]metav1.Condition{c}, dropCondition(fc.Status.Conditions, c.Type)...)
			}
		}
	})
}

func dropCondition(conditions []metav1.Condition, kind string) []metav1.Condition {
	out := append([]metav1.Condition{}, conditions...)
	meta.RemoveStatusCondition(&out, kind)
	return out
}

// notReady makes the pods on some nodes not ready.
func (p *painted) notReady(reason, message string, nodes ...string) {
	objects(p.core, func(pod *corev1.Pod) {
		for _, node := range nodes {
			if pod.Spec.NodeName == node {
				pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse, Reason: reason, Message: message}}
			}
		}
	})
}

// providerDown is the cluster while nothing of milan answers.
func providerDown(t *testing.T) *painted {
	t.Helper()
	p := paint(t)
	const away = "https://api.milan.example.com:6443: 3 of the last 3 probes failed: no answer within 1s"
	p.says("milan",
		p.condition(corev1beta1.ConditionAPIServer, metav1.ConditionFalse, corev1beta1.ReasonAPIServerNotReady, away),
		p.condition(corev1beta1.ConditionNetwork, metav1.ConditionFalse, "Silent", "nothing has come from milan for 2s"),
		p.condition(corev1beta1.ConditionReady, metav1.ConditionFalse, corev1beta1.ReasonAPIServerNotReady, away))
	objects(p.core, func(n *corev1.Node) {
		if n.Name == "milan" {
			n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionFalse, Reason: "RemoteNotReady", Message: "3 of the last 3 probes failed: no answer within 1s"}}
		}
	})
	p.notReady("NodeNotReady", "the virtual node is not ready", "milan")
	p.event("default", "Node", "milan", "NodeNotReady", "Node milan status is now: NodeNotReady", "", corev1.EventTypeWarning, 94*time.Second, 1)
	return p
}

// troubled is the cluster with four reasons of trouble in each of four namespaces.
func troubled(t *testing.T) *painted {
	t.Helper()
	p := paint(t)
	for i := range 4 {
		namespace := fmt.Sprintf("team-%d", i)
		p.namespace(namespace, offloadingv1beta1.PodsLocalAndRemote, "milan")
		for j := range 4 {
			pod := p.pod(namespace, fmt.Sprintf("work-%d", j), "milan", "100m", "64Mi")
			pod.Status = corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{{Name: "main", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{
				Reason: fmt.Sprintf("Reason%d", j), Message: "it cannot start"}}}}}
		}
	}
	return p
}

// providing is the cluster while pods of a consumer are in trouble.
func providing(t *testing.T) *painted {
	t.Helper()
	p := paint(t)
	broken := 0
	objects(p.core, func(pod *corev1.Pod) {
		if pod.Namespace == "render-paris" && broken < 2 {
			broken++
			pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse}}
			pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{
				Reason: "ImagePullBackOff", Message: "registry.paris.example.com/render:7: not found"}}}}
		}
	})
	return p
}

// gatewayDown is the cluster while none of its own gateways runs.
func gatewayDown(t *testing.T) *painted {
	t.Helper()
	p := paint(t)
	const nobody = "no gateway of cluster rome is running, so nobody sees whether packets pass: look at the pods of Deployment liqod-gateway, or at the host of a gateway outside"
	for _, id := range []string{"milan", "turin", "paris"} {
		p.says(id, p.condition(corev1beta1.ConditionNetwork, metav1.ConditionUnknown, corev1beta1.ReasonNoGateway, nobody),
			p.condition(corev1beta1.ConditionReady, metav1.ConditionUnknown, corev1beta1.ReasonNoGateway, nobody))
	}
	objects(p.core, func(d *appsv1.Deployment) {
		if d.Name == "liqod-gateway" {
			d.Status.ReadyReplicas = 0
		}
	})
	p.notReady("NetworkUnavailable", nobody, "milan", "turin")
	p.event("liqod", "Pod", "liqod-gateway-5f7b9d4c8-q4l2m", "BackOff", "Back-off restarting failed container gateway in pod liqod-gateway-5f7b9d4c8-q4l2m", "", corev1.EventTypeWarning, 12*time.Second, 14)
	return p
}
