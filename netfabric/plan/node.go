package plan

import (
	"cmp"
	"net/netip"
	"slices"
)

// Node plans the node in.Self, in the order in which a packet of one of its pods meets it:
// translation of own addresses that go by another name, rules, routes, the sources that the
// CNI must leave alone, the overlay to a gateway. It returns an error, and no State, if in
// is not valid or has no such node.
func Node(in Input) (State, error) {
	if err := in.Check(); err != nil {
		return State{}, err
	}
	i := slices.IndexFunc(in.Nodes, func(h Host) bool { return h.Name == in.Self })
	if i < 0 {
		return State{}, &FieldError{Host: in.Self, Field: "self", Text: "there is no such node"}
	}
	self, _ := first(in.Nodes[i].Addrs, in.underlay())
	n := node{overlay{in, self, in.families()}, in.Nodes[i]}

	s := State{Links: []Link{n.link()}, Table: n.table(), Rules: n.rules(), Routes: n.routes()}
	for _, g := range in.Gateways {
		n.neighbour(&s, g.Addrs)
	}
	return s.sorted(), nil
}

type node struct {
	overlay
	host Host
}

// rules keep the packets of gateway pods on this node out of PeersTable: to an endpoint with
// an address that is also one of a peer's view they would go round in circles.
func (n node) rules() []Rule {
	var skip []Rule
	for _, g := range n.in.Gateways {
		for _, a := range g.Addrs {
			skip = append(skip, Rule{Priority: SkipPriority, Src: Single(a), Goto: EndPriority})
		}
	}
	return byFamily(n.families, skip)
}

// routes lead to peers by the gateway in use, and to each gateway by itself for probes.
func (n node) routes() (out []Route) {
	for i, g := range n.in.Gateways {
		for _, e := range n.in.External {
			out = append(out, n.route(Single(ReplicaAddr(e, g.Number)), &n.in.Gateways[i], 0))
		}
	}
	for _, p := range n.in.Peers {
		via := n.gateway(cmp.Or(p.Via, n.in.Via))
		for _, r := range p.Theirs.All() {
			out = append(out, n.route(r, via, PathMTU(n.in.MTU, n.in.underlay(), p.MTU)))
		}
	}
	for _, e := range n.in.External {
		out = append(out, n.route(e, n.gateway(n.in.Via), 0))
	}
	return out
}

// gateway returns the own gateway with a name, or nil.
func (n node) gateway(name string) *Replica {
	i := slices.IndexFunc(n.in.Gateways, func(g Replica) bool { return g.Name == name })
	if i < 0 {
		return nil
	}
	return &n.in.Gateways[i]
}

func (n node) route(dst netip.Prefix, via *Replica, mtu int) Route {
	if via == nil {
		return Route{Table: PeersTable, Dst: dst, Unreachable: true}
	}
	return Route{Table: PeersTable, Dst: dst, Link: OverlayDevice, Via: n.hop(via.Addrs, family(dst.Addr())), Src: n.src(dst), MTU: mtu}
}

// src is the source of packets of this node itself to dst.
func (n node) src(dst netip.Prefix) netip.Addr {
	a, _ := first(n.host.Addrs, family(dst.Addr()))
	return a
}

func (n node) table() Table {
	return Table{
		Name: TableName,
		Sets: slices.Concat(
			both("senders", 1, NoValue), // hosts that send overlay packets
			both("pods", 1, NoValue),    // own pod ranges
			both("fabric", 1, NoValue),  // sources that come out of the fabric
			both("hosts", 1, Address),   // own external address -> real address
			both("keep", 1, Prefix),     // sources that nothing may change -> the same
			both("node", 1, Address),    // destinations in the fabric -> address of this node
			both("ports", 4, NoValue),   // range of a peer . address of which it has single ports . protocol . port
			both("open", 2, NoValue),    // range of a peer . address of which it has all ports by an IP
			both("reach", 2, NoValue),   // range of a peer . pods of this node that it reaches
			both("home_in", 2, Prefix),  // pod of this node . range as it is in the pod's home -> the same here
			both("home_out", 2, Prefix), // pod of this node . range -> the same in the pod's home
			both(Refused, 1, Counter),   // ranges of peers
			shares(),                    // ranges of peers
		),
		Chains:   nodeChains(n.in.Ports),
		Elements: n.elements(),
	}
}

func nodeChains(ports Ports) []Chain {
	hosts := each(Match{Do: DNAT, Map: Lookup{Name: "hosts", Key: Dst}})
	return append(refusals(DropOverlay, DropToNode, DropToPod, DropTooMany), []Chain{
		overShare(),
		{Name: outOfOverlay, Rules: reached()},
		shareIn(OverlayDevice),
		{Name: "guard_in", Hook: HookPrerouting, Priority: RawPriority, Rules: slices.Concat(
			overlayGuard(ports),
			each(Match{In: OverlayDevice, Set: Lookup{Name: "fabric", Key: Src, Not: true}, Do: Drop, Name: DropFromGateway}),
		)},
		{Name: "outer_out", Hook: HookOutput, Priority: RawPriority, Rules: []Match{
			{Out: OutsideDevices, Proto: "udp", Port: ports.Overlay, Do: NoTrack},
		}},
		// The CNI may put the address of this node, which is a sender to others, into packets of its pods.
		{Name: "outer_pass", Hook: HookForward, Priority: FilterPriority, Rules: each(
			Match{Out: OutsideDevices, Proto: "udp", Port: ports.Overlay, Set: Lookup{Name: "senders", Key: Src}, Do: Accept},
			Match{Out: OutsideDevices, Proto: "udp", Port: ports.Overlay, Set: Lookup{Name: "pods", Key: Dst}, Do: Accept},
			Match{Out: OutsideDevices, Proto: "udp", Port: ports.Overlay, Set: Lookup{Name: "pods", Key: Src}, Do: Drop, Name: DropOverlay},
		)},
		// Ahead of the translation of node ports, by which an address of the node leads elsewhere.
		{Name: "reach_in", Hook: HookPrerouting, Priority: ManglePriority, Rules: []Match{{In: OverlayDevice, Do: Goto, To: outOfOverlay}}},
		{Name: "home_in", NAT: true, Hook: HookPrerouting, Priority: HomeInPriority, Rules: each(Match{Do: DNATPrefix, Map: Lookup{Name: "home_in", Key: SrcDst}})},
		{Name: "translate_in", NAT: true, Hook: HookPrerouting, Priority: DNATPriority, Rules: hosts},
		{Name: "translate_local", NAT: true, Hook: HookOutput, Priority: DNATPriority, Rules: hosts},
		{Name: "home_out", NAT: true, Hook: HookPostrouting, Priority: HomeOutPriority, Rules: each(Match{Do: SNATPrefix, Map: Lookup{Name: "home_out", Key: DstSrc}})},
		{Name: "translate_out", NAT: true, Hook: HookPostrouting, Priority: SNATPriority, Rules: slices.Concat(
			// kube-proxy of this node has chosen an endpoint for a peer: it answers to this node.
			each(Match{In: OverlayDevice, Out: OverlayDevice, CT: Redirected, Do: SNAT, Map: Lookup{Name: "node", Key: Dst}}),
			[]Match{{In: OverlayDevice, CT: Redirected, Do: Masquerade}},
			each(
				Match{Out: OverlayDevice, Do: SNATPrefix, Map: Lookup{Name: "keep", Key: Src}},
				Match{Out: OverlayDevice, Do: SNAT, Map: Lookup{Name: "node", Key: Dst}},
				Match{In: OverlayDevice, Do: SNATPrefix, Map: Lookup{Name: "keep", Key: Src}},
			),
		)},
	}...)
}

// outOfOverlay is the chain of what nodes take out of the overlay.
const outOfOverlay = "out_of_overlay"

// reached are its rules. They look at each packet of a connection that a peer has opened, not at
// the first one alone: what is no longer shared is closed at once. What a pod or this node has
// opened goes on.
func reached() []Match {
	return slices.Concat(
		[]Match{
			{CT: Answer, Do: Accept},
			{CT: Related, Do: Accept},
		},
		each(
			Match{Set: Lookup{Name: "ports", Key: SrcDstService}, Do: Accept},
			Match{Set: Lookup{Name: "open", Key: SrcDst}, Do: Accept},
		),
		[]Match{{Stays: true, Do: Goto, To: DropToNode}},
		each(Match{Set: Lookup{Name: "reach", Key: SrcDst}, Do: Accept}),
		[]Match{{Do: Goto, To: DropToPod}},
	)
}

func (n node) elements() []Element {
	var e elements
	n.senders(&e, n.gateways())
	e.set("pods", n.in.Pods...)
	for _, p := range n.host.Pods {
		e.to("keep", p, p)
	}
	for _, r := range n.inside() {
		e.set("fabric", r)
		e.to("keep", r, r)
	}
	for _, ip := range n.in.IPs {
		if ip.OnGateways() {
			continue
		}
		e.to("hosts", Single(ip.External), Single(ip.Real))
	}
	for _, r := range n.inside() {
		if a, ok := first(n.host.Addrs, family(r.Addr())); ok {
			e.to("node", r, Single(a))
		}
	}
	for _, p := range n.in.Peers {
		n.home(&e, p)
		e.share(p.Theirs)
		for _, r := range p.Theirs.All() {
			e.set(Refused, r)
			n.exposed(&e, p, r)
			e.pair("reach", r, p.Reach...)
			e.pair("open", r, n.in.servicesOf(p)...) // gateways let pass what may
			for _, at := range p.Ports {
				e.service("ports", r, Single(at.Addr()), Service{"tcp", at.Port()})
			}
		}
	}
	return e
}

// home adds what addresses mean to the pods of this node that live in a peer's address space. A
// source keeps its address where the other one lies in the range of this node: many network plugins
// give pods a route to that without a router.
func (n node) home(e *elements, p Peer) {
	for _, pod := range p.Home {
		for _, m := range p.Meant {
			if m.Own == m.View || !Within(pod, n.host.Pods) {
				continue
			}
			e.pairTo("home_in", pod, m.Own, m.View)
			for _, part := range outside(m.Own, n.host.Pods) {
				here, _ := move(part.Addr(), m.Own, m.View)
				e.pairTo("home_out", pod, netip.PrefixFrom(here, part.Bits()), part)
			}
		}
	}
}

// outside returns the parts of a range that overlap none of others.
func outside(p netip.Prefix, others []netip.Prefix) []netip.Prefix {
	if Within(p, others) {
		return nil
	}
	if !slices.ContainsFunc(others, p.Overlaps) {
		return []netip.Prefix{p}
	}
	low := netip.PrefixFrom(p.Addr(), p.Bits()+1)
	high := netip.PrefixFrom(Last(p), p.Bits()+1).Masked()
	return append(outside(low, others), outside(high, others)...)
}

// gateways returns the addresses that packets of gateways come from: their own, and those of
// their nodes.
func (n node) gateways() (out []netip.Addr) {
	for _, g := range n.in.Gateways {
		out = append(out, g.Addrs...)
		for _, h := range n.in.Nodes {
			if g.Node == h.Name {
				out = append(out, h.Addrs...)
			}
		}
	}
	return out
}

// exposed adds the addresses and ports of this node, and of its pods, that one range of a peer
// reaches by IPs.
func (n node) exposed(e *elements, p Peer, theirs netip.Prefix) {
	ips := slices.DeleteFunc(n.in.exposedTo(p), func(ip IP) bool {
		return !slices.Contains(n.host.Addrs, ip.Real) && !Within(Single(ip.Real), n.host.Pods)
	})
	for _, ip := range ips {
		if len(ip.Ports) == 0 {
			e.pair("open", theirs, Single(ip.Real))
		}
		for _, s := range ip.Ports {
			e.service("ports", theirs, Single(ip.Real), s)
		}
	}
}

// inside are the ranges whose packets the overlay carries to and from gateways.
func (n node) inside() []netip.Prefix {
	out := slices.Clone(n.in.External)
	for _, p := range n.in.Peers {
		out = append(out, p.Theirs.All()...)
	}
	return out
}
