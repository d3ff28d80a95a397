package scenarios

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/kube/kubetest"
)

// fullTokens shows that a client in an offloaded pod reaches its own API server, as any
// client in a cluster does, with the rights of its service account and no more.
func fullTokens(t *testing.T, w *fullWorld) {
	w.offload(t, "office", offloadingv1beta1.NamespaceOffloadingSpec{})
	home := w.rome.Client()
	kubetest.Create(t, home.CoreV1().ServiceAccounts("office"), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "clerk"}})
	kubetest.Create(t, home.RbacV1().Roles("office"), &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "clerk"},
		Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get"}}}})
	kubetest.Create(t, home.RbacV1().RoleBindings("office"), &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "clerk"},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "clerk"},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Name: "clerk", Namespace: "office"}}})
	spec := testSpec(1, "pause")
	spec.ServiceAccountName = "clerk"
	w.run(t, "office", "worker", spec)
	within(t, time.Minute, "the pod is Ready", w.podReady("office", "worker"))
	pod := kubetest.Get(t, home.CoreV1().Pods("office"), "worker")
	within(t, 20*time.Second, "it reads itself at home", func(ctx context.Context) error {
		out, err := w.rome.Exec(ctx, "office", "worker", "api", "api/v1/namespaces/NAMESPACE/pods/worker")
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		var have corev1.Pod
		if err := json.Unmarshal([]byte(out), &have); err != nil {
			return err
		}
		return lab.Wrong(nil, have.UID != pod.UID, "it is pod %s/%s", have.Namespace, have.Name)
	})
	_, err := w.rome.Exec(t.Context(), "office", "worker", "api", "api/v1/namespaces/NAMESPACE/secrets")
	require.Error(t, err, "its account may not read Secrets")
}
