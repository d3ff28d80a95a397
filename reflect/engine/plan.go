package engine

import (
	"encoding/json"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/jsonmergepatch"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/reflect/forge"
)

// wish is the desired object in the provider and the warning for its owner.
type wish[R Object] struct {
	want R
	// The event about the local object; empty: none.
	reason, message string
}

// ReasonFailedReflection is the reason of events about objects that are not reflected, or
// only in part.
const ReasonFailedReflection = "FailedReflection"

// wishFor returns the desired object for local, which is nil if it does not exist. An
// object that was reflected from another cluster is not reflected further.
func (k Kind[L, R]) wishFor(local L, s Scope) (wish[R], error) {
	var none L
	if local == none || k.foreign(local, s) {
		return wish[R]{}, nil
	}
	chosen := k.Chosen
	if chosen == nil {
		chosen = ByAnnotations[L]
	}
	yes, warning := chosen(local, s)
	w := wish[R]{message: warning}
	if warning != "" {
		w.reason = ReasonFailedReflection
	}
	if !yes {
		return w, nil
	}
	want, err := k.Forge(local, s)
	var refused *forge.Refused
	if errors.As(err, &refused) {
		return wish[R]{reason: refused.Reason, message: refused.Message}, nil
	}
	if err != nil {
		return wish[R]{}, fmt.Errorf("forging the object for the provider: %w", err)
	}
	w.want = want
	return w, nil
}

func (k Kind[L, R]) foreign(local L, s Scope) bool {
	if k.Foreign != nil {
		return k.Foreign(local, s)
	}
	return forge.Foreign(local, s.OriginClusterID)
}

// ByAnnotations is the default of Kind.Chosen: the policy and the two reflection
// annotations decide. It returns the warning BothAnnotations if both annotations are set.
func ByAnnotations[L Object](local L, s Scope) (bool, string) {
	yes, conflict := forge.Reflects(s.Policy, local.GetAnnotations())
	if conflict {
		return yes, BothAnnotations
	}
	return yes, ""
}

// BothAnnotations is the warning for an object that has both reflection annotations.
const BothAnnotations = "not reflected: the annotations " + offloadingv1beta1.SkipReflectionAnnotation + " and " +
	offloadingv1beta1.AllowReflectionAnnotation + " are both set, and the first one wins; remove one of them"

// verb is an action on the object in the provider.
type verb string

const (
	nothing  verb = "nothing"
	create   verb = "create"
	update   verb = "update"
	replace  verb = "replace"
	withdraw verb = "withdraw"
	// wait: the object is being deleted, and the watch will report the end of the
	// deletion.
	wait verb = "wait"
)

// plan returns the action that brings have, the reflected object in the provider, to
// want. Both are nil if there is none. For an update it also returns the merged object.
func (k Kind[L, R]) plan(have, want R) (verb, R) {
	var none R
	switch {
	case have == none && want == none:
		return nothing, none
	case have == none:
		return create, none
	case have.GetDeletionTimestamp() != nil:
		return wait, none
	case want == none:
		return withdraw, none
	case k.Replaces != nil && k.Replaces(have, want):
		return replace, none
	}
	merged := k.Merge(have, want)
	if equality.Semantic.DeepEqual(have, merged) {
		return nothing, none
	}
	return update, merged
}

// mergePatch returns the JSON merge patch (RFC 7396) from have to merged, or nil if they
// are equal. The patch contains the UID, so that it fails for a newer object of the same
// name. It has no resource version, so that concurrent changes of other fields do not
// conflict.
func mergePatch[R Object](have, merged R) ([]byte, error) {
	before, err := json.Marshal(have)
	if err != nil {
		return nil, fmt.Errorf("encoding the object as it is: %w", err)
	}
	after, err := json.Marshal(merged)
	if err != nil {
		return nil, fmt.Errorf("encoding the object as wanted: %w", err)
	}
	diff, err := jsonmergepatch.CreateThreeWayJSONMergePatch(before, after, before)
	if err != nil {
		return nil, fmt.Errorf("comparing the object as it is and as wanted: %w", err)
	}
	patch := map[string]any{}
	if err := json.Unmarshal(diff, &patch); err != nil {
		return nil, fmt.Errorf("reading the difference: %w", err)
	}
	if len(patch) == 0 {
		return nil, nil
	}
	metadata, ok := patch["metadata"].(map[string]any)
	if !ok {
		metadata = map[string]any{}
		patch["metadata"] = metadata
	}
	metadata["uid"] = have.GetUID()
	return json.Marshal(patch)
}
