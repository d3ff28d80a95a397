package auth

import (
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/liqod/liqod/peering/trust"
)

// TestEndpointRenewsBehindASharedAddress: strangers that use up the limit of an address do
// not keep a peer with a certificate out, which comes from the same address.
func TestEndpointRenewsBehindASharedAddress(t *testing.T) {
	t.Parallel()
	const perAddress = 5
	w := newWorld(t, func(c *Config) { c.PerAddress = perAddress })
	c := newClient(t, rome, romeUID)
	g := w.enrolled(c)
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
	c := newClient(t, rome, romeUID)
	g := w.enrolled(c)
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
	c := newClient(t, rome, romeUID)
	g := w.enrolled(c) // through the server of the world
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
