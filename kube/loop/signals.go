package loop

import (
	"context"
	"sync"
	"time"
)

// Listeners are functions that are called with what has changed. The zero value has none. They
// are safe for concurrent use.
type Listeners[T any] struct {
	mu  sync.Mutex
	all []func(T)
}

// Subscribe adds f. f must not block.
func (l *Listeners[T]) Subscribe(f func(T)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, f)
}

// Tell calls all functions with changed. The caller must hold no lock that they need.
func (l *Listeners[T]) Tell(changed T) {
	l.mu.Lock()
	all := l.all
	l.mu.Unlock()
	for _, f := range all {
		f(changed)
	}
}

// Signal wakes a goroutine that receives from it. Signals that have not been received are one.
type Signal chan struct{}

// NewSignal returns a Signal that keeps one until it is received.
func NewSignal() Signal { return make(Signal, 1) }

// Notify wakes the receiver. It does not block.
func (s Signal) Notify() {
	select {
	case s <- struct{}{}:
	default:
	}
}

// Start runs work in the background. stop ends its context, and returns when all of it has
// returned. It may be called more than once.
func Start(ctx context.Context, work ...func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	for _, run := range work {
		running.Go(func() { run(ctx) })
	}
	return func() {
		cancel()
		running.Wait()
	}
}

// Pause waits for d. It returns an error if ctx is done before.
func Pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
