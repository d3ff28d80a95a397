package timed

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/e2e/lab"
)

const (
	holders = "soak-token" // a namespace beside the ones that are shaken
	holder  = "holder"     // a pod, and its service account
	// tokenLife is the shortest that an API server gives a token.
	tokenLife = 10 * time.Minute
)

// startHolder starts a pod in the provider that has a token of the least lifetime, and
// returns the token.
func (w *shaken) startHolder(t *testing.T) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	require.NoError(t, w.rome.Offload(ctx, holders, offloadingv1beta1.NamespaceOffloadingSpec{PodOffloadingStrategy: offloadingv1beta1.PodsRemote}))
	meta := metav1.ObjectMeta{Name: holder}
	_, err := w.rome.Client().CoreV1().ServiceAccounts(holders).Create(ctx, &corev1.ServiceAccount{ObjectMeta: meta}, metav1.CreateOptions{})
	require.NoError(t, err)
	pod := &corev1.Pod{ObjectMeta: meta, Spec: corev1.PodSpec{
		ServiceAccountName: holder, AutomountServiceAccountToken: new(false),
		Containers: []corev1.Container{{Name: "main", Image: "sim/web:1", VolumeMounts: []corev1.VolumeMount{{Name: "token", MountPath: "/token"}}}},
		Volumes: []corev1.Volume{{Name: "token", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{{
			ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token", ExpirationSeconds: new(int64(tokenLife / time.Second))},
		}}}}}},
	}}
	_, err = w.rome.Client().CoreV1().Pods(holders).Create(ctx, pod, metav1.CreateOptions{})
	require.NoError(t, err)
	var token string
	require.NoError(t, lab.Eventually(ctx, func(ctx context.Context) error {
		have, err := w.rome.Client().CoreV1().Pods(holders).Get(ctx, holder, metav1.GetOptions{})
		if err != nil || have.Status.Phase != corev1.PodRunning {
			return fmt.Errorf("the pod with a token: %v: %w", have.Status, err)
		}
		token, err = w.heldToken(ctx)
		return err
	}))
	return token
}

// heldToken returns the pod's token in the provider, if home accepts it.
func (w *shaken) heldToken(ctx context.Context) (string, error) {
	secrets, err := w.away.CoreV1().Secrets(twinOf(holders)).List(ctx, metav1.ListOptions{
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
	if want := "system:serviceaccount:" + holders + ":" + holder; review.Status.User.Username != want {
		return "", fmt.Errorf("the token is accepted as %q: %s", review.Status.User.Username, review.Status.Error)
	}
	return token, nil
}

// checkToken requires that the pod has a token that is good, and, when the first has ended,
// another.
func (w *shaken) checkToken(t *testing.T, first string, made time.Time) {
	t.Helper()
	now, err := w.heldToken(t.Context())
	require.NoError(t, err)
	t.Logf("the token of a pod is good; it is another one than %s ago: %t", time.Since(made).Round(time.Second), now != first)
	if time.Since(made) > tokenLife {
		require.NotEqual(t, first, now)
	}
}
