package replication

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/api/generated/clientset/versioned"
	externalversions "github.com/liqod/liqod/api/generated/informers/externalversions"
	"github.com/liqod/liqod/kube/client"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/kube/store"
)

const (
	channelWorkers = 2
	// cacheDelay is how long a cache is given to catch up with the result of a live read.
	cacheDelay = time.Second
)

// writer is the part of a generated client that replication uses.
type writer[T any] interface {
	store.API[T]
	store.Writer[T]
	UpdateStatus(ctx context.Context, obj T, opts metav1.UpdateOptions) (T, error)
}

// kind describes a replicated kind, in whichever direction its specs are copied.
type kind[T store.Applied[T]] struct {
	name string
	// loop names the loop of a kind that is replicated in both directions; empty: name does.
	loop string
	// concerns reports whether an object with this name belongs to the peering in which
	// peer is the provider. Both clusters use the same names.
	concerns func(peer, name string) bool
	// selector is the label selector for the watch in the peer.
	selector string
	// empty returns a new object.
	empty func() T

	client   func(c versioned.Interface, namespace string) writer[T]
	informer func(f externalversions.SharedInformerFactory) cache.SharedIndexInformer
}

// channel replicates the objects of one kind between this cluster and one peer, over one
// connection. Its keys have the tenant namespace of the peer and the name of the object.
type channel[T store.Applied[T]] struct {
	*loop.Loop
	of    kind[T]
	cfg   Config
	peer  string
	way   Peer
	local string // tenant namespace of the peer in this cluster
	home  cache.SharedIndexInformer
	// onWatchError, if not nil, is called when a watch in the peer fails.
	onWatchError func(ctx context.Context, err error)

	factory externalversions.SharedInformerFactory
	remote  cache.SharedIndexInformer
	watches []cache.ResourceEventHandlerRegistration // home first, then remote
}

func newChannel[T store.Applied[T]](cfg Config, of kind[T], home cache.SharedIndexInformer, peer string, way Peer, sync loop.SyncFunc) *channel[T] {
	c := &channel[T]{of: of, cfg: cfg, peer: peer, way: way, local: corev1beta1.TenantNamespace(peer), home: home}
	// Each peer has its own loop name, because one peer may be unreachable while the sync
	// of another one succeeds.
	c.Loop = loop.New(loop.Config{Name: "replica-" + cmp.Or(of.loop, of.name) + "-" + peer, Sync: sync, Log: cfg.Log.With(zap.String("peer", peer)), Observer: awake{cfg.Observer, func() bool { return c.HasSynced() }}})
	return c
}

// awake hides keys from the observer while the caches have not synced. Such keys wait for
// an unreachable peer and do not mean that this process is late.
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

// wire registers handlers with the informers of both clusters.
func (c *channel[T]) wire() error {
	c.factory = externalversions.NewSharedInformerFactoryWithOptions(c.way.Liqo, 0,
		externalversions.WithNamespace(c.cfg.remoteNamespace()),
		externalversions.WithTransform(client.StripManagedFields),
		externalversions.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = c.of.selector }))
	c.remote = c.of.informer(c.factory)
	if err := c.remote.SetWatchErrorHandlerWithContext(c.watchError); err != nil {
		return fmt.Errorf("watching the %ss of %s: %w", c.of.name, c.peer, err)
	}
	c.watches = c.Watch(
		loop.From(c.home, func(obj any) []loop.Key { return c.keys(obj, c.local) }),
		loop.From(c.remote, func(obj any) []loop.Key { return c.keys(obj, c.cfg.remoteNamespace()) }),
	)
	return nil
}

// watchError verifies the identity of a peer that rejects a watch. If this cluster has
// lost its rights, Identity reports it in the ForeignCluster, and no other call of
// Identity happens before the caches have synced.
func (c *channel[T]) watchError(ctx context.Context, r *cache.Reflector, err error) {
	cache.DefaultWatchErrorHandler(ctx, r, err)
	if apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) {
		if err := c.verify(ctx); err != nil {
			c.cfg.Log.Debug("peer refuses to be watched", zap.String("peer", c.peer), zap.Error(err))
		}
	}
	if c.onWatchError != nil {
		c.onWatchError(ctx, err)
	}
}

// run replicates until ctx is done. When it returns, nothing is running and no handler is
// registered.
func (c *channel[T]) run(ctx context.Context) {
	c.factory.Start(ctx.Done())
	_ = c.Run(ctx, channelWorkers) // the informers have not stopped
	c.factory.Shutdown()
	_ = c.home.RemoveEventHandler(c.watches[0]) // fails only for a stopped informer
	c.cfg.Forget(c.Name())
}

// keys returns the key of an object in the tenant namespace of either cluster.
func (c *channel[T]) keys(obj any, namespace string) []loop.Key {
	m, ok := obj.(metav1.Object)
	if !ok || m.GetNamespace() != namespace || !c.of.concerns(c.peer, m.GetName()) {
		return nil
	}
	return []loop.Key{{Namespace: c.local, Name: m.GetName()}}
}

// both returns the cached objects of this cluster and of the peer; zero if one does not
// exist.
func (c *channel[T]) both(name string) (home, remote T) {
	return store.Cached[T](c.home.GetStore(), cache.NewObjectName(c.local, name)),
		store.Cached[T](c.remote.GetStore(), cache.NewObjectName(c.cfg.remoteNamespace(), name))
}

// copyOf returns have, which may be changed then, or a new object of that name.
func (c *channel[T]) copyOf(have T, namespace, name string) T {
	var none T
	if have != none {
		return have.DeepCopy()
	}
	o := c.of.empty()
	o.SetNamespace(namespace)
	o.SetName(name)
	return o
}

// here and there return the clients for this cluster and for the peer.
func (c *channel[T]) here() writer[T]  { return c.of.client(c.cfg.Liqo, c.local) }
func (c *channel[T]) there() writer[T] { return c.of.client(c.way.Liqo, c.cfg.remoteNamespace()) }

// verify checks that the cluster that answers is still the recorded peer.
func (c *channel[T]) verify(ctx context.Context) error {
	if err := c.way.Identity(ctx); err != nil {
		return peerError{fmt.Errorf("verifying the cluster that answers for %s: %w", c.peer, err)}
	}
	return nil
}
