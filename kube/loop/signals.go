package loop

import (
	"context"
	"sync"
	"time"

	"k8s.io/utils/clock"
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

// Value is a value that several goroutines read and replace. It begins as the zero value of its type.
type Value[T any] struct {
	mu    sync.Mutex
	value T
}

// Get returns the value.
func (v *Value[T]) Get() T {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.value
}

// Swap replaces the value, and returns the former one.
func (v *Value[T]) Swap(next T) (before T) {
	v.mu.Lock()
	defer v.mu.Unlock()
	before, v.value = v.value, next
	return before
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

// Rounds is a sequence that begins at once. The next round begins when the period of a ticker has
// passed, or when wake, which may be nil, is received from. The sequence ends when ctx is done.
func Rounds(ctx context.Context, c clock.WithTicker, period time.Duration, wake <-chan struct{}) func(func() bool) {
	return func(yield func() bool) {
		ticker := c.NewTicker(period)
		defer ticker.Stop()
		for yield() {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C():
			case <-wake:
			}
		}
	}
}

// Ticks is Rounds without the first round.
func Ticks(ctx context.Context, c clock.WithTicker, period time.Duration, wake <-chan struct{}) func(func() bool) {
	return func(yield func() bool) {
		begun := false
		for range Rounds(ctx, c, period, wake) {
			if begun && !yield() {
				return
			}
			begun = true
		}
	}
}

// Pause waits for d. It returns an error if ctx is done before.
func Pause(ctx context.Context, d time.Duration) error { return Sleep(ctx, clock.RealClock{}, d) }

// Sleep is Pause by a clock.
func Sleep(ctx context.Context, c clock.Clock, d time.Duration) error {
	timer := c.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
