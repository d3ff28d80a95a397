package scenarios

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	networkingv1beta1 "github.com/liqod/liqod/api/networking/v1beta1"
	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/kube/kubetest"
)

// networkAttempts are attempts to have a say in the network of another cluster. What a peer
// may write of it is written first.
func networkAttempts(t *testing.T, p attacker) map[string]attempt {
	t.Helper()
	configurations := p.liqod.NetworkingV1beta1().Configurations(tenantOfRome)
	// Without labels: rome's controller takes back copies of what it does not publish.
	says := func(name string) *networkingv1beta1.Configuration {
		c := &networkingv1beta1.Configuration{ObjectMeta: metav1.ObjectMeta{Name: name}}
		c.Spec.Local.CIDR = networkingv1beta1.ClusterCIDR{Pod: []networkingv1beta1.CIDR{"10.42.0.0/16"}, External: []networkingv1beta1.CIDR{"10.70.0.0/27"}}
		return c
	}
	// Its own, and this cluster's own for it, which it answers.
	said := kubetest.Create(t, configurations, says("milan"))
	t.Cleanup(func() {
		here := p.milan.Liqod().NetworkingV1beta1().Configurations(tenantOfRome)
		require.NoError(t, here.DeleteCollection(context.WithoutCancel(t.Context()), metav1.DeleteOptions{}, metav1.ListOptions{}))
	})
	said.Spec.MTU = 1400
	said = kubetest.Update(t, configurations, said)
	asked := kubetest.Create(t, p.milan.Liqod().NetworkingV1beta1().Configurations(tenantOfRome), says("rome"))
	asked.Status.ObservedGeneration = asked.Generation
	kubetest.UpdateStatus(t, configurations, asked)
	networkSchemas(t, p)
	return map[string]attempt{
		"the answer to its own Configuration": func(ctx context.Context) error {
			next := said.DeepCopy()
			next.Status.ObservedGeneration = next.Generation
			return second(configurations.UpdateStatus(ctx, next, metav1.UpdateOptions{}))
		},
		"a Configuration of another name": lab.Creates(configurations, says("paris")),
	}
}

// networkSchemas shows what the API server takes of what people and clusters say of networks.
func networkSchemas(t *testing.T, p attacker) {
	t.Helper()
	dry := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	configurations := p.milan.Liqod().NetworkingV1beta1().Configurations(tenantOfRome)
	for external, says := range map[networkingv1beta1.CIDR]string{
		"10.70.0.0/27": "", "fd70::/123": "", "10.70.0.0/28": "at least 32 addresses", "fd70::/124": "at least 32 addresses", "10.42.1.0/24": "overlap",
	} {
		c := &networkingv1beta1.Configuration{ObjectMeta: metav1.ObjectMeta{Name: "dry"}}
		c.Spec.Local.CIDR = networkingv1beta1.ClusterCIDR{Pod: []networkingv1beta1.CIDR{"10.42.0.0/16"}, External: []networkingv1beta1.CIDR{external}}
		_, err := configurations.Create(t.Context(), c, dry)
		if says == "" {
			require.NoError(t, err, external)
		} else {
			require.ErrorContains(t, err, says, external)
		}
	}
	for _, enabled := range []bool{true, false} {
		fc := &corev1beta1.ForeignCluster{ObjectMeta: metav1.ObjectMeta{Name: "dry"}, Spec: corev1beta1.ForeignClusterSpec{ClusterID: "dry", NetworkingEnabled: &enabled}}
		_, err := p.milan.Liqod().CoreV1beta1().ForeignClusters().Create(t.Context(), fc, dry)
		require.NoError(t, err, enabled)
	}
}
