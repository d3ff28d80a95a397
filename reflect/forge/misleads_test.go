package forge

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// change is a change of a spec, which the provider refuses.
type change[S any] struct {
	from, to S
	misleads bool
}

// requireChanges checks the changes of each field. Every field of S has a line.
func requireChanges[S any](t *testing.T, fields map[string][]change[S], misleads func(from, to S) bool) {
	t.Helper()
	of := reflect.TypeFor[S]()
	for i := range of.NumField() {
		require.Contains(t, fields, of.Field(i).Name, "a rule for each field of %s", of)
	}
	for field, changes := range fields {
		for _, c := range changes {
			require.Equal(t, c.misleads, misleads(c.from, c.to), "%s: %+v → %+v", field, c.from, c.to)
			require.False(t, misleads(c.from, c.from), field)
		}
	}
}

func TestWhichServicesMislead(t *testing.T) {
	type s = corev1.ServiceSpec
	ports := func(p ...corev1.ServicePort) s { return s{Type: "ClusterIP", Ports: p} }
	http, https := corev1.ServicePort{Name: "http", Port: 80}, corev1.ServicePort{Name: "https", Port: 443}
	target := http
	target.TargetPort = intstr.FromInt32(8080)
	renamed, numbered, udp, node, app := http, http, http, http, http
	renamed.Name, numbered.Port, udp.Protocol, node.NodePort, app.AppProtocol = "web", 81, "UDP", 30080, new("h2c")
	open, closed := s{Type: "LoadBalancer"}, s{Type: "LoadBalancer", LoadBalancerSourceRanges: []string{"10.0.0.0/8"}}
	wider := s{Type: "LoadBalancer", LoadBalancerSourceRanges: []string{"192.168.0.0/16", "10.0.0.0/8"}}
	requireChanges(t, map[string][]change[s]{
		"Ports": {
			{ports(http), ports(http, https), false}, {ports(http, https), ports(http), true}, {ports(http), ports(target), true},
			{ports(http), ports(renamed), true}, {ports(http), ports(numbered), true}, {ports(http), ports(udp), true},
			{ports(http), ports(app), true}, {ports(http), ports(node), false},
		},
		"Selector": {
			{s{Selector: map[string]string{"app": "a"}}, s{Selector: map[string]string{"app": "b"}}, true},
			{s{Selector: map[string]string{"app": "a"}}, s{}, true}, {s{}, s{Selector: map[string]string{"app": "a"}}, true},
		},
		"Type": {
			{s{Type: "ClusterIP"}, s{Type: "ExternalName"}, true}, {s{Type: "ExternalName"}, s{Type: "ClusterIP"}, true},
			{s{Type: "ClusterIP"}, s{Type: "NodePort"}, false}, {s{Type: "ClusterIP"}, open, false}, {s{Type: "NodePort"}, open, false},
			{s{Type: "NodePort"}, s{Type: "ClusterIP"}, true}, {open, s{Type: "NodePort"}, true}, {open, s{Type: "ClusterIP"}, true},
		},
		"ExternalName":             {{s{ExternalName: "a.example.com"}, s{ExternalName: "b.example.com"}, true}},
		"PublishNotReadyAddresses": {{s{PublishNotReadyAddresses: true}, s{}, true}, {s{}, s{PublishNotReadyAddresses: true}, false}},
		"LoadBalancerSourceRanges": {
			{open, closed, true}, {closed, open, false}, {closed, wider, false}, {wider, closed, true}, {s{Type: "ClusterIP"}, closed, false},
		},
		// The provider's own, or replaced (see ReplacesService).
		"ClusterIP": nil, "ClusterIPs": nil, "ExternalIPs": nil, "LoadBalancerIP": nil, "HealthCheckNodePort": nil, "LoadBalancerClass": nil,
		"IPFamilies": nil, "IPFamilyPolicy": nil, "AllocateLoadBalancerNodePorts": nil,
		// Each way leads to the same endpoints.
		"SessionAffinity": {{s{}, s{SessionAffinity: "ClientIP"}, false}}, "SessionAffinityConfig": nil, "ExternalTrafficPolicy": nil,
		"InternalTrafficPolicy": {{s{}, s{InternalTrafficPolicy: new(corev1.ServiceInternalTrafficPolicyLocal)}, false}}, "TrafficDistribution": nil,
	}, func(from, to s) bool { return MisleadsService(&corev1.Service{Spec: from}, &corev1.Service{Spec: to}) })
}

func TestWhichIngressesMislead(t *testing.T) {
	type s = networkingv1.IngressSpec
	to := func(service string) networkingv1.IngressBackend {
		return networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: service}}
	}
	rule := func(host string, paths ...string) networkingv1.IngressRule {
		r := networkingv1.IngressRule{Host: host}
		r.HTTP = &networkingv1.HTTPIngressRuleValue{}
		for _, p := range paths {
			r.HTTP.Paths = append(r.HTTP.Paths, networkingv1.HTTPIngressPath{Path: p, Backend: to("web")})
		}
		return r
	}
	rules := func(r ...networkingv1.IngressRule) s { return s{Rules: r} }
	other := rule("a", "/")
	other.HTTP.Paths[0].Backend = to("other")
	bare := networkingv1.IngressRule{Host: "a"}
	tls := func(secret string, hosts ...string) s {
		return s{TLS: []networkingv1.IngressTLS{{Hosts: hosts, SecretName: secret}}}
	}
	web, db := to("web"), to("db")
	requireChanges(t, map[string][]change[s]{
		"IngressClassName": {{s{IngressClassName: new("public")}, s{IngressClassName: new("inside")}, true}},
		"DefaultBackend":   {{s{DefaultBackend: &web}, s{DefaultBackend: &db}, true}, {s{DefaultBackend: &web}, s{}, true}, {s{}, s{DefaultBackend: &web}, false}},
		"Rules": {
			{rules(rule("a", "/")), rules(rule("b", "/")), true}, {rules(rule("a", "/")), rules(other), true}, {rules(rule("a", "/")), rules(bare), true},
			{rules(rule("a", "/")), rules(rule("b", "/"), rule("a", "/x", "/")), false}, {rules(rule("a", "/x", "/")), rules(rule("a", "/")), true},
		},
		"TLS": {{tls("x", "a"), tls("y", "a"), true}, {tls("x", "a"), s{}, true}, {tls("x", "a"), tls("x", "a", "b"), false}},
	}, func(from, to s) bool {
		return MisleadsIngress(&networkingv1.Ingress{Spec: from}, &networkingv1.Ingress{Spec: to})
	})
}

func TestWhichEndpointSlicesMislead(t *testing.T) {
	type s = discoveryv1.EndpointSlice
	of := func(endpoints ...discoveryv1.Endpoint) s { return s{Endpoints: endpoints} }
	a, b, off := endpoint("10.1.0.1", ""), endpoint("10.1.0.2", ""), endpoint("10.1.0.1", "")
	off.Conditions.Ready = new(false)
	port := func(number int32) s { return s{Ports: []discoveryv1.EndpointPort{{Port: &number}}} }
	labelled := func(service string) (out s) {
		out.Labels = map[string]string{discoveryv1.LabelServiceName: service, "note": service}
		return out
	}
	requireChanges(t, map[string][]change[s]{
		"TypeMeta": nil, "AddressType": nil, // replaced
		"ObjectMeta": {{labelled("web"), labelled("db"), true}},
		"Endpoints":  {{of(a), of(b), true}, {of(a), of(off), true}, {of(a, b), of(a), true}, {of(a), of(b, a), false}},
		"Ports":      {{port(80), port(81), true}},
	}, func(from, to s) bool { return MisleadsEndpointSlice(toTemplate(&from), toTemplate(&to)) })
}
