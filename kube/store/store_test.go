package store

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	listers "k8s.io/client-go/listers/rbac/v1"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/liqod/liqod/kube/loop"
)

// newStore returns a Store of ConfigMaps, whose cache has those given, and the API server, which
// has no object.
func newStore(t *testing.T, cached ...*corev1.ConfigMap) (*Store[*corev1.ConfigMap], *fake.Clientset, *Informer) {
	t.Helper()
	c := fake.NewClientset()
	inf := newInformer(c)
	for _, cm := range cached {
		require.NoError(t, inf.GetStore().Add(cm))
	}
	s := New("ConfigMap", inf, clocktesting.NewFakePassiveClock(time.Unix(1000, 0)), func(ns string) API[*corev1.ConfigMap] { return c.CoreV1().ConfigMaps(ns) })
	return s, c, inf
}

func TestStoreOverlaysTheCache(t *testing.T) {
	t.Parallel()
	s, _, inf := newStore(t, configMap("a", "5"))
	a, b := cache.NewObjectName("shop", "a"), cache.NewObjectName("shop", "b")
	require.Equal(t, "5", s.Get(a).ResourceVersion)
	require.Nil(t, s.Get(b))
	s.Wrote(configMap("a", "7"))
	s.Wrote(configMap("b", "8"))
	require.Equal(t, "7", s.Get(a).ResourceVersion)
	require.Equal(t, "8", s.Get(b).ResourceVersion)
	require.Equal(t, "5", s.Cached(a).ResourceVersion)
	require.Nil(t, s.Cached(b))
	require.Len(t, s.List(), 1)
	require.Equal(t, "7", s.List()[0].ResourceVersion, "a list has own writes too")
	require.Equal(t, "7", s.ByIndex(cache.NamespaceIndex, "shop")[0].ResourceVersion)
	require.Equal(t, "5", s.Cached(a).ResourceVersion, "the cache is not changed")

	var gone []string
	_, err := s.On(Handler[*corev1.ConfigMap]{Gone: func(last *corev1.ConfigMap, missed bool) {
		require.False(t, missed)
		gone = append(gone, last.Name)
	}}).Add()
	require.NoError(t, err)
	require.NoError(t, feed{inf}.Delete(configMap("a", "9")))
	require.Equal(t, []string{"a"}, gone)
	require.Nil(t, s.Get(a), "the record of the write goes with the object")
}

func TestAbsenceIsConfirmedLive(t *testing.T) {
	t.Parallel()
	s, c, _ := newStore(t)
	key := cache.NewObjectName("shop", "a")
	require.NoError(t, s.ConfirmGone(t.Context(), key))
	live, err := s.Live(t.Context(), key)
	require.NoError(t, err)
	require.Nil(t, live)

	require.NoError(t, c.Tracker().Add(configMap("a", "1")))
	require.Equal(t, loop.After(CatchUp), s.ConfirmGone(t.Context(), key))
	require.NoError(t, s.ConfirmNone(t.Context(), key, func(cm *corev1.ConfigMap) bool { return cm.UID == "another" }))
	live, err = s.Live(t.Context(), key)
	require.NoError(t, err)
	require.Equal(t, "a", live.Name)

	away := errors.New("the API server is away")
	c.PrependReactor("get", "*", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, away })
	err = s.ConfirmGone(t.Context(), key)
	require.ErrorIs(t, err, away)
	require.ErrorContains(t, err, "confirming that ConfigMap a is gone")
	_, err = s.Live(t.Context(), key)
	require.ErrorIs(t, err, away)
}

// deletions records the requests of a Store.
type deletions struct {
	API[*corev1.ConfigMap]
	err  error
	last metav1.DeleteOptions
}

func (d *deletions) Delete(_ context.Context, _ string, o metav1.DeleteOptions) error {
	d.last = o
	return d.err
}

func TestDeleteIsByUID(t *testing.T) {
	t.Parallel()
	s, _, _ := newStore(t)
	d := &deletions{}
	s.api = func(string) API[*corev1.ConfigMap] { return d }
	cm := configMap("a", "3")
	require.NoError(t, s.Delete(t.Context(), cm))
	require.Equal(t, cm.UID, *d.last.Preconditions.UID)
	require.Nil(t, d.last.Preconditions.ResourceVersion)
	require.True(t, s.WasDeleted(cm.UID))

	other := configMap("b", "4")
	d.err = errors.New("no")
	require.ErrorContains(t, s.Delete(t.Context(), other, Unchanged(other)), "deleting ConfigMap shop/b: no")
	require.Equal(t, "4", *d.last.Preconditions.ResourceVersion)
	require.False(t, s.WasDeleted(other.UID))
}

func TestHandlerOfOneType(t *testing.T) {
	t.Parallel()
	var heard []string
	h := Each(func(cm *corev1.ConfigMap) { heard = append(heard, cm.Name) })
	h.OnAdd(configMap("a", "1"), true)
	h.OnUpdate(configMap("a", "1"), configMap("b", "2"))
	h.OnDelete(cache.DeletedFinalStateUnknown{Obj: configMap("c", "3")})
	h.OnAdd(&corev1.Secret{}, false)
	require.Equal(t, []string{"a", "b", "c"}, heard)
	Handler[*corev1.ConfigMap]{}.OnDelete(configMap("a", "1"))
}

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
	for name, tc := range map[string]struct { // TestApply has the rest
		have *rbacv1.ClusterRoleBinding
		want []string // verbs
	}{
		"absent":         {nil, []string{"create"}},
		"right":          {right, nil},
		"other subjects": {change(func(c *rbacv1.ClusterRoleBinding) { c.Subjects = []rbacv1.Subject{UserSubject("old")} }), []string{"update"}},
		"label lost":     {change(func(c *rbacv1.ClusterRoleBinding) { c.Labels = nil }), []string{"update"}},
		"other role":     {change(func(c *rbacv1.ClusterRoleBinding) { c.RoleRef.Name = "cluster-admin" }), []string{"delete", "create"}},
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
					require.NoError(t, store.Add(obj))
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
				removed := name == "other subjects" // by the cache, which the test does not update
				require.Equal(t, removed, len(verbs(client)) > 0)
				client.ClearActions()
				require.NoError(t, b.RemoveUnless(t.Context(), namespace, "b"))
				require.Equal(t, tc.have != nil, len(verbs(client)) > 0)
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

// handlers is an informer that only has a handler.
type handlers struct {
	cache.SharedIndexInformer
	cache.ResourceEventHandler
}

func (h *handlers) AddEventHandler(handler cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	h.ResourceEventHandler = handler
	return nil, nil
}

func TestChanges(t *testing.T) {
	t.Parallel()
	node := func(cidr string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Spec: corev1.NodeSpec{PodCIDR: cidr}}
	}
	var got []string
	take := func(n *corev1.Node) { got = append(got, n.Spec.PodCIDR) }
	h := &handlers{}
	_, err := Changes(h, func(a, b *corev1.Node) bool { return a.Spec.PodCIDR == b.Spec.PodCIDR }, take).Add()
	require.NoError(t, err)
	h.OnAdd(node("a"), true)
	h.OnUpdate(node("a"), node("a"))
	h.OnUpdate(node("a"), node("b"))
	h.OnDelete(cache.DeletedFinalStateUnknown{Obj: node("c")})
	h.OnDelete("no node")
	h.OnDelete(cache.DeletedFinalStateUnknown{Key: "without its object"})
	require.Equal(t, []string{"a", "b", "c"}, got)

	_, err = Changes(h, nil, take).Add()
	require.NoError(t, err)
	h.OnUpdate(node("d"), node("d"))
	require.Equal(t, []string{"a", "b", "c", "d"}, got)
}
