package link

import (
	"context"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/api/generated/clientset/versioned"
	"github.com/liqod/liqod/kube/admit"
)

// Rule is the webhook's rule for ForeignClusters. It asks the API server each time, and
// keeps nothing: they are seldom written.
type Rule struct {
	Liqo versioned.Interface
	// ClusterID is this cluster's id.
	ClusterID string
}

// Decide judges what is written. An error says that the API server could not be asked.
func (r Rule) Decide(ctx context.Context, req *admissionv1.AdmissionRequest) (admit.Response, error) {
	obj, old, answer := admit.Objects[corev1beta1.ForeignCluster](req)
	if answer != nil {
		return *answer, nil
	}
	list, err := r.Liqo.CoreV1beta1().ForeignClusters().List(ctx, metav1.ListOptions{})
	if err != nil {
		return admit.Response{}, err
	}
	review := Review{New: obj, Old: old, ClusterID: r.ClusterID}
	for i := range list.Items {
		if list.Items[i].Name != obj.Name {
			review.Others = append(review.Others, &list.Items[i])
		}
	}
	return admit.Verdict(review.Judge()), nil
}
