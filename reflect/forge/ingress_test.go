package forge

import (
	"testing"

	"github.com/stretchr/testify/require"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
)

// ingressFields has a rule for each field of a reflected Ingress.
var ingressFields = map[string]rule{
	"TypeMeta":   {apart, "nobody's"},
	"ObjectMeta": {apart, "see metaFields; without the annotation that names a class"},
	"Spec":       {partly, "see ingressSpecFields"},
	"Status":     {removed, "of the controllers of this cluster"},
}

// ingressSpecFields has a rule for each field of its spec.
var ingressSpecFields = map[string]rule{
	"IngressClassName": {apart, "as offered by the provider, else its default (seed 004)"},
	"DefaultBackend":   {kept, ""},
	"TLS":              {kept, "Secrets are reflected"},
	"Rules":            {kept, "Services are reflected"},
}

func ingress() *networkingv1.Ingress {
	return &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop"}}
}

func TestEveryFieldOfAnIngressHasARule(t *testing.T) {
	k := kind[networkingv1.Ingress, networkingv1.Ingress]{
		local: ingress,
		forge: func(i *networkingv1.Ingress) (*networkingv1.Ingress, error) {
			return Ingress(i, objectOptions(), nil), nil
		},
		merge: MergeIngress,
	}
	requireRules(t, ingressFields, k)
	k.here = func(i *networkingv1.Ingress) any { return &i.Spec }
	k.remote = k.here
	requireRules(t, ingressSpecFields, k)
}

func TestIngressClass(t *testing.T) {
	for name, tc := range map[string]struct {
		field, annotation string
		offered           []Class
		want              string
	}{
		"left to the provider, annotation": {"", "nginx", nil, ""},
		"offered, annotation":              {"", "nginx", []Class{{Name: "nginx"}}, "nginx"},
		"the field is stronger":            {"nginx", "old", []Class{{Name: "nginx"}, {Name: "old"}}, "nginx"},
		"default":                          {"nginx", "", []Class{{Name: "traefik", Default: true}}, "traefik"},
	} {
		t.Run(name, func(t *testing.T) {
			local := ingress()
			local.Spec.IngressClassName = named(tc.field)
			local.Annotations = map[string]string{"note": "x"}
			if tc.annotation != "" {
				local.Annotations["kubernetes.io/ingress.class"] = tc.annotation
			}
			before := local.DeepCopy()
			got := Ingress(local, objectOptions(), tc.offered)
			require.Equal(t, before, local, "the argument is not changed")
			require.Equal(t, named(tc.want), got.Spec.IngressClassName)
			require.Equal(t, map[string]string{"note": "x", "offloading.liqo.io/reflected": `{"labels":["offloading.liqo.io/destination",` +
				`"offloading.liqo.io/origin"],"annotations":["note"]}`}, got.Annotations)
		})
	}
}

func TestMergeIngressClass(t *testing.T) {
	for _, tc := range []struct{ have, want, merged string }{
		{"nginx", "", "nginx"}, // filled in by the provider
		{"nginx", "traefik", "traefik"},
		{"", "traefik", "traefik"},
	} {
		have, want := ingress(), ingress()
		have.Spec.IngressClassName, want.Spec.IngressClassName = named(tc.have), named(tc.want)
		require.Equal(t, named(tc.merged), MergeIngress(have, want).Spec.IngressClassName, "%+v", tc)
	}
}

// TestRestOfIngress: hosts that the provider refuses are left out, with their certificates, and the rest stays.
func TestRestOfIngress(t *testing.T) {
	want := ingress()
	want.Spec = networkingv1.IngressSpec{
		DefaultBackend: &networkingv1.IngressBackend{},
		Rules:          []networkingv1.IngressRule{{Host: "bank.example.com"}, {Host: "shop.example.com"}, {}},
		TLS: []networkingv1.IngressTLS{
			{SecretName: "default"}, {SecretName: "bank", Hosts: []string{"bank.example.com"}}, {SecretName: "both", Hosts: []string{"bank.example.com", "shop.example.com"}},
		},
	}
	before := want.DeepCopy()
	rest := func(hosts ...string) *networkingv1.Ingress {
		var fields []string
		for _, host := range hosts {
			fields = append(fields, offloadingv1beta1.IngressHostField(host))
		}
		return RestOfIngress(want, fields)
	}
	noBank := rest("bank.example.com")
	require.Equal(t, []networkingv1.IngressRule{{Host: "shop.example.com"}, {}}, noBank.Spec.Rules)
	require.Equal(t, []networkingv1.IngressTLS{{SecretName: "default"}, {SecretName: "both", Hosts: []string{"shop.example.com"}}}, noBank.Spec.TLS)
	require.NotNil(t, noBank.Spec.DefaultBackend)
	named := rest("", "bank.example.com")
	require.Nil(t, named.Spec.DefaultBackend)
	require.Equal(t, []networkingv1.IngressRule{{Host: "shop.example.com"}}, named.Spec.Rules)
	require.Nil(t, rest("", "bank.example.com", "shop.example.com"), "nothing is left")
	require.Nil(t, rest("other.example.com"), "the refusal is of something else")
	require.Nil(t, rest())
	require.Equal(t, before, want)
}

func TestRemoteClass(t *testing.T) {
	offer := []Class{{Name: "a"}, {Name: "b", Default: true}, {Name: "c", Default: true}}
	for name, tc := range map[string]struct {
		own     string
		offered []Class
		want    string
	}{
		"nothing offered":        {"a", nil, ""},
		"offered":                {"a", offer, "a"},
		"not offered":            {"x", offer, "b"},
		"none":                   {"", offer, "b"},
		"no default":             {"x", offer[:1], ""},
		"none, one without name": {"", []Class{{}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, tc.want, remoteClass(tc.own, tc.offered))
		})
	}
}
