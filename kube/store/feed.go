package store

import (
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/tools/cache"
)

// feed is the store of a reflector. It updates the cache of an Informer, and then calls the
// handlers. Only one goroutine calls it.
type feed struct{ *Informer }

var _ cache.ReflectorStore = feed{}

// Add implements cache.ReflectorStore.
func (f feed) Add(obj any) error { return f.set(obj, false) }

// Update implements cache.ReflectorStore.
func (f feed) Update(obj any) error { return f.set(obj, false) }

// Delete implements cache.ReflectorStore. The watch has reported the deletion.
func (f feed) Delete(obj any) error {
	obj, err := f.transformed(obj)
	if err != nil {
		return err
	}
	if err := f.indexer.Delete(obj); err != nil {
		return err
	}
	f.each(func(h cache.ResourceEventHandler) { h.OnDelete(obj) })
	return nil
}

// Replace implements cache.ReflectorStore: the cache becomes equal to a new list. The
// handlers receive a cache.DeletedFinalStateUnknown for each object that the list lacks.
func (f feed) Replace(list []any, _ string) error {
	listed := make(map[string]struct{}, len(list))
	for _, obj := range list {
		key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj)
		if err != nil {
			return err
		}
		listed[key] = struct{}{}
		if err := f.set(obj, true); err != nil {
			return err
		}
	}
	for _, key := range f.indexer.ListKeys() {
		if _, ok := listed[key]; ok {
			continue
		}
		last, _, err := f.indexer.GetByKey(key)
		if err != nil {
			return err
		}
		missed := cache.DeletedFinalStateUnknown{Key: key, Obj: last}
		if err := f.indexer.Delete(missed); err != nil {
			return err
		}
		f.each(func(h cache.ResourceEventHandler) { h.OnDelete(missed) })
	}
	if !f.synced.is() {
		close(f.synced.done)
	}
	return nil
}

// Resync implements cache.ReflectorStore. It does nothing.
func (f feed) Resync() error { return nil }

// set stores an object and calls the handlers. It calls none if a list has the object in
// the same version as the cache.
func (f feed) set(obj any, listed bool) error {
	obj, err := f.transformed(obj)
	if err != nil {
		return err
	}
	before, known, err := f.indexer.Get(obj)
	if err != nil {
		return err
	}
	if err := f.indexer.Update(obj); err != nil {
		return err
	}
	switch {
	case !known:
		initial := !f.synced.is()
		f.each(func(h cache.ResourceEventHandler) { h.OnAdd(obj, initial) })
	case !listed || !sameVersion(before, obj):
		f.each(func(h cache.ResourceEventHandler) { h.OnUpdate(before, obj) })
	}
	return nil
}

func (f feed) transformed(obj any) (any, error) {
	if f.transform == nil { // needs no lock: SetTransform fails once the informer runs
		return obj, nil
	}
	return f.transform(obj)
}

func (f feed) each(call func(cache.ResourceEventHandler)) {
	f.mu.Lock()
	handlers := f.handlers
	f.mu.Unlock()
	for _, h := range handlers {
		call(h)
	}
}

func sameVersion(a, b any) bool {
	x, err1 := meta.Accessor(a)
	y, err2 := meta.Accessor(b)
	return err1 == nil && err2 == nil && x.GetResourceVersion() == y.GetResourceVersion()
}
