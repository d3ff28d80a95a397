package join

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/kube/client"
	"github.com/liqod/liqod/kube/kubetest"
	"github.com/liqod/liqod/peering/link"
	"github.com/liqod/liqod/peering/trust"
)

func TestEnrolment(t *testing.T) {
	t.Parallel()
	for name, asToken := range map[string]bool{"a certificate": false, "a token": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.peer.set(func() { r.peer.asToken = asToken })
			r.enrolled()
			kubetest.RequireWrites(t, r.core, "create namespaces liqo-tenant-milan", "create secrets liqo-tenant-milan/milan", "update secrets liqo-tenant-milan/milan")
			ns := kubetest.Get(t, r.core.CoreV1().Namespaces(), "liqo-tenant-milan")
			require.Equal(t, corev1beta1.PodSecurityRestricted, ns.Labels[corev1beta1.PodSecurityLabel], "the admission policy accepts no other")
			require.Equal(t, 1, r.peer.count(trust.EnrollPath))
			require.Equal(t, []string{"10.1.0.0/16"}, r.peer.ranges)
			s := r.secret()
			require.Equal(t, map[string]string{corev1beta1.EnrolledLabel: "true", corev1beta1.IdentityTypeLabel: "ControlPlane", corev1beta1.RemoteClusterIDLabel: "milan"}, s.Labels)
			require.Empty(t, s.Data[nextKey])
			cfg, err := client.FromKubeconfig(s.Data[corev1beta1.KubeconfigSecretKey])
			require.NoError(t, err)
			require.Equal(t, "https://milan.example:6443", cfg.Host)
			require.Equal(t, asToken, cfg.BearerToken != "")
			fc := kubetest.Get(t, r.liqo.CoreV1beta1().ForeignClusters(), "milan")
			require.Equal(t, "v1", fc.Annotations[corev1beta1.PeerVersionAnnotation])

			// What people change is followed, and the finalizer that they remove returns.
			r.change(func(fc *corev1beta1.ForeignCluster) {
				fc.Finalizers, fc.Spec.APIServer.URL = nil, "https://proxy.example"
			})
			_ = r.sync()
			cfg, err = client.FromKubeconfig(r.secret().Data[corev1beta1.KubeconfigSecretKey])
			require.NoError(t, err)
			require.Equal(t, "https://proxy.example", cfg.Host)
			fc = kubetest.Get(t, r.liqo.CoreV1beta1().ForeignClusters(), "milan")
			require.Equal(t, []string{corev1beta1.ForeignClusterFinalizer}, fc.Finalizers)
			require.Zero(t, r.peer.count(trust.RenewPath))
			_ = kubetest.TakeWrites(r.core)

			// Neither this process nor the next one sends or writes anything more.
			r.restart()
			_ = r.sync()
			require.Contains(t, r.says(), "True Enrolled")
			kubetest.RequireWrites(t, r.core)
			require.Equal(t, 1, r.peer.count(trust.EnrollPath))
		})
	}
}

// TestInterruptedAnywhere fails each write of an enrolment, once before and once after it is applied, and the
// answer of the peer. A new process continues. The peer is sent one token in return, if it is offered an identity.
func TestInterruptedAnywhere(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		writes   int
		start    func(*testing.T, ...func(*corev1beta1.ForeignCluster)) *rig
		offering bool
	}{
		"finalizer, namespace, key, version of the peer, identity":        {5, newRig, false},
		"finalizer, namespace, key, token, identity, version of the peer": {6, newOffering, true},
	} {
		for n := range tc.writes + 1 {
			for _, after := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s: write %d, done %v", name, n, after), func(t *testing.T) {
					t.Parallel()
					r := tc.start(t)
					if n == tc.writes {
						r.peer.set(func() { r.peer.lose = 1 })
					} else {
						r.failWrite(n, after)
					}
					for range 4 {
						_ = r.sync()
					}
					r.pass(time.Minute)
					r.restart()
					r.enrolled()
					require.Len(t, r.peer.keys, 1, "one enrolment has one key, whatever happens")
					if tc.offering {
						r.matches()
						for _, sent := range r.peer.backs {
							require.Equal(t, r.peer.backs[0], sent)
						}
						all := kubetest.List(t, r.core.CoreV1().Secrets("liqod"), metav1.ListOptions{LabelSelector: corev1beta1.PeeringTokenLabel})
						require.Len(t, all.Items, 1)
						return
					}
					r.pass(lifetime * 6 / 10)
					_ = r.sync()
					require.Contains(t, r.says(), "True Enrolled", "and it can be renewed")
					require.Len(t, r.peer.keys, 2)
				})
			}
		}
	}
}

// failWrite makes write n fail, before or after it is applied.
func (r *rig) failWrite(n int, after bool) {
	count := 0
	react := func(tracker clienttesting.ObjectTracker) clienttesting.ReactionFunc {
		return func(a clienttesting.Action) (bool, runtime.Object, error) {
			switch a.GetVerb() {
			case "get", "list", "watch":
				return false, nil, nil
			}
			count++
			if count != n+1 {
				return false, nil, nil
			}
			if after {
				_, _, err := clienttesting.ObjectReaction(tracker)(a)
				require.NoError(r.t, err)
			}
			return true, nil, errors.New("killed")
		}
	}
	r.core.PrependReactor("*", "*", react(r.core.Tracker()))
	r.liqo.PrependReactor("*", "*", react(r.liqo.Tracker()))
}

func TestRenewal(t *testing.T) {
	t.Parallel()
	for name, asToken := range map[string]bool{"a certificate": false, "a token": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.peer.set(func() { r.peer.asToken = asToken })
			r.enrolled()
			user, told := r.says(), r.told
			for i := range 3 {
				before := r.secret()
				require.Error(t, r.sync(), "it is looked at again")
				require.Equal(t, before, r.secret(), "not before its time")
				r.pass(lifetime * 6 / 10)
				_ = r.sync()
				require.Equal(t, i+1, r.peer.count(trust.RenewPath))
				now := r.secret()
				require.NotEqual(t, before.Data[corev1beta1.KubeconfigSecretKey], now.Data[corev1beta1.KubeconfigSecretKey])
				if !asToken {
					require.NotEqual(t, before.Data[keyKey], now.Data[keyKey], "a fresh key")
				}
				require.Equal(t, user, r.says())
			}
			require.Equal(t, told, r.told, "nothing is written of it to the record")
			require.Equal(t, 1, r.peer.count(trust.EnrollPath))
		})
	}
}

func TestPeerAwayDuringRenewal(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.enrolled()
	r.peer.set(func() {
		r.peer.rawAnswer = func(w http.ResponseWriter) bool { w.WriteHeader(http.StatusBadGateway); return true }
	})
	before := r.secret()
	r.pass(lifetime * 6 / 10)
	_ = r.sync()
	require.Contains(t, r.says(), "True RenewalFails: the identity is still valid")
	asked := r.peer.count(trust.RenewPath)
	_ = r.sync()
	require.Equal(t, asked, r.peer.count(trust.RenewPath), "what wakes the loop does not make it ask sooner")
	require.Equal(t, before, r.secret())
	r.pass(quickLongest)
	_ = r.sync()
	require.Equal(t, asked+1, r.peer.count(trust.RenewPath))

	// The identity expires, and the token is used up. The message says what to do.
	r.peer.set(func() { r.peer.rawAnswer, r.peer.owner = nil, "another key" })
	r.pass(lifetime)
	_ = r.sync()
	require.Contains(t, r.says(), "False TokenRefused: cluster milan refuses the token: the token is not known, or used up; put the new token into key token of Secret liqod/peer-milan-token")
	r.peer.set(func() { r.peer.token, r.peer.owner = r.peer.newToken("milan"), "" })
	r.setToken(r.peer.token.String())
	_ = r.sync()
	require.Contains(t, r.says(), "True Enrolled", "a new token is taken up at once")
}

// TestAnotherToken: a new token causes a renewal at once.
func TestAnotherToken(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.enrolled()
	old := r.says()
	r.setToken(r.peer.newToken("milan").String())
	_ = r.sync()
	_ = r.sync()
	require.Equal(t, 1, r.peer.count(trust.RenewPath), "the identity is good: the token is not needed")
	require.Equal(t, old, r.says())
	require.Equal(t, 1, r.peer.count(trust.EnrollPath))
}

func TestWhatIsSaid(t *testing.T) {
	t.Parallel()
	refuse := func(reason string) func(*rig) {
		return func(r *rig) { r.peer.refuse = &trust.Refusal{Reason: reason, Message: "so\nit is"} }
	}
	for name, tc := range map[string]struct {
		prepare func(*rig)
		want    string
	}{
		"no token secret": {func(r *rig) {
			require.NoError(r.t, r.core.CoreV1().Secrets("liqod").Delete(context.Background(), "peer-milan-token", metav1.DeleteOptions{}))
		}, "False TokenMissing: Secret liqod/peer-milan-token is awaited"},
		"a broken token":    {func(r *rig) { r.setToken("liqod1.x") }, "False TokenInvalid: Secret liqod/peer-milan-token, key token: "},
		"another cluster's": {func(r *rig) { r.setToken(r.peer.newToken("genoa").String()) }, "it is a token of cluster genoa: a token of cluster milan is accepted"},
		"no reference and no token": {func(r *rig) {
			require.NoError(r.t, r.core.CoreV1().Secrets("liqod").Delete(context.Background(), "peer-milan-token", metav1.DeleteOptions{}))
			r.change(func(fc *corev1beta1.ForeignCluster) { fc.Spec.TokenSecretRef = nil })
		}, "into key token of Secret liqod/peer-milan-token, or name in spec.tokenSecretRef another"},
		"not wanted": {func(r *rig) {
			r.change(func(fc *corev1beta1.ForeignCluster) { fc.Spec.OutgoingPeeringEnabled = corev1beta1.PeeringNo })
		}, ""},
		"refused":      {refuse(trust.ReasonRefused), "False PeerRefuses: cluster milan refuses: so it is"},
		"conflict":     {refuse(trust.ReasonConflict), "False Conflict: cluster milan refuses: so it is"},
		"busy":         {refuse(trust.ReasonBusy), "False PeerUnreachable: cluster milan cannot answer now: so it is"},
		"unauthorized": {refuse(trust.ReasonUnauthorized), "False TokenRefused: cluster milan refuses the token: so it is; put the new token"},
		"away":         {func(r *rig) { r.peer.server.Close() }, "does not answer: connection refused"},
		"another authority": {func(r *rig) {
			token := r.peer.newToken("milan")
			token.CA = strings.Repeat("0", 64)
			r.setToken(token.String())
		}, "does not answer: the server is not the one of the token"},
		"spec.authCA of others": {func(r *rig) {
			r.change(func(fc *corev1beta1.ForeignCluster) { fc.Spec.AuthCA = string(r.peer.signer.CertPEM()) })
		}, "x509: certificate signed by unknown authority"},
		"the name counts with spec.authCA": {func(r *rig) {
			r.change(func(fc *corev1beta1.ForeignCluster) {
				fc.Spec.AuthCA, fc.Spec.AuthURL = string(r.peer.ca.CertPEM()), strings.Replace(r.peer.server.URL, "127.0.0.1", "localhost", 1)
			})
		}, "but wanted to match localhost"},
		"something else": {func(r *rig) {
			r.peer.rawAnswer = func(w http.ResponseWriter) bool { w.WriteHeader(http.StatusNotFound); return true }
		}, "it answers with status 404 Not Found, so it is not an authentication endpoint"},
		"a redirect": {func(r *rig) {
			r.peer.rawAnswer = func(w http.ResponseWriter) bool {
				w.Header().Set("Location", "https://elsewhere.example/")
				w.WriteHeader(http.StatusTemporaryRedirect)
				return true
			}
		}, "it is a redirect, which is not followed"},
		"a flood": {func(r *rig) {
			r.peer.rawAnswer = func(w http.ResponseWriter) bool { _, _ = w.Write(make([]byte, 1<<20)); return true }
		}, "an answer of more than 65536 bytes"},
		"a replaced cluster": {func(r *rig) {
			r.change(func(fc *corev1beta1.ForeignCluster) { fc.Status.ClusterUID = "another" })
		}, "False ClusterReplaced: another cluster answers: its kube-system namespace has UID uid-milan, recorded is another"},
		"a bad grant": {func(r *rig) { r.peer.tamper = func(g *trust.Grant) { g.ClusterUID = ownUID } },
			"False GrantInvalid: the credentials from cluster milan are not accepted: the endpoint is the one of this cluster itself"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			tc.prepare(r)
			for range 3 {
				_ = r.sync()
			}
			require.Contains(t, r.says(), tc.want)
			if tc.want == "" {
				require.Empty(t, r.says())
			}
			_ = kubetest.TakeWrites(r.core)
			for range 3 {
				_ = r.sync()
			}
			kubetest.RequireWrites(t, r.core)
			require.NotContains(t, r.says(), "True")
		})
	}
}

// TestTokenByItsName: a ForeignCluster that names no token, such as one that discovery has made, uses the Secret with the name
// that liqod peer gives. It does so only if the peer is wanted.
func TestTokenByItsName(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(fc *corev1beta1.ForeignCluster) { fc.Spec.TokenSecretRef = nil })
	r.change(func(fc *corev1beta1.ForeignCluster) { fc.Spec.OutgoingPeeringEnabled = corev1beta1.PeeringAuto })
	_ = r.sync()
	require.Nil(t, kubetest.Get(t, r.liqo.CoreV1beta1().ForeignClusters(), "milan").Spec.TokenSecretRef, "not wanted")
	r.change(func(fc *corev1beta1.ForeignCluster) { fc.Spec.OutgoingPeeringEnabled = corev1beta1.PeeringYes })
	_ = r.sync()
	require.Equal(t, "peer-milan-token", kubetest.Get(t, r.liqo.CoreV1beta1().ForeignClusters(), "milan").Spec.TokenSecretRef.Name)
	r.enrolled()
}

func TestCredentialsOfPeopleStay(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*corev1beta1.ForeignCluster){
		"milan": func(*corev1beta1.ForeignCluster) {},
		"any":   func(fc *corev1beta1.ForeignCluster) { fc.Spec.TokenSecretRef = nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, change)
			require.NoError(t, link.Tenant(t.Context(), r.core, "milan"))
			kubetest.Create(t, r.core.CoreV1().Secrets("liqo-tenant-milan"), &corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{Namespace: "liqo-tenant-milan", Name: name, Labels: map[string]string{corev1beta1.IdentityTypeLabel: "ControlPlane"}},
				Data:       map[string][]byte{corev1beta1.KubeconfigSecretKey: []byte("x")}})
			_ = kubetest.TakeWrites(r.core)
			_ = r.sync()
			_ = r.sync()
			require.Contains(t, r.says(), "True CredentialsGiven: the credentials in Secret liqo-tenant-milan/"+name+" are used")
			kubetest.RequireWrites(t, r.core)
			require.Zero(t, r.peer.count(trust.EnrollPath))
		})
	}
}

// TestTenantNamespaceDeleted: the token is used up, so the identity must outlast its Secret. One
// whose Secret alone is deleted is given up.
func TestTenantNamespaceDeleted(t *testing.T) {
	t.Parallel()
	for name, whole := range map[string]bool{"the namespace": true, "the Secret": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.enrolled()
			_ = r.sync()
			was := r.secret()
			gvr := corev1.SchemeGroupVersion.WithResource("secrets")
			require.NoError(t, r.core.Tracker().Delete(gvr, was.Namespace, was.Name))
			if !whole {
				_ = r.sync()
				require.Contains(t, r.says(), "False TokenRefused")
				require.Equal(t, 2, r.peer.count(trust.EnrollPath))
				return
			}
			namespaces := r.core.CoreV1().Namespaces()
			ns := kubetest.Get(t, namespaces, was.Namespace)
			now := metav1.Now()
			ns.DeletionTimestamp, ns.Finalizers = &now, []string{"kubernetes"}
			require.NoError(t, r.core.Tracker().Update(corev1.SchemeGroupVersion.WithResource("namespaces"), ns, ""))
			_ = r.sync()
			require.Contains(t, r.says(), "False TenantNamespaceAwaited: namespace liqo-tenant-milan is awaited")
			require.NoError(t, namespaces.Delete(t.Context(), was.Namespace, metav1.DeleteOptions{}))
			_ = r.sync()
			ns, err := namespaces.Get(t.Context(), was.Namespace, metav1.GetOptions{})
			require.NoError(t, err, "it is made again")
			ns.UID = "another"
			require.NoError(t, r.core.Tracker().Update(corev1.SchemeGroupVersion.WithResource("namespaces"), ns, ""))
			_ = r.sync()
			require.Contains(t, r.says(), "True Enrolled")
			require.Equal(t, 1, r.peer.count(trust.EnrollPath))
			again := r.secret()
			require.Equal(t, was.Data, again.Data)
			require.Equal(t, was.Labels, again.Labels)
			require.Equal(t, was.Annotations, again.Annotations)
		})
	}
}

// TestDiscoveredElsewhere: a URL from discovery does not override the URL in the token, or
// later the one announced by the peer. It is used only if that one does not answer.
func TestDiscoveredElsewhere(t *testing.T) {
	t.Parallel()
	const nowhere = "https://127.0.0.1:1"
	found := func(url string) func(*corev1beta1.ForeignCluster) {
		return func(fc *corev1beta1.ForeignCluster) {
			fc.Labels, fc.Spec.AuthURL = map[string]string{corev1beta1.DiscoveredLabel: corev1beta1.DiscoveredByMulticast}, url
		}
	}
	r := newRig(t, found(nowhere))
	r.enrolled()
	r.pass(lifetime * 6 / 10)
	_ = r.sync()
	require.Contains(t, r.says(), "True Enrolled")
	require.Equal(t, 1, r.peer.count(trust.RenewPath))

	r = newRig(t, func(fc *corev1beta1.ForeignCluster) {})
	r.change(found(r.peer.server.URL))
	r.peer.token.AuthURL = nowhere
	r.setToken(r.peer.token.String())
	r.enrolled()

	r = newRig(t, func(fc *corev1beta1.ForeignCluster) { fc.Spec.AuthURL = nowhere })
	for range 3 {
		_ = r.sync()
	}
	require.Contains(t, r.says(), "False PeerUnreachable", "what people wrote counts alone")
}

// TestEndedBeforeTheAnswer: the peer ended an enrolment whose answer was lost. Its key is
// refused from then on; with another token, a new key is used.
func TestEndedBeforeTheAnswer(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.peer.set(func() { r.peer.lose = 1 })
	for range 3 {
		_ = r.sync()
	}
	ended := r.peer.owner
	require.NotEmpty(t, ended)
	r.peer.set(func() {
		r.peer.token, r.peer.owner, r.peer.ended = r.peer.newToken("milan"), "", ended
	})
	r.setToken(r.peer.token.String())
	_ = r.sync()
	require.Contains(t, r.says(), "False TokenRefused: cluster milan refuses the token: the enrolment was ended")
	r.pass(2 * quickDelay)
	_ = r.sync()
	require.Contains(t, r.says(), "True Enrolled")
	require.NotEqual(t, ended, r.peer.owner)
}

// TestNotReplacedUnlessWanted: an identity that the peer revokes is not replaced with a
// valid token if it is no longer wanted, nor if the ForeignCluster is being deleted. The
// identity is still renewed until the end.
func TestNotReplacedUnlessWanted(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*corev1beta1.ForeignCluster){
		"not wanted":            func(fc *corev1beta1.ForeignCluster) { fc.Spec.OutgoingPeeringEnabled = corev1beta1.PeeringNo },
		"its Secret is deleted": func(fc *corev1beta1.ForeignCluster) { fc.Spec.OutgoingPeeringEnabled = corev1beta1.PeeringNo },
		"deleted":               func(fc *corev1beta1.ForeignCluster) { fc.DeletionTimestamp = &metav1.Time{Time: time.Now()} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.enrolled()
			r.change(end)
			r.pass(lifetime * 6 / 10)
			_ = r.sync()
			require.Equal(t, 1, r.peer.count(trust.RenewPath), "what drains needs it")
			if name == "its Secret is deleted" {
				require.NoError(t, r.core.CoreV1().Secrets("liqo-tenant-milan").Delete(t.Context(), "milan", metav1.DeleteOptions{}))
				_ = r.sync()
				require.Empty(t, r.says())
			}

			r.peer.set(func() { r.peer.users, r.peer.owner = map[string]bool{}, "" })
			for range 3 {
				r.pass(lifetime * 6 / 10)
				_ = r.sync()
			}
			require.Equal(t, 1, r.peer.count(trust.EnrollPath))
		})
	}
}

func TestStandbySaysWhatStands(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	fc := &corev1beta1.ForeignCluster{Spec: corev1beta1.ForeignClusterSpec{ClusterID: "milan"}}
	require.Nil(t, r.join.Condition(fc))
	fc.Status.Conditions = []metav1.Condition{{Type: corev1beta1.ConditionAuthenticated, Status: metav1.ConditionTrue, Reason: corev1beta1.ReasonEnrolled}}
	require.Equal(t, corev1beta1.ReasonEnrolled, r.join.Condition(fc).Reason)
	require.NoError(t, r.liqo.CoreV1beta1().ForeignClusters().Delete(t.Context(), "milan", metav1.DeleteOptions{}))
	require.NoError(t, r.sync())
	require.Zero(t, r.told)
}

// An answer names the URLs that were tried, and the token that it is about.
func TestAnswersNameURLAndToken(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	token := r.peer.newToken("milan")
	r.setToken(token.String())
	r.peer.server.Close()
	r.change(func(fc *corev1beta1.ForeignCluster) {
		fc.Spec.AuthURL, fc.Labels = "https://127.0.0.1:1", map[string]string{corev1beta1.DiscoveredLabel: "WAN"}
	})
	for range 3 {
		_ = r.sync()
	}
	require.Equal(t, "False PeerUnreachable: the authentication endpoint of cluster milan at "+token.AuthURL+
		" and at https://127.0.0.1:1 does not answer: connection refused (token "+token.ID+")", r.says())
}

// A ForeignCluster that was created again does not get the condition of the earlier one.
func TestConditionOfAnEarlierForeignCluster(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.setToken("liqod1.x")
	for range 3 {
		_ = r.sync()
	}
	require.Contains(t, r.says(), "False TokenInvalid: ")
	r.change(func(fc *corev1beta1.ForeignCluster) { fc.UID = "again" })
	require.Empty(t, r.says())
	_ = r.sync()
	require.Contains(t, r.says(), "False TokenInvalid: ")
}
