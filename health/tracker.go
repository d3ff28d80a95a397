// Package health judges processes and their peers. A Tracker judges a process by the queues of
// its loops. A Prober and a Dwell make a verdict that does not flap from the results of single
// probes. A Server answers HTTP requests with the results. The package depends on no loop and no
// kind of probe: callers pass the events to it.
package health

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
)

// Tracker finds work that is overdue: alive means not late, so a process with nothing
// to do is as alive as a busy one. It has the methods of an observer of work-queue
// loops. A Tracker is safe for concurrent use.
//
// A loop is judged only after the first sync that it finished since the Tracker was
// made or last resumed: before that it waits for its caches, for as long as an API
// server is away, and a restart would not help.
type Tracker struct {
	lateAfter time.Duration
	clock     clock.PassiveClock

	// Caught may be nil. It is called when a sync of a key has succeeded, with the time since
	// the key was queued, syncs that failed included. It must be set before the first use,
	// and must not block.
	Caught func(loop string, lag time.Duration)

	mu     sync.Mutex
	paused bool
	loops  map[string]*loopState
}

type loopState struct {
	waiting map[cache.ObjectName]time.Time // when each key began to wait for its next sync
	behind  map[cache.ObjectName]time.Time // when each key began to wait for a sync that succeeds
	working bool                           // a sync has finished since the last resume
	last    time.Time                      // when a sync last finished
	newest  time.Time                      // the latest time at which a synced key was queued
}

// NewTracker returns a Tracker. A key is late when it has waited longer than lateAfter.
func NewTracker(lateAfter time.Duration, clk clock.PassiveClock) *Tracker {
	return &Tracker{lateAfter: lateAfter, clock: clk, loops: map[string]*loopState{}}
}

// Queued records that key of loop waits to be synced, if it does not wait already.
func (t *Tracker) Queued(loop string, key cache.ObjectName) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.loop(loop)
	if _, ok := s.waiting[key]; !ok {
		s.waiting[key] = t.clock.Now()
	}
	if _, ok := s.behind[key]; !ok {
		s.behind[key] = t.clock.Now()
	}
}

// Synced records that a sync of key has finished, with or without an error: a process that
// retries a key does not hang.
func (t *Tracker) Synced(loop string, key cache.ObjectName, _ time.Duration, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.loop(loop)
	s.working, s.last = true, t.clock.Now()
	if queued, ok := s.waiting[key]; ok {
		delete(s.waiting, key)
		if queued.After(s.newest) {
			s.newest = queued
		}
	}
	if since, ok := s.behind[key]; ok && err == nil {
		delete(s.behind, key)
		if t.Caught != nil {
			t.Caught(loop, t.clock.Since(since))
		}
	}
}

// Behind returns, for each loop, how long its oldest key has waited for a sync that
// succeeds; 0 if no key waits.
func (t *Tracker) Behind() map[string]time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	now, out := t.clock.Now(), make(map[string]time.Duration, len(t.loops))
	for name, s := range t.loops {
		out[name] = 0
		for _, since := range s.behind {
			out[name] = max(out[name], now.Sub(since))
		}
	}
	return out
}

// Forget drops the state of a loop that ends before the process does.
func (t *Tracker) Forget(loop string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.loops, loop)
}

// Pause forgets everything and judges nothing until Resume: the loops stand still, as
// they do in a replica that does not lead.
func (t *Tracker) Pause() { t.set(true) }

// Resume forgets everything and judges again: the loops start.
func (t *Tracker) Resume() { t.set(false) }

func (t *Tracker) set(paused bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.paused = paused
	clear(t.loops)
}

// Check returns an error that names each loop that is late, and its oldest key, or nil.
func (t *Tracker) Check() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.paused {
		return nil
	}
	now := t.clock.Now()
	var errs []error
	for name, s := range t.loops {
		if key, wait, late := s.late(now, t.lateAfter); late {
			errs = append(errs, fmt.Errorf("loop %s: key %s has waited %s, more than %s",
				name, key, wait.Round(time.Second), t.lateAfter))
		}
	}
	slices.SortFunc(errs, func(a, b error) int { return cmp.Compare(a.Error(), b.Error()) })
	return errors.Join(errs...)
}

// loop needs mu.
func (t *Tracker) loop(name string) *loopState {
	s, ok := t.loops[name]
	if !ok {
		s = &loopState{waiting: map[cache.ObjectName]time.Time{}, behind: map[cache.ObjectName]time.Time{}}
		t.loops[name] = s
	}
	return s
}

// late returns the oldest key, its wait, and whether it is overdue because the loop hangs. Keys
// leave a long queue in turn, so a long wait alone is no sign. The loop hangs if no sync has
// finished for limit, or if a key that was queued limit later has been synced before (one worker
// of several hangs).
func (s *loopState) late(now time.Time, limit time.Duration) (oldest cache.ObjectName, wait time.Duration, late bool) {
	if !s.working {
		return oldest, 0, false
	}
	for key, since := range s.waiting {
		if w := now.Sub(since); w > wait {
			oldest, wait = key, w
		}
	}
	queued := now.Add(-wait)
	stuck := now.Sub(s.last) > limit || s.newest.Sub(queued) > limit
	return oldest, wait, wait > limit && stuck
}
