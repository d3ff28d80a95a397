package endpoints

import (
	"slices"
	"sync"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/liqod/liqod/kube/loop"
)

// takenRetry is when a name that was taken, and then was not, is tried again.
const takenRetry = time.Second

// memory holds what no cache has. All of it may be forgotten: that costs a request.
type memory struct {
	refusals loop.Refusals // by shadow

	mu   sync.Mutex
	kept map[types.UID]kept // by EndpointSlice
	// left has the shadows that the API server has shown to be deleted while their
	// EndpointSlices are still there.
	left map[types.UID]struct{}
	// well says of each peer whether it counted as well when that was known last.
	well map[string]bool
	// unknown says of each peer which of its checks are unknown.
	unknown map[string]map[string]sighting
	// sent says what the shadow of each key was written as last.
	sent map[loop.Key]sent
}

// sighting is when a check was found to be unknown.
type sighting struct {
	since time.Time // as the condition says, by the clock of whoever wrote it
	first time.Time // by ours
}

// kept is what an API server made of a request otherwise than it was asked: it drops
// fields that it does not know, and admission may rewrite some.
type kept struct {
	version string // of the EndpointSlice
	rest    string // what the request would still change
}

func newMemory() *memory {
	return &memory{
		kept: map[types.UID]kept{}, left: map[types.UID]struct{}{}, well: map[string]bool{}, unknown: map[string]map[string]sighting{},
		sent: map[loop.Key]sent{},
	}
}

// judged notes whether a peer counts as well.
func (m *memory) judged(peer string, well bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.well[peer] = well
}

// wasWell returns what judged has noted last.
func (m *memory) wasWell(peer string) (well, known bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	well, known = m.well[peer]
	return well, known
}

// sighted notes which checks of a peer are unknown, and returns its conditions with each of
// those dated no later than it was first seen: a clock that is ahead of ours delays nothing.
func (m *memory) sighted(peer string, conditions []metav1.Condition, now time.Time) []metav1.Condition {
	m.mu.Lock()
	defer m.mu.Unlock()
	dated, unknown := slices.Clone(conditions), map[string]sighting{}
	for i := range dated {
		c := &dated[i]
		if c.Status != metav1.ConditionUnknown {
			continue
		}
		s, seen := m.unknown[peer][c.Type]
		if !seen || !s.since.Equal(c.LastTransitionTime.Time) {
			s = sighting{since: c.LastTransitionTime.Time, first: now}
		}
		unknown[c.Type] = s
		if s.first.Before(s.since) {
			c.LastTransitionTime = metav1.NewTime(s.first)
		}
	}
	if m.unknown[peer] = unknown; len(unknown) == 0 {
		delete(m.unknown, peer)
	}
	return dated
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

// sawLeave notes that the API server has shown the deletion of a shadow.
func (m *memory) sawLeave(shadow types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.left[shadow] = struct{}{}
}

func (m *memory) hasLeft(shadow types.UID) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, left := m.left[shadow]
	return left
}

// forget forgets an EndpointSlice that is gone, and the shadow that it was made for.
func (m *memory) forget(slice, shadow types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.kept, slice)
	delete(m.left, shadow)
}
