package scenarios

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/api/generated/clientset/versioned/typed/offloading/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/kube/kubetest"
)

const (
	controllerUser = "system:serviceaccount:liqod:liqod-controller"
	// shortGrace is how long an unknown health leaves endpoints as they are in this test.
	shortGrace = 8 * time.Second
)

// slicesWorld is a world in which rome writes ShadowEndpointSlices into its twin
// namespace with its own credentials, as a vkubelet does.
type slicesWorld struct {
	*world
	peer v1beta1.ShadowEndpointSliceInterface
}

// testEndpoints: the provider keeps the EndpointSlices that its consumer asks for, of the
// consumer's addresses only, ready only while the consumer is well. Package endpoints tests what becomes of
// slices that others write, and of addresses of other pods.
func testEndpoints(t *testing.T, world *world) {
	w := slicesWorld{world: world}
	w.offload(t, "shop", offloadingv1beta1.NamespaceOffloadingSpec{})
	// The vkubelet would remove what stands for no EndpointSlice of rome's.
	(*w.rome.VKubelet("milan")).Kill()
	_, liqod := clients(t, holder{in: w.milan, namespace: tenantOfRome, account: "peer-1"}.config(t))
	w.peer = liqod.OffloadingV1beta1().ShadowEndpointSlices(twinOfRome)

	inTurn(t, w, []part[slicesWorld]{
		{"Appear", testEndpointsAppear}, {"Ranges", testAddressRanges}, {"Forged", testForgedEndpoints}, {"Refused", testRefusedSlice},
		{"Restart", testSlicesRestart}, {"Many", testManySlices}, {"Outage", testConsumerOutage},
	})
}

func shadowSlice(name string, list ...discoveryv1.Endpoint) *offloadingv1beta1.ShadowEndpointSlice {
	return &offloadingv1beta1.ShadowEndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
			discoveryv1.LabelServiceName: "web", offloadingv1beta1.OriginLabel: "rome", offloadingv1beta1.DestinationLabel: "milan",
		}},
		Spec: offloadingv1beta1.ShadowEndpointSliceSpec{Template: offloadingv1beta1.EndpointSliceTemplate{
			AddressType: discoveryv1.AddressTypeIPv4, Endpoints: list, Ports: []discoveryv1.EndpointPort{{Port: new(int32(80))}},
		}},
	}
}

func endpoint(addresses ...string) discoveryv1.Endpoint {
	return discoveryv1.Endpoint{Addresses: addresses}
}

func (w slicesWorld) create(t *testing.T, shadow *offloadingv1beta1.ShadowEndpointSlice) {
	t.Helper()
	kubetest.Create(t, w.peer, shadow)
}

func (w slicesWorld) slice(t *testing.T, name string) *discoveryv1.EndpointSlice {
	t.Helper()
	return kubetest.Get(t, w.milan.Client().DiscoveryV1().EndpointSlices(twinOfRome), name)
}

// has looks for the endpoints of an EndpointSlice: +address if ready, else -address.
func (w slicesWorld) has(name string, want ...string) func(context.Context) error {
	return lab.That(w.milan.Client().DiscoveryV1().EndpointSlices(twinOfRome), name, func(slice *discoveryv1.EndpointSlice) error {
		var have []string
		for _, e := range slice.Endpoints {
			sign := "-"
			if e.Conditions.Ready != nil && *e.Conditions.Ready {
				sign = "+"
			}
			have = append(have, sign+e.Addresses[0])
		}
		return lab.Wrong(nil, !slices.Equal(want, have), "EndpointSlice %s has %v, not %v", name, have, want)
	})
}

// absent looks for no EndpointSlice of a name.
func (w slicesWorld) absent(name string) func(context.Context) error {
	return isGone(w.milan.Client().DiscoveryV1().EndpointSlices(twinOfRome), name)
}

// enforced looks for the reason of the condition Enforced, which the consumer reads; empty:
// there is none.
func (w slicesWorld) enforced(name, reason string, says ...string) func(context.Context) error {
	return lab.That(w.peer, name, func(s *offloadingv1beta1.ShadowEndpointSlice) error {
		c := meta.FindStatusCondition(s.Status.Conditions, offloadingv1beta1.ShadowEndpointSliceEnforced)
		if c == nil && reason == "" {
			return nil
		}
		if c == nil || c.Status != metav1.ConditionFalse || c.Reason != reason {
			return fmt.Errorf("conditions are %+v", s.Status.Conditions)
		}
		for _, text := range says {
			if !strings.Contains(c.Message, text) {
				return fmt.Errorf("%q does not say %q", c.Message, text)
			}
		}
		return nil
	})
}

// wrote returns what the controller of milan wrote of an object of a twin since begin.
func (w slicesWorld) wrote(t *testing.T, begin time.Time, name string) []string {
	t.Helper()
	var out []string
	for _, line := range writes(t, w.milan.Cluster, controllerUser, begin) {
		if strings.Contains(line, " "+twinOfRome+"/"+name+":") {
			out = append(out, line)
		}
	}
	return out
}

func testEndpointsAppear(t *testing.T, w slicesWorld) {
	begin := time.Now()
	ready := endpoint("10.100.1.5")
	ready.NodeName, ready.Zone, ready.Hostname = new(w.milan.SimulatedNodeName(1)), new("z"), new("web-0")
	ready.TargetRef = &corev1.ObjectReference{Kind: "Pod", Namespace: "shop", Name: "web-0"}
	ready.Hints = &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: "z"}}, ForNodes: []discoveryv1.ForNode{{Name: "n"}}}
	ready.DeprecatedTopology = map[string]string{"a": "b"}
	off := endpoint("10.100.1.6")
	off.Conditions = discoveryv1.EndpointConditions{Ready: new(false), Serving: new(true), Terminating: new(true)}
	w.create(t, shadowSlice("web", ready, off))
	within(t, soon, "the EndpointSlice is there", w.has("web", "+10.100.1.5", "-10.100.1.6"))
	slice := w.slice(t, "web")
	require.Equal(t, "web", slice.Labels[discoveryv1.LabelServiceName])
	require.Equal(t, offloadingv1beta1.ManagedByShadowEndpointSlice, slice.Labels[discoveryv1.LabelManagedBy])
	require.Nil(t, slice.Endpoints[0].NodeName)
	require.Equal(t, "RemotePod", slice.Endpoints[0].TargetRef.Kind)
	require.Nil(t, slice.Endpoints[0].Zone)
	require.Equal(t, &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: "elsewhere.liqo.io"}}, ForNodes: []discoveryv1.ForNode{{Name: "elsewhere.liqo.io"}}},
		slice.Endpoints[0].Hints, "zones and nodes of rome are none of milan's")
	require.Equal(t, off.Conditions, slice.Endpoints[1].Conditions)
	hold(t, 5*time.Second, "nothing to say", w.enforced("web", ""))
	require.Equal(t, []string{"create endpointslices shop-rome/web: 201"}, w.wrote(t, begin, "web"), "one write")

	begin = time.Now()
	patch := []byte(`{"spec":{"template":{"endpoints":[{"addresses":["10.100.1.7"]}]}},"metadata":{"labels":{"tier":"x"}}}`)
	kubetest.Patch(t, w.peer, "web", types.MergePatchType, patch)
	within(t, soon, "a change follows", w.has("web", "+10.100.1.7"))
	require.Equal(t, "x", w.slice(t, "web").Labels["tier"])
	hold(t, 3*time.Second, "nothing more", w.has("web", "+10.100.1.7"))
	require.Len(t, w.wrote(t, begin, "web"), 1)

	begin = time.Now()
	require.NoError(t, w.peer.Delete(t.Context(), "web", metav1.DeleteOptions{}))
	within(t, soon, "it goes with its shadow", w.absent("web"))
	require.Equal(t, []string{"delete endpointslices shop-rome/web: 200"}, w.wrote(t, begin, "web"))
}

// setRanges patches the ranges of rome in milan.
func (w slicesWorld) setRanges(ctx context.Context, ranges ...string) error {
	patch := fmt.Sprintf(`{"spec":{"addressRanges":["%s"]}}`, strings.Join(ranges, `","`))
	return second(w.milan.Liqod().CoreV1beta1().ForeignClusters().Patch(ctx, "rome", types.MergePatchType, []byte(patch), metav1.PatchOptions{}))
}

func testAddressRanges(t *testing.T, w slicesWorld) {
	own := w.rome.Options.PodCIDR
	for _, bad := range []string{"10.42.0.0", "10.42.0.1/16", "rome", "10.42.0.0/33", "", "2001:db8::1/64"} {
		err := w.setRanges(t.Context(), own, bad)
		require.True(t, apierrors.IsInvalid(err), "%q: %v", bad, err)
		require.ErrorContains(t, err, "addressRanges", "%q", bad)
	}
	require.ErrorContains(t, w.setRanges(t.Context(), "10.42.0.1/16"), "addressRanges takes CIDRs without host bits, as 10.42.0.0/16")
	require.Error(t, w.setRanges(t.Context(), own, own), "twice the same")

	w.create(t, shadowSlice("ranges", endpoint("10.42.1.1"), endpoint("10.100.1.1")))
	within(t, soon, "the other range is left out", w.has("ranges", "+10.100.1.1"))
	within(t, soon, "and that is said", w.enforced("ranges", offloadingv1beta1.ReasonEndpointsRefused,
		"1 of 2 endpoints are left out: 10.42.1.1 is not in spec.addressRanges of ForeignCluster rome ("+own+")"))
	require.NoError(t, w.setRanges(t.Context(), own, "10.42.0.0/16", "2001:db8::/64"))
	within(t, soon, "a new range counts at once", w.has("ranges", "+10.42.1.1", "+10.100.1.1"))
	within(t, soon, "nothing is left to say", w.enforced("ranges", ""))
	require.NoError(t, w.setRanges(t.Context(), own))
	within(t, soon, "so does one that is taken away", w.has("ranges", "+10.100.1.1"))
	require.NoError(t, w.peer.Delete(t.Context(), "ranges", metav1.DeleteOptions{}))
}

// testForgedEndpoints: a peer that leads the provider's pods astray.
func testForgedEndpoints(t *testing.T, w slicesWorld) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "bare"}, Status: corev1.NodeStatus{
		Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.100.7.7"}},
	}}
	kubetest.Create(t, w.milan.Client().CoreV1().Nodes(), node)
	require.NoError(t, w.setRanges(t.Context(), "0.0.0.0/0"), "an administrator who trusts too much")
	w.create(t, shadowSlice("known", endpoint("10.100.7.7"), endpoint("10.42.1.1")))
	within(t, soon, "the controller knows the node and the range", w.has("known", "+10.42.1.1"))
	require.NoError(t, w.peer.Delete(t.Context(), "known", metav1.DeleteOptions{}))
	begin := time.Now()
	w.create(t, shadowSlice("forged", endpoint("169.254.169.254"), endpoint("10.100.7.7"), endpoint("127.0.0.1"), endpoint("10.100.1.1"), endpoint("0.0.0.0"), endpoint("not.an.address")))
	within(t, soon, "only what is a pod's is left", w.has("forged", "+10.100.1.1"))
	within(t, soon, "and that is said", w.enforced("forged", offloadingv1beta1.ReasonEndpointsRefused, "5 of 6 endpoints are left out", "; and 2 more reasons"))
	hold(t, 3*time.Second, "as it is", w.has("forged", "+10.100.1.1"))
	require.Len(t, w.wrote(t, begin, "forged"), 2, "one EndpointSlice and one status")
	require.NoError(t, w.milan.Client().CoreV1().Nodes().Delete(t.Context(), "bare", metav1.DeleteOptions{}))
	within(t, soon, "no longer a node's", w.has("forged", "+10.100.7.7", "+10.100.1.1"))
	require.NoError(t, w.setRanges(t.Context(), w.rome.Options.PodCIDR))

	w.create(t, func() *offloadingv1beta1.ShadowEndpointSlice {
		s := shadowSlice("name")
		s.Spec.Template.AddressType, s.Spec.Template.Endpoints = discoveryv1.AddressTypeFQDN, []discoveryv1.Endpoint{endpoint("metadata.google.internal")}
		return s
	}())
	within(t, soon, "names are refused", w.enforced("name", offloadingv1beta1.ReasonEndpointsRefused, "IPv4 and IPv6 are accepted"))
	w.create(t, func() *offloadingv1beta1.ShadowEndpointSlice {
		s := shadowSlice("other", endpoint("10.100.1.1"))
		s.Labels[offloadingv1beta1.OriginLabel] = "paris"
		return s
	}())
	within(t, soon, "another's name is refused", w.enforced("other", "ForeignOrigin"))
	require.NoError(t, w.absent("name")(t.Context()))
	require.NoError(t, w.absent("other")(t.Context()))
	for _, name := range []string{"forged", "name", "other"} {
		require.NoError(t, w.peer.Delete(t.Context(), name, metav1.DeleteOptions{}))
	}
	within(t, soon, "it is gone", w.absent("forged"))
}

// testRefusedSlice: what this cluster's API server does not take.
func testRefusedSlice(t *testing.T, w slicesWorld) {
	bad := []byte(`{"spec":{"template":{"ports":[{"name":"Not A Name","port":80}]}}}`)
	good := []byte(`{"spec":{"template":{"ports":[{"name":"http","port":80}]}}}`)
	w.create(t, shadowSlice("ports", endpoint("10.100.1.1")))
	within(t, soon, "it is there", w.has("ports", "+10.100.1.1"))
	kubetest.Patch(t, w.peer, "ports", types.MergePatchType, bad)
	within(t, soon, "the API server's words", w.enforced("ports", offloadingv1beta1.ReasonEndpointSliceRefused, "ports[0].name"))
	within(t, soon, "and nothing stays that is out of date", w.absent("ports"))
	kubetest.Patch(t, w.peer, "ports", types.MergePatchType, good)
	within(t, soon, "mended", w.has("ports", "+10.100.1.1"))
	within(t, soon, "and all is well", w.enforced("ports", ""))
	require.NoError(t, w.peer.Delete(t.Context(), "ports", metav1.DeleteOptions{}))
}

func testSlicesRestart(t *testing.T, w slicesWorld) {
	in := w.milan.Client().DiscoveryV1().EndpointSlices(twinOfRome)
	names := []string{"steady", "partly", "edited-down", "deleted-down", "left"}
	for _, name := range names {
		list := []discoveryv1.Endpoint{endpoint("10.100.1.1")}
		if name == "partly" {
			list = append(list, endpoint("127.0.0.1"))
		}
		w.create(t, shadowSlice(name, list...))
		within(t, soon, name, w.has(name, "+10.100.1.1"))
	}
	within(t, soon, "one is not wholly enforced", w.enforced("partly", offloadingv1beta1.ReasonEndpointsRefused))
	w.milan.Controller.Kill()
	begin := time.Now()
	kubetest.Patch(t, in, "edited-down", types.MergePatchType, []byte(`{"endpoints":[]}`))
	require.NoError(t, in.Delete(t.Context(), "deleted-down", metav1.DeleteOptions{}))
	require.NoError(t, w.peer.Delete(t.Context(), "left", metav1.DeleteOptions{}))
	w.create(t, shadowSlice("fresh", endpoint("10.100.1.2")))
	require.NoError(t, w.sites.Restart(&w.milan.Controller))
	within(t, soon, "the edited one is mended", w.has("edited-down", "+10.100.1.1"))
	within(t, soon, "the deleted one is back", w.has("deleted-down", "+10.100.1.1"))
	within(t, soon, "the new one is there", w.has("fresh", "+10.100.1.2"))
	within(t, soon, "the one without shadow is gone", w.absent("left"))
	hold(t, 3*time.Second, "steady", w.has("steady", "+10.100.1.1"))
	require.Empty(t, w.wrote(t, begin, "steady"), "nothing changed: nothing is written")
	require.Empty(t, w.wrote(t, begin, "partly"))
	for _, name := range []string{"partly", "edited-down", "deleted-down", "fresh"} {
		require.NoError(t, w.peer.Delete(t.Context(), name, metav1.DeleteOptions{}))
		within(t, soon, name+" is gone", w.absent(name))
	}
}

// manySlices is how many EndpointSlices stand while rome is away.
const manySlices = 300

// testManySlices: each costs one write, and is soon there.
func testManySlices(t *testing.T, w slicesWorld) {
	begin := time.Now()
	for i := range manySlices {
		w.create(t, shadowSlice(fmt.Sprintf("many-%d", i), endpoint("10.100.2.1"), endpoint("10.100.2.2")))
	}
	t.Logf("%d ShadowEndpointSlices created: %s", manySlices, time.Since(begin).Round(time.Millisecond))
	within(t, soon, "all EndpointSlices are there", w.allReady(true))
	ours := slices.DeleteFunc(writes(t, w.milan.Cluster, controllerUser, begin), func(write string) bool { return !strings.Contains(write, "/many-") })
	require.Len(t, ours, manySlices, "one write each")
}

// allReady looks for every endpoint of the many EndpointSlices.
func (w slicesWorld) allReady(ready bool) func(context.Context) error {
	return lab.Those(w.milan.Client().DiscoveryV1().EndpointSlices(twinOfRome), metav1.ListOptions{}, func(list *discoveryv1.EndpointSliceList) error {
		found := 0
		for _, slice := range list.Items {
			for _, e := range slice.Endpoints {
				if strings.HasPrefix(slice.Name, "many-") && *e.Conditions.Ready == ready {
					found++
				}
			}
		}
		return lab.Wrong(nil, found != 2*manySlices, "%d of %d endpoints are Ready=%t", found, 2*manySlices, ready)
	})
}

// testConsumerOutage: milan holds credentials for rome too, and so sees when it is away.
func testConsumerOutage(t *testing.T, w slicesWorld) {
	off := endpoint("10.100.1.9")
	off.Conditions.Ready = new(false)
	w.create(t, shadowSlice("away", endpoint("10.100.1.1"), off))
	within(t, soon, "ready without a check", w.has("away", "+10.100.1.1", "-10.100.1.9"))
	require.NoError(t, w.milan.Connect(t.Context(), w.rome))
	within(t, time.Minute, "milan checks rome", peerSays(w.milan, "rome", corev1beta1.ConditionAPIServer, metav1.ConditionTrue, ""))
	within(t, soon, "ready with a check", w.has("away", "+10.100.1.1", "-10.100.1.9"))
	for _, f := range faults() {
		if !f.aside {
			continue // rome's own control plane is not under test
		}
		t.Run(f.name, func(t *testing.T) {
			begin := time.Now()
			struck := begin
			f.strike(w.rome.Cluster)
			t.Cleanup(func() { require.NoError(t, f.heal(context.WithoutCancel(t.Context()), w.rome.Cluster)) })
			within(t, 2*promptly, "milan notices", peerSays(w.milan, "rome", corev1beta1.ConditionAPIServer, metav1.ConditionFalse, ""))
			within(t, promptly, "all endpoints are off", w.allReady(false))
			by(t, begin, 2*promptly, "not ready", w.has("away", "-10.100.1.1", "-10.100.1.9"))
			hold(t, 5*time.Second, "not ready", w.has("away", "-10.100.1.1", "-10.100.1.9"))
			require.NoError(t, f.heal(t.Context(), w.rome.Cluster))
			begin = time.Now()
			within(t, 2*promptly, "milan notices", peerSays(w.milan, "rome", corev1beta1.ConditionAPIServer, metav1.ConditionTrue, ""))
			within(t, promptly, "all endpoints are on", w.allReady(true))
			by(t, begin, 2*promptly, "ready again", w.has("away", "+10.100.1.1", "-10.100.1.9"))
			require.Len(t, w.wrote(t, struck, "away"), 2, "off, and on")
		})
	}
}
