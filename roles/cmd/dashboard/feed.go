package dashboard

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// feed reads the cluster when a page asks for its state. It sends no request while nobody asks.
type feed struct {
	Config
	mu      sync.Mutex // is held while the cluster is read: pages that ask meanwhile get that state, too
	counted *reading   // of the last state
	last    *View      // the last one that the cluster has answered
	latest  []byte
	taken   time.Time // when latest was read, by the clock of this machine
}

// slack is added to the time in which the page expects a state: after it the page calls its state old. A feed that
// nobody has asked for Every and slack has paused: it compares no counts with those of before.
const slack = 5 * time.Second

// current returns the state, which is read if the one before is as old as the pause between two reads. A page asks
// after this pause, by its own clock. It returns nil if ctx ends first.
func (f *feed) current(ctx context.Context) []byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch age := time.Since(f.taken); {
	case age < f.Every-f.Every/10:
		return f.latest
	case age > f.Every+slack:
		f.counted = nil
	}
	shown := f.read(ctx)
	if ctx.Err() != nil {
		return nil
	}
	shown.Every, shown.Patience = f.Every.Seconds(), (f.Every + f.Timeout + slack).Seconds()
	data, err := printable(shown)
	if err != nil {
		data, _ = printable(nothing(fmt.Errorf("encoding the state: %w", err))) // of texts only
	}
	f.latest, f.taken = data, time.Now()
	return data
}

// read returns the state of now, or the last one with the reason for which there is no newer.
func (f *feed) read(ctx context.Context) *View {
	ctx, cancel := context.WithTimeoutCause(ctx, f.Timeout, fmt.Errorf("no answer within %s", f.Timeout))
	defer cancel()
	p, err := take(ctx, f.Source)
	switch {
	case err == nil:
		p.before, f.counted = f.counted, p.counted
		f.last = view(p)
		return f.last
	case f.last == nil:
		return nothing(err)
	}
	return f.last.outdated(err)
}
