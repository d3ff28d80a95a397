package forge

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
)

// serviceFields has a rule for each field of a reflected Service.
var serviceFields = map[string]rule{
	"TypeMeta":   {apart, "nobody's"},
	"ObjectMeta": {apart, "see metaFields"},
	"Spec":       {partly, "see serviceSpecFields"},
	"Status":     {removed, "of the load balancers of this cluster"},
}

// serviceSpecFields has a rule for each field of its spec.
//
// IP families depend on the policy. With SingleStack and RequireDualStack they are sent
// in their order, because the reflected endpoints are of these families. A provider that
// lacks one rejects the Service, and an event says so. With PreferDualStack the families
// are left to the provider: the API server of this cluster has filled in its own, and the
// provider would reject a list with a family that it lacks.
var serviceSpecFields = with(with(map[string]rule{
	"Ports":                 {apart, "see servicePortFields"},
	"ClusterIP":             {apart, "None is kept; an address is of this cluster, and the provider gives another"},
	"ClusterIPs":            {removed, "as ClusterIP, which is enough"},
	"ExternalIPs":           {removed, "a peer may not direct the provider's traffic"},
	"LoadBalancerIP":        {removed, "of a load balancer of this cluster"},
	"ExternalTrafficPolicy": {apart, "kept for what takes traffic from outside: external IPs, which go, may be all that did"},
	"HealthCheckNodePort":   {removed, "the provider gives another"},
	"IPFamilies":            {defaulted, "but for PreferDualStack"},
	"LoadBalancerClass":     {apart, "as offered by the provider"},
}, defaulted, "Type", "SessionAffinity", "SessionAffinityConfig", "IPFamilyPolicy", "AllocateLoadBalancerNodePorts",
	"InternalTrafficPolicy"), kept, "Selector", "LoadBalancerSourceRanges", "ExternalName", "PublishNotReadyAddresses", "TrafficDistribution")

// servicePortFields has a rule for each field of its ports.
var servicePortFields = with(with(map[string]rule{
	"Name":     {apart, "kept; another name is another port"},
	"NodePort": {apart, "kept when forced, else the provider gives another"},
}, defaulted, "Protocol", "TargetPort"), kept, "AppProtocol", "Port")

func service() *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop"}}
}

func TestEveryFieldOfAServiceHasARule(t *testing.T) {
	k := kind[corev1.Service, corev1.Service]{
		local: service,
		forge: func(s *corev1.Service) (*corev1.Service, error) { return Service(s, objectOptions(), nil) },
		merge: MergeService,
	}
	requireRules(t, serviceFields, k)
	k.here = func(s *corev1.Service) any { return &s.Spec }
	k.remote = k.here
	requireRules(t, serviceSpecFields, k)
	k.local = func() *corev1.Service {
		s := service()
		s.Spec.Ports = []corev1.ServicePort{{Name: "http"}}
		return s
	}
	k.here = func(s *corev1.Service) any { return &s.Spec.Ports[0] }
	k.remote = k.here
	requireRules(t, servicePortFields, k)
}

// answer is a Service in this cluster, and the Service that the API server of a provider
// returned when it was reflected with objectOptions and classOffers.
type answer struct {
	Name     string          `json:"name"`
	Home     string          `json:"home"`     // single or dual stack
	Provider string          `json:"provider"` // likewise
	Local    *corev1.Service `json:"local"`
	Remote   *corev1.Service `json:"remote"`
	Error    string          `json:"error"`
}

func classOffers() []Class { return []Class{{Name: "example.org/a"}, {Name: "example.org/b"}} }

// answers were recorded from single-stack and dual-stack clusters of Kubernetes 1.36.
func answers(t *testing.T) []answer {
	t.Helper()
	text, err := os.ReadFile("testdata/services.json")
	require.NoError(t, err)
	var out []answer
	require.NoError(t, json.Unmarshal(text, &out))
	return out
}

// TestServiceDefaults requires that values defaulted by an API server do not count as a
// difference, else the Service would be written again and again.
func TestServiceDefaults(t *testing.T) {
	for _, a := range answers(t) {
		t.Run(a.Name+", "+a.Home+" to "+a.Provider, func(t *testing.T) {
			want, err := Service(a.Local, objectOptions(), classOffers())
			require.NoError(t, err)
			if a.Remote == nil {
				require.NotEmpty(t, a.Error)
				require.Equal(t, "dual to single", a.Home+" to "+a.Provider, "only a family that the provider lacks is refused")
				return
			}
			require.False(t, ReplacesService(a.Remote, want))
			merged := MergeService(a.Remote, want)
			if !equality.Semantic.DeepEqual(a.Remote, merged) {
				require.Equal(t, a.Remote, merged)
			}
		})
	}
}

func TestService(t *testing.T) {
	prefer, requireDual := corev1.IPFamilyPolicyPreferDualStack, corev1.IPFamilyPolicyRequireDualStack
	both := []corev1.IPFamily{corev1.IPv6Protocol, corev1.IPv4Protocol}
	for name, tc := range map[string]struct {
		local func(*corev1.Service)
		offer []Class
		want  func(*corev1.ServiceSpec) // on an empty one; nil: it is not reflected
	}{
		"addresses": {
			local: func(s *corev1.Service) {
				s.Spec.ClusterIP, s.Spec.ClusterIPs = "10.96.0.7", []string{"10.96.0.7", "fd00::7"}
				s.Spec.LoadBalancerIP, s.Spec.ExternalIPs = "192.0.2.1", []string{"192.0.2.2"}
				s.Spec.Type, s.Spec.ExternalTrafficPolicy = "ClusterIP", "Cluster"
			},
			want: func(s *corev1.ServiceSpec) { s.Type = "ClusterIP" },
		},
		"policy for traffic from outside": {
			local: func(s *corev1.Service) { s.Spec.Type, s.Spec.ExternalTrafficPolicy = "NodePort", "Local" },
			want:  func(s *corev1.ServiceSpec) { s.Type, s.ExternalTrafficPolicy = "NodePort", "Local" },
		},
		"the API server's": {local: func(s *corev1.Service) { s.Namespace, s.Name = "default", "kubernetes" }},
		"another in default": {
			local: func(s *corev1.Service) { s.Namespace = "default" }, want: func(*corev1.ServiceSpec) {},
		},
		"the name of the API server's elsewhere": {
			local: func(s *corev1.Service) { s.Name = "kubernetes" }, want: func(*corev1.ServiceSpec) {},
		},
		"one that says it is of ours": {
			local: func(s *corev1.Service) { s.Labels = map[string]string{offloadingv1beta1.OriginLabel: "rome"} }, want: func(*corev1.ServiceSpec) {},
		},
		"headless": {
			local: func(s *corev1.Service) { s.Spec.ClusterIP, s.Spec.ClusterIPs = "None", []string{"None"} },
			want:  func(s *corev1.ServiceSpec) { s.ClusterIP = "None" },
		},
		"node ports": {
			local: func(s *corev1.Service) {
				s.Spec.Ports = []corev1.ServicePort{{Port: 80, NodePort: 30080}}
				s.Spec.HealthCheckNodePort = 30081
			},
			want: func(s *corev1.ServiceSpec) { s.Ports = []corev1.ServicePort{{Port: 80}} },
		},
		"node ports, forced": {
			local: func(s *corev1.Service) {
				s.Annotations = map[string]string{offloadingv1beta1.ForceRemoteNodePortAnnotation: "true"}
				s.Spec.Ports = []corev1.ServicePort{{Port: 80, NodePort: 30080}}
				s.Spec.HealthCheckNodePort = 30081
			},
			want: func(s *corev1.ServiceSpec) { s.Ports = []corev1.ServicePort{{Port: 80, NodePort: 30080}} },
		},
		"families, preferred": {
			local: func(s *corev1.Service) { s.Spec.IPFamilyPolicy, s.Spec.IPFamilies = &prefer, both },
			want:  func(s *corev1.ServiceSpec) { s.IPFamilyPolicy = &prefer },
		},
		"families, required": {
			local: func(s *corev1.Service) { s.Spec.IPFamilyPolicy, s.Spec.IPFamilies = &requireDual, both },
			want:  func(s *corev1.ServiceSpec) { s.IPFamilyPolicy, s.IPFamilies = &requireDual, both },
		},
		"class, offered": {
			local: func(s *corev1.Service) { s.Spec.Type, s.Spec.LoadBalancerClass = "LoadBalancer", new("x") },
			offer: []Class{{Name: "d", Default: true}, {Name: "x"}},
			want:  func(s *corev1.ServiceSpec) { s.Type, s.LoadBalancerClass = "LoadBalancer", new("x") },
		},
		"class, not a load balancer": {
			local: func(s *corev1.Service) { s.Spec.Type = "NodePort" },
			offer: []Class{{Name: "d", Default: true}},
			want:  func(s *corev1.ServiceSpec) { s.Type = "NodePort" },
		},
	} {
		t.Run(name, func(t *testing.T) {
			local := service()
			tc.local(local)
			before := local.DeepCopy()
			got, err := Service(local, objectOptions(), tc.offer)
			require.NoError(t, err)
			require.Equal(t, before, local, "the argument is not changed")
			if tc.want == nil {
				require.Nil(t, got)
				return
			}
			var want corev1.ServiceSpec
			tc.want(&want)
			require.Equal(t, want, got.Spec)
		})
	}
}

func TestMergeService(t *testing.T) {
	type s = corev1.ServiceSpec
	affinity := &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: new(int32(10800))}}
	addresses := s{ClusterIP: "10.2.0.1", ClusterIPs: []string{"10.2.0.1"}, LoadBalancerIP: "192.0.2.1", ExternalIPs: []string{"192.0.2.2"}}
	open, class := s{Type: "ClusterIP", ExternalIPs: []string{"192.0.2.2"}, ExternalTrafficPolicy: "Cluster"}, s{Type: "LoadBalancer", LoadBalancerClass: new("cloud")}
	headless, ordinary, none := s{Type: "ClusterIP", ClusterIP: "None"}, s{Type: "ClusterIP"}, s{SessionAffinity: "None"}
	two := s{IPFamilies: []corev1.IPFamily{"IPv4", "IPv6"}, IPFamilyPolicy: new(corev1.IPFamilyPolicyPreferDualStack)}
	single := s{IPFamilies: []corev1.IPFamily{"IPv4"}, IPFamilyPolicy: new(corev1.IPFamilyPolicySingleStack)}
	type ports = []corev1.ServicePort
	onNodes := func(p ...corev1.ServicePort) s { return s{Type: "NodePort", Ports: p} }
	http, pinned := corev1.ServicePort{Port: 80}, corev1.ServicePort{Port: 80, NodePort: 30080}
	target := corev1.ServicePort{Port: 80, TargetPort: intstr.FromInt32(80)}
	noNodePorts := s{Type: "LoadBalancer", AllocateLoadBalancerNodePorts: new(false), Ports: ports{http}}
	for name, tc := range map[string]struct{ have, want, merged s }{
		"node ports stay": {
			onNodes(ports{{Name: "a", Port: 80, NodePort: 30080}, {Name: "b", Port: 81, NodePort: 30081}}...),
			onNodes(ports{{Name: "b", Port: 81}, {Name: "a", Port: 8080}, {Name: "c", Port: 82}}...),
			onNodes(ports{{Name: "b", Port: 81, NodePort: 30081}, {Name: "a", Port: 8080, NodePort: 30080}, {Name: "c", Port: 82}}...),
		},
		"forced node ports are taken":                                                 {onNodes(pinned), onNodes(corev1.ServicePort{Port: 80, NodePort: 30099}), onNodes(corev1.ServicePort{Port: 80, NodePort: 30099})},
		"no node ports where the type has none":                                       {onNodes(pinned), s{Type: "ClusterIP", Ports: ports{http}}, s{Type: "ClusterIP", Ports: ports{http}}},
		"none where the load balancer wants none":                                     {onNodes(pinned), noNodePorts, noNodePorts},
		"a target that was filled in":                                                 {onNodes(target), onNodes(http), onNodes(target)},
		"a target that was filled in for another port":                                {onNodes(target), onNodes(corev1.ServicePort{Port: 81}), onNodes(corev1.ServicePort{Port: 81})},
		"becomes headless after ExternalName":                                         {s{Type: "ExternalName", ExternalName: "x"}, headless, headless},
		"addresses stay":                                                              {addresses, s{}, addresses},
		"a policy for traffic from outside, which external IPs of the provider bring": {open, ordinary, open},
		"no traffic from outside any more":                                            {s{Type: "NodePort", ExternalTrafficPolicy: "Local"}, ordinary, ordinary},
		"affinity ends":                                                               {s{SessionAffinity: "ClientIP", SessionAffinityConfig: affinity}, none, none},
		"a class that the provider chose":                                             {class, s{Type: "LoadBalancer"}, class},
		"one family is left":                                                          {two, single, single},
	} {
		t.Run(name, func(t *testing.T) {
			have, want := &corev1.Service{Spec: tc.have}, &corev1.Service{Spec: tc.want}
			before := []*corev1.Service{have.DeepCopy(), want.DeepCopy()}
			require.Equal(t, tc.merged, MergeService(have, want).Spec)
			require.Equal(t, before, []*corev1.Service{have, want}, "the arguments are not changed")
		})
	}
}

// TestRestOfService: a Service can do without node ports, and with a narrower type. Each refusal
// takes something away, so that they end.
func TestRestOfService(t *testing.T) {
	const health = "spec.healthCheckNodePort"
	ports := func(a, b int32) []corev1.ServicePort {
		return []corev1.ServicePort{{Port: 80, NodePort: a}, {Port: 81, NodePort: b}}
	}
	balancer := corev1.ServiceSpec{Type: "LoadBalancer", Ports: ports(1, 2), LoadBalancerClass: new("a"), ExternalTrafficPolicy: "Local", AllocateLoadBalancerNodePorts: new(true), LoadBalancerSourceRanges: []string{"10.0.0.0/8"}}
	for name, tc := range map[string]struct {
		want    corev1.ServiceSpec
		refused []string
		rest    corev1.ServiceSpec
	}{
		"a node port in use":          {corev1.ServiceSpec{Type: "NodePort", Ports: ports(1, 2)}, []string{"spec.ports[1].nodePort"}, corev1.ServiceSpec{Type: "NodePort", Ports: ports(1, 0)}},
		"node ports":                  {corev1.ServiceSpec{Type: "NodePort", Ports: ports(1, 2)}, []string{offloadingv1beta1.NodePortsField}, corev1.ServiceSpec{Type: "NodePort", Ports: ports(0, 0)}},
		"no node ports":               {corev1.ServiceSpec{Type: "NodePort", Ports: ports(0, 0)}, []string{offloadingv1beta1.NodePortsField}, corev1.ServiceSpec{}},
		"another field":               {corev1.ServiceSpec{Type: "NodePort", Ports: ports(1, 2)}, []string{health, "spec.ports[2].nodePort"}, corev1.ServiceSpec{}},
		"a name":                      {corev1.ServiceSpec{Type: "ExternalName", ExternalName: "a.example"}, []string{"spec.type"}, corev1.ServiceSpec{Type: "ClusterIP", ClusterIP: "None", Selector: noPod()}},
		"a name, of a former Service": {corev1.ServiceSpec{Type: "ExternalName", ExternalName: "a.example", Ports: ports(0, 0), Selector: map[string]string{"a": "b"}}, []string{"spec.type"}, corev1.ServiceSpec{Type: "ClusterIP", ClusterIP: "None", Ports: ports(0, 0), Selector: noPod()}},
		"a balancer":                  {balancer, []string{"spec.type"}, corev1.ServiceSpec{Type: "ClusterIP", Ports: ports(0, 0)}},
		"the least":                   {corev1.ServiceSpec{Type: "ClusterIP", Ports: ports(0, 0)}, []string{"spec.type"}, corev1.ServiceSpec{}},
		"the least, by default":       {corev1.ServiceSpec{Ports: ports(0, 0)}, []string{"spec.type"}, corev1.ServiceSpec{}},
		"two families":                {corev1.ServiceSpec{Type: "ClusterIP", IPFamilyPolicy: new(corev1.IPFamilyPolicyRequireDualStack), IPFamilies: []corev1.IPFamily{"IPv4", "IPv6"}}, []string{"spec.ipFamilies[1]", "spec.ipFamilyPolicy"}, corev1.ServiceSpec{}},
		"a newer distribution":        {corev1.ServiceSpec{Type: "ClusterIP", TrafficDistribution: new(corev1.ServiceTrafficDistributionPreferSameNode)}, []string{"spec.trafficDistribution"}, corev1.ServiceSpec{Type: "ClusterIP"}},
		"nothing":                     {corev1.ServiceSpec{Type: "NodePort", Ports: ports(1, 2)}, nil, corev1.ServiceSpec{}},
	} {
		t.Run(name, func(t *testing.T) {
			want := &corev1.Service{Spec: *tc.want.DeepCopy()}
			rest := RestOfService(want, tc.refused)
			require.Equal(t, tc.want, want.Spec, "want is not changed")
			if tc.rest.Type == "" {
				require.Nil(t, rest)
				return
			}
			require.Equal(t, tc.rest, rest.Spec)
			require.Nil(t, RestOfService(rest, tc.refused))
			require.False(t, ReplacesService(rest, want), "it is not deleted for what it may not be")
		})
	}
}

func TestReplacesService(t *testing.T) {
	for name, tc := range map[string]struct {
		have, want corev1.ServiceSpec
		replaces   bool
	}{
		"becomes headless":           {corev1.ServiceSpec{ClusterIP: "10.2.0.1"}, corev1.ServiceSpec{ClusterIP: "None"}, true},
		"is no longer headless":      {corev1.ServiceSpec{ClusterIP: "None"}, corev1.ServiceSpec{}, true},
		"headless, then a name":      {corev1.ServiceSpec{ClusterIP: "None"}, corev1.ServiceSpec{Type: "ExternalName"}, false},
		"a name, then headless":      {corev1.ServiceSpec{Type: "ExternalName"}, corev1.ServiceSpec{ClusterIP: "None"}, false},
		"other first family":         {corev1.ServiceSpec{IPFamilies: []corev1.IPFamily{"IPv4", "IPv6"}}, corev1.ServiceSpec{IPFamilies: []corev1.IPFamily{"IPv6"}}, true},
		"a second family":            {corev1.ServiceSpec{IPFamilies: []corev1.IPFamily{"IPv4"}}, corev1.ServiceSpec{IPFamilies: []corev1.IPFamily{"IPv4", "IPv6"}}, false},
		"any family":                 {corev1.ServiceSpec{IPFamilies: []corev1.IPFamily{"IPv4"}}, corev1.ServiceSpec{}, false},
		"other class":                {corev1.ServiceSpec{Type: "LoadBalancer", LoadBalancerClass: new("a")}, corev1.ServiceSpec{Type: "LoadBalancer", LoadBalancerClass: new("b")}, true},
		"a class after none":         {corev1.ServiceSpec{Type: "LoadBalancer"}, corev1.ServiceSpec{Type: "LoadBalancer", LoadBalancerClass: new("b")}, true},
		"no class any more":          {corev1.ServiceSpec{Type: "LoadBalancer", LoadBalancerClass: new("a")}, corev1.ServiceSpec{Type: "LoadBalancer"}, false},
		"a class, as it becomes one": {corev1.ServiceSpec{Type: "NodePort"}, corev1.ServiceSpec{Type: "LoadBalancer", LoadBalancerClass: new("a")}, false},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, tc.replaces, ReplacesService(&corev1.Service{Spec: tc.have}, &corev1.Service{Spec: tc.want}))
		})
	}
}
