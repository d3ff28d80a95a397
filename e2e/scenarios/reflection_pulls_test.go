package scenarios

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/liqod/liqod/kube/kubetest"
)

// pullSecret has the credentials of a registry.
func pullSecret(name, password string) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Type: corev1.SecretTypeDockerConfigJson,
		StringData: map[string]string{corev1.DockerConfigJsonKey: fmt.Sprintf(`{"auths":{"registry.example.com":{"username":"u","password":%q}}}`, password)},
	}
}

// builderPod is a pod of an account, with pull secrets of its own if any are named.
func builderPod(name string, pulls ...string) *corev1.Pod {
	pod := boundPod(name)
	pod.Spec.ServiceAccountName = "builder"
	for _, secret := range pulls {
		pod.Spec.ImagePullSecrets = append(pod.Spec.ImagePullSecrets, corev1.LocalObjectReference{Name: secret})
	}
	return pod
}

// testPullSecrets: images are pulled in the provider with the credentials of the pod's
// service account here, which the API server names in every pod that names none.
func testPullSecrets(t *testing.T, w *world) {
	c := w.fixture(t, "pulls")
	home := w.rome.Client().CoreV1().Secrets(c.namespace)
	for _, name := range []string{"first", "second"} {
		kubetest.Create(t, home, pullSecret(name, "1"))
	}
	kubetest.Create(t, w.rome.Client().CoreV1().ServiceAccounts(c.namespace), &corev1.ServiceAccount{
		ObjectMeta: metav1.ObjectMeta{Name: "builder"}, ImagePullSecrets: []corev1.LocalObjectReference{{Name: "first"}},
	})
	before := c.pullsWith(t, builderPod("before"), "first")
	own := c.pullsWith(t, builderPod("own", "second", "missing"), "second", "missing")

	c.givesPullSecret(t, "second")
	c.pullsWith(t, builderPod("after"), "second")
	require.Equal(t, before.UID, c.remote(t, "before").UID, "it runs on with what it was made with")
	require.Equal(t, own.UID, c.remote(t, "own").UID)

	kubetest.Update(t, home, pullSecret("first", "2"))
	c.pullSecretThere(t, "first")
	require.NoError(t, home.Delete(t.Context(), "second", metav1.DeleteOptions{}))
	away(t, "credentials that are withdrawn", getter(w.milan.Client().CoreV1().Secrets(c.twin), "second"))
}

// pullsWith runs a pod, requires that it names those pull secrets in both clusters, and
// returns the one in the provider.
func (c *fixture) pullsWith(t *testing.T, pod *corev1.Pod, want ...string) *corev1.Pod {
	t.Helper()
	c.create(t, pod)
	local := c.untilLocal(t, 30*time.Second, pod.Name, "runs", podRunning)
	require.Equal(t, builderPod("", want...).Spec.ImagePullSecrets, local.Spec.ImagePullSecrets)
	remote := c.remote(t, pod.Name)
	require.Equal(t, local.Spec.ImagePullSecrets, remote.Spec.ImagePullSecrets)
	c.pullSecretThere(t, want[0])
	return remote
}

// pullSecretThere waits until a Secret is in the provider as it is here.
func (c *fixture) pullSecretThere(t *testing.T, name string) {
	t.Helper()
	want := kubetest.Get(t, c.rome.Client().CoreV1().Secrets(c.namespace), name)
	there(t, "the credentials "+name, getter(c.milan.Client().CoreV1().Secrets(c.twin), name), func(s *corev1.Secret) bool {
		return s.Type == corev1.SecretTypeDockerConfigJson && equality.Semantic.DeepEqual(s.Data, want.Data)
	})
}

// givesPullSecret has the account give new pods another Secret, and waits until the API
// server, which reads accounts from a cache, does so.
func (c *fixture) givesPullSecret(t *testing.T, name string) {
	t.Helper()
	kubetest.Patch(t, c.rome.Client().CoreV1().ServiceAccounts(c.namespace), "builder", types.MergePatchType, fmt.Appendf(nil, `{"imagePullSecrets":[{"name":%q}]}`, name))
	within(t, quickly, "new pods are given "+name, func(ctx context.Context) error {
		probe, err := c.rome.Client().CoreV1().Pods(c.namespace).Create(ctx, builderPod("probe"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil && probe.Spec.ImagePullSecrets[0].Name != name {
			err = fmt.Errorf("they are given %v", probe.Spec.ImagePullSecrets)
		}
		return err
	})
}
