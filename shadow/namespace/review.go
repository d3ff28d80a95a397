package namespace

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	offloadinglisters "github.com/liqod/liqod/api/generated/listers/offloading/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/serve"
	"github.com/liqod/liqod/kube/store"
)

// Review is the input of the webhook's decision on a write of a NamespaceOffloading.
type Review struct {
	// New is the object being written. Old is the existing one, nil at creation.
	New, Old *offloadingv1beta1.NamespaceOffloading
	// Namespace is the namespace of the NamespaceOffloading.
	Namespace *corev1.Namespace
	// OwnNamespace is the namespace that liqod runs in. ClusterID is this cluster's id.
	OwnNamespace, ClusterID string
	// VirtualNodes are all VirtualNodes of this cluster. Nodes are their Nodes, by name, as far as
	// they exist and were read.
	VirtualNodes []*offloadingv1beta1.VirtualNode
	Nodes        map[string]*corev1.Node
	// Running is the number of pods of the namespace that run in each cluster that the write leaves.
	Running map[string]int
}

// Judge returns the reason to refuse the write, or "", and the warnings for its author. It
// is pure. Beside what Offloading does not accept, it refuses a change that ends pods or selects
// nothing, unless EndPodsInAnnotation names the clusters that are left.
func (r Review) Judge() (refused string, warnings []string) {
	spec := &r.New.Spec
	if why := refusal(r.Namespace, r.OwnNamespace); why != "" {
		return why, nil
	}
	if _, err := remoteName(spec, r.New.Namespace, r.ClusterID); err != nil {
		return err.Error(), nil
	}
	chosen, err := r.chosen(spec)
	if err != nil {
		return err.Error(), nil
	}
	if len(r.unconfirmed(chosen)) > 0 {
		return fmt.Sprintf("%s. If that is meant, annotate the NamespaceOffloading with %s=%s in the same change (liqod offload namespace: --end-pods)",
			r.ends(chosen), offloadingv1beta1.EndPodsInAnnotation, strings.Join(r.left(chosen), ",")), nil
	}
	if r.Old != nil && r.Old.Spec.PodOffloadingStrategy != spec.PodOffloadingStrategy {
		warnings = append(warnings, fmt.Sprintf("podOffloadingStrategy %s applies to pods that are created from now on: existing pods stay where they are until they are created again (kubectl rollout restart)",
			spec.PodOffloadingStrategy))
	}
	return "", warnings
}

// chosen returns the sorted ids of the clusters that the selector matches, judging by the Nodes,
// and by the VirtualNodes where it has no Node.
func (r Review) chosen(spec *offloadingv1beta1.NamespaceOffloadingSpec) ([]string, error) {
	choices, err := choose(&spec.ClusterSelector, r.VirtualNodes, func(name string) *corev1.Node { return r.Nodes[name] })
	if err != nil {
		return nil, err
	}
	maps.DeleteFunc(choices, func(_ string, c choice) bool { return c != selected })
	return slices.Sorted(maps.Keys(choices)), nil
}

// left returns the sorted ids of the clusters that are selected before the write and not after.
func (r Review) left(chosen []string) []string {
	if r.Old == nil || equality.Semantic.DeepEqual(r.Old.Spec.ClusterSelector, r.New.Spec.ClusterSelector) {
		return nil
	}
	before, err := r.chosen(&r.Old.Spec)
	if err != nil {
		return nil // it selected nothing
	}
	return slices.DeleteFunc(before, func(id string) bool { return slices.Contains(chosen, id) })
}

// unconfirmed returns the clusters that the write leaves, in which pods end or after which none
// is selected, and that EndPodsInAnnotation does not name.
func (r Review) unconfirmed(chosen []string) []string {
	named := strings.Split(r.New.Annotations[offloadingv1beta1.EndPodsInAnnotation], ",")
	return slices.DeleteFunc(r.left(chosen), func(id string) bool {
		return (r.Running[id] == 0 && len(chosen) > 0) || slices.Contains(named, id)
	})
}

// ends says what the write ends. The write leaves a cluster at least.
func (r Review) ends(chosen []string) string {
	var left []string
	for _, id := range r.left(chosen) {
		left = append(left, fmt.Sprintf("%s (running pods: %d)", id, r.Running[id]))
	}
	after := ""
	if len(chosen) == 0 {
		after = ", and no virtual node is selected any more"
	}
	return fmt.Sprintf("no longer selected: %s%s; the twin namespace there is deleted, and its pods become Failed here at once", strings.Join(left, ", "), after)
}

// OffloadingRule is the webhook's rule for NamespaceOffloadings.
type OffloadingRule struct {
	VirtualNodes offloadinglisters.VirtualNodeLister
	// Synced reports whether VirtualNodes is known.
	Synced cache.InformerSynced
	// Kube reads the namespace. It is not in a cache, because it may have been created just
	// now, and is not offloaded yet. Where a selector changes, Kube also reads the virtual nodes'
	// Nodes, and the namespace's pods on those that the change leaves.
	Kube kubernetes.Interface
	// ClusterID is this cluster's id, OwnNamespace the namespace that liqod runs in.
	ClusterID, OwnNamespace string
}

// Decide judges what is written. An error says that the API server could not be asked.
func (r OffloadingRule) Decide(ctx context.Context, req *admissionv1.AdmissionRequest) (serve.Decision, error) {
	return serve.Reviewed(req, r.Synced, "VirtualNodes", func(obj, old *offloadingv1beta1.NamespaceOffloading) (serve.Decision, error) {
		ns, err := r.Kube.CoreV1().Namespaces().Get(ctx, obj.Namespace, metav1.GetOptions{})
		if err != nil {
			return serve.Decision{}, err
		}
		nodes := store.Listed(r.VirtualNodes.List(labels.Everything()))
		review := Review{New: obj, Old: old, Namespace: ns, VirtualNodes: nodes, OwnNamespace: r.OwnNamespace, ClusterID: r.ClusterID}
		if err := r.look(ctx, &review); err != nil {
			return serve.Decision{}, err
		}
		return serve.Verdict(review.Judge()), nil
	})
}

// look reads the Nodes and the pods of a change that may leave clusters.
func (r OffloadingRule) look(ctx context.Context, review *Review) error {
	if review.Old == nil || equality.Semantic.DeepEqual(review.Old.Spec.ClusterSelector, review.New.Spec.ClusterSelector) {
		return nil
	}
	review.Nodes, review.Running = map[string]*corev1.Node{}, map[string]int{}
	for _, vn := range review.VirtualNodes {
		node, err := store.OrNil(r.Kube.CoreV1().Nodes().Get(ctx, vn.Name, metav1.GetOptions{}))
		if err != nil {
			return err
		}
		if node != nil && offloadingv1beta1.IsVirtual(node) {
			review.Nodes[vn.Name] = node
		}
	}
	chosen, err := review.chosen(&review.New.Spec)
	if err != nil {
		return nil //nolint:nilerr // Judge refuses the selector
	}
	left := review.left(chosen)
	for _, vn := range review.VirtualNodes {
		if !slices.Contains(left, vn.Spec.ClusterID) {
			continue
		}
		pods, err := r.Kube.CoreV1().Pods(review.New.Namespace).List(ctx, metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.nodeName", vn.Name).String()})
		if err != nil {
			return err
		}
		for i := range pods.Items {
			if p := &pods.Items[i]; p.DeletionTimestamp == nil && p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed {
				review.Running[vn.Spec.ClusterID]++
			}
		}
	}
	return nil
}
