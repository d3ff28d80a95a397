package namespace

import (
	"context"
	"errors"
	"slices"

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
	obj, old, answer := serve.Objects[offloadingv1beta1.NamespaceOffloading](req)
	switch {
	case answer != nil:
		return *answer, nil
	case obj.DeletionTimestamp != nil:
		return serve.Allow(), nil
	case !r.Synced():
		return serve.Decision{}, errors.New("the VirtualNodes are not read yet")
	}
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
