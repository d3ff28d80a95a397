package auth

import (
	"crypto/tls"
	"errors"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/kube/kubetest"
	"github.com/liqod/liqod/peering/link"
	"github.com/liqod/liqod/peering/trust"
)

// inReturn returns a request of rome that sends a token along.
func inReturn(t *testing.T, w *world, c client, text string) trust.EnrollRequest {
	t.Helper()
	req := c.request(t, w.token())
	req.Back = &trust.Invitation{Token: text}
	return req
}

func ofRome(t *testing.T, url, id string) string {
	t.Helper()
	token, err := trust.NewToken(url, id, fingerprint)
	require.NoError(t, err)
	return token.String()
}

// wantsRome makes milan want capacity of rome.
func wantsRome(w *world, change ...func(*corev1beta1.ForeignCluster)) {
	fc := &corev1beta1.ForeignCluster{ObjectMeta: metav1.ObjectMeta{Name: rome, UID: "1"},
		Spec: corev1beta1.ForeignClusterSpec{ClusterID: rome, OutgoingPeeringEnabled: corev1beta1.PeeringYes}}
	for _, f := range change {
		f(fc)
	}
	w.peers[rome] = fc
}

func TestBackIsKept(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	wantsRome(w)
	c, back := newClient(t, rome, romeUID), ofRome(t, "https://rome.example.com:8443", rome)
	req := inReturn(t, w, c, back)
	for range 3 {
		require.Equal(t, http.StatusOK, w.enroll(req).status)
		require.Equal(t, map[string]string{rome: back}, w.backs)
		require.Equal(t, &corev1beta1.SecretReference{Name: "peer-rome-back"}, w.peers[rome].Spec.TokenSecretRef)
		require.Equal(t, c.user(t), w.user(rome))
	}
	require.Empty(t, w.events)

	// Rome lost its identity and enrols with another key. Its new token replaces the old
	// one.
	noticed := w.peers[rome].Annotations[corev1beta1.TokenIDAnnotation]
	again := newClient(t, rome, romeUID)
	next := again.request(t, w.token(forCluster(rome)))
	next.Back = &trust.Invitation{Token: ofRome(t, "https://rome.example.com:8443", rome)}
	require.Equal(t, http.StatusOK, w.enroll(next).status)
	require.Equal(t, map[string]string{rome: next.Back.Token}, w.backs)
	require.NotEqual(t, noticed, w.peers[rome].Annotations[corev1beta1.TokenIDAnnotation], "the controller is woken up")
}

// TestBackIsLeft: a token is ignored if milan has no use for it, and never makes the
// enrolment fail.
func TestBackIsLeft(t *testing.T) {
	t.Parallel()
	good := func(t *testing.T) string { return ofRome(t, "https://rome.example.com:8443", rome) }
	for name, tc := range map[string]struct {
		prepare func(*world)
		sent    func(*testing.T) string
		ref     *corev1beta1.SecretReference
		told    bool
	}{
		"not wanted": {prepare: func(*world) {}, sent: good},
		"refused by people": {prepare: func(w *world) {
			wantsRome(w, func(fc *corev1beta1.ForeignCluster) { fc.Spec.OutgoingPeeringEnabled = corev1beta1.PeeringNo })
		}, sent: good},
		"people gave a token": {prepare: func(w *world) {
			wantsRome(w, func(fc *corev1beta1.ForeignCluster) {
				fc.Spec.TokenSecretRef = &corev1beta1.SecretReference{Name: "theirs"}
			})
		}, sent: good, ref: &corev1beta1.SecretReference{Name: "theirs"}},
		"of another cluster": {prepare: func(w *world) { wantsRome(w) }, told: true, sent: func(t *testing.T) string { return ofRome(t, "https://rome.example.com:8443", "paris") }},
		"of this cluster":    {prepare: func(w *world) { wantsRome(w) }, told: true, sent: func(t *testing.T) string { return ofRome(t, "https://milan.example.com:8443", milan) }},
		"metadata service":   {prepare: func(w *world) { wantsRome(w) }, told: true, sent: func(t *testing.T) string { return ofRome(t, "https://169.254.169.254", rome) }},
		"own address": {prepare: func(w *world) {
			wantsRome(w)
			w.own = prefixes([]string{"10.96.0.0/12"})
		}, told: true, sent: func(t *testing.T) string { return ofRome(t, "https://10.96.0.1:443", rome) }},
		"no token": {prepare: func(w *world) { wantsRome(w) }, told: true, sent: func(*testing.T) string { return "liqod1.x" }},
		"cannot be kept": {prepare: func(w *world) {
			wantsRome(w)
			w.before = func(what string) error {
				if what == "back" {
					return errors.New("no")
				}
				return nil
			}
		}, sent: good, told: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			tc.prepare(w)
			c := newClient(t, rome, romeUID)
			a := w.enroll(inReturn(t, w, c, tc.sent(t)))
			require.Equal(t, http.StatusOK, a.status, a.Refusal)
			require.Equal(t, c.user(t), w.user(rome))
			require.Empty(t, w.backs)
			require.Equal(t, tc.ref, w.peers[rome].Spec.TokenSecretRef)
			if tc.told {
				require.Equal(t, []string{"rome TokenNotTaken"}, w.events)
			} else {
				require.Empty(t, w.events)
			}
		})
	}
}

// TestSentTokenGoesWithItsRecord: a token that was sent to a peer is invalid once the
// peer's record is gone, even before the cluster has deleted the Secret.
func TestSentTokenGoesWithItsRecord(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		record func(*world)
		want   int
	}{
		"there":      {func(*world) {}, http.StatusOK},
		"gone":       {func(w *world) { delete(w.peers, rome) }, http.StatusUnauthorized},
		"made anew":  {func(w *world) { w.peers[rome].UID = "another" }, http.StatusUnauthorized},
		"in the end": {func(w *world) { w.peers[rome].DeletionTimestamp = &metav1.Time{Time: w.clock.Now()} }, http.StatusUnauthorized},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			wantsRome(w)
			token := w.token(forCluster(rome))
			w.secrets[trust.SecretName(token.ID)].OwnerReferences = []metav1.OwnerReference{link.OwnedBy(w.peers[rome])}
			tc.record(w)
			require.Equal(t, tc.want, w.enroll(newClient(t, rome, romeUID).request(t, token)).status)
		})
	}
}

// TestBackAfterACut: a request that is cut off before or after any write and then repeated
// has the same result as one that is not.
func TestBackAfterACut(t *testing.T) {
	t.Parallel()
	for _, at := range []string{"back", "peer", "kept"} {
		t.Run(at, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			wantsRome(w)
			back := ofRome(t, "https://rome.example.com:8443", rome)
			req := inReturn(t, w, newClient(t, rome, romeUID), back)
			peers, cut := 0, false
			w.before = func(what string) error {
				if what == "peer" {
					peers++
				}
				// The first write of the record is the enrolment, the second one refers to
				// the token.
				if !cut && (what == at || at == "kept" && what == "peer" && peers == 2) {
					cut = true
					return conflict("rome")
				}
				return nil
			}
			require.Equal(t, http.StatusOK, w.enroll(req).status)
			require.Equal(t, http.StatusOK, w.enroll(req).status)
			require.True(t, cut)
			require.Equal(t, map[string]string{rome: back}, w.backs)
			require.Equal(t, "peer-rome-back", w.peers[rome].Spec.TokenSecretRef.Name)
		})
	}
}

func TestKeepBack(t *testing.T) {
	t.Parallel()
	core := fake.NewClientset()
	k := clusterOn(core)
	fc := &corev1beta1.ForeignCluster{ObjectMeta: metav1.ObjectMeta{Name: "rome", UID: "fc"}, Spec: corev1beta1.ForeignClusterSpec{ClusterID: rome}}
	read := func() *corev1.Secret {
		return kubetest.Get(t, core.CoreV1().Secrets("liqod"), "peer-rome-back")
	}
	require.NoError(t, k.KeepBack(t.Context(), fc, "first"))
	secret := read()
	require.Equal(t, corev1beta1.BackTokenType, string(secret.Type))
	require.Equal(t, "first", string(secret.Data["token"]))
	require.Equal(t, "rome", secret.OwnerReferences[0].Name, "it goes with the record")
	require.NoError(t, k.KeepBack(t.Context(), fc, "first"))
	kubetest.RequireWrites(t, core, "create secrets liqod/peer-rome-back")
	require.NoError(t, k.KeepBack(t.Context(), fc, "second"))
	require.Equal(t, "second", string(read().Data["token"]))

	secret = read()
	secret.Data["token"] = []byte("by hand")
	kubetest.Update(t, core.CoreV1().Secrets("liqod"), secret)
	require.ErrorIs(t, k.KeepBack(t.Context(), fc, "third"), ErrWritten)
	require.Equal(t, "by hand", string(read().Data["token"]))
	require.NoError(t, core.CoreV1().Secrets("liqod").Delete(t.Context(), secret.Name, metav1.DeleteOptions{}))
	kubetest.Create(t, core.CoreV1().Secrets("liqod"), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "peer-rome-back"}, Data: map[string][]byte{"token": []byte("x")}})
	require.ErrorIs(t, k.KeepBack(t.Context(), fc, "third"), ErrWritten)
}

// TestBackWithARenewal: a token that comes with a renewal is judged as one that comes with an enrolment,
// and never makes the renewal fail.
func TestBackWithARenewal(t *testing.T) {
	t.Parallel()
	good := func(t *testing.T) string { return ofRome(t, "https://rome.example.com:8443", rome) }
	wants := func(fc *corev1beta1.ForeignCluster) { fc.Spec.OutgoingPeeringEnabled = corev1beta1.PeeringYes }
	for name, tc := range map[string]struct {
		change func(*corev1beta1.ForeignCluster)
		sent   func(*testing.T) string
		taken  bool
		told   bool
		status int
	}{
		"wanted":            {change: wants, sent: good, taken: true},
		"not wanted":        {change: func(*corev1beta1.ForeignCluster) {}, sent: good},
		"refused by people": {change: func(fc *corev1beta1.ForeignCluster) { fc.Spec.OutgoingPeeringEnabled = corev1beta1.PeeringNo }, sent: good},
		"people gave a token": {change: func(fc *corev1beta1.ForeignCluster) {
			wants(fc)
			fc.Spec.TokenSecretRef = &corev1beta1.SecretReference{Name: "theirs"}
		}, sent: good},
		"of another cluster": {change: wants, told: true, sent: func(t *testing.T) string { return ofRome(t, "https://rome.example.com:8443", "paris") }},
		"metadata service":   {change: wants, told: true, sent: func(t *testing.T) string { return ofRome(t, "https://169.254.169.254", rome) }},
		"revoked": {change: func(fc *corev1beta1.ForeignCluster) {
			wants(fc)
			fc.Spec.UserName = ""
		}, sent: good, status: http.StatusUnauthorized},
		"not let in": {change: func(fc *corev1beta1.ForeignCluster) {
			wants(fc)
			fc.Spec.IncomingPeeringEnabled = corev1beta1.PeeringNo
		}, sent: good, status: http.StatusForbidden},
	} {
		for _, kind := range []string{"certificate", "token"} {
			t.Run(name+" "+kind, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, func(c *Config) {
					if kind == "token" {
						c.Identity = IdentityToken
					}
				})
				c := newClient(t, rome, romeUID)
				g := w.enrolled(c)
				tc.change(w.peers[rome])
				ref := w.peers[rome].Spec.TokenSecretRef
				back := tc.sent(t)
				req, cert := trust.RenewRequest{ClusterID: rome}, (*tls.Certificate)(nil)
				if kind == "certificate" {
					req, cert = renewal(t, rome, g.User, newKey(t)), c.pair(t, g)
				}
				req.Back = &trust.Invitation{Token: back}
				status := tc.status
				if status == 0 {
					status = http.StatusOK
				}
				a := w.renew(req, cert, g.Token)
				require.Equal(t, status, a.status, a.Refusal)
				if tc.taken {
					require.Equal(t, map[string]string{rome: back}, w.backs)
					require.Equal(t, &corev1beta1.SecretReference{Name: "peer-rome-back"}, w.peers[rome].Spec.TokenSecretRef)
					require.NotEmpty(t, w.peers[rome].Annotations[corev1beta1.TokenIDAnnotation], "the controller is woken up")
				} else {
					require.Empty(t, w.backs)
					require.Equal(t, ref, w.peers[rome].Spec.TokenSecretRef)
				}
				require.Equal(t, tc.told, len(w.events) > 0)
			})
		}
	}
}
