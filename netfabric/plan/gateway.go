package plan

import (
	"net/netip"
	"slices"
)

// Gateway plans the gateway in.Self: the tunnel to all peers, the translation of own ranges
// to the views of each peer and back, the guards behind the translation, and the overlay to
// all nodes. It returns an error, and no State, if in is not valid or has no such gateway.
func Gateway(in Input) (State, error) {
	if err := in.Check(); err != nil {
		return State{}, err
	}
	i := slices.IndexFunc(in.Gateways, func(r Replica) bool { return r.Name == in.Self })
	if i < 0 {
		return State{}, &FieldError{Host: in.Self, Field: "self", Text: "there is no such gateway"}
	}
	self, _ := first(in.Gateways[i].Addrs, in.underlay())
	g := gateway{overlay{in, self, in.families()}, in.Gateways[i]}

	s := State{
		Sysctls: GatewaySysctls(g.families...),
		Links:   []Link{g.link(), {Name: TunnelDevice, Kind: WireGuard, MTU: TunnelMTU(in.MTU)}},
		Addrs:   g.addrs(),
		Device:  g.device(),
		Table:   g.table(),
		Rules:   g.rules(),
		Routes:  g.routes(),
	}
	for _, h := range in.Nodes {
		g.neighbour(&s, h.Addrs)
	}
	return s.sorted(), nil
}

type gateway struct {
	overlay
	replica Replica
}

// GatewaySysctls let a gateway forward, also packets whose answers leave by another device, and
// those of a connection that has passed another gateway meanwhile: connection tracking has not
// seen what went there, and would take the rest for invalid.
func GatewaySysctls(families ...Family) []Sysctl {
	out := []Sysctl{
		{"net/ipv4/ip_forward", "1"},
		{"net/ipv4/conf/all/rp_filter", "0"},
		{"net/ipv4/conf/default/rp_filter", "0"},
		{"net/netfilter/nf_conntrack_tcp_be_liberal", "1"},
	}
	if slices.Contains(families, V6) {
		out = append(out, Sysctl{"net/ipv6/conf/all/forwarding", "1"})
	}
	return out
}

func (g gateway) addrs() (out []Addr) {
	for _, e := range g.in.External {
		for _, a := range g.locals(e) {
			out = append(out, Addr{Link: TunnelDevice, Prefix: Single(a)})
		}
	}
	for _, ip := range g.in.IPs {
		if ip.OnGateways() {
			out = append(out, Addr{Link: TunnelDevice, Prefix: Single(ip.External)})
		}
	}
	return out
}

// locals are the addresses of an external range that this gateway answers on.
func (g gateway) locals(external netip.Prefix) []netip.Addr {
	return []netip.Addr{GatewayAddr(external), ReplicaAddr(external, g.replica.Number)}
}

// device has every gateway of every peer, so that sessions are warm. The one in use has all
// ranges of its peer, each has its own address for probes. Another key of a gateway has none: a
// handshake with it is all that shows its use.
func (g gateway) device() Device {
	d := Device{Name: TunnelDevice, Port: g.in.Ports.Tunnel, Mark: TunnelMark}
	for _, p := range g.in.Peers {
		for _, r := range p.Gateways {
			d.Peers = append(d.Peers, Tunnel{Key: r.Key, Endpoint: r.Endpoint, Keepalive: TunnelKeepalive})
			if r.Next != "" {
				d.Peers = append(d.Peers, Tunnel{Key: r.Next, Endpoint: r.Endpoint, Keepalive: TunnelKeepalive})
			}
			for _, e := range p.Theirs.External {
				d.Allowed = append(d.Allowed, Allowed{Key: r.Key, Prefix: Single(ReplicaAddr(e, r.Number))})
			}
			if r.Number == p.Use {
				for _, a := range p.Theirs.All() {
					d.Allowed = append(d.Allowed, Allowed{Key: r.Key, Prefix: a})
				}
			}
		}
	}
	return d
}

// rules look in InsideTable only for packets out of the tunnel and for answers to nodes: the
// encapsulated packets of the overlay go to the same addresses by the routes of the host.
func (g gateway) rules() []Rule {
	more := []Rule{{Priority: InsidePriority, In: TunnelDevice, Table: InsideTable}}
	for _, e := range g.in.External {
		for _, a := range g.locals(e) {
			more = append(more, Rule{Priority: InsidePriority, Src: Single(a), Table: InsideTable})
		}
	}
	return byFamily(g.families, []Rule{{Priority: SkipPriority, Mark: TunnelMark, Goto: EndPriority}}, more...)
}

func (g gateway) routes() (out []Route) {
	for _, p := range g.in.Peers {
		for _, r := range p.Theirs.All() {
			route := Route{Table: PeersTable, Dst: r, Link: TunnelDevice, MTU: PathMTU(g.in.MTU, g.in.underlay(), p.MTU)}
			if own := only(g.in.External, family(r.Addr())); len(own) > 0 {
				route.Src = GatewayAddr(own[0])
			}
			out = append(out, route)
		}
	}
	serving := g.serving()
	for _, h := range g.in.Nodes {
		dsts := slices.Clone(h.Pods)
		if h.Name == serving {
			dsts = append(dsts, g.in.Services...)
		}
		for _, a := range h.Addrs {
			if slices.Contains(g.families, family(a)) {
				dsts = append(dsts, Single(a))
			}
		}
		for _, dst := range dsts {
			out = append(out, Route{Table: InsideTable, Dst: dst, Link: OverlayDevice, Via: g.hop(h.Addrs, family(dst.Addr()))})
		}
	}
	return out
}

// serving returns the node whose kube-proxy answers for Services: the one that this gateway runs on, or
// else the first one.
func (g gateway) serving() (name string) {
	for _, h := range g.in.Nodes {
		if h.Name == g.replica.Node {
			return h.Name
		}
		if name == "" || h.Name < name {
			name = h.Name
		}
	}
	return name
}

func (g gateway) table() Table {
	return Table{
		Name: TableName,
		Sets: slices.Concat(
			both("senders", 1, NoValue),   // nodes
			both("pairs", 2, NoValue),     // range of a peer . view of us that it has
			both("peers", 1, NoValue),     // ranges of peers
			both("back", 2, NoValue),      // range of a peer . range of the same peer
			both("own", 1, NoValue),       // sources that nothing but snat translates
			both("targets", 2, NoValue),   // range of a peer . real address outside the overlay
			both("ports", 4, NoValue),     // range of a peer . real address . protocol . port
			both("limited", 2, NoValue),   // range of a peer . real address of which it has nothing but ports
			both("open", 2, NoValue),      // range of a peer . node of which it has all ports
			both("closed", 1, NoValue),    // nodes within the own pod ranges
			both("services", 1, NoValue),  // own ranges of Services
			both("served", 2, NoValue),    // pod of a peer . own range of Services that it reaches
			both("through", 2, NoValue),   // range of a peer . pod in a third cluster that it reaches
			both("dnat", 2, Prefix),       // range of a peer . view of us -> own range
			both("snat", 2, Prefix),       // range of a peer . own range -> view of us
			both("hosts_in", 2, Address),  // range of a peer . external address as it sees it -> real address
			both("hosts_out", 2, Address), // range of a peer . real address -> external address as it sees it
			both("gateway", 1, Address),   // range of a peer -> our gateway's address as it sees it
			both(Refused, 1, Counter),     // ranges of peers
			shares(),                      // ranges of peers
			probes(),                      // ranges of peers
		),
		Chains:   gatewayChains(g.in.Ports),
		Elements: g.elements(),
	}
}

func gatewayChains(ports Ports) []Chain {
	outsideIn := Match{In: OutsideDevices, Out: AllDevices, Set: Lookup{Name: "targets", Key: DstSrc, Not: true}, Do: Drop, Name: DropFromOutside}
	// Connection tracking relates an error by the packet inside: its sender is to be the peer that
	// this packet went to.
	errorsOfOthers := each(Match{In: TunnelDevice, Proto: "icmp", CT: Related, Set: Lookup{Name: "back", Key: SrcInner, Not: true}, Do: Goto, To: DropFromPeer})
	return append(refusals(DropOverlay, DropFromPeer, DropToOutside, DropToPort, DropToNode, DropToPod, DropToGateway, DropTooMany), []Chain{
		overShare(),
		{Name: outOfTunnel, Rules: passTunnel(errorsOfOthers)},
		shareIn(TunnelDevice),
		{Name: "guard_in", Hook: HookPrerouting, Priority: RawPriority, Rules: slices.Concat(
			overlayGuard(ports),
			[]Match{
				{Proto: "udp", Port: ports.Tunnel, Local: true, Do: NoTrack},
			},
			each(
				Match{In: TunnelDevice, Set: Lookup{Name: "pairs", Key: SrcDst, Not: true}, Do: Goto, To: DropFromPeer},
				Match{In: OverlayDevice, Set: Lookup{Name: "peers", Key: Src}, Do: Drop, Name: DropFromNode},
			),
		)},
		{Name: "outer_out", Hook: HookOutput, Priority: RawPriority, Rules: []Match{
			{Out: OutsideDevices, Proto: "udp", Port: ports.Overlay, Do: NoTrack},
			{Out: OutsideDevices, Proto: "udp", From: ports.Tunnel, Do: NoTrack},
		}},
		{Name: "translate_in", NAT: true, Hook: HookPrerouting, Priority: DNATPriority, Rules: each(
			Match{In: TunnelDevice, Do: DNAT, Map: Lookup{Name: "hosts_in", Key: SrcDst}},
			Match{In: TunnelDevice, Do: DNATPrefix, Map: Lookup{Name: "dnat", Key: SrcDst}},
		)},
		{Name: "clamp", Hook: HookForward, Priority: ManglePriority, Rules: []Match{
			{In: TunnelDevice, Proto: "tcp", SYN: true, Do: ClampMSS},
			{Out: TunnelDevice, Proto: "tcp", SYN: true, Do: ClampMSS},
		}},
		{Name: "pass", Hook: HookForward, Priority: FilterPriority, Rules: slices.Concat(
			[]Match{ // nothing translates these
				{In: AllDevices, CT: Invalid, Do: Drop, Name: DropInvalid},
				{Out: AllDevices, CT: Invalid, Do: Drop, Name: DropInvalid},
				{In: TunnelDevice, Do: Goto, To: outOfTunnel},
				{In: OverlayDevice, Out: "!" + TunnelDevice, Do: Drop, Name: DropFromNode},
			},
			each(outsideIn),
		)},
		{Name: "local_in", Hook: HookInput, Priority: FilterPriority, Rules: slices.Concat(
			// An error about what is not tracked is about the packets of a tunnel, which come by other devices.
			[]Match{{In: AllDevices, CT: Invalid, Do: Drop, Name: DropInvalid}},
			errorsOfOthers,
			each(Match{In: TunnelDevice, Proto: "udp", Port: ProbePort, Set: Lookup{Name: "probes", Key: Src}, Do: Goto, To: DropTooMany}),
			[]Match{
				{In: AllDevices, Proto: "udp", Port: ProbePort, Do: Accept},
				{In: AllDevices, Family: V4, Proto: "icmp", Do: Accept},
				{In: AllDevices, Family: V6, Proto: "icmp", Do: Accept},
				{In: AllDevices, CT: Known, Do: Accept},
			},
			each(Match{In: TunnelDevice, CT: New, Set: Lookup{Name: "ports", Key: SrcDstService}, Do: Accept}),
			[]Match{{In: AllDevices, Do: Goto, To: DropToGateway}},
		)},
		{Name: "translate_out", NAT: true, Hook: HookPostrouting, Priority: SNATPriority, Rules: append(
			each(
				Match{Out: TunnelDevice, Do: SNAT, Map: Lookup{Name: "hosts_out", Key: DstSrc}},
				Match{Out: TunnelDevice, Do: SNATPrefix, Map: Lookup{Name: "snat", Key: DstSrc}},
				Match{Out: TunnelDevice, Set: Lookup{Name: "own", Key: Src, Not: true}, Do: SNAT, Map: Lookup{Name: "gateway", Key: Dst}},
			),
			Match{In: TunnelDevice, Out: OutsideDevices, Do: Masquerade},
		)},
		{Name: "guard_out", Hook: HookPostrouting, Priority: LastGuardPriority, Rules: each(
			Match{Out: TunnelDevice, Proto: "icmp", CT: Related, Set: Lookup{Name: "pairs", Key: DstSrc, Not: true}, Do: SetSrc, Map: Lookup{Name: "gateway", Key: Dst}},
			Match{Out: TunnelDevice, Set: Lookup{Name: "pairs", Key: DstSrc, Not: true}, Do: Drop, Name: DropToPeer},
		)},
	}...)
}

// outOfTunnel is the chain of what a gateway forwards for peers. All packets of a connection pass
// it, so few of its rules look at a device: to load the name of one costs the kernel more than
// most other conditions.
const outOfTunnel = "out_of_tunnel"

// passTunnel are its rules. Between two peers, as on nodes, each packet of a connection that a peer
// has opened needs the element.
func passTunnel(errorsOfOthers []Match) []Match {
	return slices.Concat(
		each(
			Match{Out: OutsideDevices, Set: Lookup{Name: "targets", Key: SrcDst, Not: true}, Do: Goto, To: DropToOutside},
			// Its view of us may be a range of its own as we see it: so goes what nothing has translated.
			Match{Out: TunnelDevice, Set: Lookup{Name: "back", Key: SrcDst}, Do: Goto, To: DropFromPeer},
		),
		errorsOfOthers,
		each(
			Match{CT: New, Set: Lookup{Name: "ports", Key: SrcDstService}, Do: Accept},
			Match{CT: New, Set: Lookup{Name: "limited", Key: SrcDst}, Do: Goto, To: DropToPort},
			Match{Out: OverlayDevice, CT: New, Set: Lookup{Name: "open", Key: SrcDst}, Do: Accept},
			Match{Out: OverlayDevice, CT: New, Set: Lookup{Name: "closed", Key: Dst}, Do: Goto, To: DropToNode},
			Match{Out: OverlayDevice, CT: New, Set: Lookup{Name: "served", Key: SrcDst}, Do: Accept},
			Match{Out: OverlayDevice, CT: New, Set: Lookup{Name: "services", Key: Dst}, Do: Goto, To: DropToPod},
		),
		[]Match{
			{Out: "!" + TunnelDevice, Do: Accept},
			{CT: Answer, Do: Accept},
			{CT: Related, Do: Accept},
		},
		each(Match{Set: Lookup{Name: "through", Key: SrcDst}, Do: Accept}),
		[]Match{{Do: Goto, To: DropToPod}},
	)
}

// probes are the sets with the ranges of peers whose probes are counted.
func probes() []Set {
	out := both("probes", 1, Rate)
	out[0].Rate, out[1].Rate = probesOfRange, probesOfRange
	return out
}

func (g gateway) elements() []Element {
	var e elements
	e.set("own", slices.Concat(g.in.Pods, g.in.External)...)
	e.set("services", g.in.Services...)
	nodes := g.nodes(&e)
	for _, p := range g.in.Peers {
		// What is no pod of the peer has no address in a third cluster: it gets the gateway's.
		e.set("own", slices.Concat(p.Theirs.Pods, p.Theirs.Transit)...)
		e.share(p.Theirs)
		for _, pod := range p.Served {
			e.pair("served", pod, g.in.servicesOf(p)...)
		}
		e.set("probes", p.Theirs.External...) // probes have no other source
		for _, r := range p.Theirs.All() {
			e.set("peers", r)
			e.set(Refused, r)
			e.pair("through", r, p.Through...)
			e.pair("back", r, p.Theirs.All()...)
			g.towards(&e, p, r)
			g.exposed(&e, g.in.exposedTo(p), nodes, r)
		}
	}
	return e
}

// towards adds the elements that translate packets from and to one range of a peer.
func (g gateway) towards(e *elements, p Peer, theirs netip.Prefix) {
	for _, m := range p.Ours {
		e.pair("pairs", theirs, m.View)
		e.pairTo("dnat", theirs, m.View, m.Own)
		e.pairTo("snat", theirs, m.Own, m.View)
	}
	for _, own := range g.in.External {
		if a, ok := p.Ours.Out(GatewayAddr(own)); ok {
			e.to("gateway", theirs, Single(a))
		}
	}
	known := map[netip.Addr]bool{}
	for _, ip := range g.in.exposedTo(p) {
		if ip.OnGateways() {
			continue // its range is translated
		}
		a, _ := p.Ours.Out(ip.External)
		e.pairTo("hosts_in", theirs, Single(a), Single(ip.Real))
		if !known[ip.Real] { // the lowest of several external addresses is the source
			e.pairTo("hosts_out", theirs, Single(ip.Real), Single(a))
			known[ip.Real] = true
		}
	}
}

// exposedTo are the IPs by which a peer reaches something, in order: those that are for it,
// of which it has a view.
func (in Input) exposedTo(p Peer) []IP {
	return slices.DeleteFunc(sortedIPs(in.IPs), func(ip IP) bool {
		_, ok := p.Ours.Out(ip.External)
		return !ok || !ip.For(p.ID)
	})
}

// nodes returns the addresses of the nodes, which send overlay packets, and adds those that a pod range holds: in some
// clouds nodes and pods share one range, and peers reach no node but by an IP.
func (g gateway) nodes(e *elements) map[netip.Addr]bool {
	nodes := map[netip.Addr]bool{}
	var all []netip.Addr
	for _, h := range g.in.Nodes {
		all = append(all, h.Addrs...)
		for _, a := range h.Addrs {
			nodes[a] = true
			if Within(Single(a), g.in.Pods) {
				e.set("closed", Single(a))
			}
		}
	}
	g.senders(e, all)
	return nodes
}

// exposed adds what one range of a peer reaches by its IPs: the real addresses, and of each
// the ports, if no IP of it is for all.
func (g gateway) exposed(e *elements, ips []IP, nodes map[netip.Addr]bool, theirs netip.Prefix) {
	all := allPorts(ips)
	for _, ip := range ips {
		host := Single(ip.Real)
		service := Within(host, g.in.Services)
		switch {
		case ip.OnGateways(): // no packet for it is forwarded
		case !nodes[ip.Real] && !service:
			e.pair("targets", theirs, host)
		case all[ip.Real] && (service || Within(host, g.in.Pods)):
			e.pair("open", theirs, host)
		}
		if all[ip.Real] {
			continue
		}
		e.pair("limited", theirs, host)
		for _, s := range ip.Ports {
			e.service("ports", theirs, host, s)
		}
	}
}

// allPorts returns the real addresses of which one of the IPs gives all ports.
func allPorts(ips []IP) map[netip.Addr]bool {
	all := map[netip.Addr]bool{}
	for _, ip := range ips {
		all[ip.Real] = all[ip.Real] || len(ip.Ports) == 0
	}
	return all
}

func sortedIPs(ips []IP) []IP {
	return slices.SortedFunc(slices.Values(ips), func(a, b IP) int { return a.External.Compare(b.External) })
}
