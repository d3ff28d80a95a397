package scenarios

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/e2e/site"
	"github.com/liqod/liqod/kube/kubetest"
)

// testLastNodeDeleted deletes the only virtual node that a provider has left: what was
// offloaded through it goes.
func testLastNodeDeleted(t *testing.T, w *world) {
	begin := time.Now()
	require.NoError(t, w.rome.Liqod().OffloadingV1beta1().VirtualNodes(tenant).Delete(t.Context(), "milan", metav1.DeleteOptions{}))
	vkubeletGoes(t, w.rome, 30*time.Second, tenant, "milan")
	within(t, soon, "the virtual node is gone", w.virtualNodeGone("milan"))
	t.Logf("virtual node gone after %s", time.Since(begin).Round(time.Millisecond))
	w.nothingLeft(t, "milan")
	within(t, soon, "the namespace is told", w.offloadingIs("nodes", offloadingv1beta1.PhaseNoClusterSelected))
	within(t, soon, "its twin is gone", w.noTwin("nodes-rome"))
}

// testPeeringTakenDown goes on as docs/peering.md#connecting-two-clusters-by-hand ends. Neither side hears of the
// other: milan does not answer rome, and has never dialled it.
func testPeeringTakenDown(t *testing.T, w *world) {
	w.milan.Proxied().Drop()
	defer w.milan.Proxied().Pass()
	require.NoError(t, w.rome.Liqod().OffloadingV1beta1().NamespaceOffloadings("nodes").Delete(t.Context(), "offloading", metav1.DeleteOptions{}))
	takeDown(t, w.rome, "milan")
	w.milan.Proxied().Pass() // milan's own roles come this way, too; rome no longer knows it
	takeDown(t, w.milan, "rome")
	ns := kubetest.Get(t, w.rome.Client().CoreV1().Namespaces(), "nodes")
	require.NotContains(t, ns.Labels, offloadingv1beta1.SchedulingEnabledLabel)
}

// takeDown removes what a site knows of a peer, and wants nothing of it to be left.
func takeDown(t *testing.T, s *site.Site, peer string) {
	t.Helper()
	ctx, client := t.Context(), s.Client()
	require.NoError(t, s.Liqod().CoreV1beta1().ForeignClusters().Delete(ctx, peer, metav1.DeleteOptions{}))
	require.NoError(t, client.CoreV1().Namespaces().Delete(ctx, "liqo-tenant-"+peer, metav1.DeleteOptions{}))
	within(t, bounded, s.Name+" knows nothing of "+peer, func(ctx context.Context) error {
		mine := metav1.ListOptions{LabelSelector: "liqo.io/remote-cluster-id=" + peer}
		namespaces, err := client.CoreV1().Namespaces().List(ctx, mine)
		if err != nil {
			return err
		}
		bindings, err := client.RbacV1().RoleBindings("").List(ctx, mine)
		if err != nil {
			return err
		}
		cluster, err := client.RbacV1().ClusterRoleBindings().List(ctx, mine)
		if err != nil {
			return err
		}
		clusters, err := s.Liqod().CoreV1beta1().ForeignClusters().List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		n := []int{len(namespaces.Items), len(bindings.Items), len(cluster.Items), len(clusters.Items)}
		return lab.Wrong(nil, n[0]+n[1]+n[2]+n[3] > 0, "left: %d namespaces, %d bindings, %d cluster bindings, %d ForeignClusters: %+v", n[0], n[1], n[2], n[3], namespaces.Items)
	})
}
