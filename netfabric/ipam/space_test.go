package ipam

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	ipamv1alpha1 "github.com/liqod/liqod/api/ipam/v1alpha1"
	"github.com/liqod/liqod/netfabric/plan"
)

func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }

func ranges(texts ...string) (out []netip.Prefix) {
	for _, t := range texts {
		out = append(out, prefix(t))
	}
	return out
}

func space(t testing.TB, cfg Config) *Space {
	t.Helper()
	s, err := New(cfg)
	require.NoError(t, err)
	return s
}

// usual is what a cluster with a pod range has by default.
func usual(t testing.TB) *Space {
	return space(t, Config{
		Setting: "pools", Pools: ranges("10.80.0.0/14", "fd6c:6971:6f00::/47"), Keep: ranges("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7"),
		Reserved: []ipamv1alpha1.NamedRange{{Prefix: prefix("10.244.0.0/16"), Name: "a pod range of this cluster"}, {Prefix: prefix("10.96.0.0/12"), Name: "a service range of this cluster"}, {Prefix: prefix("fd00:10:244::/48"), Name: "a pod range of this cluster"}},
	})
}

func record(t testing.TB, given ...string) Record {
	t.Helper()
	var list []Allocation
	for i, g := range given {
		list = append(list, Allocation{Owner: fmt.Sprintf("owner-%d", i), For: prefix(g), Given: prefix(g)})
	}
	r, err := NewRecord(list)
	require.NoError(t, err)
	return r
}

func TestNetworks(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		given []string
		ask   string
		exact bool
		want  string // a range
		fails Reason
		says  string
	}{
		"the same range":                  {ask: "10.42.0.0/16", want: "10.42.0.0/16"},
		"the same IPv6 range":             {ask: "fd00:43::/48", want: "fd00:43::/48"},
		"our own":                         {ask: "10.244.0.0/16", want: "10.80.0.0/16"},
		"our own IPv6 range":              {ask: "fd00:10:244::/48", want: "fd6c:6971:6f00::/48"},
		"a part of our own":               {ask: "10.244.7.0/24", want: "10.80.0.0/24"},
		"more than our own":               {ask: "10.244.0.0/15", want: "10.80.0.0/15"},
		"given to another":                {given: []string{"10.42.0.0/16"}, ask: "10.42.0.0/16", want: "10.80.0.0/16"},
		"a part is given to another":      {given: []string{"10.42.7.0/24"}, ask: "10.42.0.0/16", want: "10.80.0.0/16"},
		"the first is taken":              {given: []string{"10.80.0.0/16"}, ask: "10.244.0.0/16", want: "10.81.0.0/16"},
		"a part of the first is taken":    {given: []string{"10.80.255.255/32"}, ask: "10.244.0.0/16", want: "10.81.0.0/16"},
		"a gap":                           {given: []string{"10.80.0.0/16", "10.82.0.0/16"}, ask: "10.244.0.0/16", want: "10.81.0.0/16"},
		"a gap that is too small":         {given: []string{"10.80.0.0/16"}, ask: "10.244.0.0/15", want: "10.82.0.0/15"},
		"larger than what is taken":       {given: []string{"10.80.0.0/24", "10.81.0.0/24"}, ask: "10.244.0.0/16", want: "10.82.0.0/16"},
		"the last":                        {given: []string{"10.80.0.0/15", "10.82.0.0/16"}, ask: "10.244.0.0/16", want: "10.83.0.0/16"},
		"public addresses":                {ask: "8.8.8.0/24", want: "10.80.0.0/24"},
		"public IPv6 addresses":           {ask: "2001:db8::/48", want: "fd6c:6971:6f00::/48"},
		"with a metadata service":         {ask: "100.100.0.0/16", want: "10.80.0.0/16"},
		"metadata of AWS":                 {ask: "fd00:ec2::/48", want: "fd6c:6971:6f00::/48"},
		"exactly, and it is free":         {ask: "10.42.0.0/16", exact: true, want: "10.42.0.0/16"},
		"exactly, and public":             {ask: "203.0.113.0/24", exact: true, want: "203.0.113.0/24"},
		"exactly, and ours":               {ask: "10.244.0.0/16", exact: true, fails: Overlaps, says: "10.244.0.0/16 is not free, and no other range is accepted: it overlaps 10.244.0.0/16, a pod range of this cluster"},
		"exactly, and given":              {given: []string{"10.42.0.0/24"}, ask: "10.42.0.0/16", exact: true, fails: Overlaps, says: "it overlaps 10.42.0.0/24, which another claim has"},
		"nothing is left":                 {given: []string{"10.80.0.0/14"}, ask: "10.244.0.0/16", fails: Exhausted, says: "no range of size /16 is free for 10.244.0.0/16 in 10.80.0.0/14: add a range to pools, or delete claims that are not needed; N clusters that all offload namespaces to each other need Nx(N-1) ranges in each of them"},
		"larger than the pools":           {ask: "10.0.0.0/8", fails: Exhausted, says: "/8"},
		"nothing of that size is left":    {given: []string{"10.80.0.0/24", "10.81.0.0/24", "10.82.0.0/24", "10.83.0.0/24"}, ask: "10.244.0.0/16", fails: Exhausted},
		"no IPv6 range is left":           {given: []string{"fd6c:6971:6f00::/48", "fd6c:6971:6f01::/48"}, ask: "2001:db8::/48", fails: Exhausted},
		"loopback":                        {ask: "127.0.0.0/16", fails: Invalid, says: "it has addresses of 127.0.0.0/8, loopback addresses"},
		"link-local":                      {ask: "169.254.0.0/16", exact: true, fails: Invalid},
		"half of all":                     {ask: "0.0.0.0/1", fails: Invalid},
		"multicast":                       {ask: "ff02::/16", fails: Invalid},
		"what was given to the same size": {given: []string{"10.80.0.0/32"}, ask: "10.244.1.7/32", want: "10.80.0.1/32"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			have := record(t, tc.given...)
			a, next, err := usual(t).Take(have, Request{Owner: "new", For: prefix(tc.ask), Exact: tc.exact})
			if tc.fails != "" {
				requireReason(t, err, tc.fails, tc.says)
				require.Equal(t, have, next)
				return
			}
			require.NoError(t, err)
			require.Equal(t, Allocation{Owner: "new", For: prefix(tc.ask), Given: prefix(tc.want)}, a)
			require.Equal(t, have.Len()+1, next.Len())
			again, same, err := usual(t).Take(next, Request{Owner: "new", For: prefix(tc.ask), Exact: tc.exact})
			require.NoError(t, err)
			require.Equal(t, a, again, "the same owner has the same")
			require.Equal(t, next, same)
			released, ok := next.Without("new")
			require.True(t, ok)
			require.ElementsMatch(t, have.Allocations(), released.Allocations())
		})
	}
}

// TestGroups: a peer names many or large ranges.
func TestGroups(t *testing.T) {
	t.Parallel()
	s := space(t, Config{Setting: "pools", Pools: ranges("10.80.0.0/14", "fd6c::/40"), Keep: ranges("10.0.0.0/9", "192.168.0.0/16")})
	of := func(owner, group, p string) Request { return Request{Owner: owner, Group: group, For: prefix(p)} }
	give := func(r Record, req Request, want string) Record {
		t.Helper()
		a, r, err := s.Take(r, req)
		require.NoError(t, err)
		require.Equal(t, want, a.Given.String())
		return r
	}
	r := give(Record{}, of("a", "milan", "172.16.0.0/16"), "10.80.0.0/16")
	r = give(r, of("b", "milan", "10.83.0.0/16"), "10.83.0.0/16")
	_, _, err := s.Take(r, of("c", "milan", "172.18.0.0/16"))
	requireReason(t, err, Exhausted, "nothing more is given to milan, for 172.18.0.0/16: its claims get at most a half of what others leave of each range of pools: add a range to pools")
	_, _, err = s.Take(r, of("c", "milan", "10.81.0.0/24"))
	requireReason(t, err, Exhausted, "nothing more is given to milan")
	r = give(r, of("c", "milan", "192.168.0.0/17"), "192.168.0.0/17")
	r = give(r, of("d", "turin", "172.18.0.0/16"), "10.81.0.0/16")
	r = give(r, of("e", "milan", "2001:db8::/42"), "fd6c::/42")
	for _, large := range []string{"10.64.0.0/10", "172.16.0.0/15", "172.16.0.0/12"} {
		_, _, err = s.Take(Record{}, of("f", "milan", large))
		requireReason(t, err, Exhausted, large+" is too large: a claim gets at most a quarter of a range of pools, so ranges of size /16 and smaller are accepted: add a larger range to pools")
	}
	_, _, err = s.Take(r, of("f", "turin", "2001:db8::/41"))
	requireReason(t, err, Exhausted, "/42 and smaller")
	exact := of("g", "milan", "10.82.0.0/16")
	exact.Exact = true
	give(r, exact, "10.82.0.0/16")
	give(r, of("g", "", "172.18.0.0/16"), "10.82.0.0/16")
}

// TestGroupsInLeague: peers that take all they get leave ranges to those that come later. Eight peers with
// two ranges of the usual size, and four that all offload to each other, notice nothing.
func TestGroupsInLeague(t *testing.T) {
	t.Parallel()
	s := space(t, Config{Setting: "pools", Pools: ranges("10.80.0.0/12")})
	take := func(r Record, peers, each int) (Record, []int) {
		var got []int
		for peer := range peers {
			had := 0
			for i := range each {
				a, next, err := s.Take(r, Request{Owner: fmt.Sprint(peer, "-", i), Group: fmt.Sprint("peer-", peer), For: prefix("172.16.0.0/16")})
				if err == nil && a.Given.IsValid() {
					r, had = next, had+1
				}
			}
			got = append(got, had)
		}
		return r, got
	}
	_, greedy := take(Record{}, 4, 16)
	require.Equal(t, []int{8, 4, 2, 2}, greedy)
	_, spokes := take(Record{}, 8, 2)
	require.Equal(t, []int{2, 2, 2, 2, 2, 2, 2, 2}, spokes)
	_, mesh := take(Record{}, 3, 4)
	require.Equal(t, []int{4, 4, 4}, mesh)
}

func requireReason(t *testing.T, err error, want Reason, says string) {
	t.Helper()
	var problem *Error
	require.True(t, errors.As(err, &problem), "%v", err)
	require.Equal(t, want, problem.Reason, problem.Message)
	require.ErrorContains(t, err, says)
}

func TestBadRequests(t *testing.T) {
	t.Parallel()
	s, r := usual(t), record(t)
	for name, req := range map[string]Request{
		"nothing":        {Owner: "a"},
		"no owner":       {For: prefix("10.42.0.0/16")},
		"host bits":      {Owner: "a", For: prefix("10.42.0.1/16")},
		"everything":     {Owner: "a", For: prefix("0.0.0.0/0")},
		"everything, v6": {Owner: "a", For: prefix("::/0")},
		"mapped":         {Owner: "a", For: prefix("::ffff:10.42.0.0/112")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, _, err := s.Take(r, req)
			requireReason(t, err, Invalid, "")
		})
	}
	a, r, err := s.Take(r, Request{Owner: "a", For: prefix("10.42.0.0/16")})
	require.NoError(t, err)
	_, next, err := s.Take(r, Request{Owner: "a", For: prefix("10.43.0.0/16")})
	requireReason(t, err, Invalid, "10.42.0.0/16 was given for 10.42.0.0/16, and 10.43.0.0/16 is asked for now")
	require.Equal(t, []Allocation{a}, next.Allocations())
}

func TestBadSpaces(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]Config{
		"a pool with host bits": {Pools: ranges("10.80.0.1/16")},
		"a pool of everything":  {Pools: ranges("0.0.0.0/0")},
		"no range is kept":      {Keep: []netip.Prefix{{}}},
		"no range is reserved":  {Reserved: []ipamv1alpha1.NamedRange{{Name: "x"}}},
		"no range is refused":   {Refused: []ipamv1alpha1.NamedRange{{Name: "x"}}},
	} {
		_, err := New(cfg)
		require.ErrorContains(t, err, "is not a range without host bits", name)
	}
	for _, small := range []string{"10.70.0.0/28", "10.70.0.7/32", "fd70::/124", "10.70.0.1/16", "127.0.0.0/16", "10.0.0.0/7"} {
		_, err := External(ranges(small), "external")
		require.ErrorContains(t, err, small)
	}
}

func TestPools(t *testing.T) {
	t.Parallel()
	s := space(t, Config{Pools: ranges("192.168.0.0/23", "10.0.0.0/23"), Most: 4})
	r := record(t)
	for i, want := range []string{"192.168.0.0/24", "192.168.1.0/24", "10.0.0.0/24", "10.0.1.0/24"} {
		a, next, err := s.Take(r, Request{Owner: fmt.Sprint(i), For: prefix("10.42.0.0/24")})
		require.NoError(t, err)
		require.Equal(t, prefix(want), a.Given, "in the order of the pools")
		pool, ok := s.Pool(a.Given)
		require.True(t, ok && pool.Overlaps(a.Given))
		r = next
	}
	_, _, err := s.Take(r, Request{Owner: "another", For: prefix("10.42.0.0/24")})
	requireReason(t, err, Exhausted, "4 allocations exist, as many as are kept")
	_, ok := s.Pool(prefix("10.0.0.0/22"))
	require.False(t, ok)

	_, _, err = space(t, Config{Setting: "pools", Pools: ranges("10.80.0.0/16")}).Take(Record{}, Request{Owner: "a", For: prefix("fd00::/48")})
	requireReason(t, err, Exhausted, "pools has no IPv6 range; add one")

	// At the very end of a family.
	s = space(t, Config{Pools: ranges("ffff::/16"), Reserved: nil})
	_, _, err = s.Take(Record{}, Request{Owner: "a", For: prefix("2001:db8::/32")})
	requireReason(t, err, Exhausted, "ffff::/16")
}

func TestAddresses(t *testing.T) {
	t.Parallel()
	cfg, err := External(ranges("10.70.0.0/27", "fd70::/123"), "external")
	require.NoError(t, err)
	cfg.Refused = append(cfg.Refused, ipamv1alpha1.NamedRange{Prefix: prefix("10.244.0.0/16"), Name: "a pod range of this cluster"})
	s := space(t, cfg)

	take := func(r Record, addr string) (string, Record, error) {
		a, next, err := s.Take(r, Request{Owner: addr, For: plan.Single(netip.MustParseAddr(addr))})
		if err != nil {
			return "", next, err
		}
		return a.Given.String(), next, nil
	}
	var r Record
	for i := plan.ReservedAddresses; i < 31; i++ { // the last is no host's
		var have string
		have, r, err = take(r, fmt.Sprintf("192.0.2.%d", i))
		require.NoError(t, err)
		require.Equal(t, fmt.Sprintf("10.70.0.%d/32", i), have, "the first are the gateways'")
	}
	_, _, err = take(r, "192.0.2.99")
	requireReason(t, err, Exhausted, "no address is free for 192.0.2.99 in 10.70.0.0/27")
	r, ok := r.Without("192.0.2.18")
	require.True(t, ok)
	have, r, err := take(r, "192.0.2.99")
	require.NoError(t, err)
	require.Equal(t, "10.70.0.18/32", have)

	for i := plan.ReservedAddresses; i < 32; i++ {
		have, r, err = take(r, fmt.Sprintf("2001:db8::%d", i))
		require.NoError(t, err)
		require.Equal(t, fmt.Sprintf("fd70::%x/128", i), have)
	}
	_, _, err = take(r, "2001:db8::99")
	requireReason(t, err, Exhausted, "fd70::/123")

	for addr, says := range map[string]string{
		"10.70.0.3":       "10.70.0.0/27, an external range of this cluster",
		"fd70::2":         "an external range",
		"10.244.7.7":      "10.244.0.0/16, a pod range of this cluster",
		"127.0.0.1":       "loopback",
		"169.254.169.254": "link-local",
		"::1":             "loopback",
		"fe80::1":         "link-local",
		"100.100.100.200": "a metadata service of a cloud",
		"fd00:ec2::254":   "a metadata service of a cloud",
	} {
		_, _, err = take(r, addr)
		requireReason(t, err, Invalid, says)
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	a := Allocation{Owner: "a", For: prefix("10.42.0.0/16"), Given: prefix("10.80.0.0/16")}
	require.NoError(t, usual(t).Check(a))
	s := space(t, Config{Reserved: []ipamv1alpha1.NamedRange{{Prefix: prefix("10.80.7.0/24"), Name: "reserved by the configuration"}}})
	requireReason(t, s.Check(a), Overlaps, "10.80.0.0/16 was given, but overlaps 10.80.7.0/24, reserved by the configuration, now")
	// What it has already is still the answer: the caller decides what becomes of it.
	r, err := Record{}.With(a)
	require.NoError(t, err)
	again, _, err := s.Take(r, Request{Owner: "a", For: a.For})
	require.NoError(t, err)
	require.Equal(t, a, again)
}

func TestRecords(t *testing.T) {
	t.Parallel()
	allocation := func(owner, what, given string) Allocation {
		return Allocation{Owner: owner, For: prefix(what), Given: prefix(given)}
	}
	good := []Allocation{allocation("b", "10.42.0.0/16", "10.81.0.0/16"), allocation("a", "10.42.0.0/16", "10.80.0.0/16")}
	r, err := NewRecord(good)
	require.NoError(t, err)
	require.Equal(t, []Allocation{good[1], good[0]}, r.Allocations(), "in the order of the ranges")
	for name, tc := range map[string]struct {
		bad  Allocation
		says string
	}{
		"no owner":       {Allocation{For: prefix("10.0.0.0/24"), Given: prefix("10.0.0.0/24")}, "10.0.0.0/24 has no owner"},
		"an owner twice": {allocation("a", "10.0.0.0/24", "10.0.0.0/24"), "a has"},
		"an overlap":     {allocation("c", "10.0.0.0/24", "10.80.7.0/24"), "overlap"},
		"no range":       {Allocation{Owner: "c"}, "not a range"},
		"host bits":      {allocation("c", "10.0.0.0/24", "10.0.0.1/24"), "not a range without host bits"},
		"another size":   {allocation("c", "10.0.0.0/24", "10.0.0.0/25"), "not a range of that size"},
		"another family": {allocation("c", "fd00::/24", "10.0.0.0/24"), "not a range of that size"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := NewRecord(append([]Allocation{tc.bad}, good...))
			require.ErrorContains(t, err, tc.says)
			same, err := r.With(tc.bad)
			require.Error(t, err)
			require.Equal(t, r, same)
		})
	}
	more, err := r.With(allocation("c", "10.42.0.0/16", "10.70.0.0/16"))
	require.NoError(t, err)
	require.Equal(t, 3, more.Len())
	require.Equal(t, "c", more.Allocations()[0].Owner)
	require.Equal(t, 2, r.Len(), "it has not changed")
	_, ok := r.Without("c")
	require.False(t, ok)
}
