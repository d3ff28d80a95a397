package virtualnode

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilversion "k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/utils/ptr"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/reasons"
)

// ownedAnnotation records the keys of the labels, annotations and taints that WantNode has set.
// A recorded key that is no longer wanted is removed; keys of other writers stay.
const ownedAnnotation = "offloading.liqo.io/node-keys"

// Remote is the state of the provider's API server as this process sees it, and what this process does for it.
type Remote struct {
	// Ready is nil before the first result; the Node keeps its Ready condition then.
	Ready *bool
	// Reason (in CamelCase) and Message explain Ready.
	Reason, Message string
	// Version is the provider's version; zero before the first contact.
	Version version.Info
	// Silent says that the provider's controller does not run; "": it runs, or nothing is known
	// of it. The Node stays Ready, as its pods run on.
	Silent string
	// Refused is the text of offloadingv1beta1.RefusedText.
	Refused string
	// NodePorts is the value of offloadingv1beta1.NodePortsAnnotation.
	NodePorts string
}

// NodeSettings are the inputs of WantNode that do not change.
type NodeSettings struct {
	// Name is the name of the Node.
	Name string
	// Addresses are the addresses at which the API server reaches the kubelet API. The
	// first one is also the host IP of the node's pods.
	Addresses []string
	// Port is the port of the kubelet API.
	Port int32
	// Untainted leaves the taint of virtual nodes out, unless the VirtualNode says otherwise.
	Untainted bool
	// OwnZone makes the node a zone of its own, unless the VirtualNode names one.
	OwnZone bool
	// Closed adds the taint of virtual nodes that take no further pods.
	Closed bool
	// NoVolumes says that no volume is made on the node, whatever the VirtualNode offers.
	NoVolumes bool
	// Grace is how long an unknown network changes nothing. After that it counts as down.
	Grace time.Duration
}

// NodeFacts are the inputs of WantNode besides the VirtualNode.
type NodeFacts struct {
	NodeSettings

	// Remote is the provider's state.
	Remote Remote
	// Network is the condition NetworkStatus of the provider's ForeignCluster; nil: the
	// network is not checked.
	Network *metav1.Condition
	// Now is the time of condition transitions.
	Now metav1.Time
}

// ProviderID returns the spec.providerID of a new Node. Autoscalers and cloud controllers must
// take it for a Node of somebody else, without an error: TestProviderID has their rules. The
// scheme has four letters because the GCE provider of cluster-autoscaler splits the id after
// its sixth character.
func ProviderID(clusterID, node string) string { return "liqo://" + clusterID + "/" + node }

// Ours reports whether a Node with the VirtualNode's name was created for it. liqod never
// touches any other Node.
func Ours(n *corev1.Node, vn *offloadingv1beta1.VirtualNode) bool {
	return n.Spec.ProviderID == ProviderID(vn.Spec.ClusterID, vn.Name)
}

// WantNode returns the wanted Node, based on have (nil: there is none). Fields that other
// clients set in have stay.
func WantNode(have *corev1.Node, vn *offloadingv1beta1.VirtualNode, f NodeFacts) *corev1.Node {
	n := &corev1.Node{Spec: corev1.NodeSpec{ProviderID: ProviderID(vn.Spec.ClusterID, vn.Name)}}
	if have != nil {
		n = have.DeepCopy() // with its providerID, which is immutable
	}
	n.Name = f.Name
	before := store.Recorded[ownedKeys](n.Annotations, ownedAnnotation) // missing or edited: nothing is removed
	want := ownedKeys{Labels: wantLabels(vn, f), Annotations: vn.Spec.Annotations, Taints: wantTaints(vn, f)}
	n.Labels = store.Merged(want.Labels, n.Labels, slices.Collect(maps.Keys(before.Labels)))
	n.Annotations = store.Merged(want.Annotations, n.Annotations, slices.Collect(maps.Keys(before.Annotations)))
	n.Spec.Taints = mergeTaints(n.Spec.Taints, before.Taints, want.Taints)
	n.Annotations[ownedAnnotation] = want.String()
	n.Annotations[offloadingv1beta1.NodePortsAnnotation] = f.Remote.NodePorts // whatever the VirtualNode says
	setStatus(&n.Status, vn, f)
	return n
}

func wantLabels(vn *offloadingv1beta1.VirtualNode, f NodeFacts) map[string]string {
	os, arch := platform(f.Remote.Version)
	labels := map[string]string{
		corev1.LabelHostname:   f.Name,
		corev1.LabelOSStable:   os,
		corev1.LabelArchStable: arch,
		"node.kubernetes.io/exclude-from-external-load-balancers": "true",
	}
	if f.OwnZone {
		labels[corev1.LabelTopologyZone] = vn.Spec.ClusterID + ".liqo.io" // a name that no zone of this cluster has
	}
	maps.Copy(labels, vn.Spec.Labels)
	labels[offloadingv1beta1.TypeLabel] = offloadingv1beta1.TypeVirtualNode
	labels[offloadingv1beta1.VirtualKubeletLabel] = offloadingv1beta1.VirtualKubelet
	labels[corev1beta1.RemoteClusterIDLabel] = vn.Spec.ClusterID
	if f.NoVolumes || len(vn.Spec.StorageClasses) == 0 {
		labels[offloadingv1beta1.NoStorageLabel] = "true"
	}
	return labels
}

// platform splits the "os/arch" of a version. It returns linux/amd64 while the version is
// unknown.
func platform(v version.Info) (os, arch string) {
	if os, arch, ok := strings.Cut(v.Platform, "/"); ok {
		return os, arch
	}
	return "linux", "amd64"
}

func wantTaints(vn *offloadingv1beta1.VirtualNode, f NodeFacts) []corev1.Taint {
	var own []corev1.Taint
	if ptr.Deref(vn.Spec.VirtualKubelet.NodeTaint, !f.Untainted) {
		own = append(own, offloadingv1beta1.VirtualNodeTaint())
	}
	if f.Closed {
		own = append(own, corev1.Taint{Key: offloadingv1beta1.ClosedTaintKey, Effect: corev1.TaintEffectNoSchedule})
	}
	return mergeTaints(vn.Spec.Taints, own, own)
}

// ownedKeys is the part of a Node's metadata and spec that WantNode sets.
type ownedKeys struct {
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
	Taints      []corev1.Taint    `json:"taints,omitempty"`
}

// String returns the keys only, as JSON. The values are in the Node itself.
func (o ownedKeys) String() string {
	keys := ownedKeys{Labels: blank(o.Labels), Annotations: blank(o.Annotations)}
	for _, t := range o.Taints {
		keys.Taints = append(keys.Taints, corev1.Taint{Key: t.Key, Effect: t.Effect})
	}
	return store.Record(keys)
}

func blank(m map[string]string) map[string]string {
	out := make(map[string]string, len(m))
	for k := range m {
		out[k] = ""
	}
	return out
}

func mergeTaints(have, before, want []corev1.Taint) []corev1.Taint {
	matches := func(set []corev1.Taint, t corev1.Taint) bool {
		return slices.ContainsFunc(set, func(o corev1.Taint) bool { return o.MatchTaint(&t) })
	}
	out := slices.Clone(want)
	for _, t := range have {
		if !matches(want, t) && !matches(before, t) {
			out = append(out, t)
		}
	}
	if sameTaints(out, have) {
		return have // a different order is no change
	}
	return out
}

func sameTaints(a, b []corev1.Taint) bool {
	if len(a) != len(b) {
		return false
	}
	for _, t := range a {
		if !slices.ContainsFunc(b, func(o corev1.Taint) bool { return o.MatchTaint(&t) && o.Value == t.Value }) {
			return false
		}
	}
	return true
}

func setStatus(s *corev1.NodeStatus, vn *offloadingv1beta1.VirtualNode, f NodeFacts) {
	if hard := vn.Spec.ResourceQuota.Hard; !apiequality.Semantic.DeepEqual(s.Capacity, hard) || !apiequality.Semantic.DeepEqual(s.Allocatable, hard) {
		s.Capacity, s.Allocatable = hard.DeepCopy(), hard.DeepCopy()
	}
	s.Addresses = []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: f.Name}}
	for _, a := range f.Addresses {
		s.Addresses = append(s.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a})
	}
	s.DaemonEndpoints.KubeletEndpoint.Port = f.Port
	s.Images = vn.Spec.Images
	if v := f.Remote.Version; v.GitVersion != "" {
		s.NodeInfo.KubeletVersion = v.GitVersion
		s.NodeInfo.ContainerRuntimeVersion = "liqod://" + vn.Spec.ClusterID
		s.NodeInfo.OperatingSystem, s.NodeInfo.Architecture = platform(v)
		s.NodeInfo.OSImage = fmt.Sprintf("cluster %s", vn.Spec.ClusterID)
		s.DeclaredFeatures = declaredFeatures(v)
	}
	setConditions(s, vn.Spec.Pressures, f)
	setCondition(s, networkUnavailable(s, vn, f), f.Now)
	slices.SortFunc(s.Conditions, func(a, b corev1.NodeCondition) int { return strings.Compare(string(a.Type), string(b.Type)) })
}

// networkUnavailable is the Node's condition of that name. While it is unknown whether the
// network works, a Node that had none does not get more pods. One that had it has none as
// soon as that is unknown for the grace period.
func networkUnavailable(s *corev1.NodeStatus, vn *offloadingv1beta1.VirtualNode, f NodeFacts) corev1.NodeCondition {
	is := func(status corev1.ConditionStatus, reason, message string) corev1.NodeCondition {
		return corev1.NodeCondition{Type: corev1.NodeNetworkUnavailable, Status: status, Reason: reason, Message: message}
	}
	network := f.Network
	switch {
	case vn.Spec.DisableNetworkCheck != nil && *vn.Spec.DisableNetworkCheck:
		return is(corev1.ConditionFalse, reasons.NetworkCheckDisabled, "spec.disableNetworkCheck of the VirtualNode is true")
	case network == nil:
		return is(corev1.ConditionFalse, reasons.NetworkNotChecked, "the networks of the two clusters are connected without liqod")
	case network.Status == metav1.ConditionTrue:
		return is(corev1.ConditionFalse, reasons.LiqoNetworkingUp, "")
	case network.Status == metav1.ConditionFalse, store.NodeCondition(s, corev1.NodeNetworkUnavailable).Status == corev1.ConditionTrue:
		return is(corev1.ConditionTrue, network.Reason, network.Message)
	}
	if left, unknown := graceLeft(s, f); unknown && left <= 0 {
		return is(corev1.ConditionTrue, network.Reason, network.Message)
	}
	return is(corev1.ConditionUnknown, network.Reason, network.Message)
}

// graceLeft returns the time until an unknown network counts as down, and whether it is
// unknown. The Node itself is the memory, so that another replica of the vkubelet goes on
// where the last one ended.
func graceLeft(s *corev1.NodeStatus, f NodeFacts) (left time.Duration, unknown bool) {
	c := store.NodeCondition(s, corev1.NodeNetworkUnavailable)
	if c.Status != corev1.ConditionUnknown {
		return 0, false
	}
	return f.Grace - f.Now.Sub(c.LastTransitionTime.Time), true
}

// declaredFeatures returns the features that the Node declares (KEP-5328,
// NodeDeclaredFeatures, Kubernetes 1.36). The consumer's scheduler and API server allow
// these features only on a node that declares them. The list is what the API of the
// provider's version supports; an older API would silently drop the fields. Single nodes of
// the provider may still reject a feature, and the pod's status shows that.
func declaredFeatures(v version.Info) []string {
	parsed, err := utilversion.ParseGeneric(v.GitVersion)
	if err != nil || parsed.LessThan(utilversion.MajorMinor(1, 36)) {
		return nil
	}
	return []string{ // sorted, as kubelets write them
		"InPlacePodLevelResourcesVerticalScaling",
		"RestartAllContainersOnContainerExits",
	}
}

func setConditions(s *corev1.NodeStatus, pressures []corev1.NodeConditionType, f NodeFacts) {
	ready := corev1.NodeCondition{Type: corev1.NodeReady, Reason: f.Remote.Reason, Message: f.Remote.Message}
	switch {
	case f.Remote.Ready == nil && store.NodeCondition(s, corev1.NodeReady).Type != "":
		return // a new vkubelet has no result yet: the earlier condition stays
	case ptr.Deref(f.Remote.Ready, false):
		ready.Status = corev1.ConditionTrue
	default:
		ready.Status = corev1.ConditionFalse
	}
	setCondition(s, ready, f.Now)
	for _, trouble := range []struct{ kind, none, message string }{
		{offloadingv1beta1.ReasonControllerSilent, reasons.ProviderControllerRuns, f.Remote.Silent},
		{offloadingv1beta1.ReasonReflectionRefused, reasons.NothingRefused, f.Remote.Refused},
	} {
		c := corev1.NodeCondition{Type: corev1.NodeConditionType(trouble.kind), Status: corev1.ConditionFalse, Reason: trouble.none, Message: trouble.message}
		if c.Message != "" {
			c.Status, c.Reason = corev1.ConditionTrue, trouble.kind
		}
		if ready.Status == corev1.ConditionTrue && (c.Message != "" || store.NodeCondition(s, c.Type).Type != "") {
			setCondition(s, c, f.Now)
		}
	}
	for t, reason := range map[corev1.NodeConditionType]struct{ none, some string }{
		corev1.NodeMemoryPressure: {reasons.RemoteClusterHasSufficientMemory, reasons.RemoteClusterHasMemoryPressure},
		corev1.NodeDiskPressure:   {reasons.RemoteClusterHasNoDiskPressure, reasons.RemoteClusterHasDiskPressure},
		corev1.NodePIDPressure:    {reasons.RemoteClusterHasNoPIDPressure, reasons.RemoteClusterHasPIDPressure},
	} {
		c := corev1.NodeCondition{Type: t, Status: corev1.ConditionFalse, Reason: reason.none}
		if slices.Contains(pressures, t) {
			c.Status, c.Reason, c.Message = corev1.ConditionTrue, reason.some, "each node of the provider that could take a pod has this condition"
		}
		setCondition(s, c, f.Now)
	}
}

func setCondition(s *corev1.NodeStatus, c corev1.NodeCondition, now metav1.Time) {
	c.LastHeartbeatTime, c.LastTransitionTime = now, now
	for i := range s.Conditions {
		have := &s.Conditions[i]
		if have.Type != c.Type {
			continue
		}
		// A time in the future is that of a replica whose clock was ahead.
		if have.Status == c.Status && !have.LastTransitionTime.After(now.Time) {
			c.LastTransitionTime = have.LastTransitionTime
			if have.Reason == c.Reason && have.Message == c.Message {
				return // the Lease is the heartbeat: nothing to write
			}
		}
		*have = c
		return
	}
	s.Conditions = append(s.Conditions, c)
}
