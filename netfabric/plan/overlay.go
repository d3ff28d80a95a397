package plan

import (
	"crypto/sha256"
	"net/netip"
	"slices"
)

// macOf is the hardware address of the overlay device of the host with the underlay address
// a. It follows from the address, so no host has to learn it. It contains an IPv4 address,
// and a hash of an IPv6 address.
func macOf(a netip.Addr) MAC {
	m := MAC{0: 0x02, 1: 0xfa} // locally administered
	if a.Is4() {
		copy(m[2:], a.AsSlice())
		return m
	}
	sum := sha256.Sum256(a.AsSlice())
	copy(m[1:], sum[:])
	return m
}

// linkLocal is the address that the kernel gives an IPv6 device with the hardware address m
// (RFC 4291, appendix A).
func linkLocal(m MAC) netip.Addr {
	return netip.AddrFrom16([16]byte{0xfe, 0x80, 8: m[0] ^ 2, m[1], m[2], 0xff, 0xfe, m[3], m[4], m[5]})
}

// overlay plans the end of the overlay on one host.
type overlay struct {
	in       Input
	self     netip.Addr // underlay address of this host
	families []Family   // that the fabric carries
}

func (o overlay) link() Link {
	return Link{
		Name:  OverlayDevice,
		Kind:  VXLAN,
		MTU:   OverlayMTU(o.in.MTU, o.in.underlay()),
		ID:    OverlayID,
		Port:  o.in.Ports.Overlay,
		Local: o.self,
		MAC:   macOf(o.self),
	}
}

// neighbour adds to s the entries for a host at the other end, so that the kernel floods no
// frame and resolves no address.
func (o overlay) neighbour(s *State, addrs []netip.Addr) {
	remote, _ := first(addrs, o.in.underlay())
	mac := macOf(remote)
	s.FDB = append(s.FDB, FDB{Link: OverlayDevice, MAC: mac, Remote: remote})
	for _, f := range o.families {
		s.Neighs = append(s.Neighs, Neigh{Link: OverlayDevice, Addr: o.hop(addrs, f), MAC: mac})
	}
}

// hop is the next hop towards a host, for packets of family f: its own address for IPv4, or
// else the link-local one of its device.
func (o overlay) hop(addrs []netip.Addr, f Family) netip.Addr {
	if a, ok := first(addrs, V4); ok && f == V4 {
		return a
	}
	remote, _ := first(addrs, o.in.underlay())
	return linkLocal(macOf(remote))
}

// suffix ends the names of the sets of a family.
func suffix(f Family) string { return Per(f, "4", "6") }

// overlayGuard drops VXLAN out of the fabric, and from hosts that are no ends of the overlay:
// the sender chooses the source of the packet inside, and the sockets of the kernel take VXLAN
// from every sender. The rest is not tracked.
func overlayGuard(ports Ports) []Match {
	return slices.Concat(
		[]Match{{In: AllDevices, Proto: "udp", Port: ports.Overlay, Do: Goto, To: DropOverlay}},
		each(Match{Proto: "udp", Port: ports.Overlay, Local: true, Set: Lookup{Name: "senders", Key: Src, Not: true}, Do: Drop, Name: DropOverlay}),
		[]Match{{Proto: "udp", Port: ports.Overlay, Local: true, Do: NoTrack}},
	)
}

// refusals returns a chain for each reason, named by it, that drops packets of peers. Only what is
// dropped meets them: there an element of Refused counts it for its peer.
func refusals(reasons ...string) (out []Chain) {
	for _, reason := range reasons {
		count := each(Match{Set: Lookup{Name: Refused, Key: Src}, Do: Count})
		out = append(out, Chain{Name: reason, Rules: append(count, Match{Do: Drop, Name: reason})})
	}
	return out
}

// RateBurst is how many seconds of its rate an element of a set of Rate passes at once.
const RateBurst = 8

// The share of a peer: connections a second on one host. The smallest table that kube-proxy makes has 131,072 places,
// and a connection that its ends do not keep open has one for 120 s at most: one peer does not fill it. A
// gateway of a peer sends a few probes a second to each of ours.
const (
	shareOfPeer   = 1000
	probesOfRange = 1000
)

// shares are the sets with the ranges of peers that have at most so many of a family. The ranges of a peer
// have its share together.
func shares() (out []Set) {
	for _, most := range []int{2, 8, 32} {
		for _, s := range both(shareOf(most), 1, Rate) {
			s.Rate = shareOfPeer / most
			out = append(out, s)
		}
	}
	return out
}

// shareOf is the name of the set for the ranges of a peer that has n of a family.
func shareOf(n int) string {
	switch {
	case n <= 2:
		return "share_whole"
	case n <= 8:
		return "share_part"
	}
	return "share_small"
}

// share adds the ranges of a peer to the sets of shares. Nothing begins in those of its Services.
func (e *elements) share(theirs Ranges) {
	e.set("share_small", theirs.Services...)
	theirs.Services = nil
	ranges, n := theirs.All(), map[Family]int{}
	for _, r := range ranges {
		n[family(r.Addr())]++
	}
	for _, r := range ranges {
		e.set(shareOf(n[family(r.Addr())]), r)
	}
}

// shareIn leads the first packets of connections out of a device to the chain shares.
func shareIn(from string) Chain {
	return Chain{Name: "share_in", Hook: HookPrerouting, Priority: ManglePriority - 1, Rules: []Match{{In: from, CT: First, Do: Goto, To: "shares"}}}
}

// overShare drops what is beyond the share of a peer.
func overShare() Chain {
	var over []Match
	for _, most := range []int{2, 8, 32} {
		over = append(over, each(Match{Set: Lookup{Name: shareOf(most), Key: Src}, Do: Goto, To: DropTooMany})...)
	}
	return Chain{Name: "shares", Rules: over}
}

// senders adds the hosts at the other ends of the overlay.
func (o overlay) senders(e *elements, addrs []netip.Addr) {
	if o.in.AnySender {
		e.set("senders", netip.PrefixFrom(netip.IPv4Unspecified(), 0))
		e.set("senders", netip.PrefixFrom(netip.IPv6Unspecified(), 0))
		return
	}
	slices.SortFunc(addrs, netip.Addr.Compare)
	for _, a := range slices.Compact(addrs) {
		e.set("senders", Single(a))
	}
}

// both writes a set, of which each family has its own.
func both(name string, keys int, value Value) (out []Set) {
	for _, f := range []Family{V4, V6} {
		out = append(out, Set{Name: name + suffix(f), Family: f, Keys: keys, Value: value})
	}
	return out
}

// each writes rules once for each family, with the sets of that family.
func each(rules ...Match) (out []Match) {
	for _, m := range rules {
		for _, f := range []Family{V4, V6} {
			one := m
			one.Family = f
			for _, l := range []*Lookup{&one.Set, &one.Map} {
				if l.Name != "" {
					l.Name += suffix(f)
				}
			}
			out = append(out, one)
		}
	}
	return out
}

// elements are the elements of a table, by the name of a set without its family.
type elements []Element

func (e *elements) set(name string, keys ...netip.Prefix) {
	for _, key := range keys {
		*e = append(*e, Element{Set: name + suffix(family(key.Addr())), A: key})
	}
}

// pair adds an element with a and each of the others unless it mixes families.
func (e *elements) pair(name string, a netip.Prefix, others ...netip.Prefix) {
	for _, b := range others {
		e.pairTo(name, a, b, netip.Prefix{})
	}
}

func (e *elements) to(name string, key, value netip.Prefix) {
	e.pairTo(name, key, netip.Prefix{}, value)
}

// service adds an element with a protocol and a port unless it mixes families.
func (e *elements) service(name string, a, b netip.Prefix, s Service) {
	before := len(*e)
	if e.pair(name, a, b); len(*e) > before {
		(*e)[before].Service = s
	}
}

// pairTo adds an element unless it mixes families: no packet is of two.
func (e *elements) pairTo(name string, a, b, value netip.Prefix) {
	f := family(a.Addr())
	for _, p := range []netip.Prefix{b, value} {
		if p.IsValid() && family(p.Addr()) != f {
			return
		}
	}
	*e = append(*e, Element{Set: name + suffix(f), A: a, B: b, Value: value})
}

// byFamily returns the rules of a host for each family: the skip rules lead the packets that
// carry the fabric past our tables, more are those of this kind of host, and all other
// packets look in PeersTable.
func byFamily(families []Family, skip []Rule, more ...Rule) (out []Rule) {
	for _, f := range families {
		rules := append(slices.Clone(skip), more...)
		rules = append(rules, Rule{Priority: PeersPriority, Table: PeersTable}, Rule{Priority: EndPriority})
		for _, r := range rules {
			if !r.Src.IsValid() || family(r.Src.Addr()) == f {
				r.Family = f
				out = append(out, r)
			}
		}
	}
	return out
}
