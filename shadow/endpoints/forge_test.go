package endpoints

import (
	"net/netip"
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/store"
)

func TestForge(t *testing.T) {
	shadow := newShadow(
		labelled(discoveryv1.LabelManagedBy, "endpointslice-controller.k8s.io"), // not accepted from a consumer
		labelled(offloadingv1beta1.ManagedByLabel, "shadowpod"),
		labelled("k8s.ovn.org/service-name", "x"),
		endpointsOf(discoveryv1.Endpoint{
			Addresses:  []string{"10.100.1.5"},
			Conditions: discoveryv1.EndpointConditions{Serving: new(true), Terminating: new(false)},
			Hostname:   new("db-0"), NodeName: new("milan-sim-1"), Zone: new("z"),
			TargetRef:          &corev1.ObjectReference{Kind: "Pod", Namespace: "shop", Name: "db-0", UID: "u"},
			DeprecatedTopology: map[string]string{"a": "b"},
			Hints:              &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: "z"}}, ForNodes: []discoveryv1.ForNode{{Name: "n"}}},
		}),
		func(s *offloadingv1beta1.ShadowEndpointSlice) {
			s.Annotations = map[string]string{
				"note": "a", AppliedAnnotation: `{"well":true}`, offloadingv1beta1.ReflectedAnnotation: "{}", "k8s.ovn.org/endpointslice-network": "x",
			}
			s.Spec.Template.Ports = []discoveryv1.EndpointPort{{Port: new(int32(80))}, {Name: new("dns"), Protocol: new(corev1.ProtocolUDP), AppProtocol: new("x")}}
		})
	before := shadow.DeepCopy()
	r := testRules()
	r.remap = shifted{}
	slice, refused := forge(shadow, r, true)
	require.Empty(t, refused)
	require.Equal(t, before, shadow, "the shadow is changed")
	require.Equal(t, &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Name: testName, Namespace: testNamespace,
			Labels: map[string]string{
				discoveryv1.LabelServiceName: "web", discoveryv1.LabelManagedBy: "shadowendpointslice.liqo.io", offloadingv1beta1.ManagedByLabel: "shadowendpointslice",
				offloadingv1beta1.OriginLabel: "rome", offloadingv1beta1.DestinationLabel: "milan",
			},
			Annotations: map[string]string{"note": "a", AppliedAnnotation: `{"shadow":"shadow-1","labels":["endpointslice.kubernetes.io/managed-by","kubernetes.io/service-name",` +
				`"liqo.io/managed-by","offloading.liqo.io/destination","offloading.liqo.io/origin"],"annotations":["note"],"well":true}`},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints: []discoveryv1.Endpoint{{
			Addresses:  []string{"10.77.1.5"},
			Conditions: discoveryv1.EndpointConditions{Ready: new(true), Serving: new(true), Terminating: new(false)},
			Hostname:   new("db-0"),
			TargetRef:  &corev1.ObjectReference{Kind: "RemotePod", Namespace: "shop", Name: "db-0", UID: "u"},
			Hints:      &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: elsewhere}}, ForNodes: []discoveryv1.ForNode{{Name: elsewhere}}},
		}},
		Ports: []discoveryv1.EndpointPort{
			{Name: new(""), Protocol: new(corev1.ProtocolTCP), Port: new(int32(80))}, {Name: new("dns"), Protocol: new(corev1.ProtocolUDP), AppProtocol: new("x")},
		},
	}, slice)
}

// TestForgeFields fails when the API gains a field that forge does not handle yet.
func TestForgeFields(t *testing.T) {
	for kind, known := range map[reflect.Type][]string{
		reflect.TypeFor[discoveryv1.EndpointSlice](): {"TypeMeta", "ObjectMeta", "AddressType", "Endpoints", "Ports"},
		reflect.TypeFor[discoveryv1.Endpoint]():      {"Addresses", "Conditions", "Hostname", "TargetRef", "DeprecatedTopology", "NodeName", "Zone", "Hints"},
		// Ready follows the consumer's health; the others are copied from the consumer. For
		// a terminating pod of this cluster, all are set here.
		reflect.TypeFor[discoveryv1.EndpointConditions](): {"Ready", "Serving", "Terminating"},
		reflect.TypeFor[discoveryv1.EndpointHints]():      {"ForZones", "ForNodes"},
		reflect.TypeFor[discoveryv1.EndpointPort]():       {"Name", "Protocol", "Port", "AppProtocol"},
	} {
		var fields []string
		for i := range kind.NumField() {
			fields = append(fields, kind.Field(i).Name)
		}
		require.Equal(t, known, fields, "%s has a field that forge must treat", kind)
	}
}

// TestForgeOwnPods: an endpoint is matched with a pod of this cluster by its UID, or by its
// address. The address counts if there is no UID, or a node name says that the pod is here.
func TestForgeOwnPods(t *testing.T) {
	on := func(node string, addresses ...string) discoveryv1.Endpoint {
		e := at(addresses...)
		if node != "" {
			e.NodeName = new(node)
		}
		return e
	}
	named := func(uid types.UID, e discoveryv1.Endpoint) discoveryv1.Endpoint {
		e.TargetRef = &corev1.ObjectReference{Kind: "Pod", Namespace: "shop", Name: "db-0", UID: uid}
		return e
	}
	for name, tc := range map[string]struct {
		given discoveryv1.Endpoint
		node  string // empty: refused, or a pod of the consumer's cluster
		moved string // the address that the pod has; empty: the given one
		left  bool   // refused
		ready bool   // ready while the consumer is not well
	}{
		"ours":                     {given: on("milan", "10.200.1.9"), node: "milan-sim-2", ready: true},
		"not said to be":           {given: on("", "10.200.1.9"), node: "milan-sim-2", ready: true},
		"by name only":             {given: named("", on("", "10.200.1.9")), node: "milan-sim-2", ready: true},
		"by its UID":               {given: named("ours", on("", "10.200.1.7")), node: "milan-sim-3", ready: true},
		"by its UID, moved":        {given: named("ours", on("milan", "10.200.1.9")), node: "milan-sim-3", moved: "10.200.1.7", ready: true},
		"by its UID, in a range":   {given: named("ours", on("", "10.100.1.5")), node: "milan-sim-3", moved: "10.200.1.7", ready: true},
		"a UID of no pod here":     {given: named("other", on("", "10.200.1.9")), left: true},
		"a UID of no pod, a node":  {given: named("other", on("milan", "10.200.1.9")), node: "milan-sim-2", ready: true},
		"a UID like an address":    {given: named("10.200.1.9", on("", "10.200.1.9")), left: true},
		"not a pod":                {given: discoveryv1.Endpoint{Addresses: []string{"10.200.1.8"}, TargetRef: &corev1.ObjectReference{Kind: "Node", UID: "ours"}}, left: true},
		"another tenant's":         {given: on("milan", "10.200.1.8"), left: true},
		"one of two":               {given: on("milan", "10.200.1.9", "10.200.1.8"), left: true},
		"the consumer's":           {given: on("milan", "10.100.1.5")},
		"a node":                   {given: on("milan", "10.100.200.1"), left: true},
		"link-local":               {given: on("milan", "169.254.169.254"), left: true},
		"no address of the family": {given: on("milan", "fd00::1"), left: true},
	} {
		t.Run(name, func(t *testing.T) {
			slice, refused := forge(newShadow(endpointsOf(tc.given)), testRules(), false)
			require.Equal(t, tc.left, refused != "", refused)
			require.Equal(t, tc.left, len(slice.Endpoints) == 0)
			if tc.left {
				return
			}
			require.Equal(t, tc.node, ptr.Deref(slice.Endpoints[0].NodeName, ""))
			want := tc.given.Addresses
			if tc.moved != "" {
				want = []string{tc.moved}
			}
			require.Equal(t, want, slice.Endpoints[0].Addresses)
			require.Equal(t, tc.ready, *slice.Endpoints[0].Conditions.Ready)
		})
	}
}

// TestForgeOwnPodsHealth: a pod of this cluster is ready if it is ready itself and the
// consumer does not say otherwise.
func TestForgeOwnPodsHealth(t *testing.T) {
	ready, down, ending, lost := ownPod{node: "n", ready: true}, ownPod{node: "n"}, ownPod{node: "n", ready: true, ending: true}, ownPod{node: "n", ending: true}
	for name, tc := range map[string]struct {
		pods  []ownPod
		given discoveryv1.EndpointConditions
		well  bool
		want  discoveryv1.EndpointConditions
	}{
		"ready, well":                 {pods: []ownPod{ready}, well: true, want: discoveryv1.EndpointConditions{Ready: new(true)}},
		"ready, unwell":               {pods: []ownPod{ready}, want: discoveryv1.EndpointConditions{Ready: new(true)}},
		"not ready, well":             {pods: []ownPod{down}, well: true, want: discoveryv1.EndpointConditions{Ready: new(true)}},
		"not ready, unwell":           {pods: []ownPod{down}, want: discoveryv1.EndpointConditions{Ready: new(false), Serving: new(false)}},
		"ready, its owner says no":    {pods: []ownPod{ready}, given: discoveryv1.EndpointConditions{Ready: new(false)}, want: discoveryv1.EndpointConditions{Ready: new(false)}},
		"ending, well":                {pods: []ownPod{ending}, well: true, want: discoveryv1.EndpointConditions{Ready: new(false), Terminating: new(true)}},
		"ending, unwell":              {pods: []ownPod{ending}, want: discoveryv1.EndpointConditions{Ready: new(false), Terminating: new(true)}},
		"ending on a node that fails": {pods: []ownPod{lost}, well: true, given: discoveryv1.EndpointConditions{Ready: new(true), Serving: new(true), Terminating: new(false)}, want: discoveryv1.EndpointConditions{Ready: new(false), Serving: new(false), Terminating: new(true)}},
		"one of two is ready":         {pods: []ownPod{down, ready}, want: discoveryv1.EndpointConditions{Ready: new(false), Serving: new(false)}},
		"one of two ends":             {pods: []ownPod{ending, ready}, well: true, want: discoveryv1.EndpointConditions{Ready: new(false), Terminating: new(true)}},
	} {
		t.Run(name, func(t *testing.T) {
			r, e := testRules(), discoveryv1.Endpoint{NodeName: new("milan"), Conditions: tc.given}
			for i := range tc.pods {
				e.Addresses = append(e.Addresses, netip.AddrFrom4([4]byte{10, 200, 1, byte(i)}).String())
			}
			r.pod = func(a netip.Addr) (ownPod, bool) { return tc.pods[a.As4()[3]], true }
			slice, refused := forge(newShadow(endpointsOf(e)), r, tc.well)
			require.Empty(t, refused)
			require.Equal(t, tc.want, slice.Endpoints[0].Conditions)
		})
	}
}

func TestForgeRefuses(t *testing.T) {
	bad := func(n string) discoveryv1.Endpoint { return at("169.254.169." + n) }
	for name, tc := range map[string]struct {
		list    []discoveryv1.Endpoint
		left    []string
		refused string
	}{
		"one of two":            {[]discoveryv1.Endpoint{bad("254"), at("10.100.1.5")}, []string{"10.100.1.5"}, "1 of 2 endpoints are left out: 169.254.169.254 is in 169.254.0.0/16: link-local addresses"},
		"all":                   {[]discoveryv1.Endpoint{bad("1")}, nil, "1 of 1 endpoints are left out: 169.254.169.1 is in 169.254.0.0/16: link-local addresses"},
		"one of its addresses":  {[]discoveryv1.Endpoint{at("10.100.1.5", "169.254.169.1")}, nil, "1 of 1 endpoints are left out: 169.254.169.1 is in 169.254.0.0/16: link-local addresses"},
		"without address":       {[]discoveryv1.Endpoint{at()}, nil, "1 of 1 endpoints are left out: an endpoint has no address"},
		"none":                  {nil, nil, ""},
		"the first few, sorted": {[]discoveryv1.Endpoint{bad("5"), bad("4"), bad("1"), bad("1"), bad("2")}, nil, "5 of 5 endpoints are left out: 169.254.169.1 is in 169.254.0.0/16: link-local addresses; 169.254.169.2 is in 169.254.0.0/16: link-local addresses; 169.254.169.4 is in 169.254.0.0/16: link-local addresses; and 1 more reasons"},
	} {
		t.Run(name, func(t *testing.T) {
			slice, refused := forge(newShadow(endpointsOf(tc.list...)), testRules(), true)
			var left []string
			for _, e := range slice.Endpoints {
				left = append(left, e.Addresses...)
			}
			require.Equal(t, tc.left, left)
			require.Equal(t, tc.refused, refused)
		})
	}
}

// TestNames: endpoints are names of hosts where the consumer may name hosts.
func TestNames(t *testing.T) {
	shadow := newShadow(endpointsOf(at("db.example.com"), at("10.0.0.1 evil")), func(s *offloadingv1beta1.ShadowEndpointSlice) {
		s.Spec.Template.AddressType = discoveryv1.AddressTypeFQDN
	})
	r := testRules()
	slice, refused := forge(shadow, r, true)
	require.Nil(t, slice)
	require.Contains(t, refused, "a host name can resolve to any address; names are accepted where the setting sharing.serviceTypes has ExternalName")
	r.names = true
	slice, refused = forge(shadow, r, true)
	require.Equal(t, discoveryv1.AddressTypeFQDN, slice.AddressType)
	require.Len(t, slice.Endpoints, 1)
	require.Equal(t, []string{"db.example.com"}, slice.Endpoints[0].Addresses)
	require.True(t, isReady(slice.Endpoints[0]))
	require.Equal(t, `1 of 2 endpoints are left out: "10.0.0.1 evil" is not the name of a host`, refused)
	slice, _ = forge(shadow, r, false)
	require.False(t, isReady(slice.Endpoints[0]), "while the consumer is down")
	r.problem = "there is no ForeignCluster"
	_, refused = forge(shadow, r, true)
	require.Equal(t, "2 of 2 endpoints are left out: there is no ForeignCluster", refused)
}

func TestChanged(t *testing.T) {
	shadow := newShadow()
	others := func(s *discoveryv1.EndpointSlice) {
		s.Labels["theirs"], s.Annotations["theirs"], s.Finalizers = "x", "y", []string{"example.com/f"}
		s.OwnerReferences = append(s.OwnerReferences, metav1.OwnerReference{Kind: "X", UID: "x"})
	}
	labelled := func(s *discoveryv1.EndpointSlice) { s.Labels["x"] = "y" }
	nothing := func(*discoveryv1.EndpointSlice) {}
	for name, tc := range map[string]struct {
		want    *discoveryv1.EndpointSlice
		mod     sliceMod
		stays   sliceMod
		differs bool
	}{
		"equal":                  {sliceOf(shadow), nothing, nothing, false},
		"others' metadata stays": {sliceOf(shadow), others, others, false},
		"edited":                 {sliceOf(shadow), func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].Addresses[0] = "10.100.9.9" }, nothing, true},
		"emptied":                {sliceOf(newShadow(endpointsOf())), func(s *discoveryv1.EndpointSlice) { s.Endpoints = sliceOf(shadow).Endpoints }, nothing, true},
		"nothing, said twice":    {sliceOf(newShadow(endpointsOf())), func(s *discoveryv1.EndpointSlice) { s.Endpoints, s.Labels["x"] = nil, "y" }, labelled, false},
		"ports":                  {sliceOf(shadow), func(s *discoveryv1.EndpointSlice) { s.Ports = nil }, nothing, true},
		"label edited and lost": {sliceOf(shadow), func(s *discoveryv1.EndpointSlice) {
			s.Labels[discoveryv1.LabelManagedBy] = "me"
			delete(s.Labels, discoveryv1.LabelServiceName)
		}, nothing, true},
		"no longer asked for": {sliceOf(shadow), func(s *discoveryv1.EndpointSlice) {
			s.Labels["old"] = "x"
			s.Annotations[AppliedAnnotation] = store.Record(applied{Shadow: "shadow-1", Labels: []string{"old"}, Annotations: []string{"gone"}, Well: true})
		}, nothing, true},
	} {
		t.Run(name, func(t *testing.T) {
			have, want := tc.want.DeepCopy(), tc.want.DeepCopy()
			tc.mod(have)
			tc.stays(want)
			before := have.DeepCopy()
			require.Equal(t, want, changed(tc.want, have))
			require.Equal(t, tc.differs, differs(tc.want, have))
			require.Equal(t, before, have)
		})
	}
}

func TestForgeReady(t *testing.T) {
	for name, tc := range map[string]struct {
		ready *bool
		well  bool
		want  bool
	}{
		"not said, well":   {nil, true, true},
		"not said, unwell": {nil, false, false},
		"ready, well":      {new(true), true, true},
		"ready, unwell":    {new(true), false, false},
		"not ready, well":  {new(false), true, false},
		"not ready":        {new(false), false, false},
	} {
		t.Run(name, func(t *testing.T) {
			e := at("10.100.1.5")
			e.Conditions = discoveryv1.EndpointConditions{Ready: tc.ready, Serving: new(false), Terminating: new(true)}
			slice, _ := forge(newShadow(endpointsOf(e)), testRules(), tc.well)
			require.Equal(t, discoveryv1.EndpointConditions{Ready: new(tc.want), Serving: new(false), Terminating: new(true)}, slice.Endpoints[0].Conditions)
			require.Equal(t, tc.well, readApplied(slice).Well)
		})
	}
}
