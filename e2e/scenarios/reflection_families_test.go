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
	"k8s.io/utils/ptr"

	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/e2e/site"
	"github.com/liqod/liqod/kube/kubetest"
)

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
