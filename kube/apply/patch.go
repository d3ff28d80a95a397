package apply

import (
	"encoding/json"
	"fmt"
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Patch is a merge patch, or a part of one: a nil value removes its key.
type Patch = map[string]any

// Put puts part into a patch, unless it changes nothing.
func Put(into Patch, key string, part Patch) {
	if len(part) > 0 {
		into[key] = part
	}
}

// MapChanges returns what makes the labels or annotations have contain want, without the
// keys of ours that are no longer wanted. What others added stays.
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

// EncodePatch makes a patch that only obj itself accepts, and no successor of its name.
// The patch is left as it is, and the same changes give the same text.
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
