package plan

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	ipamv1alpha1 "github.com/liqod/liqod/api/ipam/v1alpha1"
)

// Map translates the addresses of a range: Own is the range as its cluster has it, View the
// one under which another cluster sees it. Both have the same length, and an address keeps
// its place in the range.
type Map struct {
	Own, View netip.Prefix
}

// Out translates an address of Own into one of View. It reports false for other addresses.
func (m Map) Out(a netip.Addr) (netip.Addr, bool) { return move(a, m.Own, m.View) }

// In translates an address of View into one of Own. It reports false for other addresses.
func (m Map) In(a netip.Addr) (netip.Addr, bool) { return move(a, m.View, m.Own) }

// Check returns an error if m cannot translate: each address of one range needs exactly one
// in the other.
func (m Map) Check() error {
	for _, p := range []netip.Prefix{m.Own, m.View} {
		if err := CheckRange(p); err != nil {
			return err
		}
	}
	if family(m.Own.Addr()) != family(m.View.Addr()) {
		return fmt.Errorf("%s and %s are of different IP versions", m.Own, m.View)
	}
	if m.Own.Bits() != m.View.Bits() {
		return fmt.Errorf("%s and %s are of different lengths", m.Own, m.View)
	}
	return nil
}

// Maps are translations of ranges that do not overlap.
type Maps []Map

// Out translates by the map whose Own holds a. It reports false if there is none.
func (m Maps) Out(a netip.Addr) (netip.Addr, bool) { return m.move(a, Map.Out) }

// In translates by the map whose View holds a. It reports false if there is none.
func (m Maps) In(a netip.Addr) (netip.Addr, bool) { return m.move(a, Map.In) }

func (m Maps) move(a netip.Addr, way func(Map, netip.Addr) (netip.Addr, bool)) (netip.Addr, bool) {
	for _, one := range m {
		if moved, ok := way(one, a); ok {
			return moved, true
		}
	}
	return netip.Addr{}, false
}

// Owns returns the Own of each map.
func (m Maps) Owns() (out []netip.Prefix) {
	for _, one := range m {
		out = append(out, one.Own)
	}
	return out
}

// Views returns the View of each map.
func (m Maps) Views() (out []netip.Prefix) {
	for _, one := range m {
		out = append(out, one.View)
	}
	return out
}

// move gives the address with the place of a within from, within to.
func move(a netip.Addr, from, to netip.Prefix) (netip.Addr, bool) {
	if !from.Contains(a) || from.Bits() != to.Bits() || family(a) != family(to.Addr()) {
		return netip.Addr{}, false
	}
	host, network := a.AsSlice(), to.Masked().Addr().AsSlice()
	for i := range host {
		mask := byte(0xff)
		if bits := to.Bits() - 8*i; bits < 8 {
			mask = ^byte(0xff >> max(bits, 0))
		}
		host[i] = host[i]&^mask | network[i]&mask
	}
	moved, _ := netip.AddrFromSlice(host)
	return moved, true
}

// family is the IP version of a valid address.
func family(a netip.Addr) Family {
	if a.Is4() {
		return V4
	}
	return V6
}

// Per chooses by family.
func Per[T any](f Family, four, six T) T {
	if f == V6 {
		return six
	}
	return four
}

// Last returns the last address of a range.
func Last(p netip.Prefix) netip.Addr {
	bytes := p.Addr().AsSlice()
	for i := range bytes {
		bytes[i] |= byte(0xff >> min(8, max(0, p.Bits()-8*i)))
	}
	a, _ := netip.AddrFromSlice(bytes)
	return a
}

// Single returns the prefix of one address.
func Single(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }

// The widest range that is accepted, in bits.
const widest4, widest6 = 8, 16

// CheckRange returns an error if p is not a range that a cluster may have of its own, written in
// the one way.
func CheckRange(p netip.Prefix) error {
	switch {
	case !p.IsValid():
		return errors.New("not a prefix")
	case p.Addr().Is4In6():
		return fmt.Errorf("%s is an IPv4 range written as IPv6", p)
	case p != p.Masked():
		return fmt.Errorf("%s has bits beyond its length: write %s", p, p.Masked())
	}
	if widest := Per(family(p.Addr()), widest4, widest6); p.Bits() < widest {
		return fmt.Errorf("%s is wider than /%d", p, widest)
	}
	for _, no := range ipamv1alpha1.SpecialRanges() {
		if no.Prefix.Overlaps(p) {
			return fmt.Errorf("%s holds addresses that no host can have: %s, %s", p, no.Prefix, no.Name)
		}
	}
	return nil
}

// checkAddr returns an error if a is not the address of a host.
func checkAddr(a netip.Addr) error {
	switch {
	case !a.IsValid():
		return errors.New("not an address")
	case a.Zone() != "" || a.Is4In6():
		return fmt.Errorf("%s: plain IPv4 and IPv6 addresses are accepted", a)
	}
	if slices.ContainsFunc(ipamv1alpha1.SpecialRanges(), func(no ipamv1alpha1.NamedRange) bool { return no.Prefix.Contains(a) }) {
		return fmt.Errorf("%s is no address of a host", a)
	}
	return nil
}
