package forge

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
)

// EqualStatus reports whether two statuses are equal. The order of conditions is ignored.
// With ignoreHostIPs the host addresses are ignored too: if only they have changed, a
// write to every pod is not worth its cost.
func EqualStatus(a, b *corev1.PodStatus, ignoreHostIPs bool) bool {
	return equality.Semantic.DeepEqual(normalized(a, ignoreHostIPs), normalized(b, ignoreHostIPs))
}

func normalized(s *corev1.PodStatus, ignoreHostIPs bool) *corev1.PodStatus {
	out := *s
	out.Conditions = slices.SortedFunc(slices.Values(s.Conditions), func(a, b corev1.PodCondition) int {
		return strings.Compare(string(a.Type), string(b.Type))
	})
	if ignoreHostIPs {
		out.HostIP, out.HostIPs = "", nil
	}
	return &out
}
