package namespace

import (
	"context"
	"errors"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	offloadinglisters "github.com/liqod/liqod/api/generated/listers/offloading/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/serve"
)

// OffloadingRule is the webhook's rule for NamespaceOffloadings.
type OffloadingRule struct {
	VirtualNodes offloadinglisters.VirtualNodeLister
	// Synced reports whether VirtualNodes is known.
	Synced cache.InformerSynced
	// Kube reads the namespace. It is not in a cache, because it may have been created just
	// now, and is not offloaded yet.
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
	nodes, err := r.VirtualNodes.List(labels.Everything())
	if err != nil {
		return serve.Decision{}, err
	}
	review := Review{New: obj, Old: old, Namespace: ns, VirtualNodes: nodes, OwnNamespace: r.OwnNamespace, ClusterID: r.ClusterID}
	return serve.Verdict(review.Judge()), nil
}
