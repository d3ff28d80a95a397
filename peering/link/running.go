package link

import (
	"context"
	"sync"
)

// running is a goroutine that works for one peer until it is stopped.
type running struct {
	cancel context.CancelFunc
	done   chan struct{} // closed when it has ended
}

// run starts work, which returns soon after its context is done.
func run(ctx context.Context, work func(context.Context)) running {
	ctx, cancel := context.WithCancel(ctx)
	r := running{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(r.done)
		work(ctx)
	}()
	return r
}

func (r running) stop() {
	r.cancel()
	<-r.done
}

// stopOne stops what runs for a peer, if there is anything, and waits for it. mu guards all.
func stopOne[T interface{ stop() }](mu *sync.Mutex, all map[string]T, id string) {
	mu.Lock()
	one, ok := all[id]
	delete(all, id)
	mu.Unlock()
	if ok {
		one.stop()
	}
}
