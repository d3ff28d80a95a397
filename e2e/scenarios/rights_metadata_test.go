package scenarios

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/kube/kubetest"
)

// markedObjects are what a peer reflects with labels and annotations by which controllers copy
// objects, place volumes or inject containers: they are left out.
func markedObjects(t *testing.T, p attacker, own func(string) metav1.ObjectMeta, claim corev1.PersistentVolumeClaimSpec) {
	t.Helper()
	ctx := t.Context()
	marked := own("marked")
	marked.Annotations = map[string]string{
		"note": "a", "volume.kubernetes.io/selected-node": "worker-1", "replicator.v1.mittwald.de/replicate-to": ".*",
		"kubed.appscode.com/sync": "", "nfs.io/storage-path": "../bank",
	}
	want := maps.Clone(marked.Labels)
	maps.Copy(marked.Labels, map[string]string{"app": "web", "grafana_dashboard": "1", "sidecar.istio.io/inject": "true", "azure.workload.identity/use": "true"})
	want["app"] = "web"
	for kind, create := range map[string]func() (metav1.Object, error){
		"ConfigMap": func() (metav1.Object, error) {
			return p.core.CoreV1().ConfigMaps(twinOfRome).Create(ctx, &corev1.ConfigMap{ObjectMeta: marked}, metav1.CreateOptions{})
		},
		"Secret": func() (metav1.Object, error) {
			return p.core.CoreV1().Secrets(twinOfRome).Create(ctx, &corev1.Secret{ObjectMeta: marked}, metav1.CreateOptions{})
		},
		"claim": func() (metav1.Object, error) {
			return p.core.CoreV1().PersistentVolumeClaims(twinOfRome).Create(ctx, &corev1.PersistentVolumeClaim{ObjectMeta: marked, Spec: claim}, metav1.CreateOptions{})
		},
		"Service": func() (metav1.Object, error) {
			return p.core.CoreV1().Services(twinOfRome).Create(ctx, &corev1.Service{ObjectMeta: marked, Spec: service("marked").Spec}, metav1.CreateOptions{})
		},
		"Ingress": func() (metav1.Object, error) {
			return p.core.NetworkingV1().Ingresses(twinOfRome).Create(ctx, &networkingv1.Ingress{ObjectMeta: marked, Spec: ingressOf("marked", "milans").Spec}, metav1.CreateOptions{})
		},
	} {
		obj, err := create()
		require.NoError(t, err, kind)
		require.Equal(t, map[string]string{"note": "a"}, obj.GetAnnotations(), kind)
		require.Equal(t, want, obj.GetLabels(), kind)
	}
}

// goingAttempts are changes of objects that are being deleted: a finalizer keeps them.
func goingAttempts(t *testing.T, p attacker, own func(string) metav1.ObjectMeta) map[string]attempt {
	t.Helper()
	services, configs := p.core.CoreV1().Services(twinOfRome), p.core.CoreV1().ConfigMaps(twinOfRome)
	kubetest.Create(t, services, &corev1.Service{ObjectMeta: own("going"), Spec: service("going").Spec})
	kubetest.Create(t, configs, &corev1.ConfigMap{ObjectMeta: own("going")})
	held := []byte(`{"metadata":{"finalizers":["example.com/held"]}}`)
	kubetest.Patch(t, p.milan.Client().CoreV1().Services(twinOfRome), "going", types.MergePatchType, held)
	kubetest.Patch(t, p.milan.Client().CoreV1().ConfigMaps(twinOfRome), "going", types.MergePatchType, held)
	require.NoError(t, services.Delete(t.Context(), "going", metav1.DeleteOptions{}))
	require.NoError(t, configs.Delete(t.Context(), "going", metav1.DeleteOptions{}))
	service := func(body string) attempt {
		return lab.Patches(services, "going", types.MergePatchType, []byte(body))
	}
	return map[string]attempt{
		"type of a Service that is being deleted":        service(`{"spec":{"type":"ExternalName","externalName":"bank.example"}}`),
		"ports of a Service that is being deleted":       service(`{"spec":{"ports":[{"port":81}]}}`),
		"annotations of a Service that is being deleted": service(`{"metadata":{"annotations":{"note":"a"}}}`),
		"labels of a ConfigMap that is being deleted":    lab.Patches(configs, "going", types.MergePatchType, []byte(`{"metadata":{"labels":{"app":"web"}}}`)),
	}
}

// chartPeerMetadata: the webhook is sent each kind that the role of peers may write, but
// liqod's own, which the controller judges.
func chartPeerMetadata(t *testing.T, plain rendered) {
	sent := map[string]bool{}
	for _, obj := range plain.ofKind("MutatingWebhookConfiguration") {
		configuration := typed[admissionregistrationv1.MutatingWebhookConfiguration](t, obj)
		for _, hook := range configuration.Webhooks {
			if hook.Name != "metadata.mutate.liqo.io" {
				continue
			}
			require.Len(t, hook.MatchConditions, 1)
			require.True(t, strings.HasPrefix(hook.MatchConditions[0].Expression, "(request.userInfo.username."), "it asks first who writes")
			for _, rule := range hook.Rules {
				for _, resource := range rule.Resources {
					sent[rule.APIGroups[0]+"/"+resource] = true
				}
			}
		}
	}
	for _, obj := range plain.ofKind("ClusterRole") {
		if obj.GetName() != "liqod-peer-twin" {
			continue
		}
		role := typed[rbacv1.ClusterRole](t, obj)
		for _, rule := range role.Rules {
			if rule.APIGroups[0] == "offloading.liqo.io" || !slices.Contains(rule.Verbs, "patch") {
				continue
			}
			for _, resource := range rule.Resources {
				require.True(t, sent[rule.APIGroups[0]+"/"+resource], "%s of %s", resource, role.Name)
			}
		}
	}
	require.True(t, sent["networking.k8s.io/ingresses"])
}
