package rules

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
)

// Fields of Services that ServiceBounds can let peers set.
const (
	FieldClusterIP      = "clusterIP"
	FieldNodePort       = "nodePort"
	FieldLoadBalancerIP = "loadBalancerIP"
)

// ServiceBounds are the Services that this cluster accepts from peers. The zero value accepts
// none.
type ServiceBounds struct {
	// Types are the accepted values of spec.type.
	Types []string
	// Fields are those that peers may set: FieldClusterIP, FieldNodePort, FieldLoadBalancerIP.
	// This cluster allocates the others.
	Fields []string
}

// Refuse returns the reason for which a peer may not write a Service, or "", and the field that is
// refused. old is the Service that an update replaces, or nil: what it has may stay. The object
// is as the peer sent it, before the API server allocates addresses and ports.
func (b ServiceBounds) Refuse(s, old *corev1.Service) (field, why string) {
	old = cmp.Or(old, &corev1.Service{})
	kind := cmp.Or(s.Spec.Type, corev1.ServiceTypeClusterIP)
	if !slices.Contains(b.Types, string(kind)) && kind != old.Spec.Type {
		return offloadingv1beta1.ServiceTypeField, fmt.Sprintf("spec.type is %s: this cluster accepts %s from peers; its setting sharing.serviceTypes allows others", kind, cmp.Or(strings.Join(b.Types, ", "), "none"))
	}
	for _, f := range []struct {
		setting, path, name string
		chosen              []string
	}{
		{FieldClusterIP, "spec.clusterIP", "spec.clusterIP", beside(clusterIPs(s), clusterIPs(old))},
		{FieldNodePort, offloadingv1beta1.NodePortsField, "a node port", beside(nodePorts(s), nodePorts(old))},
		{FieldLoadBalancerIP, "spec.loadBalancerIP", "spec.loadBalancerIP", beside([]string{s.Spec.LoadBalancerIP}, []string{old.Spec.LoadBalancerIP})},
	} {
		if len(f.chosen) > 0 && !slices.Contains(b.Fields, f.setting) {
			return f.path, fmt.Sprintf("%s is set to %s: this cluster allocates it; its setting sharing.serviceFields lets peers choose it (%s)", f.name, strings.Join(f.chosen, ", "), f.setting)
		}
	}
	return "", ""
}

// clusterIPs are the addresses that a Service names. None is no address.
func clusterIPs(s *corev1.Service) []string {
	return slices.DeleteFunc(append([]string{s.Spec.ClusterIP}, s.Spec.ClusterIPs...), func(ip string) bool { return ip == corev1.ClusterIPNone })
}

func nodePorts(s *corev1.Service) (out []string) {
	for _, port := range append([]corev1.ServicePort{{NodePort: s.Spec.HealthCheckNodePort}}, s.Spec.Ports...) {
		if port.NodePort != 0 {
			out = append(out, fmt.Sprint(port.NodePort))
		}
	}
	return out
}

// beside returns the values that are neither empty nor in old, each once.
func beside(values, old []string) []string {
	slices.Sort(values)
	return slices.DeleteFunc(slices.Compact(values), func(v string) bool { return v == "" || slices.Contains(old, v) })
}
