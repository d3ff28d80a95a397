package endpoints

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/shadow/rules"
)

const (
	// FieldManager is the field manager of all writes of this package.
	FieldManager = "liqod-shadowendpointslice"
	// AppliedAnnotation holds a JSON record on an EndpointSlice: the UID of its
	// ShadowEndpointSlice, the keys of the labels and annotations that come from it, and
	// whether the consumer counted as well when the endpoints were written.
	AppliedAnnotation = "offloading.liqo.io/applied"

	// managedByShadow is the ManagedByLabel value of the EndpointSlices.
	managedByShadow = "shadowendpointslice"
	// remotePrefix is put before the kind of an endpoint's targetRef, so that no client
	// takes it for an object of this cluster.
	remotePrefix = "Remote"
	// elsewhere is the zone and the node in hints of endpoints that are not in this cluster. No
	// node of this cluster has that name or zone.
	elsewhere = "elsewhere.liqo.io"
	// named is the number of refused endpoints that a message names.
	named = 3
)

// applied is the content of AppliedAnnotation. It refers to the shadow by UID in place of
// an owner reference. With owner references, the garbage collector would read both objects
// again for every deleted shadow, and delete the EndpointSlice a second time.
type applied struct {
	Shadow      types.UID `json:"shadow,omitempty"`
	Labels      []string  `json:"labels,omitempty"`
	Annotations []string  `json:"annotations,omitempty"`
	Well        bool      `json:"well"`
}

// readApplied returns the record of slice, which may be nil. A missing or invalid record
// reads as the zero value: nothing applied, consumer not well.
func readApplied(slice *discoveryv1.EndpointSlice) applied {
	return store.Recorded[applied](ptr.Deref(slice, discoveryv1.EndpointSlice{}).Annotations, AppliedAnnotation)
}

// forge returns the EndpointSlice that shadow describes, with the API server's defaults,
// and the endpoints left out with the reasons. slice is nil if nothing is accepted.
func forge(shadow *offloadingv1beta1.ShadowEndpointSlice, r addressRules, well bool) (slice *discoveryv1.EndpointSlice, refused string) {
	template := &shadow.Spec.Template
	if template.AddressType == discoveryv1.AddressTypeFQDN && !r.names {
		return nil, "spec.template.addressType is FQDN; IPv4 and IPv6 are accepted, because a host name can resolve to any address; names are accepted where the setting sharing.serviceTypes has ExternalName"
	}
	slice = &discoveryv1.EndpointSlice{
		ObjectMeta:  metadataOf(shadow, r, well),
		AddressType: template.AddressType,
		Endpoints:   []discoveryv1.Endpoint{},
		Ports:       ports(template.Ports),
	}
	var reasons []string
	for i := range template.Endpoints {
		endpoint, why := forgeEndpoint(&template.Endpoints[i], template.AddressType, r, well)
		if why != "" {
			reasons = append(reasons, why)
			continue
		}
		slice.Endpoints = append(slice.Endpoints, *endpoint)
	}
	return slice, leftOut(reasons, len(template.Endpoints))
}

func metadataOf(shadow *offloadingv1beta1.ShadowEndpointSlice, r addressRules, well bool) metav1.ObjectMeta {
	kept, _ := r.metadata.Keep("EndpointSlice", rules.Marks{Labels: shadow.Labels, Annotations: shadow.Annotations}, rules.Marks{})
	labels, annotations := kept.Labels, kept.Annotations
	delete(annotations, AppliedAnnotation)
	delete(annotations, offloadingv1beta1.ReflectedAnnotation)
	record := applied{Shadow: shadow.UID, Labels: slices.Sorted(maps.Keys(labels)), Annotations: slices.Sorted(maps.Keys(annotations)), Well: well}
	labels[discoveryv1.LabelManagedBy] = offloadingv1beta1.ManagedByShadowEndpointSlice
	labels[offloadingv1beta1.ManagedByLabel] = managedByShadow
	labels[offloadingv1beta1.OriginLabel] = r.peer
	annotations[AppliedAnnotation] = store.Record(record)
	return metav1.ObjectMeta{
		Name: shadow.Name, Namespace: shadow.Namespace, Labels: labels, Annotations: annotations,
	}
}

// ports returns the ports with the API server's defaults.
func ports(template []discoveryv1.EndpointPort) []discoveryv1.EndpointPort {
	out := make([]discoveryv1.EndpointPort, 0, len(template))
	for i := range template {
		port := *template[i].DeepCopy()
		port.Name, port.Protocol = cmp.Or(port.Name, new("")), cmp.Or(port.Protocol, new(corev1.ProtocolTCP))
		out = append(out, port)
	}
	return out
}

// forgeEndpoint returns the endpoint for this cluster, or the reason for which it is
// refused. One refused address refuses the endpoint, as all its addresses stand for one
// backend.
func forgeEndpoint(template *discoveryv1.Endpoint, family discoveryv1.AddressType, r addressRules, well bool) (endpoint *discoveryv1.Endpoint, refused string) {
	if len(template.Addresses) == 0 {
		return nil, "an endpoint has no address"
	}
	endpoint = template.DeepCopy()
	// A node name of the consumer's cluster may equal the name of a different node here.
	endpoint.NodeName = nil
	endpoint.DeprecatedTopology = nil // the v1 API ignores it in writes
	pod, own := ofUID(endpoint, family, r)
	for i := 0; !own && i < len(template.Addresses); i++ {
		if endpoint.Addresses[i], refused = r.translate(template.Addresses[i], family); refused == "" {
			continue
		}
		if pod, own = ofAddress(endpoint, template, family, r); !own {
			return nil, refused
		}
	}
	on, serving, conditions := well, well, &endpoint.Conditions
	if own {
		// A pod in this cluster does not end with the consumer. While the consumer is not
		// well, the pod's own readiness applies.
		on, serving = !pod.ending && (well || pod.ready), pod.ready || (well && !pod.ending)
		if pod.ending {
			conditions.Terminating = new(true)
		}
	}
	if !serving {
		// Where no endpoint is ready, proxies take those that serve while they end.
		conditions.Serving = new(false)
	}
	conditions.Ready = new(on && (conditions.Ready == nil || *conditions.Ready))
	if r.standby && !own && *conditions.Ready && (conditions.Serving == nil || *conditions.Serving) {
		// Where no endpoint is ready, proxies take at once those that serve while they end.
		conditions.Ready, conditions.Serving, conditions.Terminating = new(false), new(true), new(true)
	}
	r.locate(endpoint)
	if ref := endpoint.TargetRef; ref != nil && ref.Kind != "" && !strings.HasPrefix(ref.Kind, remotePrefix) {
		ref.Kind = remotePrefix + ref.Kind
	}
	return endpoint, ""
}

// locate gives endpoint the zone and the hints that it has in this cluster, in place of those of
// the consumer's cluster. Proxies heed hints only if all ready endpoints of the Service have one.
// So an endpoint of the other cluster always has a zone hint, which is no reason to take it.
func (r addressRules) locate(e *discoveryv1.Endpoint) {
	given, far := ptr.Deref(e.Hints, discoveryv1.EndpointHints{}), e.NodeName == nil
	node, zone := elsewhere, elsewhere
	if !far {
		node, zone = *e.NodeName, r.zone(*e.NodeName)
	}
	hints := &discoveryv1.EndpointHints{}
	if len(given.ForNodes) > 0 {
		hints.ForNodes = []discoveryv1.ForNode{{Name: node}}
	}
	switch {
	case far && r.sharedZones && len(given.ForZones) > 0:
		hints.ForZones = given.ForZones
	case zone != "" && (far || len(given.ForZones) > 0):
		hints.ForZones = []discoveryv1.ForZone{{Name: zone}}
	}
	if e.Hints = hints; len(hints.ForNodes)+len(hints.ForZones) == 0 {
		e.Hints = nil
	}
	switch {
	case far && r.sharedZones:
	case far || zone == "":
		e.Zone = nil
	default:
		e.Zone = &zone
	}
}

// ofUID completes endpoint with the pod of this cluster that stands for the pod that it names. It
// returns false if there is none.
func ofUID(endpoint *discoveryv1.Endpoint, family discoveryv1.AddressType, r addressRules) (pod ownPod, ok bool) {
	uid := podUID(endpoint)
	if uid == "" || r.problem != "" {
		return ownPod{}, false
	}
	pod, address := r.podOf(uid, family)
	if address == "" {
		return ownPod{}, false
	}
	endpoint.Addresses, endpoint.NodeName = []string{address}, new(pod.node)
	return pod, true
}

// ofAddress completes endpoint with the pod that has its addresses and runs in this cluster for
// the consumer. It returns false if there is none.
func ofAddress(endpoint, template *discoveryv1.Endpoint, family discoveryv1.AddressType, r addressRules) (whole ownPod, ok bool) {
	if !byAddress(template) {
		return ownPod{}, false
	}
	whole.ready = true
	for i, text := range template.Addresses {
		address, pod, ok := r.own(text, family)
		if !ok {
			return ownPod{}, false
		}
		whole = whole.and(pod)
		endpoint.Addresses[i] = address
	}
	endpoint.NodeName = new(whole.node)
	return whole, true
}

// leftOut is the message about refused endpoints: their number, and the first few reasons.
// The message does not depend on the order of the reasons.
func leftOut(reasons []string, of int) string {
	if len(reasons) == 0 {
		return ""
	}
	slices.Sort(reasons)
	refused := len(reasons)
	return fmt.Sprintf("%d of %d endpoints are left out: ", refused, of) + store.First(slices.Compact(reasons), named, "; ", "; and %d more reasons")
}
