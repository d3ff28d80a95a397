package plan

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"time"
)

// State is the desired, or the observed, state of one node or gateway. Every slice but the
// sets, the chains and their rules is sorted and holds no element twice, so that equal inputs
// give equal states. Devices are named, never numbered: indexes belong to the executor.
//
// The executor adds and changes in the order of the fields, and deletes the rest in the
// reverse order. It observes and deletes only our things: devices by DevicePrefix with all
// on them, routes by RouteProtocol in our tables, rules by our priorities, the nftables
// table by its name.
type State struct {
	Sysctls []Sysctl
	Links   []Link
	Addrs   []Addr
	Neighs  []Neigh
	FDB     []FDB
	Device  Device
	Table   Table
	Rules   []Rule
	Routes  []Route
}

// Sysctl is a setting below /proc/sys: Name with slashes. An executor that may not write it
// fails only if it has another value.
type Sysctl struct {
	Name, Value string
}

// Kind is the kind of a link.
type Kind string

// The kinds of links.
const (
	VXLAN     Kind = "vxlan"
	WireGuard Kind = "wireguard"
)

// Link is a network device of ours, identified by its name. Changing Kind, ID, Port or Local
// takes a new device; MTU and MAC change in place. A VXLAN device does not learn.
type Link struct {
	Name string
	Kind Kind
	MTU  int

	// Of VXLAN only.
	ID    int // network identifier
	Port  uint16
	Local netip.Addr // underlay address
	MAC   MAC
}

// MAC is a hardware address.
type MAC [6]byte

// String writes m as hexadecimal bytes with colons.
func (m MAC) String() string { return net.HardwareAddr(m[:]).String() }

// Addr is an address on a link, without duplicate address detection.
type Addr struct {
	Link   string
	Prefix netip.Prefix
}

// Neigh is a permanent neighbour entry, identified by Link and Addr.
type Neigh struct {
	Link string
	Addr netip.Addr
	MAC  MAC
}

// FDB is a permanent forwarding entry of a VXLAN device, identified by Link and MAC: frames
// for MAC go to the underlay address Remote.
type FDB struct {
	Link   string
	MAC    MAC
	Remote netip.Addr
}

// Device is the configuration of TunnelDevice, without the private key. On nodes it is the
// zero value.
type Device struct {
	Name    string // empty: no such device
	Port    uint16
	Mark    uint32 // fwmark of its encrypted packets
	Peers   []Tunnel
	Allowed []Allowed
}

// Tunnel is one WireGuard peer, identified by its key.
type Tunnel struct {
	Key string // public key, base64 as wg writes it

	// Endpoint is the address for the first handshake; not valid: the peer dials. WireGuard
	// follows a peer that moves, so the executor sets Endpoint on a new peer, on one without
	// a handshake in the last three minutes, and when a failed probe demands it. It never
	// resets the address of a peer that works.
	Endpoint  netip.AddrPort
	Keepalive time.Duration
}

// Allowed gives the addresses of Prefix to the peer with the key: packets to them go to it,
// and from it only packets with such sources are taken. A prefix has one key at a time:
// given to another key it moves at once, so additions come before deletions, and a deletion
// names the key that it is taken from.
type Allowed struct {
	Key    string
	Prefix netip.Prefix
}

// Route is a route with RouteProtocol, identified by Table and Dst: one that differs only in
// the other fields replaces the old one in one step.
type Route struct {
	Table int
	Dst   netip.Prefix

	// Unreachable refuses packets; then the fields below are zero.
	Unreachable bool

	Link string
	Via  netip.Addr // next hop, on link; may be IPv6 for an IPv4 Dst; not valid: none
	Src  netip.Addr // preferred source of local packets; not valid: none
	MTU  int        // of packets to Dst; 0: the link's
}

// Family is an IP version.
type Family uint8

// The families.
const (
	V4 Family = 4
	V6 Family = 6
)

// Rule is a routing rule. The fields before Table are conditions, if not zero. Table looks
// in that table; Goto goes on at that priority; with neither the rule does nothing (nop).
type Rule struct {
	Priority int
	Family   Family
	Src      netip.Prefix
	In       string // device of arrival
	Mark     uint32
	Table    int
	Goto     int
}

// Table is our nftables table, of family inet. Sets and Chains are the same for every peer
// and node, and change with a version of liqod and with the ports only; all else is in
// Elements. The
// executor replaces the whole table in one transaction if the chain that Marker names is not
// in it, and writes that chain, without hook or rules, with it. Else it changes elements
// only, in one transaction that deletes before it adds, because elements must not overlap.
type Table struct {
	Name     string
	Sets     []Set
	Chains   []Chain
	Elements []Element
}

// Value is the kind of value that a set maps its keys to.
type Value string

// The values of sets.
const (
	NoValue Value = ""        // a set
	Counter Value = "counter" // a set of which each element counts the packets that a rule finds in it
	Rate    Value = "rate"    // a set of which a rule finds an element only for packets above Set.Rate
	Address Value = "address" // a map to an address
	Prefix  Value = "prefix"  // a map to a prefix of the key's length
)

// Set is a set or map of which every key is a prefix or two of them (flags interval).
type Set struct {
	Name   string
	Family Family
	Keys   int // parts of a key: 1 or 2 prefixes; 4: two prefixes, a protocol and a port
	Value  Value
	Rate   int // of Rate: packets a second for each element, and 8 times as many at once
}

// Element is an element of a set, without its counter. B is valid if the set has two keys or four,
// Service is not zero if it has four, Value is valid if it is a map; an address is a prefix of full length.
// No two elements of a set overlap.
type Element struct {
	Set     string
	A, B    netip.Prefix
	Service Service
	Value   netip.Prefix
}

// Hook is a base chain's place.
type Hook string

// The hooks.
const (
	HookPrerouting  Hook = "prerouting"
	HookInput       Hook = "input"
	HookForward     Hook = "forward"
	HookOutput      Hook = "output"
	HookPostrouting Hook = "postrouting"
)

// Chain is a base chain with policy accept. Type nat needs NAT, else it is filter. Without a Hook it
// is one that rules of the chains after it go to.
type Chain struct {
	Name     string
	NAT      bool
	Hook     Hook
	Priority int
	Rules    []Match
}

// Match is a rule of a chain. Each field before Do that is not zero is a condition, and all
// must hold.
type Match struct {
	// In and Out are the devices of arrival and departure: a name, a prefix of names that
	// ends in *, either with ! before it for all others.
	In, Out string

	Family Family // IPv4 or IPv6
	Proto  string // "udp", "tcp", or "icmp" for ICMP and ICMPv6 as Family says
	Port   uint16 // destination
	From   uint16 // source port
	Local  bool   // fib daddr type local
	Stays  bool   // fib daddr type 2-5, which is local, broadcast, anycast or multicast: the host delivers to itself
	SYN    bool   // tcp flags & (syn | rst) == syn
	CT     CT     // empty: any
	Set    Lookup // the key is in the set
	Do     Action
	Map    Lookup // for SNAT, DNAT, their Prefix forms and SetSrc; a key that is not in the map leaves the rule
	To     string // for Goto: the chain
	Name   string // of the counter of Drop, as a comment of the rule; rules may share a name
}

// CT is a condition on the entry of a packet in connection tracking, in the words of nft.
type CT string

// The conditions.
const (
	Known   CT = ctState + "established,related"
	New     CT = ctState + "new"
	Related CT = ctState + "related"
	Invalid CT = ctState + "invalid"
	// First is the first packet of a connection, which is not in the table yet: a connection that nobody
	// answers stays New.
	First CT = "ct status ! confirmed"
	// Redirected is of a connection whose destination this host has translated.
	Redirected CT = "ct status dnat"
	// Answer is of a connection that the destination has opened.
	Answer CT = "ct direction reply"

	ctState = "ct state "
)

// Lookup looks up a key in a set.
type Lookup struct {
	Name string
	Key  Key
	Not  bool // it is not in the set
}

// Key is the part of a packet that is looked up.
type Key string

// The keys, as nft writes them without the family. SrcInner is for ICMP errors: it has the
// destination of the packet that the error is about, and nft can list it but not read it.
const (
	Src    Key = "saddr"
	Dst    Key = "daddr"
	SrcDst Key = "saddr . daddr"
	DstSrc Key = "daddr . saddr"

	SrcDstService Key = SrcDst + ofService
	SrcInner      Key = "saddr . inner"
)

// ofService is the part of a key that a Service is looked up by.
const ofService = " . meta l4proto . th dport"

// Action is the effect of a rule.
type Action string

// The actions. Drop counts its packets. Count does nothing: the element that the rule found has
// counted. SNAT and DNAT look in Match.Map, and translate the
// connection to the address that is found there; SNATPrefix and DNATPrefix to the prefix, so
// that the host part stays. SetSrc writes the address that is found into the one packet, and
// corrects its checksums.
const (
	Accept     Action = "accept"
	Drop       Action = "drop"
	Count      Action = ""
	Goto       Action = "goto"
	NoTrack    Action = "notrack"
	SNAT       Action = "snat"
	DNAT       Action = "dnat"
	SNATPrefix Action = "snat prefix"
	DNATPrefix Action = "dnat prefix"
	SetSrc     Action = "saddr set"
	Masquerade Action = "masquerade"
	ClampMSS   Action = "tcp option maxseg size set rt mtu"
)

// Marker names the Sets and Chains of t: equal ones have equal markers, others differ. It is
// the name of an empty chain that the executor adds to the table.
func (t Table) Marker() string {
	sum := sha256.Sum256(fmt.Append(nil, t.Sets, t.Chains))
	return "schema_" + hex.EncodeToString(sum[:6])
}

// Diff returns the elements of want that have lacks, in the order of want, and the elements
// of have that want lacks, in the reverse order of have.
func Diff[T comparable](want, have []T) (add, del []T) {
	wanted, had := map[T]bool{}, map[T]bool{}
	for _, w := range want {
		wanted[w] = true
	}
	for _, h := range have {
		had[h] = true
	}
	for _, w := range want {
		if !had[w] {
			add = append(add, w)
			had[w] = true
		}
	}
	for i := len(have) - 1; i >= 0; i-- {
		if h := have[i]; !wanted[h] {
			del = append(del, h)
			wanted[h] = true
		}
	}
	return add, del
}
