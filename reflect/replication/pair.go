package replication

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/cache"

	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/kube/store"
)

// pair replicates one pushed kind between this cluster and one peer. A request to the
// peer is named after the peer in both clusters, so that its copy and the peer's own
// request in the opposite direction have different names. Objects with other names are
// ignored.
type pair[T store.Applied[T]] struct {
	*channel[T]
	kind pushed[T]

	// absent is the time since when the home object is missing; zero while it exists. It
	// needs no lock, because the loop has a single key.
	absent time.Time
	// judged is the value of HomeLost for which the copy has been marked.
	judged time.Time

	mu        sync.Mutex
	unwatched time.Time // when the peer last rejected a watch that it had allowed before
}

func newPair[T store.Applied[T]](cfg Config, of pushed[T], home cache.SharedIndexInformer, peer string, way Peer) *pair[T] {
	p := &pair[T]{kind: of}
	p.channel = newChannel(cfg, of.kind, home, peer, way, p.sync)
	p.onWatchError = p.watchFailed
	return p
}

func (p *pair[T]) sync(ctx context.Context, key loop.Key) error {
	var none T
	home, remote := p.both(key.Name)
	if home != none && !own(home) {
		return nil
	}
	if home == none || home.GetDeletionTimestamp() != nil {
		return p.withdraw(ctx, key.Name, remote)
	}
	p.absent = time.Time{}
	var err error
	if remote == none || remote.GetDeletionTimestamp() == nil { // else the end of the deletion triggers a new sync
		err = p.equal(ctx, home, remote)
	}
	if lasting(err) {
		return errors.Join(err, p.show(ctx, home, err))
	}
	if err == nil && p.refused() {
		return loop.After(unwatchedFor)
	}
	return err
}

// push is kind.push, and marks remote as a copy.
func (p *pair[T]) push(home, remote T) {
	mark(remote, p.cfg.ClusterID)
	p.kind.push(home, remote)
}

// send writes next, the copy of home, to the peer. remote is the copy before, or nil.
func (p *pair[T]) send(ctx context.Context, home, remote, next T) error {
	if err := p.verify(ctx); err != nil {
		return err
	}
	var none T
	_, err := store.Write(ctx, "", p.there(), "", remote, next)
	switch {
	case err == nil:
		return nil
	case apierrors.IsAlreadyExists(err):
		return p.adopt(ctx, home)
	case remote != none && apierrors.IsNotFound(err):
		return loop.After(cacheDelay)
	}
	doing := "updating"
	if remote == none {
		doing = "creating"
	}
	return peerError{fmt.Errorf("%s the copy of %s %s: %w", doing, p.kind.name, home.GetName(), errors.Unwrap(err))}
}

// adopt handles a copy that is missing in the cache: the cache lags behind, or the copy
// has lost its label. An object that is not a copy is left unchanged.
func (p *pair[T]) adopt(ctx context.Context, home T) error {
	var none T
	remote, err := store.Live(ctx, "the copy of "+p.kind.name, p.there(), home.GetName())
	switch {
	case err != nil:
		return peerError{err}
	case remote == none:
		return loop.After(cacheDelay)
	case own(remote):
		return peerError{fmt.Errorf("the peer has its own %s %s/%s with the name of the copy of %s/%s",
			p.kind.name, remote.GetNamespace(), remote.GetName(), home.GetNamespace(), home.GetName())}
	}
	return p.equal(ctx, home, remote)
}

// equal copies the spec to the peer and the status to this cluster, where they differ. remote is nil if
// there is no copy.
func (p *pair[T]) equal(ctx context.Context, home, remote T) error {
	var none T
	next := p.copyOf(remote, p.cfg.remoteNamespace(), home.GetName())
	forgot := remote != none && p.forgot(remote)
	if forgot {
		if err := p.current(ctx, home); err != nil {
			return err
		}
		p.kind.keep(home, next)
	}
	p.push(home, next)
	if !equality.Semantic.DeepEqual(next, remote) {
		if err := p.send(ctx, home, remote, next); err != nil {
			return err
		}
	}
	if remote == none {
		return nil // the watch of the copy triggers a new sync
	}
	if forgot {
		p.settleLoss(next)
	}
	answered := home.DeepCopy()
	if !p.refused() {
		p.kind.fail("", p.cfg.Clock.Now(), answered)
	}
	p.kind.pull(remote, answered)
	if equality.Semantic.DeepEqual(answered, home) {
		return nil
	}
	// A status from an unverified cluster must not be copied either.
	if err := p.verify(ctx); err != nil {
		return err
	}
	if err := p.asks(home); err != nil {
		return err
	}
	if err := p.afford(answered, 0); err != nil {
		return err
	}
	return store.IgnoreNotFound(store.WriteStatus(ctx, p.kind.name, p.here(), "", home, answered))
}
