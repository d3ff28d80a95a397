package forge

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
)

// selectedBy is the managed-by label of EndpointSlices that Kubernetes creates from the
// selector of a Service. The provider has the same Service and finds its own pods by the
// selector.
const selectedBy = "endpointslice-controller.k8s.io"

// Place is the location of an endpoint as seen from the provider.
type Place int

const (
	// Elsewhere is any location that is unknown to the provider.
	Elsewhere Place = iota
	// OnProvider is a pod that the provider runs for this cluster.
	OnProvider
	// OfProvider is a pod that the provider has offloaded to this cluster.
	OfProvider
)

// External returns the address that the provider has for an address of an endpoint in a namespace, if it is
// no pod's; "": none. Nil stands for none.
type External func(namespace, address string) string

// EndpointSlice returns the ShadowEndpointSlice from which the provider creates an
// EndpointSlice. It contains the endpoints that the provider cannot find by itself; place
// returns their location. An endpoint on the provider in a slice without selector keeps
// the name of its virtual node, so that the provider may know its pod by the address. The result
// is nil if no endpoint remains, if local was itself reflected from another cluster, and
// for the Service of the API server.
func EndpointSlice(local *discoveryv1.EndpointSlice, o ObjectOptions, place func(*discoveryv1.Endpoint) Place, external External) *offloadingv1beta1.ShadowEndpointSlice {
	service := local.Labels[discoveryv1.LabelServiceName]
	if ForeignEndpointSlice(local, o) ||
		local.Labels[discoveryv1.LabelManagedBy] == offloadingv1beta1.ManagedByShadowEndpointSlice ||
		local.Namespace == metav1.NamespaceDefault && service == apiServerService {
		return nil
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
			e.NodeName = nil // the provider may have an unrelated node of that name
			for j, address := range e.Addresses {
				if external != nil {
					e.Addresses[j] = cmp.Or(external(local.Namespace, address), address)
				}
			}
		}
		template.Endpoints = append(template.Endpoints, e)
	}
	if len(template.Endpoints) == 0 {
		return nil
	}
	template.Ports = local.DeepCopy().Ports
	out := &offloadingv1beta1.ShadowEndpointSlice{
		ObjectMeta: o.meta(&local.ObjectMeta),
		Spec:       offloadingv1beta1.ShadowEndpointSliceSpec{Template: template},
	}
	if service != "" {
		// The label is set even if it is excluded from reflection: without it the slice
		// belongs to no Service.
		out.Labels[discoveryv1.LabelServiceName] = service
	}
	// This annotation also changes with endpoints that are not sent to the provider.
	leave(&out.ObjectMeta, []string{discoveryv1.LabelManagedBy}, []string{corev1.EndpointsLastChangeTriggerTime})
	return out
}

// ForeignEndpointSlice reports whether an EndpointSlice was reflected from another
// cluster. An EndpointSlice that Kubernetes creates from a selector copies the labels of
// its Service. If two clusters share a namespace, the Service can come from the other
// cluster while the endpoints are pods of this one. Such a slice is reflected to the
// cluster of the Service and is not foreign.
func ForeignEndpointSlice(local *discoveryv1.EndpointSlice, o ObjectOptions) bool {
	ofService := local.Labels[discoveryv1.LabelManagedBy] == selectedBy && local.Labels[offloadingv1beta1.OriginLabel] == o.DestinationClusterID
	return Foreign(local, o.OriginClusterID) && !ofService
}

// MergeEndpointSlice returns a copy of have that is as wanted.
func MergeEndpointSlice(have, want *offloadingv1beta1.ShadowEndpointSlice) *offloadingv1beta1.ShadowEndpointSlice {
	out := have.DeepCopy()
	mergeMeta(&out.ObjectMeta, &want.ObjectMeta)
	want.Spec.DeepCopyInto(&out.Spec)
	return out
}

// ReplacesEndpointSlice reports whether have must be deleted and created again to become
// as wanted: the address type of an EndpointSlice is immutable.
func ReplacesEndpointSlice(have, want *offloadingv1beta1.ShadowEndpointSlice) bool {
	return have.Spec.Template.AddressType != want.Spec.Template.AddressType
}

// MisleadsEndpointSlice reports whether have leads clients to endpoints or ports, or for a
// Service, that want does not have. One more endpoint alone does not mislead.
func MisleadsEndpointSlice(have, want *offloadingv1beta1.ShadowEndpointSlice) bool {
	h, w := &have.Spec.Template, &want.Spec.Template
	return have.Labels[discoveryv1.LabelServiceName] != want.Labels[discoveryv1.LabelServiceName] ||
		lacks(w.Endpoints, h.Endpoints) || lacks(w.Ports, h.Ports)
}
