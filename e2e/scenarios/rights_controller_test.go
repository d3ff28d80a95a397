package scenarios

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
)

// controllerRights shows that the controller's identity, the most powerful of ours, does
// not reach beyond what liqod made.
func controllerRights(t *testing.T, w *world) {
	ctx := t.Context()
	c, _ := clients(t, holder{in: w.rome, namespace: "liqod", account: "liqod-controller"}.config(t))
	_, err := w.rome.Client().CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "victim"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	none := metav1.CreateOptions{}
	ref := func(name string) rbacv1.RoleRef {
		return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name}
	}
	cluster := func(name, role string) attempt {
		return func(ctx context.Context) error {
			_, err := c.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: ref(role)}, none)
			return err
		}
	}
	otherConfiguration(t, w)
	allForbidden(t, volumesOfOthers(t, w, c))
	allForbidden(t, map[string]attempt{
		"another's webhook configuration": func(ctx context.Context) error {
			_, err := c.AdmissionregistrationV1().MutatingWebhookConfigurations().Update(ctx,
				&admissionv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "other"}}, metav1.UpdateOptions{})
			return err
		},
		"a new webhook configuration": func(ctx context.Context) error {
			_, err := c.AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(ctx,
				&admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "evil"}}, none)
			return err
		},
		"cluster-admin":                cluster("liqod-evil", "cluster-admin"),
		"a role that it does not ship": cluster("liqod-evil", "view"),
		"a binding of another's name":  cluster("evil", "liqod-peer-cluster"),
		"another's ClusterRoleBinding": func(ctx context.Context) error {
			return c.RbacV1().ClusterRoleBindings().Delete(ctx, "system:basic-user", metav1.DeleteOptions{})
		},
		"a user's namespace's deletion": func(ctx context.Context) error {
			return c.CoreV1().Namespaces().Delete(ctx, "victim", metav1.DeleteOptions{})
		},
		"a real Node's deletion": func(ctx context.Context) error {
			return c.CoreV1().Nodes().Delete(ctx, w.rome.SimulatedNodeName(1), metav1.DeleteOptions{})
		},
		"a RoleBinding of another's name": func(ctx context.Context) error {
			_, err := c.RbacV1().RoleBindings("victim").Create(ctx, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "evil"}, RoleRef: ref("liqod-peer-twin")}, none)
			return err
		},
		"a pod": func(ctx context.Context) error {
			_, err := c.CoreV1().Pods("victim").Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "evil"}, Spec: podSpec("sim/web:1")}, none)
			return err
		},
		"a NetworkPolicy of a user's namespace": func(ctx context.Context) error {
			_, err := c.NetworkingV1().NetworkPolicies("victim").Create(ctx, &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{
				Name: "liqod-twin", Labels: map[string]string{"liqo.io/managed-by": "namespacemap"}}}, none)
			return err
		},
		"a ResourceQuota of a user's namespace": func(ctx context.Context) error {
			_, err := c.CoreV1().ResourceQuotas("victim").Create(ctx, &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{
				Name: "liqod-twin", Labels: map[string]string{"liqo.io/managed-by": "namespacemap"}}}, none)
			return err
		},
		"a NetworkPolicy's deletion": func(ctx context.Context) error {
			return c.NetworkingV1().NetworkPolicies("victim").Delete(ctx, "deny-all", metav1.DeleteOptions{})
		},
		"Secrets of a namespace": func(ctx context.Context) error {
			_, err := c.CoreV1().Secrets("victim").List(ctx, metav1.ListOptions{})
			return err
		},
		"Secrets of its namespace": func(ctx context.Context) error {
			_, err := c.CoreV1().Secrets("liqod").List(ctx, metav1.ListOptions{})
			return err
		},
		"a token": func(ctx context.Context) error {
			_, err := c.CoreV1().ServiceAccounts(tenantOfMilan).CreateToken(ctx, "vk-milan", &authenticationv1.TokenRequest{}, none)
			return err
		},
		"a client certificate's approval": func(ctx context.Context) error {
			csr, err := w.rome.Client().CertificatesV1().CertificateSigningRequests().Get(ctx, "evil-client", metav1.GetOptions{})
			if err != nil {
				return err
			}
			csr.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue, Reason: "Evil"}}
			_, err = c.CertificatesV1().CertificateSigningRequests().UpdateApproval(ctx, csr.Name, csr, metav1.UpdateOptions{})
			return err
		},
	})
}

// volumesOfOthers tries to write volumes and claims that liqod has not made.
func volumesOfOthers(t *testing.T, w *world, c kubernetes.Interface) map[string]attempt {
	claim := statefulSet("x", 1).Spec.VolumeClaimTemplates[0]
	claim.Name, claim.Spec.StorageClassName = "data", ptr.To("disk")
	_, err := w.rome.Client().CoreV1().PersistentVolumeClaims("victim").Create(t.Context(), &claim, metav1.CreateOptions{})
	require.NoError(t, err)
	volume := func(name string) *corev1.PersistentVolume {
		return &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeSpec{
			Capacity: claim.Spec.Resources.Requests, AccessModes: claim.Spec.AccessModes,
			PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}},
		}}
	}
	_, err = w.rome.Client().CoreV1().PersistentVolumes().Create(t.Context(), volume("others"), metav1.CreateOptions{})
	require.NoError(t, err)
	merge := func(patch string, sub ...string) attempt {
		return func(ctx context.Context) error {
			_, err := c.CoreV1().PersistentVolumeClaims("victim").Patch(ctx, "data", types.MergePatchType, []byte(patch), metav1.PatchOptions{}, sub...)
			return err
		}
	}
	return map[string]attempt{
		"a volume of a node's files": func(ctx context.Context) error {
			_, err := c.CoreV1().PersistentVolumes().Create(ctx, volume("evil"), metav1.CreateOptions{})
			return err
		},
		"another's volume's deletion": func(ctx context.Context) error {
			return c.CoreV1().PersistentVolumes().Delete(ctx, "others", metav1.DeleteOptions{})
		},
		"a claim of no claim": func(ctx context.Context) error {
			_, err := c.CoreV1().PersistentVolumeClaims("liqo-storage").Create(ctx, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "evil"}, Spec: claim.Spec}, metav1.CreateOptions{})
			return err
		},
		"the node of another's claim": merge(`{"metadata":{"annotations":{"volume.kubernetes.io/selected-node":"evil"}}}`),
		"the size of another's claim": merge(`{"status":{"capacity":{"storage":"1Ti"}}}`, "status"),
	}
}

// otherConfiguration makes a webhook configuration that is not liqod's.
func otherConfiguration(t *testing.T, w *world) {
	_, err := w.rome.Client().AdmissionregistrationV1().MutatingWebhookConfigurations().Create(t.Context(),
		&admissionv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "other"}}, metav1.CreateOptions{})
	require.NoError(t, err)
}

// webhookRights shows that the webhook's identity, which answers anybody, writes nothing by
// which it would get further rights.
func webhookRights(t *testing.T, w *world) {
	ctx := t.Context()
	c, _ := clients(t, holder{in: w.rome, namespace: "liqod", account: "liqod-webhook"}.config(t))
	own, err := w.rome.Client().AdmissionregistrationV1().MutatingWebhookConfigurations().Get(ctx, "liqod", metav1.GetOptions{})
	require.NoError(t, err)
	certificates, err := w.rome.Client().CoreV1().Secrets("liqod").Get(ctx, "liqod-webhook-certs", metav1.GetOptions{})
	require.NoError(t, err)
	allForbidden(t, map[string]attempt{
		"its own configuration": func(ctx context.Context) error {
			_, err := c.AdmissionregistrationV1().MutatingWebhookConfigurations().Update(ctx, own, metav1.UpdateOptions{})
			return err
		},
		"its own certificate": func(ctx context.Context) error {
			_, err := c.CoreV1().Secrets("liqod").Update(ctx, certificates, metav1.UpdateOptions{})
			return err
		},
		"a new configuration": func(ctx context.Context) error {
			_, err := c.AdmissionregistrationV1().MutatingWebhookConfigurations().Create(ctx,
				&admissionv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "evil"}}, metav1.CreateOptions{})
			return err
		},
		"another Secret": func(ctx context.Context) error {
			_, err := c.CoreV1().Secrets("liqod").Get(ctx, "other", metav1.GetOptions{})
			return err
		},
		"a Secret of another name": func(ctx context.Context) error {
			_, err := c.CoreV1().Secrets("liqod").Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "token-evil"}, Type: "liqo.io/peering-token"}, metav1.CreateOptions{})
			return err
		},
		"an identity in its own Secret": func(ctx context.Context) error {
			_, err := c.CoreV1().Secrets("liqod").Create(ctx, &corev1.Secret{Type: corev1.SecretTypeServiceAccountToken, ObjectMeta: metav1.ObjectMeta{
				Name: "liqod-webhook-certs", Annotations: map[string]string{corev1.ServiceAccountNameKey: "liqod-controller"}}}, metav1.CreateOptions{})
			return err
		},
		"the Lease of the controller": func(ctx context.Context) error {
			_, err := c.CoordinationV1().Leases("liqod").Patch(ctx, "liqod-controller", types.MergePatchType, []byte(`{"spec":{"holderIdentity":"evil"}}`), metav1.PatchOptions{})
			return err
		},
		"pods": func(ctx context.Context) error {
			_, err := c.CoreV1().Pods("shop").List(ctx, metav1.ListOptions{})
			return err
		},
		"a namespace": func(ctx context.Context) error {
			_, err := c.CoreV1().Namespaces().Patch(ctx, "shop", types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{})
			return err
		},
	})
}
