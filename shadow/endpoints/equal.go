package endpoints

import (
	"encoding/json"
	"fmt"
	"slices"

	discoveryv1 "k8s.io/api/discovery/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// object is a part of a JSON merge patch; a nil value removes its key.
type object = map[string]any

// changes returns the patch that makes have as want, or nothing if it is so. What others
// added to the metadata stays.
func changes(want, have *discoveryv1.EndpointSlice) object {
	patch, metadata, done := object{}, object{}, readApplied(have)
	put(metadata, "labels", mapChanges(want.Labels, have.Labels, done.Labels))
	put(metadata, "annotations", mapChanges(want.Annotations, have.Annotations, done.Annotations))
	if owner := want.OwnerReferences[0]; !slices.ContainsFunc(have.OwnerReferences, sameOwner(owner)) {
		others := slices.DeleteFunc(slices.Clone(have.OwnerReferences), func(o metav1.OwnerReference) bool { return o.UID == owner.UID })
		metadata["ownerReferences"] = append(others, owner)
	}
	put(patch, "metadata", metadata)
	if !apiequality.Semantic.DeepEqual(want.Endpoints, have.Endpoints) {
		patch["endpoints"] = want.Endpoints
	}
	if !apiequality.Semantic.DeepEqual(want.Ports, have.Ports) {
		patch["ports"] = want.Ports
	}
	return patch
}

// replaces reports whether have cannot be changed into want.
func replaces(want, have *discoveryv1.EndpointSlice) bool {
	return want.AddressType != have.AddressType
}

func sameOwner(want metav1.OwnerReference) func(metav1.OwnerReference) bool {
	return func(have metav1.OwnerReference) bool {
		return have.UID == want.UID && have.Kind == want.Kind && have.Name == want.Name && have.Controller != nil && *have.Controller
	}
}

func put(into object, key string, part object) {
	if len(part) > 0 {
		into[key] = part
	}
}

// mapChanges returns what makes have contain want, without what came from us before and
// is no longer wanted.
func mapChanges(want, have map[string]string, ours []string) object {
	patch := object{}
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

// encode makes a patch that only the EndpointSlice it was made for accepts. The same
// changes give the same text.
func encode(patch object, slice *discoveryv1.EndpointSlice) ([]byte, error) {
	metadata := object{"uid": string(slice.UID)}
	if more, ok := patch["metadata"].(object); ok {
		for key, value := range more {
			metadata[key] = value
		}
	}
	body := object{"metadata": metadata}
	for key, value := range patch {
		if key != "metadata" {
			body[key] = value
		}
	}
	data, err := json.Marshal(body)
	if err != nil {
		return nil, fmt.Errorf("encoding the patch of EndpointSlice %s/%s: %w", slice.Namespace, slice.Name, err)
	}
	return data, nil
}
