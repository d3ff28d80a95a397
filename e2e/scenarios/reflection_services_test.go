package scenarios

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/utils/ptr"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/e2e/site"
	"github.com/liqod/liqod/kube/kubetest"
)

// servicePair is where Services of an offloaded namespace are, here and in the provider.
type servicePair struct {
	*world
	home, remote typedcorev1.ServiceInterface
}

func (w *world) servicePair(t *testing.T, namespace string) servicePair {
	t.Helper()
	w.offload(t, namespace, offloadingv1beta1.NamespaceOffloadingSpec{})
	return servicePair{w, w.rome.Client().CoreV1().Services(namespace), w.milan.Client().CoreV1().Services(namespace + "-rome")}
}

func (s servicePair) create(t *testing.T, service *corev1.Service) *corev1.Service {
	t.Helper()
	return kubetest.Create(t, s.home, service)
}

func (s servicePair) patch(t *testing.T, name, body string) {
	t.Helper()
	kubetest.Patch(t, s.home, name, types.MergePatchType, []byte(body))
}

// until waits for a state of a Service in the provider.
func (s servicePair) until(t *testing.T, name, what string, as func(*corev1.Service) bool) *corev1.Service {
	t.Helper()
	return there(t, what, getter(s.remote, name), as)
}

// force sets the annotation that carries node ports; null takes it away.
func (s servicePair) force(t *testing.T, name, value string) {
	t.Helper()
	s.patch(t, name, fmt.Sprintf(`{"metadata":{"annotations":{%q:%s}}}`, offloadingv1beta1.ForceRemoteNodePortAnnotation, value))
}

// nodePort is a Service with a port of the band from which clusters choose none themselves.
func nodePort(name string, port int32) *corev1.Service {
	return service(name, func(s *corev1.ServiceSpec) { s.Type, s.Ports[0].NodePort = corev1.ServiceTypeNodePort, port })
}

func hasNodePort(port int32) func(*corev1.Service) bool {
	return func(s *corev1.Service) bool { return s.Spec.Ports[0].NodePort == port }
}

// testServiceRows: Services that change in place, and such as the provider refuses.
func testServiceRows(t *testing.T, w *world) {
	s := w.servicePair(t, "service-rows")
	for name, test := range map[string]func(*testing.T, servicePair){
		"NodePortForced": testNodePortForced, "NodePortTaken": testNodePortTaken, "ExternalNameEnds": testExternalNameEnds,
		"RefusedChange": testRefusedChange,
		"Families":      testFamilies, "SlicesOfSix": testSlicesOfSix,
	} {
		t.Run(name, func(t *testing.T) { test(t, s) })
	}
}

// testNodePortForced: the annotation acts on a Service that stands. When it goes the
// provider's Service keeps its port, on which somebody may rely.
func testNodePortForced(t *testing.T, s servicePair) {
	s.create(t, nodePort("web", 30021))
	made := s.until(t, "web", "of a port that milan has chosen", func(s *corev1.Service) bool { return s.Spec.Ports[0].NodePort != 0 })
	require.False(t, hasNodePort(30021)(made))
	s.force(t, "web", `"true"`)
	s.until(t, "web", "of the port that it has at home", hasNodePort(30021))

	s.force(t, "web", "null")
	s.until(t, "web", "no longer forced", func(s *corev1.Service) bool {
		_, forced := s.Annotations[offloadingv1beta1.ForceRemoteNodePortAnnotation]
		return !forced
	})
	s.patch(t, "web", `{"metadata":{"labels":{"round":"2"}},"spec":{"ports":[{"name":"http","port":80,"targetPort":8080,"nodePort":30022}]}}`)
	have := s.until(t, "web", "changed", func(s *corev1.Service) bool { return s.Labels["round"] == "2" })
	require.True(t, hasNodePort(30021)(have), "home's port is not followed: %v", have.Spec.Ports)
	s.force(t, "web", `"true"`)
	have = s.until(t, "web", "of home's port again", hasNodePort(30022))
	require.Equal(t, made.UID, have.UID)
	require.Equal(t, made.Spec.ClusterIP, have.Spec.ClusterIP)
}

// testNodePortTaken: another Service of the provider has the port. An event about the Service at home reports
// it. Until the port is free, a new Service has another port, and an existing one keeps its port.
func testNodePortTaken(t *testing.T, s servicePair) {
	theirs := s.milan.Client().CoreV1().Services(metav1.NamespaceDefault)
	ports := map[string]int32{"fresh": 30031, "standing": 30032}
	for name, port := range ports {
		kubetest.Create(t, theirs, nodePort("theirs-"+name, port))
	}
	standing := s.create(t, nodePort("standing", ports["standing"]))
	before := s.until(t, "standing", "of a port that milan has chosen", anyState[*corev1.Service])
	s.force(t, "standing", `"true"`)
	fresh := nodePort("fresh", ports["fresh"])
	fresh.Annotations = map[string]string{offloadingv1beta1.ForceRemoteNodePortAnnotation: "true"}
	fresh = s.create(t, fresh)
	for _, local := range []*corev1.Service{standing, fresh} {
		s.eventAbout(t, local, "FailedReflection", fmt.Sprintf("%d: provided port is already allocated", ports[local.Name]))
	}
	instead := s.until(t, "fresh", "of another port meanwhile", func(s *corev1.Service) bool { return s.Spec.Ports[0].NodePort != 0 })
	require.False(t, hasNodePort(ports["fresh"])(instead))
	require.Equal(t, before.Spec, s.until(t, "standing", "of the port that it had", anyState[*corev1.Service]).Spec)
	for name, port := range ports {
		require.NoError(t, theirs.Delete(t.Context(), "theirs-"+name, metav1.DeleteOptions{}))
		have := s.until(t, name, "of the port that is free now", hasNodePort(port))
		require.Contains(t, []types.UID{before.UID, instead.UID}, have.UID)
	}
}

// testRefusedChange: a Service whose new selector comes with a port that the provider refuses has the
// selector at once, and the port when it is free.
func testRefusedChange(t *testing.T, s servicePair) {
	theirs := s.milan.Client().CoreV1().Services(metav1.NamespaceDefault)
	kubetest.Create(t, theirs, nodePort("theirs-changed", 30033))
	s.create(t, nodePort("changed", 30033))
	s.until(t, "changed", "of a port that milan has chosen", anyState[*corev1.Service])
	s.patch(t, "changed", fmt.Sprintf(`{"metadata":{"annotations":{%q:"true"}},"spec":{"selector":{"app":"other"}}}`, offloadingv1beta1.ForceRemoteNodePortAnnotation))
	s.until(t, "changed", "of the new selector", func(s *corev1.Service) bool {
		return s.Spec.Selector["app"] == "other" && s.Spec.Ports[0].NodePort != 30033
	})
	require.NoError(t, theirs.Delete(t.Context(), "theirs-changed", metav1.DeleteOptions{}))
	have := s.until(t, "changed", "of the port that is free now", hasNodePort(30033))
	require.Equal(t, "other", have.Spec.Selector["app"])
}

// testExternalNameEnds: a Service that is no longer a mere name gets an address of the
// provider's, or none where it is headless, and stays the same Service.
func testExternalNameEnds(t *testing.T, s servicePair) {
	s.create(t, service("named", func(s *corev1.ServiceSpec) {
		s.Type, s.ExternalName, s.Selector = corev1.ServiceTypeExternalName, "example.com", nil
	}))
	named := func(s *corev1.Service) bool { return s.Spec.ExternalName == "example.com" && s.Spec.ClusterIP == "" }
	made := s.until(t, "named", "a name", named)
	s.patch(t, "named", `{"spec":{"type":"ClusterIP","externalName":null,"selector":{"app":"web"}}}`)
	have := s.until(t, "named", "of an address", func(s *corev1.Service) bool {
		return s.Spec.Type == corev1.ServiceTypeClusterIP && s.Spec.ExternalName == "" && s.Spec.Selector["app"] == "web"
	})
	address := must(netip.ParseAddr(have.Spec.ClusterIP))(t)
	require.True(t, netip.MustParsePrefix(s.milan.Options.ServiceCIDR).Contains(address), "%s is of milan", address)
	require.Equal(t, made.UID, have.UID)
	s.patch(t, "named", `{"spec":{"type":"ExternalName","externalName":"example.com"}}`)
	s.until(t, "named", "a name again", named)
	s.patch(t, "named", `{"spec":{"type":"ClusterIP","externalName":null,"clusterIP":"None"}}`)
	have = s.until(t, "named", "headless", func(s *corev1.Service) bool { return s.Spec.ClusterIP == corev1.ClusterIPNone })
	require.Equal(t, made.UID, have.UID)
}

// secondServiceCIDR is the range of IPv6 Services of a cluster whose IPv4 ones are of that
// range.
func secondServiceCIDR(first string) string {
	return fmt.Sprintf("fd00:%d::/112", netip.MustParsePrefix(first).Addr().As4()[1])
}

// dualStack gives a cluster Services of IPv6 beside those of IPv4.
func dualStack(o *lab.ClusterOptions) {
	o.APIServerArgs = append(o.APIServerArgs, "--service-cluster-ip-range="+o.ServiceCIDR+","+secondServiceCIDR(o.ServiceCIDR))
}

func familiesOf(name string, policy corev1.IPFamilyPolicy, families ...corev1.IPFamily) *corev1.Service {
	return service(name, func(s *corev1.ServiceSpec) { s.IPFamilyPolicy, s.IPFamilies = &policy, families })
}

// ofFamilies tells whether a Service of a provider has those families, in that order, and
// an address of each that is the provider's.
func ofFamilies(provider *site.Site, want ...corev1.IPFamily) func(*corev1.Service) bool {
	ranges := map[corev1.IPFamily]netip.Prefix{
		corev1.IPv4Protocol: netip.MustParsePrefix(provider.Options.ServiceCIDR),
		corev1.IPv6Protocol: netip.MustParsePrefix(secondServiceCIDR(provider.Options.ServiceCIDR)),
	}
	return func(s *corev1.Service) bool {
		if len(s.Spec.IPFamilies) != len(want) || len(s.Spec.ClusterIPs) != len(want) {
			return false
		}
		for i, family := range want {
			address, err := netip.ParseAddr(s.Spec.ClusterIPs[i])
			if err != nil || s.Spec.IPFamilies[i] != family || !ranges[family].Contains(address) {
				return false
			}
		}
		return true
	}
}

// testFamilies: Services have the families in the provider that they have here, of the
// provider's addresses, and get and lose the second one in place.
func testFamilies(t *testing.T, s servicePair) {
	const v4, v6 = corev1.IPv4Protocol, corev1.IPv6Protocol
	for _, c := range []struct {
		service *corev1.Service
		want    []corev1.IPFamily
	}{
		{familiesOf("prefer", corev1.IPFamilyPolicyPreferDualStack), []corev1.IPFamily{v4, v6}},
		{familiesOf("require", corev1.IPFamilyPolicyRequireDualStack), []corev1.IPFamily{v4, v6}},
		{familiesOf("six-first", corev1.IPFamilyPolicyRequireDualStack, v6, v4), []corev1.IPFamily{v6, v4}},
		{familiesOf("six", corev1.IPFamilyPolicySingleStack, v6), []corev1.IPFamily{v6}},
		{familiesOf("changes", corev1.IPFamilyPolicySingleStack), []corev1.IPFamily{v4}},
	} {
		local := s.create(t, c.service)
		require.Equal(t, c.want, local.Spec.IPFamilies)
		have := s.until(t, local.Name, local.Name, ofFamilies(s.milan, c.want...))
		require.Equal(t, local.Spec.IPFamilyPolicy, have.Spec.IPFamilyPolicy)
	}
	made := s.until(t, "changes", "of one family", ofFamilies(s.milan, v4))
	s.patch(t, "changes", `{"spec":{"ipFamilyPolicy":"PreferDualStack"}}`)
	have := s.until(t, "changes", "of both families", ofFamilies(s.milan, v4, v6))
	require.Equal(t, made.UID, have.UID)
	require.Equal(t, made.Spec.ClusterIP, have.Spec.ClusterIP)
	s.patch(t, "changes", `{"spec":{"ipFamilyPolicy":"SingleStack"}}`)
	have = s.until(t, "changes", "of one family again", ofFamilies(s.milan, v4))
	require.Equal(t, made.UID, have.UID)
	require.Equal(t, made.Spec.ClusterIP, have.Spec.ClusterIP)
}

// testSlicesOfSix: endpoints of IPv6 reach the provider, as far as their addresses are
// accepted there.
func testSlicesOfSix(t *testing.T, s servicePair) {
	require.NoError(t, slicesWorld{world: s.world}.setRanges(t.Context(), s.rome.Options.PodCIDR, "2001:db8:100::/64"))

	s.create(t, familiesOf("slices", corev1.IPFamilyPolicyRequireDualStack))
	slices := s.rome.Client().DiscoveryV1().EndpointSlices("service-rows")
	kubetest.Create(t, slices, &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: "slices-byhand", Labels: map[string]string{discoveryv1.LabelServiceName: "slices"}},
		AddressType: discoveryv1.AddressTypeIPv6, Ports: []discoveryv1.EndpointPort{{Port: ptr.To[int32](80)}},
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"2001:db8:100::7"}}, {Addresses: []string{"2001:db8:200::7"}}},
	})
	get := getter(s.milan.Client().DiscoveryV1().EndpointSlices("service-rows-rome"), "slices-byhand")
	only := func(address string) func(*discoveryv1.EndpointSlice) bool {
		return func(s *discoveryv1.EndpointSlice) bool {
			return s.AddressType == discoveryv1.AddressTypeIPv6 && s.Labels[discoveryv1.LabelServiceName] == "slices" &&
				len(s.Endpoints) == 1 && s.Endpoints[0].Addresses[0] == address
		}
	}
	there(t, "the endpoint whose address is accepted", get, only("2001:db8:100::7"))
	kubetest.Patch(t, slices, "slices-byhand", types.MergePatchType, []byte(`{"endpoints":[{"addresses":["2001:db8:100::8"]}]}`))
	there(t, "another endpoint", get, only("2001:db8:100::8"))
	require.NoError(t, slices.Delete(t.Context(), "slices-byhand", metav1.DeleteOptions{}))
	away(t, "deleted", get)
}
