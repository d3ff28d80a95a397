package store

import (
	"encoding/json"
	"fmt"
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Patch is a JSON merge patch (RFC 7396), or a part of one. A nil value removes its key.
type Patch = map[string]any

// Put sets into[key] to part, unless part is empty.
func Put(into Patch, key string, part Patch) {
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
