package endpoints

import (
	"slices"
	"sync"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/kube/loop"
)

// takenRetry is the delay before a creation is tried again after a collision with an
// EndpointSlice that was deleted in between.
const takenRetry = time.Second

// memory holds state that no cache has. All of it may be lost, at the cost of extra
// requests.
type memory struct {
	refusals loop.Refusals // by UID of the shadow

	mu   sync.Mutex
	kept map[types.UID]kept // by UID of the EndpointSlice
	// left has the shadows whose deletion a watch event has shown and whose EndpointSlices
	// still exist.
	left map[types.UID]struct{}
	// well is the last known health, by peer.
	well map[string]bool
	// unknown has the checks that are Unknown, by peer and condition type.
	unknown map[string]map[string]sighting
	// sent is the last write, by key.
	sent map[loop.Key]sent
}

// sighting is when a check became Unknown.
type sighting struct {
	since time.Time // transition time of the condition, by its writer's clock
	first time.Time // first seen, by this process's clock
}

// kept records an answer of the API server that differs from the request. The server drops
// fields that it does not support, and admission may rewrite others.
type kept struct {
	version string // resource version of the EndpointSlice
	rest    string // the patch that would still be needed
}

func newMemory() *memory {
	return &memory{
		kept: map[types.UID]kept{}, left: map[types.UID]struct{}{}, well: map[string]bool{}, unknown: map[string]map[string]sighting{},
		sent: map[loop.Key]sent{},
	}
}

// judged records whether a peer counts as well.
func (m *memory) judged(peer string, well bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.well[peer] = well
}

// wasWell returns the last value that judged recorded.
func (m *memory) wasWell(peer string) (well, known bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	well, known = m.well[peer]
	return well, known
}

// sighted records which checks of a peer are Unknown. It returns the conditions with
// transition times no later than the time at which this process first saw them Unknown, so
// that a fast clock of their writer does not prolong the grace. While no controller ran,
// nobody could turn endpoints off: what was Unknown for that reason alone counts from then.
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
		if s.first.Before(s.since) || c.Reason == corev1beta1.ReasonNoController {
			c.LastTransitionTime = metav1.NewTime(s.first)
		}
	}
	if m.unknown[peer] = unknown; len(unknown) == 0 {
		delete(m.unknown, peer)
	}
	return dated
}

// answered records what an accepted request has left unchanged; rest empty: nothing.
func (m *memory) answered(slice *discoveryv1.EndpointSlice, rest string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if rest == "" {
		delete(m.kept, slice.UID)
		return
	}
	m.kept[slice.UID] = kept{version: slice.ResourceVersion, rest: rest}
}

// odd returns the record for an EndpointSlice at its current resource version, if there is
// one.
func (m *memory) odd(slice *discoveryv1.EndpointSlice) (rest string, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	k, ok := m.kept[slice.UID]
	return k.rest, ok && k.version == slice.ResourceVersion
}

// sawLeave records that a watch event has shown the deletion of a shadow.
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

// forget drops the state of a deleted EndpointSlice and of the shadow that it was made for.
func (m *memory) forget(slice, shadow types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.kept, slice)
	delete(m.left, shadow)
}
