package plan

import (
	"net/netip"
	"slices"
)

// Input describes one cluster, and its peers as it sees them. Node and Gateway both take it.
// They do not change it, and its order does not matter.
type Input struct {
	Self     string         // which of Nodes, or of Gateways, the state is for
	Pods     []netip.Prefix // own pod ranges
	Services []netip.Prefix // own ranges of Services that peers are given
	External []netip.Prefix // own external ranges, at most one of each family
	Nodes    []Host
	Gateways []Replica
	Via      string // of Gateways, the one that this node uses, but for peers with a Via of their own; empty: none, packets are refused
	Peers    []Peer
	IPs      []IP
	Ports    Ports
	// AnySender lets hosts take the overlay's packets from every address. Else a node takes them
	// from gateways and the nodes of these only, and a gateway from nodes only.
	AnySender bool
	MTU       int // smallest MTU of the networks below: between nodes and gateways, and towards peers
}

// Host is a node.
type Host struct {
	Name  string
	Addrs []netip.Addr   // at most one of each family
	Pods  []netip.Prefix // of its pods, within the own pod ranges; any number, of any length
}

// Replica is a gateway of this cluster. All replicas forward; nodes and peers choose.
type Replica struct {
	Name   string
	Number int          // 1 to MaxReplicas, and the same as long as the replica lives
	Addrs  []netip.Addr // at most one of each family
	// Node that it runs on, whose address a CNI may put into its packets; empty: none.
	Node string
}

// Peer is another cluster.
type Peer struct {
	ID       string
	Theirs   Ranges // as this cluster sees them
	Ours     Maps   // ranges that are given to it, as it sees them; Own may be a range of a third cluster as this one sees it
	Gateways []Remote
	Use      int    // number of the one in use; 0: none
	Via      string // of the own gateways, the one that this node uses for it; empty: Input.Via
	MTU      int    // PathMTU that it announces, in bytes; 0: not known
	// Reach are the addresses, or ranges, of pods on the node in.Self that it opens connections
	// to, at all ports, beside what IPs name. Only Node uses it.
	Reach []netip.Prefix
	// Ports are addresses of pods on the node in.Self with the one TCP port that it opens connections
	// to, beside Reach. Only Node uses it.
	Ports []netip.AddrPort
	// Home are pods on the node in.Self to which addresses mean what they mean in the peer, as Meant
	// has it: Own is a range in the peer, View the same here. Only Node uses both.
	Home  []netip.Prefix
	Meant Maps
	// Served are the addresses of pods in the peer that open connections to own Services. Only Gateway
	// uses it.
	Served []netip.Prefix
	// Through are the addresses of pods in third clusters, within ranges that it is given, that it
	// opens connections to through this cluster. Only Gateway uses it.
	Through []netip.Prefix
}

// Ranges are the address ranges of a peer.
type Ranges struct {
	Pods     []netip.Prefix
	External []netip.Prefix // at most one of each family
	Transit  []netip.Prefix // of clusters behind it
	Services []netip.Prefix // of its Services: answers have such sources, nothing else
}

// All returns the ranges of all kinds.
func (r Ranges) All() []netip.Prefix {
	return slices.Concat(r.Pods, r.External, r.Transit, r.Services)
}

// servicesOf are the own ranges of Services that a peer is given.
func (in Input) servicesOf(p Peer) []netip.Prefix {
	return slices.DeleteFunc(slices.Clone(in.Services), func(s netip.Prefix) bool {
		return !slices.ContainsFunc(p.Ours, func(m Map) bool { return m.Own == s })
	})
}

// Remote is a gateway of a peer.
type Remote struct {
	Number   int            // as in Replica
	Key      string         // WireGuard public key, base64
	Endpoint netip.AddrPort // not valid: it dials
	Next     string         // another key of the same gateway, which has no packets; empty: none
	Name     string         // among the gateways of the peer; nothing is planned by it
}

// IP gives an address outside the own pod ranges an address of the external range, under
// which peers and own pods reach it. Towards peers it also has that address as a source.
// The address of a pod is reached by the pod range as well, by peers that the IP is not for
// at all ports. Peers may so reach the address of a Service by a gateway that is a pod, own
// pods not: a node translates a packet once. If Real is External, each gateway has the address
// itself, and peers reach a process there at the ports.
type IP struct {
	External, Real netip.Addr
	Peer           string    // ID of the one peer that it is for; empty: for all
	Ports          []Service // of Real, that it is for; empty: for all protocols and ports. Those of all IPs of Real add up
}

// Service is a port of a protocol.
type Service struct {
	Proto string // "tcp" or "udp"
	Port  uint16
}

// OnGateways reports whether gateways have the address themselves.
func (ip IP) OnGateways() bool { return ip.Real == ip.External }

// For reports whether the peer with the ID id reaches Real by ip.
func (ip IP) For(id string) bool { return ip.Peer == "" || ip.Peer == id }

// Ports are UDP ports of this cluster.
type Ports struct {
	Overlay, Tunnel uint16
}

// GatewayAddr is the address within an external range that all gateways of the cluster
// share: the source of their ICMP errors, and of packets from outside the own ranges.
func GatewayAddr(external netip.Prefix) netip.Addr { return nth(external, GatewayOffset) }

// ReplicaAddr is the address within an external range of one gateway, for probes. number is
// 1 to MaxReplicas.
func ReplicaAddr(external netip.Prefix, number int) netip.Addr {
	return nth(external, GatewayOffset+number)
}

// nth is the address n above the first of a range that has at least ReservedAddresses.
func nth(p netip.Prefix, n int) netip.Addr {
	bytes := p.Masked().Addr().AsSlice()
	bytes[len(bytes)-1] += byte(n)
	a, _ := netip.AddrFromSlice(bytes)
	return a
}

// first is the first address of family f.
func first(list []netip.Addr, f Family) (netip.Addr, bool) {
	i := slices.IndexFunc(list, func(a netip.Addr) bool { return family(a) == f })
	if i < 0 {
		return netip.Addr{}, false
	}
	return list[i], true
}

// only are the prefixes of family f.
func only(list []netip.Prefix, f Family) []netip.Prefix {
	return slices.DeleteFunc(slices.Clone(list), func(p netip.Prefix) bool { return family(p.Addr()) != f })
}

// families are the IP versions of the ranges that in carries packets for.
func (in Input) families() (out []Family) {
	ranges := append(slices.Clone(in.Pods), in.External...)
	for _, p := range in.Peers {
		ranges = append(ranges, p.Theirs.All()...)
	}
	for _, f := range []Family{V4, V6} {
		if len(only(ranges, f)) > 0 {
			out = append(out, f)
		}
	}
	return out
}

// underlay is the IP version of the packets between nodes and gateways: IPv6 where a gateway has no
// IPv4, or where the nodes have nothing but IPv6.
func (in Input) underlay() Family {
	have := func(f Family) func(Host) bool {
		return func(h Host) bool { _, ok := first(h.Addrs, f); return ok }
	}
	lacks := func(g Replica) bool { _, ok := first(g.Addrs, V4); return !ok }
	if slices.ContainsFunc(in.Gateways, lacks) || (slices.ContainsFunc(in.Nodes, have(V6)) && !slices.ContainsFunc(in.Nodes, have(V4))) {
		return V6
	}
	return V4
}
