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
	c := newClient(t, rome, romeUID)
	g := w.enrolled(c)
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

func TestRenewRefuses(t *testing.T) {
	t.Parallel()
	type try struct {
		req  trust.RenewRequest
		cert *tls.Certificate
	}
	for name, tc := range map[string]struct {
		do     func(t *testing.T, w *world, c client, g trust.Grant) try
		reason string
	}{
		"no certificate": {func(t *testing.T, _ *world, c client, g trust.Grant) try {
			return try{renewal(t, rome, g.User, newKey(t)), nil}
		}, trust.ReasonUnauthorized},
		"a self-made one": {func(t *testing.T, w *world, c client, g trust.Grant) try {
			forged := newCluster(t, w.clock.Now)
			cert := forged.issue(t, &x509.Certificate{Subject: pkix.Name{CommonName: g.User, Organization: []string{corev1beta1.PeersGroup}}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, NotAfter: w.clock.Now().Add(time.Hour)}, c.key.Public())
			return try{renewal(t, rome, g.User, newKey(t)), &tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: c.key}}
		}, trust.ReasonUnauthorized},
		"a server's": {func(t *testing.T, w *world, c client, g trust.Grant) try {
			cert := w.issue(t, &x509.Certificate{Subject: pkix.Name{CommonName: g.User, Organization: []string{corev1beta1.PeersGroup}}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, NotAfter: w.clock.Now().Add(time.Hour)}, c.key.Public())
			return try{renewal(t, rome, g.User, newKey(t)), &tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: c.key}}
		}, trust.ReasonUnauthorized},
		"expired": {func(t *testing.T, w *world, c client, g trust.Grant) try {
			w.clock.Step(time.Hour + time.Minute)
			return try{renewal(t, rome, g.User, newKey(t)), c.pair(t, g)}
		}, trust.ReasonUnauthorized},
		"revoked": {func(t *testing.T, w *world, c client, g trust.Grant) try {
			w.peers[rome].Spec.UserName = ""
			return try{renewal(t, rome, g.User, newKey(t)), c.pair(t, g)}
		}, trust.ReasonUnauthorized},
		"forgotten": {func(t *testing.T, w *world, c client, g trust.Grant) try {
			delete(w.peers, rome)
			return try{renewal(t, rome, g.User, newKey(t)), c.pair(t, g)}
		}, trust.ReasonUnauthorized},
		"replaced": {func(t *testing.T, w *world, c client, g trust.Grant) try {
			w.enrolled(newClient(t, rome, romeUID), forCluster(rome))
			return try{renewal(t, rome, g.User, newKey(t)), c.pair(t, g)}
		}, trust.ReasonUnauthorized},
		"not wanted any more": {func(t *testing.T, w *world, c client, g trust.Grant) try {
			w.peers[rome].Spec.IncomingPeeringEnabled = corev1beta1.PeeringNo
			return try{renewal(t, rome, g.User, newKey(t)), c.pair(t, g)}
		}, trust.ReasonRefused},
		"as another cluster": {func(t *testing.T, w *world, c client, g trust.Grant) try {
			other := w.enrolled(newClient(t, "paris", "uid-of-paris"))
			return try{renewal(t, "paris", other.User, newKey(t)), c.pair(t, g)}
		}, trust.ReasonUnauthorized},
		"the name of another": {func(t *testing.T, w *world, c client, g trust.Grant) try {
			other := w.enrolled(newClient(t, "paris", "uid-of-paris"))
			return try{renewal(t, rome, other.User, newKey(t)), c.pair(t, g)}
		}, trust.ReasonInvalid},
		"an administrator's name": {func(t *testing.T, w *world, c client, g trust.Grant) try {
			return try{renewal(t, rome, "system:admin", newKey(t)), c.pair(t, g)}
		}, trust.ReasonInvalid},
		"an administrator": {func(t *testing.T, w *world, c client, g trust.Grant) try {
			cert := w.issue(t, &x509.Certificate{Subject: pkix.Name{CommonName: "system:admin"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, NotAfter: w.clock.Now().Add(time.Hour)}, c.key.Public())
			return try{renewal(t, rome, "system:admin", newKey(t)), &tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: c.key}}
		}, trust.ReasonUnauthorized},
		"a record with an administrator's name": {func(t *testing.T, w *world, c client, g trust.Grant) try {
			w.peers[rome].Spec.UserName = "system:admin"
			cert := w.issue(t, &x509.Certificate{Subject: pkix.Name{CommonName: "system:admin"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, NotAfter: w.clock.Now().Add(time.Hour)}, c.key.Public())
			return try{renewal(t, rome, "system:admin", newKey(t)), &tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: c.key}}
		}, trust.ReasonUnauthorized},
		"the same key": {func(t *testing.T, w *world, c client, g trust.Grant) try {
			return try{renewal(t, rome, g.User, c.key), c.pair(t, g)}
		}, trust.ReasonInvalid},
		"no request": {func(t *testing.T, w *world, c client, g trust.Grant) try {
			return try{trust.RenewRequest{ClusterID: rome}, c.pair(t, g)}
		}, trust.ReasonInvalid},
		"no cluster": {func(t *testing.T, w *world, c client, g trust.Grant) try {
			return try{renewal(t, "", g.User, newKey(t)), c.pair(t, g)}
		}, trust.ReasonInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			c := newClient(t, rome, romeUID)
			g := w.enrolled(c)
			attempt := tc.do(t, w, c, g)
			signings := w.signings
			a := w.renew(attempt.req, attempt.cert, "")
			require.Equal(t, tc.reason, a.Reason, a.Message)
			require.Equal(t, signings, w.signings)
		})
	}
}

func TestLeave(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := newClient(t, rome, romeUID)
	g := w.enrolled(c)
	cert := c.pair(t, g)
	leave := func(id string, cert *tls.Certificate) answer {
		return w.post(trust.LeavePath, encode(t, trust.LeaveRequest{ClusterID: id}), cert, "")
	}
	require.Equal(t, trust.ReasonUnauthorized, leave(rome, nil).Reason)
	other := newClient(t, "paris", "uid-of-paris")
	require.Equal(t, trust.ReasonUnauthorized, leave(rome, other.pair(t, w.enrolled(other))).Reason)
	require.Equal(t, g.User, w.user(rome))
	once := true
	w.before = func(what string) error {
		if what == "peer" && once {
			once = false
			return conflict(rome)
		}
		return nil
	}
	require.Equal(t, http.StatusOK, leave(rome, cert).status)
	require.Empty(t, w.user(rome))
	require.Equal(t, trust.ReasonUnauthorized, leave(rome, cert).Reason)
	w.enrolled(newClient(t, rome, romeUID))
}
