//go:build linux

package kernel

import (
	"errors"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/liqod/liqod/netfabric/plan"
)

// defaultMetric6 is the metric of an IPv6 route that is added without one (IP6_RT_PRIO_USER).
const defaultMetric6 = 1024

func (s *session) rules() kind[plan.Rule, netlink.Rule] {
	return kind[plan.Rule, netlink.Rule]{
		session: s, name: "rule",
		list: s.ourRules,
		read: readRule,
		id:   func(r plan.Rule) plan.Rule { return r },
		set:  func(r plan.Rule, _ bool) error { return s.nl.RuleAdd(rule(r)) },
		del:  func(r netlink.Rule) error { return s.nl.RuleDel(&r) },
	}
}

func (s *session) ourRules() (out []netlink.Rule, err error) {
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		all, err := s.nl.RuleList(family)
		if err != nil && !errors.Is(err, unix.EAFNOSUPPORT) { // a kernel with ipv6.disable=1
			return nil, err
		}
		out = append(out, slices.DeleteFunc(all, func(r netlink.Rule) bool { return !ourRule(r.Priority, r.Protocol) })...)
	}
	return out, nil
}

// ourRule reports whether a rule is ours. Rules of other programs may have the same
// priorities.
func ourRule(priority int, protocol uint8) bool {
	return protocol == plan.RouteProtocol && priority >= plan.SkipPriority && priority <= plan.EndPriority
}

func rule(r plan.Rule) *netlink.Rule {
	out := netlink.NewRule()
	out.Priority, out.Family, out.Protocol = r.Priority, familyOf(r.Family), plan.RouteProtocol
	out.Src, out.IifName, out.Mark, out.Table = ipNet(r.Src), r.In, r.Mark, r.Table
	switch {
	case r.Goto != 0:
		out.Goto = r.Goto
	case r.Table == 0:
		out.Type = nl.FR_ACT_NOP
	}
	return out
}

// readRule returns false for a rule with a condition that plan.Rule lacks.
func readRule(r netlink.Rule) (plan.Rule, bool) {
	out := plan.Rule{
		Priority: r.Priority,
		Family:   plan.V4,
		Src:      prefixOf(r.Src),
		In:       r.IifName,
		Mark:     r.Mark,
		Table:    r.Table,
		Goto:     max(r.Goto, 0),
	}
	if r.Family == netlink.FAMILY_V6 {
		out.Family = plan.V6
	}
	other := r.Dst != nil || r.OifName != "" || r.Invert || r.Tos != 0 || r.TunID != 0 ||
		r.Dport != nil || r.Sport != nil || r.IPProto != 0 || r.UIDRange != nil ||
		r.SuppressIfgroup >= 0 || r.SuppressPrefixlen >= 0 || r.Mask != nil && *r.Mask != ^uint32(0)
	return out, !other
}

// familyOf returns the number of a family, which rules and nftables (NFPROTO_IPV4 and NFPROTO_IPV6) have alike.
func familyOf(f plan.Family) int { return plan.Per(f, netlink.FAMILY_V4, netlink.FAMILY_V6) }

func (s *session) routes() kind[plan.Route, netlink.Route] {
	return kind[plan.Route, netlink.Route]{
		session: s, name: "route",
		list: s.ourRoutes,
		read: s.readRoute,
		id:   func(r plan.Route) plan.Route { return plan.Route{Table: r.Table, Dst: r.Dst} },
		set: func(r plan.Route, replaces bool) error {
			n, err := s.route(r)
			if err != nil {
				return err
			}
			if replaces {
				return s.nl.RouteReplace(n)
			}
			return s.nl.RouteAdd(n) // fails if another program has a route to the destination
		},
		del: func(r netlink.Route) error { return s.nl.RouteDel(&r) },
	}
}

// tables returns the routing tables of our routes.
func tables() []int { return []int{plan.PeersTable, plan.InsideTable} }

func (s *session) ourRoutes() (out []netlink.Route, err error) {
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		for _, table := range tables() {
			filter := &netlink.Route{Table: table, Protocol: plan.RouteProtocol}
			found, err := s.strict.RouteListFiltered(family, filter, netlink.RT_FILTER_TABLE|netlink.RT_FILTER_PROTOCOL)
			if err != nil && !errors.Is(err, unix.ENOENT) { // the table does not exist before its first route
				return nil, err
			}
			out = append(out, found...)
		}
	}
	return out, nil
}

func (s *session) route(r plan.Route) (*netlink.Route, error) {
	out := &netlink.Route{Table: r.Table, Dst: ipNet(r.Dst), Protocol: plan.RouteProtocol, Src: r.Src.AsSlice(), MTU: r.MTU}
	if r.Unreachable {
		out.Type = unix.RTN_UNREACHABLE
		return out, nil
	}
	index, err := s.index(r.Link)
	if err != nil {
		return nil, err
	}
	out.LinkIndex = index
	switch {
	case !r.Via.IsValid():
		out.Scope = netlink.SCOPE_LINK
	case r.Via.Is6() && r.Dst.Addr().Is4():
		out.Via = &netlink.Via{AddrFamily: unix.AF_INET6, Addr: r.Via.AsSlice()}
		out.SetFlag(netlink.FLAG_ONLINK)
	default:
		out.Gw = r.Via.AsSlice()
		out.SetFlag(netlink.FLAG_ONLINK)
	}
	return out, nil
}

// readRoute returns false for a route with a metric of its own: the kernel keeps it beside
// the planned route to the same destination.
func (s *session) readRoute(r netlink.Route) (plan.Route, bool) {
	out := plan.Route{Table: r.Table, Dst: prefixOf(r.Dst)}
	metric := 0
	if out.Dst.Addr().Is6() {
		metric = defaultMetric6
	}
	if r.Priority != metric || r.Tos != 0 {
		return out, false
	}
	if r.Type == unix.RTN_UNREACHABLE {
		out.Unreachable = true
		return out, true
	}
	out.Link, out.Src, out.MTU = s.name(r.LinkIndex), addrOf(r.Src), r.MTU
	out.Via = addrOf(r.Gw)
	if via, ok := r.Via.(*netlink.Via); ok {
		out.Via, _ = netip.AddrFromSlice(via.Addr)
	}
	return out, true
}

// Leads reports whether this host has a rule that leads to the routes of peers, and returns the addresses to which none of
// these routes leads over the overlay. It needs no privilege; what cannot be read counts as missing.
func Leads(to []netip.Addr) (rule bool, lost []netip.Addr) {
	var routes []netlink.Route
	overlay, failed := netlink.LinkByName(plan.OverlayDevice)
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		rules, _ := netlink.RuleList(family)
		rule = rule || slices.ContainsFunc(rules, func(r netlink.Rule) bool { return r.Table == plan.PeersTable })
		if failed == nil && overlay.Attrs().Flags&net.FlagUp != 0 {
			some, _ := netlink.RouteListFiltered(family, &netlink.Route{Table: plan.PeersTable, LinkIndex: overlay.Attrs().Index}, netlink.RT_FILTER_TABLE|netlink.RT_FILTER_OIF)
			routes = append(routes, some...)
		}
	}
	for _, a := range to {
		if !slices.ContainsFunc(routes, func(r netlink.Route) bool { return prefixOf(r.Dst).Contains(a) }) {
			lost = append(lost, a)
		}
	}
	return rule, lost
}
