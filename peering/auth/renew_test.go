package auth

import (
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/peering/trust"
)

func renewal(t *testing.T, id, user string, key crypto.Signer) trust.RenewRequest {
	t.Helper()
	csr, err := trust.MakeCSR(key, user)
	require.NoError(t, err)
	return trust.RenewRequest{ClusterID: id, CSR: csr}
}

func (w *world) renew(req trust.RenewRequest, cert *tls.Certificate, bearer string) answer {
	w.t.Helper()
	return w.post(trust.RenewPath, encode(w.t, req), cert, bearer)
}

func TestRenewCertificate(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c, g := w.rome()
	user, cert := g.User, c.pair(t, g)
	for range 3 { // each time with a fresh key, authenticated by the latest certificate
		w.clock.Step(40 * time.Minute)
		c.key = newKey(t)
		a := w.renew(renewal(t, rome, user, c.key), cert, "")
		require.Equal(t, http.StatusOK, a.status, a.Refusal)
		require.Equal(t, user, a.User)
		require.WithinDuration(t, w.clock.Now().Add(time.Hour), a.NotAfter, time.Second)
		cert = c.pair(t, a.Grant)
	}
	require.Equal(t, user, w.user(rome), "the rights are bound to the same name")
}

func TestRenewToken(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *Config) { c.Identity = IdentityToken })
	g := w.enrolled(newClient(t, rome, romeUID))
	a := w.renew(trust.RenewRequest{ClusterID: rome}, nil, g.Token)
	require.Equal(t, http.StatusOK, a.status, a.Refusal)
	require.Equal(t, g.User, a.User)
	require.NotEmpty(t, a.Token)
	require.Equal(t, trust.ReasonInvalid, w.renew(renewal(t, rome, g.User, newKey(t)), nil, g.Token).Reason)
	require.Equal(t, trust.ReasonUnauthorized, w.renew(trust.RenewRequest{ClusterID: rome}, nil, "another").Reason)
	require.Equal(t, trust.ReasonUnauthorized, w.renew(trust.RenewRequest{ClusterID: rome}, nil, "").Reason)
	require.Equal(t, trust.ReasonUnauthorized, w.renew(trust.RenewRequest{ClusterID: "paris"}, nil, g.Token).Reason)
}

// forged returns a client certificate that the authority of c has signed, and that no request asked for.
func (c *cluster) forged(t *testing.T, key crypto.Signer, usage x509.ExtKeyUsage, name string, groups ...string) *tls.Certificate {
	t.Helper()
	cert := c.issue(t, &x509.Certificate{Subject: pkix.Name{CommonName: name, Organization: groups}, ExtKeyUsage: []x509.ExtKeyUsage{usage}, NotAfter: c.now().Add(time.Hour)}, key.Public())
	return &tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: key}
}

// attempt is a renewal that a test makes worse.
type attempt struct {
	*world
	c    client
	user string
	req  trust.RenewRequest
	cert *tls.Certificate
}

func (a *attempt) as(id, user string) { a.req = renewal(a.t, id, user, newKey(a.t)) }

// other enrols another cluster, and returns its user.
func (a *attempt) other() string {
	return a.enrolled(newClient(a.t, "paris", "uid-of-paris")).User
}

func (a *attempt) administrator() {
	a.as(rome, "system:admin")
	a.cert = a.forged(a.t, a.c.key, x509.ExtKeyUsageClientAuth, "system:admin")
}

func TestRenewRefuses(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		do     func(*attempt)
		reason string
	}{
		"no certificate": {func(a *attempt) { a.cert = nil }, trust.ReasonUnauthorized},
		"a self-made one": {func(a *attempt) {
			a.cert = newCluster(a.t, a.now).forged(a.t, a.c.key, x509.ExtKeyUsageClientAuth, a.user, corev1beta1.PeersGroup)
		}, trust.ReasonUnauthorized},
		"a server's": {func(a *attempt) {
			a.cert = a.forged(a.t, a.c.key, x509.ExtKeyUsageServerAuth, a.user, corev1beta1.PeersGroup)
		}, trust.ReasonUnauthorized},
		"expired":                 {func(a *attempt) { a.clock.Step(time.Hour + time.Minute) }, trust.ReasonUnauthorized},
		"revoked":                 {func(a *attempt) { a.peers[rome].Spec.UserName = "" }, trust.ReasonUnauthorized},
		"forgotten":               {func(a *attempt) { delete(a.peers, rome) }, trust.ReasonUnauthorized},
		"replaced":                {func(a *attempt) { a.enrolled(newClient(a.t, rome, romeUID), forCluster(rome)) }, trust.ReasonUnauthorized},
		"not wanted any more":     {func(a *attempt) { a.peers[rome].Spec.IncomingPeeringEnabled = corev1beta1.PeeringNo }, trust.ReasonRefused},
		"as another cluster":      {func(a *attempt) { a.as("paris", a.other()) }, trust.ReasonUnauthorized},
		"the name of another":     {func(a *attempt) { a.as(rome, a.other()) }, trust.ReasonInvalid},
		"an administrator's name": {func(a *attempt) { a.as(rome, "system:admin") }, trust.ReasonInvalid},
		"an administrator":        {(*attempt).administrator, trust.ReasonUnauthorized},
		"a record with an administrator's name": {func(a *attempt) {
			a.peers[rome].Spec.UserName = "system:admin"
			a.administrator()
		}, trust.ReasonUnauthorized},
		"the same key": {func(a *attempt) { a.req = renewal(a.t, rome, a.user, a.c.key) }, trust.ReasonInvalid},
		"no request":   {func(a *attempt) { a.req.CSR = "" }, trust.ReasonInvalid},
		"no cluster":   {func(a *attempt) { a.req.ClusterID = "" }, trust.ReasonInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			c, g := w.rome()
			tried := &attempt{world: w, c: c, user: g.User, req: renewal(t, rome, g.User, newKey(t)), cert: c.pair(t, g)}
			tc.do(tried)
			signings := w.signings
			a := w.renew(tried.req, tried.cert, "")
			require.Equal(t, tc.reason, a.Reason, a.Message)
			require.Equal(t, signings, w.signings)
		})
	}
}

func TestLeave(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c, g := w.rome()
	cert := c.pair(t, g)
	leave := func(id string, cert *tls.Certificate) answer {
		return w.post(trust.LeavePath, encode(t, trust.LeaveRequest{ClusterID: id}), cert, "")
	}
	require.Equal(t, trust.ReasonUnauthorized, leave(rome, nil).Reason)
	other := newClient(t, "paris", "uid-of-paris")
	require.Equal(t, trust.ReasonUnauthorized, leave(rome, other.pair(t, w.enrolled(other))).Reason)
	require.Equal(t, g.User, w.user(rome))
	w.at("peer", 1, func() error { return conflict(rome) })
	require.Equal(t, http.StatusOK, leave(rome, cert).status)
	require.Empty(t, w.user(rome))
	require.Equal(t, trust.ReasonUnauthorized, leave(rome, cert).Reason)
	w.enrolled(newClient(t, rome, romeUID))
}
