package endpoints

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/loop"
)

// takenRetry is the delay before a creation is tried again after a collision with an
// EndpointSlice that was deleted in between.
const takenRetry = time.Second

// memory holds state that no cache has. All of it may be lost, at the cost of extra
// requests.
type memory struct {
	refusals loop.Refusals // by UID of the shadow

	mu sync.Mutex
	// left has the shadows whose deletion a watch event has shown and whose EndpointSlices
	// still exist.
	left loop.Since[types.UID]
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

func newMemory() *memory {
	return &memory{
		well: map[string]bool{}, unknown: map[string]map[string]sighting{}, sent: map[loop.Key]sent{},
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

// kept reports whether the API server has accepted want already, and slice is what it has made of it: the server
// drops fields that it does not support, and admission may rewrite others.
func (m *memory) kept(want, slice *discoveryv1.EndpointSlice) (bool, error) {
	m.mu.Lock()
	last := m.sent[cache.MetaObjectToName(want)]
	m.mu.Unlock()
	if last.uid != slice.UID || last.version != slice.ResourceVersion || !differs(want, slice) {
		return false, nil // the common case: skip the hash
	}
	whole, err := wholeOf(want)
	return whole == last.want, err
}

// well reports whether a peer's endpoints may be ready, judging by the conditions APIServer
// and Network. A missing condition does not count. An Unknown condition keeps the last
// result, and counts as False once it has been Unknown for the grace period. again is the
// time until then, or zero if no condition is Unknown.
func well(conditions []metav1.Condition, last bool, grace time.Duration, now time.Time) (ready bool, again time.Duration) {
	pending := false
	for _, kind := range []string{corev1beta1.ConditionAPIServer, corev1beta1.ConditionNetwork} {
		c := meta.FindStatusCondition(conditions, kind)
		if c == nil || c.Status == metav1.ConditionTrue {
			continue
		}
		// Clocks differ: a transition time in the future counts as now.
		left := min(grace, grace-now.Sub(c.LastTransitionTime.Time))
		if c.Status == metav1.ConditionFalse || left <= 0 {
			return false, 0
		}
		if !pending || left < again {
			pending, again = true, left
		}
	}
	if pending {
		return last, again
	}
	return true, 0
}

// lastWell reports whether a peer last counted as well. The source is the record of slice,
// which may be nil, else memory, else any other EndpointSlice of the peer.
func (e *Enforcer) lastWell(peer string, slice *discoveryv1.EndpointSlice) bool {
	if record := readApplied(slice); record.Shadow != "" {
		return record.Well
	}
	if ready, known := e.memory.wasWell(peer); known {
		return ready
	}
	others := e.slices.List()
	i := slices.IndexFunc(others, func(s *discoveryv1.EndpointSlice) bool {
		return s.Labels[offloadingv1beta1.OriginLabel] == peer && ofAnyShadow(s) && madeFor(s) != ""
	})
	return i >= 0 && readApplied(others[i]).Well
}

// sent is the last write of an EndpointSlice. If another client keeps reverting it, or
// deletes the EndpointSlice, the next write of the same content backs off.
type sent struct {
	want  [sha256.Size]byte
	at    time.Time
	delay time.Duration // before the same content may be written again

	// uid and version are those of the answer of the API server.
	uid     types.UID
	version string
}

// wholeOf returns a hash of a wanted EndpointSlice.
func wholeOf(want *discoveryv1.EndpointSlice) ([sha256.Size]byte, error) {
	body, err := json.Marshal(want)
	if err != nil {
		return [sha256.Size]byte{}, fmt.Errorf("encoding the EndpointSlice as wanted: %w", err)
	}
	return sha256.Sum256(body), nil
}

// sending records that the API server accepted want, and answered with made.
func (m *memory) sending(want, made *discoveryv1.EndpointSlice, now time.Time) error {
	whole, err := wholeOf(want)
	if err != nil {
		return err
	}
	key, next := cache.MetaObjectToName(want), sent{want: whole, at: now, uid: made.UID, version: made.ResourceVersion}
	m.mu.Lock()
	defer m.mu.Unlock()
	if last := m.sent[key]; last.want == whole {
		next.delay = loop.RepairDelay(last.delay, now.Sub(last.at))
	}
	m.sent[key] = next
	return nil
}

// due returns when want may be written again; the zero time means at once.
func (m *memory) due(want *discoveryv1.EndpointSlice, now time.Time) (time.Time, error) {
	m.mu.Lock()
	last := m.sent[cache.MetaObjectToName(want)]
	m.mu.Unlock()
	next := last.at.Add(last.delay)
	if !now.Before(next) {
		return time.Time{}, nil // the common case: skip the hash
	}
	whole, err := wholeOf(want)
	if err != nil || whole != last.want {
		return time.Time{}, err
	}
	return next, nil
}

func (m *memory) forgetSent(key loop.Key) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.sent, key)
}
