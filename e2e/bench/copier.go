package main

import (
	"context"
	"fmt"
	"os"
	"sync"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/liqod/liqod/kube/loop"
)

// copier keeps the copies of one kind.
type copier interface {
	// start returns when both caches are filled.
	start(ctx context.Context) error
	// work returns when ctx has ended.
	work(ctx context.Context, workers int)
}

// object is a pointer to a typed object.
type copierObject interface {
	comparable
	metav1.Object
	runtime.Object
}

// writer is what is needed of a typed client.
type copierWriter[T any] interface {
	Create(ctx context.Context, obj T, opts metav1.CreateOptions) (T, error)
	Update(ctx context.Context, obj T, opts metav1.UpdateOptions) (T, error)
	Delete(ctx context.Context, name string, opts metav1.DeleteOptions) error
}

type copierConfig[T copierObject] struct {
	kind          string
	local, remote cache.SharedIndexInformer
	away          copierWriter[T]
	empty         func() T
	carry         func(from, into T)
}

type kindCopier[T copierObject] struct {
	copierConfig[T]
	homeNamespace, awayNamespace string
	queue                        workqueue.TypedRateLimitingInterface[string]
	// deleted has the UIDs of what the cache still shows.
	deleted sync.Map
}

func newCopier[T copierObject](c copierConfig[T], o copierOptions) copier {
	return &kindCopier[T]{
		copierConfig: c, homeNamespace: o.homeNamespace, awayNamespace: o.awayNamespace,
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](firstRetry, lastRetry)),
	}
}

func (c *kindCopier[T]) start(ctx context.Context) error {
	for _, informer := range []cache.SharedIndexInformer{c.local, c.remote} {
		_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: c.enqueue, UpdateFunc: func(_, obj any) { c.enqueue(obj) }, DeleteFunc: c.enqueue,
		})
		if err != nil {
			return fmt.Errorf("watching %ss: %w", c.kind, err)
		}
		go informer.RunWithContext(ctx)
	}
	if !cache.WaitForCacheSync(ctx.Done(), c.local.HasSynced, c.remote.HasSynced) {
		return fmt.Errorf("watching %ss: %w", c.kind, errNotFilled)
	}
	return nil
}

func (c *kindCopier[T]) enqueue(obj any) {
	if o, ok := loop.Object[T](obj); ok {
		c.queue.Add(o.GetName())
	}
}

func (c *kindCopier[T]) work(ctx context.Context, workers int) {
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for c.next(ctx) {
			}
		})
	}
	<-ctx.Done()
	c.queue.ShutDown()
	wg.Wait()
}

func (c *kindCopier[T]) next(ctx context.Context) bool {
	name, over := c.queue.Get()
	if over {
		return false
	}
	defer c.queue.Done(name)
	if err := c.sync(ctx, name); err != nil {
		if ctx.Err() == nil {
			fmt.Fprintf(os.Stderr, "copier: %s %s: %v\n", c.kind, name, err)
		}
		c.queue.AddRateLimited(name)
		return true
	}
	c.queue.Forget(name)
	return true
}

func (c *kindCopier[T]) sync(ctx context.Context, name string) error {
	var none T
	local, remote := copierCached[T](c.local, c.homeNamespace, name), copierCached[T](c.remote, c.awayNamespace, name)
	switch {
	case local == none && remote == none:
		return nil
	case local == none:
		return c.delete(ctx, remote)
	case remote == none:
		_, err := c.away.Create(ctx, c.wanted(local, c.empty()), metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			return nil // the cache is about to show it
		}
		return err
	}
	want := c.wanted(local, remote)
	if equality.Semantic.DeepEqual(want, remote) {
		return nil
	}
	_, err := c.away.Update(ctx, want, metav1.UpdateOptions{})
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil // the cache is about to show why
	}
	return err
}

// wanted is a copy of have, which may be empty, that carries what local has.
func (c *kindCopier[T]) wanted(local, have T) T {
	want := have.DeepCopyObject().(T)
	want.SetName(local.GetName())
	want.SetNamespace(c.awayNamespace)
	want.SetLabels(local.GetLabels())
	want.SetAnnotations(local.GetAnnotations())
	c.carry(local, want)
	return want
}

func (c *kindCopier[T]) delete(ctx context.Context, remote T) error {
	if _, done := c.deleted.Load(remote.GetUID()); done {
		return nil
	}
	err := c.away.Delete(ctx, remote.GetName(), metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(remote.GetUID()))})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return err
	}
	c.deleted.Store(remote.GetUID(), nil)
	return nil
}

func copierCached[T copierObject](informer cache.SharedIndexInformer, namespace, name string) T {
	var none T
	obj, found, err := informer.GetStore().GetByKey(namespace + "/" + name)
	if o, ok := obj.(T); ok && found && err == nil {
		return o
	}
	return none
}
