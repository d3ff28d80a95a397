//go:build linux

package kernel

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/liqod/liqod/netfabric/plan"
)

// forget deletes the connection tracking entries of flows that an element of gone translates:
// such a flow would keep its translation, to an address that may belong to another cluster
// by now. Other flows keep their entries.
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

// changed returns the elements of maps in gone, by family. It leaves out an element that
// maps a range to itself, unless another element has its key now.
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

// MatchConntrackFlow reports whether one of ts may have translated the flow: both ends of the
// flow match the key, and one end of its answers matches the value.
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
