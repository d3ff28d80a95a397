package replica

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	externalversions "github.com/liqod/liqod/api/generated/informers/externalversions"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/loop"
)

const (
	pairWorkers = 2
	// cacheDelay is how long a cache is given to catch up with what a live read has shown.
	cacheDelay = time.Second
)

// pair replicates one kind between this cluster and one peer, for as long as one
// connection lasts. What is asked of the peer has the peer's id for a name, here and
// there, so that the copy stands beside what the peer asks of this cluster. An object
// of another name is not this cluster's wish.
type pair[T object[T]] struct {
	*loop.Loop
	kind  kind[T]
	cfg   Config
	peer  string
	way   Peer
	local string // tenant namespace of the peer, here
	home  cache.SharedIndexInformer

	factory externalversions.SharedInformerFactory
	remote  cache.SharedIndexInformer
	watches []cache.ResourceEventHandlerRegistration // of both

	// absent is when the home object was first missed; zero while it is there. There is
	// one key, so there is one sync at a time.
	absent time.Time
	// judged is the last loss of this cluster's state that the copy has been marked for.
	judged time.Time

	mu        sync.Mutex
	unwatched time.Time // when the peer last refused to be watched, after it had not
}

func newPair(cfg Config, peer string, way Peer) *pair[*offloadingv1beta1.NamespaceMap] {
	p := &pair[*offloadingv1beta1.NamespaceMap]{
		kind: namespaceMaps(cfg.ClusterID), cfg: cfg, peer: peer, way: way,
		local: corev1beta1.TenantNamespace(peer), home: cfg.Maps.Informer(),
	}
	observer := cfg.Observer
	if observer != nil {
		observer = awake{observer, p.synced}
	}
	// The name is the peer's own: who is at work with one peer may wait for another.
	p.Loop = loop.New(loop.Config{Name: "replica-" + p.kind.name + "-" + peer, Sync: p.sync, Log: cfg.Log.With(zap.String("peer", peer)), Observer: observer})
	return p
}

// awake tells an observer of no key that waits for caches: while a peer is away, nothing
// here is late.
type awake struct {
	loop.Observer
	synced func() bool
}

// Queued implements loop.Observer.
func (a awake) Queued(name string, key loop.Key) {
	if a.synced() {
		a.Observer.Queued(name, key)
	}
}

func (p *pair[T]) synced() bool {
	return !slices.ContainsFunc(p.watches, func(r cache.ResourceEventHandlerRegistration) bool { return !r.HasSynced() })
}

// wire registers with the informers of both sides.
func (p *pair[T]) wire() error {
	p.factory = externalversions.NewSharedInformerFactoryWithOptions(p.way.Liqo, 0,
		externalversions.WithNamespace(p.cfg.remoteNamespace()),
		externalversions.WithTransform(func(obj any) (any, error) {
			if m, ok := obj.(metav1.Object); ok {
				m.SetManagedFields(nil)
			}
			return obj, nil
		}),
		externalversions.WithTweakListOptions(func(o *metav1.ListOptions) {
			o.LabelSelector = offloadingv1beta1.OriginIDLabel + "=" + p.cfg.ClusterID
		}))
	p.remote = p.kind.informer(p.factory)
	reg, err := p.Watch(p.home, func(obj any) []loop.Key {
		m, ok := obj.(metav1.Object)
		if !ok || m.GetNamespace() != p.local {
			return nil
		}
		return p.keys(m)
	})
	if err != nil {
		return err
	}
	p.watches = append(p.watches, reg)
	if err := p.remote.SetWatchErrorHandlerWithContext(p.onWatchError); err != nil {
		return fmt.Errorf("watching the copies of %s: %w", p.kind.name, err)
	}
	reg, err = p.Watch(p.remote, func(obj any) []loop.Key {
		m, ok := obj.(metav1.Object)
		if !ok {
			return nil
		}
		return p.keys(m)
	})
	p.watches = append(p.watches, reg)
	return err
}

// run replicates until ctx is done and leaves nothing running or registered.
func (p *pair[T]) run(ctx context.Context) {
	p.factory.Start(ctx.Done())
	_ = p.Run(ctx, pairWorkers) // a loop's Run has no error to give
	p.factory.Shutdown()
	_ = p.home.RemoveEventHandler(p.watches[0]) // fails only for an informer that has ended
	if p.cfg.Forget != nil {
		p.cfg.Forget(p.Name())
	}
}

// keys returns the key of an object of either side.
func (p *pair[T]) keys(m metav1.Object) []loop.Key {
	if m.GetName() != p.peer {
		return nil
	}
	return []loop.Key{{Namespace: p.local, Name: p.peer}}
}

func (p *pair[T]) get(inf cache.SharedIndexInformer, namespace, name string) (T, error) {
	var none T
	obj, ok, err := inf.GetStore().GetByKey(namespace + "/" + name)
	if err != nil {
		return none, fmt.Errorf("reading the cache: %w", err)
	}
	if !ok {
		return none, nil
	}
	t, ok := obj.(T)
	if !ok {
		return none, fmt.Errorf("the cache of %s holds a %T", p.kind.name, obj)
	}
	return t, nil
}

func (p *pair[T]) sync(ctx context.Context, key loop.Key) error {
	var none T
	home, err := p.get(p.home, key.Namespace, key.Name)
	if err != nil {
		return err
	}
	remote, err := p.get(p.remote, p.cfg.remoteNamespace(), key.Name)
	if err != nil {
		return err
	}
	if home != none && !p.kind.ours(home) {
		return nil
	}
	if home == none || home.GetDeletionTimestamp() != nil {
		return p.withdraw(ctx, key.Name, remote)
	}
	p.absent = time.Time{}
	err = p.replicate(ctx, home, remote)
	if lasting(err) {
		return errors.Join(err, p.show(ctx, home, err))
	}
	if err == nil && p.refused() {
		return loop.After(unwatchedFor)
	}
	return err
}

func (p *pair[T]) replicate(ctx context.Context, home, remote T) error {
	var none T
	switch {
	case remote == none:
		return p.create(ctx, home)
	case remote.GetDeletionTimestamp() != nil:
		return nil // made again when it is gone
	}
	return p.equal(ctx, home, remote)
}

// verify makes sure that the peer is who it was.
func (p *pair[T]) verify(ctx context.Context) error {
	if err := p.way.Identity(ctx); err != nil {
		return peerError{fmt.Errorf("verifying the cluster that answers for %s: %w", p.peer, err)}
	}
	return nil
}

func (p *pair[T]) create(ctx context.Context, home T) error {
	if err := p.verify(ctx); err != nil {
		return err
	}
	remote := p.kind.empty()
	remote.SetNamespace(p.cfg.remoteNamespace())
	remote.SetName(home.GetName())
	p.kind.push(home, remote)
	_, err := p.kind.client(p.way.Liqo, remote.GetNamespace()).Create(ctx, remote, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return p.adopt(ctx, home)
	}
	if err != nil {
		return peerError{fmt.Errorf("creating the copy of %s %s: %w", p.kind.name, home.GetName(), err)}
	}
	return nil
}

// adopt deals with a copy that the cache does not show: it is late, or the label that
// makes the copy ours was removed. An object that never was our copy is left alone.
func (p *pair[T]) adopt(ctx context.Context, home T) error {
	c := p.kind.client(p.way.Liqo, p.cfg.remoteNamespace())
	remote, err := c.Get(ctx, home.GetName(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return loop.After(cacheDelay)
	}
	if err != nil {
		return peerError{fmt.Errorf("reading the copy of %s %s: %w", p.kind.name, home.GetName(), err)}
	}
	if labels := remote.GetLabels(); labels[offloadingv1beta1.ReplicatedLabel] != "true" {
		return peerError{fmt.Errorf("the peer has a %s %s/%s of its own where the copy of %s/%s belongs",
			p.kind.name, remote.GetNamespace(), remote.GetName(), home.GetNamespace(), home.GetName())}
	}
	return p.equal(ctx, home, remote)
}

// equal writes the wish there and the answer here, where they differ.
func (p *pair[T]) equal(ctx context.Context, home, remote T) error {
	next := remote.DeepCopy()
	forgot := p.forgot(remote)
	if forgot {
		if err := p.current(ctx, home); err != nil {
			return err
		}
		p.kind.keep(home, next)
	}
	p.kind.push(home, next)
	if !p.kind.same(next, remote) {
		if err := p.verify(ctx); err != nil {
			return err
		}
		_, err := p.kind.client(p.way.Liqo, remote.GetNamespace()).Update(ctx, next, metav1.UpdateOptions{})
		if apierrors.IsNotFound(err) {
			return loop.After(cacheDelay)
		}
		if err != nil {
			return peerError{fmt.Errorf("updating the copy of %s %s: %w", p.kind.name, home.GetName(), err)}
		}
	}
	if forgot {
		p.settleLoss(next)
	}
	answered := home.DeepCopy()
	if !p.refused() {
		p.kind.mend(answered)
	}
	p.kind.pull(remote, answered)
	if p.kind.same(answered, home) {
		return nil
	}
	// An impostor's answer is no more worth than a write to it.
	if err := p.verify(ctx); err != nil {
		return err
	}
	_, err := p.kind.client(p.cfg.Liqo, p.local).UpdateStatus(ctx, answered, metav1.UpdateOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("writing the answer about %s %s: %w", p.kind.name, home.GetName(), err)
	}
	return nil
}
