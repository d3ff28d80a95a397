package report

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
)

func TestRemaining(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*Snapshot)
		want   string
	}{
		"all of it":  {func(*Snapshot) {}, "a namespace is offloaded: shop; there is a peer: milan"},
		"only found": {func(s *Snapshot) { s.Offloadings, s.VirtualNodes, s.Maps = nil, nil, nil; found(s) }, ""},
		"found and used": {func(s *Snapshot) {
			found(s)
			s.ForeignClusters[0].Finalizers = []string{corev1beta1.ForeignClusterFinalizer}
			s.Offloadings = append(s.Offloadings, s.Offloadings[0])
			s.Offloadings[0].Namespace = "lab"
		}, "namespaces are offloaded: lab, shop; there is a peer: milan"},
		"the rest of a peering": {func(s *Snapshot) { s.Offloadings, s.ForeignClusters = nil, nil },
			"there are still VirtualNode liqo-tenant-milan/milan, NamespaceMap liqo-tenant-milan/milan, NamespaceMap liqo-tenant-milan/rome"},
		"nothing": {func(s *Snapshot) { *s = Snapshot{} }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := healthy(t)
			tc.change(s)
			require.Equal(t, tc.want, s.Remaining().String())
		})
	}
}

func found(s *Snapshot) {
	s.ForeignClusters[0].Labels = map[string]string{corev1beta1.DiscoveredLabel: "mdns"}
}

func TestUninstallSteps(t *testing.T) {
	s := healthy(t)
	s.Roles[0].Labels["app.kubernetes.io/instance"] = "fabric"
	require.Equal(t, `Nothing of a peering is left. Remove the rest in this order:

Tenant namespaces that were made by hand:
  kubectl delete namespaces -l liqo.io/tenant-namespace=true

The release:
  helm uninstall fabric -n liqod

On each node, as root, or a restart of it: devices, routes and rules of the network fabric:
  liqod cleanup

Secrets with the key of the gateway and with certificates:
  kubectl delete namespace liqod

The CRDs, and with them all that is left of their objects:
  kubectl get crd -o name | grep '[.]liqo[.]io$' | xargs kubectl delete
`, UninstallSteps(s))
	s.Roles, s.Tenants = nil, []corev1.Namespace{}
	require.NotContains(t, UninstallSteps(s), "helm", "the release is gone")
	s.Unread[ReadInstallation] = errors.New("forbidden")
	require.Contains(t, UninstallSteps(s), "helm uninstall liqod -n liqod")
	require.Equal(t, "liqod is not installed in this cluster, and nothing is left of it.\n", UninstallSteps(&Snapshot{}))
}
