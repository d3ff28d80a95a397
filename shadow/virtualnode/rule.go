package virtualnode

import (
	"context"
	"errors"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	offloadinglisters "github.com/liqod/liqod/api/generated/listers/offloading/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/serve"
	"github.com/liqod/liqod/kube/store"
)

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
	obj, old, answer := serve.Objects[offloadingv1beta1.VirtualNode](req)
	switch {
	case answer != nil:
		return *answer, nil
	case obj.DeletionTimestamp != nil:
		return serve.Allow(), nil
	case !r.Synced():
		return serve.Decision{}, errors.New("the VirtualNodes are not read yet")
	}
	all := store.Listed(r.VirtualNodes.List(labels.Everything()))
	review := Review{New: obj, Old: old}
	for _, vn := range all {
		if vn.Name == obj.Name && vn.Namespace != obj.Namespace {
			review.Namesakes = append(review.Namesakes, vn)
		}
	}
	node, err := r.Kube.CoreV1().Nodes().Get(ctx, obj.Name, metav1.GetOptions{})
	switch {
	case err == nil:
		review.Node = node
	case !apierrors.IsNotFound(err):
		return serve.Decision{}, err
	}
	return serve.Verdict(review.Judge()), nil
}
