package site

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
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

// PeerByToken lets a cluster use another one by a token, with the commands of people, and waits until the virtual node is Ready.
func (s *Sites) PeerByToken(ctx context.Context, consumer, provider *Site) error {
	out, err := s.Command(ctx, "token", "create", "--kubeconfig", provider.Kubeconfig).Output()
	if err != nil {
		return fmt.Errorf("making a token of %s: %w", provider.Name, err)
	}
	for word := range strings.FieldsSeq(string(out)) {
		if !strings.HasPrefix(word, "liqod1.") {
			continue
		}
		peer := s.Command(ctx, "peer", "--kubeconfig", consumer.Kubeconfig, "--token", word, "--timeout=5m")
		if out, err := peer.CombinedOutput(); err != nil {
			return fmt.Errorf("peering %s with %s: %w\n%s", consumer.Name, provider.Name, err, out)
		}
		return consumer.WaitVirtualNode(ctx, provider.Name, corev1.ConditionTrue)
	}
	return fmt.Errorf("no token of %s is printed: %s", provider.Name, out)
}
