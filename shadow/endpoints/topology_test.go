package endpoints

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/liqod/liqod/kube/kubetest"
)

// placed returns a ready endpoint on a node, with the hints that the EndpointSlice controller of
// its cluster gives it for a traffic distribution or policy. One in the zone "down" is not ready.
func placed(distribution, address, node, zone string) discoveryv1.Endpoint {
	e := discoveryv1.Endpoint{Addresses: []string{address}, NodeName: new(node), Zone: new(zone)}
	if distribution != "" && distribution != "Local" {
		e.Hints = &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: zone}}}
	}
	if distribution == "PreferSameNode" {
		e.Hints.ForNodes = []discoveryv1.ForNode{{Name: node}}
	}
	if zone == "down" {
		e.Hints, e.Conditions.Ready = nil, new(false)
	}
	return e
}

// chosen returns the addresses to which kube-proxy on a node leads, of the endpoints that are
// ready, or else of those that serve while they end: those on the node for internalTrafficPolicy
// Local; else those whose hints name the node, else those whose hints name its zone, each only
// if all that are ready have such hints and one fits; else all.
func chosen(all []discoveryv1.Endpoint, policy, node, zone string) (out []string) {
	local := func(e *discoveryv1.Endpoint) bool {
		return policy != "Local" || e.NodeName != nil && *e.NodeName == node
	}
	var ready, ending []*discoveryv1.Endpoint
	for i := range all {
		switch c := all[i].Conditions; {
		case !local(&all[i]):
		case ptr.Deref(c.Ready, true):
			ready = append(ready, &all[i])
		case ptr.Deref(c.Serving, true) && ptr.Deref(c.Terminating, false):
			ending = append(ending, &all[i])
		}
	}
	zones := func(h *discoveryv1.EndpointHints) (hinted, near bool) {
		return len(h.ForZones) > 0, slices.Contains(h.ForZones, discoveryv1.ForZone{Name: zone})
	}
	nodes := func(h *discoveryv1.EndpointHints) (hinted, near bool) {
		return len(h.ForNodes) > 0, slices.Contains(h.ForNodes, discoveryv1.ForNode{Name: node})
	}
	for _, by := range []func(*discoveryv1.EndpointHints) (bool, bool){nodes, zones} {
		var near []string
		heeded := true
		for _, e := range ready {
			hinted, fits := by(ptr.To(ptr.Deref(e.Hints, discoveryv1.EndpointHints{})))
			if heeded = heeded && hinted; fits {
				near = append(near, e.Addresses[0])
			}
		}
		if heeded && len(near) > 0 {
			return near
		}
	}
	if len(ready) == 0 {
		ready = ending
	}
	for _, e := range ready {
		out = append(out, e.Addresses[0])
	}
	return out
}

// TestTopology: a Service has a pod of rome in zone a, on a node with the name of one in milan,
// and up to two pods of milan. It has a client in milan. Zones and nodes of rome mean nothing in
// milan, unless zones are shared; where the Service prefers near endpoints, those of milan come
// first.
func TestTopology(t *testing.T) {
	const here, other, rome = "10.9.0.1", "10.9.0.2", "10.100.1.5"
	type at struct{ node, zone string }
	for name, tc := range map[string]struct {
		policy string
		shared bool
		client at
		milan  []at // of each pod of milan; one in zone "down" is not ready
		want   []string
	}{
		"no preference":         {client: at{"milan-2", "a"}, milan: []at{{"milan-1", "b"}}, want: []string{here, rome}},
		"no preference, shared": {shared: true, client: at{"milan-2", "a"}, milan: []at{{"milan-1", "b"}}, want: []string{here, rome}},

		"zone, own zone":             {policy: "PreferSameZone", client: at{"milan-2", "a"}, milan: []at{{"milan-2", "a"}, {"milan-1", "b"}}, want: []string{here}},
		"zone, own cluster":          {policy: "PreferSameZone", client: at{"milan-2", "a"}, milan: []at{{"milan-1", "b"}}, want: []string{here}},
		"zone, nothing near":         {policy: "PreferSameZone", client: at{"milan-2", "a"}, want: []string{rome}},
		"zone, nothing ready near":   {policy: "PreferSameZone", client: at{"milan-2", "a"}, milan: []at{{"milan-2", "down"}}, want: []string{rome}},
		"zone, shared":               {policy: "PreferSameZone", shared: true, client: at{"milan-2", "a"}, milan: []at{{"milan-1", "b"}}, want: []string{rome}},
		"zone, shared, another zone": {policy: "PreferSameZone", shared: true, client: at{"milan-1", "b"}, milan: []at{{"milan-1", "b"}}, want: []string{here}},

		"node, own node":       {policy: "PreferSameNode", client: at{"worker", "a"}, milan: []at{{"worker", "a"}, {"milan-1", "a"}}, want: []string{here}},
		"node, own zone":       {policy: "PreferSameNode", client: at{"worker", "b"}, milan: []at{{"milan-1", "b"}, {"milan-2", "c"}}, want: []string{here}},
		"node, own cluster":    {policy: "PreferSameNode", client: at{"worker", "a"}, milan: []at{{"milan-1", "b"}, {"milan-2", "c"}}, want: []string{here, other}},
		"node, nothing near":   {policy: "PreferSameNode", client: at{"worker", "a"}, want: []string{rome}},
		"node, shared zones":   {policy: "PreferSameNode", shared: true, client: at{"worker", "a"}, milan: []at{{"worker", "a"}}, want: []string{here}},
		"node, in shared zone": {policy: "PreferSameNode", shared: true, client: at{"worker", "a"}, milan: []at{{"milan-1", "b"}}, want: []string{rome}},

		"Local, own node":             {policy: "Local", client: at{"worker", "a"}, milan: []at{{"worker", "a"}, {"milan-1", "b"}}, want: []string{here}},
		"Local, another node":         {policy: "Local", client: at{"worker", "a"}, milan: []at{{"milan-1", "b"}}},
		"Local, another node, shared": {policy: "Local", shared: true, client: at{"worker", "a"}, milan: []at{{"milan-1", "b"}}},

		"Auto, own zone":     {policy: "Auto", client: at{"milan-2", "a"}, milan: []at{{"milan-2", "a"}, {"milan-1", "b"}}, want: []string{here}},
		"Auto, own cluster":  {policy: "Auto", client: at{"milan-2", "a"}, milan: []at{{"milan-1", "b"}}, want: []string{here}},
		"Auto, nothing near": {policy: "Auto", client: at{"milan-2", "a"}, want: []string{rome}},
		"Auto, shared":       {policy: "Auto", shared: true, client: at{"milan-2", "a"}, milan: []at{{"milan-1", "b"}}, want: []string{rome}},
	} {
		t.Run(name, func(t *testing.T) {
			own := &discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv4}
			own.Namespace, own.Labels = testNamespace, map[string]string{discoveryv1.LabelServiceName: "web"}
			for i, pod := range tc.milan {
				own.Endpoints = append(own.Endpoints, placed(tc.policy, []string{here, other}[i], pod.node, pod.zone))
			}
			r := newRig(t, newShadow(endpointsOf(placed(tc.policy, rome, "worker", "a"))))
			r.e.cfg.SharesZones = func(string) bool { return tc.shared }
			trimmed, err := TrimOwn(own.DeepCopy())
			require.NoError(t, err)
			require.NoError(t, r.e.cfg.Own.GetIndexer().Add(trimmed))
			require.Equal(t, []string{"create"}, r.settle())
			require.Equal(t, tc.want, chosen(append(own.Endpoints, r.slice().Endpoints...), tc.policy, tc.client.node, tc.client.zone))
		})
	}
}

// TestStandby: endpoints of the consumer's cluster stand by only while this cluster has a ready
// endpoint of the same Service, and they are ready again at once without it.
func TestStandby(t *testing.T) {
	own := &discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{placed("PreferSameZone", "10.9.0.1", "milan-1", "b")}}
	own.Namespace, own.Name, own.Labels = testNamespace, "web-own", map[string]string{discoveryv1.LabelServiceName: "web"}
	for name, tc := range map[string]struct {
		mod     sliceMod
		shadow  discoveryv1.EndpointConditions
		standby bool
	}{
		"a ready one":             {mod: func(*discoveryv1.EndpointSlice) {}, standby: true},
		"none that is ready":      {mod: func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].Conditions.Ready = new(false) }},
		"no preference":           {mod: func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].Hints = nil }},
		"a headless Service":      {mod: func(s *discoveryv1.EndpointSlice) { s.Labels[corev1.IsHeadlessService] = "" }},
		"another Service":         {mod: func(s *discoveryv1.EndpointSlice) { s.Labels[discoveryv1.LabelServiceName] = "db" }},
		"another namespace":       {mod: func(s *discoveryv1.EndpointSlice) { s.Namespace = "shop" }},
		"another address family":  {mod: func(s *discoveryv1.EndpointSlice) { s.AddressType = discoveryv1.AddressTypeIPv6 }},
		"it does not serve there": {mod: func(*discoveryv1.EndpointSlice) {}, shadow: discoveryv1.EndpointConditions{Serving: new(false)}},
	} {
		t.Run(name, func(t *testing.T) {
			near := own.DeepCopy()
			tc.mod(near)
			given := at("10.100.1.5")
			given.Conditions = tc.shadow
			r := newRig(t, newShadow(endpointsOf(given)))
			require.NoError(t, r.e.cfg.Own.GetIndexer().Add(near))
			r.settle()
			want := discoveryv1.EndpointConditions{Ready: new(true), Serving: tc.shadow.Serving}
			if tc.standby {
				want = discoveryv1.EndpointConditions{Ready: new(false), Serving: new(true), Terminating: new(true)}
			}
			require.Equal(t, want, r.slice().Endpoints[0].Conditions)
		})
	}
	r := newRunningWith(t, same{}, newShadow(), twin())
	t.Cleanup(r.lead())
	r.becomes("+10.100.1.5")
	slices := r.pods.DiscoveryV1().EndpointSlices(testNamespace)
	kubetest.Create(t, slices, own)
	r.becomes("-10.100.1.5")
	require.NoError(t, slices.Delete(t.Context(), own.Name, metav1.DeleteOptions{}))
	r.becomes("+10.100.1.5")
}

// TestTopologyOfOwnPods: an endpoint that is a pod in this cluster has the zone and the hints of
// its node here, whatever the consumer's cluster says of its virtual node.
func TestTopologyOfOwnPods(t *testing.T) {
	for name, tc := range map[string]struct {
		distribution, zone string
		want               *discoveryv1.EndpointHints
	}{
		"no preference":       {zone: "b"},
		"zone":                {distribution: "PreferSameZone", zone: "b", want: &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: "b"}}}},
		"node":                {distribution: "PreferSameNode", zone: "b", want: &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: "b"}}, ForNodes: []discoveryv1.ForNode{{Name: "milan-sim-2"}}}},
		"a node without zone": {distribution: "PreferSameZone"},
	} {
		t.Run(name, func(t *testing.T) {
			r := testRules()
			r.zone = func(node string) string { require.Equal(t, "milan-sim-2", node); return tc.zone }
			slice, _ := forge(newShadow(endpointsOf(placed(tc.distribution, "10.200.1.9", "milan", "a"))), r, true)
			require.Equal(t, tc.want, slice.Endpoints[0].Hints)
			if tc.zone == "" {
				require.Nil(t, slice.Endpoints[0].Zone)
				return
			}
			require.Equal(t, tc.zone, *slice.Endpoints[0].Zone)
		})
	}
}
