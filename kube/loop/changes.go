package loop

import (
	"fmt"

	"k8s.io/client-go/tools/cache"
)

// Changes calls changed for each object of the informer that appears, changes or disappears. An
// update for which same returns true is no change; same may be nil. The error names the objects.
func Changes[T any](objects string, informer cache.SharedIndexInformer, same func(before, after T) bool, changed func(T)) (cache.ResourceEventHandlerRegistration, error) {
	report := func(obj any) {
		if o, ok := Object[T](obj); ok {
			changed(o)
		}
	}
	registration, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: report,
		UpdateFunc: func(before, after any) {
			b, known := before.(T)
			if a, ok := after.(T); !ok || !known || same == nil || !same(b, a) {
				report(after)
			}
		},
		DeleteFunc: report,
	})
	if err != nil {
		return nil, fmt.Errorf("watching %s: %w", objects, err)
	}
	return registration, nil
}
