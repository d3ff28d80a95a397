package manual

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

// TestInstalled: only what an administrator writes says where liqod is. What the owners of other namespaces write there,
// with the same names and labels, neither leads the commands elsewhere nor stops them.
func TestInstalled(t *testing.T) {
	t.Parallel()
	binding := func(namespaces ...string) *rbacv1.ClusterRoleBinding {
		b := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: Controller}}
		for _, ns := range namespaces {
			b.Subjects = append(b.Subjects, rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Name: Controller, Namespace: ns})
		}
		return b
	}
	configuration := func(namespace, config string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "liqod", Labels: map[string]string{"app.kubernetes.io/name": "liqod"}},
			Data: map[string]string{"config.yaml": config}}
	}
	own := configuration("liqod", "clusterID: rome")
	id, namespace, err := Installed(t.Context(), fake.NewClientset(binding("liqod"), own, configuration("aaa", "clusterID: evil"), configuration("bbb", "clusterID: [")))
	require.NoError(t, err)
	require.Equal(t, "rome", id)
	require.Equal(t, "liqod", namespace)

	for name, kube := range map[string]*fake.Clientset{
		"no binding":       fake.NewClientset(own),
		"no configuration": fake.NewClientset(binding("liqod"), configuration("aaa", "clusterID: evil")),
		"no id":            fake.NewClientset(binding("liqod"), configuration("liqod", "log: {level: debug}")),
	} {
		_, _, err = Installed(t.Context(), kube)
		require.ErrorIs(t, err, ErrNotInstalled, name)
	}
	for _, namespaces := range [][]string{nil, {""}, {"aaa", "liqod"}} {
		_, err = Namespace(t.Context(), fake.NewClientset(binding(namespaces...), own))
		require.ErrorContains(t, err, "one subject is accepted, the ServiceAccount of its controller", "%v", namespaces)
	}
}
