package forge

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
)

// EndpointSlice returns the object that asks the provider for an EndpointSlice with the
// endpoints that it does not know itself: those on its own virtual nodes, which are
// given by name, are its own pods. It is nil where none is left, for a slice that stands
// for endpoints of another cluster, and for the API server's. The error is always nil.
//
// Each endpoint is said to be on a node named as this cluster: a node's name means
// nothing in the provider, and may be that of a node there.
func EndpointSlice(local *discoveryv1.EndpointSlice, o ObjectOptions, nodes sets.Set[string]) (*offloadingv1beta1.ShadowEndpointSlice, error) {
	service := local.Labels[discoveryv1.LabelServiceName]
	if Foreign(local, o.OriginClusterID) ||
		local.Labels[discoveryv1.LabelManagedBy] == offloadingv1beta1.ManagedByShadowEndpointSlice ||
		local.Namespace == metav1.NamespaceDefault && service == apiServerService {
		return nil, nil
	}
	template := offloadingv1beta1.EndpointSliceTemplate{AddressType: local.AddressType}
	for i := range local.Endpoints {
		if nodes.Has(value(local.Endpoints[i].NodeName)) {
			continue
		}
		e := *local.Endpoints[i].DeepCopy()
		e.NodeName = named(o.OriginClusterID)
		e.DeprecatedTopology = nil
		template.Endpoints = append(template.Endpoints, e)
	}
	if len(template.Endpoints) == 0 {
		return nil, nil
	}
	template.Ports = local.DeepCopy().Ports
	out := &offloadingv1beta1.ShadowEndpointSlice{
		ObjectMeta: o.meta(&local.ObjectMeta),
		Spec:       offloadingv1beta1.ShadowEndpointSliceSpec{Template: template},
	}
	if service != "" {
		// Without it the slice belongs to no Service: it is not to be skipped.
		out.Labels[discoveryv1.LabelServiceName] = service
	}
	// The time changes with endpoints that the provider knows itself, too.
	leave(&out.ObjectMeta, []string{discoveryv1.LabelManagedBy}, []string{corev1.EndpointsLastChangeTriggerTime})
	return out, nil
}

// MergeEndpointSlice returns have made as wanted.
func MergeEndpointSlice(have, want *offloadingv1beta1.ShadowEndpointSlice) *offloadingv1beta1.ShadowEndpointSlice {
	out := have.DeepCopy()
	mergeMeta(&out.ObjectMeta, &want.ObjectMeta)
	want.Spec.DeepCopyInto(&out.Spec)
	return out
}

// ReplacesEndpointSlice tells whether have must be deleted and created anew to become as
// wanted: the address type of an EndpointSlice never changes.
func ReplacesEndpointSlice(have, want *offloadingv1beta1.ShadowEndpointSlice) bool {
	return have.Spec.Template.AddressType != want.Spec.Template.AddressType
}
