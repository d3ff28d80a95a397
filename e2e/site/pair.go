package site

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// peering is how long a consumer has until its first virtual node is Ready.
const peering = 3 * time.Minute

// Pair is a consumer, rome, and a provider, milan.
type Pair struct {
	Sites       *Sites
	Rome, Milan *Site
}

// StartPair starts rome and milan, in place of w.Clusters. They are not connected.
func (w World) StartPair(t *testing.T) *Pair {
	t.Helper()
	w.Clusters = []string{"rome", "milan"}
	sites, list := w.Start(t)
	return &Pair{Sites: sites, Rome: list[0], Milan: list[1]}
}

// Peer makes milan a provider of rome, and waits until its virtual node is Ready.
func (p *Pair) Peer(t *testing.T, opts PeerOptions) {
	t.Helper()
	begin := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), peering)
	defer cancel()
	require.NoError(t, p.Rome.Peer(ctx, p.Milan, opts))
	t.Logf("virtual node Ready: %s", time.Since(begin).Round(time.Millisecond))
}
