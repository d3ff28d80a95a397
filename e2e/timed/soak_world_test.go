package timed

import (
	"context"
	"flag"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/e2e/site"
	"github.com/liqod/liqod/kube/kubetest"
)

var (
	duration = flag.Duration("for", time.Minute, "how long the clusters are changed, and how long TestAlarm lasts")
	rate     = flag.Int("rate", 50, "changes a second at most")
)

const (
	consumer, provider = "rome", "milan"
	tenant             = "liqo-tenant-" + provider
	// user and providerUser are the field managers of changes at home and in the provider.
	user         = "soak-user"
	providerUser = "soak-provider-user"
)

// soakWorld is a world with the clients and namespaces of the soak.
type soakWorld struct {
	*world
	// home and remote are clients with a deadline for each request.
	home, remote kubernetes.Interface
	namespaces   []string
}

func newSoakWorld(t *testing.T) *soakWorld {
	t.Helper()
	pair := site.World{
		Settings: []map[string]any{{"sharing": map[string]any{
			"serviceTypes": []string{"ClusterIP", "NodePort", "LoadBalancer", "ExternalName"}, "annotations": []string{"*"},
		}}},
		Adjust: func(o *lab.ClusterOptions) { o.SimulatedNodes, o.NodeGrace = 1, time.Minute },
	}.StartPair(t)
	pair.Peer(t, site.PeerOptions{})
	return &soakWorld{
		world: &world{Pair: pair}, home: clientOf(t, pair.Rome), remote: clientOf(t, pair.Milan), namespaces: []string{"soak-0", "soak-1", "soak-2"},
	}
}

func clientOf(t *testing.T, s *site.Site) kubernetes.Interface {
	t.Helper()
	config := s.Config()
	config.Timeout, config.WarningHandler = answerWithin, rest.NoWarnings{}
	c, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	return c
}

// offerStorage lets the virtual node offer a storage class of the provider.
func (w *soakWorld) offerStorage(t *testing.T) {
	t.Helper()
	class := &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: diskClass}, Provisioner: "example.com/disk", VolumeBindingMode: new(storagev1.VolumeBindingWaitForFirstConsumer),
	}
	kubetest.Create(t, w.Milan.Client().StorageV1().StorageClasses(), class)
	body := fmt.Appendf(nil, `{"spec":{"storageClasses":[{"storageClassName":%q}]}}`, diskClass)
	_, err := w.Rome.Liqod().OffloadingV1beta1().VirtualNodes(tenant).Patch(t.Context(), provider, types.MergePatchType, body, metav1.PatchOptions{FieldManager: user})
	require.NoError(t, err)
}

const (
	tokenNamespace = "soak-token" // beside the namespaces that are changed
	tokenPod       = "token"      // a pod, and its service account
	// tokenLife is the shortest that an API server gives a token.
	tokenLife = 10 * time.Minute
)

// startTokenPod starts a pod in the provider that has a token of the least lifetime, and returns
// the token.
func (w *soakWorld) startTokenPod(t *testing.T) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	require.NoError(t, w.Rome.Offload(ctx, tokenNamespace, offloadingv1beta1.NamespaceOffloadingSpec{PodOffloadingStrategy: offloadingv1beta1.PodsRemote}))
	meta := metav1.ObjectMeta{Name: tokenPod}
	_, err := w.Rome.Client().CoreV1().ServiceAccounts(tokenNamespace).Create(ctx, &corev1.ServiceAccount{ObjectMeta: meta}, metav1.CreateOptions{})
	require.NoError(t, err)
	pod := &corev1.Pod{ObjectMeta: meta, Spec: corev1.PodSpec{
		ServiceAccountName: tokenPod, AutomountServiceAccountToken: new(false),
		Containers: []corev1.Container{{Name: "main", Image: "sim/web:1", VolumeMounts: []corev1.VolumeMount{{Name: "token", MountPath: "/token"}}}},
		Volumes: []corev1.Volume{{Name: "token", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{{
			ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token", ExpirationSeconds: new(int64(tokenLife / time.Second))},
		}}}}}},
	}}
	_, err = w.Rome.Client().CoreV1().Pods(tokenNamespace).Create(ctx, pod, metav1.CreateOptions{})
	require.NoError(t, err)
	var token string
	require.NoError(t, lab.Eventually(ctx, func(ctx context.Context) error {
		have, err := w.Rome.Client().CoreV1().Pods(tokenNamespace).Get(ctx, tokenPod, metav1.GetOptions{})
		if err != nil || have.Status.Phase != corev1.PodRunning {
			return fmt.Errorf("the pod with a token: %v: %w", have.Status, err)
		}
		token, err = w.acceptedToken(ctx)
		return err
	}))
	return token
}

// acceptedToken returns the pod's token in the provider, if home accepts it.
func (w *soakWorld) acceptedToken(ctx context.Context) (string, error) {
	secrets, err := w.remote.CoreV1().Secrets(twinOf(tokenNamespace)).List(ctx, metav1.ListOptions{
		LabelSelector: offloadingv1beta1.ManagedByLabel + "=" + offloadingv1beta1.ManagedByToken})
	if err != nil {
		return "", err
	}
	if len(secrets.Items) != 1 {
		return "", fmt.Errorf("%d Secrets with tokens in the provider", len(secrets.Items))
	}
	token := string(secrets.Items[0].Data["token"])
	review, err := w.home.AuthenticationV1().TokenReviews().Create(ctx,
		&authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	if want := "system:serviceaccount:" + tokenNamespace + ":" + tokenPod; review.Status.User.Username != want {
		return "", fmt.Errorf("the token is accepted as %q: %s", review.Status.User.Username, review.Status.Error)
	}
	return token, nil
}

// checkToken requires that home accepts the pod's token, and that it is another one than the
// first when that has expired.
func (w *soakWorld) checkToken(t *testing.T, first string, made time.Time) {
	t.Helper()
	now, err := w.acceptedToken(t.Context())
	require.NoError(t, err)
	t.Logf("the token of a pod is accepted; it is another one than %s ago: %t", time.Since(made).Round(time.Second), now != first)
	if time.Since(made) > tokenLife {
		require.NotEqual(t, first, now)
	}
}
