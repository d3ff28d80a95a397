package roles

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
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
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/liqod/liqod/kube/serve"
	"github.com/liqod/liqod/roles/config"
	"github.com/liqod/liqod/shadow/namespace"
)

// TestWebhookCutsOffTheSlow: whoever reaches the webhook, as pods of peers may, cannot have it
// keep half a request for ever.
func TestWebhookCutsOffTheSlow(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("waits for a timeout: not with -short")
	}
	address := webhookAt(t, config.Webhook{}, func(string) {})
	conn := dialWebhook(t, address)
	_, err := io.WriteString(conn, "POST "+mutatePodPath+" HTTP/1.1\r\nHost: webhook\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{")
	require.NoError(t, err)
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(15*time.Second)))
	_, err = io.ReadAll(conn) // until the server ends it
	var timeout net.Error
	require.False(t, errors.As(err, &timeout) && timeout.Timeout(), "it waits for the rest")
}

// TestStalledBodies: clients that announce reviews of all the bytes that may be
// in work, and send one byte of each, do not hold up the review of an API server.
func TestStalledBodies(t *testing.T) {
	t.Parallel()
	address := webhookAt(t, config.Webhook{}, func(string) {})
	require.NoError(t, dialWebhook(t, address).Close())
	post := func(from string, size int, body string) net.Conn {
		inner := must(dialFrom(t.Context(), from, address))
		conn := tls.Client(inner, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // a test
		t.Cleanup(func() { _ = conn.Close() })
		_, err := fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: webhook\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", mutatePodPath, size, body)
		require.NoError(t, err)
		return conn
	}
	for i := range webhookBytes / webhookSourceBytes { // all bytes
		from := fmt.Sprintf("127.0.1.%d", 1+i)
		post(from, serve.LargestReview, "{")
		post(from, webhookSourceBytes-serve.LargestReview, "{")
	}
	review := `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"1","operation":"DELETE"}}`
	for range 3 {
		answer := must(http.ReadResponse(bufio.NewReader(post(bystander, len(review), review)), nil))
		body, err := io.ReadAll(answer.Body)
		require.NoError(t, errors.Join(err, answer.Body.Close()))
		require.Equal(t, http.StatusOK, answer.StatusCode, "%s", body)
	}
}

// TestWebhookBoundsItsConnections: idle connections of one address give way to a new one,
// which gets its answer.
func TestWebhookBoundsItsConnections(t *testing.T) {
	t.Parallel()
	var closed atomic.Int32
	address := webhookAt(t, config.Webhook{}, func(server string) {
		require.Equal(t, "webhook", server)
		closed.Add(1)
	})
	require.NoError(t, dialWebhook(t, address).Close())
	for range webhookAddressConnections + 10 {
		conn := must((&net.Dialer{}).DialContext(t.Context(), "tcp", address))
		t.Cleanup(func() { _ = conn.Close() })
	}
	require.Eventually(t, func() bool { return closed.Load() > 0 }, time.Minute, 10*time.Millisecond)
	conn := dialWebhook(t, address)
	require.NoError(t, conn.SetDeadline(time.Now().Add(time.Minute)))
	_, err := io.WriteString(conn, "POST "+mutatePodPath+" HTTP/1.1\r\nHost: webhook\r\nContent-Type: text/plain\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
	require.NoError(t, err)
	answer := must(io.ReadAll(conn))
	require.Contains(t, string(answer), "HTTP/1.1 415")
}

// TestWebhookChecksItsCaller: with the authorities of API servers, other clients get no
// answer.
func TestWebhookChecksItsCaller(t *testing.T) {
	t.Parallel()
	server, stranger, other := selfSigned(t, "kube-apiserver"), selfSigned(t, "kube-apiserver"), selfSigned(t, "kubelet")
	var authorities []byte
	for _, c := range []tls.Certificate{server, other} {
		authorities = append(authorities, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Certificate[0]})...)
	}
	address := webhookAt(t, config.Webhook{ClientCA: string(authorities), ClientNames: []string{"kube-apiserver"}}, func(string) {})
	ask := func(certificates ...tls.Certificate) (string, error) {
		d := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, Certificates: certificates}} //nolint:gosec // the client is what is tested
		conn, err := d.DialContext(t.Context(), "tcp", address)
		if err != nil {
			return "", err
		}
		defer conn.Close()
		if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
			return "", err
		}
		if _, err := io.WriteString(conn, "GET "+mutatePodPath+" HTTP/1.1\r\nHost: webhook\r\nConnection: close\r\n\r\n"); err != nil {
			return "", err
		}
		answer, err := io.ReadAll(conn)
		return string(answer), err
	}
	require.Eventually(t, func() bool {
		answer, err := ask(server)
		return err == nil && strings.HasPrefix(answer, "HTTP/1.1 405")
	}, time.Minute, 10*time.Millisecond)
	for name, certificates := range map[string][]tls.Certificate{"nobody": nil, "a stranger": {stranger}, "another component": {other}} {
		answer, err := ask(certificates...)
		require.Error(t, err, name)
		require.Empty(t, answer, name)
	}
}

// selfSigned returns the certificate of a client that is its own authority.
func selfSigned(t *testing.T, name string) tls.Certificate {
	t.Helper()
	key := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}, IsCA: true, BasicConstraintsValid: true,
	}
	der := must(x509.CreateCertificate(rand.Reader, template, template, key.Public(), key))
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// TestWebhookDrains: new connections are served after SIGTERM, until the time is over.
func TestWebhookDrains(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	clk := clocktesting.NewFakeClock(time.Now())
	address, done := startWebhook(ctx, t, config.Webhook{Drain: 5 * time.Second}, clk, func(string) {})
	require.NoError(t, dialWebhook(t, address).Close())
	kept := dialWebhook(t, address)
	require.NoError(t, kept.SetDeadline(time.Now().Add(time.Minute)))
	answers := bufio.NewReader(kept)
	ask := func() *http.Response {
		_, err := io.WriteString(kept, "GET "+mutatePodPath+" HTTP/1.1\r\nHost: webhook\r\n\r\n")
		require.NoError(t, err)
		answer := must(http.ReadResponse(answers, nil))
		_, err = io.Copy(io.Discard, answer.Body)
		require.NoError(t, errors.Join(err, answer.Body.Close()))
		return answer
	}
	require.False(t, ask().Close)
	cancel()
	require.Eventually(t, clk.HasWaiters, time.Minute, 10*time.Millisecond)
	require.NoError(t, dialWebhook(t, address).Close())
	require.True(t, ask().Close, "the client sends its next review on another connection")
	require.ErrorIs(t, errOf(answers.ReadByte()), io.EOF)
	clk.Step(5 * time.Second)
	require.NoError(t, <-done)
	require.Error(t, errOf((&net.Dialer{}).DialContext(t.Context(), "tcp", address)))
}

// webhookAt runs the server until the test ends, and returns its address.
func webhookAt(t *testing.T, settings config.Webhook, closed func(string)) string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	address, done := startWebhook(ctx, t, settings, clock.RealClock{}, closed)
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
	})
	return address
}

// startWebhook runs the server until ctx is done, and for the time of the drain.
func startWebhook(ctx context.Context, t *testing.T, settings config.Webhook, clk clock.WithTicker, closed func(string)) (address string, done <-chan error) {
	t.Helper()
	data, _, err := serve.EnsureCertificates(nil, []string{"webhook"}, time.Now())
	require.NoError(t, err)
	source := &serve.Certificate{}
	require.NoError(t, source.Set(data))
	address = unusedAddress(t)
	cfg := &config.Effective{}
	cfg.Webhook, cfg.Webhook.Address = settings, address
	ended := make(chan error, 1)
	go func() {
		ended <- webhookServer(Env{Config: cfg, Log: zap.NewNop(), Clock: clk, Closed: closed}, source, map[string]serve.Rule{mutatePodPath: namespace.PodRule{}.Decide}, func() {})(ctx)
	}()
	return address, ended
}

// dialWebhook connects to the server, once it listens.
func dialWebhook(t *testing.T, address string) net.Conn {
	t.Helper()
	var conn net.Conn
	require.Eventually(t, func() bool {
		var err error
		conn, err = (&tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}).DialContext(t.Context(), "tcp", address) //nolint:gosec // a test
		return err == nil
	}, time.Minute, 10*time.Millisecond)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}
