package kinds

import (
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/reflect/forge"
)

// Why an event is not written, in metrics.
const (
	// droppedOverflow says that too many wait.
	droppedOverflow = "overflow"
	// droppedStale says that it happened long before it was seen.
	droppedStale = "stale"
	// droppedRefused says that the API server refuses it.
	droppedRefused = "refused"
)

// expireEvery is the least time between two looks at all that is known.
const expireEvery = time.Minute

// backlogConfig says how much waits, and how long.
type backlogConfig struct {
	// limit is how many events wait at most.
	limit int
	// kept is how many events are known at most, those that home has among them: what a
	// provider can make us keep, here and at home, ends there.
	kept int
	// stays is how long home keeps an event after it was last written.
	stays time.Duration
	// interval is the least time between two writes of one event.
	interval time.Duration
	// tooOld is the age from which an event that was listed, not watched, is not told.
	tooOld time.Duration
	// dropped is told the reason of each event that is given up.
	dropped func(reason string)
}

// backlog has what is to be written home, one entry for each event of the provider however
// often it happens, and remembers what home has. It keeps no more of an event that is
// written than that. It is safe for concurrent use, and reads no clock.
type backlog struct {
	cfg backlogConfig

	mu      sync.Mutex
	entries map[loop.Key]*entry
	waiting map[loop.Key]*entry
	// told is when the newest event happened that home had, of each namespace and type, when
	// this process began. Of those before it, what home lacks altogether was dropped.
	told map[kindOfEvent]int64
	// expired is when expire was last at work.
	expired time.Time
	wake    chan struct{}
}

// kindOfEvent are events that are written in the order in which they come.
type kindOfEvent struct{ namespace, eventType string }

// entry is one event. Its key is its name at home.
type entry struct {
	key loop.Key
	// latest waits to be written; nil: nothing does.
	latest *corev1.Event
	due    time.Time
	tries  int
	// home is the state that home has, if written, and until is when home forgets it.
	home    forge.EventState
	written bool
	until   time.Time
	// busy: a worker has it.
	busy bool
	// gone: the provider has it no more.
	gone bool
}

// job is an event that is to be written now.
type job struct {
	key  loop.Key
	want *corev1.Event
	// exists says that home has an earlier state of it.
	exists bool
	// tries is how often its object has been looked for in vain.
	tries int
	entry *entry
}

func newBacklog(cfg backlogConfig) *backlog {
	return &backlog{cfg: cfg, entries: map[loop.Key]*entry{}, waiting: map[loop.Key]*entry{}, told: map[kindOfEvent]int64{}, wake: make(chan struct{}, 1)}
}

// seed notes that home has an event, now. When it was last written is not known.
func (b *backlog) seed(have *corev1.Event, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	key := loop.Key{Namespace: have.Namespace, Name: have.Name}
	e := &entry{key: key, home: forge.StateOf(have), written: true, until: now.Add(b.cfg.stays)}
	b.entries[key] = e
	kind := kindOfEvent{have.Namespace, have.Type}
	b.told[kind] = max(b.told[kind], e.home.Last())
}

// put takes the state of an event, forged for home. One that was listed may have happened
// long ago.
func (b *backlog) put(want *corev1.Event, listed bool, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.expire(now)
	key := loop.Key{Namespace: want.Namespace, Name: want.Name}
	e := b.entries[key]
	state := forge.StateOf(want)
	switch {
	case e == nil && listed && state.Last() > 0 && state.Last() < b.told[kindOfEvent{want.Namespace, want.Type}]:
		return
	case e == nil:
		if listed && state.Last() > 0 && now.Sub(time.UnixMicro(state.Last())) > b.cfg.tooOld {
			b.cfg.dropped(droppedStale)
			return
		}
		if len(b.entries) >= b.cfg.kept {
			b.cfg.dropped(droppedOverflow)
			return
		}
		e = &entry{key: key, due: now}
	case e.latest != nil && !state.After(forge.StateOf(e.latest)), e.written && !state.After(e.home):
		e.gone = false
		return
	}
	if e.latest == nil && !e.busy && !b.makeRoom(want.Type) {
		b.cfg.dropped(droppedOverflow)
		return
	}
	e.latest, e.gone = want, false
	b.entries[key] = e
	b.wait(e)
}

// wait lets an entry with something to write stand in line, unless a worker has it.
func (b *backlog) wait(e *entry) {
	if e.busy {
		return
	}
	b.waiting[e.key] = e
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// makeRoom reports whether one more may wait: it takes the place of the one that has waited
// longest, of those that are not warnings if there are any. What is no warning has no place
// among warnings.
func (b *backlog) makeRoom(eventType string) bool {
	if len(b.waiting) < b.cfg.limit {
		return true
	}
	var out *entry
	for _, e := range b.waiting {
		if out == nil || e.yields(out) {
			out = e
		}
	}
	if eventType != corev1.EventTypeWarning && out.latest.Type == corev1.EventTypeWarning {
		return false
	}
	delete(b.waiting, out.key)
	out.latest = nil
	b.settle(out)
	b.cfg.dropped(droppedOverflow)
	return true
}

// yields reports whether e is given up before other is.
func (e *entry) yields(other *entry) bool {
	warning, otherWarning := e.latest.Type == corev1.EventTypeWarning, other.latest.Type == corev1.EventTypeWarning
	if warning != otherWarning {
		return otherWarning
	}
	return e.due.Before(other.due)
}

// remove notes that the provider has an event no more. What waits is written still: it did
// happen.
func (b *backlog) remove(key loop.Key) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e := b.entries[key]; e != nil {
		e.gone = true
		b.settle(e)
	}
}

// replace takes the whole list of a namespace: what it lacks is gone.
func (b *backlog) replace(namespace string, list []*corev1.Event, now time.Time) {
	there := make(map[string]bool, len(list))
	for _, want := range list {
		there[want.Name] = true
	}
	b.mu.Lock()
	for key, e := range b.entries {
		if key.Namespace == namespace && !there[key.Name] {
			e.gone = true
			b.settle(e)
		}
	}
	b.mu.Unlock()
	for _, want := range list {
		b.put(want, true, now)
	}
}

// settle drops an entry that nothing is to be remembered of. What home has counts for as
// long as home has it: a provider that deletes an event takes nothing from there.
func (b *backlog) settle(e *entry) {
	if e.idle() && !e.written {
		delete(b.entries, e.key)
	}
}

// expire drops what neither side has any more.
func (b *backlog) expire(now time.Time) {
	if now.Sub(b.expired) < expireEvery {
		return
	}
	b.expired = now
	maps.DeleteFunc(b.entries, func(_ loop.Key, e *entry) bool { return e.idle() && e.gone && !now.Before(e.until) })
}

// idle reports whether there is nothing to write.
func (e *entry) idle() bool { return !e.busy && e.latest == nil }

// forget forgets a namespace, but for how much home has of it: a provider closes
// namespaces when it likes.
func (b *backlog) forget(namespace string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for key, e := range b.entries {
		switch {
		case key.Namespace != namespace:
		case e.written:
			// Another one, so that a worker that has the old one leaves it alone.
			b.entries[key] = &entry{key: key, home: e.home, written: true, until: e.until, gone: true}
		default:
			delete(b.entries, key)
		}
	}
	maps.DeleteFunc(b.waiting, func(key loop.Key, _ *entry) bool { return key.Namespace == namespace })
	maps.DeleteFunc(b.told, func(k kindOfEvent, _ int64) bool { return k.namespace == namespace })
}

// next returns the event that is to be written first: warnings before others, then what
// has waited longest. Without one it returns how long it is until the next; 0 is for ever.
func (b *backlog) next(now time.Time) (j job, wait time.Duration, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var first *entry
	for _, e := range b.waiting {
		if left := e.due.Sub(now); left > 0 {
			if wait == 0 || left < wait {
				wait = left
			}
			continue
		}
		if first == nil || e.before(first) {
			first = e
		}
	}
	if first == nil {
		return job{}, wait, false
	}
	delete(b.waiting, first.key)
	j = job{key: first.key, want: first.latest, exists: first.written, tries: first.tries, entry: first}
	first.latest, first.busy = nil, true
	return j, 0, true
}

func (e *entry) before(other *entry) bool {
	warning, otherWarning := e.latest.Type == corev1.EventTypeWarning, other.latest.Type == corev1.EventTypeWarning
	if warning != otherWarning {
		return warning
	}
	return e.due.Before(other.due)
}

// wrote says that home has what the job wanted.
func (b *backlog) wrote(j job, now time.Time) {
	b.finish(j, func(e *entry) {
		e.home, e.written, e.tries, e.due = forge.StateOf(j.want), true, 0, now.Add(b.cfg.interval)
		e.until = now.Add(b.cfg.stays)
	})
}

// again has the job come again later, or what has happened since in its place. home tells
// whether home has an earlier state.
func (b *backlog) again(j job, home bool, due time.Time) {
	b.finish(j, func(e *entry) {
		if e.latest == nil {
			e.latest = j.want
		}
		e.written, e.due, e.tries = home, due, j.tries
	})
}

// spare has the job come again later where it takes no place from others.
func (b *backlog) spare(j job, due time.Time) {
	b.mu.Lock()
	room := len(b.waiting) < b.cfg.limit/2
	b.mu.Unlock()
	if room {
		b.again(j, false, due)
		return
	}
	b.drop(j, due)
}

// drop gives the job up. What happens later is tried again.
func (b *backlog) drop(j job, now time.Time) {
	b.finish(j, func(e *entry) { e.tries, e.due = 0, now.Add(b.cfg.interval) })
}

func (b *backlog) finish(j job, change func(*entry)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := j.entry
	if b.entries[j.key] != e {
		return // its namespace has been closed
	}
	e.busy = false
	change(e)
	if e.latest != nil && e.written && !forge.StateOf(e.latest).After(e.home) {
		e.latest = nil // came while it was being written
	}
	if e.latest != nil {
		b.wait(e)
		return
	}
	b.settle(e)
}
