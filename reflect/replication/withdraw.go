package replication

import (
	"context"
	"fmt"
	"time"

	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/kube/store"
)

// moment is how long a home object must be gone before its copy is deleted, while the
// peering exists. If a person deleted the object, its controller creates it again within
// this time.
const moment = 3 * time.Second

// anew is how long, in a tenant namespace that was just made, a missing home object of a kind
// that comes late is not taken for one that was given up: the namespace may stand for one that was deleted by hand,
// with all that was in it.
const anew = 2 * time.Minute

// withdraw deletes the copy of an object that is gone for good. The peer then deletes
// everything that it has created for the copy.
func (p *pair[T]) withdraw(ctx context.Context, name string, remote T) error {
	var none T
	if p.absent.IsZero() {
		p.absent = p.cfg.Clock.Now()
	}
	if remote == none || remote.GetDeletionTimestamp() != nil {
		return nil
	}
	err := store.ConfirmNone(ctx, p.kind.name, p.here(), name, func(live T) bool { return live.GetDeletionTimestamp() == nil && own(live) })
	if err != nil {
		return err
	}
	final, err := p.final(ctx, remote)
	if err != nil {
		return err
	}
	switch {
	case !final && p.forgot(remote):
		return p.keepAll(ctx, remote)
	case !final && hasKept(remote):
		return nil // the removal of the mark triggers a new sync
	case !final:
		return loop.After(moment)
	}
	if err := p.verify(ctx); err != nil {
		return err
	}
	return store.Delete(ctx, "the copy of "+p.kind.name, p.there(), remote)
}

// final reports, by live reads, whether the home object will not be created again. That
// is the case if its namespace is being deleted too and this cluster does not use the peer
// any more, or if no controller has wanted it for longer than moment. It is never the case
// if the object may have been lost by a restore.
func (p *pair[T]) final(ctx context.Context, remote T) (bool, error) {
	ns, err := store.Live(ctx, "Namespace", p.cfg.Kube.CoreV1().Namespaces(), p.local)
	if err != nil || ns == nil && p.forgot(remote) {
		return false, err
	}
	gone := ns == nil || ns.DeletionTimestamp != nil
	if lost := gone || p.kind.late && p.cfg.Clock.Since(ns.CreationTimestamp.Time) < anew; lost {
		if used, err := p.cfg.CapacityWanted(ctx, p.peer); used || err != nil {
			return false, err // the controller makes the namespace again, and what was in it
		}
	}
	switch {
	case gone:
		return true, nil
	case p.cfg.Clock.Since(p.absent) < moment, p.forgot(remote), hasKept(remote):
		return false, nil
	}
	wanted, err := p.kind.wanted(ctx, p.peer)
	if err != nil {
		return false, fmt.Errorf("asking whether a %s for %s is wanted: %w", p.kind.name, p.peer, err)
	}
	return !wanted, nil
}
