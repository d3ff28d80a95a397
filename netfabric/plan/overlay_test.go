package plan

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestHardwareAddresses(t *testing.T) {
	t.Parallel()
	for a, want := range map[string]struct{ mac, linkLocal string }{
		"192.168.0.11":    {"02:fa:c0:a8:00:0b", "fe80::fa:c0ff:fea8:b"},
		"10.0.0.1":        {"02:fa:0a:00:00:01", "fe80::fa:aff:fe00:1"},
		"255.255.255.255": {"02:fa:ff:ff:ff:ff", "fe80::fa:ffff:feff:ffff"},
		"fd00:1::11":      {"02:6b:46:7d:bb:0d", "fe80::6b:46ff:fe7d:bb0d"},
	} {
		mac := macOf(addr(a))
		require.Equal(t, want.mac, mac.String())
		require.Equal(t, want.linkLocal, linkLocal(mac).String())
		require.Equal(t, byte(0x02), mac[0], "locally administered, of one host")
		require.True(t, linkLocal(mac).IsLinkLocalUnicast())
		require.Equal(t, mac, macOf(addr(a)), "the same at both ends")
	}
}

func TestHardwareAddressesDiffer(t *testing.T) {
	t.Parallel()
	seen := map[MAC]netip.Addr{}
	for _, first := range []string{"10.0.0.0", "192.168.0.0", "fd00:1::", "fd00:1:0:1::", "2001:db8::"} {
		a := addr(first)
		for range 3000 {
			other, twice := seen[macOf(a)]
			require.False(t, twice, "%s and %s", other, a)
			seen[macOf(a)] = a
			a = a.Next()
		}
	}
}

func TestNextHops(t *testing.T) {
	t.Parallel()
	both := addrs("192.168.0.11", "fd00:1::11")
	four, six := addrs("192.168.0.11"), addrs("fd00:1::11")
	over4 := overlay{in: Input{Gateways: []Replica{{Addrs: both}}}}
	over6 := overlay{in: Input{Gateways: []Replica{{Addrs: six}}}}
	for name, tc := range map[string]struct {
		o     overlay
		addrs []netip.Addr
		f     Family
		want  netip.Addr
	}{
		"IPv4":                              {over4, four, V4, addr("192.168.0.11")},
		"IPv4 of both":                      {over4, both, V4, addr("192.168.0.11")},
		"IPv6 of both":                      {over4, both, V6, linkLocal(macOf(addr("192.168.0.11")))},
		"IPv6, of a host without":           {over4, four, V6, linkLocal(macOf(addr("192.168.0.11")))},
		"IPv6 over IPv6":                    {over6, six, V6, linkLocal(macOf(addr("fd00:1::11")))},
		"IPv4 over IPv6":                    {over6, both, V4, addr("192.168.0.11")},
		"IPv4 over IPv6, of a host without": {over6, six, V4, linkLocal(macOf(addr("fd00:1::11")))},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, tc.want, tc.o.hop(tc.addrs, tc.f))
		})
	}
}
