package replication

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/liqod/liqod/kube/loop"
)

// unwatchedFor is how long a peer counts as one that refuses to be watched, after it has:
// longer than the time between two attempts.
const unwatchedFor = 2 * time.Minute

// peerError is an error of, or about, the peer.
type peerError struct{ error }

// Unwrap returns the error as it was.
func (e peerError) Unwrap() error { return e.error }

// lasting reports whether an error is the peer's and stays until somebody acts: a peer
// that is away, and a write that was too late, mend themselves.
func lasting(err error) bool {
	var peer peerError
	return errors.As(err, &peer) && !loop.Unavailable(err) && !apierrors.IsConflict(err) && !errors.Is(err, context.Canceled)
}

// show writes into the status of the home object why it is not replicated.
func (p *pair[T]) show(ctx context.Context, home T, trouble error) error {
	next := home.DeepCopy()
	p.kind.fail(trouble.Error(), p.cfg.Clock.Now(), next)
	if p.kind.same(next, home) {
		return nil
	}
	_, err := p.here().UpdateStatus(ctx, next, metav1.UpdateOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("writing that %s %s is not replicated: %w", p.kind.name, home.GetName(), err)
	}
	return nil
}

// watchFailed shows that the peer refuses to be watched: then there may never be a sync
// that could tell.
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
	home, readErr := p.get(p.home, p.local, p.peer)
	if readErr != nil || home == none || home.GetDeletionTimestamp() != nil || !p.kind.ours(home) {
		return
	}
	trouble := fmt.Errorf("watching the copy of %s %s: %w", p.kind.name, p.peer, err)
	if err := p.show(ctx, home, trouble); err != nil {
		p.cfg.Log.Debug("trouble not shown; the next refusal will show it", zap.String("peer", p.peer), zap.Error(err))
	}
}

// refused reports whether the peer refuses to be watched, though it did not before.
func (p *pair[T]) refused() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.unwatched.IsZero() && p.cfg.Clock.Since(p.unwatched) < unwatchedFor
}
