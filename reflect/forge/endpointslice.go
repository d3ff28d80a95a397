package forge

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
)

// ReasonAddressType says that endpoints are given by names. What a name leads to cannot be
// checked, and providers accept addresses only.
const ReasonAddressType = "AddressTypeNotSupported"

// selectedBy is the ManagedBy label of EndpointSlices that follow the selector of their
// Service. The provider, which has the same Service, finds its own pods by it, too.
const selectedBy = "endpointslice-controller.k8s.io"

// Place is where an endpoint is, as seen from the provider.
type Place int

const (
	// Elsewhere is any place that the provider does not know of.
	Elsewhere Place = iota
	// OnProvider are the pods that the provider runs for this cluster.
	OnProvider
	// OfProvider are the pods that the provider has offloaded to this cluster.
	OfProvider
)

// EndpointSlice returns the object that asks the provider for an EndpointSlice with the
// endpoints that it does not know itself: place tells where they are. One on the provider
// that no selector finds keeps the name of its virtual node, by which the provider knows
// it for one of its own pods. It is nil where none is left, for a slice that stands for
// endpoints of another cluster, and for the API server's. The error, if any, is a
// *Refused.
func EndpointSlice(local *discoveryv1.EndpointSlice, o ObjectOptions, place func(*discoveryv1.Endpoint) Place) (*offloadingv1beta1.ShadowEndpointSlice, error) {
	service := local.Labels[discoveryv1.LabelServiceName]
	if ForeignEndpointSlice(local, o) ||
		local.Labels[discoveryv1.LabelManagedBy] == offloadingv1beta1.ManagedByShadowEndpointSlice ||
		local.Namespace == metav1.NamespaceDefault && service == apiServerService {
		return nil, nil
	}
	template := offloadingv1beta1.EndpointSliceTemplate{AddressType: local.AddressType}
	for i := range local.Endpoints {
		at := place(&local.Endpoints[i])
		if at != Elsewhere && local.Labels[discoveryv1.LabelManagedBy] == selectedBy {
			continue
		}
		e := *local.Endpoints[i].DeepCopy()
		e.DeprecatedTopology = nil
		if at != OnProvider {
			e.NodeName = nil // a node of that name in the provider is another
		}
		template.Endpoints = append(template.Endpoints, e)
	}
	if len(template.Endpoints) == 0 {
		return nil, nil
	}
	if local.AddressType == discoveryv1.AddressTypeFQDN {
		return nil, &Refused{ReasonAddressType, fmt.Sprintf("EndpointSlice %s has addressType %s: accepted are %s and %s",
			local.Name, local.AddressType, discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6)}
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

// ForeignEndpointSlice tells whether an EndpointSlice stands for endpoints of another
// cluster. One that follows the selector of a Service has the labels of that Service, which
// may be another cluster's, and the endpoints of this one: where two clusters share a
// namespace, they are told to the cluster that has the Service.
func ForeignEndpointSlice(local *discoveryv1.EndpointSlice, o ObjectOptions) bool {
	ofService := local.Labels[discoveryv1.LabelManagedBy] == selectedBy && local.Labels[offloadingv1beta1.OriginLabel] == o.DestinationClusterID
	return Foreign(local, o.OriginClusterID) && !ofService
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
