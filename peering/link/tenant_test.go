package link

import (
	"maps"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corefake "k8s.io/client-go/kubernetes/fake"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/kube/kubetest"
)

// TestTenant: a tenant namespace enforces the level restricted, unless people have chosen
// another one.
func TestTenant(t *testing.T) {
	good := tenant("milan").Labels
	for name, tc := range map[string]struct{ have, want map[string]string }{
		"missing":             {nil, good},
		"made by people":      {map[string]string{"team": "x"}, with(good, "team", "x")},
		"without a level":     {map[string]string{corev1beta1.TenantNamespaceLabel: "true", corev1beta1.RemoteClusterIDLabel: "milan"}, good},
		"with a chosen level": {map[string]string{corev1beta1.PodSecurityLabel: "baseline"}, with(good, corev1beta1.PodSecurityLabel, "baseline")},
		"complete":            {good, good},
	} {
		t.Run(name, func(t *testing.T) {
			kube := corefake.NewClientset()
			if tc.have != nil {
				kubetest.Create(t, kube.CoreV1().Namespaces(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "liqo-tenant-milan", Labels: tc.have}})
			}
			for range 2 {
				require.NoError(t, Tenant(t.Context(), kube, "milan"))
			}
			ns := kubetest.Get(t, kube.CoreV1().Namespaces(), "liqo-tenant-milan")
			require.Equal(t, tc.want, ns.Labels)
		})
	}
}

// TestTenantsWithoutALevel: the controller adds the level to tenant namespaces that lack it, and to
// no other namespace.
func TestTenantsWithoutALevel(t *testing.T) {
	kubetest.Bubble(t, func(t *testing.T) {
		bare, other := tenant("milan"), tenant("turin")
		delete(bare.Labels, corev1beta1.PodSecurityLabel)
		other.Labels = map[string]string{corev1beta1.RemoteClusterIDLabel: "turin"}
		w := newWorld(t, bare, other)
		w.run()
		w.settled()
		level := func(name string) string {
			ns := kubetest.Get(t, w.core.CoreV1().Namespaces(), name)
			return ns.Labels[corev1beta1.PodSecurityLabel]
		}
		require.Equal(t, "restricted", level(bare.Name))
		require.Empty(t, level(other.Name))
		kubetest.Get(t, w.core.RbacV1().RoleBindings(bare.Name), ControllerTenantRole)
		w.core.ClearActions()
		require.Zero(t, w.settled())
	})
}

// with returns labels with one more.
func with(labels map[string]string, key, value string) map[string]string {
	labels = maps.Clone(labels)
	labels[key] = value
	return labels
}
