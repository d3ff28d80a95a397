package endpoints

import (
	"github.com/liqod/liqod/kube/store"
	discoveryv1 "k8s.io/api/discovery/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
)

// changes returns the patch that makes have equal to want, or an empty one. Labels and
// annotations of other clients stay.
func changes(want, have *discoveryv1.EndpointSlice) store.Patch {
	patch, metadata, done := store.Patch{}, store.Patch{}, readApplied(have)
	store.Put(metadata, "labels", store.MapChanges(want.Labels, have.Labels, done.Labels))
	store.Put(metadata, "annotations", store.MapChanges(want.Annotations, have.Annotations, done.Annotations))
	store.Put(patch, "metadata", metadata)
	if !apiequality.Semantic.DeepEqual(want.Endpoints, have.Endpoints) {
		patch["endpoints"] = want.Endpoints
	}
	if !apiequality.Semantic.DeepEqual(want.Ports, have.Ports) {
		patch["ports"] = want.Ports
	}
	return patch
}

// changed returns a copy of have with a patch of changes applied.
func changed(have *discoveryv1.EndpointSlice, patch store.Patch) *discoveryv1.EndpointSlice {
	out := have.DeepCopy()
	if endpoints, ok := patch["endpoints"].([]discoveryv1.Endpoint); ok {
		out.Endpoints = endpoints
	}
	if ports, ok := patch["ports"].([]discoveryv1.EndpointPort); ok {
		out.Ports = ports
	}
	metadata, ok := patch["metadata"].(store.Patch)
	if !ok {
		return out
	}
	out.Labels, out.Annotations = changedMap(out.Labels, metadata["labels"]), changedMap(out.Annotations, metadata["annotations"])
	return out
}

func changedMap(have map[string]string, patch any) map[string]string {
	changes, ok := patch.(store.Patch)
	if !ok {
		return have
	}
	if have == nil {
		have = map[string]string{}
	}
	for key, value := range changes {
		if text, ok := value.(string); ok {
			have[key] = text
		} else {
			delete(have, key)
		}
	}
	return have
}

// replaces reports whether have must be deleted and created again, because an immutable
// field differs.
func replaces(want, have *discoveryv1.EndpointSlice) bool {
	return want.AddressType != have.AddressType
}
