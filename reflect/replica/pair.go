package replica

import (
	"context"
	"fmt"
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
	watches []cache.ResourceEventHandlerRegistration

	mu       sync.Mutex
	verified bool
}

func newPair(cfg Config, peer string, way Peer) *pair[*offloadingv1beta1.NamespaceMap] {
	p := &pair[*offloadingv1beta1.NamespaceMap]{
		kind: namespaceMaps(cfg.ClusterID), cfg: cfg, peer: peer, way: way,
		local: corev1beta1.TenantNamespace(peer), home: cfg.Maps.Informer(),
	}
	p.Loop = loop.New(loop.Config{Name: "replica-" + p.kind.name, Sync: p.sync, Log: cfg.Log.With(zap.String("peer", peer)), Observer: cfg.Observer})
	return p
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
	_, err = p.Watch(p.remote, func(obj any) []loop.Key {
		m, ok := obj.(metav1.Object)
		if !ok {
			return nil
		}
		return p.keys(m)
	})
	return err
}

// run replicates until ctx is done and leaves nothing running or registered.
func (p *pair[T]) run(ctx context.Context) {
	p.factory.Start(ctx.Done())
	_ = p.Run(ctx, pairWorkers) // a loop's Run has no error to give
	p.factory.Shutdown()
	for _, reg := range p.watches {
		_ = p.home.RemoveEventHandler(reg) // fails only for an informer that has ended
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
	switch {
	case home != none && !p.kind.ours(home):
		return nil
	case home == none || home.GetDeletionTimestamp() != nil:
		return p.withdraw(ctx, key.Name, remote)
	case remote == none:
		return p.create(ctx, home)
	case remote.GetDeletionTimestamp() != nil:
		return nil // made again when it is gone
	}
	return p.equal(ctx, home, remote)
}

// verify makes sure, once per connection, that the peer is who it was.
func (p *pair[T]) verify(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.verified {
		return nil
	}
	if err := p.way.Identity(ctx); err != nil {
		return fmt.Errorf("verifying the cluster that answers for %s: %w", p.peer, err)
	}
	p.verified = true
	return nil
}

// withdraw deletes the copy of an object that is gone, once a live read agrees.
func (p *pair[T]) withdraw(ctx context.Context, name string, remote T) error {
	var none T
	if remote == none || remote.GetDeletionTimestamp() != nil {
		return nil
	}
	live, err := p.kind.client(p.cfg.Liqo, p.local).Get(ctx, name, metav1.GetOptions{})
	switch {
	case err == nil && live.GetDeletionTimestamp() == nil && p.kind.ours(live):
		return loop.After(cacheDelay)
	case err != nil && !apierrors.IsNotFound(err):
		return fmt.Errorf("confirming that %s %s is gone: %w", p.kind.name, name, err)
	}
	if err := p.verify(ctx); err != nil {
		return err
	}
	err = p.kind.client(p.way.Liqo, remote.GetNamespace()).Delete(ctx, remote.GetName(),
		metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(remote.GetUID()))})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting the copy of %s %s: %w", p.kind.name, name, err)
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
		return fmt.Errorf("creating the copy of %s %s: %w", p.kind.name, home.GetName(), err)
	}
	return nil
}

// adopt deals with a copy that the cache does not show: it is late, or the label that
// makes the copy ours was removed. An object that never was our copy is left alone.
func (p *pair[T]) adopt(ctx context.Context, home T) error {
	c := p.kind.client(p.way.Liqo, p.cfg.remoteNamespace())
	remote, err := c.Get(ctx, home.GetName(), metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("reading the copy of %s %s: %w", p.kind.name, home.GetName(), err)
	}
	if labels := remote.GetLabels(); labels[offloadingv1beta1.ReplicatedLabel] != "true" {
		return fmt.Errorf("the peer has a %s %s/%s of its own where the copy of %s/%s belongs",
			p.kind.name, remote.GetNamespace(), remote.GetName(), home.GetNamespace(), home.GetName())
	}
	return p.equal(ctx, home, remote)
}

// equal writes the wish there and the answer here, where they differ.
func (p *pair[T]) equal(ctx context.Context, home, remote T) error {
	next := remote.DeepCopy()
	p.kind.push(home, next)
	if !p.kind.same(next, remote) {
		if err := p.verify(ctx); err != nil {
			return err
		}
		if _, err := p.kind.client(p.way.Liqo, remote.GetNamespace()).Update(ctx, next, metav1.UpdateOptions{}); err != nil {
			return fmt.Errorf("updating the copy of %s %s: %w", p.kind.name, home.GetName(), err)
		}
	}
	answered := home.DeepCopy()
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
