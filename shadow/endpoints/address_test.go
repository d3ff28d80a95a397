package endpoints

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	discoveryv1 "k8s.io/api/discovery/v1"

	ipamv1alpha1 "github.com/liqod/liqod/api/ipam/v1alpha1"
)

func TestTranslate(t *testing.T) {
	everything := []string{"0.0.0.0/0", "::/0"}
	for name, tc := range map[string]struct {
		text    string
		family  discoveryv1.AddressType
		ranges  []string
		mod     func(*addressRules)
		want    string
		refused string
	}{
		"in a range":                      {text: "10.100.1.5", want: "10.100.1.5"},
		"in the second range":             {text: "10.9.0.1", ranges: []string{"10.100.0.0/16", "10.9.0.0/24"}, want: "10.9.0.1"},
		"outside":                         {text: "10.9.0.1", refused: "10.9.0.1 is not in spec.addressRanges of ForeignCluster rome (10.100.0.0/16)"},
		"no ForeignCluster":               {text: "10.100.1.5", mod: func(r *addressRules) { r.problem = "none" }, refused: "none"},
		"metadata service":                {text: "169.254.169.254", ranges: everything, refused: "169.254.169.254 is in 169.254.0.0/16: link-local addresses"},
		"NAT64":                           {text: "64:ff9b::a9fe:a9fe", family: discoveryv1.AddressTypeIPv6, ranges: everything, refused: "64:ff9b::a9fe:a9fe is in 64:ff9b::/96: IPv4 addresses behind a NAT64"},
		"a node's":                        {text: "10.100.200.1", refused: "10.100.200.1 is the address of a node of this cluster"},
		"IPv6":                            {text: "2001:db8:0:0::5", family: discoveryv1.AddressTypeIPv6, ranges: []string{"2001:db8::/64"}, want: "2001:db8::5"},
		"IPv6 among IPv4":                 {text: "2001:db8::5", ranges: everything, refused: `"2001:db8::5" is not an address of type IPv4`},
		"IPv4 among IPv6":                 {text: "10.100.1.5", family: discoveryv1.AddressTypeIPv6, refused: `"10.100.1.5" is not an address of type IPv6`},
		"IPv4 dressed up":                 {text: "::ffff:169.254.169.254", family: discoveryv1.AddressTypeIPv6, ranges: everything, refused: `"::ffff:169.254.169.254" is not an address of type IPv6`},
		"with a zone":                     {text: "fe80::1%eth0", family: discoveryv1.AddressTypeIPv6, ranges: everything, refused: `"fe80::1%eth0" is not an address of type IPv6`},
		"leading zeros":                   {text: "010.100.001.005", refused: `"010.100.001.005" is not an address of type IPv4`},
		"a name":                          {text: "evil.example.com", refused: `"evil.example.com" is not an address of type IPv4`},
		"translated":                      {text: "10.100.1.5", mod: func(r *addressRules) { r.remap = shifted{} }, want: "10.77.1.5"},
		"not reached":                     {text: "10.9.0.1", ranges: everything, mod: func(r *addressRules) { r.remap = shifted{} }, refused: "10.9.0.1 has no address in this cluster"},
		"a node's number in the consumer": {text: "10.100.200.1", mod: func(r *addressRules) { r.remap = shifted{} }, want: "10.77.200.1"},
		"a node's once translated": {text: "10.100.3.1", mod: func(r *addressRules) {
			r.remap, r.node = shifted{}, func(a netip.Addr) bool { return a == netip.MustParseAddr("10.77.3.1") }
		}, refused: "10.100.3.1 is the address of a node of this cluster"},
	} {
		t.Run(name, func(t *testing.T) {
			r := testRules(tc.ranges...)
			if tc.mod != nil {
				tc.mod(&r)
			}
			if tc.family == "" {
				tc.family = discoveryv1.AddressTypeIPv4
			}
			address, refused := r.translate(tc.text, tc.family)
			require.Equal(t, tc.refused, refused)
			require.Equal(t, tc.want, address)
		})
	}
}

// FuzzTranslate: an address that is accepted is in a range of the peer, is none of those
// that no pod has, and no node's.
func FuzzTranslate(f *testing.F) {
	for _, text := range []string{"10.100.1.5", "10.100.200.1", "169.254.169.254", "::ffff:10.100.1.5", "64:ff9b::1", "fe80::1%eth0", "2001:db8::5", "010.100.1.5", "evil.example.com"} {
		f.Add(text, true, true)
		f.Add(text, false, false)
	}
	f.Fuzz(func(t *testing.T, text string, v4, translated bool) {
		family := discoveryv1.AddressTypeIPv6
		if v4 {
			family = discoveryv1.AddressTypeIPv4
		}
		r := testRules("10.96.0.0/11", "2000::/3", "64:ff9b::/96", "169.254.0.0/16")
		if translated {
			r.remap = shifted{}
		}
		here, refused := r.translate(text, family)
		require.NotEqual(t, here == "", refused == "", "%q: %q, %q", text, here, refused)
		require.Less(t, len(refused), 1024)
		if refused != "" {
			return
		}
		there, addr := netip.MustParseAddr(text), netip.MustParseAddr(here)
		require.True(t, slices.ContainsFunc(r.ranges, func(p netip.Prefix) bool { return p.Contains(there) }))
		require.Equal(t, v4, addr.Is4())
		for _, a := range []netip.Addr{there, addr} {
			require.Empty(t, ipamv1alpha1.SpecialAddress(a))
		}
		require.False(t, r.node(addr))
	})
}
