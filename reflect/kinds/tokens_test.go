package kinds

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	"github.com/liqod/liqod/api/generated/informers/externalversions"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/kubetest"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/reasons"
	"github.com/liqod/liqod/reflect/engine"
	"github.com/liqod/liqod/reflect/forge"
)

// tokenSite is a site whose consumer issues tokens and whose namespace shop is offloaded.
// It must be created in a synctest bubble.
type tokenSite struct {
	*site
	t        *testing.T
	refuse   error // why home gives no token
	given    int
	requests []*authenticationv1.TokenRequest
	stop     func()
}

func inTokenSite(t *testing.T, test func(*tokenSite)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &tokenSite{site: newSite(), t: t}
		s.api = forge.APIAccess{Enabled: true}
		s.offload("shop")
		s.add(s.home.Tracker(),
			&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "cashier", UID: "cashier-1"}},
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "kube-root-ca.crt"}, Data: map[string]string{"ca.crt": "pem"}},
			&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "rights", UID: "rights-1"}})
		s.home.PrependReactor("create", "serviceaccounts", s.giveToken)
		number(s.home, "home")
		number(s.remote, "there")
		test(s)
		if s.stop != nil {
			s.stop()
		}
	})
}

// withCashier runs a site with the pod a, which mounts a token of this name.
func withCashier(t *testing.T, test func(s *tokenSite, token string)) {
	t.Helper()
	inTokenSite(t, func(s *tokenSite) {
		s.add(s.home.Tracker(), cashier("a"))
		s.run()
		test(s, s.tokenName(cashier("a")))
	})
}

// number assigns UIDs to Secrets, as API servers do.
func number(c *fake.Clientset, prefix string) {
	n := 0
	c.PrependReactor("create", "secrets", func(action clienttesting.Action) (bool, runtime.Object, error) {
		n++
		s := action.(clienttesting.CreateAction).GetObject().(*corev1.Secret)
		s.UID = types.UID(fmt.Sprintf("%s-%d", prefix, n))
		return false, nil, nil
	})
}

func (s *tokenSite) giveToken(action clienttesting.Action) (bool, runtime.Object, error) {
	if action.GetSubresource() != "token" {
		return false, nil, nil
	}
	if s.refuse != nil {
		return true, nil, s.refuse
	}
	s.given++
	request := action.(clienttesting.CreateAction).GetObject().(*authenticationv1.TokenRequest).DeepCopy()
	s.requests = append(s.requests, request)
	request.Status = authenticationv1.TokenRequestStatus{Token: fmt.Sprintf("token-%d", s.given), ExpirationTimestamp: metav1.NewTime(time.Now().Add(time.Hour))}
	return true, request, nil
}

func (s *tokenSite) run() {
	s.stop = s.start(s.t)
	s.settle(0)
}

// settle advances the time and waits until all goroutines are idle.
func (s *tokenSite) settle(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
	time.Sleep(100 * time.Millisecond) // informers and queues pause for less
	synctest.Wait()
}

func (s *tokenSite) restart() {
	s.stop()
	kubetest.TakeWrites(s.home)
	kubetest.TakeWrites(s.remote)
	kubetest.TakeWrites(s.remoteLiqod)
	s.run()
}

// cashier returns a pod that mounts a token of the service account cashier.
func cashier(name string, change ...func(*corev1.Pod)) *corev1.Pod {
	return localPod(append([]func(*corev1.Pod){func(p *corev1.Pod) {
		p.Name, p.UID = name, types.UID(name+"-uid")
		p.Spec.ServiceAccountName = "cashier"
		p.Spec.Volumes = []corev1.Volume{{Name: "kube-api-access-1", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
			Sources: []corev1.VolumeProjection{{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}}}}}}}
	}}, change...)...)
}

func (s *tokenSite) tokenName(pod *corev1.Pod) string {
	tokens := forge.Tokens(pod, s.pods.tokenOptions())
	require.Len(s.t, tokens, 1)
	return tokens[0].Name
}

func secretNames(s *tokenSite, c *fake.Clientset, namespace string) []string {
	list := kubetest.List(s.t, c.CoreV1().Secrets(namespace))
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names
}

// requireToken requires that the provider has this token and the consumer its binding
// Secret.
func (s *tokenSite) requireToken(name, value string) {
	s.t.Helper()
	there := kubetest.Get(s.t, s.remote.CoreV1().Secrets("shop-rome"), name)
	require.Equal(s.t, map[string]string{"token": value, "ca.crt": "pem", "namespace": "shop"}, texts(there.Data))
	require.Equal(s.t, []string{name}, secretNames(s, s.home, "shop"))
}

// requireTokens requires that the provider has exactly these tokens, by name.
func (s *tokenSite) requireTokens(want map[string]string) {
	s.t.Helper()
	list := kubetest.List(s.t, s.remote.CoreV1().Secrets("shop-rome"))
	have := map[string]string{}
	for i := range list.Items {
		have[list.Items[i].Name] = string(list.Items[i].Data["token"])
	}
	require.Equal(s.t, want, have)
}

func texts(data map[string][]byte) map[string]string {
	out := map[string]string{}
	for k, v := range data {
		out[k] = string(v)
	}
	return out
}

func (s *tokenSite) requireNone() {
	s.t.Helper()
	require.Empty(s.t, secretNames(s, s.home, "shop"))
	require.Empty(s.t, secretNames(s, s.remote, "shop-rome"))
}

// secretWrites returns the writes to Secrets and tokens, without bodies.
func secretWrites(r kubetest.Recorder) []string {
	var out []string
	for _, w := range kubetest.TakeWrites(r) {
		if words := strings.Fields(w); strings.HasPrefix(words[1], "secrets") || strings.HasPrefix(words[1], "serviceaccounts") {
			out = append(out, strings.Join(words[:2], " "))
		}
	}
	return out
}

func (s *tokenSite) requireEvent(words ...string) {
	s.t.Helper()
	select {
	case e := <-s.events.Events:
		for _, w := range words {
			require.Contains(s.t, e, w)
		}
	default:
		require.Fail(s.t, "no event")
	}
}

func (s *tokenSite) requireQuiet() {
	s.t.Helper()
	select {
	case e := <-s.events.Events:
		require.Fail(s.t, "an event: "+e)
	default:
	}
}

func TestPodsShareOneToken(t *testing.T) {
	inTokenSite(t, func(s *tokenSite) {
		s.add(s.home.Tracker(), cashier("a"), cashier("b"))
		s.run()
		name := s.tokenName(cashier("a"))
		s.requireToken(name, "token-1")
		require.Equal(t, []string{"create secrets", "create serviceaccounts/token"}, secretWrites(s.home))
		require.Equal(t, []string{"create secrets"}, secretWrites(s.remote))
		require.Equal(t, &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Secret", Name: name, UID: "home-1"}, s.requests[0].Spec.BoundObjectRef)
		require.Equal(t, int64(3600), *s.requests[0].Spec.ExpirationSeconds)
		require.Empty(t, s.requests[0].Spec.Audiences)
		binding := kubetest.Get(t, s.home.CoreV1().Secrets("shop"), name)
		require.Empty(t, binding.Data)
		require.Equal(t, types.UID("rights-1"), binding.OwnerReferences[0].UID)
		shadow := kubetest.Get(t, s.remoteLiqod.OffloadingV1beta1().ShadowPods("shop-rome"), "b")
		require.True(t, forge.MountsSecret(&shadow.Spec.Pod, name))

		s.restart()
		require.Empty(t, secretWrites(s.home), "a restart writes nothing")
		require.Empty(t, secretWrites(s.remote), "a restart writes nothing")
		s.requireQuiet()
	})
}

func TestTokenIsRefreshed(t *testing.T) {
	withCashier(t, func(s *tokenSite, token string) {
		s.requireToken(token, "token-1")
		s.settle(44 * time.Minute)
		require.Equal(t, 1, s.given)
		s.settle(4 * time.Minute)
		require.Equal(t, 2, s.given)
		s.requireToken(token, "token-2")
		kubetest.TakeWrites(s.home)
		kubetest.TakeWrites(s.remote)
		s.settle(49 * time.Minute)
		s.requireToken(token, "token-3")
		require.Equal(t, []string{"create serviceaccounts/token"}, secretWrites(s.home))
		require.Equal(t, []string{"patch secrets"}, secretWrites(s.remote))
	})
}

func TestTokenGoesWithItsLastPod(t *testing.T) {
	inTokenSite(t, func(s *tokenSite) {
		s.add(s.home.Tracker(), cashier("a"), cashier("b"))
		s.run()
		name := s.tokenName(cashier("a"))
		require.NoError(t, s.home.CoreV1().Pods("shop").Delete(t.Context(), "a", metav1.DeleteOptions{}))
		s.settle(time.Minute)
		s.requireToken(name, "token-1")
		b := kubetest.Get(t, s.home.CoreV1().Pods("shop"), "b")
		b.Status.Phase = corev1.PodSucceeded
		kubetest.UpdateStatus(t, s.home.CoreV1().Pods("shop"), b)
		kubetest.TakeWrites(s.home)
		kubetest.TakeWrites(s.remote)
		s.settle(tokenLinger - time.Second)
		s.requireToken(name, "token-1")
		s.settle(2 * time.Second)
		s.requireNone()
		require.Equal(t, []string{"delete secrets"}, secretWrites(s.home))
		require.Equal(t, []string{"delete secrets"}, secretWrites(s.remote))
		require.Empty(t, s.pods.tokens.uses)
	})
}

func TestTokenStaysForASuccessor(t *testing.T) {
	withCashier(t, func(s *tokenSite, token string) {
		require.NoError(t, s.home.CoreV1().Pods("shop").Delete(t.Context(), "a", metav1.DeleteOptions{}))
		s.settle(time.Second)
		kubetest.Create(t, s.home.CoreV1().Pods("shop"), cashier("a", uid("a-2")))
		s.settle(time.Minute)
		s.requireToken(s.tokenName(cashier("a")), "token-1")
	})
}

func TestTokenOfAPodThatTheCacheLacksStays(t *testing.T) {
	withCashier(t, func(s *tokenSite, name string) {
		live := true
		s.home.PrependReactor("list", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
			if !live {
				return false, nil, nil
			}
			return true, &corev1.PodList{Items: []corev1.Pod{*cashier("b")}}, nil
		})
		require.NoError(t, s.home.CoreV1().Pods("shop").Delete(t.Context(), "a", metav1.DeleteOptions{}))
		s.settle(time.Minute)
		s.requireToken(name, "token-1")
		live = false
		s.settle(time.Minute)
		s.requireNone()
	})
}

func TestRevokedTokenIsReplaced(t *testing.T) {
	for name, tc := range map[string]struct {
		away bool
		age  time.Duration
	}{"while watched": {age: time.Minute}, "a moment later": {age: 0}, "while away": {away: true}} {
		t.Run(name, func(t *testing.T) {
			inTokenSite(t, func(s *tokenSite) {
				away := tc.away
				s.add(s.home.Tracker(), cashier("a"))
				s.run()
				token := s.tokenName(cashier("a"))
				s.settle(tc.age)
				if away {
					s.stop()
				}
				require.NoError(t, s.home.CoreV1().Secrets("shop").Delete(t.Context(), token, metav1.DeleteOptions{}))
				if away {
					s.run()
				}
				s.settle(2 * time.Second)
				s.requireToken(token, "token-2")
				require.Equal(t, types.UID("home-2"), s.requests[1].Spec.BoundObjectRef.UID)
			})
		})
	}
}

// TestTokensOfAPeerStay requires that the tokens of another cluster stay. That cluster
// shares the namespace and has a virtual node of the same name.
func TestTokensOfAPeerStay(t *testing.T) {
	inTokenSite(t, func(s *tokenSite) {
		theirs := forge.TokenLabels("milan")
		theirs[offloadingv1beta1.OriginLabel] = "milan"
		s.add(s.home.Tracker(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "token-theirs", UID: "theirs", Labels: theirs}})
		s.run()
		s.settle(time.Hour)
		require.Equal(t, []string{"token-theirs"}, secretNames(s, s.home, "shop"))
	})
}

func TestSpoiltTokenIsRepaired(t *testing.T) {
	secret := func(s *tokenSite, change func(*corev1.Secret)) {
		in := s.remote.CoreV1().Secrets("shop-rome")
		have := kubetest.Get(s.t, in, s.tokenName(cashier("a")))
		change(have)
		kubetest.Update(s.t, in, have)
	}
	for name, spoil := range map[string]func(*tokenSite){
		"deleted": func(s *tokenSite) {
			require.NoError(s.t, s.remote.CoreV1().Secrets("shop-rome").Delete(s.t.Context(), s.tokenName(cashier("a")), metav1.DeleteOptions{}))
		},
		"edited": func(s *tokenSite) { secret(s, func(x *corev1.Secret) { x.Data["token"] = []byte("x") }) },
		"frozen": func(s *tokenSite) {
			secret(s, func(x *corev1.Secret) { x.Immutable, x.Data["token"] = new(true), []byte("x") })
		},
	} {
		t.Run(name, func(t *testing.T) {
			withCashier(t, func(s *tokenSite, token string) {
				s.settle(time.Minute)
				spoil(s)
				s.settle(time.Second)
				s.requireToken(s.tokenName(cashier("a")), "token-2")
				s.settle(time.Minute)
				require.Equal(t, 2, s.given)
			})
		})
	}
}

func TestSpoilingTokensCostsLittle(t *testing.T) {
	inTokenSite(t, func(s *tokenSite) {
		s.remote.PrependReactor("*", "secrets", func(action clienttesting.Action) (bool, runtime.Object, error) {
			if c, ok := action.(clienttesting.CreateAction); ok {
				c.GetObject().(*corev1.Secret).Annotations = nil
			}
			return action.GetVerb() == "patch", nil, nil
		})
		s.add(s.home.Tracker(), cashier("a"))
		s.run()
		s.settle(20 * time.Second)
		require.LessOrEqual(t, s.given, 11)
	})
}

// TestTokensOfAClosedNamespaceAreForgotten requires that no records remain of the tokens
// of a closed namespace.
func TestTokensOfAClosedNamespaceAreForgotten(t *testing.T) {
	withCashier(t, func(s *tokenSite, token string) {
		s.settle(time.Second)
		s.requireToken(s.tokenName(cashier("a")), "token-1")
		known := func() map[loop.Key]use {
			s.pods.tokens.mu.Lock()
			defer s.pods.tokens.mu.Unlock()
			return maps.Clone(s.pods.tokens.uses)
		}
		require.NoError(t, s.remoteLiqod.Tracker().Delete(offloadingv1beta1.SchemeGroupVersion.WithResource("shadowpods"), "shop-rome", "a"))
		require.NoError(t, s.home.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("pods"), "shop", "a"))
		s.settle(time.Second)
		require.Len(t, known(), 1)
		for _, u := range known() {
			require.NotZero(t, u.asked)
			require.NotZero(t, u.unused)
		}
		s.editMap(t, func(m *offloadingv1beta1.NamespaceMap) { delete(m.Spec.DesiredMapping, "shop") })
		s.settle(time.Second)
		require.Nil(t, s.pods.tokens.spaces.Get("shop"))
		require.Empty(t, known())
	})
}

func TestTokenOfAnAccountThatIsMadeAgain(t *testing.T) {
	withCashier(t, func(s *tokenSite, token string) {
		s.settle(time.Minute)
		accounts := s.home.CoreV1().ServiceAccounts("shop")
		require.NoError(t, accounts.Delete(t.Context(), "cashier", metav1.DeleteOptions{}))
		s.settle(time.Second)
		s.requireEvent("FailedSATokensReflection", "no service account cashier in namespace shop")
		kubetest.Create(t, accounts, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "cashier", UID: "cashier-2"}})
		s.settle(time.Second)
		s.requireToken(token, "token-2")
		s.requireQuiet()
		for uid := range s.pods.tokens.told.Range {
			require.Fail(t, "an event is remembered", uid)
		}
	})
}

func TestRefusedTokensAreTold(t *testing.T) {
	inTokenSite(t, func(s *tokenSite) {
		s.refuse = apierrors.NewForbidden(corev1.Resource("serviceaccounts"), "cashier", errors.New("not for you"))
		s.add(s.home.Tracker(), cashier("a"))
		s.run()
		s.settle(time.Minute)
		s.requireEvent("FailedSATokensReflection", "cashier", "not for you")
		s.requireEvent(reasons.NotReflectedYet, "does not have Secret shop/token-")
		s.requireEvent(reasons.NotReflectedYet, "the pod starts although")
		s.requireQuiet()
		tries := slices.DeleteFunc(secretWrites(s.home), func(w string) bool { return w != "create serviceaccounts/token" })
		require.Len(t, tries, 5, "after 0, 2, 6, 14 and 30 seconds")
		s.refuse = nil
		s.settle(time.Minute)
		s.requireToken(s.tokenName(cashier("a")), "token-1")
	})
}

func TestRefusedRefreshIsTold(t *testing.T) {
	withCashier(t, func(s *tokenSite, token string) {
		s.settle(time.Minute)
		s.requireToken(s.tokenName(cashier("a")), "token-1")
		s.remote.PrependReactor("patch", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewForbidden(corev1.Resource("secrets"), "token", errors.New("no tokens here"))
		})
		s.settle(55 * time.Minute)
		s.requireEvent("FailedSATokensReflection", "cluster milan refuses", "no tokens here")
		s.requireQuiet()
	})
}

func TestTokensOfOthersAreNotTouched(t *testing.T) {
	for name, tc := range map[string]struct {
		in   func(*tokenSite) *fake.Clientset
		ns   string
		says string
	}{
		"at home":         {func(s *tokenSite) *fake.Clientset { return s.home }, "shop", "is not liqod's"},
		"in the provider": {func(s *tokenSite) *fake.Clientset { return s.remote }, "shop-rome", "is not this cluster's"},
	} {
		t.Run(name, func(t *testing.T) {
			inTokenSite(t, func(s *tokenSite) {
				// The fakes do not select by labels: the caches have it too.
				s.pods = &Pods{cfg: PodsConfig{OfNode: ofNode(nil, externalversions.NewSharedInformerFactory(s.homeLiqod, 0), s.events, nil, nil), API: s.api}}
				token := s.tokenName(cashier("a"))
				theirs := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: tc.ns, Name: token, UID: "theirs"}, Data: map[string][]byte{"a": []byte("b")}}
				hide(tc.in(s), token)
				s.add(tc.in(s).Tracker(), theirs)
				s.add(s.home.Tracker(), cashier("a"))
				s.run()
				s.settle(time.Minute)
				s.requireEvent("FailedSATokensReflection", tc.says)
				s.requireEvent(reasons.NotReflectedYet, "does not have Secret shop/token-")
				s.requireEvent(reasons.NotReflectedYet, "the pod starts although")
				s.requireQuiet()
				have := kubetest.Get(t, tc.in(s).CoreV1().Secrets(tc.ns), token)
				require.Equal(t, theirs, have)
				require.NoError(t, tc.in(s).CoreV1().Secrets(tc.ns).Delete(t.Context(), token, metav1.DeleteOptions{}))
				s.settle(engine.TakenRetry)
				there := kubetest.Get(t, s.remote.CoreV1().Secrets("shop-rome"), token)
				require.Contains(t, string(there.Data["token"]), "token-")
			})
		})
	}
}

// hide removes the Secret from lists while it has no labels, as a selector would.
func hide(c *fake.Clientset, name string) {
	c.PrependReactor("list", "secrets", func(action clienttesting.Action) (bool, runtime.Object, error) {
		obj, err := c.Tracker().List(action.GetResource(), action.(clienttesting.ListActionImpl).Kind, action.GetNamespace())
		if err != nil {
			return true, nil, err
		}
		list := obj.(*corev1.SecretList)
		list.Items = slices.DeleteFunc(list.Items, func(s corev1.Secret) bool { return s.Name == name && len(s.Labels) == 0 })
		return true, list, nil
	})
}

func TestTokensFollowAnnotationAndSetting(t *testing.T) {
	withCashier(t, func(s *tokenSite, token string) {
		s.requireToken(token, "token-1")
		pods := s.home.CoreV1().Pods("shop")
		annotate := func(value string) {
			pod := kubetest.Get(t, pods, "a")
			pod.Annotations = map[string]string{offloadingv1beta1.APIServerSupportAnnotation: value}
			kubetest.Update(t, pods, pod)
			s.settle(tokenLinger)
		}
		annotate("disabled")
		s.requireNone()
		annotate("enabled")
		s.requireToken(token, "token-2")
		s.stop()
		s.api.Enabled = false
		s.run()
		s.requireNone()
		s.restart()
		require.Empty(t, secretWrites(s.home))
		require.Empty(t, secretWrites(s.remote))
	})
}

// TestRunningPodsKeepTheirTokensWhenTheBindingChanges requires that running pods keep the
// tokens that they mount, with their binding. New pods get tokens with the new binding.
func TestRunningPodsKeepTheirTokensWhenTheBindingChanges(t *testing.T) {
	for name, tc := range map[string]struct {
		before bool // whether tokens are bound to pods
		first  *authenticationv1.BoundObjectReference
		second string
	}{
		"from Secrets to pods": {false, &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Secret", UID: "home-1"}, "Pod"},
		"from pods to Secrets": {true, &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: "a", UID: "a-uid"}, "Secret"},
	} {
		t.Run(name, func(t *testing.T) {
			inTokenSite(t, func(s *tokenSite) {
				s.api.PodBound = tc.before
				s.add(s.home.Tracker(), cashier("a"))
				s.run()
				old := s.tokenName(cashier("a"))
				if tc.first.Name == "" {
					tc.first.Name = old
				}
				s.api.PodBound = !tc.before
				s.restart()
				s.settle(2 * tokenLinger)
				s.requireTokens(map[string]string{old: "token-1"})
				require.Empty(t, secretWrites(s.home), "what is there already stays as it is")
				require.Empty(t, secretWrites(s.remote), "what is there already stays as it is")

				kubetest.Create(t, s.home.CoreV1().Pods("shop"), cashier("b"))
				s.settle(time.Second)
				fresh := s.tokenName(cashier("b"))
				require.NotEqual(t, old, fresh)
				s.requireTokens(map[string]string{old: "token-1", fresh: "token-2"})
				require.Equal(t, tc.second, s.requests[1].Spec.BoundObjectRef.Kind)

				s.settle(50 * time.Minute)
				require.Equal(t, 4, s.given, "both are refreshed")
				for _, r := range s.requests[2:] {
					if r.Spec.BoundObjectRef.Kind == tc.first.Kind {
						require.Equal(t, tc.first, r.Spec.BoundObjectRef)
					}
				}

				s.stop()
				require.NoError(t, s.remote.CoreV1().Secrets("shop-rome").Delete(t.Context(), old, metav1.DeleteOptions{}))
				s.run()
				require.ElementsMatch(t, []string{old, fresh}, secretNames(s, s.remote, "shop-rome"), "one that is lost is made anew")
				s.requireQuiet()

				require.NoError(t, s.home.CoreV1().Pods("shop").Delete(t.Context(), "a", metav1.DeleteOptions{}))
				s.settle(2 * tokenLinger)
				require.Equal(t, []string{fresh}, secretNames(s, s.remote, "shop-rome"))
				require.NotContains(t, secretNames(s, s.home, "shop"), old)
				require.NoError(t, s.home.CoreV1().Pods("shop").Delete(t.Context(), "b", metav1.DeleteOptions{}))
				s.settle(2 * tokenLinger)
				s.requireNone()
				require.Empty(t, s.pods.tokens.uses)
			})
		})
	}
}

// TestTokenOfTheOtherBindingThatTheCacheLacksStays requires that the live read before a
// revocation also finds pods with a token of the other binding.
func TestTokenOfTheOtherBindingThatTheCacheLacksStays(t *testing.T) {
	withCashier(t, func(s *tokenSite, old string) {
		s.api.PodBound = true
		s.restart()
		live := true
		s.home.PrependReactor("*", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
			if action.GetVerb() == "get" {
				return live, cashier("a"), nil
			}
			return live && action.GetVerb() == "list", &corev1.PodList{Items: []corev1.Pod{*cashier("a")}}, nil
		})
		require.NoError(t, s.home.CoreV1().Pods("shop").Delete(t.Context(), "a", metav1.DeleteOptions{}))
		s.settle(time.Minute)
		s.requireToken(old, "token-1")
		live = false
		s.pods.Resync()
		s.settle(time.Minute)
		s.requireNone()
	})
}

func TestPodsMadeWithoutTokensGetNone(t *testing.T) {
	inTokenSite(t, func(s *tokenSite) {
		pod := cashier("web", running)
		s.add(s.home.Tracker(), pod)
		s.there(pod, true, running)
		s.run()
		s.requireNone()
		require.Zero(t, s.given)
		// Made anew in the provider it asks for one.
		require.NoError(t, s.remote.CoreV1().Pods("shop-rome").Delete(t.Context(), "web", metav1.DeleteOptions{}))
		require.NoError(t, s.remoteLiqod.OffloadingV1beta1().ShadowPods("shop-rome").Delete(t.Context(), "web", metav1.DeleteOptions{}))
		s.settle(time.Second)
		s.requireToken(s.tokenName(pod), "token-1")
	})
}

func TestClosedGateGivesNoTokenAndRevokes(t *testing.T) {
	withCashier(t, func(s *tokenSite, token string) {
		s.gate = errors.New("another cluster answers there")
		require.NoError(t, s.home.CoreV1().Pods("shop").Delete(t.Context(), "a", metav1.DeleteOptions{}))
		s.settle(time.Minute)
		require.Empty(t, secretNames(s, s.home, "shop"), "revoked")
		require.Equal(t, []string{token}, secretNames(s, s.remote, "shop-rome"))
		kubetest.Create(t, s.home.CoreV1().Pods("shop"), cashier("a", uid("a-2")))
		s.settle(time.Minute)
		require.Equal(t, 1, s.given)
		require.NoError(t, s.home.CoreV1().Pods("shop").Delete(t.Context(), "a", metav1.DeleteOptions{}))
		s.settle(time.Minute)
		s.gate = nil
		s.pods.Resync()
		s.settle(time.Minute)
		s.requireNone()
	})
}

func TestTokensOfALeavingNodeGoAtOnce(t *testing.T) {
	withCashier(t, func(s *tokenSite, token string) {
		vns := s.homeLiqod.OffloadingV1beta1().VirtualNodes(tenant)
		vn := kubetest.Get(t, vns, "milan")
		vn.DeletionTimestamp, vn.Finalizers = new(metav1.Now()), []string{"test/keeps-it"}
		kubetest.Update(t, vns, vn)
		s.settle(0)
		require.NoError(t, s.home.CoreV1().Pods("shop").Delete(t.Context(), "a", metav1.DeleteOptions{}))
		s.settle(time.Second)
		s.requireNone()
	})
}

func TestTokenBoundToItsPod(t *testing.T) {
	inTokenSite(t, func(s *tokenSite) {
		s.api.PodBound = true
		s.add(s.home.Tracker(), cashier("a"), cashier("b"))
		s.run()
		require.Empty(t, secretNames(s, s.home, "shop"))
		require.Len(t, secretNames(s, s.remote, "shop-rome"), 2)
		require.Equal(t, 2, s.given)
		for _, r := range s.requests {
			require.Equal(t, "Pod", r.Spec.BoundObjectRef.Kind)
			require.Equal(t, r.Spec.BoundObjectRef.Name+"-uid", string(r.Spec.BoundObjectRef.UID))
		}
		require.NoError(t, s.home.CoreV1().Pods("shop").Delete(t.Context(), "a", metav1.DeleteOptions{}))
		s.settle(time.Minute)
		require.Equal(t, []string{s.tokenName(cashier("b"))}, secretNames(s, s.remote, "shop-rome"))
	})
}

func TestTokenWriteThatConflicts(t *testing.T) {
	inTokenSite(t, func(s *tokenSite) {
		conflicts := 2
		s.remote.PrependReactor("patch", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
			conflicts--
			return conflicts >= 0, nil, apierrors.NewConflict(corev1.Resource("secrets"), "x", errors.New("uid"))
		})
		s.add(s.home.Tracker(), cashier("a"))
		s.run()
		s.settle(50 * time.Minute)
		s.requireToken(s.tokenName(cashier("a")), "token-4")
	})
}

func TestTokenOfAProviderThatIsAway(t *testing.T) {
	inTokenSite(t, func(s *tokenSite) {
		away := true
		s.remote.PrependReactor("create", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
			return away, nil, context.DeadlineExceeded
		})
		s.add(s.home.Tracker(), cashier("a"))
		s.run()
		s.settle(10 * time.Second)
		require.LessOrEqual(t, s.given, 6)
		away = false
		s.settle(5 * time.Second)
		s.requireToken(s.tokenName(cashier("a")), fmt.Sprintf("token-%d", s.given))
		s.requireEvent(reasons.NotReflectedYet, "does not have Secret shop/token-")
		s.requireQuiet()
	})
}

// countedPods counts the pods that are found by an index.
type countedPods struct {
	coreinformers.PodInformer
	found *atomic.Int64
}

// Informer implements coreinformers.PodInformer.
func (c countedPods) Informer() cache.SharedIndexInformer {
	return countedInformer{c.PodInformer.Informer(), c.found}
}

type countedInformer struct {
	cache.SharedIndexInformer
	found *atomic.Int64
}

// GetIndexer implements cache.SharedIndexInformer.
func (c countedInformer) GetIndexer() cache.Indexer {
	return countedIndexer{c.SharedIndexInformer.GetIndexer(), c.found}
}

type countedIndexer struct {
	cache.Indexer
	found *atomic.Int64
}

// ByIndex implements cache.Indexer.
func (c countedIndexer) ByIndex(name, value string) ([]any, error) {
	found, err := c.Indexer.ByIndex(name, value)
	c.found.Add(int64(len(found)))
	return found, err
}

// TestADeletedPodDoesNotCostALookAtAllOthers: pods that share a token are deleted one after
// the other. The token stays to the end, and is withdrawn with its last pod.
func TestADeletedPodDoesNotCostALookAtAllOthers(t *testing.T) {
	const pods = 200
	inTokenSite(t, func(s *tokenSite) {
		var found atomic.Int64
		s.watched = func(inf coreinformers.PodInformer) coreinformers.PodInformer { return countedPods{inf, &found} }
		for i := range pods {
			s.add(s.home.Tracker(), cashier(fmt.Sprint("web-", i)))
		}
		s.run()
		name := s.tokenName(cashier("web-0"))
		s.requireToken(name, "token-1")
		found.Store(0)
		for i := range pods {
			s.requireToken(name, "token-1")
			require.NoError(t, s.home.CoreV1().Pods("shop").Delete(t.Context(), fmt.Sprint("web-", i), metav1.DeleteOptions{}))
			s.settle(0)
		}
		require.Less(t, found.Load(), int64(20*pods), "half of them for each would be %d", pods*pods/2)
		s.settle(time.Minute)
		require.Empty(t, secretNames(s, s.remote, "shop-rome"))
		require.Empty(t, s.pods.tokens.uses)
	})
}
