package scenarios

import (
	"context"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	sharingv1alpha1 "github.com/liqod/liqod/api/sharing/v1alpha1"
	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/kube/kubetest"
)

// negotiationAttempts are attempts to be given more than is offered.
func negotiationAttempts(t *testing.T, p attacker) map[string]attempt {
	t.Helper()
	requests, offers := p.liqod.SharingV1alpha1().ResourceRequests(tenantOfRome), p.liqod.SharingV1alpha1().ResourceOffers(tenantOfRome)
	asks := func(name, consumer, provider string) attempt {
		return lab.Creates(requests, &sharingv1alpha1.ResourceRequest{ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: sharingv1alpha1.ResourceRequestSpec{ConsumerClusterID: consumer, ProviderClusterID: provider}})
	}
	offer := func(provider string) *sharingv1alpha1.ResourceOffer {
		return &sharingv1alpha1.ResourceOffer{ObjectMeta: metav1.ObjectMeta{Name: provider},
			Spec: sharingv1alpha1.ResourceOfferSpec{ConsumerClusterID: "rome", ProviderClusterID: provider, Approved: true}}
	}
	// Rome offers milan something, too: this is milan's copy.
	copied := offer("rome")
	copied.Labels = map[string]string{offloadingv1beta1.ReplicatedLabel: "true"}
	copied = kubetest.Create(t, p.milan.Liqod().SharingV1alpha1().ResourceOffers(tenantOfRome), copied)
	return map[string]attempt{
		"a request of another name":    asks("rome", "rome", "milan"),
		"a request in another's name":  asks("milan", "paris", "milan"),
		"a request to another cluster": asks("milan", "rome", "paris"),
		"the answer of this cluster": func(ctx context.Context) error {
			// This cluster's controller writes it meanwhile: a conflict is no answer.
			return retry.RetryOnConflict(retry.DefaultRetry, func() error {
				have, err := p.milan.Liqod().SharingV1alpha1().ResourceOffers(tenantOfRome).Get(ctx, copied.Name, metav1.GetOptions{})
				if err != nil {
					return err
				}
				return second(offers.UpdateStatus(ctx, have, metav1.UpdateOptions{}))
			})
		},
	}
}
