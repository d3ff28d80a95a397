package scenarios

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/kube/kubetest"
)

// withoutLabel shows that the rules for a peer hold in a namespace where it has the rights
// of a twin, but whose label somebody has taken off.
func withoutLabel(t *testing.T, p attacker) {
	const ns = "unlabelled"
	admin := p.milan.Client()
	kubetest.Create(t, admin.CoreV1().Namespaces(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}})
	kubetest.Create(t, admin.RbacV1().RoleBindings(ns), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "twin"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "liqod-peer-twin"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: tenantOfRome, Name: "peer-1"}},
	})
	meta := func(name, origin string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: ns, Name: name, Labels: map[string]string{"offloading.liqo.io/origin": origin}}
	}
	within(t, time.Minute, "the peer has the rights of a twin", func(ctx context.Context) error {
		_, err := p.core.CoreV1().ConfigMaps(ns).Create(ctx, &corev1.ConfigMap{ObjectMeta: meta("own", "rome")}, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			return nil
		}
		return err
	})
	configMap := func(change func(*metav1.ObjectMeta)) attempt {
		return func(ctx context.Context) error {
			m := meta("evil", "rome")
			change(&m)
			return second(p.core.CoreV1().ConfigMaps(ns).Create(ctx, &corev1.ConfigMap{ObjectMeta: m}, metav1.CreateOptions{}))
		}
	}
	theirs := kubetest.Create(t, admin.CoreV1().Secrets(ns), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "theirs"}})
	allRefused(t, map[string]attempt{
		"a finalizer": configMap(func(m *metav1.ObjectMeta) { m.Finalizers = []string{"example.com/evil"} }),
		"an owner": configMap(func(m *metav1.ObjectMeta) {
			m.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Secret", Name: theirs.Name, UID: theirs.UID}}
		}),
		"no origin":         configMap(func(m *metav1.ObjectMeta) { m.Labels = nil }),
		"another's origin":  configMap(func(m *metav1.ObjectMeta) { m.Labels["offloading.liqo.io/origin"] = "paris" }),
		"deletes of others": lab.Deletes(p.core.CoreV1().Secrets(ns), theirs.Name),
		"an identity of the cluster": func(ctx context.Context) error {
			m := meta("token", "rome")
			m.Annotations = map[string]string{corev1.ServiceAccountNameKey: "default"}
			return second(p.core.CoreV1().Secrets(ns).Create(ctx, &corev1.Secret{ObjectMeta: m, Type: corev1.SecretTypeServiceAccountToken}, metav1.CreateOptions{}))
		},
		"external addresses": lab.Creates(p.core.CoreV1().Services(ns), &corev1.Service{ObjectMeta: meta("evil", "rome"), Spec: corev1.ServiceSpec{
			Ports: []corev1.ServicePort{{Port: 80}}, ExternalIPs: []string{"192.0.2.1"},
		}}),
	})
}
