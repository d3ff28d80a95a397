package forge

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
)

// endpointSliceFields has a rule for each field of a reflected EndpointSlice.
var endpointSliceFields = map[string]rule{
	"TypeMeta":    {apart, "nobody's"},
	"ObjectMeta":  {apart, "see metaFields; without who manages it and when it last changed"},
	"AddressType": {kept, ""},
	"Endpoints":   {partly, "without those that the provider knows; see endpointFields"},
	"Ports":       {kept, ""},
}

// endpointFields has a rule for each field of its endpoints.
var endpointFields = map[string]rule{
	"Addresses":          {kept, "the provider translates them"},
	"Conditions":         {kept, "the provider makes endpoints unready while this cluster is away"},
	"Hostname":           {kept, ""},
	"TargetRef":          {kept, ""},
	"DeprecatedTopology": {apart, "dropped: labels of a node of this cluster"},
	"NodeName":           {apart, "dropped: a node of this cluster; see TestEndpointsOfTheProvider"},
	"Zone":               {kept, ""},
	"Hints":              {kept, "kube-proxy heeds hints only where all endpoints have them"},
}

func slice(endpoints ...discoveryv1.Endpoint) *discoveryv1.EndpointSlice {
	return &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Name: "web-x7", Namespace: "shop",
			Labels: map[string]string{"kubernetes.io/service-name": "web", "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io"},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   endpoints,
	}
}

func endpoint(address, node string) discoveryv1.Endpoint {
	return discoveryv1.Endpoint{Addresses: []string{address}, NodeName: named(node)}
}

// place returns the location of an endpoint for the provider milan, which has two virtual
// nodes and has offloaded the pod "hosted" to this cluster.
func place(e *discoveryv1.Endpoint) Place {
	switch {
	case e.NodeName != nil && (*e.NodeName == "milan" || *e.NodeName == "milan-gpu"):
		return OnProvider
	case e.TargetRef != nil && e.TargetRef.Name == "hosted":
		return OfProvider
	}
	return Elsewhere
}

// requireEndpointSliceRules checks the fields that have the same name on both sides.
func requireEndpointSliceRules(t *testing.T, rules map[string]rule, at func(*discoveryv1.EndpointSlice) any) {
	t.Helper()
	type L = discoveryv1.EndpointSlice
	forge := func(s *L) (*L, error) {
		return fromTemplate(EndpointSlice(s, objectOptions(), place, nil)), nil
	}
	merge := func(have, want *L) *L { return fromTemplate(MergeEndpointSlice(toTemplate(have), toTemplate(want))) }
	requireRules(t, rules, kind[L, L]{
		local: func() *L { return slice(endpoint("10.1.0.1", "rome-1")) }, forge: forge, merge: merge, here: at, remote: at,
	})
}

func fromTemplate(s *offloadingv1beta1.ShadowEndpointSlice) *discoveryv1.EndpointSlice {
	t := s.Spec.Template
	return &discoveryv1.EndpointSlice{ObjectMeta: s.ObjectMeta, AddressType: t.AddressType, Endpoints: t.Endpoints, Ports: t.Ports}
}

func toTemplate(s *discoveryv1.EndpointSlice) *offloadingv1beta1.ShadowEndpointSlice {
	return &offloadingv1beta1.ShadowEndpointSlice{ObjectMeta: s.ObjectMeta, Spec: offloadingv1beta1.ShadowEndpointSliceSpec{
		Template: offloadingv1beta1.EndpointSliceTemplate{AddressType: s.AddressType, Endpoints: s.Endpoints, Ports: s.Ports}}}
}

func TestEveryFieldOfAnEndpointSliceHasARule(t *testing.T) {
	requireEndpointSliceRules(t, endpointSliceFields, func(s *discoveryv1.EndpointSlice) any { return s })
}

func TestEveryFieldOfAnEndpointHasARule(t *testing.T) {
	requireEndpointSliceRules(t, endpointFields, func(s *discoveryv1.EndpointSlice) any { return &s.Endpoints[0] })
}

func TestEndpointSlice(t *testing.T) {
	local := slice(endpoint("10.1.0.1", "rome-1"), endpoint("10.2.0.1", "milan-gpu"), endpoint("10.3.0.1", "paris"), endpoint("10.1.0.9", ""))
	local.Endpoints[0].Conditions = discoveryv1.EndpointConditions{Ready: new(false), Serving: new(true), Terminating: new(true)}
	local.Endpoints[0].TargetRef = &corev1.ObjectReference{Kind: "Pod", Namespace: "shop", Name: "web-1", UID: uid}
	local.Endpoints[0].DeprecatedTopology = map[string]string{"rack": "1"}
	local.Endpoints[0].Zone, local.Endpoints[0].Hints = new("a"), &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: "a"}}}
	local.Annotations = map[string]string{"endpoints.kubernetes.io/last-change-trigger-time": "2026-01-01T00:00:00Z", "note": "x"}
	local.OwnerReferences, local.GenerateName = []metav1.OwnerReference{{Kind: "Service", Name: "web"}}, "web-"
	local.Ports = []discoveryv1.EndpointPort{{Name: new(""), Port: new(int32(80))}}
	before := local.DeepCopy()
	o := objectOptions()
	o.SkipLabels = []string{"kubernetes.io/service-name"}

	got := EndpointSlice(local, o, place, nil)
	require.Equal(t, before, local, "the argument is not changed")
	first := *local.Endpoints[0].DeepCopy()
	first.NodeName, first.DeprecatedTopology = nil, nil
	require.Equal(t, &offloadingv1beta1.ShadowEndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Name: "web-x7", Namespace: "shop-rome",
			Labels: map[string]string{"kubernetes.io/service-name": "web", "offloading.liqo.io/origin": "rome", "offloading.liqo.io/destination": "milan"},
			Annotations: map[string]string{"note": "x", "offloading.liqo.io/reflected": `{"labels":["kubernetes.io/service-name",` +
				`"offloading.liqo.io/destination","offloading.liqo.io/origin"],"annotations":["note"]}`},
		},
		Spec: offloadingv1beta1.ShadowEndpointSliceSpec{Template: offloadingv1beta1.EndpointSliceTemplate{
			AddressType: "IPv4", Ports: local.Ports,
			Endpoints: []discoveryv1.Endpoint{first, endpoint("10.3.0.1", ""), endpoint("10.1.0.9", "")},
		}},
	}, got)
}

// TestEndpointsOfTheProvider covers slices with and without a selector. The provider
// finds its own pods by a selector; without one, its endpoints must be sent.
func TestEndpointsOfTheProvider(t *testing.T) {
	local := slice(endpoint("10.1.0.1", "rome-1"), endpoint("10.2.0.1", "milan-gpu"), endpoint("10.1.0.2", "rome-1"))
	local.Endpoints[2].TargetRef = &corev1.ObjectReference{Kind: "Pod", Namespace: "shop", Name: "hosted"}
	hosted := *local.Endpoints[2].DeepCopy()
	hosted.NodeName = nil
	all := []discoveryv1.Endpoint{endpoint("10.1.0.1", ""), endpoint("10.2.0.1", "milan-gpu"), hosted}
	for manager, want := range map[string][]discoveryv1.Endpoint{
		"endpointslice-controller.k8s.io":          all[:1],
		"endpointslicemirroring-controller.k8s.io": all,
		"": all,
	} {
		local.Labels[discoveryv1.LabelManagedBy] = manager
		got := EndpointSlice(local, objectOptions(), place, nil)
		require.Equal(t, want, got.Spec.Template.Endpoints, manager)
	}
}

func TestEndpointSliceNotReflected(t *testing.T) {
	for name, tc := range map[string]struct {
		local func(*discoveryv1.EndpointSlice)
		want  bool
	}{
		"without a Service": {func(s *discoveryv1.EndpointSlice) { s.Labels = nil }, true},
		"empty":             {func(s *discoveryv1.EndpointSlice) { s.Endpoints = nil }, false},
		"all in the provider": {func(s *discoveryv1.EndpointSlice) {
			s.Endpoints = []discoveryv1.Endpoint{endpoint("10.2.0.1", "milan")}
		}, false},
		"made from a shadow": {func(s *discoveryv1.EndpointSlice) {
			s.Labels[discoveryv1.LabelManagedBy] = "shadowendpointslice.liqo.io"
		}, false},
		"of another cluster":                              {func(s *discoveryv1.EndpointSlice) { s.Labels[offloadingv1beta1.OriginLabel] = "paris" }, false},
		"of the provider's Service in a shared namespace": {func(s *discoveryv1.EndpointSlice) { s.Labels[offloadingv1beta1.OriginLabel] = "milan" }, true},
		"of the provider": {func(s *discoveryv1.EndpointSlice) {
			s.Labels[offloadingv1beta1.OriginLabel], s.Labels[discoveryv1.LabelManagedBy] = "milan", "me"
		}, false},
		"the API server's": {func(s *discoveryv1.EndpointSlice) {
			s.Namespace, s.Labels[discoveryv1.LabelServiceName] = "default", "kubernetes"
		}, false},
		"named as it in another":      {func(s *discoveryv1.EndpointSlice) { s.Labels[discoveryv1.LabelServiceName] = "kubernetes" }, true},
		"of another Service, default": {func(s *discoveryv1.EndpointSlice) { s.Namespace = "default" }, true},
	} {
		t.Run(name, func(t *testing.T) {
			local := slice(endpoint("10.1.0.1", "rome-1"))
			tc.local(local)
			got := EndpointSlice(local, objectOptions(), place, nil)
			require.Equal(t, tc.want, got != nil)
		})
	}
}

// TestExternalAddresses: an endpoint that is no pod has the address that the provider reaches. One in the
// provider keeps its own.
func TestExternalAddresses(t *testing.T) {
	local := slice(endpoint("10.1.0.1", "rome-1"), endpoint("192.168.0.7", ""), endpoint("192.168.0.7", "milan-gpu"))
	delete(local.Labels, discoveryv1.LabelManagedBy)
	got := EndpointSlice(local, objectOptions(), place, func(_, address string) string {
		return map[string]string{"192.168.0.7": "10.70.0.17"}[address]
	})
	var addresses []string
	for _, e := range got.Spec.Template.Endpoints {
		addresses = append(addresses, e.Addresses...)
	}
	require.Equal(t, []string{"10.1.0.1", "10.70.0.17", "192.168.0.7"}, addresses)
	require.Equal(t, "192.168.0.7", local.Endpoints[1].Addresses[0], "the argument is not changed")
}

func TestReplacesEndpointSlice(t *testing.T) {
	of := func(a discoveryv1.AddressType) *offloadingv1beta1.ShadowEndpointSlice {
		return toTemplate(&discoveryv1.EndpointSlice{AddressType: a})
	}
	require.False(t, ReplacesEndpointSlice(of("IPv4"), of("IPv4")))
	require.True(t, ReplacesEndpointSlice(of("IPv4"), of("IPv6")))
}
