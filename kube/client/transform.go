package client

import "k8s.io/apimachinery/pkg/api/meta"

// StripManagedFields is a transform function for informers. It removes the managed fields
// of obj in place: liqod does not read them, and they are often half of the size of an
// object. A value that is not an object is returned unchanged.
func StripManagedFields(obj any) (any, error) {
	if m, err := meta.Accessor(obj); err == nil && m.GetManagedFields() != nil {
		m.SetManagedFields(nil)
	}
	return obj, nil
}
