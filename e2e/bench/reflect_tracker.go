package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// gone is the version of an object that has been deleted.
const gone = int32(-1)

// arrivals follows, by watches of its own, the objects of one contestant in the provider,
// until all have arrived at a version.
type arrivals struct {
	version int32
	want    int
	// ended ends when nothing is followed any more; why says why.
	ended  <-chan struct{}
	why    func() error
	cancel context.CancelCauseFunc
	wg     sync.WaitGroup
	all    chan struct{} // ends when all have arrived

	mu    sync.Mutex
	seen  map[string]time.Time     // by kind and name
	waits map[string]chan struct{} // ends when the object arrives
}

// newArrivals also returns the context to follow in.
func newArrivals(ctx context.Context, version int32, want int) (context.Context, *arrivals) {
	ctx, cancel := context.WithCancelCause(ctx)
	return ctx, &arrivals{
		version: version, want: want, all: make(chan struct{}), seen: map[string]time.Time{}, waits: map[string]chan struct{}{},
		ended: ctx.Done(), why: func() error { return context.Cause(ctx) }, cancel: cancel,
	}
}

// awaitArrivals begins with what is there now, and follows until ctx is done.
func (w *world) awaitArrivals(ctx context.Context, c *contestant, kinds []objectKind, version int32, want int) (*arrivals, error) {
	ctx, a := newArrivals(ctx, version, want)
	for _, k := range kinds {
		s := k.source(w.atMilan.core, c.away)
		list, err := s.list(ctx, metav1.ListOptions{})
		if err != nil {
			a.stop()
			return nil, fmt.Errorf("listing %s in milan: %w", k.resource, err)
		}
		from, err := resourceVersion(list)
		if err != nil {
			a.stop()
			return nil, err
		}
		a.wg.Go(func() {
			err := s.follow(ctx, from, func(object metav1.Object, deleted bool) { a.see(k, object, deleted, time.Now()) })
			if err != nil {
				a.cancel(fmt.Errorf("%s in milan: %w", k.resource, err))
			}
		})
	}
	return a, nil
}

func (a *arrivals) see(k objectKind, object metav1.Object, deleted bool, now time.Time) {
	version := k.version(object)
	if deleted {
		version = gone
	}
	if version != a.version {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	key := objectKey(k, object.GetName())
	if _, known := a.seen[key]; known {
		return
	}
	a.seen[key] = now
	if c, waited := a.waits[key]; waited {
		close(c)
	}
	if len(a.seen) == a.want {
		close(a.all)
	}
}

// waitFor returns when one object has arrived.
func (a *arrivals) waitFor(key string) error {
	select {
	case <-a.arrival(key):
		return nil
	case <-a.ended:
		return a.why()
	}
}

// arrival ends when the object arrives, or has arrived. It is asked for once for each.
func (a *arrivals) arrival(key string) <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	c := make(chan struct{})
	if _, there := a.seen[key]; there {
		close(c)
	} else {
		a.waits[key] = c
	}
	return c
}

// wait returns when each object arrived.
func (a *arrivals) wait() (map[string]time.Time, error) {
	select {
	case <-a.all:
	case <-a.ended:
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.seen) < a.want {
		return nil, fmt.Errorf("waiting for %d objects at version %d, %d are there: %w", a.want, a.version, len(a.seen), a.why())
	}
	return a.seen, nil
}

func (a *arrivals) stop() {
	a.cancel(nil)
	a.wg.Wait()
}

func objectKey(k objectKind, name string) string { return k.name + "/" + name }
