package kubetest

import (
	"errors"
	"fmt"
	"maps"
	"strconv"
	"sync"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	k8stesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"
)

// Server answers the requests of fake clientsets as an API server does where the fakes do
// not: it gives UIDs, generations and resource versions, refuses writes of what has changed
// meanwhile and of another UID, keeps the status apart from the rest, and lets finalizers
// hold what is deleted. Every kind has a status subresource. It is safe for
// concurrent use.
type Server struct {
	tracker k8stesting.ObjectTracker
	others  k8stesting.ReactionFunc
	clock   clock.PassiveClock

	mu      sync.Mutex
	version int64
}

// NewServer returns a Server of the objects in tracker. Those that are there already should
// have UIDs and resource versions.
func NewServer(tracker k8stesting.ObjectTracker, clock clock.PassiveClock) *Server {
	return &Server{tracker: tracker, others: k8stesting.ObjectReaction(tracker), clock: clock, version: 1000}
}

// React is a k8stesting.ReactionFunc for every verb but watch and every resource.
func (s *Server) React(action k8stesting.Action) (bool, runtime.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch a := action.(type) {
	case k8stesting.CreateActionImpl:
		if a.GetSubresource() != "" {
			return s.others(action)
		}
		obj, err := s.create(a)
		return true, obj, err
	case k8stesting.UpdateActionImpl:
		obj, err := s.update(a, a.GetObject().DeepCopyObject())
		return true, obj, err
	case k8stesting.PatchActionImpl:
		obj, err := s.patch(a)
		return true, obj, err
	case k8stesting.DeleteActionImpl:
		return true, nil, s.remove(a)
	case k8stesting.WatchActionImpl:
		return false, nil, nil
	}
	return s.others(action)
}

func (s *Server) next() string {
	s.version++
	return strconv.FormatInt(s.version, 10)
}

func (s *Server) create(a k8stesting.CreateActionImpl) (runtime.Object, error) {
	obj := a.GetObject().DeepCopyObject()
	fields, m, err := open(obj)
	if err != nil {
		return nil, err
	}
	if m.GetResourceVersion() != "" {
		return nil, apierrors.NewBadRequest("resourceVersion should not be set on objects to be created")
	}
	delete(fields, "status")
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(fields, obj); err != nil {
		return nil, fmt.Errorf("decoding the object: %w", err)
	}
	m.SetResourceVersion(s.next())
	m.SetUID(types.UID("uid-" + m.GetResourceVersion()))
	m.SetGeneration(1)
	m.SetCreationTimestamp(metav1.NewTime(s.clock.Now()))
	if err := s.tracker.Create(a.GetResource(), obj, a.GetNamespace()); err != nil {
		return nil, err
	}
	return obj.DeepCopyObject(), nil
}

// open returns the fields of an object, and its metadata, which are still the object's.
func open(obj runtime.Object) (map[string]any, metav1.Object, error) {
	m, err := meta.Accessor(obj)
	if err != nil {
		return nil, nil, err
	}
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return nil, nil, fmt.Errorf("encoding the object: %w", err)
	}
	return fields, m, nil
}

func conflict(a k8stesting.Action, name, why string) error {
	return apierrors.NewConflict(a.GetResource().GroupResource(), name, errors.New(why))
}

func (s *Server) update(a k8stesting.Action, next runtime.Object) (runtime.Object, error) {
	want, w, err := open(next)
	if err != nil {
		return nil, err
	}
	stored, err := s.tracker.Get(a.GetResource(), a.GetNamespace(), w.GetName())
	if err != nil {
		return nil, err
	}
	have, h, err := open(stored)
	if err != nil {
		return nil, err
	}
	switch {
	case w.GetUID() != "" && w.GetUID() != h.GetUID():
		return nil, conflict(a, w.GetName(), "the UID is another")
	case w.GetResourceVersion() != "" && w.GetResourceVersion() != h.GetResourceVersion():
		return nil, conflict(a, w.GetName(), "the object has been modified")
	}
	merged := merge(want, have, a.GetSubresource() == "status")
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(merged, next); err != nil {
		return nil, fmt.Errorf("decoding the object: %w", err)
	}
	if equality.Semantic.DeepEqual(next, stored) {
		return stored, nil
	}
	if changed(merged, have) {
		w.SetGeneration(h.GetGeneration() + 1)
	}
	w.SetResourceVersion(s.next())
	return s.store(a, next)
}

// merge returns what an update leaves: only the status is written, or all but that and
// what the server keeps by itself.
func merge(want, have map[string]any, status bool) map[string]any {
	if status {
		kept := maps.Clone(have)
		carry(kept, want, "status")
		return kept
	}
	kept := maps.Clone(want)
	carry(kept, have, "status")
	written, _ := want["metadata"].(map[string]any)
	before, _ := have["metadata"].(map[string]any)
	metadata := maps.Clone(written)
	carry(metadata, before, "uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp")
	kept["metadata"] = metadata
	return kept
}

// carry makes the keys of one map as they are in another.
func carry(to, from map[string]any, keys ...string) {
	for _, key := range keys {
		delete(to, key)
		if v, ok := from[key]; ok {
			to[key] = v
		}
	}
}

// changed reports whether more than metadata and status differ.
func changed(a, b map[string]any) bool {
	x, y := maps.Clone(a), maps.Clone(b)
	for _, key := range []string{"metadata", "status"} {
		delete(x, key)
		delete(y, key)
	}
	return !equality.Semantic.DeepEqual(x, y)
}

// store keeps an object, unless it is deleted and nothing holds it any more.
func (s *Server) store(a k8stesting.Action, obj runtime.Object) (runtime.Object, error) {
	m, err := meta.Accessor(obj)
	if err != nil {
		return nil, err
	}
	if m.GetDeletionTimestamp() != nil && len(m.GetFinalizers()) == 0 {
		return obj, s.tracker.Delete(a.GetResource(), a.GetNamespace(), m.GetName())
	}
	if err := s.tracker.Update(a.GetResource(), obj, a.GetNamespace()); err != nil {
		return nil, err
	}
	return obj.DeepCopyObject(), nil
}

func (s *Server) patch(a k8stesting.PatchActionImpl) (runtime.Object, error) {
	p := &patched{ObjectTracker: s.tracker}
	if _, _, err := k8stesting.ObjectReaction(p)(a); err != nil {
		return nil, err
	}
	return s.update(a, p.next)
}

// patched keeps the result of a patch from the tracker.
type patched struct {
	k8stesting.ObjectTracker
	next runtime.Object
}

// Patch implements k8stesting.ObjectTracker.
func (p *patched) Patch(_ schema.GroupVersionResource, obj runtime.Object, _ string, _ ...metav1.PatchOptions) error {
	p.next = obj
	return nil
}

func (s *Server) remove(a k8stesting.DeleteActionImpl) error {
	stored, err := s.tracker.Get(a.GetResource(), a.GetNamespace(), a.GetName())
	if err != nil {
		return err
	}
	obj := stored.DeepCopyObject()
	m, err := meta.Accessor(obj)
	if err != nil {
		return err
	}
	if p := a.GetDeleteOptions().Preconditions; p != nil {
		if p.UID != nil && *p.UID != m.GetUID() || p.ResourceVersion != nil && *p.ResourceVersion != m.GetResourceVersion() {
			return conflict(a, a.GetName(), "a precondition is not met")
		}
	}
	if m.GetDeletionTimestamp() != nil && len(m.GetFinalizers()) > 0 {
		return nil
	}
	now := metav1.NewTime(s.clock.Now())
	m.SetDeletionTimestamp(&now)
	m.SetGeneration(m.GetGeneration() + 1)
	m.SetResourceVersion(s.next())
	_, err = s.store(a, obj)
	return err
}
