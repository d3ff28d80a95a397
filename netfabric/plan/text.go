package plan

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// String writes s in the words of ip, bridge, wg and nft, one line for each element, for
// people and for comparison.
func (s State) String() string {
	var b strings.Builder
	section(&b, "sysctl", s.Sysctls)
	section(&b, "link", s.Links)
	section(&b, "address", s.Addrs)
	section(&b, "neigh", s.Neighs)
	section(&b, "fdb", s.FDB)
	if s.Device.Name != "" {
		fmt.Fprintf(&b, "wg set %s listen-port %d fwmark %#x\n", s.Device.Name, s.Device.Port, s.Device.Mark)
		section(&b, "wg peer", s.Device.Peers)
		section(&b, "wg allowed-ips", s.Device.Allowed)
	}
	section(&b, "rule", s.Rules)
	section(&b, "route", s.Routes)
	b.WriteString(s.Table.String())
	return b.String()
}

func section[T fmt.Stringer](b *strings.Builder, name string, list []T) {
	for _, one := range list {
		fmt.Fprintf(b, "%s %s\n", name, one)
	}
}

// sorted gives s with all lists in order, without duplicates.
func (s State) sorted() State {
	s.Sysctls = ordered(s.Sysctls)
	s.Links = ordered(s.Links)
	s.Addrs = ordered(s.Addrs)
	s.Neighs = ordered(s.Neighs)
	s.FDB = ordered(s.FDB)
	s.Device.Peers = ordered(s.Device.Peers)
	s.Device.Allowed = ordered(s.Device.Allowed)
	s.Rules = ordered(s.Rules)
	s.Routes = ordered(s.Routes)
	s.Table.Elements = ordered(s.Table.Elements)
	return s
}

// ordered sorts elements by their text, which contains all of their fields.
func ordered[T interface {
	comparable
	fmt.Stringer
}](list []T) []T {
	type line struct {
		text string
		one  T
	}
	lines := make([]line, 0, len(list))
	for _, one := range list {
		lines = append(lines, line{one.String(), one})
	}
	slices.SortFunc(lines, func(a, b line) int { return cmp.Compare(a.text, b.text) })
	var out []T
	for _, l := range lines {
		if len(out) == 0 || out[len(out)-1] != l.one {
			out = append(out, l.one)
		}
	}
	return out
}

// words joins the parts that are not empty.
func words(parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), " ")
}

// when writes a part if ok.
func when(ok bool, format string, args ...any) string {
	if !ok {
		return ""
	}
	return fmt.Sprintf(format, args...)
}

// String writes s as sysctl does, with slashes.
func (s Sysctl) String() string { return s.Name + " = " + s.Value }

// String writes l as ip does.
func (l Link) String() string {
	return words(
		l.Name, fmt.Sprintf("mtu %d", l.MTU),
		when(l.Kind == VXLAN, "address %s", l.MAC),
		"type "+string(l.Kind),
		when(l.Kind == VXLAN, "id %d local %s dstport %d nolearning", l.ID, l.Local, l.Port),
	)
}

// String writes a as ip does.
func (a Addr) String() string { return fmt.Sprintf("%s dev %s nodad", a.Prefix, a.Link) }

// String writes n as ip does.
func (n Neigh) String() string {
	return fmt.Sprintf("%s lladdr %s dev %s nud permanent", n.Addr, n.MAC, n.Link)
}

// String writes f as bridge does.
func (f FDB) String() string {
	return fmt.Sprintf("%s dev %s dst %s self permanent", f.MAC, f.Link, f.Remote)
}

// String writes t as wg does.
func (t Tunnel) String() string {
	return words(t.Key, when(t.Endpoint.IsValid(), "endpoint %s", t.Endpoint), fmt.Sprintf("persistent-keepalive %.0f", t.Keepalive.Seconds()))
}

// String writes a with its prefix first.
func (a Allowed) String() string { return fmt.Sprintf("%s of %s", a.Prefix, a.Key) }

// String writes r as ip does.
func (r Route) String() string {
	return words(
		fmt.Sprintf("table %d", r.Table),
		when(r.Unreachable, "unreachable"),
		r.Dst.String(),
		when(r.Via.IsValid(), "via %s", r.Via),
		when(r.Link != "", "dev %s", r.Link),
		when(r.Via.IsValid(), "onlink"),
		when(r.Src.IsValid(), "src %s", r.Src),
		when(r.MTU != 0, "mtu %d", r.MTU),
		fmt.Sprintf("proto %d", RouteProtocol),
	)
}

// String writes r as ip does, with the family first.
func (r Rule) String() string {
	return words(
		fmt.Sprintf("-%d priority %d", r.Family, r.Priority),
		when(r.Src.IsValid(), "from %s", r.Src),
		when(r.In != "", "iif %s", r.In),
		when(r.Mark != 0, "fwmark %#x", r.Mark),
		when(r.Table != 0, "lookup %d", r.Table),
		when(r.Goto != 0, "goto %d", r.Goto),
		when(r.Table == 0 && r.Goto == 0, "nop"),
	)
}

// String writes e as nft does.
func (e Element) String() string {
	return words(e.Set, "{", Short(e.A), when(e.B.IsValid(), ". %s", Short(e.B)),
		when(e.Service != Service{}, ". %s . %d", e.Service.Proto, e.Service.Port), when(e.Value.IsValid(), ": %s", Short(e.Value)), "}")
}

// Short writes a prefix, and an address without its length.
func Short(p netip.Prefix) string {
	if p.IsSingleIP() {
		return p.Addr().String()
	}
	return p.String()
}

// String writes t as nft reads it, sets without their elements, which follow one by one.
func (t Table) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "table inet %s {\n", t.Name)
	for _, s := range t.Sets {
		fmt.Fprintf(&b, "\t%s\n", s)
	}
	for _, c := range t.Chains {
		b.WriteString(c.String())
	}
	b.WriteString("}\n")
	for _, e := range t.Elements {
		fmt.Fprintf(&b, "add element inet %s %s\n", t.Name, e)
	}
	return b.String()
}

// String writes s as nft does.
func (s Set) String() string {
	kind, value, counter, one := "set", "", "", fmt.Sprintf("ipv%d_addr", s.Family)
	switch s.Value {
	case Counter:
		counter = " counter;"
	case Rate:
		counter = fmt.Sprintf(" limit rate over %d/second burst %d packets;", s.Rate, RateBurst*s.Rate)
	case Address:
		kind, value = "map", " : "+one
	case Prefix:
		kind, value = "map", " : interval "+one
	}
	keys := one
	if s.Keys > 1 {
		keys += " . " + one
	}
	if s.Keys > 2 {
		keys += " . inet_proto . inet_service"
	}
	return fmt.Sprintf("%s %s { type %s%s; flags interval;%s }", kind, s.Name, keys, value, counter)
}

// String writes c as nft does.
func (c Chain) String() string {
	kind := "filter"
	if c.NAT {
		kind = "nat"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "\tchain %s {\n", c.Name)
	if c.Hook != "" {
		fmt.Fprintf(&b, "\t\ttype %s hook %s priority %d; policy accept;\n", kind, c.Hook, c.Priority)
	}
	for _, m := range c.Rules {
		fmt.Fprintf(&b, "\t\t%s\n", m)
	}
	b.WriteString("\t}\n")
	return b.String()
}

// String writes m as nft does.
func (m Match) String() string {
	return words(
		m.protocol(),
		when(m.Port != 0, "%s dport %d", m.Proto, m.Port),
		when(m.From != 0, "%s sport %d", m.Proto, m.From),
		when(m.SYN, "tcp flags & (syn | rst) == syn"),
		string(m.CT),
		device("iifname", m.In), device("oifname", m.Out),
		when(m.Local, "fib daddr type local"),
		when(m.Stays, "fib daddr type 2-5"),
		when(m.Set.Name != "", "%s %s@%s", m.key(m.Set.Key), when(m.Set.Not, "!= "), m.Set.Name),
		m.action(),
		when(m.Name != "", "comment %q", m.Name),
	)
}

func device(word, name string) string {
	if rest, not := strings.CutPrefix(name, "!"); not {
		return fmt.Sprintf("%s != %q", word, rest)
	}
	return when(name != "", "%s %q", word, name)
}

// protocol writes the conditions on protocol and family that no other one implies.
func (m Match) protocol() string {
	switch {
	case m.Proto == "icmp" && m.Family == V6:
		return "meta l4proto ipv6-icmp"
	case m.Proto == "icmp":
		return "meta l4proto icmp"
	}
	return ""
}

func (m Match) key(k Key) string {
	addresses, service := strings.CutSuffix(string(k), ofService)
	ip := m.ip() + " "
	inner := Per(cmp.Or(m.Family, V4), "@th,192,32", "@th,256,128")
	return strings.NewReplacer("saddr", ip+"saddr", "daddr", ip+"daddr", "inner", inner).Replace(addresses) + when(service, ofService)
}

// ip is the word for the headers of the family.
func (m Match) ip() string { return Per(cmp.Or(m.Family, V4), "ip", "ip6") }

func (m Match) action() string {
	ip := m.ip()
	switch m.Do {
	case Drop:
		return "counter drop"
	case Goto:
		return words(string(m.Do), m.To)
	case SNAT, DNAT, SNATPrefix, DNATPrefix:
		kind, prefix, _ := strings.Cut(string(m.Do), " ")
		return words(kind, ip, prefix, "to", m.key(m.Map.Key), "map", "@"+m.Map.Name)
	case SetSrc:
		return fmt.Sprintf("%s %s %s map @%s", ip, m.Do, m.key(m.Map.Key), m.Map.Name)
	}
	return string(m.Do)
}
