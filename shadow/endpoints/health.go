package endpoints

import (
	"slices"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
)

// well reports whether the checks of a peer that apply let its endpoints count as ready.
// A check without a condition does not apply. One that is Unknown leaves all as it was
// last, and counts as failed once it has been so for the grace (DESIGN.md section 6
// rule 5); again is the time until then, zero if nothing is awaited.
func well(conditions []metav1.Condition, last bool, grace time.Duration, now time.Time) (ready bool, again time.Duration) {
	pending := false
	for _, kind := range []string{corev1beta1.ConditionAPIServer, corev1beta1.ConditionNetwork} {
		c := meta.FindStatusCondition(conditions, kind)
		if c == nil || c.Status == metav1.ConditionTrue {
			continue
		}
		// Clocks differ: no condition is believed to come from the future.
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

// lastWell reports whether a peer counted as well when that was known last: as the record
// of slice says, which may be nil, or as any other of the peer's.
func (e *Enforcer) lastWell(peer string, slice *discoveryv1.EndpointSlice) bool {
	if record := readApplied(slice); record.Shadow != "" {
		return record.Well
	}
	if ready, known := e.memory.wasWell(peer); known {
		return ready
	}
	others, err := e.slices.List(labels.SelectorFromSet(labels.Set{offloadingv1beta1.OriginLabel: peer}))
	if err != nil {
		return false
	}
	i := slices.IndexFunc(others, func(s *discoveryv1.EndpointSlice) bool { return ofAnyShadow(s) && madeFor(s) != "" })
	return i >= 0 && readApplied(others[i]).Well
}
