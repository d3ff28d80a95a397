package timed

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/liqod/liqod/e2e/lab"
)

// vkubeletUser is who the vkubelet is at home.
const vkubeletUser = "system:serviceaccount:liqo-tenant-milan:vk-milan"

// requireDeleters requires that nobody deleted pods but those who may, and that the vkubelet
// deleted none at home that nobody else had deleted before.
func requireDeleters(t *testing.T, w *world) {
	t.Helper()
	const kubeSystem = "system:serviceaccount:kube-system:"
	common := []string{"admin", kubeSystem + "generic-garbage-collector", kubeSystem + "namespace-controller"}
	for _, c := range []struct {
		cluster *lab.Cluster
		may     []string
	}{
		{w.rome.Cluster, []string{vkubeletUser, kubeSystem + "replicaset-controller", kubeSystem + "job-controller"}},
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
	requireReleases(t, w)
}

// requireReleases requires that the vkubelet only let pods go whose deletion others had
// asked for.
func requireReleases(t *testing.T, w *world) {
	t.Helper()
	records, err := w.rome.Audited(func(r lab.AuditRecord) bool {
		deletes := strings.HasPrefix(r.Verb, "delete") && r.Resource() == "pods" || r.Resource() == "pods/eviction"
		return deletes && strings.HasPrefix(r.ObjectRef.Namespace, prefix)
	})
	require.NoError(t, err)
	slices.SortStableFunc(records, func(a, b lab.AuditRecord) int { return a.RequestReceivedTimestamp.Compare(b.RequestReceivedTimestamp) })
	asked := map[string]bool{}
	for _, r := range records {
		all := r.ObjectRef.Namespace + "/" // as in the deletion of a namespace
		if r.User.Username != vkubeletUser {
			asked[all+r.ObjectRef.Name] = true
		} else if !asked[all] && !asked[all+r.ObjectRef.Name] {
			t.Errorf("the vkubelet deleted pod %s/%s, and nobody had asked for it", r.ObjectRef.Namespace, r.ObjectRef.Name)
		}
	}
}
