package scenarios

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/e2e/site"
	"github.com/liqod/liqod/kube/kubetest"
)

const (
	cashiers     = "bank" // a namespace
	cashiersTwin = "bank-rome"
	cashierUser  = "system:serviceaccount:bank:cashier"
)

// tokenWorld remembers the tokens that must not be good any more.
type tokenWorld struct {
	*world
	invalid []string // tokens that the API server has to reject in the end
}

func (w *tokenWorld) mustBeRejected(secret *corev1.Secret) {
	w.invalid = append(w.invalid, string(secret.Data["token"]))
}

// tokenLabels are those of the Secrets with, or for, the tokens of a virtual node.
func tokenLabels(node string) map[string]string {
	return map[string]string{offloadingv1beta1.ManagedByLabel: offloadingv1beta1.ManagedByToken, offloadingv1beta1.NodeNameLabel: node}
}

func mountsSecret(spec *corev1.PodSpec, name string) bool {
	return slices.ContainsFunc(spec.Volumes, func(v corev1.Volume) bool {
		return v.Projected != nil && slices.ContainsFunc(v.Projected.Sources, func(p corev1.VolumeProjection) bool {
			return p.Secret != nil && p.Secret.Name == name
		})
	})
}

// tokensOf selects the Secrets with, or for, the tokens of virtual node milan.
func tokensOf() metav1.ListOptions {
	return metav1.ListOptions{LabelSelector: labels.Set(tokenLabels("milan")).String()}
}

// tokenSecrets returns the Secrets that tokens are bound to at home, and those with tokens
// in the provider.
func (w *world) tokenSecrets(ctx context.Context) (home, there []corev1.Secret, err error) {
	h, err := w.rome.Client().CoreV1().Secrets(cashiers).List(ctx, tokensOf())
	if err != nil {
		return nil, nil, err
	}
	t, err := w.milan.Client().CoreV1().Secrets(cashiersTwin).List(ctx, tokensOf())
	if err != nil {
		return nil, nil, err
	}
	return h.Items, t.Items, nil
}

func (w *world) noTokens(ctx context.Context) error {
	home, there, err := w.tokenSecrets(ctx)
	return lab.Wrong(err, len(home)+len(there) > 0, "%d Secrets are left at home, %d in the provider", len(home), len(there))
}

// accepted asks the home API server whose a token is.
func (w *world) accepted(ctx context.Context, token string) (string, error) {
	review, err := w.rome.Client().AuthenticationV1().TokenReviews().Create(ctx,
		&authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	if !review.Status.Authenticated {
		return "", nil
	}
	return review.Status.User.Username, nil
}

// goodToken returns the only token in the provider once home accepts it as the cashier's.
func (w *world) goodToken(into *corev1.Secret, other string) func(context.Context) error {
	return func(ctx context.Context) error {
		home, there, err := w.tokenSecrets(ctx)
		if err != nil {
			return err
		}
		if len(home) != 1 || len(there) != 1 {
			return fmt.Errorf("%d Secrets at home, %d in the provider", len(home), len(there))
		}
		token := string(there[0].Data["token"])
		if token == other {
			return errors.New("it is still the same token")
		}
		if user, err := w.accepted(ctx, token); err != nil || user != cashierUser {
			return fmt.Errorf("the token is accepted as %q: %w", user, err)
		}
		*into = there[0]
		return nil
	}
}

func (w *world) rejected(token string) func(context.Context) error {
	return func(ctx context.Context) error {
		user, err := w.accepted(ctx, token)
		return lab.Wrong(err, user != "", "the token is still accepted as %s", user)
	}
}

func cashierPod(name string, change ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: podSpec("sim/web:1")}
	pod.Spec.ServiceAccountName = "cashier"
	for _, c := range change {
		c(pod)
	}
	return pod
}

func (w *world) createRunning(t *testing.T, pods ...*corev1.Pod) {
	t.Helper()
	for _, pod := range pods {
		kubetest.Create(t, w.rome.Client().CoreV1().Pods(cashiers), pod)
	}
	for _, pod := range pods {
		within(t, 30*time.Second, pod.Name+" runs", lab.Is(w.rome.Client().CoreV1().Pods(cashiers), pod.Name, inPhase(corev1.PodRunning)))
	}
}

func (w *world) deletePods(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		require.NoError(t, w.rome.Client().CoreV1().Pods(cashiers).Delete(t.Context(), name, metav1.DeleteOptions{}))
	}
}

func (w *world) makeCashier(t *testing.T) {
	t.Helper()
	kubetest.Create(t, w.rome.Client().CoreV1().ServiceAccounts(cashiers), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "cashier"}})
}

// TestTokens shows that offloaded pods find tokens that the home API server accepts, for
// as long as they run and nobody takes them away. What becomes of Secrets in the provider, package kinds tests.
func TestTokens(t *testing.T) {
	w := &tokenWorld{world: newWorld(t)}
	w.offload(t, cashiers, offloadingv1beta1.NamespaceOffloadingSpec{})
	w.makeCashier(t)
	inTurn(t, w, []part[*tokenWorld]{
		{"Shared", tokenShared}, {"Restart", tokenRestart}, {"Revoked", tokenRevoked}, {"AccountMadeAgain", tokenOfAnotherAccount},
		{"LastPod", tokenLastPod}, {"BoundToPods", tokenOfPods}, {"SwitchedOff", tokenSwitchedOff}, {"RightsTaken", tokenRightsTaken},
		{"VirtualNodeGone", tokenVirtualNodeGone},
	})
	require.Len(t, w.invalid, 9)
	for _, token := range w.invalid {
		// The API server remembers for 10 s whom it has let in.
		within(t, 20*time.Second, "a dead token is rejected", w.rejected(token))
	}
	within(t, longest, "the virtual node is gone", lab.Together(isGone(w.rome.Liqod().OffloadingV1beta1().VirtualNodes(tenantOfMilan), "milan"), isGone(w.rome.Client().CoreV1().Nodes(), "milan")))
	ctx, cancel := context.WithTimeout(t.Context(), longest)
	defer cancel()
	require.NoError(t, w.rome.AddVirtualNode(ctx, w.milan, site.PeerOptions{Node: "milan"}))
	t.Run("Events", func(t *testing.T) { testEvents(t, w.world) })
}

func tokenShared(t *testing.T, w *tokenWorld) {
	begin := time.Now()
	w.createRunning(t, cashierPod("a"), cashierPod("b"))
	var secret corev1.Secret
	within(t, 10*time.Second, "the token is in the provider", w.goodToken(&secret, ""))
	require.Equal(t, corev1.SecretTypeOpaque, secret.Type)
	require.Equal(t, cashiers, string(secret.Data["namespace"]))
	ca := kubetest.Get(t, w.rome.Client().CoreV1().ConfigMaps(cashiers), "kube-root-ca.crt")
	require.Equal(t, ca.Data["ca.crt"], string(secret.Data["ca.crt"]))
	for _, name := range []string{"a", "b"} {
		pod := kubetest.Get(t, w.milan.Client().CoreV1().Pods(cashiersTwin), name)
		require.True(t, mountsSecret(&pod.Spec, secret.Name))
		require.Equal(t, "default", pod.Spec.ServiceAccountName)
		require.Len(t, pod.Spec.Volumes, 1)
		require.Equal(t, "/var/run/secrets/kubernetes.io/serviceaccount", pod.Spec.Containers[0].VolumeMounts[0].MountPath)
	}
	records := must(w.rome.Audited(func(r lab.AuditRecord) bool {
		return r.Resource() == "serviceaccounts/token" && r.ObjectRef.Namespace == cashiers && r.RequestReceivedTimestamp.After(begin)
	}))(t)
	require.Len(t, records, 1, "one token for both pods")
}

func tokenRestart(t *testing.T, w *tokenWorld) {
	home, there, err := w.tokenSecrets(t.Context())
	require.NoError(t, err)
	begin := time.Now()
	require.NoError(t, w.sites.Restart(w.rome.VKubelet("milan")))
	within(t, 20*time.Second, "the vkubelet is back", func(context.Context) error {
		found, err := w.milan.Audited(func(r lab.AuditRecord) bool {
			return r.Verb == "watch" && r.ObjectRef.Resource == "secrets" && r.ObjectRef.Namespace == cashiersTwin && r.RequestReceivedTimestamp.After(begin)
		})
		return lab.Wrong(err, len(found) == 0, "it does not watch Secrets yet")
	})
	w.createRunning(t, cashierPod("c")) // by then it has looked at all that is there
	for _, cluster := range []*lab.Cluster{w.rome.Cluster, w.milan.Cluster} {
		found := must(cluster.Audited(func(r lab.AuditRecord) bool {
			return r.Write() && r.RequestReceivedTimestamp.After(begin) && strings.HasPrefix(r.ObjectRef.Namespace, cashiers) &&
				slices.Contains([]string{"secrets", "serviceaccounts/token"}, r.Resource())
		}))(t)
		require.Empty(t, found)
	}
	homeNow, thereNow, err := w.tokenSecrets(t.Context())
	require.NoError(t, err)
	require.Equal(t, home, homeNow)
	require.Equal(t, there, thereNow)
}

func tokenRevoked(t *testing.T, w *tokenWorld) {
	var before, after corev1.Secret
	require.NoError(t, w.goodToken(&before, "")(t.Context()))
	require.NoError(t, w.rome.Client().CoreV1().Secrets(cashiers).Delete(t.Context(), before.Name, metav1.DeleteOptions{}))
	within(t, 15*time.Second, "another token is there", w.goodToken(&after, string(before.Data["token"])))
	w.mustBeRejected(&before)
	require.Equal(t, before.UID, after.UID)
}

func tokenOfAnotherAccount(t *testing.T, w *tokenWorld) {
	var before, after corev1.Secret
	require.NoError(t, w.goodToken(&before, "")(t.Context()))
	require.NoError(t, w.rome.Client().CoreV1().ServiceAccounts(cashiers).Delete(t.Context(), "cashier", metav1.DeleteOptions{}))
	within(t, 10*time.Second, "the pods are told that their account is missing", hasSome(w.rome.Client().CoreV1().Events(cashiers), "reason=FailedSATokensReflection", 3))
	w.makeCashier(t)
	within(t, 15*time.Second, "the new account's token is there", w.goodToken(&after, string(before.Data["token"])))
	w.mustBeRejected(&before)
}

func tokenLastPod(t *testing.T, w *tokenWorld) {
	var secret corev1.Secret
	require.NoError(t, w.goodToken(&secret, "")(t.Context()))
	w.deletePods(t, "a", "b")
	within(t, 30*time.Second, "two pods are gone", lab.Number(w.rome.Client().CoreV1().Pods(cashiers), metav1.ListOptions{}, 1))
	require.NoError(t, w.goodToken(&corev1.Secret{}, "")(t.Context()), "the third pod still uses it")
	w.deletePods(t, "c")
	within(t, 30*time.Second, "the token is gone with its last pod", w.noTokens)
	w.mustBeRejected(&secret)
}

// tokenOfPods binds tokens to their pods, but for that of a pod that runs already.
func tokenOfPods(t *testing.T, w *tokenWorld) {
	w.createRunning(t, cashierPod("early"))
	var secret corev1.Secret
	within(t, 15*time.Second, "the token is in the provider", w.goodToken(&secret, ""))
	early := secret
	restore := w.vkubeletArgs(t, "--vkubelet.tokenBinding=pod")
	defer restore()
	w.createRunning(t, cashierPod("a"), cashierPod("b"))
	var tokens []string
	within(t, 15*time.Second, "each pod has a token", func(ctx context.Context) error {
		home, there, err := w.tokenSecrets(ctx)
		if err != nil || len(home) != 1 || len(there) != 3 {
			return fmt.Errorf("%d Secrets at home, %d in the provider: %w", len(home), len(there), err)
		}
		tokens = nil
		for i := range there {
			tokens = append(tokens, string(there[i].Data["token"]))
		}
		for _, token := range tokens {
			if user, err := w.accepted(ctx, token); err != nil || user != cashierUser {
				return fmt.Errorf("accepted as %q: %w", user, err)
			}
		}
		return nil
	})
	w.deletePods(t, "a", "b")
	within(t, 30*time.Second, "those of the pods are gone with them", w.goodToken(&secret, ""))
	require.Equal(t, early.UID, secret.UID)
	require.Equal(t, early.Data, secret.Data)
	w.deletePods(t, "early")
	within(t, 30*time.Second, "and so is the other", w.noTokens)
	w.invalid = append(w.invalid, tokens...)
}

// vkubeletArgs starts the vkubelet again with more flags, and returns what takes them away.
func (w *world) vkubeletArgs(t *testing.T, args ...string) (restore func()) {
	t.Helper()
	p := w.rome.VKubelet("milan")
	before := (*p).Options.Args
	(*p).Options.Args = append(slices.Clone(before), args...)
	require.NoError(t, w.sites.Restart(p))
	return func() {
		(*p).Options.Args = before
		require.NoError(t, w.sites.Restart(p))
	}
}

// tokenSwitchedOff shows that the flag takes the tokens away from pods that have them, and
// that pods run without.
func tokenSwitchedOff(t *testing.T, w *tokenWorld) {
	w.createRunning(t, cashierPod("a"))
	var secret corev1.Secret
	within(t, 15*time.Second, "the token is in the provider", w.goodToken(&secret, ""))
	restore := w.vkubeletArgs(t, "--enable-apiserver-support=false")
	within(t, 30*time.Second, "the tokens are gone", w.noTokens)
	w.mustBeRejected(&secret)
	w.createRunning(t, cashierPod("b"))
	pod := kubetest.Get(t, w.milan.Client().CoreV1().Pods(cashiersTwin), "b")
	require.Empty(t, pod.Spec.Volumes)
	restore()
	within(t, 30*time.Second, "switched on again, the pod that was made with a token has one", w.goodToken(&secret, ""))
	w.deletePods(t, "a")
	within(t, 30*time.Second, "and not the one that was made without", w.noTokens)
	w.deletePods(t, "b")
}

// tokenRightsTaken shows that tokens end with the vkubelet's rights in the namespace, also
// while it does not run.
func tokenRightsTaken(t *testing.T, w *tokenWorld) {
	w.createRunning(t, cashierPod("a"))
	var secret corev1.Secret
	within(t, 15*time.Second, "the token is in the provider", w.goodToken(&secret, ""))
	p := *w.rome.VKubelet("milan")
	p.Pause()
	require.NoError(t, w.rome.Client().RbacV1().RoleBindings(cashiers).Delete(t.Context(), "liqod-vkubelet-namespace:liqo-tenant-milan:milan", metav1.DeleteOptions{}))
	within(t, 30*time.Second, "what the token is bound to is collected", isGone(w.rome.Client().CoreV1().Secrets(cashiers), secret.Name))
	w.mustBeRejected(&secret)
	p.Resume()
	within(t, 30*time.Second, "with the rights, which the controller has restored, there is another", w.goodToken(&secret, string(secret.Data["token"])))
}

func tokenVirtualNodeGone(t *testing.T, w *tokenWorld) {
	var secret corev1.Secret
	require.NoError(t, w.goodToken(&secret, "")(t.Context()))
	vns := w.rome.Liqod().OffloadingV1beta1().VirtualNodes(tenantOfMilan)
	require.NoError(t, vns.Delete(t.Context(), "milan", metav1.DeleteOptions{}))
	p := *w.rome.VKubelet("milan")
	within(t, time.Minute, "the Deployment of the vkubelet is gone", isGone(w.rome.Client().AppsV1().Deployments(tenantOfMilan), "vk-milan"))
	p.Kill()
	within(t, time.Minute, "nothing of the token is left", w.noTokens)
	w.mustBeRejected(&secret)
}
