package replication

import (
	"context"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/api/generated/clientset/versioned"
	externalversions "github.com/liqod/liqod/api/generated/informers/externalversions"
	"github.com/liqod/liqod/kube/loop"
)

const (
	channelWorkers = 2
	// cacheDelay is how long a cache is given to catch up with what a live read has shown.
	cacheDelay = time.Second
)

// object is what every replicated kind is.
type object[T any] interface {
	metav1.Object
	DeepCopy() T
	comparable
}

// writer is the part of a generated client that replication uses.
type writer[T any] interface {
	Get(ctx context.Context, name string, opts metav1.GetOptions) (T, error)
	Create(ctx context.Context, obj T, opts metav1.CreateOptions) (T, error)
	Update(ctx context.Context, obj T, opts metav1.UpdateOptions) (T, error)
	UpdateStatus(ctx context.Context, obj T, opts metav1.UpdateOptions) (T, error)
	Delete(ctx context.Context, name string, opts metav1.DeleteOptions) error
}

// kind is what is said of every replicated kind, whichever way it flows.
type kind[T object[T]] struct {
	name string
	// concerns reports whether an object of that name is between this cluster and the
	// peer as its provider: both clusters use the same names.
	concerns func(peer, name string) bool
	// selector picks the peer's objects that are watched, by label.
	selector string
	// empty returns a new object.
	empty func() T
	// same reports whether two objects are equal in what replication writes.
	same func(a, b T) bool

	client   func(c versioned.Interface, namespace string) writer[T]
	informer func(f externalversions.SharedInformerFactory) cache.SharedIndexInformer
}

// channel joins this cluster and one peer for the objects of one kind, for as long as one
// connection lasts. Keys are names in the tenant namespace of the peer.
type channel[T object[T]] struct {
	*loop.Loop
	of    kind[T]
	cfg   Config
	peer  string
	way   Peer
	local string // tenant namespace of the peer, here
	home  cache.SharedIndexInformer
	// onWatchError, if not nil, is told when the peer cannot be watched.
	onWatchError func(ctx context.Context, err error)

	factory externalversions.SharedInformerFactory
	remote  cache.SharedIndexInformer
	watches []cache.ResourceEventHandlerRegistration // of both
}

func newChannel[T object[T]](cfg Config, of kind[T], home cache.SharedIndexInformer, peer string, way Peer, sync loop.SyncFunc) *channel[T] {
	c := &channel[T]{of: of, cfg: cfg, peer: peer, way: way, local: corev1beta1.TenantNamespace(peer), home: home}
	observer := cfg.Observer
	if observer != nil {
		observer = awake{observer, c.synced}
	}
	// The name is the peer's own: who is at work with one peer may wait for another.
	c.Loop = loop.New(loop.Config{Name: "replica-" + of.name + "-" + peer, Sync: sync, Log: cfg.Log.With(zap.String("peer", peer)), Observer: observer})
	return c
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

func (c *channel[T]) synced() bool {
	return !slices.ContainsFunc(c.watches, func(r cache.ResourceEventHandlerRegistration) bool { return !r.HasSynced() })
}

// wire registers with the informers of both sides.
func (c *channel[T]) wire() error {
	c.factory = externalversions.NewSharedInformerFactoryWithOptions(c.way.Liqo, 0,
		externalversions.WithNamespace(c.cfg.remoteNamespace()),
		externalversions.WithTransform(func(obj any) (any, error) {
			if m, ok := obj.(metav1.Object); ok {
				m.SetManagedFields(nil)
			}
			return obj, nil
		}),
		externalversions.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = c.of.selector }))
	c.remote = c.of.informer(c.factory)
	reg, err := c.Watch(c.home, func(obj any) []loop.Key {
		m, ok := obj.(metav1.Object)
		if !ok || m.GetNamespace() != c.local {
			return nil
		}
		return c.keys(m)
	})
	if err != nil {
		return err
	}
	c.watches = append(c.watches, reg)
	if err := c.remote.SetWatchErrorHandlerWithContext(c.watchError); err != nil {
		return fmt.Errorf("watching the %ss of %s: %w", c.of.name, c.peer, err)
	}
	reg, err = c.Watch(c.remote, func(obj any) []loop.Key {
		m, ok := obj.(metav1.Object)
		if !ok {
			return nil
		}
		return c.keys(m)
	})
	c.watches = append(c.watches, reg)
	return err
}

// watchError asks a peer that refuses to be watched who it is: where this cluster has no
// rights any more that is told there, and nothing else asks before all is in the caches.
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

// run replicates until ctx is done and leaves nothing running or registered.
func (c *channel[T]) run(ctx context.Context) {
	c.factory.Start(ctx.Done())
	_ = c.Run(ctx, channelWorkers) // a loop's Run has no error to give
	c.factory.Shutdown()
	_ = c.home.RemoveEventHandler(c.watches[0]) // fails only for an informer that has ended
	if c.cfg.Forget != nil {
		c.cfg.Forget(c.Name())
	}
}

// keys returns the key of an object of either side.
func (c *channel[T]) keys(m metav1.Object) []loop.Key {
	if !c.of.concerns(c.peer, m.GetName()) {
		return nil
	}
	return []loop.Key{{Namespace: c.local, Name: m.GetName()}}
}

func (c *channel[T]) get(inf cache.SharedIndexInformer, namespace, name string) (T, error) {
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
		return none, fmt.Errorf("the cache of %s holds a %T", c.of.name, obj)
	}
	return t, nil
}

// both returns an object and its copy, as the caches have them; zero where there is none.
func (c *channel[T]) both(name string) (home, remote T, err error) {
	if home, err = c.get(c.home, c.local, name); err != nil {
		return home, remote, err
	}
	remote, err = c.get(c.remote, c.cfg.remoteNamespace(), name)
	return home, remote, err
}

// here and there are the clients of this cluster and of the peer.
func (c *channel[T]) here() writer[T]  { return c.of.client(c.cfg.Liqo, c.local) }
func (c *channel[T]) there() writer[T] { return c.of.client(c.way.Liqo, c.cfg.remoteNamespace()) }

// verify makes sure that the peer is who it was.
func (c *channel[T]) verify(ctx context.Context) error {
	if err := c.way.Identity(ctx); err != nil {
		return peerError{fmt.Errorf("verifying the cluster that answers for %s: %w", c.peer, err)}
	}
	return nil
}
