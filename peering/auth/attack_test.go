package auth

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/kube/kubetest"
	"github.com/liqod/liqod/kube/serve"
	"github.com/liqod/liqod/peering/trust"
)

// TestEnrollRefusesCSRs: a request is for the user of this cluster and key. What else it may have, trust checks.
func TestEnrollRefusesCSRs(t *testing.T) {
	t.Parallel()
	c := newClient(t, rome, romeUID)
	user := c.user(t)
	request := func(key any, template *x509.CertificateRequest) string {
		der, err := x509.CreateCertificateRequest(rand.Reader, template, key)
		require.NoError(t, err)
		return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}))
	}
	subject := func(name pkix.Name) string { return request(c.key, &x509.CertificateRequest{Subject: name}) }
	for name, csr := range map[string]string{
		"nothing":            "",
		"masters":            subject(pkix.Name{CommonName: user, Organization: []string{"system:masters"}}),
		"an administrator":   subject(pkix.Name{CommonName: "system:admin", Organization: []string{corev1beta1.PeersGroup}}),
		"the controller":     subject(pkix.Name{CommonName: "system:serviceaccount:liqod:liqod-controller", Organization: []string{corev1beta1.PeersGroup}}),
		"another cluster":    subject(pkix.Name{CommonName: strings.Replace(user, rome, "paris", 1), Organization: []string{corev1beta1.PeersGroup}}),
		"another serial":     subject(pkix.Name{CommonName: "liqo.io:peer:rome:1", Organization: []string{corev1beta1.PeersGroup}}),
		"another key's name": request(newKey(t), &x509.CertificateRequest{Subject: pkix.Name{CommonName: user, Organization: []string{corev1beta1.PeersGroup}}}),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			token := w.token()
			req := c.request(t, token)
			req.CSR = csr
			require.Equal(t, trust.ReasonInvalid, w.enroll(req).Reason)
			require.Zero(t, w.signings)
			require.Equal(t, http.StatusOK, w.enroll(c.request(t, token)).status, "the token is still good")
		})
	}
}

func TestEndpointRefusesBodies(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for name, body := range map[string]string{
		"nothing":       "",
		"no JSON":       "hello",
		"a list":        "[]",
		"a number":      `{"token": 1}`,
		"null":          "null",
		"two":           "{}{}",
		"deep":          strings.Repeat("[", 60000),
		"too large":     `{"token":"` + strings.Repeat("a", trust.MaxBody) + `"}`,
		"not the token": `{"token":"x"}`,
	} {
		for _, path := range []string{trust.EnrollPath, trust.RenewPath, trust.LeavePath} {
			t.Run(name+path, func(t *testing.T) {
				t.Parallel()
				a := w.post(path, strings.NewReader(body), nil, "guess")
				require.NotEqual(t, http.StatusOK, a.status)
				require.Contains(t, []string{trust.ReasonInvalid, trust.ReasonUnauthorized}, a.Reason)
			})
		}
	}
	// `liqod check --token` knows an endpoint by its answer to a GET, which costs the endpoint nothing.
	for _, path := range []string{trust.EnrollPath, trust.RenewPath, trust.LeavePath, "/", "/v1/enroll/", "/metrics"} {
		for _, method := range []string{http.MethodGet, http.MethodPut, http.MethodPost} {
			there := strings.HasPrefix(path, "/v1/") && !strings.HasSuffix(path, "/")
			if there && method == http.MethodPost {
				continue
			}
			answer := httptest.NewRecorder()
			(&Endpoint{}).Handler().ServeHTTP(answer, httptest.NewRequest(method, path, nil))
			require.Equal(t, map[bool]int{true: http.StatusMethodNotAllowed, false: http.StatusNotFound}[there], answer.Code, method+path)
		}
	}
}

// TestEndpointLimitsRates: a client that guesses tokens gets few attempts, and does not
// keep other clients out.
func TestEndpointLimitsRates(t *testing.T) {
	t.Parallel()
	const perAddress = 20
	w := newWorld(t, func(c *Config) { c.PerAddress = perAddress })
	good := newClient(t, rome, romeUID).request(t, w.token())
	guess := newClient(t, "paris", "uid-of-paris").request(t, w.token())
	reasons := map[string]int{}
	for range 500 {
		token, err := trust.NewToken("https://milan:8443", milan, fingerprint)
		require.NoError(t, err)
		guess.Token = token.String()
		reasons[w.enroll(guess).Reason]++
	}
	require.Equal(t, map[string]int{trust.ReasonUnauthorized: perAddress, trust.ReasonBusy: 500 - perAddress}, reasons)
	w.clock.Step(4 * time.Second) // one more
	require.Equal(t, http.StatusOK, w.enroll(good).status)
	refused := w.enroll(good)
	require.Equal(t, trust.ReasonBusy, refused.Reason)
	require.Equal(t, "cluster milan accepts 20 requests a minute of one address or peer (its setting authentication.requestsPerAddress): try again later", refused.Message)
}

// TestEndpointRenewsUnderAttack: a flood of clients without identity does not delay a
// client with an identity.
func TestEndpointRenewsUnderAttack(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *Config) { c.PerMinute = 3 })
	c, g := w.rome()
	guess := newClient(t, "paris", "uid-of-paris").request(t, w.token(forCluster("turin")))
	for range 10 {
		require.NotEmpty(t, w.enroll(guess).Reason)
	}
	refused := w.enroll(guess)
	require.Equal(t, trust.ReasonBusy, refused.Reason)
	require.Equal(t, "cluster milan accepts 3 requests a minute of clients without a proven identity (its setting authentication.requestsPerMinute): try again later", refused.Message)
	require.Equal(t, trust.ReasonBusy, w.renew(trust.RenewRequest{ClusterID: rome}, nil, "guess").Reason)
	a := w.renew(renewal(t, rome, g.User, newKey(t)), c.pair(t, g), "")
	require.Equal(t, http.StatusOK, a.status, a.Refusal)
}

// TestEndpointLimitsSelfMade: a self-signed certificate proves nothing, and counts against
// the common limit.
func TestEndpointLimitsSelfMade(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *Config) { c.PerMinute = 3 })
	c, g := w.rome()
	forged := newCluster(t, w.now).forged(t, c.key, x509.ExtKeyUsageClientAuth, g.User, corev1beta1.PeersGroup)
	reasons := map[string]int{}
	for range 10 {
		reasons[w.renew(renewal(t, rome, g.User, newKey(t)), forged, "").Reason]++
	}
	require.Equal(t, map[string]int{trust.ReasonUnauthorized: 2, trust.ReasonBusy: 8}, reasons)
	a := w.renew(renewal(t, rome, g.User, newKey(t)), c.pair(t, g), "")
	require.Equal(t, http.StatusOK, a.status, a.Refusal)
}

// TestEndpointLimitsProofs: the limit of an address comes before its chains are verified, on one
// connection as on many. Chains that prove an identity do not count.
func TestEndpointLimitsProofs(t *testing.T) {
	t.Parallel()
	const perAddress = 5
	w := newWorld(t, func(c *Config) { c.PerAddress = perAddress })
	var peers []client
	var grants []trust.Grant
	for _, id := range []string{rome, "paris"} {
		c := newClient(t, id, "uid-of-"+id)
		peers, grants = append(peers, c), append(grants, w.enrolled(c))
	}
	w.clock.Step(time.Minute)
	for range perAddress - 1 {
		for i, c := range peers {
			a := w.renew(renewal(t, []string{rome, "paris"}[i], grants[i].User, newKey(t)), c.pair(t, grants[i]), "")
			require.Equal(t, http.StatusOK, a.status, a.Refusal)
		}
	}
	forged := newCluster(t, w.now).forged(t, peers[0].key, x509.ExtKeyUsageClientAuth, grants[0].User, corev1beta1.PeersGroup)
	before := w.proofs.Load()
	for range 10 * perAddress {
		require.NotEqual(t, http.StatusOK, w.renew(renewal(t, rome, grants[0].User, newKey(t)), forged, "").status)
	}
	require.LessOrEqual(t, w.proofs.Load()-before, int32(2*perAddress), "once for the address, and once for each request within its limit")
}

// TestEndpointLimitsLines: a client that sends requests without end does not fill the log.
func TestEndpointLimitsLines(t *testing.T) {
	t.Parallel()
	core, lines := observer.New(zap.InfoLevel)
	w := newWorld(t, func(c *Config) { c.PerMinute, c.PerAddress, c.Log = 30, 20, zap.New(core) })
	guess := newClient(t, rome, romeUID).request(t, w.token(forCluster("turin")))
	for range 200 {
		require.NotEmpty(t, w.enroll(guess).Reason)
	}
	require.NotZero(t, lines.Len())
	require.LessOrEqual(t, lines.Len(), 30)
}

func TestLimitOfAnAddress(t *testing.T) {
	t.Parallel()
	l := newLimits(10, 2)
	now := time.Now()
	first := netip.MustParseAddr("192.0.2.1")
	require.True(t, l.client("", first, now))
	require.True(t, l.client("", netip.MustParseAddr("::ffff:192.0.2.1"), now))
	require.False(t, l.client("", first, now))
	require.True(t, l.client("", first, now.Add(time.Minute)))

	one, two, far := netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("2001:db8::ffff:2"), netip.MustParseAddr("2001:db8:0:1::1")
	require.True(t, l.client("", one, now))
	require.True(t, l.client("", two, now))
	require.False(t, l.client("", one, now), "one /64 is one party")
	require.True(t, l.client("", far, now))
}

// TestServeCutsOffTheSlow: the real server disconnects slow clients.
func TestServeCutsOffTheSlow(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("waits for timeouts: not with -short")
	}
	_, address, ca := serveWorld(t)
	const begin = "POST " + trust.EnrollPath + " HTTP/1.1\r\nHost: milan\r\n"
	for name, tc := range map[string]struct {
		plain bool // no handshake
		send  string
	}{
		"no handshake":  {plain: true},
		"no request":    {},
		"half a header": {send: begin},
		"half a body":   {send: begin + "Content-Length: 1000\r\n\r\n{"},
		"large headers": {send: begin + "X: " + strings.Repeat("a", 4*mostHeaders) + "\r\n\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dial := (&tls.Dialer{Config: trust.PinnedTLS(ca)}).DialContext
			if tc.plain {
				dial = (&net.Dialer{}).DialContext
			}
			conn, err := dial(t.Context(), "tcp", address)
			require.NoError(t, err)
			defer conn.Close()
			_, err = io.WriteString(conn, tc.send)
			if name == "large headers" {
				if resp, err := http.ReadResponse(bufio.NewReader(conn), nil); err == nil { // otherwise the client was disconnected earlier
					require.NoError(t, resp.Body.Close())
					require.Equal(t, http.StatusRequestHeaderFieldsTooLarge, resp.StatusCode)
				}
				return
			}
			require.NoError(t, err)
			require.NoError(t, conn.SetReadDeadline(time.Now().Add(4*readTimeout)))
			_, err = io.ReadAll(conn) // until the server disconnects
			require.NoError(t, ignoreReset(err))
		})
	}
}

func ignoreReset(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	return nil // disconnected in either way
}

// serveWorld runs the real server on the cluster of a world.
func serveWorld(t *testing.T, change ...func(*Config)) (w *world, address, ca string) {
	t.Helper()
	now := time.Now()
	data, _, err := serve.EnsureCertificates(nil, []string{"milan"}, now)
	require.NoError(t, err)
	var source serve.Certificate
	require.NoError(t, source.Set(data))
	block, _ := pem.Decode(source.Bundle())
	authority, err := x509.ParseCertificate(block.Bytes)
	require.NoError(t, err)
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address = listener.Addr().String()
	require.NoError(t, listener.Close())

	w = newWorld(t, append(change, func(c *Config) { c.Closed = func() {} })...)
	e := New(w.cfg)
	kubetest.Run(t, func(ctx context.Context) error { return e.Serve(ctx, address, source.GetCertificate) })
	require.Eventually(t, func() bool {
		conn, err := (&tls.Dialer{Config: trust.PinnedTLS(trust.Fingerprint(authority))}).DialContext(t.Context(), "tcp", address)
		if err == nil {
			require.NoError(t, conn.Close())
		}
		return err == nil
	}, time.Minute, 10*time.Millisecond)
	return w, address, trust.Fingerprint(authority)
}

func FuzzEnroll(f *testing.F) {
	f.Add(`{"token":"liqod1.e30","clusterID":"rome","clusterUID":"1","csr":""}`)
	f.Add("{}")
	f.Fuzz(func(t *testing.T, body string) {
		var req trust.EnrollRequest
		if decode([]byte(body), &req) != nil {
			return
		}
		e, err := read(req, Identity{ID: milan, UID: milanUID})
		if err != nil {
			return
		}
		require.NotEqual(t, milan, e.ID)
		require.Equal(t, "liqo.io:peer:"+e.ID+":"+e.csr.Serial, e.csr.User)
	})
}

// TestEndpointRenewsBehindASharedAddress: strangers that use up the limit of an address do
// not keep a peer with a certificate out, which comes from the same address.
func TestEndpointRenewsBehindASharedAddress(t *testing.T) {
	t.Parallel()
	const perAddress = 5
	w := newWorld(t, func(c *Config) { c.PerAddress = perAddress })
	c, g := w.rome()
	guess := newClient(t, "paris", "uid-of-paris").request(t, w.token(forCluster("turin")))
	for range 3 * perAddress {
		require.NotEmpty(t, w.enroll(guess).Reason)
	}
	require.Equal(t, trust.ReasonBusy, w.enroll(guess).Reason)
	for range perAddress {
		a := w.renew(renewal(t, rome, g.User, newKey(t)), c.pair(t, g), "")
		require.Equal(t, http.StatusOK, a.status, a.Refusal)
	}
	require.Equal(t, trust.ReasonBusy, w.renew(renewal(t, rome, g.User, newKey(t)), c.pair(t, g), "").Reason, "a peer has a limit, too")
}

// TestEndpointRenewsWhileAllPlacesAreTaken: requests without a certificate that wait for a
// slow API server leave the places of peers free.
func TestEndpointRenewsWhileAllPlacesAreTaken(t *testing.T) {
	t.Parallel()
	w := newWorld(t, func(c *Config) { c.Identity = IdentityCertificate })
	c, g := w.rome()
	hold, held := make(chan struct{}), make(chan struct{}, atOnce)
	w.before = func(what string) error {
		if what == "tenant" {
			held <- struct{}{}
			<-hold
		}
		return nil
	}
	var flood sync.WaitGroup
	for range atOnce {
		req := newClient(t, "paris", "uid-of-paris").request(t, w.token())
		flood.Go(func() { w.enroll(req) })
	}
	for range atOnce {
		<-held
	}
	require.Equal(t, trust.ReasonBusy, w.enroll(newClient(t, "turin", "uid-of-turin").request(t, w.token())).Reason)
	a := w.renew(renewal(t, rome, g.User, newKey(t)), c.pair(t, g), "")
	close(hold)
	flood.Wait()
	require.Equal(t, http.StatusOK, a.status, a.Refusal)
}

// TestServeRenewsUnderIdleConnections: connections without a request take no place from a
// renewal, and their number is bounded.
func TestServeRenewsUnderIdleConnections(t *testing.T) {
	t.Parallel()
	const most, flood = 24, 200
	w, address, ca := serveWorld(t, func(c *Config) { c.Connections, c.ConnectionsPerAddress = most, most })
	c, g := w.rome() // through the server of the world
	var idle []net.Conn
	for range flood {
		conn, err := (&tls.Dialer{Config: trust.PinnedTLS(ca)}).DialContext(t.Context(), "tcp", address)
		require.NoError(t, err)
		idle = append(idle, conn)
	}
	config := trust.PinnedTLS(ca)
	config.Certificates = []tls.Certificate{*c.pair(t, g)}
	peer := &http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+address+trust.RenewPath, encode(t, renewal(t, rome, g.User, newKey(t))))
	require.NoError(t, err)
	resp, err := peer.Do(req)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, http.StatusOK, resp.StatusCode)

	for _, conn := range idle[:flood-most] { // the oldest
		require.NoError(t, conn.SetReadDeadline(time.Now().Add(time.Minute)))
		_, err := io.ReadAll(conn)
		require.NoError(t, ignoreReset(err), "still open")
		require.NoError(t, ignoreReset(conn.Close()))
	}
	for _, conn := range idle[flood-most:] {
		_ = conn.Close()
	}
}
