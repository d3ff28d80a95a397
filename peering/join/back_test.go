package join

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/kube/kubetest"
	"github.com/liqod/liqod/kube/serve"
	"github.com/liqod/liqod/peering/trust"
)

func offering(fc *corev1beta1.ForeignCluster) {
	fc.Spec.IncomingPeeringEnabled = corev1beta1.PeeringYes
}

// newOffering returns a rig whose cluster rome offers an identity to milan and has an
// authentication endpoint.
func newOffering(t *testing.T, change ...func(*corev1beta1.ForeignCluster)) *rig {
	t.Helper()
	r := newRig(t, append([]func(*corev1beta1.ForeignCluster){offering}, change...)...)
	data, _, err := serve.EnsureCertificates(nil, []string{"rome"}, time.Now())
	require.NoError(t, err)
	kubetest.Create(t, r.core.CoreV1().Secrets("liqod"), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "liqod-auth-certs"}, Data: data})
	_ = kubetest.TakeWrites(r.core)
	return r
}

// sentSecret returns the Secret of the token for milan, or nil.
func (r *rig) sentSecret() *corev1.Secret {
	r.t.Helper()
	return kubetest.Find(r.t, r.core.CoreV1().Secrets("liqod"), "token-back-milan")
}

// matches requires that milan was sent exactly one token, and that it is the stored one.
func (r *rig) matches() trust.Record {
	r.t.Helper()
	require.NotEmpty(r.t, r.peer.backs)
	token, err := trust.ParseToken(r.peer.backs[len(r.peer.backs)-1])
	require.NoError(r.t, err)
	require.Equal(r.t, [2]string{"rome", "https://rome:8443"}, [2]string{token.ClusterID, token.AuthURL})
	secret := r.sentSecret()
	require.NotNil(r.t, secret)
	record, err := trust.ReadSecret(secret)
	require.NoError(r.t, err)
	require.True(r.t, trust.Matches(record.Hash, token.Secret))
	require.Equal(r.t, [2]any{1, "milan"}, [2]any{record.Uses, record.ClusterID})
	for _, value := range secret.Data {
		require.NotContains(r.t, string(value), token.Secret)
	}
	return record
}

func TestBackIsSent(t *testing.T) {
	t.Parallel()
	r := newOffering(t)
	r.enrolled()
	kubetest.RequireWrites(t, r.core, "create namespaces liqo-tenant-milan", "create secrets liqo-tenant-milan/milan",
		"create secrets liqod/token-back-milan", "update secrets liqo-tenant-milan/milan")
	require.Equal(t, r.clock.Now().Add(15*time.Minute).UTC(), r.matches().Expiration)
	require.Equal(t, "milan", r.sentSecret().OwnerReferences[0].Name)

	// The peer uses it. After its expiry, any process deletes it.
	r.change(func(fc *corev1beta1.ForeignCluster) { fc.Spec.UserName = "liqo.io:peer:milan:1" })
	r.restart()
	_ = r.sync()
	require.NotNil(t, r.sentSecret())
	for range 3 {
		require.NotNil(t, r.sentSecret())
		r.pass(5 * time.Minute)
		_ = r.sync()
	}
	require.Nil(t, r.sentSecret())
	_ = kubetest.TakeWrites(r.core)
	_ = r.sync()
	kubetest.RequireWrites(t, r.core)
}

func TestBackIsNotSent(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*corev1beta1.ForeignCluster){
		"not offered":       func(fc *corev1beta1.ForeignCluster) { fc.Spec.IncomingPeeringEnabled = corev1beta1.PeeringAuto },
		"it has one":        func(fc *corev1beta1.ForeignCluster) { fc.Spec.UserName = "liqo.io:peer:milan:1" },
		"it may not use us": func(fc *corev1beta1.ForeignCluster) { fc.Spec.IncomingPeeringEnabled = corev1beta1.PeeringNo },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newOffering(t, change)
			r.enrolled()
			require.Empty(t, r.peer.backs)
			require.Nil(t, r.sentSecret())
			require.Empty(t, r.said.Events)
		})
	}
}

// TestBackLivesAgain: a peer that was unreachable for long is sent a token that is valid
// when it comes back.
func TestBackLivesAgain(t *testing.T) {
	t.Parallel()
	r := newOffering(t)
	r.peer.set(func() { r.peer.refuse = &trust.Refusal{Reason: trust.ReasonBusy, Message: "later"} })
	for range 3 {
		_ = r.sync()
	}
	first := r.matches()
	r.pass(time.Hour)
	_ = r.sync()
	r.peer.set(func() { r.peer.refuse = nil })
	r.pass(time.Hour)
	_ = r.sync()
	require.Contains(t, r.says(), "True Enrolled")
	again := r.matches()
	require.Equal(t, first.Hash, again.Hash)
	require.Equal(t, r.clock.Now().Add(15*time.Minute).UTC(), again.Expiration)
	for _, sent := range r.peer.backs {
		require.Equal(t, r.peer.backs[0], sent)
	}
}

// TestBackOfAnotherKey: a used token stays until it expires. A new token causes a new enrolment if the peer
// has revoked the identity, and its key replaces the token sent in return by another one.
func TestBackOfAnotherKey(t *testing.T) {
	t.Parallel()
	r := newOffering(t)
	r.enrolled()
	before, old := r.matches(), r.says()
	used, err := trust.WithRedemptions(r.sentSecret(), []trust.Redemption{{ClusterID: "milan", Serial: "1"}})
	require.NoError(t, err)
	kubetest.Update(t, r.core.CoreV1().Secrets("liqod"), used)
	r.peer.set(func() { r.peer.users, r.peer.token, r.peer.owner = map[string]bool{}, r.peer.newToken("milan"), "" })
	r.setToken(r.peer.token.String())
	_ = r.sync()
	require.Contains(t, r.says(), "True Enrolled")
	require.NotEqual(t, old, r.says())
	after := r.matches()
	require.NotEqual(t, before.Hash, after.Hash)
	require.Empty(t, after.Redemptions)
}

// TestBackCannotBeMade: a token that cannot be created is reported, and does not prevent
// the enrolment.
func TestBackCannotBeMade(t *testing.T) {
	t.Parallel()
	for name, prepare := range map[string]func(*rig){
		"an address that is none": func(r *rig) { r.join.cfg.Back.URL = "http://rome" },
		"by hand": func(r *rig) {
			kubetest.Create(r.t, r.core.CoreV1().Secrets("liqod"), trust.NewSecret("liqod", trust.Record{ID: "back-milan", Hash: trust.Hash("x")}))
		},
		"no right": func(r *rig) {
			r.core.PrependReactor("create", "secrets", func(a clienttesting.Action) (bool, runtime.Object, error) {
				return a.GetNamespace() == "liqod", nil, apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "token-back-milan", nil)
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newOffering(t)
			prepare(r)
			before := r.sentSecret()
			r.enrolled()
			require.Empty(t, r.peer.backs)
			require.Contains(t, <-r.said.Events, "Warning TokenNotSent cluster milan is not told how to use this one in return: ")
			r.pass(time.Hour)
			_ = r.sync()
			require.Equal(t, before, r.sentSecret(), "what others made stays")
		})
	}
}

// TestBackIsSentLater: a peer that already serves this cluster is sent one token as soon as it is offered
// an identity here, with a renewal, also by a restarted process; and then with each renewal that is due
// while it has none.
func TestBackIsSentLater(t *testing.T) {
	t.Parallel()
	for name, asToken := range map[string]bool{"certificate": false, "token": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newOffering(t, func(fc *corev1beta1.ForeignCluster) { fc.Spec.IncomingPeeringEnabled = corev1beta1.PeeringAuto })
			r.peer.set(func() { r.peer.asToken = asToken })
			r.enrolled()
			r.change(func(fc *corev1beta1.ForeignCluster) { fc.Spec.ClusterName = "Milano" })
			_ = r.sync()
			require.Zero(t, r.peer.count(trust.RenewPath), "without an offer nothing is renewed early")

			r.change(offering)
			_ = r.sync()
			require.Contains(t, r.says(), "True Enrolled")
			first := r.matches()
			for range 3 {
				r.restart()
				_ = r.sync()
			}
			require.Equal(t, 1, r.peer.count(trust.RenewPath))
			require.Len(t, r.peer.backs, 1)

			r.pass(lifetime * 3 / 4)
			_ = r.sync()
			require.Equal(t, 2, r.peer.count(trust.RenewPath))
			require.NotEqual(t, first.Hash, r.matches().Hash)
			r.change(func(fc *corev1beta1.ForeignCluster) { fc.Spec.UserName = "liqo.io:peer:milan:1" })
			r.pass(lifetime * 3 / 4)
			_ = r.sync()
			require.Equal(t, 3, r.peer.count(trust.RenewPath))
			require.Len(t, r.peer.backs, 2, "it has an identity now")
			require.Equal(t, 1, r.peer.count(trust.EnrollPath))
		})
	}
}

// TestBackAwaitsTheCertificate: until the endpoint has its certificate, there is no token: an enrolment waits, and so
// does an early renewal. One that is due does not, for the token never costs the identity.
func TestBackAwaitsTheCertificate(t *testing.T) {
	t.Parallel()
	const missing = "secret liqod/liqod-auth-certs with the certificate of the authentication is missing"
	for name, enrolled := range map[string]bool{"an enrolment": false, "a renewal": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newOffering(t, func(fc *corev1beta1.ForeignCluster) { fc.Spec.IncomingPeeringEnabled = corev1beta1.PeeringAuto })
			if enrolled {
				r.enrolled()
			}
			secrets := r.core.CoreV1().Secrets("liqod")
			certificates := kubetest.Get(t, secrets, "liqod-auth-certs")
			require.NoError(t, secrets.Delete(t.Context(), "liqod-auth-certs", metav1.DeleteOptions{}))
			r.change(offering)
			for range 2 {
				_ = r.sync()
			}
			require.ErrorContains(t, r.sync(), missing)
			if enrolled {
				require.Zero(t, r.peer.count(trust.RenewPath))
				r.pass(lifetime * 3 / 4)
				_ = r.sync()
				require.Equal(t, 1, r.peer.count(trust.RenewPath))
				require.ErrorContains(t, r.sync(), missing, "it goes on waiting with the renewed identity")
				require.Equal(t, 1, r.peer.count(trust.RenewPath))
			} else {
				require.Zero(t, r.peer.count(trust.EnrollPath))
			}
			require.Empty(t, r.peer.backs)
			kubetest.Create(t, secrets, certificates)
			r.enrolled()
			r.matches()
		})
	}
}
