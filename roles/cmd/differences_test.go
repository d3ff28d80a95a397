package cmd

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	sharingv1alpha1 "github.com/liqod/liqod/api/sharing/v1alpha1"
	"github.com/liqod/liqod/kube/kubetest"
)

// TestDifferencesOfANamespace: offload and status -n look at what the namespace has, and name what
// the user may not read.
func TestDifferencesOfANamespace(t *testing.T) {
	t.Parallel()
	of := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "shop", Name: name} }
	onHost := corev1.PodTemplateSpec{Spec: corev1.PodSpec{HostNetwork: true}}
	made := of("sync-1")
	made.OwnerReferences = []metav1.OwnerReference{{Kind: "CronJob", Name: "sync", Controller: ptr.To(true)}}
	world := func(objects ...runtime.Object) *cluster {
		c := newCluster(objects...)
		elsewhere := of("elsewhere")
		elsewhere.Namespace = "other"
		c.add(t, &networkingv1.NetworkPolicy{ObjectMeta: of("deny-all")}, &networkingv1.NetworkPolicy{ObjectMeta: elsewhere},
			&policyv1.PodDisruptionBudget{ObjectMeta: of("budget")}, &appsv1.DaemonSet{ObjectMeta: of("agent")},
			&appsv1.Deployment{ObjectMeta: of("proxy"), Spec: appsv1.DeploymentSpec{Template: onHost}},
			&appsv1.StatefulSet{ObjectMeta: of("db"), Spec: appsv1.StatefulSetSpec{Template: onHost}},
			&batchv1.CronJob{ObjectMeta: of("sync"), Spec: batchv1.CronJobSpec{JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{
				Spec: corev1.PodSpec{Containers: []corev1.Container{{Args: []string{"web.shop.svc.cluster.local"}}}}}}}}},
			&batchv1.Job{ObjectMeta: made, Spec: batchv1.JobSpec{Template: onHost}},
			&batchv1.Job{ObjectMeta: of("once"), Spec: batchv1.JobSpec{Template: onHost}},
			&batchv1.Job{ObjectMeta: of("over"), Spec: batchv1.JobSpec{Template: onHost}, Status: batchv1.JobStatus{CompletionTime: ptr.To(metav1.Now())}})
		return c
	}
	offer := func(c *cluster) *cluster {
		kubetest.Create(t, c.liqod.SharingV1alpha1().ResourceOffers("liqo-tenant-milan"), &sharingv1alpha1.ResourceOffer{ObjectMeta: metav1.ObjectMeta{Name: "milan"},
			Spec: sharingv1alpha1.ResourceOfferSpec{ProviderClusterID: "milan", Accepts: &sharingv1alpha1.Accepts{Trust: corev1beta1.TrustStrict, ServiceTypes: []string{"ClusterIP"}}}})
		c.add(t, &corev1.Service{ObjectMeta: of("db"), Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName}})
		return c
	}
	lines := []string{
		"\nDifferent in providers\n  NetworkPolicy deny-all: ", "\n  PodDisruptionBudget budget: ", "\n  DaemonSet agent: ",
		"\n  hostNetwork of Deployment proxy, StatefulSet db, Job once: ", "\n  full name web.shop.svc of CronJob sync: ",
	}
	out := must(world().run(t, "offload", "namespace", "shop", "--wait=false"))
	for _, line := range lines {
		require.Contains(t, out, line)
	}
	out = must(offer(world()).run(t, "offload", "namespace", "shop", "--wait=false"))
	require.Contains(t, out, "\n  in milan Service db: there without it: spec.type is ExternalName")
	require.Contains(t, out, "\n  in milan: it trusts this cluster as another organisation")
	out = must(world().run(t, "offload", "namespace", "shop", "--wait=false", "--pod-offloading-strategy=Local"))
	require.Equal(t, 1, strings.Count(out, "\n"), out)

	offloaded := func() *offloadingv1beta1.NamespaceOffloading {
		return existing(func(o *offloadingv1beta1.NamespaceOffloading) { o.Status = standing() })
	}
	out, _ = world(offloaded()).run(t, "status", "-n", "shop")
	for _, line := range lines {
		require.Contains(t, out, line)
	}
	out, _ = offer(world(offloaded())).run(t, "status", "-n", "shop")
	require.Contains(t, out, "\n  in milan Service db: there without it: spec.type is ExternalName")
	out, _ = world(offloaded()).run(t, "check")
	require.Contains(t, out, "different in providers: NetworkPolicy deny-all; PodDisruptionBudget budget; DaemonSet agent; hostNetwork of Deployment proxy, StatefulSet db, Job once; full name web.shop.svc of CronJob sync (liqod status -n shop says how)\n")
	require.Equal(t, 1, strings.Count(out, "deny-all"))
	out, _ = world().run(t, "status", "-n", "shop")
	require.NotContains(t, out, "Different in providers", "not offloaded")

	for _, args := range [][]string{{"offload", "namespace", "shop", "--wait=false"}, {"status", "-n", "shop"}} {
		c := world(offloaded())
		c.forbid("list", "networkpolicies", "statefulsets")
		out, _ = c.run(t, args...)
		require.Contains(t, out, "No right to read NetworkPolicies, Deployments, StatefulSets, CronJobs and Jobs.\n")
		require.NotContains(t, out, "deny-all")
		require.Contains(t, out, "\n  hostNetwork of Deployment proxy, Job once: ", "what was read is said")
	}
}
