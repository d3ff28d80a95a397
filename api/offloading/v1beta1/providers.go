package v1beta1

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
)

// ProvidersOf returns the sorted ids of the clusters that a namespace is offloaded to, as the
// status of its NamespaceOffloading records them. People cannot write that status.
func ProvidersOf(o *NamespaceOffloading) (out []string) {
	if o.DeletionTimestamp != nil || o.Name != NamespaceOffloadingName || o.Status.RemoteNamespaceName == "" {
		return nil
	}
	for _, id := range slices.Sorted(maps.Keys(o.Status.RemoteNamespacesConditions)) {
		conditions := o.Status.RemoteNamespacesConditions[id]
		ready := meta.FindStatusCondition(conditions, RemoteNamespaceReady)
		refused := ready != nil && ready.Reason == ReasonInvalid // no request was ever written
		if meta.IsStatusConditionTrue(conditions, RemoteNamespaceOffloadingRequired) && !refused {
			out = append(out, id)
		}
	}
	return out
}

// SameProviders reports whether a namespace is offloaded to the same clusters in two states of its
// NamespaceOffloading.
func SameProviders(a, b *NamespaceOffloading) bool {
	return slices.Equal(ProvidersOf(a), ProvidersOf(b))
}
