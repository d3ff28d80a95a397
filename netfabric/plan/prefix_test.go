package plan

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
)

func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

func TestMapTranslates(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ own, view, in, out string }{
		"a pod":                 {"10.244.0.0/16", "10.70.0.0/16", "10.244.1.10", "10.70.1.10"},
		"the first address":     {"10.244.0.0/16", "10.70.0.0/16", "10.244.0.0", "10.70.0.0"},
		"the last address":      {"10.244.0.0/16", "10.70.0.0/16", "10.244.255.255", "10.70.255.255"},
		"the range itself":      {"10.244.0.0/16", "10.244.0.0/16", "10.244.1.10", "10.244.1.10"},
		"within a byte":         {"10.64.0.0/11", "172.32.0.0/11", "10.95.1.1", "172.63.1.1"},
		"a bit of a byte":       {"10.0.0.128/25", "192.168.9.0/25", "10.0.0.200", "192.168.9.72"},
		"one address":           {"10.0.0.1/32", "192.168.9.7/32", "10.0.0.1", "192.168.9.7"},
		"all hosts of one byte": {"10.0.0.0/8", "11.0.0.0/8", "10.1.2.3", "11.1.2.3"},
		"IPv6":                  {"fd00:10:244::/48", "fd70::/48", "fd00:10:244:1::10", "fd70:0:0:1::10"},
		"IPv6 within a byte":    {"fd00:0:0:4::/62", "fd70:0:0:8::/62", "fd00:0:0:7::1", "fd70:0:0:b::1"},
		"IPv6 within the host":  {"fd00::100/120", "fd70::200/120", "fd00::1fe", "fd70::2fe"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := Map{Own: prefix(tc.own), View: prefix(tc.view)}
			require.NoError(t, m.Check())
			out, ok := m.Out(addr(tc.in))
			require.True(t, ok)
			require.Equal(t, tc.out, out.String())
			in, ok := m.In(out)
			require.True(t, ok)
			require.Equal(t, tc.in, in.String())
		})
	}
}

func TestMapLeavesOtherAddresses(t *testing.T) {
	t.Parallel()
	m := Map{Own: prefix("10.244.0.0/16"), View: prefix("10.70.0.0/16")}
	v6 := Map{Own: prefix("fd00::/64"), View: prefix("fd70::/64")}
	for name, tc := range map[string]struct {
		m Map
		a netip.Addr
	}{
		"outside":              {m, addr("10.245.0.1")},
		"another family":       {m, addr("fd00::1")},
		"and the other way":    {v6, addr("10.244.0.1")},
		"IPv4 in IPv6":         {m, addr("::ffff:10.244.0.1")},
		"with a zone":          {v6, addr("fd00::1%eth0")},
		"no address":           {m, netip.Addr{}},
		"no map":               {Map{}, addr("10.244.0.1")},
		"of different lengths": {Map{Own: prefix("10.244.0.0/16"), View: prefix("10.70.0.0/24")}, addr("10.244.0.1")},
		"of both families":     {Map{Own: prefix("10.244.0.0/16"), View: prefix("fd70::/16")}, addr("10.244.0.1")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, ok := tc.m.Out(tc.a)
			require.False(t, ok)
			_, ok = tc.m.In(tc.a)
			require.False(t, ok)
		})
	}
}

func TestMapCheck(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		own, view netip.Prefix
		want      string // part of the message; empty: accepted
	}{
		"two ranges":           {own: prefix("10.244.0.0/16"), view: prefix("10.70.0.0/16")},
		"the same":             {own: prefix("10.244.0.0/16"), view: prefix("10.244.0.0/16")},
		"IPv6":                 {own: prefix("fd00::/56"), view: prefix("2001:db8::/56")},
		"no range":             {view: prefix("10.70.0.0/16"), want: "not a prefix"},
		"no view":              {own: prefix("10.70.0.0/16"), want: "not a prefix"},
		"of different lengths": {own: prefix("10.244.0.0/16"), view: prefix("10.70.0.0/17"), want: "different lengths"},
		"of both families":     {own: prefix("10.244.0.0/16"), view: prefix("fd00::/16"), want: "different IP versions"},
		"with host bits":       {own: prefix("10.244.1.0/16"), view: prefix("10.70.0.0/16"), want: "write 10.244.0.0/16"},
		"view with host bits":  {own: prefix("10.244.0.0/16"), view: prefix("10.70.0.1/16"), want: "write 10.70.0.0/16"},
		"everything":           {own: prefix("0.0.0.0/0"), view: prefix("0.0.0.0/0"), want: "wider than /8"},
		"all of IPv6":          {own: prefix("fc00::/7"), view: prefix("fc00::/7"), want: "wider than /16"},
		"IPv4 in IPv6":         {own: prefix("::ffff:10.0.0.0/112"), view: prefix("fd00::/112"), want: "written as IPv6"},
		"multicast":            {own: prefix("10.0.0.0/8"), view: prefix("224.0.0.0/8"), want: "no host"},
		"loopback":             {own: prefix("127.1.0.0/16"), view: prefix("10.1.0.0/16"), want: "no host"},
		"link-local":           {own: prefix("169.254.169.0/24"), view: prefix("10.1.0.0/24"), want: "no host"},
		"IPv6 link-local":      {own: prefix("fe80::/64"), view: prefix("fd00::/64"), want: "no host"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := Map{Own: tc.own, View: tc.view}.Check()
			if tc.want == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, tc.want)
			}
		})
	}
}

func TestMaps(t *testing.T) {
	t.Parallel()
	m := Maps{
		{prefix("10.244.0.0/16"), prefix("10.70.0.0/16")},
		{prefix("10.71.0.0/24"), prefix("10.72.5.0/24")},
		{prefix("fd00::/64"), prefix("fd70::/64")},
	}
	for in, want := range map[string]string{"10.244.9.9": "10.70.9.9", "10.71.0.3": "10.72.5.3", "fd00::3": "fd70::3"} {
		out, ok := m.Out(addr(in))
		require.True(t, ok, in)
		require.Equal(t, want, out.String())
		back, ok := m.In(out)
		require.True(t, ok, in)
		require.Equal(t, in, back.String())
	}
	_, ok := m.Out(addr("10.72.5.3"))
	require.False(t, ok)
	_, ok = m.In(addr("10.244.9.9"))
	require.False(t, ok)
}

func FuzzMap(f *testing.F) {
	for _, seed := range []struct{ a, own, view string }{
		{"10.244.1.10", "10.244.0.0", "10.70.0.0"},
		{"10.95.1.1", "10.64.0.0", "172.32.0.0"},
		{"fd00:10:244:1::10", "fd00:10:244::", "fd70::"},
	} {
		f.Add(addr(seed.a).AsSlice(), addr(seed.own).AsSlice(), addr(seed.view).AsSlice(), 13)
	}
	f.Fuzz(func(t *testing.T, a, own, view []byte, bits int) {
		x, _ := netip.AddrFromSlice(a)
		o, _ := netip.AddrFromSlice(own)
		v, _ := netip.AddrFromSlice(view)
		m := Map{netip.PrefixFrom(o, bits).Masked(), netip.PrefixFrom(v, bits).Masked()}
		out, ok := m.Out(x)
		if m.Check() == nil && ok != m.Own.Contains(x) {
			t.Fatalf("%v: Out(%s) is %t", m, x, ok)
		}
		if !ok {
			return
		}
		if !m.View.Contains(out) {
			t.Fatalf("%v: Out(%s) = %s is outside of the view", m, x, out)
		}
		if in, ok := m.In(out); !ok || in != x {
			t.Fatalf("%v: In(Out(%s)) = %s", m, x, in)
		}
	})
}
