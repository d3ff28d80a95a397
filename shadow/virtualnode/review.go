package virtualnode

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/utils/ptr"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
)

// Review is the input of the webhook's decision on a write of a VirtualNode.
type Review struct {
	// New is the object being written. Old is the existing one, nil at creation.
	New, Old *offloadingv1beta1.VirtualNode
	// Namesakes are the other VirtualNodes of the same name.
	Namesakes []*offloadingv1beta1.VirtualNode
	// Node is the Node of that name, or nil.
	Node *corev1.Node
	// Offer reports whether the namespace has a ResourceOffer of the same name.
	Offer bool
}

// Judge returns the reason to refuse the write, or "", and the warnings for its author. It
// is pure. It refuses nothing that Lifecycle accepts.
func (r Review) Judge() (refused string, warnings []string) {
	if r.Old == nil {
		if no := refuse(r.New, nil, r.Node); no.refused() {
			return no.message, nil
		}
		if i := slices.IndexFunc(r.Namesakes, valid); i >= 0 {
			return fmt.Sprintf("VirtualNode %s/%s has the same name, and a Node can stand for one of them only: use another name",
				r.Namesakes[i].Namespace, r.New.Name), nil
		}
	}
	if why := wrong(&r.New.Spec); why != "" {
		return why, nil
	}
	if r.Offer {
		warnings = append(warnings, fmt.Sprintf("the offer %s of cluster %s has this name: the controller reverts manual changes to the values of the offer, or the offer waits",
			r.New.Name, r.New.Spec.ClusterID))
	}
	warnings = append(warnings, odd(&r.New.Spec)...)
	if r.Old != nil {
		warnings = append(warnings, edits(&r.Old.Spec, &r.New.Spec)...)
	}
	return "", warnings
}

// wrong returns the first error in a spec, or "".
func wrong(spec *offloadingv1beta1.VirtualNodeSpec) string {
	if spec.KubeconfigSecretRef.Name == "" {
		return fmt.Sprintf("spec.kubeconfigSecretRef.name is empty: it names the Secret of namespace %s whose key %s reaches the provider",
			corev1beta1.TenantNamespace(spec.ClusterID), corev1beta1.KubeconfigSecretKey)
	}
	for _, name := range slices.Sorted(maps.Keys(spec.ResourceQuota.Hard)) {
		if q := spec.ResourceQuota.Hard[name]; q.Sign() < 0 {
			return fmt.Sprintf("spec.resourceQuota.hard.%s is %s: a negative amount is not accepted", name, q.String())
		}
	}
	if p := spec.OffloadingPatch; p != nil && p.Affinity != nil && p.Affinity.NodeAffinity != nil {
		if required := p.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution; required != nil {
			if _, err := nodeaffinity.NewNodeSelector(required); err != nil {
				return fmt.Sprintf("spec.offloadingPatch.affinity.nodeAffinity: every pod would be refused with it: %v", err)
			}
		}
	}
	return ""
}

// odd returns warnings about accepted values that are probably mistakes.
func odd(spec *offloadingv1beta1.VirtualNodeSpec) (warnings []string) {
	var lacking []string
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourcePods} {
		if q, ok := spec.ResourceQuota.Hard[name]; !ok || q.IsZero() {
			lacking = append(lacking, string(name))
		}
	}
	if len(lacking) > 0 {
		warnings = append(warnings, fmt.Sprintf("spec.resourceQuota.hard has no %s: no pod that needs it is scheduled to the node", strings.Join(lacking, ", ")))
	}
	for key, own := range map[string]string{
		offloadingv1beta1.TypeLabel: offloadingv1beta1.TypeVirtualNode, corev1beta1.RemoteClusterIDLabel: spec.ClusterID,
	} {
		if value, ok := spec.Labels[key]; ok && value != own {
			warnings = append(warnings, fmt.Sprintf("spec.labels: %s of the Node is always %s", key, own))
		}
	}
	slices.Sort(warnings)
	return warnings
}

// edits returns warnings about effects that an edit does not have.
func edits(old, spec *offloadingv1beta1.VirtualNodeSpec) (warnings []string) {
	if !equality.Semantic.DeepEqual(old.OffloadingPatch, spec.OffloadingPatch) {
		warnings = append(warnings, "spec.offloadingPatch applies to pods that are offloaded from now on: pods that run in the provider do not change")
	}
	for _, name := range slices.Sorted(maps.Keys(old.ResourceQuota.Hard)) {
		have, want := old.ResourceQuota.Hard[name], spec.ResourceQuota.Hard[name]
		if want.Cmp(have) < 0 {
			warnings = append(warnings, "spec.resourceQuota.hard is smaller: pods that run on the node stay, even if they exceed it")
			break
		}
	}
	if n := spec.VirtualKubelet.Replicas; n != nil && *n == 0 && (old.VirtualKubelet.Replicas == nil || *old.VirtualKubelet.Replicas != 0) {
		warnings = append(warnings, "spec.virtualKubelet.replicas 0: the Node becomes NotReady; its pods run on in the provider, but their state is not updated here")
	}
	if was := old.VirtualKubelet.NodeTaint; was != nil && !*was && ptr.Deref(spec.VirtualKubelet.NodeTaint, true) {
		warnings = append(warnings, "spec.virtualKubelet.nodeTaint is no longer false: with the taint, Kubernetes deletes the pods on the node that do not tolerate "+offloadingv1beta1.VirtualNodeTaintKey)
	}
	return warnings
}
