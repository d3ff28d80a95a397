package client

import "k8s.io/apimachinery/pkg/api/meta"

// StripManagedFields is an informer's transform: it removes from obj, in place, what
// nobody reads and what is often half of an object. What is no object passes unchanged.
func StripManagedFields(obj any) (any, error) {
	if m, err := meta.Accessor(obj); err == nil && m.GetManagedFields() != nil {
		m.SetManagedFields(nil)
	}
	return obj, nil
}
