package kernel

import (
	"net/netip"
	"testing"

	"github.com/google/nftables"
	"github.com/stretchr/testify/require"

	"github.com/liqod/liqod/netfabric/plan"
)

func TestBetween(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ first, last, want string }{
		"all":              {"0.0.0.0", "255.255.255.255", "0.0.0.0/0"},
		"a network":        {"10.64.0.0", "10.127.255.255", "10.64.0.0/10"},
		"one":              {"10.1.2.3", "10.1.2.3", "10.1.2.3/32"},
		"IPv6":             {"fd00::", "fd00::ffff", "fd00::/112"},
		"not aligned":      {"10.0.0.1", "10.0.0.2", ""},
		"one short of two": {"10.0.0.0", "10.0.0.2", ""},
		"backward":         {"10.0.0.1", "10.0.0.0", ""},
	} {
		got, ok := between(addr(tc.first).AsSlice(), addr(tc.last).AsSlice())
		require.Equal(t, tc.want != "", ok, name)
		if ok {
			require.Equal(t, tc.want, got.String(), name)
		}
	}
}

// The kernel gives back the elements of a set in no order that a reader may rely on.
func TestNeighbouringElements(t *testing.T) {
	t.Parallel()
	set := plan.Set{Name: "s", Family: plan.V4, Keys: 1}
	want := []plan.Element{
		{Set: "s", A: prefix("0.0.0.0/24")},
		{Set: "s", A: prefix("10.0.0.0/24")},
		{Set: "s", A: prefix("10.0.1.0/24")},
		{Set: "s", A: prefix("10.0.3.0/24")},
		{Set: "s", A: prefix("255.0.0.0/8")},
	}
	var raw []nftables.SetElement
	for _, e := range want {
		raw = append(encode(e, set.Value), raw...)
	}
	var got []plan.Element
	for _, r := range closed(raw) {
		e, ok := decode(r, newSet(table("t"), set))
		require.True(t, ok)
		got = append(got, e)
	}
	require.ElementsMatch(t, want, got)
}

func TestElementsWithAPort(t *testing.T) {
	t.Parallel()
	for family, e := range map[plan.Family]plan.Element{
		plan.V4: {Set: "s", A: prefix("10.200.0.0/16"), B: prefix("192.0.2.1/32"), Service: plan.Service{Proto: "tcp", Port: 6443}},
		plan.V6: {Set: "s", A: prefix("fd00:aa::/56"), B: prefix("fd00:1::1/128"), Service: plan.Service{Proto: "udp", Port: 53}},
	} {
		set := plan.Set{Name: "s", Family: family, Keys: 4}
		raw := encode(e, set.Value)
		require.Len(t, raw, 1)
		got, ok := decode(raw[0], newSet(table("t"), set))
		require.True(t, ok)
		require.Equal(t, e, got)
		require.EqualValues(t, newSet(table("t"), set).KeyType.Bytes, len(raw[0].Key))
	}
}

// What decode cannot read is not of a plan's making.
func TestElementsOfOthers(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		set plan.Set
		raw nftables.SetElement
	}{
		"a range that is no prefix": {plan.Set{Family: plan.V4, Keys: 1}, nftables.SetElement{Key: []byte{10, 0, 0, 1}, KeyEnd: []byte{10, 0, 0, 2}}},
		"a port":                    {plan.Set{Family: plan.V4, Keys: 1}, nftables.SetElement{Key: []byte{0, 1}, KeyEnd: []byte{0, 1}}},
		"no end":                    {plan.Set{Family: plan.V4, Keys: 2}, nftables.SetElement{Key: make([]byte, 8)}},
		"a range of ports": {
			plan.Set{Family: plan.V4, Keys: 4},
			nftables.SetElement{Key: []byte{10, 0, 0, 1, 10, 0, 0, 2, 6, 0, 0, 0, 0, 80, 0, 0}, KeyEnd: []byte{10, 0, 0, 1, 10, 0, 0, 2, 6, 0, 0, 0, 0, 81, 0, 0}},
		},
		"another protocol": {
			plan.Set{Family: plan.V4, Keys: 4},
			nftables.SetElement{Key: []byte{10, 0, 0, 1, 10, 0, 0, 2, 1, 0, 0, 0, 0, 80, 0, 0}, KeyEnd: []byte{10, 0, 0, 1, 10, 0, 0, 2, 1, 0, 0, 0, 0, 80, 0, 0}},
		},
		"a value that is no prefix": {
			plan.Set{Family: plan.V4, Keys: 1, Value: plan.Prefix},
			nftables.SetElement{Key: make([]byte, 4), KeyEnd: make([]byte, 4), Val: []byte{10, 0, 0, 1, 10, 0, 0, 2}},
		},
		"no value": {plan.Set{Family: plan.V4, Keys: 1, Value: plan.Address}, nftables.SetElement{Key: make([]byte, 4), KeyEnd: make([]byte, 4)}},
	} {
		_, ok := decode(tc.raw, newSet(table("t"), tc.set))
		require.False(t, ok, name)
	}
}

func FuzzElements(f *testing.F) {
	f.Add([]byte{10, 0, 0, 0}, []byte{10, 1, 0, 0}, []byte{10, 2, 0, 0}, 16)
	f.Add(addr("fd00::").AsSlice(), addr("fd01::").AsSlice(), addr("fd02::").AsSlice(), 48)
	f.Fuzz(func(t *testing.T, a, b, v []byte, bits int) {
		var e plan.Element
		for p, bytes := range map[*netip.Prefix][]byte{&e.A: a, &e.B: b, &e.Value: v} {
			x, ok := netip.AddrFromSlice(bytes)
			if !ok || len(bytes) != len(a) || bits < 0 || bits > x.BitLen() {
				return
			}
			*p = netip.PrefixFrom(x, bits).Masked()
		}
		set := plan.Set{Name: "s", Family: plan.V4, Keys: 2, Value: plan.Prefix}
		if e.A.Addr().Is6() {
			set.Family = plan.V6
		}
		e.Set = set.Name
		got, ok := decode(encode(e, set.Value)[0], newSet(table("t"), set))
		require.True(t, ok)
		require.Equal(t, e, got)
	})
}
