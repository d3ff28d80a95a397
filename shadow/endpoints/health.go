package endpoints

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
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
