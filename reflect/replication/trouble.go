package replication

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/kube/store"
)

// unwatchedFor is how long the last rejection of a watch counts. It is longer than the
// time between two attempts.
const unwatchedFor = 2 * time.Minute

// peerError is an error that the peer returned or caused.
type peerError struct{ error }

// Unwrap returns the wrapped error.
func (e peerError) Unwrap() error { return e.error }

// lasting reports whether an error was caused by the peer and needs an intervention.
// Conflicts and an unreachable peer do not, because a retry resolves them.
func lasting(err error) bool {
	var peer peerError
	return errors.As(err, &peer) && !loop.Unavailable(err) && !apierrors.IsConflict(err) && !errors.Is(err, context.Canceled)
}

// show writes to the status of the home object why it is not replicated.
func (p *pair[T]) show(ctx context.Context, home T, trouble error) error {
	next := home.DeepCopy()
	p.kind.fail(trouble.Error(), p.cfg.Clock.Now(), next)
	if equality.Semantic.DeepEqual(next, home) {
		return nil
	}
	if p.afford(next, 0) != nil {
		return nil // a peer that fails now and then: the loop, which retries, shows it later
	}
	return store.IgnoreNotFound(store.WriteStatus(ctx, p.kind.name, p.here(), "", home, next))
}

// watchFailed shows in the status that the peer rejects the watch. Without a watch there
// may never be a sync that could do so.
func (p *pair[T]) watchFailed(ctx context.Context, err error) {
	if !apierrors.IsForbidden(err) && !apierrors.IsUnauthorized(err) && !apierrors.IsNotFound(err) {
		return
	}
	if p.remote.HasSynced() {
		p.mu.Lock()
		p.unwatched = p.cfg.Clock.Now()
		p.mu.Unlock()
		p.AddAfter(loop.Key{Namespace: p.local, Name: p.peer}, unwatchedFor)
	}
	var none T
	home, _ := p.both(p.peer)
	if home == none || home.GetDeletionTimestamp() != nil || !own(home) {
		return
	}
	trouble := fmt.Errorf("watching the copy of %s %s: %w", p.kind.name, p.peer, err)
	if err := p.show(ctx, home, trouble); err != nil {
		p.cfg.Log.Debug("the refusal could not be written to the status; the next refusal will be", zap.String("peer", p.peer), zap.Error(err))
	}
}

// refused reports whether the peer rejects the watch now and allowed it before.
func (p *pair[T]) refused() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.unwatched.IsZero() && p.cfg.Clock.Since(p.unwatched) < unwatchedFor
}
