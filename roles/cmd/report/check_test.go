package report

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	ipamv1alpha1 "github.com/liqod/liqod/api/ipam/v1alpha1"
	networkingv1beta1 "github.com/liqod/liqod/api/networking/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	sharingv1alpha1 "github.com/liqod/liqod/api/sharing/v1alpha1"
	"github.com/liqod/liqod/reasons"
)

func TestCheckOfAHealthyCluster(t *testing.T) {
	findings := Check(healthy(t))
	require.Equal(t, OK, Worst(findings), findings)
	for _, f := range findings {
		require.Empty(t, f.Fix, f)
	}
	require.Equal(t, `Installation
  ✔ Kubernetes: v1.36.3
  ✔ CRDs: all 14 kinds are served
  ✔ role controller: 2 of 2 replicas are ready; controller-0 leads
  ✔ role webhook: 2 of 2 replicas are ready; webhook-0 leads
  ✔ role ipam: 2 of 2 replicas are ready
  ✔ role gateway: 2 of 2 replicas are ready
  ✔ role route: 3 of 3 replicas are ready
  ✔ admission webhook pod.mutate.liqo.io: its caBundle is set, valid until 2030-05-05
  ✔ admission webhook: 1 rules for objects that people write
  ✔ versions: every part runs liqod:1

Peering with milan
  ✔ API server: the API server answers
  ✔ tenant namespace: liqo-tenant-milan
  ✔ rights of the consumer: bound to liqo.io:peer:milan:1
  ✔ namespaces asked for: all stand
  ✔ virtual node milan: Ready

Offloaded namespaces
  ✔ namespace shop: namespace shop-rome stands in cluster milan

Pods in providers
  ✔ pods: 2 pods: all are ready

DaemonSets
  ✔ virtual nodes: no DaemonSet lands on them

Everything is well.
`, CheckText(findings))
}

// says is a finding that is awaited beside those of what is well.
type says struct {
	level                 Level
	subject, message, fix string // message and fix in part
}

func set(conditions []metav1.Condition, kind string, status metav1.ConditionStatus, reason, message string) {
	c := meta.FindStatusCondition(conditions, kind)
	c.Status, c.Reason, c.Message = status, reason, message
}

func apiServer(s *Snapshot, status metav1.ConditionStatus, reason, message string) {
	for _, kind := range []string{corev1beta1.ConditionAPIServer, corev1beta1.ConditionReady} {
		set(s.ForeignClusters[0].Status.Conditions, kind, status, reason, message)
	}
}

// crashes adds a pod of a role that does not start.
func crashes(s *Snapshot, role string) {
	s.RolePods = append(s.RolePods, corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "liqod", Name: role + "-new", Labels: ofRole(role)},
		Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{
			Name: role, RestartCount: 4, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}}}},
	})
}

func TestCheck(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*Snapshot)
		want   []says
	}{
		"old Kubernetes": {func(s *Snapshot) { s.Kubernetes = "v1.31.9" }, []says{{Warning, "Kubernetes", "older than 1.32.0", "upgrade"}}},
		"CRDs missing": {func(s *Snapshot) { s.Kinds = kinds[:7] },
			[]says{{Problem, "CRDs", "lacks networks, quotas", "chart"}}},
		"route on no node": {func(s *Snapshot) { s.DaemonSets[0].Status = appsv1.DaemonSetStatus{} },
			[]says{{Problem, "role route", "no node takes it", "describe daemonset/liqod-route"}}},
		"route crashes on one node": {func(s *Snapshot) { s.DaemonSets[0].Status.NumberReady = 2; crashes(s, "route") },
			[]says{{Warning, "role route", "2 of 3 replicas are ready: pod route-new has CrashLoopBackOff", "logs daemonset/liqod-route"}}},
		"rollout of route fails": {func(s *Snapshot) {
			s.DaemonSets[0].Status.NumberReady, s.DaemonSets[0].Status.UpdatedNumberScheduled = 2, 1
			crashes(s, "route")
		}, []says{{Problem, "role route", "2 of 3 replicas are ready, but the rollout of liqod:1 fails: pod route-new has",
			"logs daemonset/liqod-route\nshows why.\nkubectl -n liqod rollout undo daemonset/liqod-route\n"}}},
		"image of route that does not exist": {func(s *Snapshot) {
			s.DaemonSets[0].Status.NumberReady = 0
			crashes(s, "route")
			s.RolePods[len(s.RolePods)-1].Status.ContainerStatuses[0].State.Waiting.Reason = "ImagePullBackOff"
		}, []says{{Problem, "role route", "0 of 3 replicas are ready: pod route-new has ImagePullBackOff",
			"kubectl -n liqod rollout undo daemonset/liqod-route\ngoes back to the template before, if there was one. Else correct image.repository"}}},
		"node of the controller that does not answer": {func(s *Snapshot) {
			s.Roles[0].Status.ReadyReplicas = 1
			s.RolePods = append(s.RolePods, corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "liqod", Name: "controller-a", Labels: ofRole(Controller)},
				Spec: corev1.PodSpec{NodeName: "rome-2"}, Status: corev1.PodStatus{Conditions: []corev1.PodCondition{
					{Type: corev1.PodReady, Status: corev1.ConditionFalse}, {Type: corev1.ContainersReady, Status: corev1.ConditionTrue}}}})
		}, []says{{Warning, "role controller", "1 of 2 replicas are ready: pod controller-a is on node rome-2, which is not Ready", "kubectl get nodes; kubectl describe nodes\n"}}},
		"rollout of webhook fails": {func(s *Snapshot) {
			s.Roles[1].Status = appsv1.DeploymentStatus{Replicas: 3, UpdatedReplicas: 1, ReadyReplicas: 2}
			crashes(s, "webhook")
		}, []says{{Problem, "role webhook", "2 of 2 replicas are ready, but the rollout of liqod:1 fails: pod webhook-new has CrashLoopBackOff", "logs"}}},
		"rollout of a vkubelet fails": {func(s *Snapshot) {
			s.VKubelets[0].Status.Conditions = []appsv1.DeploymentCondition{{Type: appsv1.DeploymentProgressing, Status: corev1.ConditionFalse, Message: "it has timed out"}}
		}, []says{{Problem, "vkubelet liqo-tenant-milan/vk-milan", "the rollout of liqod:1 fails: it has timed out", "kubectl -n liqo-tenant-milan logs deployment/vk-milan"}}},
		"a rollout that goes on": {func(s *Snapshot) {
			s.Roles[1].Status = appsv1.DeploymentStatus{Replicas: 3, UpdatedReplicas: 1, ReadyReplicas: 2}
		}, nil},
		"role without a leader": {func(s *Snapshot) { s.Leases[1].Spec.HolderIdentity = ptr.To("") },
			[]says{{Problem, "role webhook", "2 of 2 replicas are ready, but nobody holds the Lease liqod-webhook", "logs"}}},
		"role outside of a Deployment": {func(s *Snapshot) { s.Roles = s.Roles[:1] }, nil},
		"nothing installed": {func(s *Snapshot) {
			*s = Snapshot{Taken: now, Namespace: "liqod", Kubernetes: "v1.36.3", Unread: map[string]error{}}
		}, []says{
			{Problem, "CRDs", "lacks addresspools", "install"},
			{Problem, "role controller", "namespace liqod has no Deployment of it, and there is no Lease liqod-controller", "--namespace"},
			{Problem, "role webhook", "no Deployment", "install"},
			{Problem, "admission webhook", "no MutatingWebhookConfiguration", "chart"},
		}},
		"caBundle empty": {func(s *Snapshot) { s.Webhooks[0].Webhooks[0].ClientConfig.CABundle = nil },
			[]says{{Problem, "admission webhook pod.mutate.liqo.io", "the caBundle of MutatingWebhookConfiguration liqod is empty", "logs deployment/liqod-controller"}}},
		"caBundle broken": {func(s *Snapshot) { s.Webhooks[0].Webhooks[0].ClientConfig.CABundle = []byte("x") },
			[]says{{Problem, "admission webhook pod.mutate.liqo.io", "holds no certificate", "logs"}}},
		"caBundle expired": {func(s *Snapshot) {
			s.Taken = now.Add(48 * time.Hour)
			for i := range s.Leases {
				s.Leases[i].Spec.RenewTime = ptr.To(metav1.NewMicroTime(s.Taken))
			}
		}, []says{{Problem, "admission webhook pod.mutate.liqo.io", "has expired at 2030-05-05T12:00:00Z", "logs"},
			{Warning, "admission webhook virtualnode.validate.liqo.io", "has expired at 2030-05-05T12:00:00Z", "logs"}}},
		"overlay open": {func(s *Snapshot) { s.OpenOverlays = []string{"gateway"} },
			[]says{{Warning, "overlay", "gateway.anyOverlaySender is true", "config.gateway.anyOverlaySender"}}},
		"peer not known yet": {server(metav1.ConditionUnknown, corev1beta1.ReasonProbing, "not answered yet"), []says{{Unknown, "API server", "not answered yet", "in a moment"}}},
		"no rules":           {func(s *Snapshot) { s.Rules = nil }, []says{{Warning, "admission webhook", "no ValidatingWebhookConfiguration", "chart"}}},
		"rules that are not trusted": {func(s *Snapshot) { s.Rules[0].Webhooks[0].ClientConfig.CABundle = nil },
			[]says{{Warning, "admission webhook virtualnode.validate.liqo.io", "ValidatingWebhookConfiguration liqod is empty: objects are not checked", "logs deployment/liqod-controller"}}},
		"the consumer has left": {func(s *Snapshot) {
			s.ForeignClusters[0].Status.Role, s.ForeignClusters[0].Spec.AddressRanges = corev1beta1.RoleConsumer, nil
			s.VirtualNodes, s.Nodes, s.Pods, s.Offloadings, s.Maps, s.Connections = nil, nil, nil, nil, nil, nil
			s.ForeignClusters[0].Status.Conditions = nil
			tells(s, corev1beta1.ConditionIncomingPeering, metav1.ConditionFalse, corev1beta1.ReasonEndedByPeer, "milan has ended its use of this cluster")
			tells(s, corev1beta1.ConditionReady, metav1.ConditionFalse, corev1beta1.ReasonEndedByPeer, "IncomingPeering: milan has ended its use of this cluster")
		}, []says{{Warning, "capacity used here", "milan has ended its use of this cluster (EndedByPeer; False for ", "liqod unpeer milan"}}},
		"nothing offered": {told(corev1beta1.ConditionOutgoingPeering, metav1.ConditionFalse, "RequestRefused", "milan has no room"),
			[]says{{Problem, "capacity used there", "milan has no room", "get resourcerequests,resourceoffers\nshows what has been asked and offered; the peer's people decide about it. To ask no longer:\n" +
				`kubectl patch foreigncluster milan --type=merge -p '{"spec":{"outgoingPeeringEnabled":"No"}}'`}}},
		"nothing is left to offer": {told(corev1beta1.ConditionOutgoingPeering, metav1.ConditionFalse, sharingv1alpha1.ReasonNoCapacity, "cluster milan has no cpu left to give"),
			[]says{{Problem, "capacity used there", "has no cpu left to give (NoCapacity; ", "In cluster milan:\nliqod offer list\nshows who has its capacity. It offers some by itself once another consumer asks for less " +
				`(spec.request.resources of its ForeignCluster), pods there end, or its sharing.* give more. To ask no longer:` + "\n" + `kubectl patch foreigncluster milan --type=merge -p '{"spec":{"outgoingPeeringEnabled":"No"}}'`}}},
		"switched off here, and asked for": {func(s *Snapshot) {
			s.ForeignClusters[0].Spec.IncomingPeeringEnabled = corev1beta1.PeeringNo
			tells(s, corev1beta1.ConditionIncomingPeering, metav1.ConditionFalse, sharingv1alpha1.ReasonNotAllowed, "cluster rome does not let milan use it")
			set(s.ForeignClusters[0].Status.Conditions, corev1beta1.ConditionReady, metav1.ConditionFalse, "SomeCheckFails", "IncomingPeering: cluster rome does not let milan use it")
		}, nil},
		"not allowed by the policy here": {func(s *Snapshot) {
			s.ForeignClusters[0].Spec.IncomingPeeringEnabled = corev1beta1.PeeringAuto
			tells(s, corev1beta1.ConditionIncomingPeering, metav1.ConditionFalse, sharingv1alpha1.ReasonNotAllowed, "cluster rome does not let milan use it")
		}, []says{{Problem, "capacity used here", "does not let milan", "kubectl patch foreigncluster milan --type=merge -p '{\"spec\":{\"incomingPeeringEnabled\":\"Yes\"}}'\nlets cluster milan use this one. " +
			"If it is not to:\nkubectl patch foreigncluster milan --type=merge -p '{\"spec\":{\"incomingPeeringEnabled\":\"No\"}}'"}}},
		"nothing to give": {told(corev1beta1.ConditionIncomingPeering, metav1.ConditionFalse, "NoCapacity", "all is given"),
			[]says{{Problem, "capacity used here", "all is given", "kubectl -n liqo-tenant-milan get resourcerequests,resourceoffers\nshows what cluster milan asks for, and what it gets. The settings sharing.* decide: docs/negotiation.md. " +
				"If it is to get nothing:\nkubectl patch foreigncluster milan --type=merge -p '{\"spec\":{\"incomingPeeringEnabled\":\"No\"}}'"}}},
		"switched off here, and drained": {func(s *Snapshot) {
			s.ForeignClusters[0].Spec.IncomingPeeringEnabled = corev1beta1.PeeringNo
			tells(s, corev1beta1.ConditionIncomingPeering, metav1.ConditionFalse, "Withdrawn", "cluster milan must return 1 offer(s) and drain its pods")
		}, []says{{Problem, "capacity used here", "must return 1 offer(s)", "nothing to do here: cluster milan drains its pods, and returns the offer"}}},
		"use switched off here": {func(s *Snapshot) {
			s.ForeignClusters[0].Spec.OutgoingPeeringEnabled, s.VirtualNodes, s.Nodes = corev1beta1.PeeringNo, nil, nil
		}, nil},
		"not approved here": {told(corev1beta1.ConditionIncomingPeering, metav1.ConditionUnknown, sharingv1alpha1.ReasonApprovalRequired, "an offer waits for approval"),
			[]says{{Unknown, "capacity used here", "an offer waits for approval", "liqod offer approve"}}},
		"itself": {func(s *Snapshot) {
			s.ForeignClusters[0].Status.Conditions = []metav1.Condition{is(corev1beta1.ConditionReady, metav1.ConditionFalse, corev1beta1.ReasonSelfPeering, "a cluster cannot be a peer of itself")}
		}, []says{{Problem, "ForeignCluster", "cannot be a peer of itself", "kubectl delete foreigncluster milan"}}},
		"peer replaced": {server(metav1.ConditionFalse, corev1beta1.ReasonClusterReplaced, "another UID"), []says{{Problem, "API server", "another UID", "another cluster answers"}}},
		"peer that reports its API server down": {server(metav1.ConditionFalse, networkingv1beta1.ReasonPeerReportsDown, "the peer's gateway reports that"),
			[]says{{Problem, "API server", "the peer's gateway reports that", "In cluster milan:\nkubectl get --raw"}}},
		"peer that nobody checks":   {server(metav1.ConditionUnknown, corev1beta1.ReasonNoController, "nobody checks"), []says{{Unknown, "API server", "nobody checks", "role controller"}}},
		"peer that is not heard of": {server(metav1.ConditionUnknown, networkingv1beta1.ReasonTunnelDown, "no probe comes"), []says{{Unknown, "API server", "no probe comes", "check of the network"}}},
		"nothing to check": {func(s *Snapshot) {
			s.ForeignClusters[0].Status.Conditions = []metav1.Condition{is(corev1beta1.ConditionReady, metav1.ConditionUnknown, corev1beta1.ReasonNothingChecked, "nothing can be checked")}
		}, []says{{Unknown, "ForeignCluster", "nothing can be checked", "docs/networking.md"}}},
		"no conditions": {func(s *Snapshot) { s.ForeignClusters[0].Status.Conditions = nil },
			[]says{{Unknown, "ForeignCluster", "has not processed it yet", "get pods"}}},
		"conditions of an earlier generation": {func(s *Snapshot) {
			s.ForeignClusters[0].Generation = 3
			s.ForeignClusters[0].Status.Conditions[0].ObservedGeneration = 2
		}, []says{{Unknown, "API server", "has not processed the last change yet", "in a moment"}}},
		"no ForeignCluster": {func(s *Snapshot) { s.ForeignClusters = nil },
			[]says{{Problem, "ForeignCluster", "there is none", "docs/peering.md"}}},
		"no tenant namespace": {func(s *Snapshot) { s.Tenants = nil },
			[]says{{Problem, "tenant namespace", "no namespace liqo-tenant-milan", "label"}}},
		"tenant namespace of another": {func(s *Snapshot) { s.Tenants[0].Labels[corev1beta1.RemoteClusterIDLabel] = "x" },
			[]says{{Problem, "tenant namespace", "lacks the label liqo.io/remote-cluster-id=milan", "kubectl label namespace liqo-tenant-milan"}}},
		"consumer without rights": {func(s *Snapshot) { s.ForeignClusters[0].Spec.UserName = "liqo.io:peer:turin:1" },
			[]says{{Problem, "rights of the consumer", "is not a user of milan", "docs/peering.md"}}},
		"consumer before its first offer": {func(s *Snapshot) { s.ForeignClusters[0].Spec.AddressRanges = nil }, nil},
		"consumer without addresses": {func(s *Snapshot) {
			s.ForeignClusters[0].Spec.AddressRanges = nil
			s.Roles = slices.DeleteFunc(s.Roles, func(d appsv1.Deployment) bool { return d.Labels[ComponentLabel] == "ipam" })
		},
			[]says{{Warning, "addresses of the consumer", "no endpoint", "kubectl patch foreigncluster milan --type=merge"}}},
		"consumer by a fabric that is down": {func(s *Snapshot) {
			s.ForeignClusters[0].Spec.AddressRanges = nil
			tells(s, corev1beta1.ConditionNetwork, metav1.ConditionFalse, "Down", "no probe is answered")
		}, []says{{Problem, "network", "no probe is answered", "UDP packets"}}},
		"consumer by the fabric": {func(s *Snapshot) {
			s.ForeignClusters[0].Spec.AddressRanges = nil
			connected(s)
		}, nil},
		"consumer without addresses, fabric off": {func(s *Snapshot) {
			s.ForeignClusters[0].Spec.AddressRanges, s.ForeignClusters[0].Spec.NetworkingEnabled = nil, ptr.To(false)
			connected(s)
		}, []says{{Warning, "addresses of the consumer", "no endpoint", "kubectl patch foreigncluster milan --type=merge"}}},
		"network on, fabric off": {told(corev1beta1.ConditionNetwork, metav1.ConditionFalse, corev1beta1.ReasonNetworkingDisabled, "no network fabric"),
			[]says{{Problem, "network", "no network fabric", "networking.enabled"}}},
		"network negotiated": {told(corev1beta1.ConditionNetwork, metav1.ConditionUnknown, corev1beta1.ReasonNegotiating, "no answer yet"),
			[]says{{Unknown, "network", "no answer yet", "get configurations.networking.liqo.io,networks.ipam.liqo.io"}}},
		"network of another key": {told(corev1beta1.ConditionNetwork, metav1.ConditionFalse, reasons.KeyDiffers, "no answer"),
			[]says{{Problem, "network", "(KeyDiffers; False", "In cluster milan:\nkubectl get pods -A -l app.kubernetes.io/component=gateway"}}},
		"network without gateways": {told(corev1beta1.ConditionNetwork, metav1.ConditionUnknown, corev1beta1.ReasonNoGateway, "no gateway"), []says{{Unknown, "network", "no gateway", "component=gateway"}}},
		"range without a view": {func(s *Snapshot) {
			s.Networks = []ipamv1alpha1.Network{{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-milan", Name: "n"}, Spec: ipamv1alpha1.NetworkSpec{CIDR: "10.42.0.0/16"},
				Status: ipamv1alpha1.NetworkStatus{Conditions: []metav1.Condition{is("Ready", metav1.ConditionFalse, "Exhausted", "no range is free")}}}}
		}, []says{{Problem, "range 10.42.0.0/16", "no range is free", "docs/networking.md#addresses-between-clusters"}}},
		"range without an answer": {func(s *Snapshot) {
			s.Networks = []ipamv1alpha1.Network{{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-milan", Name: "n", CreationTimestamp: ago(time.Hour)}, Spec: ipamv1alpha1.NetworkSpec{CIDR: "10.42.0.0/16"}}}
		}, []says{{Unknown, "range 10.42.0.0/16", "Network n has no answer yet", "component=ipam"}}},
		"map not answered": {func(s *Snapshot) { s.Maps[0].Generation = 2 }, []says{{Unknown, "namespaces asked for", "has not answered", "moment"}}},
		"map refused": {func(s *Snapshot) {
			set(s.Maps[0].Status.Conditions, "Ready", metav1.ConditionFalse, offloadingv1beta1.ReasonReplicationFailed, "forbidden")
		}, []says{{Problem, "namespaces asked for", "forbidden (ReplicationFailed", "describe namespacemap milan"}}},
		"twins kept for their volumes": {func(s *Snapshot) {
			set(s.Maps[0].Status.Conditions, "Ready", metav1.ConditionFalse, offloadingv1beta1.ReasonTerminating, "1 is kept for its volumes")
			s.Maps[0].Status.Conditions[0].LastTransitionTime = ago(2 * time.Minute)
			s.Maps[0].Spec.DesiredMapping = map[string]string{"again": "again-rome"}
			s.Maps[0].Status.CurrentMapping = map[string]offloadingv1beta1.RemoteNamespaceStatus{
				"lab":   {RemoteNamespace: "lab-rome", Phase: offloadingv1beta1.MappingTerminating, Message: "kept for its volumes"},
				"evil":  {RemoteNamespace: "x; id", Phase: offloadingv1beta1.MappingTerminating, Message: "kept for its volumes"},
				"going": {RemoteNamespace: "going-rome", Phase: offloadingv1beta1.MappingTerminating},
				"again": {RemoteNamespace: "again-rome", Phase: offloadingv1beta1.MappingTerminating, Message: "still being deleted"},
			}
		}, []says{{Warning, "namespaces asked for", "kept for its volumes", "In cluster milan:\nkubectl -n lab-rome get pvc\nshows what a namespace is kept for. If the data is to stay, there is nothing to do. " +
			"To delete it with its namespace:\nkubectl annotate namespace lab-rome liqo.io/delete-volumes=lab-rome"}}},
		"twins being removed": {func(s *Snapshot) {
			set(s.Maps[0].Status.Conditions, "Ready", metav1.ConditionFalse, offloadingv1beta1.ReasonTerminating, "twin namespaces: 0; no longer requested: 1")
			s.Maps[0].Status.Conditions[0].LastTransitionTime = ago(2 * time.Minute)
		}, []says{{Warning, "namespaces asked for", "no longer requested: 1", "nothing to do: cluster milan is deleting the namespaces"}}},
		"offloading in progress": {func(s *Snapshot) {
			set(s.Offloadings[0].Status.Conditions, "Ready", metav1.ConditionFalse, "InProgress", "asked")
		}, []says{{Warning, "namespace shop", "asked (InProgress; False for 12s)", "in a moment"}}},
		"offloading in progress for long": {func(s *Snapshot) {
			set(s.Offloadings[0].Status.Conditions, "Ready", metav1.ConditionFalse, "InProgress", "asked")
			s.Offloadings[0].Status.Conditions[0].LastTransitionTime = ago(time.Hour)
		}, []says{{Problem, "namespace shop", "asked (InProgress; False for 60m)", "what the peering says"}}},
		"no virtual node": {func(s *Snapshot) { s.VirtualNodes, s.Nodes = nil, nil }, []says{{Warning, "virtual nodes", "nothing can be offloaded to milan", "VirtualNode"}}},
		"no Node":         {func(s *Snapshot) { s.Nodes = nil }, []says{{Problem, "virtual node milan", "it has no Node", "logs deployment/vk-milan"}}},
		"Node down": {func(s *Snapshot) {
			s.Nodes[0].Status.Conditions[0] = corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionFalse, Reason: "ProviderAway", Message: "milan is away"}
		}, []says{{Problem, "virtual node milan", "milan is away (ProviderAway)", "logs"}}},
		"Node cordoned": {func(s *Snapshot) { s.Nodes[0].Spec.Unschedulable = true },
			[]says{{Warning, "virtual node milan", "cordoned", "kubectl uncordon milan"}}},
		"Node without room": {func(s *Snapshot) { s.Nodes[0].Status.Allocatable = nil },
			[]says{{Warning, "virtual node milan", "no room", "kubectl -n liqo-tenant-milan patch virtualnode milan --type=merge"}}},
		"no cluster selected": {func(s *Snapshot) {
			set(s.Offloadings[0].Status.Conditions, "Ready", metav1.ConditionFalse, "NoClusterSelected", "nobody")
		}, []says{{Problem, "namespace shop", "nobody", "in a moment"}}},
		"offloading invalid": {func(s *Snapshot) {
			set(s.Offloadings[0].Status.Conditions, "Ready", metav1.ConditionFalse, "Invalid", "too long")
		}, []says{{Problem, "namespace shop", "too long", "liqod unoffload namespace shop"}}},
		"offloading ends": {func(s *Snapshot) { s.Offloadings[0].DeletionTimestamp = ptr.To(ago(0)) },
			[]says{{Warning, "namespace shop", "being taken back", ""}}},
		"what cannot be read": {func(s *Snapshot) {
			s.Unread[ReadOffloadings], s.Unread[ReadDaemonSets] = errors.New("forbidden"), errors.New("forbidden too")
		}, []says{
			{Unknown, "NamespaceOffloadings", "cannot be read: forbidden", "run the command again"},
			{Unknown, "DaemonSets", "cannot be read: forbidden too", "run the command again"},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s := healthy(t)
			tc.change(s)
			var have []Finding
			for _, f := range Check(s) {
				if f.Level != OK {
					have = append(have, f)
				}
			}
			require.Len(t, have, len(tc.want), CheckText(have))
			for i, want := range tc.want {
				require.Equal(t, want.level, have[i].Level, CheckText(have))
				require.Equal(t, want.subject, have[i].Subject)
				require.Contains(t, have[i].Message, want.message)
				require.Contains(t, have[i].Fix, want.fix)
			}
		})
	}
}

// What a controller has written that is gone is not known now: neither well nor a problem.
func TestNothingIsKnownWithoutTheController(t *testing.T) {
	s := healthy(t)
	s.Leases[0].Spec.RenewTime = ptr.To(metav1.NewMicroTime(now.Add(-time.Minute)))
	apiServer(s, metav1.ConditionFalse, corev1beta1.ReasonAPIServerNotReady, "timeout")
	levels := map[string]Level{}
	for _, f := range Check(s) {
		levels[f.Subject] = f.Level
	}
	require.Equal(t, Problem, levels["role controller"])
	require.Equal(t, Unknown, levels["API server"])
	require.Equal(t, Unknown, levels["namespace shop"])
	require.Equal(t, OK, levels["virtual node milan"], "Kubernetes itself watches over Nodes")
	require.Equal(t, Unknown, Summarize(s).Peers[0].Health)
}

func TestDaemonSets(t *testing.T) {
	everything := []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	away := &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
			{Key: "liqo.io/type", Operator: corev1.NodeSelectorOpNotIn, Values: []string{"virtual-node"}}}}}}}}
	for name, tc := range map[string]struct {
		spec corev1.PodSpec
		want bool
	}{
		"plain":                 {corev1.PodSpec{}, false},
		"tolerates everything":  {corev1.PodSpec{Tolerations: everything}, true},
		"keeps away":            {corev1.PodSpec{Tolerations: everything, Affinity: away}, false},
		"selects other nodes":   {corev1.PodSpec{Tolerations: everything, NodeSelector: map[string]string{"gpu": "yes"}}, false},
		"tolerates another one": {corev1.PodSpec{Tolerations: []corev1.Toleration{{Key: "gpu", Operator: corev1.TolerationOpExists}}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := healthy(t)
			s.DaemonSets = []appsv1.DaemonSet{{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "agent"},
				Spec: appsv1.DaemonSetSpec{Template: corev1.PodTemplateSpec{Spec: tc.spec}}}}
			findings := Check(s)
			last := findings[len(findings)-1]
			if !tc.want {
				require.Equal(t, OK, last.Level, last)
				return
			}
			require.Equal(t, Warning, last.Level)
			require.Equal(t, "kube-system/agent", last.Subject)
			require.Contains(t, last.Message, "milan")
			require.Contains(t, last.Fix, "{key: liqo.io/type, operator: NotIn, values: [virtual-node]}")
		})
	}
}

// connected adds the Connection of the network fabric to milan.
func connected(s *Snapshot) {
	s.Connections = []networkingv1beta1.Connection{{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-milan", Name: "milan"}}}
}

// told is a world in which milan's ForeignCluster has one condition more.
func told(kind string, status metav1.ConditionStatus, reason, message string) func(*Snapshot) {
	return func(s *Snapshot) { tells(s, kind, status, reason, message) }
}

// server is a world in which this is known of milan's API server.
func server(status metav1.ConditionStatus, reason, message string) func(*Snapshot) {
	return func(s *Snapshot) { apiServer(s, status, reason, message) }
}

// tells adds a condition to milan's ForeignCluster.
func tells(s *Snapshot, kind string, status metav1.ConditionStatus, reason, message string) {
	conditions := &s.ForeignClusters[0].Status.Conditions
	*conditions = append(*conditions, is(kind, status, reason, message))
}

// TestNoPeerYet: a cluster that discovery has found is no peer, and no trouble. One that has been let in, and has not
// come yet, is no trouble, and takes a token and nothing else.
func TestNoPeerYet(t *testing.T) {
	for name, tc := range map[string]struct {
		incoming     corev1beta1.PeeringEnabled
		reason, says string
		level        Level
	}{
		"found": {reason: corev1beta1.ReasonNotPeered, level: OK, says: "✔ ForeignCluster: found by discovery, and not used\n"},
		"awaited": {incoming: corev1beta1.PeeringYes, reason: corev1beta1.ReasonAwaitsEnrolment, level: Warning,
			says: "‼ ForeignCluster: it is told\n      Fix: liqod token create --for turin\n           for the people of that cluster\n"},
	} {
		s := healthy(t)
		s.ForeignClusters = append(s.ForeignClusters, corev1beta1.ForeignCluster{
			ObjectMeta: metav1.ObjectMeta{Name: "turin"}, Spec: corev1beta1.ForeignClusterSpec{ClusterID: "turin", IncomingPeeringEnabled: tc.incoming},
			Status: corev1beta1.ForeignClusterStatus{Role: corev1beta1.RoleUnknown, Conditions: []metav1.Condition{
				is(corev1beta1.ConditionReady, metav1.ConditionUnknown, tc.reason, "it is told")}},
		})
		findings := Check(s)
		require.Equal(t, tc.level, Worst(findings), name)
		require.Contains(t, CheckText(findings), "Peering with turin\n  "+tc.says, name)
	}
}

// TestAddresses: a Connection says under which ranges each cluster sees the other.
func TestAddresses(t *testing.T) {
	s := healthy(t)
	s.Connections = []networkingv1beta1.Connection{{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-milan", Name: "milan"}, Spec: networkingv1beta1.ConnectionSpec{
		Local:  []networkingv1beta1.Mapping{{Own: "10.42.0.0/16", View: "10.42.0.0/16"}},
		Remote: []networkingv1beta1.Mapping{{Own: "10.42.0.0/16", View: "10.80.0.0/16"}, {Own: "10.70.0.0/16", View: "10.71.0.0/16"}},
	}}}
	var got []string
	for _, f := range Check(s) {
		if f.Subject == "addresses" {
			got = append(got, f.Message)
		}
	}
	require.Equal(t, []string{"10.42.0.0/16 as 10.80.0.0/16, 10.70.0.0/16 as 10.71.0.0/16 of milan; 10.42.0.0/16 of this cluster there"}, got)
}

// TestK3s: check names the setting without which the API servers of k3s and RKE2 reach no pod of a virtual node.
func TestK3s(t *testing.T) {
	s := healthy(t)
	for _, version := range []string{"v1.36.3+k3s1", "v1.36.3+rke2r1"} {
		s.Kubernetes = version
		require.Contains(t, CheckText(Check(s)), "✔ Kubernetes: "+version+"; kubectl logs and exec reach pods on virtual nodes only with egress-selector-mode: disabled")
	}
	s.Kubernetes = "v1.36.3"
	require.NotContains(t, CheckText(Check(s)), "egress-selector-mode")
}
