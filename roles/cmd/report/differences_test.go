package report

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
)

// TestDifferences: what is different in providers is said of what a namespace has, and of nothing else.
func TestDifferences(t *testing.T) {
	t.Parallel()
	arguments := func(name string, args ...string) Workload {
		return Workload{Name: name, Pod: corev1.PodSpec{Containers: []corev1.Container{{Args: args}}}}
	}
	const unresolved = ": in a provider it does not resolve, or leads to a Service of the provider, unless its namespace is offloaded there with the same name: docs/compatibility.md#names"
	for name, tc := range map[string]struct {
		has  Application
		spec offloadingv1beta1.NamespaceOffloadingSpec
		want []string
	}{
		"nothing": {},
		"policy": {has: Application{Policies: []string{"deny-all"}},
			want: []string{"NetworkPolicy deny-all: is not sent to providers, and does not bind pods there: docs/compatibility.md#network"}},
		"policies": {has: Application{Policies: []string{"a", "b", "c", "d", "e"}},
			want: []string{"NetworkPolicy a, b, c and 2 more: is not sent to providers, and does not bind pods there: docs/compatibility.md#network"}},
		"budget": {has: Application{Budgets: []string{"web"}},
			want: []string{"PodDisruptionBudget web: drains in this cluster respect it, drains in a provider do not: docs/compatibility.md#scheduling-and-limits"}},
		"DaemonSet": {has: Application{DaemonSets: []string{"agent"}},
			want: []string{"DaemonSet agent: a virtual node gets one pod of it at most, and not each node of the provider: docs/compatibility.md#scheduling-and-limits"}},
		"hostNetwork": {has: Application{Workloads: []Workload{{Name: "Deployment proxy", Pod: corev1.PodSpec{HostNetwork: true}}, {Name: "Deployment web"}}},
			want: []string{"hostNetwork of Deployment proxy: in a provider the pod has a network of its own instead: docs/compatibility.md#network"}},
		"full name in an argument": {has: Application{Workloads: []Workload{arguments("Deployment front", "--backend=http://web.shop.svc.cluster.local:8080/x")}},
			want: []string{"full name web.shop.svc of Deployment front" + unresolved}},
		"full names in variables and commands": {has: Application{Workloads: []Workload{{Name: "CronJob sync", Pod: corev1.PodSpec{
			InitContainers: []corev1.Container{{Command: []string{"sh", "-c", "nc db-0.db.shop.svc 5432"}}},
			Containers:     []corev1.Container{{Env: []corev1.EnvVar{{Name: "A", Value: "a.other.svc,a.other.svc.cluster.local"}}}}}}}},
			want: []string{"full name a.other.svc, db-0.db.shop.svc of CronJob sync" + unresolved}},
		"twins of the same name": {has: Application{Workloads: []Workload{arguments("Deployment front", "web.shop.svc.cluster.local", "web.other.svc")}},
			spec: offloadingv1beta1.NamespaceOffloadingSpec{NamespaceMappingStrategy: offloadingv1beta1.EnforceSameName},
			want: []string{"full name web.other.svc of Deployment front" + unresolved}},
		"twins of a selected name that is the same": {has: Application{Workloads: []Workload{arguments("Deployment front", "web.shop.svc.cluster.local")}},
			spec: offloadingv1beta1.NamespaceOffloadingSpec{NamespaceMappingStrategy: offloadingv1beta1.SelectedName, RemoteNamespaceName: "shop"}},
		"no full names": {has: Application{Workloads: []Workload{arguments("Deployment front", "web", "web.shop", "web.$(NAMESPACE).svc.cluster.local", "x.y.svc-z", "a.b.svcs",
			"https://kubernetes.default.svc", "kubernetes.default.svc.cluster.local:443")}}},
		"more objects than are read": {has: Application{More: true}, want: []string{"the namespace has more objects: of each kind only some were looked at: docs/compatibility.md"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &Snapshot{Only: "shop", Offloadings: []offloadingv1beta1.NamespaceOffloading{{ObjectMeta: metav1.ObjectMeta{Namespace: "shop"}, Spec: tc.spec}}}
			s.Applications = map[string]*Application{"shop": &tc.has}
			require.Equal(t, tc.want, s.Differences("shop"))
		})
	}
	s := &Snapshot{Offloadings: []offloadingv1beta1.NamespaceOffloading{
		{ObjectMeta: metav1.ObjectMeta{Namespace: "shop"}}, {ObjectMeta: metav1.ObjectMeta{Namespace: "batch"}},
		{ObjectMeta: metav1.ObjectMeta{Namespace: "taken-back", DeletionTimestamp: ptr.To(ago(0))}},
		{ObjectMeta: metav1.ObjectMeta{Namespace: "stays"}, Spec: offloadingv1beta1.NamespaceOffloadingSpec{PodOffloadingStrategy: offloadingv1beta1.PodsLocal}},
	}}
	require.Equal(t, []string{"batch", "shop"}, s.Leaving())
	require.Empty(t, s.Differences("shop"), "not read")
}

// TestDifferencesInCheck: check has one line for a namespace with differences, which is no warning, and
// names what could not be read.
func TestDifferencesInCheck(t *testing.T) {
	t.Parallel()
	s := healthy(t)
	s.Program = "liqod"
	s.Applications = map[string]*Application{"shop": {Policies: []string{"deny-all"}, Budgets: []string{"web"}, Unread: map[string]error{ReadWorkloads: errors.New("forbidden")}}}
	require.Contains(t, CheckText(Check(s)), "\n  ✔ application in namespace shop: different in providers: NetworkPolicy deny-all; PodDisruptionBudget web; "+
		"Deployments, StatefulSets, CronJobs and Jobs cannot be read (liqod status -n shop says how)\n")
	require.Equal(t, OK, Summarize(s).Health)
	require.Empty(t, Summarize(s).Warnings)
	s.Applications = map[string]*Application{"shop": {}}
	require.NotContains(t, CheckText(Check(s)), "application")
}
