package serve

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/liqod/liqod/kube/kubetest"
)

// within is a deadline for what comes at once, or at a timeout of the server.
const within = time.Minute

// started runs a server with the limits of a test, and returns its address.
func started(t *testing.T, change func(*Config)) string {
	t.Helper()
	cfg := Config{
		Address: "127.0.0.1:0", Connections: 100, PerAddress: 100, Headers: 1 << 10, Request: time.Hour, Answer: time.Hour,
		Count: func() {}, Log: zap.NewNop(), Handler: http.NotFoundHandler(),
	}
	change(&cfg)
	server, err := Listen(t.Context(), cfg)
	require.NoError(t, err)
	kubetest.Run(t, server.Run)
	return server.Addr().String()
}

// send opens a connection, and sends the text.
func send(t *testing.T, address, text string) net.Conn {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(within)))
	_, err = io.WriteString(conn, text)
	require.NoError(t, err)
	return conn
}

// requireCut requires that the server closes the connection.
func requireCut(t *testing.T, conn net.Conn) {
	t.Helper()
	_, err := io.Copy(io.Discard, conn)
	var timeout net.Error
	require.False(t, errors.As(err, &timeout) && timeout.Timeout(), "still open")
}

const get = "GET / HTTP/1.1\r\nHost: x\r\n\r\n"

func certificate(t *testing.T) *tls.Config {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	return &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
}

// TestClientsThatStall: each way to let the server wait has an end.
func TestClientsThatStall(t *testing.T) {
	t.Parallel()
	short := func(c *Config) {
		c.Request = 50 * time.Millisecond
		c.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) })
	}
	for name, text := range map[string]string{
		"nothing":       "",
		"half a header": "GET / HTTP/1.1\r\nHost: x\r\n",
		"half a body":   "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			requireCut(t, send(t, started(t, short), text))
		})
	}
	for name, text := range map[string]string{"no handshake": "", "half a handshake": "\x16\x03\x01\x02\x00\x01"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			requireCut(t, send(t, started(t, func(c *Config) {
				short(c)
				c.TLS = certificate(t)
			}), text))
		})
	}
	t.Run("an answer that nobody reads", func(t *testing.T) {
		t.Parallel()
		ended := make(chan error, 1)
		send(t, started(t, func(c *Config) {
			c.Answer = 50 * time.Millisecond
			c.Handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { ended <- endless(w) })
		}), get)
		require.Error(t, <-ended)
	})
}

// endless writes until the client or the server ends it.
func endless(w io.Writer) error {
	chunk := []byte(strings.Repeat("x", 64<<10))
	for {
		if _, err := w.Write(chunk); err != nil {
			return err
		}
	}
}

// TestUnbounded: a stream outlives the limits of requests and answers, and then the connection
// has them again.
func TestUnbounded(t *testing.T) {
	t.Parallel()
	const limit = 100 * time.Millisecond
	ended := make(chan error, 1)
	address := started(t, func(c *Config) {
		c.Request, c.Answer = limit, limit
		c.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/endless" {
				ended <- endless(w)
				return
			}
			if err := Unbounded(w); err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			select {
			case <-time.After(4 * limit):
				_, _ = io.WriteString(w, "late")
			case <-r.Context().Done():
			}
		})
	})
	conn := send(t, address, get)
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	body, err := io.ReadAll(answer.Body)
	require.NoError(t, errors.Join(err, answer.Body.Close()))
	require.Equal(t, "late", string(body))
	_, err = io.WriteString(conn, "GET /endless HTTP/1.1\r\nHost: x\r\n\r\n")
	require.NoError(t, err)
	require.Error(t, <-ended)
}

// TestLargeHeaders: the server reads a little more than the limit, and no further.
func TestLargeHeaders(t *testing.T) {
	t.Parallel()
	address := started(t, func(*Config) {})
	answer, err := http.ReadResponse(bufio.NewReader(send(t, address, "GET / HTTP/1.1\r\nHost: x\r\nX: "+strings.Repeat("a", 8<<10))), nil)
	if err == nil { // else the connection was closed with what it had not read
		require.NoError(t, answer.Body.Close())
		require.Equal(t, http.StatusRequestHeaderFieldsTooLarge, answer.StatusCode)
	}
}

// TestOneRequestPerConnection: a client that offers HTTP/2 gets HTTP/1.1.
func TestOneRequestPerConnection(t *testing.T) {
	t.Parallel()
	address := started(t, func(c *Config) { c.TLS = certificate(t) })
	conn, err := (&tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2", "http/1.1"}}}).DialContext(t.Context(), "tcp", address) //nolint:gosec // a test
	require.NoError(t, err)
	defer conn.Close()
	require.Equal(t, "http/1.1", conn.(*tls.Conn).ConnectionState().NegotiatedProtocol)
}

// TestEndOfAServer: requests have the grace, and are then cut; Run returns after them.
func TestEndOfAServer(t *testing.T) {
	t.Parallel()
	for name, grace := range map[string]time.Duration{"short requests end": within, "streams are cut": 0} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			begun, release := make(chan struct{}), make(chan struct{})
			var left atomic.Bool
			server, err := Listen(t.Context(), Config{
				Address: "127.0.0.1:0", Connections: 1, PerAddress: 1, Headers: 1 << 10, Request: within, Answer: within, Grace: grace,
				Count: func() {}, Log: zap.NewNop(), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					close(begun)
					select {
					case <-release:
						_, _ = io.WriteString(w, "done")
					case <-r.Context().Done():
					}
					left.Store(true)
				}),
			})
			require.NoError(t, err)
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- server.Run(ctx) }()
			conn := send(t, server.Addr().String(), get)
			<-begun
			cancel()
			if grace > 0 {
				close(release)
				answer, err := io.ReadAll(conn)
				require.NoError(t, err)
				require.Contains(t, string(answer), "done")
			}
			require.NoError(t, <-ended)
			require.True(t, left.Load())
		})
	}
}

// TestServerUnderIdleConnections: connections that nobody uses do not add up.
func TestServerUnderIdleConnections(t *testing.T) {
	t.Parallel()
	const most, flood = 10, 200
	var closed atomic.Int32
	address := started(t, func(c *Config) {
		c.Connections, c.PerAddress, c.Count = most, most, func() { closed.Add(1) }
	})
	var idle []net.Conn
	for range flood {
		idle = append(idle, send(t, address, ""))
	}
	for _, conn := range idle[:flood-most] {
		requireCut(t, conn)
	}
	require.EqualValues(t, flood-most, closed.Load())
	answer, err := http.ReadResponse(bufio.NewReader(send(t, address, get)), nil)
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	require.Equal(t, http.StatusNotFound, answer.StatusCode)
}
