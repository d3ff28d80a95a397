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
	others, err := e.slices.List(labels.SelectorFromSet(labels.Set{offloadingv1beta1.OriginLabel: peer}))
	if err != nil {
		return false
	}
	i := slices.IndexFunc(others, func(s *discoveryv1.EndpointSlice) bool { return ofAnyShadow(s) && madeFor(s) != "" })
	return i >= 0 && readApplied(others[i]).Well
}
