package replication

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/kube/store"
)

// vanishedHold is how long an object that disappeared from the peer without a withdrawal
// still counts as present. If the peer was restored from a backup, or its tenant namespace
// was deleted by hand, it creates the object again within this time, because this cluster
// still requests it. The request is written again after at most one delay of a watch, 30 s.
const vanishedHold = 2 * time.Minute

// pulled describes a kind whose objects are offers of a peer. The spec is copied to this
// cluster and the status is copied back. All functions are pure. Those that return
// nothing write to their argument that is a copy.
type pulled[T store.Applied[T]] struct {
	kind[T]
	// given reports whether the offer is valid at the moment. Before, it has no copy. When
	// an offer is no longer valid, its copy stays unchanged until the offer has been
	// withdrawn.
	given func(remote T) bool
	// check returns an error if remote contradicts itself. refuse writes this error to the
	// status of remote.
	check  func(remote T) error
	refuse func(remote T, why error)
	// take copies the spec of remote to home.
	take func(remote, home T)
	// answer copies the status of home to remote.
	answer func(home, remote T)
	// used reports whether the copy is in use in this cluster. ended reports whether the
	// withdrawal of an object has been requested. end requests the withdrawal of the copy; if
	// it is nil, the copy is deleted instead.
	used  func(home T) bool
	ended func(obj T) bool
	end   func(home T, now time.Time)
}

// pull replicates one pulled kind between this cluster and one peer.
type pull[T store.Applied[T]] struct {
	*channel[T]
	kind pulled[T]

	missed loop.Since[string] // names of objects that the peer does not have any more
}

func newPull[T store.Applied[T]](cfg Config, of pulled[T], home cache.SharedIndexInformer, peer string, way Peer) *pull[T] {
	p := &pull[T]{kind: of}
	p.channel = newChannel(cfg, of.kind, home, peer, way, p.sync)
	return p
}

func (p *pull[T]) sync(ctx context.Context, key loop.Key) error {
	var none T
	home, remote := p.both(key.Name)
	if home != none && own(home) {
		return nil // an offer of this cluster that happens to have the same name
	}
	if remote == none || remote.GetDeletionTimestamp() != nil {
		return p.let(ctx, key.Name, home)
	}
	p.missed.End(key.Name)
	switch {
	case p.kind.given(remote):
	case home == none:
		return nil
	case p.kind.ended(remote): // the answer to a withdrawal must reach the peer
	case p.kind.ended(home) && !p.kind.used(home):
		return p.drop(ctx, home)
	default:
		return nil
	}
	if why := p.kind.check(remote); why != nil {
		return p.refuse(ctx, remote, why)
	}
	if home != none && home.GetDeletionTimestamp() != nil {
		return nil // the end of the deletion triggers a new sync, which creates it again
	}
	return p.equal(ctx, home, remote)
}

func (p *pull[T]) refuse(ctx context.Context, remote T, why error) error {
	next := remote.DeepCopy()
	p.kind.refuse(next, why)
	return p.tell(ctx, next, remote)
}

// equal copies the spec to this cluster and the status to the peer, where they differ. home is nil if
// there is no copy.
func (p *pull[T]) equal(ctx context.Context, home, remote T) error {
	next := p.copyOf(home, p.local, remote.GetName())
	mark(next, p.peer)
	p.kind.take(remote, next)
	if equality.Semantic.DeepEqual(next, home) {
		answered := remote.DeepCopy()
		p.kind.answer(home, answered)
		return p.tell(ctx, answered, remote)
	}
	// An object from an unverified cluster must not be copied.
	if err := p.verify(ctx); err != nil {
		return err
	}
	if err := p.afford(next, pulledCost); err != nil {
		return err
	}
	var none T
	_, err := store.Write(ctx, "the copy of "+p.kind.name, p.here(), "", home, next)
	switch {
	case apierrors.IsAlreadyExists(err):
		return loop.After(cacheDelay)
	case apierrors.IsInvalid(err): // the API server of the peer may accept more
		return p.refuse(ctx, remote, errors.Unwrap(err))
	case home != none && apierrors.IsNotFound(err):
		return nil // the end of the deletion triggers a new sync
	}
	return err // a write triggers a new sync, which writes the status
}

// tell writes the status in the peer, if it has changed.
func (p *pull[T]) tell(ctx context.Context, next, remote T) error {
	if equality.Semantic.DeepEqual(next, remote) {
		return nil
	}
	if err := p.verify(ctx); err != nil {
		return err
	}
	_, err := p.there().UpdateStatus(ctx, next, metav1.UpdateOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return peerError{fmt.Errorf("answering %s %s: %w", p.kind.name, remote.GetName(), err)}
	}
	return nil
}

// let handles the copy of an object that the peer no longer has. A copy in use is deleted
// only after its user has released it.
func (p *pull[T]) let(ctx context.Context, name string, home T) error {
	var none T
	if home == none {
		p.missed.End(name)
		return nil
	}
	live, err := store.Live(ctx, p.kind.name, p.there(), name)
	switch {
	case err != nil:
		return peerError{err}
	case live != none && live.GetDeletionTimestamp() == nil:
		return loop.After(cacheDelay)
	}
	if err := p.verify(ctx); err != nil {
		return err
	}
	if !p.kind.used(home) {
		return p.drop(ctx, home)
	}
	if p.kind.ended(home) {
		return nil // the release of the copy triggers a new sync
	}
	now := p.cfg.Clock.Now()
	if gone := now.Sub(p.missed.Begin(name, now)); gone < vanishedHold {
		return loop.After(min(moment, vanishedHold-gone)) // it may be used no more before
	}
	p.cfg.Log.Warn("the peer has deleted its object: the local copy is released", zap.String("peer", p.peer), zap.String("kind", p.kind.name), zap.String("name", name))
	if p.kind.end == nil {
		return p.remove(ctx, home)
	}
	next := home.DeepCopy()
	p.kind.end(next, now)
	_, err = store.Write(ctx, p.kind.name, p.here(), "", home, next)
	return store.IgnoreNotFound(err)
}

// drop deletes the copy, after a live read has confirmed that it is not in use.
func (p *pull[T]) drop(ctx context.Context, home T) error {
	var none T
	live, err := store.Live(ctx, p.kind.name, p.here(), home.GetName())
	if err != nil || live == none {
		return err
	}
	if live.GetUID() != home.GetUID() || p.kind.used(live) {
		return loop.After(cacheDelay)
	}
	return p.remove(ctx, live)
}

// remove deletes the copy, unless it has changed meanwhile.
func (p *pull[T]) remove(ctx context.Context, home T) error {
	return store.Delete(ctx, "the copy of "+p.kind.name, p.here(), home, store.Unchanged(home))
}
