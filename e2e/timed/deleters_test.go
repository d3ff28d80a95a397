package timed

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/liqod/liqod/e2e/lab"
)

// vkubeletUser is the user of the vkubelet at home.
const vkubeletUser = "system:serviceaccount:liqo-tenant-milan:vk-milan"

// requireDeleters requires that only users that may delete pods have done so, and that the
// vkubelet has deleted at home only pods that another user had deleted before.
func requireDeleters(t *testing.T, w *world) {
	t.Helper()
	const kubeSystem = "system:serviceaccount:kube-system:"
	common := []string{"admin", kubeSystem + "generic-garbage-collector", kubeSystem + "namespace-controller"}
	for _, c := range []struct {
		cluster *lab.Cluster
		may     []string
	}{
		{w.Rome.Cluster, []string{vkubeletUser, kubeSystem + "replicaset-controller", kubeSystem + "job-controller"}},
		{w.Milan.Cluster, []string{peerUser, "system:serviceaccount:liqod:liqod-controller", "simulator"}},
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

// requireReleases requires that the vkubelet has deleted only pods that another user had deleted before.
func requireReleases(t *testing.T, w *world) {
	t.Helper()
	records, err := w.Rome.Audited(func(r lab.AuditRecord) bool {
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
			t.Errorf("the vkubelet deleted pod %s/%s, and no other user had deleted it before", r.ObjectRef.Namespace, r.ObjectRef.Name)
		}
	}
}
