package scenarios

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/kube/kubetest"
)

// ingressesPerTwin is the count of sharing.twinLimits in the world of TestNamespaces.
const ingressesPerTwin = 2

// testBounds fills a twin with more objects than the provider allows, and removes what
// bounds the twin.
func testBounds(t *testing.T, w *world) {
	ctx, client, patience := t.Context(), w.milan.Client(), 3*time.Minute
	w.offload(t, "bounded", offloadingv1beta1.NamespaceOffloadingSpec{})
	const twin = "bounded-rome"
	quotas, policies := client.CoreV1().ResourceQuotas(twin), client.NetworkingV1().NetworkPolicies(twin)
	within(t, patience, "the provider counts", func(ctx context.Context) error {
		quota, err := quotas.Get(ctx, offloadingv1beta1.TwinBounds, metav1.GetOptions{})
		if err != nil {
			return err
		}
		_, ok := quota.Status.Used["count/ingresses.networking.k8s.io"]
		return lab.Wrong(nil, !ok, "the quota controller has not counted yet")
	})
	policy, err := policies.Get(ctx, offloadingv1beta1.TwinBounds, metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, []networkingv1.PolicyType{networkingv1.PolicyTypeEgress}, policy.Spec.PolicyTypes)

	var last *networkingv1.Ingress
	for i := range ingressesPerTwin + 2 {
		name := fmt.Sprintf("many-%d", i)
		last = kubetest.Create(t, w.rome.Client().NetworkingV1().Ingresses("bounded"), &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: networkingv1.IngressSpec{Rules: []networkingv1.IngressRule{{Host: name + ".bounded.example"}}}})
		within(t, patience, name+" is reflected or refused", lab.Are(client.NetworkingV1().Ingresses(twin), metav1.ListOptions{}, func(list *networkingv1.IngressList) bool {
			return len(list.Items) >= min(i+1, ingressesPerTwin)
		}))
	}
	w.eventAbout(t, last, "FailedReflection", "sharing.twinLimits")
	list := kubetest.List(t, client.NetworkingV1().Ingresses(twin))
	require.Len(t, list.Items, ingressesPerTwin)

	quota := kubetest.Get(t, quotas, offloadingv1beta1.TwinBounds)
	quota.Spec.Hard["count/ingresses.networking.k8s.io"] = resource.MustParse("100")
	if _, err = quotas.Update(ctx, quota, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		require.NoError(t, err)
	}
	require.NoError(t, policies.Delete(ctx, offloadingv1beta1.TwinBounds, metav1.DeleteOptions{}))
	within(t, patience, "both are put right", func(ctx context.Context) error {
		quota, err := quotas.Get(ctx, offloadingv1beta1.TwinBounds, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if n := quota.Spec.Hard["count/ingresses.networking.k8s.io"]; n.Value() != ingressesPerTwin {
			return fmt.Errorf("the ResourceQuota allows %s", n.String())
		}
		return second(policies.Get(ctx, offloadingv1beta1.TwinBounds, metav1.GetOptions{}))
	})
}
