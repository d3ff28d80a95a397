package namespace

import (
	"context"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/liqod/liqod/api/generated/clientset/versioned"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/admit"
)

// OffloadingRule is the webhook's rule for NamespaceOffloadings. It asks the API server
// each time, and keeps nothing: they are seldom written.
type OffloadingRule struct {
	Kube kubernetes.Interface
	Liqo versioned.Interface
	// ClusterID is this cluster's id, OwnNamespace the namespace that liqod runs in.
	ClusterID, OwnNamespace string
}

// Decide judges what is written. An error says that the API server could not be asked.
func (r OffloadingRule) Decide(ctx context.Context, req *admissionv1.AdmissionRequest) (admit.Response, error) {
	obj, old, answer := admit.Objects[offloadingv1beta1.NamespaceOffloading](req)
	if answer != nil {
		return *answer, nil
	}
	ns, err := r.Kube.CoreV1().Namespaces().Get(ctx, obj.Namespace, metav1.GetOptions{})
	if err != nil {
		return admit.Response{}, err
	}
	list, err := r.Liqo.OffloadingV1beta1().VirtualNodes(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return admit.Response{}, err
	}
	review := Review{New: obj, Old: old, Namespace: ns, OwnNamespace: r.OwnNamespace, ClusterID: r.ClusterID}
	for i := range list.Items {
		review.VirtualNodes = append(review.VirtualNodes, &list.Items[i])
	}
	return admit.Verdict(review.Judge()), nil
}
