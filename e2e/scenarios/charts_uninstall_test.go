package scenarios

import (
	"testing"

	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/liqod/liqod/e2e/lab"
)

// chartUninstall checks the hooks of helm uninstall: one Job with rights to read what it judges, unless it
// is switched off.
func chartUninstall(t *testing.T, c chart) {
	hooks := func(more values) rendered {
		return must(c.renderWith(t, lab.ChartOptions{Values: more, Hooks: true}))(t)
	}
	require.Empty(t, hooks(values{"uninstall": values{"check": false}}))
	objects := hooks(values{"image": values{"repository": "r.example/liqod", "tag": "v1"}})
	require.Len(t, objects, 1)
	require.Len(t, objects["uninstall.yaml"], 4)
	for _, obj := range objects["uninstall.yaml"] {
		require.Equal(t, "liqod-uninstall", obj.GetName())
		require.Equal(t, "pre-delete", obj.GetAnnotations()["helm.sh/hook"])
		require.Equal(t, "before-hook-creation,hook-succeeded", obj.GetAnnotations()["helm.sh/hook-delete-policy"])
		weight := "-1"
		if obj.GetKind() == "Job" {
			weight = "0"
		}
		require.Equal(t, weight, obj.GetAnnotations()["helm.sh/hook-weight"], obj.GetKind())
	}
	role := typed[rbacv1.ClusterRole](t, objects.ofKind("ClusterRole")[0])
	require.Equal(t, []rbacv1.PolicyRule{ // TestUninstallReads has the same
		{APIGroups: []string{"core.liqo.io"}, Resources: []string{"foreignclusters"}, Verbs: []string{"list"}},
		{APIGroups: []string{"offloading.liqo.io"}, Resources: []string{"namespacemaps", "namespaceoffloadings", "virtualnodes"}, Verbs: []string{"list"}},
	}, role.Rules)
	job := typed[batchv1.Job](t, objects.ofKind("Job")[0])
	pod := job.Spec.Template.Spec
	require.Equal(t, "liqod-uninstall", pod.ServiceAccountName)
	require.Equal(t, "r.example/liqod:v1", pod.Containers[0].Image)
	require.Equal(t, []string{"uninstall", "--timeout=1m"}, pod.Containers[0].Args)
}
