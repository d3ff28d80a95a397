package store

import (
	"testing"

	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	listers "k8s.io/client-go/listers/rbac/v1"
	"k8s.io/client-go/tools/cache"
)

func TestEnsureAndRemove(t *testing.T) {
	t.Parallel()
	marks := map[string]string{"by": "us"}
	want := Binding{Name: "b", ClusterRole: "role", Labels: marks, Subjects: []rbacv1.Subject{UserSubject("u")}}
	right := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "b", Labels: marks}, RoleRef: roleRef("role"), Subjects: want.Subjects}
	change := func(f func(*rbacv1.ClusterRoleBinding)) *rbacv1.ClusterRoleBinding {
		c := right.DeepCopy()
		f(c)
		return c
	}
	for name, tc := range map[string]struct {
		have   *rbacv1.ClusterRoleBinding
		cached bool
		want   []string // verbs
	}{
		"absent":         {nil, false, []string{"create"}},
		"right":          {right, true, nil},
		"not cached yet": {right, false, []string{"create", "get"}},
		"other subjects": {change(func(c *rbacv1.ClusterRoleBinding) { c.Subjects = []rbacv1.Subject{UserSubject("old")} }), true, []string{"update"}},
		"more labels":    {change(func(c *rbacv1.ClusterRoleBinding) { c.Labels = map[string]string{"by": "us", "x": "y"} }), true, nil},
		"label lost":     {change(func(c *rbacv1.ClusterRoleBinding) { c.Labels = nil }), true, []string{"update"}},
		"other role":     {change(func(c *rbacv1.ClusterRoleBinding) { c.RoleRef.Name = "cluster-admin" }), true, []string{"delete", "create"}},
	} {
		for _, namespace := range []string{"", "ns"} {
			t.Run(name+" in "+namespace, func(t *testing.T) {
				var objects []runtime.Object
				roles, wide := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{}), cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
				if tc.have != nil {
					have := tc.have.DeepCopy()
					have.Namespace = namespace
					var obj runtime.Object = have
					store := wide
					if namespace != "" {
						obj, store = &rbacv1.RoleBinding{ObjectMeta: have.ObjectMeta, RoleRef: have.RoleRef, Subjects: have.Subjects}, roles
					}
					objects = append(objects, obj)
					if tc.cached {
						require.NoError(t, store.Add(obj))
					}
				}
				client := fake.NewClientset(objects...)
				b := NewBinder(client, listers.NewRoleBindingLister(roles), listers.NewClusterRoleBindingLister(wide))
				w := want
				w.Namespace = namespace
				require.NoError(t, b.Ensure(t.Context(), w))
				require.Equal(t, tc.want, verbs(client))
				got, err := client.RbacV1().ClusterRoleBindings().Get(t.Context(), "b", metav1.GetOptions{})
				if namespace != "" {
					role, missing := client.RbacV1().RoleBindings(namespace).Get(t.Context(), "b", metav1.GetOptions{})
					got, err = &rbacv1.ClusterRoleBinding{ObjectMeta: role.ObjectMeta, RoleRef: role.RoleRef, Subjects: role.Subjects}, missing
				}
				require.NoError(t, err)
				require.Equal(t, want.Subjects, got.Subjects)
				require.Equal(t, "role", got.RoleRef.Name)
				require.Equal(t, "us", got.Labels["by"])

				client.ClearActions()
				require.NoError(t, b.RemoveUnless(t.Context(), namespace, "b", UserSubject("u")))
				removed := tc.cached && name == "other subjects" // by the cache, which the test does not update
				require.Equal(t, removed, len(verbs(client)) > 0)
				client.ClearActions()
				require.NoError(t, b.RemoveUnless(t.Context(), namespace, "b"))
				require.Equal(t, tc.cached, len(verbs(client)) > 0)
			})
		}
	}
}

func verbs(c *fake.Clientset) []string {
	var out []string
	for _, a := range c.Actions() {
		out = append(out, a.GetVerb())
	}
	return out
}
