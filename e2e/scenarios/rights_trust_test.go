package scenarios

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
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

// chartTrust: admission policies and conditions of webhooks are the same with each value of
// sharing.trust, because peers of both kinds may be there: the webhook decides by the peer. A list
// that is given counts for all peers, also in them.
func chartTrust(t *testing.T, c chart, plain rendered) {
	kinds := []string{"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration", "ValidatingAdmissionPolicy"}
	sharing := func(settings values) []*unstructured.Unstructured {
		return c.mustRender(t, values{"config": values{"sharing": settings}}).ofKind(kinds...)
	}
	require.NotEmpty(t, plain.ofKind(kinds...))
	require.Equal(t, plain.ofKind(kinds...), sharing(values{"trust": "Organisation"}))
	require.NotEqual(t, plain.ofKind(kinds...), sharing(values{"trust": "Organisation", "annotations": []string{"*"}}))
}

// trustedApart shows that the same objects are accepted from a peer with spec.trust Organisation
// and refused from one without, at the same time and without a restart; and that the trust ends
// when people end it.
func trustedApart(t *testing.T, rome attacker) {
	w, paris := rome.world, asParis(t, rome.world)
	trust := func(peer, trust string) {
		t.Helper()
		kubetest.Patch(t, w.milan.Liqod().CoreV1beta1().ForeignClusters(), peer, types.MergePatchType, []byte(`{"spec":{"trust":`+trust+`}}`))
	}
	trust("paris", `"Organisation"`)
	for _, peer := range []struct {
		attacker
		id, twin string
		trusted  bool
	}{{paris, "paris", twinOfParis, true}, {rome, "rome", twinOfRome, false}} {
		named := &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: "named", Labels: map[string]string{offloadingv1beta1.OriginLabel: peer.id, "grafana_dashboard": "1"},
				Annotations: map[string]string{"example.com/note": "a"}},
			Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "db.example.com"},
		}
		shadow := shadowPod("mounts")
		shadow.Namespace, shadow.Labels[offloadingv1beta1.OriginLabel] = peer.twin, peer.id
		shadow.Spec.Pod.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{NFS: &corev1.NFSVolumeSource{Server: "192.0.2.1", Path: "/"}}}}
		kubetest.Create(t, peer.liqod.OffloadingV1beta1().ShadowPods(peer.twin), shadow)
		if !peer.trusted {
			_, err := peer.core.CoreV1().Services(peer.twin).Create(t.Context(), named, metav1.CreateOptions{})
			require.True(t, apierrors.IsForbidden(err), "%v", err)
			require.ErrorContains(t, err, "sharing.serviceTypes")
			peer.shadowSays(t, peer.twin, offloadingv1beta1.ReasonPodRefused)
			continue
		}
		within(t, longest, "the webhook knows the trust in "+peer.id, func(ctx context.Context) error {
			made, err := peer.core.CoreV1().Services(peer.twin).Create(ctx, named, metav1.CreateOptions{})
			return lab.Wrong(err, made.Labels["grafana_dashboard"] == "" || made.Annotations["example.com/note"] == "", "labels %v and annotations %v", made.Labels, made.Annotations)
		})
		within(t, longest, "the pod is created", lab.Exists(w.milan.Client().CoreV1().Pods(peer.twin), "mounts"))
	}
	paris.ask(t, "ledger", "ledger")
	paris.mapped(t, "ledger", offloadingv1beta1.MappingAccepted, "")

	before := kubetest.Get(t, w.milan.Client().CoreV1().Pods(twinOfParis), "mounts")
	trust("paris", "null")
	paris.shadowSays(t, twinOfParis, "UpdateRefused")
	after := kubetest.Get(t, w.milan.Client().CoreV1().Pods(twinOfParis), "mounts")
	require.Equal(t, before.UID, after.UID, "the pod runs on")
	paris.mapped(t, "ledger", offloadingv1beta1.MappingAccepted, "")

	kubetest.Patch(t, paris.liqod.OffloadingV1beta1().NamespaceMaps(tenantOfParis), "milan", types.MergePatchType, []byte(`{"spec":{"desiredMapping":{"ledger":null}}}`))
	for _, peer := range []struct {
		attacker
		twin string
	}{{paris, twinOfParis}, {rome, twinOfRome}} {
		require.NoError(t, peer.liqod.OffloadingV1beta1().ShadowPods(peer.twin).Delete(t.Context(), "mounts", metav1.DeleteOptions{}))
	}
	require.NoError(t, paris.core.CoreV1().Services(twinOfParis).Delete(t.Context(), "named", metav1.DeleteOptions{}))
}

// shadowSays waits until the ShadowPod mounts has a reason.
func (p attacker) shadowSays(t *testing.T, namespace, reason string) {
	t.Helper()
	within(t, time.Minute, "the ShadowPod says "+reason, lab.Is(p.liqod.OffloadingV1beta1().ShadowPods(namespace), "mounts", func(s *offloadingv1beta1.ShadowPod) bool {
		c := meta.FindStatusCondition(s.Status.Conditions, offloadingv1beta1.ShadowPodEnforced)
		return c != nil && c.Reason == reason
	}))
}
