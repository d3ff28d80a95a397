package scenarios

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/kube/kubetest"
)

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
