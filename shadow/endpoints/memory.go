package endpoints

import (
	"sync"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	firstRetry = time.Second
	lastRetry  = time.Minute
)

// memory holds what no cache has. All of it may be forgotten: that costs a request.
type memory struct {
	mu    sync.Mutex
	tries map[types.UID]try  // by shadow
	kept  map[types.UID]kept // by EndpointSlice
}

// try is the last refused request for a shadow.
type try struct {
	generation int64
	delay      time.Duration
	next       time.Time
}

// kept is what an API server made of a request otherwise than it was asked: it drops
// fields that it does not know, and admission may rewrite some.
type kept struct {
	version string // of the EndpointSlice
	rest    string // what the request would still change
}

func newMemory() *memory {
	return &memory{tries: map[types.UID]try{}, kept: map[types.UID]kept{}}
}

// failed notes that a request for a generation of a shadow was refused, and returns how
// long to wait before the next.
func (m *memory) failed(shadow types.UID, generation int64, now time.Time) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := m.tries[shadow]
	if t.generation != generation || t.delay == 0 {
		t = try{generation: generation, delay: firstRetry}
	} else {
		t.delay = min(2*t.delay, lastRetry)
	}
	t.next = now.Add(t.delay)
	m.tries[shadow] = t
	return t.delay
}

func (m *memory) succeeded(shadow types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.tries, shadow)
}

// notBefore returns when the next request for a shadow is due; zero means at once, as for
// a new generation.
func (m *memory) notBefore(shadow types.UID, generation int64) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	if t := m.tries[shadow]; t.generation == generation {
		return t.next
	}
	return time.Time{}
}

// answered notes what a request that was accepted has left to change.
func (m *memory) answered(slice *discoveryv1.EndpointSlice, rest string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if rest == "" {
		delete(m.kept, slice.UID)
		return
	}
	m.kept[slice.UID] = kept{version: slice.ResourceVersion, rest: rest}
}

// odd reports whether anything is noted of an EndpointSlice as it is.
func (m *memory) odd(slice *discoveryv1.EndpointSlice) (rest string, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	k, ok := m.kept[slice.UID]
	return k.rest, ok && k.version == slice.ResourceVersion
}

func (m *memory) forget(slice types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.kept, slice)
}
