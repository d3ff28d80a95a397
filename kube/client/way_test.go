package client

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"k8s.io/client-go/rest"
)

// credentials returns a new client certificate for a user, and its key. It is valid for an hour, or for the given times.
func credentials(t *testing.T, user string, serial int64, valid ...time.Time) (certPEM, keyPEM []byte) {
	t.Helper()
	valid = append(valid, time.Now().Add(-time.Hour), time.Now().Add(time.Hour))
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: user}, NotBefore: valid[0], NotAfter: valid[1]}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	encoded, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded})
}

func jwt(subject, rest string) string {
	return "e30." + base64.RawURLEncoding.EncodeToString([]byte(`{"sub":"`+subject+`","x":"`+rest+`"}`)) + ".c2ln"
}

// whoami answers with the common name and serial number of the client certificate, or
// with the Authorization header. A watch stays open until the client closes it.
func whoami(w http.ResponseWriter, r *http.Request) {
	who := r.Header.Get("Authorization")
	if len(r.TLS.PeerCertificates) > 0 {
		who = fmt.Sprintf("%s %s", r.TLS.PeerCertificates[0].Subject.CommonName, r.TLS.PeerCertificates[0].SerialNumber)
	}
	for {
		_, _ = fmt.Fprintln(w, who)
		w.(http.Flusher).Flush()
		if r.URL.Query().Get("watch") == "" {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func startWhoami(t *testing.T) *httptest.Server {
	t.Helper()
	server := httptest.NewUnstartedServer(http.HandlerFunc(whoami))
	server.EnableHTTP2 = true
	server.TLS = &tls.Config{ClientAuth: tls.RequestClientCert, MinVersion: tls.VersionTLS12}
	server.StartTLS()
	t.Cleanup(server.Close)
	return server
}

func configFor(server *httptest.Server) *rest.Config {
	return &rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{
		CAData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})}}
}

func get(t *testing.T, c *http.Client, url string) *bufio.Scanner {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	require.NoError(t, err)
	resp, err := c.Do(req)
	require.NoError(t, err)
	t.Cleanup(func() { _ = resp.Body.Close() })
	lines := bufio.NewScanner(resp.Body)
	require.True(t, lines.Scan())
	return lines
}

// TestWayRenews renews the credentials of a Way. A running watch must continue, and new
// requests must carry the new credentials.
func TestWayRenews(t *testing.T) {
	for name, set := range map[string]func(*testing.T, *rest.Config, int64) string{
		"a certificate": func(t *testing.T, c *rest.Config, n int64) string {
			c.CertData, c.KeyData = credentials(t, "peer", n)
			return fmt.Sprint("peer ", n)
		},
		"a token": func(_ *testing.T, c *rest.Config, n int64) string {
			c.BearerToken = jwt("peer", fmt.Sprint(n))
			return "Bearer " + c.BearerToken
		},
	} {
		t.Run(name, func(t *testing.T) {
			server := startWhoami(t)
			first := configFor(server)
			old := set(t, first, 1)
			way := NewWay(first)
			hardened := Harden(way.Config(), Settings{UserAgent: "test", Log: zap.NewNop()})
			client, err := rest.HTTPClientFor(hardened)
			require.NoError(t, err)
			watch := get(t, client, server.URL+watchPath)
			require.Equal(t, old, watch.Text())
			require.Equal(t, old, get(t, client, server.URL+getPath).Text())

			second := configFor(server)
			renewed := set(t, second, 2)
			require.True(t, way.Renew(second))
			require.Equal(t, renewed, get(t, client, server.URL+getPath).Text())
			for range 10 {
				require.True(t, watch.Scan(), "the watch goes on: %v", watch.Err())
				require.Equal(t, old, watch.Text())
			}
			require.Equal(t, renewed, get(t, client, server.URL+watchPath).Text())
			client.CloseIdleConnections()
		})
	}
}

func TestWayRefusesOthers(t *testing.T) {
	base := func(user string) *rest.Config {
		c := &rest.Config{Host: "https://milan"}
		c.CertData, c.KeyData = credentials(t, user, 1)
		return c
	}
	for name, change := range map[string]func(*rest.Config){
		"another user":   func(c *rest.Config) { c.CertData, c.KeyData = credentials(t, "other", 1) },
		"another server": func(c *rest.Config) { c.Host = "https://genoa" },
		"another CA":     func(c *rest.Config) { c.CAData = []byte("ca") },
		"a token":        func(c *rest.Config) { c.CertData, c.KeyData, c.BearerToken = nil, nil, jwt("peer", "") },
		"another key":    func(c *rest.Config) { _, c.KeyData = credentials(t, "peer", 1) },
		"a broken one":   func(c *rest.Config) { c.CertData = []byte("x") },
	} {
		t.Run(name, func(t *testing.T) {
			have := base("peer")
			next := rest.CopyConfig(have)
			change(next)
			way := NewWay(have)
			require.False(t, way.Renew(next))
			require.Same(t, have, way.current.Load())
		})
	}
	// Tokens that do not say whose they are.
	way := NewWay(&rest.Config{Host: "https://milan", BearerToken: "a"})
	require.False(t, way.Renew(&rest.Config{Host: "https://milan", BearerToken: "b"}))
	require.True(t, way.Renew(&rest.Config{Host: "https://milan", BearerToken: "a"}))
}

func TestWayHasNoOtherWayOut(t *testing.T) {
	server := startWhoami(t)
	cfg := configFor(server)
	out := NewWay(cfg).Config()
	out.WrapTransport = nil
	client, err := rest.HTTPClientFor(out)
	require.NoError(t, err)
	_, err = client.Get(server.URL)
	require.ErrorIs(t, err, errNoWay)
}
