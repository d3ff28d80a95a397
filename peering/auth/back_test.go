package auth

import (
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
func wantsRome(w *world) {
	w.peers[rome] = &corev1beta1.ForeignCluster{ObjectMeta: metav1.ObjectMeta{Name: rome, UID: "1"},
		Spec: corev1beta1.ForeignClusterSpec{ClusterID: rome, OutgoingPeeringEnabled: corev1beta1.PeeringYes}}
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
// enrolment or the renewal fail that it comes with.
func TestBackIsLeft(t *testing.T) {
	t.Parallel()
	const url = "https://rome.example.com:8443"
	wanted := func(*world, *corev1beta1.ForeignCluster) {}
	for name, tc := range map[string]struct {
		change  func(*world, *corev1beta1.ForeignCluster)
		url, id string // of the token
		taken   bool
		told    bool
		refused int // the status of a renewal; enrolments are not tried
	}{
		"wanted": {change: wanted, url: url, id: rome, taken: true},
		"not wanted": {change: func(_ *world, fc *corev1beta1.ForeignCluster) {
			fc.Spec.OutgoingPeeringEnabled = corev1beta1.PeeringAuto
		}, url: url, id: rome},
		"refused by people": {change: func(_ *world, fc *corev1beta1.ForeignCluster) { fc.Spec.OutgoingPeeringEnabled = corev1beta1.PeeringNo }, url: url, id: rome},
		"people gave a token": {change: func(_ *world, fc *corev1beta1.ForeignCluster) {
			fc.Spec.TokenSecretRef = &corev1beta1.SecretReference{Name: "theirs"}
		}, url: url, id: rome},
		"of another cluster": {change: wanted, url: url, id: "paris", told: true},
		"of this cluster":    {change: wanted, url: "https://milan.example.com:8443", id: milan, told: true},
		"metadata service":   {change: wanted, url: "https://169.254.169.254", id: rome, told: true},
		"own address":        {change: func(w *world, _ *corev1beta1.ForeignCluster) { w.own = prefixes([]string{"10.96.0.0/12"}) }, url: "https://10.96.0.1:443", id: rome, told: true},
		"no token":           {change: wanted, told: true},
		"cannot be kept": {change: func(w *world, _ *corev1beta1.ForeignCluster) {
			w.at("back", 1, func() error { return errors.New("no") })
		}, url: url, id: rome, told: true},
		"revoked":    {change: func(_ *world, fc *corev1beta1.ForeignCluster) { fc.Spec.UserName = "" }, url: url, id: rome, refused: http.StatusUnauthorized},
		"not let in": {change: func(_ *world, fc *corev1beta1.ForeignCluster) { fc.Spec.IncomingPeeringEnabled = corev1beta1.PeeringNo }, url: url, id: rome, refused: http.StatusForbidden},
	} {
		for _, with := range []string{"enrolment", "certificate", "token"} {
			if with == "enrolment" && tc.refused > 0 {
				continue
			}
			t.Run(name+" "+with, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, func(c *Config) {
					if with == "token" {
						c.Identity = IdentityToken
					}
				})
				c, g, back := newClient(t, rome, romeUID), trust.Grant{}, "liqod1.x"
				if tc.url != "" {
					back = ofRome(t, tc.url, tc.id)
				}
				if with == "enrolment" {
					wantsRome(w)
				} else {
					g = w.enrolled(c)
				}
				w.peers[rome].Spec.OutgoingPeeringEnabled = corev1beta1.PeeringYes
				tc.change(w, w.peers[rome])
				ref := w.peers[rome].Spec.TokenSecretRef
				sent := &trust.Invitation{Token: back}
				var a answer
				switch with {
				case "enrolment":
					a = w.enroll(inReturn(t, w, c, back))
					require.Equal(t, c.user(t), w.user(rome))
				case "certificate":
					req := renewal(t, rome, g.User, newKey(t))
					req.Back = sent
					a = w.renew(req, c.pair(t, g), "")
				case "token":
					a = w.renew(trust.RenewRequest{ClusterID: rome, Back: sent}, nil, g.Token)
				}
				require.Equal(t, max(tc.refused, http.StatusOK), a.status, a.Refusal)
				if tc.taken {
					require.Equal(t, map[string]string{rome: back}, w.backs)
					require.Equal(t, &corev1beta1.SecretReference{Name: "peer-rome-back"}, w.peers[rome].Spec.TokenSecretRef)
					require.NotEmpty(t, w.peers[rome].Annotations[corev1beta1.TokenIDAnnotation], "the controller is woken up")
				} else {
					require.Empty(t, w.backs)
					require.Equal(t, ref, w.peers[rome].Spec.TokenSecretRef)
				}
				if tc.told {
					require.Equal(t, []string{"rome TokenNotTaken"}, w.events)
				} else {
					require.Empty(t, w.events)
				}
			})
		}
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
	for name, tc := range map[string]struct {
		at string
		n  int
	}{"back": {"back", 1}, "the enrolment": {"peer", 1}, "the reference to the token": {"peer", 2}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			wantsRome(w)
			back := ofRome(t, "https://rome.example.com:8443", rome)
			req := inReturn(t, w, newClient(t, rome, romeUID), back)
			cut := false
			w.at(tc.at, tc.n, func() error { cut = true; return conflict("rome") })
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
