package kernel

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/liqod/liqod/netfabric/plan"
)

// forget deletes the connection tracking entries that a translation in gone has made: they
// would go on translating after it, to addresses that may be somebody else's by then. Flows
// whose translation has stayed are left alone.
func (s *session) forget(want, gone []plan.Element) error {
	var errs []error
	for family, filter := range changed(want, gone) {
		_, err := list(func() ([]struct{}, error) {
			_, err := s.nl.ConntrackDeleteFilters(netlink.ConntrackTable, netlink.InetFamily(family), filter)
			return nil, err
		})
		if err != nil {
			errs = append(errs, fmt.Errorf("deleting connection tracking entries: %w", err))
		}
	}
	return errors.Join(errs...)
}

// changed are the elements whose flows are to be forgotten, by family. An element that
// translates nothing holds flows back only if another takes its place.
func changed(want, gone []plan.Element) map[int]translations {
	again := map[plan.Element]bool{}
	for _, e := range want {
		e.Value = netip.Prefix{}
		again[e] = true
	}
	out := map[int]translations{}
	for _, e := range gone {
		if !e.Value.IsValid() {
			continue
		}
		key := e
		key.Value = netip.Prefix{}
		if (e.Value == e.A || e.Value == e.B) && !again[key] {
			continue
		}
		family := unix.AF_INET
		if e.A.Addr().Is6() {
			family = unix.AF_INET6
		}
		out[family] = append(out[family], e)
	}
	return out
}

// translations are elements of maps.
type translations []plan.Element

// MatchConntrackFlow reports whether one of ts may have translated the flow: it went between
// the addresses of the key, and its answers go to or come from the value.
func (ts translations) MatchConntrackFlow(flow *netlink.ConntrackFlow) bool {
	src, dst := addrOf(flow.Forward.SrcIP), addrOf(flow.Forward.DstIP)
	from, to := addrOf(flow.Reverse.SrcIP), addrOf(flow.Reverse.DstIP)
	for _, t := range ts {
		if !t.Value.Contains(from) && !t.Value.Contains(to) {
			continue
		}
		if keyed(t, src, dst) || keyed(t, dst, src) {
			return true
		}
	}
	return false
}

func keyed(t plan.Element, a, b netip.Addr) bool {
	return t.A.Contains(a) && (!t.B.IsValid() || t.B.Contains(b))
}
