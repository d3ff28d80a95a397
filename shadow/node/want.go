// Package node keeps the Node that stands for a provider: its labels, taints,
// capacity, addresses and conditions, and its heartbeat Lease. The plan (Want) is
// pure; the loop (Keeper) only compares and writes.
package node

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilversion "k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apimachinery/pkg/version"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
)

// ownedAnnotation records which labels, annotations and taints were set by us, so
// that those which are no longer wanted can be told from those of other writers.
const ownedAnnotation = "offloading.liqo.io/node-keys"

// Remote is what is known of the provider's API server.
type Remote struct {
	// Ready is nil before the first verdict: what the Node said before stays.
	Ready *bool
	// Reason and Message explain Ready; reason in CamelCase.
	Reason, Message string
	// Version of the provider; zero before the first contact.
	Version version.Info
}

// Facts are the inputs of Want beside the VirtualNode.
type Facts struct {
	// Name of the Node.
	Name string
	// Addresses at which the API server reaches the kubelet API. The first is also the
	// host IP of the node's pods.
	Addresses []string
	// Port of the kubelet API.
	Port int32
	// Remote is the provider's state.
	Remote Remote
	// Now stamps condition transitions.
	Now metav1.Time
}

// ProviderID returns the Node's spec.providerID: a scheme that no cloud knows, so
// that cloud node controllers leave the Node alone.
func ProviderID(clusterID, node string) string { return "liqod://" + clusterID + "/" + node }

// Ours reports whether a Node of the virtual node's name was made for it. A Node
// that was not is never touched.
func Ours(n *corev1.Node, vn *offloadingv1beta1.VirtualNode) bool {
	return n.Spec.ProviderID == ProviderID(vn.Spec.ClusterID, vn.Name)
}

// Want returns the Node as it should be, made from have (nil: there is none). What
// others have set in have is kept.
func Want(have *corev1.Node, vn *offloadingv1beta1.VirtualNode, f Facts) *corev1.Node {
	n := &corev1.Node{}
	if have != nil {
		n = have.DeepCopy()
	}
	n.Name = f.Name
	n.Spec.ProviderID = ProviderID(vn.Spec.ClusterID, vn.Name)
	before := readOwned(n)
	want := owned{Labels: wantLabels(vn, f), Annotations: vn.Spec.Annotations, Taints: wantTaints(vn)}
	n.Labels = merge(n.Labels, before.Labels, want.Labels)
	n.Annotations = merge(n.Annotations, before.Annotations, want.Annotations)
	n.Spec.Taints = mergeTaints(n.Spec.Taints, before.Taints, want.Taints)
	n.Annotations[ownedAnnotation] = want.String()
	setStatus(&n.Status, vn, f)
	return n
}

func wantLabels(vn *offloadingv1beta1.VirtualNode, f Facts) map[string]string {
	os, arch := platform(f.Remote.Version)
	labels := map[string]string{
		corev1.LabelHostname:   f.Name,
		corev1.LabelOSStable:   os,
		corev1.LabelArchStable: arch,
		"node.kubernetes.io/exclude-from-external-load-balancers": "true",
	}
	maps.Copy(labels, vn.Spec.Labels)
	labels[offloadingv1beta1.TypeLabel] = offloadingv1beta1.TypeVirtualNode
	labels[corev1beta1.RemoteClusterIDLabel] = vn.Spec.ClusterID
	return labels
}

// platform splits the "os/arch" of a version; linux/amd64 stands until it is known.
func platform(v version.Info) (os, arch string) {
	if os, arch, ok := strings.Cut(v.Platform, "/"); ok {
		return os, arch
	}
	return "linux", "amd64"
}

func wantTaints(vn *offloadingv1beta1.VirtualNode) []corev1.Taint {
	own := corev1.Taint{
		Key:    offloadingv1beta1.VirtualNodeTaintKey,
		Value:  offloadingv1beta1.VirtualNodeTaintValue,
		Effect: corev1.TaintEffectNoExecute,
	}
	taints := []corev1.Taint{own}
	for _, t := range vn.Spec.Taints {
		if !t.MatchTaint(&own) {
			taints = append(taints, t)
		}
	}
	return taints
}

// owned is the part of a Node's metadata and spec that we set.
type owned struct {
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
	Taints      []corev1.Taint    `json:"taints,omitempty"`
}

// String renders keys only: values are in the Node itself.
func (o owned) String() string {
	keys := owned{Labels: blank(o.Labels), Annotations: blank(o.Annotations)}
	for _, t := range o.Taints {
		keys.Taints = append(keys.Taints, corev1.Taint{Key: t.Key, Effect: t.Effect})
	}
	b, err := json.Marshal(keys)
	if err != nil {
		return "{}" // maps of strings always marshal
	}
	return string(b)
}

func blank(m map[string]string) map[string]string {
	out := make(map[string]string, len(m))
	for k := range m {
		out[k] = ""
	}
	return out
}

func readOwned(n *corev1.Node) owned {
	var o owned
	if err := json.Unmarshal([]byte(n.Annotations[ownedAnnotation]), &o); err != nil {
		return owned{} // absent or edited: nothing is removed that might be another's
	}
	return o
}

func merge(have, before, want map[string]string) map[string]string {
	out := map[string]string{}
	for k, v := range have {
		if _, ours := before[k]; !ours {
			out[k] = v
		}
	}
	maps.Copy(out, want)
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
		return have // the order is nobody's wish
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

func setStatus(s *corev1.NodeStatus, vn *offloadingv1beta1.VirtualNode, f Facts) {
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
	setConditions(s, f)
}

// declaredFeatures are what a node must declare (Kubernetes 1.36, NodeDeclaredFeatures)
// before this cluster's scheduler and API server let a pod use it, and what the API of a
// provider of that version has. Its nodes may differ: they answer for themselves, and what
// they refuse is told on the pod. An older API would drop the fields in silence.
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

func setConditions(s *corev1.NodeStatus, f Facts) {
	ready := corev1.NodeCondition{Type: corev1.NodeReady, Reason: f.Remote.Reason, Message: f.Remote.Message}
	switch {
	case f.Remote.Ready != nil && *f.Remote.Ready:
		ready.Status = corev1.ConditionTrue
	case f.Remote.Ready != nil:
		ready.Status = corev1.ConditionFalse
	case hasCondition(s, corev1.NodeReady):
		return // a new vkubelet has no verdict yet: what its predecessor said stands
	default:
		ready.Status = corev1.ConditionFalse
	}
	setCondition(s, ready, f.Now)
	for t, reason := range map[corev1.NodeConditionType]string{
		corev1.NodeMemoryPressure:     "RemoteClusterHasSufficientMemory",
		corev1.NodeDiskPressure:       "RemoteClusterHasNoDiskPressure",
		corev1.NodePIDPressure:        "RemoteClusterHasNoPIDPressure",
		corev1.NodeNetworkUnavailable: "LiqoNetworkingUp",
	} {
		setCondition(s, corev1.NodeCondition{Type: t, Status: corev1.ConditionFalse, Reason: reason}, f.Now)
	}
	slices.SortFunc(s.Conditions, func(a, b corev1.NodeCondition) int { return strings.Compare(string(a.Type), string(b.Type)) })
}

func hasCondition(s *corev1.NodeStatus, t corev1.NodeConditionType) bool {
	return slices.ContainsFunc(s.Conditions, func(c corev1.NodeCondition) bool { return c.Type == t })
}

func setCondition(s *corev1.NodeStatus, c corev1.NodeCondition, now metav1.Time) {
	c.LastHeartbeatTime, c.LastTransitionTime = now, now
	for i := range s.Conditions {
		have := &s.Conditions[i]
		if have.Type != c.Type {
			continue
		}
		if have.Status == c.Status {
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
