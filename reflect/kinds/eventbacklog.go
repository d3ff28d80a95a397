package kinds

import (
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/reflect/forge"
)

// Reasons for dropping an event, as labels of a metric.
const (
	// droppedOverflow means that too many events wait.
	droppedOverflow = "overflow"
	// droppedStale means that the event occurred long before it was listed.
	droppedStale = "stale"
	// droppedRefused means that the API server rejected the event.
	droppedRefused = "refused"
	// droppedRate means that the provider writes too many events about one object, or the same
	// ones too often.
	droppedRate = "rate"
)

// expireEvery is the minimum time between two searches for expired entries.
const expireEvery = time.Minute

// backlogConfig has the limits of a backlog.
type backlogConfig struct {
	// limit is the maximum number of waiting events.
	limit int
	// kept is the maximum number of entries, including those for events that were already
	// written. It bounds what a provider can make this cluster store, in memory and in
	// etcd.
	kept int
	// stays is how long the consumer's API server keeps an event after its last write.
	stays time.Duration
	// interval is the minimum time between two writes of one event.
	interval time.Duration
	// tooOld is the age from which a listed event is dropped. Watched events have no
	// maximum age.
	tooOld time.Duration
	// dropped is called with the reason of each dropped event.
	dropped func(reason string)
}

// backlog is the queue of events to write to the consumer, and the memory of those that
// were written. It has one entry per event of the provider, however often the event
// occurs. Of a written event it keeps only the state. It is safe for concurrent use and
// does not read the clock.
type backlog struct {
	cfg backlogConfig

	mu      sync.Mutex
	entries map[loop.Key]*entry
	waiting map[loop.Key]*entry
	// told is the time of the newest event that had been written before this process
	// started, by namespace and type. Events are written in order, so the previous process
	// has dropped any older event that was never written.
	told map[kindOfEvent]int64
	// expired is the time of the last search for expired entries.
	expired time.Time
	wake    loop.Signal
}

// kindOfEvent is a set of events that are written in the order of their arrival.
type kindOfEvent struct{ namespace, eventType string }

// entry is one event. key is the namespace and name of its copy in the consumer.
type entry struct {
	key loop.Key
	// latest is the event to write; nil if there is nothing to write.
	latest *corev1.Event
	due    time.Time
	// tries is the number of failed searches for the object that the event is about.
	tries int
	// home is the state in the consumer if written is true; until is when its API server
	// deletes the event.
	home    forge.EventState
	written bool
	until   time.Time
	// busy is true while a worker writes the event.
	busy bool
	// gone is true when the provider no longer has the event.
	gone bool
}

// job is an event to write now. While the entry is busy, only its worker uses the fields key, tries and
// written.
type job struct {
	*entry
	want *corev1.Event
}

func newBacklog(cfg backlogConfig) *backlog {
	return &backlog{cfg: cfg, entries: map[loop.Key]*entry{}, waiting: map[loop.Key]*entry{}, told: map[kindOfEvent]int64{}, wake: loop.NewSignal()}
}

// seed adds an entry for an event that the consumer has. Since the time of its last write
// is unknown, now is assumed.
func (b *backlog) seed(have *corev1.Event, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	key := loop.Key{Namespace: have.Namespace, Name: have.Name}
	e := &entry{key: key, home: forge.StateOf(have), written: true, until: now.Add(b.cfg.stays)}
	b.entries[key] = e
	kind := kindOfEvent{have.Namespace, have.Type}
	b.told[kind] = max(b.told[kind], e.home.Last())
}

// put adds the state of an event in the form of its local copy. listed is true if the
// event comes from a list and not from a watch: it may have occurred long ago.
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

// wait queues an entry, unless a worker is writing it.
func (b *backlog) wait(e *entry) {
	if e.busy {
		return
	}
	b.waiting[e.key] = e
	b.wake.Notify()
}

// makeRoom reports whether one more event may wait. If the queue is full, the event that
// has waited longest is dropped, Normal events before Warnings. A Normal event never
// replaces a Warning.
func (b *backlog) makeRoom(eventType string) bool {
	if len(b.waiting) < b.cfg.limit {
		return true
	}
	var out *entry
	for _, e := range b.waiting {
		if out == nil || e.precedes(out, false) {
			out = e
		}
	}
	if eventType != corev1.EventTypeWarning && out.warns() {
		return false
	}
	delete(b.waiting, out.key)
	out.latest = nil
	b.settle(out)
	b.cfg.dropped(droppedOverflow)
	return true
}

func (e *entry) warns() bool { return e.latest.Type == corev1.EventTypeWarning }

// precedes reports whether e comes before other in the order of due times, with Warnings first or last.
func (e *entry) precedes(other *entry, warningsFirst bool) bool {
	if e.warns() != other.warns() {
		return e.warns() == warningsFirst
	}
	return e.due.Before(other.due)
}

// remove records that the provider no longer has an event. If it waits, it is written
// nevertheless, because it did occur.
func (b *backlog) remove(key loop.Key) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e := b.entries[key]; e != nil {
		e.gone = true
		b.settle(e)
	}
}

// replace processes a new list of a namespace: events that are missing in it are gone.
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

// settle deletes an entry without content. An entry for a written event stays until the
// consumer's API server deletes the event: kept counts it even if the provider has
// deleted its own event.
func (b *backlog) settle(e *entry) {
	if e.idle() && !e.written {
		delete(b.entries, e.key)
	}
}

// expire deletes the entries of events that neither cluster has any more.
func (b *backlog) expire(now time.Time) {
	if now.Sub(b.expired) < expireEvery {
		return
	}
	b.expired = now
	maps.DeleteFunc(b.entries, func(_ loop.Key, e *entry) bool { return e.idle() && e.gone && !now.Before(e.until) })
}

// idle reports whether there is nothing to write.
func (e *entry) idle() bool { return !e.busy && e.latest == nil }

// forget deletes the entries of a namespace that was closed. Entries for written events
// are kept, because they count towards kept, and a provider can close namespaces at any
// time.
func (b *backlog) forget(namespace string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for key, e := range b.entries {
		switch {
		case key.Namespace != namespace:
		case e.written:
			// A new entry, so that a worker that has the old one does not change it.
			b.entries[key] = &entry{key: key, home: e.home, written: true, until: e.until, gone: true}
		default:
			delete(b.entries, key)
		}
	}
	maps.DeleteFunc(b.waiting, func(key loop.Key, _ *entry) bool { return key.Namespace == namespace })
	maps.DeleteFunc(b.told, func(k kindOfEvent, _ int64) bool { return k.namespace == namespace })
}

// next returns the next event to write: Warnings first, then by waiting time. If none is
// due, it returns the time until the next one, or 0 if nothing waits.
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
		if first == nil || e.precedes(first, true) {
			first = e
		}
	}
	if first == nil {
		return job{}, wait, false
	}
	delete(b.waiting, first.key)
	j = job{first, first.latest}
	first.latest, first.busy = nil, true
	return j, 0, true
}

// wrote records that the consumer has the state of the job.
func (b *backlog) wrote(j job, now time.Time) {
	b.finish(j, func(e *entry) {
		e.home, e.written, e.tries, e.due = forge.StateOf(j.want), true, 0, now.Add(b.cfg.interval)
		e.until = now.Add(b.cfg.stays)
	})
}

// again requeues the job, or the newer state of the event that has arrived since. home
// reports whether the consumer has an earlier state.
func (b *backlog) again(j job, home bool, due time.Time) {
	b.finish(j, func(e *entry) {
		if e.latest == nil {
			e.latest = j.want
		}
		e.written, e.due = home, due
	})
}

// spare requeues the job if the queue is less than half full, and drops it otherwise.
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

// drop gives the job up. A later occurrence of the event is queued again.
func (b *backlog) drop(j job, now time.Time) {
	b.finish(j, func(e *entry) { e.tries, e.due = 0, now.Add(b.cfg.interval) })
}

func (b *backlog) finish(j job, change func(*entry)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := j.entry
	if b.entries[e.key] != e {
		return // the namespace has been closed
	}
	e.busy = false
	change(e)
	if e.latest != nil && e.written && !forge.StateOf(e.latest).After(e.home) {
		e.latest = nil // the same state arrived while it was being written
	}
	if e.latest != nil {
		b.wait(e)
		return
	}
	b.settle(e)
}
