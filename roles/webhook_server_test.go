package roles

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/liqod/liqod/kube/admit"
	"github.com/liqod/liqod/kube/certs"
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
	ctx, cancel := context.WithCancel(t.Context())
	address, done := startWebhook(ctx, t, 0, clock.RealClock{})
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
	})
	conn := dialWebhook(t, address)
	_, err := io.WriteString(conn, "POST "+mutatePodPath+" HTTP/1.1\r\nHost: webhook\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{")
	require.NoError(t, err)
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(15*time.Second)))
	_, err = io.ReadAll(conn) // until the server ends it
	var timeout net.Error
	require.False(t, errors.As(err, &timeout) && timeout.Timeout(), "it waits for the rest")
}

// TestWebhookDrains: new connections are served after SIGTERM, until the time is over.
func TestWebhookDrains(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	clk := clocktesting.NewFakeClock(time.Now())
	address, done := startWebhook(ctx, t, 5*time.Second, clk)
	require.NoError(t, dialWebhook(t, address).Close())
	cancel()
	require.Eventually(t, clk.HasWaiters, time.Minute, 10*time.Millisecond)
	require.NoError(t, dialWebhook(t, address).Close())
	clk.Step(5 * time.Second)
	require.NoError(t, <-done)
	_, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
	require.Error(t, err)
}

// startWebhook runs the server until ctx is done, and for the time of the drain.
func startWebhook(ctx context.Context, t *testing.T, drain time.Duration, clk clock.WithTicker) (address string, done <-chan error) {
	t.Helper()
	data, _, err := certs.Ensure(nil, []string{"webhook"}, time.Now())
	require.NoError(t, err)
	source := &certs.Source{}
	require.NoError(t, source.Set(data))
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address = listener.Addr().String()
	require.NoError(t, listener.Close())
	cfg := &config.Effective{}
	cfg.Webhook.Address, cfg.Webhook.Drain = address, drain
	ended := make(chan error, 1)
	go func() {
		ended <- webhookServer(Env{Config: cfg, Log: zap.NewNop(), Clock: clk}, source, map[string]admit.Func{mutatePodPath: namespace.PodRule{}.Decide})(ctx)
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
