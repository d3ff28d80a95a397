// Package apply holds what writers of objects share: conditions, finalizers, owner
// references, preconditions and patches, all pure, and the Binder, which keeps bindings of
// roles as they are wanted. It knows nothing of liqod, nor of who is bound to what.
package apply

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// longestMessage is, in bytes, what the API accepts in a condition.
const longestMessage = 32768

// SetCondition puts cond into conds, and reports whether that changed anything. The time
// of transition is kept while the status stays, and is else cond's or, without one, now.
// A message that is longer than the API accepts is cut.
func SetCondition(conds *[]metav1.Condition, cond metav1.Condition) bool {
	if len(cond.Message) > longestMessage {
		cut := longestMessage
		for !utf8.RuneStart(cond.Message[cut]) {
			cut--
		}
		cond.Message = cond.Message[:cut]
	}
	cond.Message = strings.ToValidUTF8(cond.Message, "?")
	return meta.SetStatusCondition(conds, cond)
}

const (
	// longestTold is, in bytes, what the API accepts in the note of an event.
	longestTold = 1024
	clipped     = 1000 // with room for the mark that says so
)

// ClipMessage cuts a message that is longer than an event may be, in bytes, and marks the
// end. What another cluster answers has no limit of its own.
func ClipMessage(message string) string {
	if len(message) <= longestTold {
		return message
	}
	return strings.ToValidUTF8(message[:clipped], "") + " …"
}

// FindCondition returns the condition of that type, which belongs to conds, or nil.
func FindCondition(conds []metav1.Condition, conditionType string) *metav1.Condition {
	return meta.FindStatusCondition(conds, conditionType)
}

// FinalizerPatch returns the patch that gives obj a finalizer, or takes it away, and nil
// if obj is as wanted. It is a merge patch that names the UID and the resource version:
// if obj has changed in between, the API server answers with a conflict, and other
// finalizers are never lost. A finalizer is not added to an object that is being
// deleted.
func FinalizerPatch(obj metav1.Object, finalizer string, want bool) ([]byte, types.PatchType, error) {
	have := obj.GetFinalizers()
	if slices.Contains(have, finalizer) == want || want && obj.GetDeletionTimestamp() != nil {
		return nil, types.MergePatchType, nil
	}
	finalizers := slices.DeleteFunc(slices.Clone(have), func(s string) bool { return s == finalizer })
	if want {
		finalizers = append(finalizers, finalizer)
	}
	if finalizers == nil {
		finalizers = []string{}
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": obj.GetUID(), "resourceVersion": obj.GetResourceVersion(), "finalizers": finalizers,
	}})
	if err != nil {
		return nil, "", fmt.Errorf("encoding the finalizers of %s/%s: %w", obj.GetNamespace(), obj.GetName(), err)
	}
	return patch, types.MergePatchType, nil
}

// HasFinalizer reports whether obj has the finalizer.
func HasFinalizer(obj metav1.Object, finalizer string) bool {
	return slices.Contains(obj.GetFinalizers(), finalizer)
}

// ControllerReference returns a reference that makes owner the controller of what
// carries it. It does not block owner's deletion, which would need more rights.
func ControllerReference(owner metav1.Object, kind schema.GroupVersionKind) metav1.OwnerReference {
	ref := metav1.NewControllerRef(owner, kind)
	ref.BlockOwnerDeletion = nil
	return *ref
}

// DeleteUID returns the options of a deletion that meets this object only, and no
// successor of its name.
func DeleteUID(obj metav1.Object) metav1.DeleteOptions {
	uid := obj.GetUID()
	return metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}
}

// IgnoreNotFound returns nil for an object that is not there, and else err.
func IgnoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// IgnoreGone returns nil for what a deletion by UID meets when the object is gone
// already, or has a successor; and else err.
func IgnoreGone(err error) error {
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}
