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

func TestRulesForEachFamily(t *testing.T) {
	t.Parallel()
	got := each(
		Match{In: TunnelDevice, Set: Lookup{Name: "pairs", Key: SrcDst, Not: true}, Do: Drop},
		Match{Do: DNAT, Map: Lookup{Name: "hosts", Key: Dst}},
	)
	require.Equal(t, []Match{
		{In: TunnelDevice, Family: V4, Set: Lookup{Name: "pairs4", Key: SrcDst, Not: true}, Do: Drop},
		{In: TunnelDevice, Family: V6, Set: Lookup{Name: "pairs6", Key: SrcDst, Not: true}, Do: Drop},
		{Family: V4, Do: DNAT, Map: Lookup{Name: "hosts4", Key: Dst}},
		{Family: V6, Do: DNAT, Map: Lookup{Name: "hosts6", Key: Dst}},
	}, got)
}

func TestElementsAreOfOneFamily(t *testing.T) {
	t.Parallel()
	var e elements
	e.set("a", prefix("10.0.0.0/8"))
	e.set("a", prefix("fd00::/16"))
	e.pair("b", prefix("10.0.0.0/8"), prefix("11.0.0.0/8"))
	e.pair("b", prefix("10.0.0.0/8"), prefix("fd00::/16"))
	e.to("c", prefix("fd00::/16"), prefix("fd01::/16"))
	e.to("c", prefix("fd00::/16"), prefix("10.0.0.0/8"))
	e.pairTo("d", prefix("fd00::/16"), prefix("fd01::/16"), prefix("10.0.0.0/8"))
	e.pairTo("d", prefix("fd00::/16"), prefix("fd01::/16"), prefix("fd02::/16"))
	require.Equal(t, elements{
		{Set: "a4", A: prefix("10.0.0.0/8")},
		{Set: "a6", A: prefix("fd00::/16")},
		{Set: "b4", A: prefix("10.0.0.0/8"), B: prefix("11.0.0.0/8")},
		{Set: "c6", A: prefix("fd00::/16"), Value: prefix("fd01::/16")},
		{Set: "d6", A: prefix("fd00::/16"), B: prefix("fd01::/16"), Value: prefix("fd02::/16")},
	}, e)
}
