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
	data, _, err := certs.Ensure(nil, []string{"webhook"}, time.Now())
	require.NoError(t, err)
	var source certs.Source
	require.NoError(t, source.Set(data))
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := listener.Addr().String()
	require.NoError(t, listener.Close())
	cfg := &config.Effective{}
	cfg.Webhook.Address = address
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- webhookServer(Env{Config: cfg, Log: zap.NewNop()}, &source, map[string]admit.Func{mutatePodPath: namespace.PodRule{}.Decide})(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-done)
	})
	var conn net.Conn
	require.Eventually(t, func() bool {
		conn, err = (&tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}).DialContext(ctx, "tcp", address) //nolint:gosec // a test
		return err == nil
	}, time.Minute, 10*time.Millisecond)
	defer conn.Close()
	_, err = io.WriteString(conn, "POST "+mutatePodPath+" HTTP/1.1\r\nHost: webhook\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{")
	require.NoError(t, err)
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(15*time.Second)))
	_, err = io.ReadAll(conn) // until the server ends it
	var timeout net.Error
	require.False(t, errors.As(err, &timeout) && timeout.Timeout(), "it waits for the rest")
}
