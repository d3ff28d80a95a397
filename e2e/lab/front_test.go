package lab

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// newTestFront makes a front of an API server that a handler plays, and returns the
// TLS configuration of a client that trusts both.
func newTestFront(t *testing.T, handler http.HandlerFunc) (*Front, *tls.Config) {
	t.Helper()
	front, config, _ := newTestFrontOf(t, handler)
	return front, config
}

// newTestFrontOf is newTestFront, and returns the cluster's authority too.
func newTestFrontOf(t *testing.T, handler http.HandlerFunc) (*Front, *tls.Config, *Authority) {
	t.Helper()
	authority, err := newAuthority("test")
	require.NoError(t, err)
	certPEM, key, err := authority.Issue(CertificateRequest{CommonName: "server", Hosts: []string{"127.0.0.1"}})
	require.NoError(t, err)
	certificate, err := tls.X509KeyPair(certPEM, key)
	require.NoError(t, err)
	server := httptest.NewUnstartedServer(handler)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}, ClientAuth: tls.RequestClientCert}
	server.EnableHTTP2 = true
	server.StartTLS()
	ports := newPorts(t.TempDir())
	c := &Cluster{Name: "test", CA: authority.certPEM, APIServer: server.URL, authority: authority, lab: &Lab{ports: ports}, Options: ClusterOptions{ProxyAddress: "127.0.0.1"}}
	front, err := newFront(c)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, front.close())
		server.Close()
		ports.close()
	})
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority.certPEM)
	return front, &tls.Config{RootCAs: roots}, authority
}

func TestLabFrontForwardsTokensOverHTTP2(t *testing.T) {
	front, config := newTestFront(t, func(w http.ResponseWriter, request *http.Request) {
		_, _ = io.WriteString(w, request.Proto+" "+request.Header.Get("Authorization"))
	})
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, front.URL+"/api", nil)
	require.NoError(t, err)
	request.Header.Set("Authorization", "Bearer abc")
	response, err := client.Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	require.Equal(t, "HTTP/2.0", response.Proto)
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.Equal(t, "HTTP/2.0 Bearer abc", string(body))
	all, failed := front.Requests()
	require.EqualValues(t, 1, all)
	require.Zero(t, failed)
}

// identity issues a certificate of a client.
func identity(t *testing.T, from *Authority, user string, groups ...string) tls.Certificate {
	t.Helper()
	certPEM, key, err := from.Issue(CertificateRequest{CommonName: user, Organizations: groups})
	require.NoError(t, err)
	certificate, err := tls.X509KeyPair(certPEM, key)
	require.NoError(t, err)
	return certificate
}

func TestLabFrontVouchesForCertificates(t *testing.T) {
	front, config, authority := newTestFrontOf(t, func(w http.ResponseWriter, request *http.Request) {
		by := ""
		if len(request.TLS.PeerCertificates) > 0 {
			by = request.TLS.PeerCertificates[0].Subject.CommonName
		}
		_, _ = fmt.Fprintf(w, "by %q: user %q groups %q extra %q", by, request.Header[remoteUser], request.Header[remoteGroup], request.Header["X-Remote-Extra-Scopes"])
	})
	users := make(chan string, 1)
	front.Intercept(func(r Request) Fate {
		users <- r.User
		return Fate{}
	})
	other, err := newAuthority("other")
	require.NoError(t, err)
	for name, c := range map[string]struct {
		own    []tls.Certificate
		want   string
		user   string
		refuse bool
	}{
		"none":                 {want: `by "": user [] groups [] extra []`},
		"of the authority":     {own: []tls.Certificate{identity(t, authority, "anna", "a", "b")}, user: "anna", want: `by "front-proxy-client": user ["anna"] groups ["a" "b"] extra []`},
		"of another authority": {own: []tls.Certificate{identity(t, other, "anna")}, refuse: true},
	} {
		t.Run(name, func(t *testing.T) {
			own := config.Clone()
			own.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
				if len(c.own) == 0 {
					return &tls.Certificate{}, nil
				}
				return &c.own[0], nil
			}
			client := &http.Client{Transport: &http.Transport{TLSClientConfig: own, ForceAttemptHTTP2: true}}
			request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, front.URL+"/api/v1/namespaces/a/pods", nil)
			require.NoError(t, err)
			request.Header.Set(remoteUser, "eve")
			request.Header.Set(remoteGroup, "system:masters")
			request.Header.Set("X-Remote-Extra-Scopes", "all")
			response, err := client.Do(request)
			if c.refuse {
				require.Error(t, err)
				return
			}
			require.NoError(t, err)
			defer response.Body.Close()
			body, err := io.ReadAll(response.Body)
			require.NoError(t, err)
			require.Equal(t, c.want, string(body))
			require.Equal(t, c.user, <-users)
		})
	}
}

// echoUpgrade switches protocols and sends every line back.
func echoUpgrade(w http.ResponseWriter, _ *http.Request) {
	conn, buffer, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n")
	for {
		line, err := buffer.ReadString('\n')
		if err != nil {
			return
		}
		_, _ = io.WriteString(conn, line)
	}
}

func TestLabFrontUpgradedConnection(t *testing.T) {
	front, config := newTestFront(t, echoUpgrade)
	config.ServerName = "127.0.0.1"
	conn, err := tls.Dial("tcp", front.URL[len("https://"):], config)
	require.NoError(t, err)
	defer conn.Close()
	_, err = io.WriteString(conn, "POST /exec HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\nContent-Length: 0\r\n\r\n")
	require.NoError(t, err)
	reader := bufio.NewReader(conn)
	response, err := http.ReadResponse(reader, nil)
	require.NoError(t, err)
	defer response.Body.Close()
	require.Equal(t, http.StatusSwitchingProtocols, response.StatusCode)

	send := func(line string) {
		_, err := io.WriteString(conn, line)
		require.NoError(t, err)
	}
	send("one\n")
	line, err := reader.ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "one\n", line)

	front.Drop()
	send("two\n")
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(200*time.Millisecond)))
	_, err = reader.Peek(1)
	var netErr net.Error
	require.ErrorAs(t, err, &netErr)
	require.True(t, netErr.Timeout())
	require.NoError(t, conn.SetReadDeadline(time.Time{}))
	front.Pass()
	line, err = reader.ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "two\n", line)

	front.Cut()
	_, err = reader.ReadByte()
	require.Error(t, err)
}
