package cmd

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
)

// offloadingAndPeer is a cluster that offloads namespace shop, with the peer milan.
func offloadingAndPeer(t *testing.T) *cluster {
	t.Helper()
	c := installation(t, "rome")
	c.add(t, existing(func(*offloadingv1beta1.NamespaceOffloading) {}))
	c.add(t, foreignCluster("milan"))
	return c
}

// uninstall changes nothing while the controller is needed, unless it is to end all.
func TestUninstall(t *testing.T) {
	t.Parallel()
	c := offloadingAndPeer(t)
	c.add(t, role("controller", "0.1.0", "liqod:0.1.0"))
	_, err := c.run(t, "uninstall")
	require.EqualError(t, err, "liqod cannot be uninstalled yet, as its controller has to take back what it has made: a namespace is offloaded: shop; there is a peer: milan. "+
		"To end all of it: liqod uninstall --end-all")
	require.Equal(t, ExitProblem, code(err))
	require.Empty(t, c.writes())

	out := c.ran(t, "uninstall", "--end-all")
	require.Contains(t, out, "namespace shop: its offloading is deleted\n")
	require.Contains(t, out, "rome: nothing of the peering with cluster milan is left, but data in volumes is kept (liqod storage list); in that cluster, its people end the other half: liqod unpeer rome\n")
	require.Contains(t, out, "Nothing of a peering is left. Remove the rest in this order:\n\nThe release:\n  helm uninstall liqod -n liqod\n")
	require.Nil(t, c.offloading(t))
}

// TestUninstallReads: the rights of the chart's hook are enough.
func TestUninstallReads(t *testing.T) {
	t.Parallel()
	c := offloadingAndPeer(t)
	forbid := func(action clienttesting.Action) (bool, runtime.Object, error) {
		switch action.GetResource().Resource {
		case "foreignclusters", "namespacemaps", "namespaceoffloadings", "virtualnodes":
			if action.GetVerb() == "list" {
				return false, nil, nil
			}
		case "version", "resource": // discovery
			return false, nil, nil
		}
		return forbidden(action)
	}
	c.core.PrependReactor("*", "*", forbid)
	c.liqod.PrependReactor("*", "*", forbid)
	c.fails(t, ExitProblem, "there is a peer: milan", "uninstall")

	require.NoError(t, c.liqod.Tracker().Delete(corev1beta1.SchemeGroupVersion.WithResource("foreignclusters"), "", "milan"))
	require.NoError(t, c.liqod.Tracker().Delete(offloadingv1beta1.SchemeGroupVersion.WithResource("namespaceoffloadings"), "shop", "offloading"))
	out := c.ran(t, "uninstall")
	require.Contains(t, out, "helm uninstall liqod -n liqod\n")

	c.forbid("list", "virtualnodes")
	_, err := c.run(t, "uninstall")
	require.ErrorContains(t, err, "reading VirtualNodes: ")
	require.Equal(t, ExitUnknown, code(err), "what cannot be read may be left")
}
