package report

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/serve"
)

var now = time.Date(2030, 5, 4, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) metav1.Time { return metav1.NewTime(now.Add(-d)) }

func is(kind string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message, LastTransitionTime: ago(12 * time.Second)}
}

func well(kind, message string) []metav1.Condition {
	return []metav1.Condition{is(kind, metav1.ConditionTrue, "Fine", message)}
}

// healthy is rome, which uses milan and lets it use rome too; everything is well.
func healthy(t *testing.T) *Snapshot {
	t.Helper()
	ca, err := serve.NewCA("test", now, 24*time.Hour)
	require.NoError(t, err)
	s := &Snapshot{
		Taken: now, Program: "liqod", Namespace: "liqod", ClusterID: "rome", Kubernetes: "v1.36.3", Kinds: kinds, Unread: map[string]error{},
		Webhooks: []admissionregistrationv1.MutatingWebhookConfiguration{{
			ObjectMeta: metav1.ObjectMeta{Name: "liqod"},
			Webhooks:   []admissionregistrationv1.MutatingWebhook{{Name: "pod.mutate.liqo.io", ClientConfig: admissionregistrationv1.WebhookClientConfig{CABundle: ca.CertPEM()}}},
		}},
		Rules: []admissionregistrationv1.ValidatingWebhookConfiguration{{
			ObjectMeta: metav1.ObjectMeta{Name: "liqod"},
			Webhooks:   []admissionregistrationv1.ValidatingWebhook{{Name: "virtualnode.validate.liqo.io", ClientConfig: admissionregistrationv1.WebhookClientConfig{CABundle: ca.CertPEM()}}},
		}},
		Tenants: []corev1.Namespace{{ObjectMeta: metav1.ObjectMeta{Name: "liqo-tenant-milan", Labels: map[string]string{
			corev1beta1.RemoteClusterIDLabel: "milan", corev1beta1.TenantNamespaceLabel: "true"}}}},
		VKubelets: []appsv1.Deployment{deployment("liqo-tenant-milan", "vk-milan", "")},
	}
	for _, role := range []string{Controller, Webhook} {
		s.Roles = append(s.Roles, deployment("liqod", LeaseName(role), role))
		s.Leases = append(s.Leases, coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: LeaseName(role)}, Spec: coordinationv1.LeaseSpec{
			HolderIdentity: ptr.To(role + "-0"), LeaseDurationSeconds: ptr.To[int32](15), RenewTime: ptr.To(metav1.NewMicroTime(now.Add(-5 * time.Second))),
		}})
	}
	for _, role := range []string{"ipam", "gateway"} {
		s.Roles = append(s.Roles, deployment("liqod", "liqod-"+role, role))
	}
	s.DaemonSets = []appsv1.DaemonSet{{
		ObjectMeta: metav1.ObjectMeta{Namespace: "liqod", Name: "liqod-route", Labels: ofRole("route")},
		Spec:       appsv1.DaemonSetSpec{Selector: &metav1.LabelSelector{MatchLabels: ofRole("route")}, Template: s.Roles[0].Spec.Template},
		Status:     appsv1.DaemonSetStatus{DesiredNumberScheduled: 3, UpdatedNumberScheduled: 3, NumberReady: 3},
	}}
	addMilan(s)
	return s
}

func ofRole(role string) map[string]string {
	return map[string]string{ComponentLabel: role, "app.kubernetes.io/name": "liqod", "app.kubernetes.io/version": "0.1.0"}
}

func deployment(namespace, name, role string) appsv1.Deployment {
	return appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: ofRole(role)},
		Spec: appsv1.DeploymentSpec{Replicas: ptr.To[int32](2), Selector: &metav1.LabelSelector{MatchLabels: ofRole(role)}, Template: corev1.PodTemplateSpec{
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Image: "liqod:1"}}}}},
		Status: appsv1.DeploymentStatus{Replicas: 2, UpdatedReplicas: 2, ReadyReplicas: 2},
	}
}

func addMilan(s *Snapshot) {
	s.ForeignClusters = []corev1beta1.ForeignCluster{{
		ObjectMeta: metav1.ObjectMeta{Name: "milan"},
		Spec: corev1beta1.ForeignClusterSpec{
			ClusterID: "milan", UserName: "liqo.io:peer:milan:1", AddressRanges: []string{"10.0.0.0/16"}},
		Status: corev1beta1.ForeignClusterStatus{
			Role: corev1beta1.RoleConsumerAndProvider, APIServerURL: "https://milan:6443",
			Conditions: []metav1.Condition{
				is(corev1beta1.ConditionAPIServer, metav1.ConditionTrue, corev1beta1.ReasonAPIServerReady, "the API server answers"),
				is(corev1beta1.ConditionReady, metav1.ConditionTrue, corev1beta1.ReasonAllChecksPassed, "all checks pass"),
			}},
	}}
	s.VirtualNodes = []offloadingv1beta1.VirtualNode{{
		ObjectMeta: metav1.ObjectMeta{Name: "milan", Namespace: "liqo-tenant-milan"},
		Spec:       offloadingv1beta1.VirtualNodeSpec{ClusterID: "milan"},
		Status:     offloadingv1beta1.VirtualNodeStatus{Conditions: well(offloadingv1beta1.VirtualNodeVirtualKubelet, "2 of 2")},
	}}
	s.Nodes = []corev1.Node{{
		ObjectMeta: metav1.ObjectMeta{Name: "milan", Labels: map[string]string{offloadingv1beta1.TypeLabel: offloadingv1beta1.TypeVirtualNode}},
		Spec: corev1.NodeSpec{Taints: []corev1.Taint{
			{Key: offloadingv1beta1.VirtualNodeTaintKey, Value: offloadingv1beta1.VirtualNodeTaintValue, Effect: corev1.TaintEffectNoExecute},
			{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoExecute}}},
		Status: corev1.NodeStatus{
			Allocatable: resources("4", "8Gi", "110"),
			Conditions:  []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		},
	}}
	s.Maps = []offloadingv1beta1.NamespaceMap{
		{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-milan", Name: "milan"},
			Status: offloadingv1beta1.NamespaceMapStatus{Conditions: well("Ready", "all stand")}},
		{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-milan", Name: "rome", Labels: map[string]string{
			offloadingv1beta1.ReplicatedLabel: "true", offloadingv1beta1.OriginIDLabel: "milan"}},
			Status: offloadingv1beta1.NamespaceMapStatus{CurrentMapping: map[string]offloadingv1beta1.RemoteNamespaceStatus{
				"lab": {RemoteNamespace: "lab-milan", Phase: offloadingv1beta1.MappingAccepted}}}},
	}
	s.Offloadings = []offloadingv1beta1.NamespaceOffloading{{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "offloading"},
		Spec:       offloadingv1beta1.NamespaceOffloadingSpec{PodOffloadingStrategy: offloadingv1beta1.PodsLocalAndRemote},
		Status: offloadingv1beta1.NamespaceOffloadingStatus{
			OffloadingPhase: offloadingv1beta1.PhaseReady, RemoteNamespaceName: "shop-rome",
			Conditions: well("Ready", "namespace shop-rome stands in cluster milan"),
			RemoteNamespacesConditions: map[string][]metav1.Condition{
				"milan": append(well(offloadingv1beta1.RemoteNamespaceOffloadingRequired, "selected"), well("Ready", "namespace shop-rome stands in cluster milan")...),
				"turin": {is(offloadingv1beta1.RemoteNamespaceOffloadingRequired, metav1.ConditionFalse, "ClusterNotSelected", "")},
			}},
	}}
	s.Pods = []corev1.Pod{
		pod("shop", "web-1", "milan", "500m", "1Gi", corev1.PodRunning), pod("shop", "web-2", "milan", "250m", "1Gi", corev1.PodRunning),
		pod("shop", "done", "milan", "1", "1Gi", corev1.PodSucceeded), pod("lab-milan", "hosted", "rome-1", "1", "1Gi", corev1.PodRunning),
	}
	s.Pods[3].Labels = map[string]string{offloadingv1beta1.OriginLabel: "milan", offloadingv1beta1.ManagedByLabel: offloadingv1beta1.ManagedByShadowPod}
}

func resources(cpu, memory, pods string) corev1.ResourceList {
	return corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory), corev1.ResourcePods: resource.MustParse(pods),
	}
}

func pod(namespace, name, node, cpu, memory string, phase corev1.PodPhase) corev1.Pod {
	ready := corev1.ConditionFalse
	if phase == corev1.PodRunning {
		ready = corev1.ConditionTrue
	}
	return corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(name), CreationTimestamp: ago(12 * time.Second)},
		Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}}}}},
		Status: corev1.PodStatus{Phase: phase, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: ready, LastTransitionTime: ago(12 * time.Second)}}},
	}
}
