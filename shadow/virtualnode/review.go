package virtualnode

import (
	"context"
	"fmt"
	"maps"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	offloadinglisters "github.com/liqod/liqod/api/generated/listers/offloading/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/serve"
	"github.com/liqod/liqod/kube/store"
)

// Review is the input of the webhook's decision on a write of a VirtualNode.
type Review struct {
	// New is the object being written. Old is the existing one, nil at creation.
	New, Old *offloadingv1beta1.VirtualNode
	// Namesakes are the other VirtualNodes of the same name.
	Namesakes []*offloadingv1beta1.VirtualNode
	// Node is the Node of that name, or nil.
	Node *corev1.Node
}

// Judge returns the reason to refuse the write, or "". It is pure. It refuses nothing that
// Lifecycle accepts.
func (r Review) Judge() string {
	if r.Old == nil {
		if reason, message := refuse(r.New, nil, r.Node); reason != "" {
			return message
		}
		if i := slices.IndexFunc(r.Namesakes, valid); i >= 0 {
			return fmt.Sprintf("VirtualNode %s/%s has the same name, and a Node can stand for one of them only: use another name",
				r.Namesakes[i].Namespace, r.New.Name)
		}
	}
	return wrong(&r.New.Spec)
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

// Rule is the webhook's rule for VirtualNodes.
type Rule struct {
	VirtualNodes offloadinglisters.VirtualNodeLister
	// Synced reports whether VirtualNodes is known.
	Synced cache.InformerSynced
	// Kube reads the Node of the same name. A cache of all Nodes costs more than these reads:
	// VirtualNodes are seldom written.
	Kube kubernetes.Interface
}

// Decide judges what is written. An error says that the API server could not be asked.
func (r Rule) Decide(ctx context.Context, req *admissionv1.AdmissionRequest) (serve.Decision, error) {
	return serve.Reviewed(req, r.Synced, "VirtualNodes", func(obj, old *offloadingv1beta1.VirtualNode) (serve.Decision, error) {
		others := slices.DeleteFunc(namesakes(r.VirtualNodes, obj.Name), func(vn *offloadingv1beta1.VirtualNode) bool { return vn.Namespace == obj.Namespace })
		review := Review{New: obj, Old: old, Namesakes: others}
		var err error
		if review.Node, err = store.OrNil(r.Kube.CoreV1().Nodes().Get(ctx, obj.Name, metav1.GetOptions{})); err != nil {
			return serve.Decision{}, err
		}
		return serve.Verdict(review.Judge(), nil), nil
	})
}
