package chaos

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/liqod/liqod/e2e/lab"
)

// requireDeleters requires that nobody deleted pods but those who may.
func requireDeleters(t *testing.T, w *world) {
	t.Helper()
	const kubeSystem = "system:serviceaccount:kube-system:"
	common := []string{"admin", kubeSystem + "generic-garbage-collector", kubeSystem + "namespace-controller"}
	for _, c := range []struct {
		cluster *lab.Cluster
		may     []string
	}{
		{w.rome.Cluster, []string{"system:serviceaccount:liqo-tenant-milan:vk-milan", kubeSystem + "replicaset-controller", kubeSystem + "job-controller"}},
		{w.milan.Cluster, []string{peerUser, "system:serviceaccount:liqod:liqod-controller", "simulator"}},
	} {
		records, err := c.cluster.Audited(func(r lab.AuditRecord) bool {
			return strings.HasPrefix(r.Verb, "delete") && r.Resource() == "pods" && strings.HasPrefix(r.ObjectRef.Namespace, prefix) &&
				!slices.Contains(append(common, c.may...), r.User.Username)
		})
		require.NoError(t, err)
		for _, r := range records {
			t.Errorf("%s: %s deleted pod %s/%s", c.cluster.Name, r.User.Username, r.ObjectRef.Namespace, r.ObjectRef.Name)
		}
	}
}
