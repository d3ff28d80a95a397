package plan

import (
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// FieldError is one error of an Input. The Input without the peer, or else the host, that
// the error names does not have that error.
type FieldError struct {
	Peer  string // ID of a peer, or empty
	Host  string // name of a node or gateway, or empty
	Field string // of Input, with dots
	Text  string // the value, the reason and the accepted values
}

// Error names the peer or host, the field and the reason.
func (e *FieldError) Error() string {
	who := ""
	if e.Peer != "" {
		who = fmt.Sprintf("peer %q: ", e.Peer)
	} else if e.Host != "" {
		who = fmt.Sprintf("host %q: ", e.Host)
	}
	return who + e.Field + ": " + e.Text
}

// The narrowest external range, in bits.
const narrowest4, narrowest6 = 27, 123

// CheckExternal returns an error if p is not a range that a cluster may have for what is no
// pod: one of its own, with room beside the addresses of gateways.
func CheckExternal(p netip.Prefix) error {
	if err := CheckRange(p); err != nil {
		return err
	}
	if narrowest := Per(family(p.Addr()), narrowest4, narrowest6); p.Bits() > narrowest {
		return fmt.Errorf("%s is narrower than /%d: the first %d addresses of an external range are the gateways'", p, narrowest, ReservedAddresses)
	}
	return nil
}

// place is where a value stands in an Input.
type place struct {
	peer, host, field string
}

type checker struct {
	in   Input
	errs []error
}

func (c *checker) fail(at place, format string, args ...any) {
	c.errs = append(c.errs, &FieldError{Peer: at.peer, Host: at.host, Field: at.field, Text: fmt.Sprintf(format, args...)})
}

func (c *checker) check(at place, err error) bool {
	if err != nil {
		c.fail(at, "%s", err)
	}
	return err == nil
}

// checkEach checks each value of a list by itself.
func checkEach[T any](c *checker, at place, list []T, check func(T) error) {
	for _, one := range list {
		c.check(at, check(one))
	}
}

// Check returns the errors of in, as joined FieldErrors, or nil. It compares values with one
// another only when each is valid by itself.
func (in Input) Check() error {
	c := &checker{in: in}
	c.own()
	c.hosts()
	for _, p := range in.Peers {
		c.peer(p)
	}
	c.names()
	c.ips()
	c.mtu()
	for _, together := range []func(){c.given, c.ranges, c.addresses} {
		if len(c.errs) == 0 {
			together()
		}
	}
	return errors.Join(c.errs...)
}

func (c *checker) own() {
	checkEach(c, place{field: "pods"}, c.in.Pods, CheckRange)
	c.external(place{field: "external"}, c.in.External)
	checkEach(c, place{field: "services"}, c.in.Services, CheckRange)
	if c.in.Ports.Overlay == 0 || c.in.Ports.Tunnel == 0 || c.in.Ports.Overlay == c.in.Ports.Tunnel {
		c.fail(place{field: "ports"}, "%d and %d: two different ports from 1 to 65535 are accepted", c.in.Ports.Overlay, c.in.Ports.Tunnel)
	}
}

// external checks external ranges: one of each family, with room for gateways.
func (c *checker) external(at place, list []netip.Prefix) {
	seen := map[Family]bool{}
	for _, p := range list {
		if !c.check(at, CheckExternal(p)) {
			continue
		}
		if f := family(p.Addr()); seen[f] {
			c.fail(at, "%s is the second of IPv%d: one is accepted", p, f)
		} else {
			seen[f] = true
		}
	}
}

func (c *checker) hosts() {
	f := c.in.underlay()
	for _, h := range c.in.Nodes {
		c.host(place{host: h.Name, field: "nodes"}, h.Addrs, f)
		for _, p := range h.Pods {
			at := place{host: h.Name, field: "nodes.pods"}
			if c.check(at, CheckRange(p)) && !Within(p, c.in.Pods) {
				c.fail(at, "%s is not within the own pod ranges %s", p, c.in.Pods)
			}
		}
	}
	numbers := map[int]string{}
	for _, g := range c.in.Gateways {
		at := place{host: g.Name, field: "gateways"}
		c.host(at, g.Addrs, f)
		c.number(at, g.Number, g.Name, numbers)
	}
}

func (c *checker) host(at place, addrs []netip.Addr, f Family) {
	if at.host == "" {
		c.fail(at, "a name is missing")
	}
	seen := map[Family]bool{}
	for _, a := range addrs {
		if !c.check(at, checkAddr(a)) {
			continue
		}
		if seen[family(a)] {
			c.fail(at, "%s is the second address of IPv%d: one is accepted", a, family(a))
		}
		seen[family(a)] = true
	}
	if !seen[f] {
		c.fail(at, "it has no IPv%d address, which the others are reached by", f)
	}
}

func (c *checker) number(at place, n int, name string, seen map[int]string) {
	if n < 1 || n > MaxReplicas {
		c.fail(at, "number %d: 1 to %d is accepted", n, MaxReplicas)
	} else if other, ok := seen[n]; ok {
		c.fail(at, "number %d is that of %q", n, other)
	}
	seen[n] = name
}

func (c *checker) peer(p Peer) {
	at := func(field string) place { return place{peer: p.ID, field: "peers." + field} }
	if p.ID == "" {
		c.fail(at("id"), "it is missing")
	}
	checkEach(c, at("theirs"), p.Theirs.All(), CheckRange)
	c.external(at("theirs.external"), p.Theirs.External)
	checkEach(c, at("ours"), p.Ours, Map.Check)
	numbers := map[int]string{}
	for _, g := range p.Gateways {
		c.number(at("gateways"), g.Number, g.Key, numbers)
		c.check(at("gateways.key"), checkKey(g.Key))
		if g.Next != "" {
			c.check(at("gateways.next"), checkKey(g.Next))
		}
		if g.Endpoint != (netip.AddrPort{}) {
			c.check(at("gateways.endpoint"), checkAddr(g.Endpoint.Addr()))
			if g.Endpoint.Port() == 0 {
				c.fail(at("gateways.endpoint"), "%s has no port", g.Endpoint)
			}
		}
	}
	if _, ok := numbers[p.Use]; !ok && p.Use != 0 {
		c.fail(at("use"), "there is no gateway %d", p.Use)
	}
	c.parts(at("reach"), p.Reach, c.in.Pods, "the own pod ranges %s")
	for _, port := range p.Ports {
		if !Within(Single(port.Addr()), c.in.Pods) || port.Port() == 0 {
			c.fail(at("ports"), "%s is no port of an address within the own pod ranges %s", port, c.in.Pods)
		}
	}
	c.parts(at("home"), p.Home, c.in.Pods, "the own pod ranges %s")
	c.parts(at("served"), p.Served, p.Theirs.Pods, "the pod ranges %s of the peer")
	checkEach(c, at("meant"), p.Meant, Map.Check)
	c.through(p)
}

// through checks the addresses in third clusters: each is in a range that the peer is given, and
// that is none of this cluster.
func (c *checker) through(p Peer) {
	own := slices.Concat(c.in.Pods, c.in.External, c.in.Services)
	given := slices.DeleteFunc(p.Ours.Owns(), func(r netip.Prefix) bool { return slices.Contains(own, r) })
	c.parts(place{peer: p.ID, field: "peers.through"}, p.Through, given, "the ranges of third clusters %s that it is given")
}

// parts checks that each range of a list is in one of others, which where names, and that they are apart.
func (c *checker) parts(at place, list, others []netip.Prefix, where string) {
	var good []netip.Prefix
	for _, r := range list {
		if !r.IsValid() || r != r.Masked() || !Within(r, others) {
			c.fail(at, "%s is not within "+where, r, others)
			continue
		}
		good = append(good, r)
	}
	c.apart(claims(at, good))
}

func checkKey(key string) error {
	raw, err := base64.StdEncoding.Strict().DecodeString(key)
	if err != nil || len(raw) != 32 {
		return fmt.Errorf("%q: the base64 of 32 bytes is accepted", key)
	}
	return nil
}

// names checks that names and keys are unique.
func (c *checker) names() {
	nodes, gateways, peers, keys := map[string]bool{}, map[string]bool{}, map[string]bool{}, map[string]string{}
	once := func(seen map[string]bool, name string, at place) {
		if seen[name] {
			c.fail(at, "it is there twice")
		}
		seen[name] = true
	}
	for _, h := range c.in.Nodes {
		once(nodes, h.Name, place{host: h.Name, field: "nodes"})
	}
	for _, g := range c.in.Gateways {
		once(gateways, g.Name, place{host: g.Name, field: "gateways"})
	}
	if c.in.Via != "" && !gateways[c.in.Via] {
		c.fail(place{field: "via"}, "there is no gateway %q", c.in.Via)
	}
	for _, p := range c.in.Peers {
		once(peers, p.ID, place{peer: p.ID, field: "peers.id"})
		if p.Via != "" && !gateways[p.Via] {
			c.fail(place{peer: p.ID, field: "peers.via"}, "there is no gateway %q", p.Via)
		}
		for _, g := range p.Gateways {
			for field, key := range map[string]string{"peers.gateways.key": g.Key, "peers.gateways.next": g.Next} {
				if other, ok := keys[key]; ok && key != "" {
					c.fail(place{peer: p.ID, field: field}, "%q is a key of peer %q", key, other)
				}
				keys[key] = p.ID
			}
		}
	}
}

func (c *checker) ips() {
	at := place{field: "ips"}
	seen := map[netip.Addr]bool{}
	for _, ip := range c.in.IPs {
		if !c.check(at, checkAddr(ip.External)) || !c.check(at, checkAddr(ip.Real)) {
			continue
		}
		if family(ip.External) != family(ip.Real) {
			c.fail(at, "%s and %s are of different IP versions", ip.External, ip.Real)
		}
		if !allocatable(ip.External, c.in.External) {
			c.fail(at, "%s is not an address of the external ranges %s behind their first %d", ip.External, c.in.External, ReservedAddresses)
		}
		if seen[ip.External] {
			c.fail(at, "%s is there twice", ip.External)
		}
		seen[ip.External] = true
		if ip.OnGateways() && len(ip.Ports) == 0 {
			c.fail(at, "%s is an address of gateways, and has no port: at least one is accepted", ip.External)
		}
		for _, s := range ip.Ports {
			if s.Proto != "tcp" && s.Proto != "udp" || s.Port == 0 {
				c.fail(at, "port %d of protocol %q of %s: ports from 1 to 65535 of tcp and udp are accepted", s.Port, s.Proto, ip.External)
			}
		}
	}
}

func allocatable(a netip.Addr, external []netip.Prefix) bool {
	return slices.ContainsFunc(external, func(p netip.Prefix) bool {
		return p.IsValid() && p.Contains(a) && a.Compare(nth(p, ReservedAddresses)) >= 0
	})
}

// given checks the ranges that peers are given: each is one of this cluster, or of a third.
func (c *checker) given() {
	from := map[netip.Prefix]string{}
	for _, p := range c.in.Peers {
		for _, r := range p.Theirs.All() {
			from[r] = p.ID
		}
	}
	for _, r := range slices.Concat(c.in.Pods, c.in.External, c.in.Services) {
		from[r] = ""
	}
	for _, p := range c.in.Peers {
		at := place{peer: p.ID, field: "peers.ours"}
		for _, m := range p.Ours {
			if owner, ok := from[m.Own]; !ok || owner == p.ID {
				c.fail(at, "%s is neither an own range nor one of another peer", m.Own)
			}
		}
		c.eachApart(at, p.Ours)
		c.eachApart(place{peer: p.ID, field: "peers.meant"}, p.Meant)
	}
}

// eachApart checks that of some maps the ranges of either side are apart.
func (c *checker) eachApart(at place, list Maps) {
	c.apart(claims(at, list.Owns()))
	c.apart(claims(at, list.Views()))
}

// claim is a prefix that may not overlap another one of a list, unless both are addresses.
type claim struct {
	prefix  netip.Prefix
	at      place
	address bool
}

// claims are those of ranges.
func claims(at place, ranges []netip.Prefix) (out []claim) {
	for _, r := range ranges {
		out = append(out, claim{r, at, false})
	}
	return out
}

// apart reports claims that overlap. Of a range and an address it blames the range. Prefixes nest or are disjoint, so
// sorted by their beginning each needs a comparison with the last one that nothing held.
func (c *checker) apart(claims []claim) {
	slices.SortStableFunc(claims, func(a, b claim) int {
		return cmp.Or(a.prefix.Addr().Compare(b.prefix.Addr()), cmp.Compare(a.prefix.Bits(), b.prefix.Bits()))
	})
	var outer claim
	for _, one := range claims {
		if !outer.prefix.IsValid() || !outer.prefix.Overlaps(one.prefix) || outer.address && one.address {
			outer = one
			continue
		}
		guilty, other := one, outer
		if one.address || !outer.address && one.at.peer+one.at.host < outer.at.peer+outer.at.host {
			guilty, other = outer, one
		}
		c.fail(guilty.at, "%s overlaps %s of %s", guilty.prefix, other.prefix, other.at)
	}
}

// String names a place in a message.
func (p place) String() string {
	return strings.TrimSpace(strings.Join([]string{p.field, p.peer + p.host}, " "))
}

// ranges checks that every address within this cluster leads to one place.
func (c *checker) ranges() {
	c.apart(slices.Concat(
		c.views(), claims(place{field: "pods"}, c.in.Pods), claims(place{field: "external"}, c.in.External), claims(place{field: "services"}, c.in.Services),
	))
	var pods []claim
	for _, h := range c.in.Nodes {
		pods = append(pods, claims(place{host: h.Name, field: "nodes.pods"}, h.Pods)...)
	}
	c.apart(pods)
}

// views are the ranges that lead to peers.
func (c *checker) views() (out []claim) {
	for _, p := range c.in.Peers {
		out = append(out, claims(place{peer: p.ID, field: "peers.theirs"}, p.Theirs.All())...)
	}
	return out
}

// addresses checks that no address that is needed outside the fabric leads into it, and
// that no two hosts have the same.
func (c *checker) addresses() {
	all, seen, macs := c.views(), map[netip.Addr]string{}, map[MAC]string{}
	host := func(at place, addrs []netip.Addr) {
		for _, a := range addrs {
			all = append(all, claim{Single(a), at, true})
			if other, ok := seen[a]; ok {
				c.fail(at, "%s is the address of %q", a, other)
			} else if other, ok := macs[macOf(a)]; ok {
				c.fail(at, "%s gives the hardware address of %q", a, other)
			}
			seen[a], macs[macOf(a)] = at.host, at.host
		}
	}
	for _, h := range c.in.Nodes {
		host(place{host: h.Name, field: "nodes"}, h.Addrs)
	}
	for _, g := range c.in.Gateways {
		host(place{host: g.Name, field: "gateways"}, g.Addrs)
	}
	for _, ip := range c.in.IPs {
		if ip.OnGateways() {
			continue
		}
		all = append(all, claim{Single(ip.Real), place{field: "ips"}, true})
		if slices.ContainsFunc(c.in.External, func(p netip.Prefix) bool { return p.Contains(ip.Real) }) {
			c.fail(place{field: "ips"}, "%s leads to %s of the external range", ip.External, ip.Real)
		}
	}
	c.apart(all)
}

func (c *checker) mtu() {
	least := MinMTU4
	if slices.Contains(c.in.families(), V6) {
		least = MinMTU6
	}
	if m := PathMTU(c.in.MTU, c.in.underlay(), 0); m < least || c.in.MTU > MaxMTU {
		c.fail(place{field: "mtu"}, "%d leaves %d to packets: %d to %d is accepted", c.in.MTU, m, least+tunnelOverhead, MaxMTU)
	}
	for _, p := range c.in.Peers {
		least := MinMTU4
		if len(only(p.Theirs.All(), V6)) > 0 {
			least = MinMTU6
		}
		if p.MTU != 0 && (p.MTU < least || p.MTU > MaxMTU) {
			c.fail(place{peer: p.ID, field: "peers.mtu"}, "%d: 0, and %d to %d are accepted", p.MTU, least, MaxMTU)
		}
	}
}

// Within reports whether p is part of a range of list.
func Within(p netip.Prefix, list []netip.Prefix) bool {
	return slices.ContainsFunc(list, func(r netip.Prefix) bool { return r.Bits() <= p.Bits() && r.Overlaps(p) })
}
