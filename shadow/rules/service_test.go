package rules

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

func serviceOf(change func(*corev1.ServiceSpec)) *corev1.Service {
	s := &corev1.Service{Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, Ports: []corev1.ServicePort{{Port: 80}}}}
	if change != nil {
		change(&s.Spec)
	}
	return s
}

func TestServiceOfAPeer(t *testing.T) {
	usual := ServiceBounds{Types: []string{"ClusterIP", "NodePort", "LoadBalancer"}}
	all := ServiceBounds{Types: append(usual.Types, "ExternalName"), Fields: []string{FieldClusterIP, FieldNodePort, FieldLoadBalancerIP}}
	for name, c := range map[string]struct {
		change, old func(*corev1.ServiceSpec)
		says        string
	}{
		"ordinary":   {func(*corev1.ServiceSpec) {}, nil, ""},
		"headless":   {func(s *corev1.ServiceSpec) { s.ClusterIP, s.ClusterIPs = "None", []string{"None"} }, nil, ""},
		"no type":    {func(s *corev1.ServiceSpec) { s.Type = "" }, nil, ""},
		"a balancer": {func(s *corev1.ServiceSpec) { s.Type = corev1.ServiceTypeLoadBalancer }, nil, ""},
		"another's name": {func(s *corev1.ServiceSpec) {
			s.Type, s.ExternalName = corev1.ServiceTypeExternalName, "vault.vault.svc"
		}, nil, "spec.type is ExternalName: this cluster accepts ClusterIP, NodePort, LoadBalancer from peers; its setting sharing.serviceTypes allows others"},
		"an address": {func(s *corev1.ServiceSpec) { s.ClusterIP = "10.96.0.10" }, nil, "spec.clusterIP is set to 10.96.0.10: this cluster allocates it; its setting sharing.serviceFields lets peers choose it (clusterIP)"},
		"a second address": {func(s *corev1.ServiceSpec) { s.ClusterIP, s.ClusterIPs = "10.96.0.9", []string{"10.96.0.9", "fd00::a"} },
			func(s *corev1.ServiceSpec) { s.ClusterIP, s.ClusterIPs = "10.96.0.9", []string{"10.96.0.9"} }, "is set to fd00::a"},
		"the allocated address":    {func(s *corev1.ServiceSpec) { s.ClusterIP = "10.96.0.9" }, func(s *corev1.ServiceSpec) { s.ClusterIP = "10.96.0.9" }, ""},
		"another address":          {func(s *corev1.ServiceSpec) { s.ClusterIP = "10.96.0.10" }, func(s *corev1.ServiceSpec) { s.ClusterIP = "10.96.0.9" }, "is set to 10.96.0.10"},
		"a node port":              {func(s *corev1.ServiceSpec) { s.Ports[0].NodePort = 30000 }, nil, "a node port is set to 30000"},
		"a node port for health":   {func(s *corev1.ServiceSpec) { s.HealthCheckNodePort = 30001 }, nil, "a node port is set to 30001"},
		"the allocated node port":  {func(s *corev1.ServiceSpec) { s.Ports[0].NodePort = 30000 }, func(s *corev1.ServiceSpec) { s.Ports[0].NodePort = 30000 }, ""},
		"a balancer's address":     {func(s *corev1.ServiceSpec) { s.LoadBalancerIP = "198.51.100.7" }, nil, "spec.loadBalancerIP is set to 198.51.100.7"},
		"what was accepted before": {func(s *corev1.ServiceSpec) { s.Type = corev1.ServiceTypeExternalName }, func(s *corev1.ServiceSpec) { s.Type = corev1.ServiceTypeExternalName }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var old *corev1.Service
			if c.old != nil {
				old = serviceOf(c.old)
			}
			field, got := usual.Refuse(serviceOf(c.change), old)
			require.Contains(t, got, c.says)
			require.Equal(t, c.says == "", got == "", got)
			require.Equal(t, c.says == "", field == "", "a refusal names the part")
			_, got = all.Refuse(serviceOf(c.change), old)
			require.Empty(t, got)
			_, got = ServiceBounds{}.Refuse(serviceOf(func(s *corev1.ServiceSpec) { s.Type = "" }), nil)
			require.NotEmpty(t, got, "none is accepted")
		})
	}
}
