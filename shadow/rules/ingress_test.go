package rules

import (
	"testing"

	"github.com/stretchr/testify/require"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
)

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
			got := IngressBounds{Hosts: c.hosts}.Refuse(c.ing, "rome", there)
			require.Contains(t, got, c.says)
			require.Equal(t, c.says == "", got == "", got)
		})
	}
	others := append(there, &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Name: "all"}, Spec: networkingv1.IngressSpec{DefaultBackend: &networkingv1.IngressBackend{}}})
	require.Contains(t, IngressBounds{}.Refuse(ingressFor("rome", ""), "rome", others), "a rule for all hosts")
	require.Empty(t, IngressBounds{}.Refuse(ingressFor("rome", "store.example.com"), "rome", others))
	elsewhere := ingressFor("rome", "")
	elsewhere.Spec.IngressClassName = ptr.To("inner")
	require.Empty(t, IngressBounds{}.Refuse(elsewhere, "rome", others), "of another class")
	bank := ingressFor("rome", "bank.example.com")
	bank.Spec.IngressClassName = ptr.To("inner")
	require.NotEmpty(t, IngressBounds{}.Refuse(bank, "rome", others), "one controller may serve both classes")
}
