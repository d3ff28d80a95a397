package report

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/reasons"
	"github.com/liqod/liqod/shadow/rules"
)

// mostNames limits the names in one command.
const mostNames = 20

// Owner is the controller of a waiting pod.
type Owner struct {
	Namespace, Kind, Name string
	UID                   types.UID
}

// Owners returns the controllers of pods that find no node. Their templates show which part
// of a pod's affinity came from a NamespaceOffloading.
func (s *Snapshot) Owners() []Owner {
	found := map[types.UID]Owner{}
	for i := range s.Pods {
		pod := &s.Pods[i]
		owner := metav1.GetControllerOf(pod)
		if owner == nil || !unschedulableHere(pod) || !s.concerns(pod) {
			continue
		}
		switch owner.Kind {
		case "ReplicaSet", "StatefulSet", "Job":
			found[owner.UID] = Owner{pod.Namespace, owner.Kind, owner.Name, owner.UID}
		}
	}
	return slices.SortedFunc(maps.Values(found), func(a, b Owner) int {
		return strings.Compare(a.Namespace+"/"+a.Name+"/"+a.Kind, b.Namespace+"/"+b.Name+"/"+b.Kind)
	})
}

func unschedulableHere(pod *corev1.Pod) bool {
	c := PodCondition(pod, corev1.PodScheduled)
	return pod.Spec.NodeName == "" && !ended(pod) && pod.DeletionTimestamp == nil &&
		c != nil && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable
}

// earlier adds a finding for each namespace with pods that find no node because of an affinity
// that its NamespaceOffloading no longer asks for. It returns the UIDs of these pods.
func (c *checker) earlier(all []placedPod) map[types.UID]bool {
	out := map[types.UID]bool{}
	byNamespace := map[string][]*corev1.Pod{}
	for _, pod := range all {
		if c.outdated(pod.Pod) {
			out[pod.UID] = true
			byNamespace[pod.Namespace] = append(byNamespace[pod.Namespace], pod.Pod)
		}
	}
	for _, namespace := range slices.Sorted(maps.Keys(byNamespace)) {
		c.outdatedPods(namespace, byNamespace[namespace])
	}
	return out
}

func (c *checker) outdatedPods(namespace string, pods []*corev1.Pod) {
	why := "with the affinity of an earlier NamespaceOffloading; "
	if !mentionsVirtualNodes(pods[0]) {
		why = "created before the present NamespaceOffloading; "
	}
	if o := c.offloadingOf(namespace); o != nil && o.DeletionTimestamp == nil {
		why += "pods created now get another affinity"
	} else {
		why += "the namespace is not offloaded now"
	}
	var names []string
	owned := false
	for _, pod := range pods {
		names = append(names, pod.Name)
		owned = owned || metav1.GetControllerOf(pod) != nil
	}
	fix := fmt.Sprintf("kubectl -n %s delete pod %s", namespace, strings.Join(names[:min(len(names), mostNames)], " "))
	if len(names) > mostNames {
		fix += fmt.Sprintf("\nthen the same for the other %d", len(names)-mostNames)
	}
	if owned {
		fix += "\nThe controllers of the pods create them anew, with the present affinity. No container of these pods has run."
	} else {
		fix += "\nCreate them anew from their manifests: no controller does it. No container of these pods has run."
	}
	who := "pod " + names[0] + " waits"
	if len(names) > 1 {
		who = fmt.Sprintf("%d pods (%s, …) wait", len(names), names[0])
	}
	c.Report(Finding{ID: idEarlier, Level: Problem, Subject: "pods of namespace " + namespace, Reason: reasons.EarlierAffinity, Fix: fix,
		Message: fmt.Sprintf("%s for a node, %s", who, why)})
}

// outdated reports whether a pod finds no node because of an affinity that a pod created now
// would not have. A pod whose controller's template could not be read is outdated if the present
// offloading does not account for a term about virtual nodes.
func (s *Snapshot) outdated(pod *corev1.Pod) bool {
	if !unschedulableHere(pod) {
		return false
	}
	strategy, selector := offloadingv1beta1.PodsLocal, corev1.NodeSelector{}
	if o := s.offloadingOf(pod.Namespace); o != nil && o.DeletionTimestamp == nil {
		strategy, selector = o.Spec.PodOffloadingStrategy, o.Spec.ClusterSelector
	}
	owner := metav1.GetControllerOf(pod)
	if owner == nil {
		return s.leftover(pod, strategy, selector)
	}
	template, read := s.Templates[owner.UID]
	if !read {
		return s.leftover(pod, strategy, selector)
	}
	fresh := &corev1.Pod{Spec: template.Spec}
	want, err := rules.Offload(fresh, strategy, selector)
	if err != nil || like(pod, want) || forClaims(pod, fresh, want, strategy) {
		return false
	}
	return (mentionsVirtualNodes(pod) || mentionsVirtualNodes(want) || tolerates(want)) && s.fitsSome(want)
}

// like reports whether a pod is scheduled as one that is created now.
func like(pod, created *corev1.Pod) bool {
	return equality.Semantic.DeepEqual(required(pod), required(created)) && (tolerates(pod) || !tolerates(created))
}

// forClaims reports whether a pod is as the webhook creates it now for the sake of its claims: on own
// nodes, or off virtual nodes that make no volumes.
func forClaims(pod, fresh, want *corev1.Pod, strategy offloadingv1beta1.PodOffloadingStrategy) bool {
	atHome, err := rules.KeepHome(fresh)
	if err == nil && strategy == offloadingv1beta1.PodsLocalAndRemote && like(pod, atHome) {
		return true
	}
	return slices.ContainsFunc([]bool{true, false}, func(onOwnNodes bool) bool {
		created, err := rules.WithStorage(want, onOwnNodes)
		return err == nil && like(pod, created)
	})
}

// tolerates reports whether a pod has the toleration that the webhook adds.
func tolerates(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.Tolerations, func(t corev1.Toleration) bool { return t.Key == offloadingv1beta1.VirtualNodeTaintKey })
}

// leftover judges a pod without a known template: the webhook would change the pod, or the pod
// selects virtual nodes that the offloading does not ask for.
func (s *Snapshot) leftover(pod *corev1.Pod, strategy offloadingv1beta1.PodOffloadingStrategy, selector corev1.NodeSelector) bool {
	if !mentionsVirtualNodes(pod) || s.fitsSome(pod) {
		return false
	}
	want, err := rules.Offload(pod, strategy, selector)
	changed := err == nil && !equality.Semantic.DeepEqual(required(pod), required(want))
	again := corev1.PodSpec{RuntimeClassName: pod.Spec.RuntimeClassName, NodeSelector: pod.Spec.NodeSelector}
	fresh, err := rules.Offload(&corev1.Pod{Spec: again}, strategy, selector)
	return changed || (err == nil && !equality.Semantic.DeepEqual(required(pod), required(fresh)) && s.fitsSome(fresh))
}

// fitsSome reports whether the affinity of a pod admits a node: one of the virtual nodes, or one
// of this cluster's own, which the snapshot does not have.
func (s *Snapshot) fitsSome(pod *corev1.Pod) bool {
	away := func(r corev1.NodeSelectorRequirement) bool {
		return r.Key == offloadingv1beta1.TypeLabel && r.Operator != corev1.NodeSelectorOpIn
	}
	if !mentionsVirtualNodes(pod) || requires(pod, away) {
		return true
	}
	return slices.ContainsFunc(s.Nodes, func(node corev1.Node) bool { return admits(pod, &node) })
}

// admits reports whether the node selector and the required affinity of a pod admit a node.
func admits(pod *corev1.Pod, node *corev1.Node) bool {
	fits, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(node)
	return err == nil && fits
}

// required returns the node selector of a pod's required affinity, or an empty one.
func required(pod *corev1.Pod) *corev1.NodeSelector {
	if a := pod.Spec.Affinity; a != nil && a.NodeAffinity != nil && a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		return a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	}
	return &corev1.NodeSelector{}
}

// mentionsVirtualNodes reports whether the required affinity of a pod has a term about the type
// of nodes, as the webhook adds it.
func mentionsVirtualNodes(pod *corev1.Pod) bool {
	return requires(pod, func(r corev1.NodeSelectorRequirement) bool { return r.Key == offloadingv1beta1.TypeLabel })
}

func requires(pod *corev1.Pod, is func(corev1.NodeSelectorRequirement) bool) bool {
	return slices.ContainsFunc(required(pod).NodeSelectorTerms, func(term corev1.NodeSelectorTerm) bool {
		return slices.ContainsFunc(term.MatchExpressions, is)
	})
}
