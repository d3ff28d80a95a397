package store

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

// longestMessage is the longest message of a condition that the API accepts, in bytes.
const longestMessage = 32768

// SetCondition adds cond to conds or replaces the condition of its type, and reports
// whether that changed anything. While the status of the condition stays the same, its
// transition time is kept. Otherwise the transition time is that of cond, or now if cond
// has none. A message longer than 32768 bytes, the maximum of the API, is truncated.
func SetCondition(conds *[]metav1.Condition, cond metav1.Condition) bool {
	cond.Message = Clip(cond.Message, longestMessage)
	return meta.SetStatusCondition(conds, cond)
}

// NodeCondition returns a condition of the status of a node; the zero condition: there is none of the kind.
func NodeCondition(s *corev1.NodeStatus, kind corev1.NodeConditionType) corev1.NodeCondition {
	for _, c := range s.Conditions {
		if c.Type == kind {
			return c
		}
	}
	return corev1.NodeCondition{}
}

// PodCondition returns a condition of the status of a pod; the zero condition: there is none of the kind.
func PodCondition(s *corev1.PodStatus, kind corev1.PodConditionType) corev1.PodCondition {
	for _, c := range s.Conditions {
		if c.Type == kind {
			return c
		}
	}
	return corev1.PodCondition{}
}

// SetPodCondition adds a condition to the status of a pod or replaces the one of its type, and
// keeps the transition time while the status of the condition stays the same.
func SetPodCondition(s *corev1.PodStatus, c corev1.PodCondition) {
	i := slices.IndexFunc(s.Conditions, func(have corev1.PodCondition) bool { return have.Type == c.Type })
	if i < 0 {
		s.Conditions = append(s.Conditions, c)
		return
	}
	if s.Conditions[i].Status == c.Status {
		c.LastTransitionTime = s.Conditions[i].LastTransitionTime
	}
	s.Conditions[i] = c
}

// Clip returns at most so many bytes of a text, cut between two runes. What is not UTF-8, which
// the API does not accept, becomes a question mark.
func Clip(text string, most int) string {
	if len(text) > most {
		for most > 0 && !utf8.RuneStart(text[most]) {
			most--
		}
		text = text[:most]
	}
	return strings.ToValidUTF8(text, "?")
}

const (
	// longestTold is the longest note of an event that the API accepts, in bytes.
	longestTold = 1024
	clipped     = 1000 // leaves room for the mark of truncation
)

// ClipMessage truncates a message longer than 1024 bytes, the maximum for the note of an
// event, and marks the end with "…". Error messages of another cluster can have any
// length.
func ClipMessage(message string) string {
	if len(message) <= longestTold {
		return message
	}
	return strings.ToValidUTF8(message[:clipped], "") + " …"
}

// OneLine returns the text of an error on one line: joined errors have one line each.
func OneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

// First lists the first texts for people, and how many more there are by the format more.
func First(texts []string, most int, separator, more string) string {
	if len(texts) <= most {
		return strings.Join(texts, separator)
	}
	return strings.Join(texts[:most], separator) + fmt.Sprintf(more, len(texts)-most)
}

// Patcher is the part of a typed client that patches one object.
type Patcher[T any] interface {
	Patch(ctx context.Context, name string, kind types.PatchType, data []byte, opts metav1.PatchOptions, subresources ...string) (T, error)
}

// SetFinalizer adds the finalizer to obj (want is true) or removes it, and returns the object as it is then. by is
// the field manager, or empty. It sends nothing if obj is already as wanted, and if a finalizer would be
// added to an object that is being deleted, which the API server rejects. The patch
// contains the UID and the resource version: if obj has changed, the API server answers
// with a conflict, so that finalizers of other controllers are never lost.
func SetFinalizer[T metav1.Object](ctx context.Context, client Patcher[T], obj T, finalizer string, want bool, by string) (T, error) {
	if HasFinalizer(obj, finalizer) == want || want && obj.GetDeletionTimestamp() != nil {
		return obj, nil
	}
	finalizers := append([]string{}, obj.GetFinalizers()...) // not nil, which would be no list
	finalizers = slices.DeleteFunc(finalizers, func(s string) bool { return s == finalizer })
	if want {
		finalizers = append(finalizers, finalizer)
	}
	written, err := Merge(ctx, "the finalizers of", client, by, obj, Patch{"metadata": Patch{"resourceVersion": obj.GetResourceVersion(), "finalizers": finalizers}})
	if err != nil {
		return obj, err
	}
	return written, nil
}

// HasFinalizer reports whether obj has the finalizer.
func HasFinalizer(obj metav1.Object, finalizer string) bool {
	return slices.Contains(obj.GetFinalizers(), finalizer)
}

// ControllerReference returns an owner reference that makes owner the controller of an
// object. It does not set blockOwnerDeletion, which requires the right to update the
// finalizers of owner.
func ControllerReference(owner metav1.Object, kind schema.GroupVersionKind) metav1.OwnerReference {
	ref := metav1.NewControllerRef(owner, kind)
	ref.BlockOwnerDeletion = nil
	return *ref
}

// DeleteUID returns delete options with the UID of obj as a precondition, so that a newer
// object of the same name is not deleted.
func DeleteUID(obj metav1.Object) metav1.DeleteOptions {
	uid := obj.GetUID()
	return metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}
}

// IgnoreNotFound returns nil if err is a NotFound error, and err otherwise.
func IgnoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// absent reports whether an error of a Get means that the object does not exist. An API server that
// does not serve the kind answers NotFound, too. That says nothing about the object.
func absent(err error) bool {
	return apierrors.IsNotFound(err) && !apierrors.IsUnexpectedServerError(err)
}

// OrNil returns what a Get has returned, and nil without an error for an object that does
// not exist.
func OrNil[T any](obj *T, err error) (*T, error) {
	if absent(err) {
		return nil, nil
	}
	return obj, err
}

// IgnoreGone returns nil if err means that the object of a deletion by UID no longer
// exists: NotFound, or a conflict because a newer object has the name. Otherwise it
// returns err.
func IgnoreGone(err error) error {
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// CatchUp is the time after which a key is requeued because the cache is older than a live read.
const CatchUp = 500 * time.Millisecond

// Exists reports whether the API server has an object that a cache lacks. Callers confirm
// with it before they delete or revoke something. list reads live, is selects the object,
// and what names it in the error.
func Exists[L runtime.Object, T any](ctx context.Context, what string, list func(context.Context, metav1.ListOptions) (L, error), is func(T) bool) (bool, error) {
	live, err := list(ctx, metav1.ListOptions{})
	if err != nil {
		return false, fmt.Errorf("confirming that %s is gone: %w", what, err)
	}
	all, err := Items[T](live)
	return slices.ContainsFunc(all, is), err
}

// Lister is the part of a typed client that lists objects.
type Lister[L runtime.Object] interface {
	List(ctx context.Context, opts metav1.ListOptions) (L, error)
}

// sweeper sends the requests of Sweep.
type sweeper[L runtime.Object] interface {
	Deleter
	Lister[L]
}

// Sweep lists objects, and deletes those for which goes returns true, or all if it is nil. It returns
// these, also such that are being deleted already. T is a pointer to an item of the list L.
func Sweep[T metav1.Object, L runtime.Object](ctx context.Context, kind string, client sweeper[L], options metav1.ListOptions, goes func(T) bool) (left []T, err error) {
	all, err := Find[T](ctx, kind, client, options)
	for _, o := range all {
		if goes != nil && !goes(o) {
			continue
		}
		left = append(left, o)
		if o.GetDeletionTimestamp() == nil {
			if err := Delete(ctx, kind, client, o); err != nil {
				return left, err
			}
		}
	}
	return left, err
}

// Find lists objects live. T is a pointer to an item of the list L. kind names them in errors.
func Find[T any, L runtime.Object](ctx context.Context, kind string, client Lister[L], options metav1.ListOptions) (all []T, err error) {
	list, err := client.List(ctx, options)
	if err != nil {
		return nil, fmt.Errorf("listing %ss: %w", kind, err)
	}
	return Items[T](list)
}

// Items returns the items of a list. T is a pointer to one.
func Items[T any](list runtime.Object) (all []T, err error) {
	err = meta.EachListItem(list, func(obj runtime.Object) error {
		if o, ok := obj.(T); ok {
			all = append(all, o)
		}
		return nil
	})
	return all, err
}

// Pointers returns pointers to the items of a list, as a lister returns objects.
func Pointers[T any](items []T) []*T {
	out := make([]*T, len(items))
	for i := range items {
		out[i] = &items[i]
	}
	return out
}

// Patch is a JSON merge patch (RFC 7396), or a part of one. A nil value removes its key.
type Patch = map[string]any

// Put sets into[key] to part, unless part is empty.
func Put[T Patch | []Patch](into Patch, key string, part T) {
	if len(part) > 0 {
		into[key] = part
	}
}

// MapChanges returns the patch of labels or annotations that sets the keys of want in
// have, and removes the keys of ours that want lacks. All other keys stay.
func MapChanges(want, have map[string]string, ours []string) Patch {
	patch := Patch{}
	for key, value := range want {
		if old, ok := have[key]; !ok || old != value {
			patch[key] = value
		}
	}
	for _, key := range ours {
		_, wanted := want[key]
		if _, ok := have[key]; ok && !wanted {
			patch[key] = nil
		}
	}
	return patch
}

// Merged changes labels or annotations as a patch of MapChanges does. have may be changed.
func Merged(want, have map[string]string, ours []string) map[string]string {
	if have == nil {
		have = map[string]string{}
	}
	for _, key := range ours {
		delete(have, key)
	}
	maps.Copy(have, want)
	return have
}

// Record encodes what an annotation remembers of an object. It must encode always, as numbers and strings do.
func Record(record any) string {
	text, err := json.Marshal(record)
	if err != nil {
		panic(fmt.Sprintf("encoding a record: %v", err))
	}
	return string(text)
}

// Recorded decodes what Record has written into an annotation. A missing or invalid record reads as the zero value.
func Recorded[T any](annotations map[string]string, key string) T {
	var record, none T
	if json.Unmarshal([]byte(annotations[key]), &record) != nil {
		return none
	}
	return record
}

// ChangedKeys returns the keys that one of two maps lacks, or whose values differ.
func ChangedKeys[K, V comparable](before, after map[K]V) sets.Set[K] {
	changed := sets.KeySet(before).Union(sets.KeySet(after))
	for key, was := range before {
		if is, has := after[key]; has && is == was {
			changed.Delete(key)
		}
	}
	return changed
}

// StrategicPatch returns the strategic merge patch that changes before to after.
func StrategicPatch[T any](before, after *T) ([]byte, error) {
	var fields T
	from, err := json.Marshal(before)
	if err != nil {
		return nil, fmt.Errorf("encoding the object as it is: %w", err)
	}
	to, err := json.Marshal(after)
	if err != nil {
		return nil, fmt.Errorf("encoding the object as wanted: %w", err)
	}
	return strategicpatch.CreateTwoWayMergePatch(from, to, fields)
}

// EncodePatch encodes a patch as JSON and adds the UID of obj as a precondition, so that
// a newer object of the same name is not patched. It does not modify patch. Equal patches
// give equal bytes.
func EncodePatch(patch Patch, obj metav1.Object) ([]byte, error) {
	body, metadata := maps.Clone(patch), Patch{}
	if body == nil {
		body = Patch{}
	}
	if have, ok := patch["metadata"].(Patch); ok {
		metadata = maps.Clone(have)
	}
	metadata["uid"] = string(obj.GetUID())
	body["metadata"] = metadata
	data, err := json.Marshal(body)
	if err != nil {
		return nil, fmt.Errorf("encoding the patch of %s/%s: %w", obj.GetNamespace(), obj.GetName(), err)
	}
	return data, nil
}
