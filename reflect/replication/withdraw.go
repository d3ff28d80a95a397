package replication

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/kube/store"
)

// moment is how long a home object must be gone before its copy is deleted, while the
// peering exists. If a person deleted the object, its controller creates it again within
// this time.
const moment = 3 * time.Second

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
	err := store.ConfirmNone(ctx, p.kind.name, p.here(), name, func(live T) bool { return live.GetDeletionTimestamp() == nil && p.kind.ours(live) })
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
	case !final && p.kind.kept(remote):
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
// is the case if its namespace is being deleted too, or if no controller has wanted it
// for longer than moment. It is never the case if the object may have been lost by a
// restore.
func (p *pair[T]) final(ctx context.Context, remote T) (bool, error) {
	ns, err := p.cfg.Kube.CoreV1().Namespaces().Get(ctx, p.local, metav1.GetOptions{})
	switch {
	case err == nil && ns.DeletionTimestamp != nil:
		return true, nil
	case apierrors.IsNotFound(err):
		return !p.forgot(remote), nil
	case err != nil:
		return false, fmt.Errorf("reading the tenant namespace of %s: %w", p.peer, err)
	case p.cfg.Clock.Since(p.absent) < moment, p.forgot(remote), p.kind.kept(remote):
		return false, nil
	}
	wanted, err := p.kind.wanted(ctx, p.cfg.Liqo, p.peer)
	if err != nil {
		return false, fmt.Errorf("asking whether a %s for %s is wanted: %w", p.kind.name, p.peer, err)
	}
	return !wanted, nil
}
