package ipam

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	ipamv1alpha1 "github.com/liqod/liqod/api/ipam/v1alpha1"
	"github.com/liqod/liqod/netfabric/plan"
	"github.com/stretchr/testify/require"
)

// model answers requests by looking at every range there is.
type model struct {
	cfg   Config
	given map[string]Allocation
}

func (m model) free(p netip.Prefix) bool {
	for _, r := range m.cfg.Reserved {
		if r.Prefix.Overlaps(p) {
			return false
		}
	}
	for _, a := range m.given {
		if a.Given.Overlaps(p) {
			return false
		}
	}
	return true
}

// fair counts addresses.
func (m model) fair(group string, p netip.Prefix) bool {
	for _, pool := range m.cfg.Pools {
		in := func(q netip.Prefix) int {
			if !pool.Overlaps(q) {
				return 0
			}
			return 1 << (q.Addr().BitLen() - max(q.Bits(), pool.Bits()))
		}
		have, others, size := in(p), 0, in(pool)
		for _, a := range m.given {
			if a.Group == group {
				have += in(a.Given)
			} else {
				others += in(a.Given)
			}
		}
		if group != "" && in(p) > 0 && (in(p)*4 > size || have*8 > size && have*2 > size-others) {
			return false
		}
	}
	return true
}

// take returns the answer, and false where there is none.
func (m model) take(req Request) (netip.Prefix, bool) {
	if have, ok := m.given[req.Owner]; ok {
		return have.Given, have.For == req.For
	}
	for _, keep := range m.cfg.Keep {
		if keep.Bits() <= req.For.Bits() && keep.Overlaps(req.For) && m.free(req.For) && (req.Exact || m.fair(req.Group, req.For)) {
			return req.For, true
		}
	}
	if req.Exact {
		return req.For, m.free(req.For)
	}
	for _, pool := range m.cfg.Pools {
		if pool.Bits() > req.For.Bits() || pool.Addr().BitLen() != req.For.Addr().BitLen() {
			continue
		}
		for at := pool.Addr(); pool.Contains(at); at = plan.Last(netip.PrefixFrom(at, req.For.Bits())).Next() {
			if p := netip.PrefixFrom(at, req.For.Bits()); m.free(p) && m.fair(req.Group, p) {
				return p, true
			}
		}
	}
	return netip.Prefix{}, false
}

// small is a space in which everything soon meets something else.
func small() Config {
	return Config{
		Pools: ranges("10.0.0.0/25", "10.1.0.0/26", "fd00::/122"), Keep: ranges("10.0.0.0/24", "10.2.0.0/25", "fd00::/121"),
		Reserved: []ipamv1alpha1.NamedRange{{Prefix: prefix("10.0.0.16/28"), Name: "x"}, {Prefix: prefix("10.0.0.20/31"), Name: "nested"}, {Prefix: prefix("10.1.0.7/32"), Name: "y"}, {Prefix: prefix("fd00::4/126"), Name: "z"}},
	}
}

// requests are drawn from few owners, places and sizes.
func draw(next func(n int) int) Request {
	base := []string{"10.0.0.0", "10.1.0.0", "10.2.0.0", "192.0.2.0", "fd00::", "2001:db8::"}[next(6)]
	addr := netip.MustParseAddr(base)
	bytes := addr.AsSlice()
	bytes[len(bytes)-1] = byte(next(256))
	addr, _ = netip.AddrFromSlice(bytes)
	p := netip.PrefixFrom(addr, addr.BitLen()-next(8)).Masked()
	return Request{Owner: fmt.Sprint("owner-", next(12)), Group: []string{"", "milan", "turin"}[next(3)], For: p, Exact: next(6) == 0}
}

// walk takes and releases, and compares each step with the model.
func walk(t *testing.T, steps int, next func(n int) int) {
	s, m, r := space(t, small()), model{small(), map[string]Allocation{}}, Record{}
	for range steps {
		if next(3) == 0 {
			owner := fmt.Sprint("owner-", next(12))
			have, had := m.given[owner]
			before := r
			var ok bool
			r, ok = r.Without(owner)
			require.Equal(t, had, ok)
			if had {
				back, err := r.With(have)
				require.NoError(t, err)
				require.Equal(t, before, back, "a release gives back exactly what was given")
			}
			delete(m.given, owner)
			continue
		}
		req := draw(next)
		want, ok := m.take(req)
		a, after, err := s.Take(r, req)
		require.Equal(t, ok, err == nil, "%+v: %v", req, err)
		if err == nil {
			require.Equal(t, want, a.Given, "%+v", req)
			m.given[req.Owner] = a
		}
		r = after
		require.Equal(t, len(m.given), r.Len())
		stored, err := NewRecord(r.Allocations())
		require.NoError(t, err, "no two allocations overlap")
		require.Equal(t, r.Allocations(), stored.Allocations(), "they are in order")
	}
}

func TestModel(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		walk(t, 60, rand.New(rand.NewPCG(seed, 1)).IntN)
	}
}

// FuzzTake lets the input choose each step.
func FuzzTake(f *testing.F) {
	f.Add([]byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14})
	f.Add([]byte{1, 0, 17, 0, 0, 1, 1, 0, 17, 0, 1, 1, 0, 0, 1, 4, 200, 3, 3, 1})
	f.Fuzz(func(t *testing.T, data []byte) {
		at := 0
		walk(t, min(len(data)/2, 64), func(n int) int {
			if at >= len(data) {
				return 0
			}
			at++
			return int(data[at-1]) % n
		})
	})
}

// FuzzBadInput gives ranges that may be anything at all.
func FuzzBadInput(f *testing.F) {
	f.Add("10.0.0.0/8", "10.0.0.0/24", "10.0.0.0/24")
	f.Add("::/1", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffe/127", "::1/128")
	f.Add("224.0.0.0/3", "255.255.255.255/32", "0.0.0.0/0")
	f.Fuzz(func(t *testing.T, pool, reserved, ask string) {
		parse := func(s string) netip.Prefix { p, _ := netip.ParsePrefix(s); return p }
		s, err := New(Config{Pools: []netip.Prefix{parse(pool)}, Keep: []netip.Prefix{parse(pool)}, Reserved: []ipamv1alpha1.NamedRange{{Prefix: parse(reserved), Name: "reserved"}}})
		if err != nil {
			return
		}
		var r Record
		for _, owner := range []string{"a", "b"} {
			a, next, err := s.Take(r, Request{Owner: owner, For: parse(ask)})
			if err != nil {
				require.Equal(t, r, next)
				continue
			}
			require.NoError(t, s.Check(a))
			_, err = NewRecord(next.Allocations())
			require.NoError(t, err)
			r = next
		}
	})
}

// Without returns the Record without the allocation of an owner, and whether there was one.
func (r Record) Without(owner string) (Record, bool) {
	list := slices.DeleteFunc(r.Allocations(), func(a Allocation) bool { return a.Owner == owner })
	return Record{list}, len(list) < r.Len()
}
