package rules

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
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

func ingressFor(origin string, hosts ...string) *networkingv1.Ingress {
	ing := &networkingv1.Ingress{}
	if origin != "" {
		ing.Labels = map[string]string{offloadingv1beta1.OriginLabel: origin}
	}
	for _, host := range hosts {
		ing.Spec.Rules = append(ing.Spec.Rules, networkingv1.IngressRule{Host: host})
	}
	return ing
}

// refusal returns the reason for which a peer may not write an Ingress where all free hosts are accepted.
func refusal(ing *networkingv1.Ingress, peer string, others []*networkingv1.Ingress) string {
	_, why := IngressBounds{}.Refuse(ing, peer, others)
	return why
}

// TestIngressOfAPeer: a peer gets no host of anybody else, and where the administrator lists
// hosts only those.
func TestIngressOfAPeer(t *testing.T) {
	there := []*networkingv1.Ingress{
		ingressFor("", "bank.example.com", "*.shops.example.com"), ingressFor("oslo", "oslo.example.com"), ingressFor("rome", "rome.example.com", "*.rome.example.com"),
	}
	own := []string{"*.{peer}.example.com", "shared.example.com"}
	withTLS := ingressFor("rome", "free.example.com")
	withTLS.Spec.TLS = []networkingv1.IngressTLS{{Hosts: []string{"bank.example.com"}}}
	everything := ingressFor("rome")
	everything.Spec.DefaultBackend = &networkingv1.IngressBackend{}
	for name, c := range map[string]struct {
		hosts []string
		ing   *networkingv1.Ingress
		says  string
	}{
		"a free host":                      {nil, ingressFor("rome", "store.example.com"), ""},
		"its own, again":                   {nil, ingressFor("rome", "rome.example.com", "a.rome.example.com"), ""},
		"the bank's":                       {nil, ingressFor("rome", "store.example.com", "bank.example.com"), "host bank.example.com is used by another Ingress"},
		"the bank's, in a certificate":     {nil, withTLS, "host bank.example.com is used"},
		"another peer's":                   {nil, ingressFor("rome", "oslo.example.com"), "host oslo.example.com is used"},
		"below a wildcard":                 {nil, ingressFor("rome", "a.shops.example.com"), "host a.shops.example.com is used"},
		"two labels below a wildcard":      {nil, ingressFor("rome", "a.b.shops.example.com"), "is used"},
		"a wildcard over the bank's":       {nil, ingressFor("rome", "*.example.com"), "host *.example.com is used"},
		"all hosts, nobody has them":       {nil, ingressFor("rome", ""), ""},
		"listed":                           {own, ingressFor("rome", "shop.rome.example.com", "shared.example.com", "*.rome.example.com"), ""},
		"listed for another peer":          {own, ingressFor("rome", "shop.oslo.example.com"), "host shop.oslo.example.com is not among the hosts that this cluster accepts from peers: *.{peer}.example.com, shared.example.com (its setting sharing.ingressHosts)"},
		"a wider wildcard than is listed":  {own, ingressFor("rome", "*.example.com"), "host *.example.com is not among"},
		"the suffix alone":                 {own, ingressFor("rome", "rome.example.com"), "not among"},
		"all hosts, where some are listed": {own, everything, "a rule for all hosts (without host, or defaultBackend) is not among"},
		"no host at all":                   {own, ingressFor("rome"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, got := IngressBounds{Hosts: c.hosts}.Refuse(c.ing, "rome", there)
			require.Contains(t, got, c.says)
			require.Equal(t, c.says == "", got == "", got)
		})
	}
	fields, _ := IngressBounds{}.Refuse(ingressFor("rome", "oslo.example.com", "store.example.com", "bank.example.com"), "rome", there)
	require.Equal(t, []string{"spec.rules[bank.example.com]", "spec.rules[oslo.example.com]"}, fields)
	others := append(there, &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Name: "all"}, Spec: networkingv1.IngressSpec{DefaultBackend: &networkingv1.IngressBackend{}}})
	require.Contains(t, refusal(ingressFor("rome", ""), "rome", others), "a rule for all hosts")
	require.Empty(t, refusal(ingressFor("rome", "store.example.com"), "rome", others))
	elsewhere := ingressFor("rome", "")
	elsewhere.Spec.IngressClassName = ptr.To("inner")
	require.Empty(t, refusal(elsewhere, "rome", others), "of another class")
	bank := ingressFor("rome", "bank.example.com")
	bank.Spec.IngressClassName = ptr.To("inner")
	require.NotEmpty(t, refusal(bank, "rome", others), "one controller may serve both classes")
}

// TestStringsOfAnIngress: no string of an Ingress ends a directive of a proxy.
func TestStringsOfAnIngress(t *testing.T) {
	t.Parallel()
	type place struct {
		name string
		set  func(*networkingv1.Ingress, string)
	}
	path := func(ing *networkingv1.Ingress) *networkingv1.HTTPIngressPath {
		ing.Spec.Rules = []networkingv1.IngressRule{{IngressRuleValue: networkingv1.IngressRuleValue{HTTP: &networkingv1.HTTPIngressRuleValue{Paths: make([]networkingv1.HTTPIngressPath, 1)}}}}
		return &ing.Spec.Rules[0].HTTP.Paths[0]
	}
	service := func(name, port string) networkingv1.IngressBackend {
		return networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: name, Port: networkingv1.ServiceBackendPort{Name: port}}}
	}
	places := []place{
		{"path", func(ing *networkingv1.Ingress, s string) { path(ing).Path = s }},
		{"service", func(ing *networkingv1.Ingress, s string) { path(ing).Backend = service(s, "") }},
		{"port", func(ing *networkingv1.Ingress, s string) { path(ing).Backend = service("web", s) }},
		{"host", func(ing *networkingv1.Ingress, s string) { ing.Spec.Rules = []networkingv1.IngressRule{{Host: s}} }},
		{"default service", func(ing *networkingv1.Ingress, s string) { ing.Spec.DefaultBackend = new(service(s, "")) }},
		{"resource", func(ing *networkingv1.Ingress, s string) {
			ing.Spec.DefaultBackend = &networkingv1.IngressBackend{Resource: &corev1.TypedLocalObjectReference{Name: s}}
		}},
		{"kind", func(ing *networkingv1.Ingress, s string) {
			ing.Spec.DefaultBackend = &networkingv1.IngressBackend{Resource: &corev1.TypedLocalObjectReference{Kind: s}}
		}},
		{"group", func(ing *networkingv1.Ingress, s string) {
			ing.Spec.DefaultBackend = &networkingv1.IngressBackend{Resource: &corev1.TypedLocalObjectReference{APIGroup: &s}}
		}},
		{"class", func(ing *networkingv1.Ingress, s string) { ing.Spec.IngressClassName = &s }},
		{"secret", func(ing *networkingv1.Ingress, s string) { ing.Spec.TLS = []networkingv1.IngressTLS{{SecretName: s}} }},
		{"host of TLS", func(ing *networkingv1.Ingress, s string) {
			ing.Spec.TLS = []networkingv1.IngressTLS{{Hosts: []string{s}}}
		}},
	}
	for _, p := range places {
		for _, hostile := range []string{"/a;", "/{", "/}", "/\n", "/\r", "/\x00", `/"`, "/'", "/`", "/#", `/\`, "/ a", "/\t", "/\u2028", "/\u0085"} {
			ing := &networkingv1.Ingress{}
			p.set(ing, hostile)
			require.Contains(t, refusal(ing, "rome", nil), "in spec: this cluster accepts", "%s %q", p.name, hostile)
		}
		ing := &networkingv1.Ingress{}
		p.set(ing, "web")
		require.Empty(t, refusal(ing, "rome", nil), p.name)
	}
	for _, ordinary := range []string{"/", "/app(/|$)(.*)", "/v1/[a-z]+/?", "/a%20b", "/~user", "/@x,y=z&a:b!*", "/é"} {
		ing := &networkingv1.Ingress{}
		path(ing).Path = ordinary
		require.Empty(t, refusal(ing, "rome", nil), ordinary)
	}
}

// TestEveryStringOfAnIngressIsJudged: a new field of the API needs an entry in configured.
func TestEveryStringOfAnIngressIsJudged(t *testing.T) {
	t.Parallel()
	var fields []string
	var walk func(reflect.Type, string)
	walk = func(of reflect.Type, at string) {
		switch of.Kind() {
		case reflect.Pointer, reflect.Slice:
			walk(of.Elem(), at)
		case reflect.String:
			fields = append(fields, at)
		case reflect.Struct:
			for i := range of.NumField() {
				walk(of.Field(i).Type, at+"."+of.Field(i).Name)
			}
		}
	}
	walk(reflect.TypeFor[networkingv1.IngressSpec](), "")
	backend := func(at string) []string {
		return []string{at + ".Service.Name", at + ".Service.Port.Name", at + ".Resource.APIGroup", at + ".Resource.Kind", at + ".Resource.Name"}
	}
	want := append([]string{".IngressClassName"}, backend(".DefaultBackend")...)
	want = append(want, ".TLS.Hosts", ".TLS.SecretName", ".Rules.Host", ".Rules.IngressRuleValue.HTTP.Paths.Path",
		".Rules.IngressRuleValue.HTTP.Paths.PathType") // the API accepts three values
	require.Equal(t, append(want, backend(".Rules.IngressRuleValue.HTTP.Paths.Backend")...), fields)
}
