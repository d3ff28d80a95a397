package forge

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
)

// apiServerService is the Service of the API server in the namespace default. Each
// cluster has its own.
const apiServerService = "kubernetes"

// Service returns the Service in the provider. loadBalancers are the classes that the
// provider offers. The result is nil for the Service of the API server. The error is always nil.
func Service(local *corev1.Service, o ObjectOptions, loadBalancers []Class) (*corev1.Service, error) {
	if local.Namespace == metav1.NamespaceDefault && local.Name == apiServerService {
		return nil, nil
	}
	spec := *local.Spec.DeepCopy()
	spec.ClusterIPs = nil
	if !headless(&spec) {
		spec.ClusterIP = ""
	}
	spec.ExternalIPs = nil
	spec.LoadBalancerIP = ""
	spec.HealthCheckNodePort = 0
	if !external(&spec) {
		spec.ExternalTrafficPolicy = ""
	}
	if local.Annotations[offloadingv1beta1.ForceRemoteNodePortAnnotation] != "true" {
		for i := range spec.Ports {
			spec.Ports[i].NodePort = 0
		}
	}
	spec.LoadBalancerClass = nil
	if spec.Type == corev1.ServiceTypeLoadBalancer {
		spec.LoadBalancerClass = named(remoteClass(value(local.Spec.LoadBalancerClass), loadBalancers))
	}
	if value(spec.IPFamilyPolicy) == corev1.IPFamilyPolicyPreferDualStack {
		// The provider chooses the families it has. It would reject a listed family that it
		// lacks.
		spec.IPFamilies = nil
	}
	return &corev1.Service{ObjectMeta: o.meta(&local.ObjectMeta), Spec: spec}, nil
}

// MergeService returns a copy of have that is as wanted. Values that the provider's API
// server and load balancers have allocated or defaulted are kept if want does not set
// them.
func MergeService(have, want *corev1.Service) *corev1.Service {
	out := have.DeepCopy()
	mergeMeta(&out.ObjectMeta, &want.ObjectMeta)
	h, w := &out.Spec, want.Spec.DeepCopy()
	merged := *w
	merged.Ports = mergePorts(h.Ports, w)
	if !headless(w) {
		merged.ClusterIP = h.ClusterIP
	}
	merged.ClusterIPs = h.ClusterIPs
	merged.ExternalIPs = h.ExternalIPs
	merged.LoadBalancerIP = h.LoadBalancerIP
	merged.HealthCheckNodePort = h.HealthCheckNodePort
	merged.Type = cmp.Or(w.Type, h.Type)
	merged.SessionAffinity = cmp.Or(w.SessionAffinity, h.SessionAffinity)
	if w.SessionAffinityConfig == nil && merged.SessionAffinity == h.SessionAffinity {
		merged.SessionAffinityConfig = h.SessionAffinityConfig
	}
	if external(&merged) {
		merged.ExternalTrafficPolicy = cmp.Or(w.ExternalTrafficPolicy, h.ExternalTrafficPolicy)
	}
	merged.InternalTrafficPolicy = cmp.Or(w.InternalTrafficPolicy, h.InternalTrafficPolicy)
	merged.AllocateLoadBalancerNodePorts = cmp.Or(w.AllocateLoadBalancerNodePorts, h.AllocateLoadBalancerNodePorts)
	merged.LoadBalancerClass = cmp.Or(w.LoadBalancerClass, h.LoadBalancerClass)
	merged.IPFamilyPolicy = cmp.Or(w.IPFamilyPolicy, h.IPFamilyPolicy)
	if len(w.IPFamilies) == 0 && value(merged.IPFamilyPolicy) == value(h.IPFamilyPolicy) {
		// With another policy the API server allocates the families again. The present list
		// may contain a family that the Service does not really use.
		merged.IPFamilies = h.IPFamilies
	}
	out.Spec = merged
	return out
}

// mergePorts returns the wanted ports with the node ports that the provider has
// allocated. Ports are matched by name, as the API server does.
func mergePorts(have []corev1.ServicePort, want *corev1.ServiceSpec) []corev1.ServicePort {
	byName := make(map[string]*corev1.ServicePort, len(have))
	for i := range have {
		byName[have[i].Name] = &have[i]
	}
	keeps := hasNodePorts(want)
	for i := range want.Ports {
		p, had := &want.Ports[i], byName[want.Ports[i].Name]
		if had == nil {
			continue
		}
		p.Protocol = cmp.Or(p.Protocol, had.Protocol)
		if p.TargetPort == (intstr.IntOrString{}) && p.Port == had.Port {
			p.TargetPort = had.TargetPort
		}
		if keeps {
			p.NodePort = cmp.Or(p.NodePort, had.NodePort)
		}
	}
	return want.Ports
}

// hasNodePorts reports whether the API server allocates node ports for the Service.
func hasNodePorts(s *corev1.ServiceSpec) bool {
	return s.Type == corev1.ServiceTypeNodePort || s.Type == corev1.ServiceTypeLoadBalancer && ptr.Deref(s.AllocateLoadBalancerNodePorts, true)
}

// ReplacesService reports whether have must be deleted and created again to become as
// wanted: the first cluster IP, its family and the class of a load balancer are
// immutable.
func ReplacesService(have, want *corev1.Service) bool {
	h, w := &have.Spec, &want.Spec
	if h.Type == corev1.ServiceTypeExternalName || w.Type == corev1.ServiceTypeExternalName {
		return false
	}
	if headless(h) != headless(w) {
		return true
	}
	if len(h.IPFamilies) > 0 && len(w.IPFamilies) > 0 && h.IPFamilies[0] != w.IPFamilies[0] {
		return true
	}
	return h.Type == corev1.ServiceTypeLoadBalancer && w.Type == corev1.ServiceTypeLoadBalancer &&
		w.LoadBalancerClass != nil && value(h.LoadBalancerClass) != *w.LoadBalancerClass
}

// noPod returns the selector of a Service in the provider that is only a name at home: it selects none.
// Without a selector, the endpoints of a former one would stay.
func noPod() map[string]string { return map[string]string{"offloading.liqo.io/name-refused": "true"} }

// RestOfService returns want without the fields that the provider refuses: node ports, the type, and the
// distribution of traffic, of which earlier versions of Kubernetes accept fewer values. It returns nil if
// want has none of them. A Service of type ExternalName becomes a headless one without endpoints, any other
// one of type ClusterIP. A Service that requires both address families does not exist with fewer.
func RestOfService(want *corev1.Service, refused []string) *corev1.Service {
	out := want.DeepCopy()
	s := &out.Spec
	refuses := func(field string) bool { return slices.Contains(refused, field) }
	typed := refuses(offloadingv1beta1.ServiceTypeField) && s.Type != corev1.ServiceTypeClusterIP && s.Type != ""
	for i := range s.Ports {
		if typed || refuses(offloadingv1beta1.NodePortsField) || refuses(fmt.Sprintf("spec.ports[%d].nodePort", i)) {
			s.Ports[i].NodePort = 0
		}
	}
	if typed && s.Type == corev1.ServiceTypeExternalName {
		s.ExternalName, s.ClusterIP, s.Selector = "", corev1.ClusterIPNone, noPod()
	}
	if typed {
		s.Type, s.ExternalTrafficPolicy, s.LoadBalancerClass, s.AllocateLoadBalancerNodePorts, s.LoadBalancerSourceRanges = corev1.ServiceTypeClusterIP, "", nil, nil, nil
	}
	if refuses("spec.trafficDistribution") {
		s.TrafficDistribution = nil
	}
	if equality.Semantic.DeepEqual(out, want) {
		return nil
	}
	return out
}

// widerTypes are, for each type of a Service, the types that add a way to its endpoints.
var widerTypes = map[corev1.ServiceType][]corev1.ServiceType{
	corev1.ServiceTypeClusterIP: {corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer},
	corev1.ServiceTypeNodePort:  {corev1.ServiceTypeLoadBalancer},
}

// MisleadsService reports whether have leads clients, or lets them in, where want does not. An
// addition alone does not mislead: a wider type, one more port.
func MisleadsService(have, want *corev1.Service) bool {
	h, w := &have.Spec, &want.Spec
	switch {
	case h.Type != w.Type && !slices.Contains(widerTypes[h.Type], w.Type),
		h.ExternalName != w.ExternalName, !maps.Equal(h.Selector, w.Selector),
		h.PublishNotReadyAddresses && !w.PublishNotReadyAddresses:
		return true
	case h.Type == corev1.ServiceTypeLoadBalancer && len(w.LoadBalancerSourceRanges) > 0 &&
		(len(h.LoadBalancerSourceRanges) == 0 || lacks(w.LoadBalancerSourceRanges, h.LoadBalancerSourceRanges)):
		return true
	}
	return lacks(withoutNodePorts(w.Ports), withoutNodePorts(h.Ports))
}

// withoutNodePorts returns a copy of ports: each node port leads to the same endpoints.
func withoutNodePorts(ports []corev1.ServicePort) []corev1.ServicePort {
	out := slices.Clone(ports)
	for i := range out {
		out[i].NodePort = 0
	}
	return out
}

// lacks reports whether all does not have each of some.
func lacks[T any](all, some []T) bool {
	return slices.ContainsFunc(some, func(s T) bool {
		return !slices.ContainsFunc(all, func(a T) bool { return equality.Semantic.DeepEqual(a, s) })
	})
}

// external reports whether a Service receives traffic from outside its cluster. For any
// other Service, for example one without its former external IPs, the API server rejects
// an external traffic policy.
func external(s *corev1.ServiceSpec) bool {
	return s.Type == corev1.ServiceTypeNodePort || s.Type == corev1.ServiceTypeLoadBalancer || len(s.ExternalIPs) > 0
}

func headless(s *corev1.ServiceSpec) bool { return s.ClusterIP == corev1.ClusterIPNone }

// value returns *p, or the zero value if p is nil.
func value[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// named returns a pointer to s, or nil if s is empty.
func named(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}
