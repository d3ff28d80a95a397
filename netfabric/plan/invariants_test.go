package plan

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// checkState checks what an executor and a kernel rely on, whatever the input was.
func checkState(t *testing.T, s State) {
	t.Helper()
	require.Equal(t, s, s.sorted(), "it is in order and holds nothing twice")
	checkTable(t, s.Table)
	checkRoutes(t, s)
	checkDevice(t, s.Device)

	links := map[string]bool{}
	for _, l := range s.Links {
		require.False(t, links[l.Name], "%s is there twice", l)
		require.LessOrEqual(t, len(l.Name), 15)
		require.Positive(t, l.MTU)
		links[l.Name] = true
	}
	for _, a := range s.Addrs {
		require.True(t, links[a.Link], "%s: no such device", a)
		require.True(t, a.Prefix.IsSingleIP())
	}
	for _, r := range s.Rules {
		require.True(t, r.Priority >= SkipPriority && r.Priority <= EndPriority, "%s", r)
		require.True(t, r.Family == V4 || r.Family == V6)
		if r.Goto != 0 {
			end := Rule{Priority: r.Goto, Family: r.Family}
			require.Contains(t, s.Rules, end, "%s leads nowhere", r)
			require.Greater(t, r.Goto, r.Priority)
		}
	}
}

func checkRoutes(t *testing.T, s State) {
	t.Helper()
	type id struct {
		table int
		dst   netip.Prefix
	}
	seen, neighs, macs := map[id]bool{}, map[netip.Addr]MAC{}, map[MAC]bool{}
	for _, f := range s.FDB {
		require.False(t, macs[f.MAC], "%s is there twice", f.MAC)
		macs[f.MAC] = true
		require.Equal(t, f.MAC, macOf(f.Remote))
		require.Equal(t, family(s.Links[0].Local), family(f.Remote), "one end of the overlay is of another IP version")
	}
	for _, n := range s.Neighs {
		require.NotContains(t, neighs, n.Addr, "it is there twice")
		neighs[n.Addr] = n.MAC
		require.True(t, macs[n.MAC], "%s: no forwarding entry", n)
	}
	for _, r := range s.Routes {
		one := id{r.Table, r.Dst}
		require.False(t, seen[one], "%s is there twice", r)
		seen[one] = true
		require.Equal(t, r.Dst, r.Dst.Masked())
		require.Contains(t, []int{PeersTable, InsideTable}, r.Table)
		if r.Unreachable {
			require.Equal(t, Route{Table: r.Table, Dst: r.Dst, Unreachable: true}, r)
			continue
		}
		require.True(t, slices.ContainsFunc(s.Links, func(l Link) bool { return l.Name == r.Link && r.MTU <= l.MTU }), "%s", r)
		if r.Via.IsValid() {
			require.Contains(t, neighs, r.Via, "%s: no neighbour", r)
		}
		if r.Src.IsValid() {
			require.Equal(t, family(r.Dst.Addr()), family(r.Src))
		}
	}
}

func checkDevice(t *testing.T, d Device) {
	t.Helper()
	keys, prefixes := map[string]bool{}, map[netip.Prefix]bool{}
	for _, p := range d.Peers {
		require.False(t, keys[p.Key], "%s is there twice", p)
		keys[p.Key] = true
	}
	for _, a := range d.Allowed {
		require.False(t, prefixes[a.Prefix], "%s is of two peers", a)
		prefixes[a.Prefix] = true
		require.True(t, keys[a.Key], "%s: no such peer", a)
	}
}

// checkTable checks that rules and sets fit, and that the kernel takes the elements.
func checkTable(t *testing.T, table Table) {
	t.Helper()
	sets, used := map[string]Set{}, map[string]bool{}
	for _, s := range table.Sets {
		require.NotContains(t, sets, s.Name)
		sets[s.Name] = s
	}
	base := slices.IndexFunc(table.Chains, func(c Chain) bool { return c.Hook != "" })
	for i, c := range table.Chains {
		require.Equal(t, i >= base, c.Hook != "", "%s: the kernel adds rules after the chains that they go to", c.Name)
		for _, m := range c.Rules {
			require.Equal(t, m.Do == Goto, slices.ContainsFunc(table.Chains[:base], func(to Chain) bool { return to.Name == m.To }), "%s in %s", m, c.Name)
			checkLookup(t, sets, m, m.Set, map[Action]Value{Count: Counter}[m.Do])
			used[m.Set.Name], used[m.Map.Name] = true, true
			want := map[Action]Value{SNAT: Address, DNAT: Address, SetSrc: Address, SNATPrefix: Prefix, DNATPrefix: Prefix}[m.Do]
			require.Equal(t, want != NoValue, m.Map.Name != "", "%s", m)
			checkLookup(t, sets, m, m.Map, want)
			require.Equal(t, c.NAT, slices.Contains([]Action{SNAT, DNAT, SNATPrefix, DNATPrefix, Masquerade}, m.Do), "%s in %s", m, c.Name)
		}
	}
	for name := range sets {
		require.True(t, used[name], "no rule uses %s", name)
	}
	for i, e := range table.Elements {
		s, ok := sets[e.Set]
		require.True(t, ok, "%s: no such set", e)
		require.Equal(t, s.Keys > 1, e.B.IsValid(), "%s", e)
		require.Equal(t, s.Keys > 2, e.Service != Service{}, "%s", e)
		require.Equal(t, s.Value == Address || s.Value == Prefix, e.Value.IsValid(), "%s", e)
		for _, p := range []netip.Prefix{e.A, e.B, e.Value} {
			require.True(t, !p.IsValid() || family(p.Addr()) == s.Family && p == p.Masked(), "%s", e)
		}
		switch s.Value {
		case Address:
			require.True(t, e.Value.IsSingleIP(), "%s", e)
		case Prefix:
			require.Equal(t, e.Value.Bits(), lastKey(e).Bits(), "%s", e)
		}
		if i+200 > len(table.Elements) { // the last ones do for large inputs
			for _, o := range table.Elements[:i] {
				require.False(t, o.Set == e.Set && overlap(o, e), "%s overlaps %s", o, e)
			}
		}
	}
}

func lastKey(e Element) netip.Prefix {
	if e.B.IsValid() {
		return e.B
	}
	return e.A
}

func overlap(a, b Element) bool {
	return a.A.Overlaps(b.A) && (!a.B.IsValid() || a.B.Overlaps(b.B)) && a.Service == b.Service
}

func checkLookup(t *testing.T, sets map[string]Set, m Match, l Lookup, want Value) {
	t.Helper()
	if l.Name == "" {
		return
	}
	s, ok := sets[l.Name]
	require.True(t, ok, "%s: no set %s", m, l.Name)
	require.Equal(t, m.Family, s.Family, "%s", m)
	if s.Value == Rate {
		require.True(t, want == NoValue && m.Do == Goto && m.To == DropTooMany, "%s", m)
	} else {
		require.Equal(t, want, s.Value, "%s", m)
	}
	require.Equal(t, s.Keys, 1+strings.Count(string(l.Key), "."), "%s", m)
}

// checkSent checks what a gateway does with a packet: what leaves through the tunnel has a
// source in a view that the peer was given, and what comes out of it goes nowhere but to
// what the peer was given.
func checkSent(t *testing.T, in Input, s State, p Packet) {
	t.Helper()
	steps := Trace(s, p)
	last := steps[len(steps)-1]
	require.NotEmpty(t, last.Verdict)
	to := peerOf(in, last.To)
	if last.Verdict == Sent && to != nil {
		require.True(t, slices.ContainsFunc(to.Ours, func(m Map) bool { return m.View.Contains(last.Packet.Src) }), "%v", steps)
		require.True(t, Within(Single(last.Packet.Dst), to.Theirs.All()), "%v", steps)
	}
	from := peerOf(in, last.Packet.Key)
	if from == nil || last.Verdict == Dropped {
		return
	}
	require.True(t, Within(Single(p.Src), from.Theirs.All()), "%v", steps)
	given := slices.ContainsFunc(from.Ours, func(m Map) bool { return m.View.Contains(p.Dst) })
	require.True(t, given, "%v", steps)
	if last.Verdict == Sent && to != nil && p.Flow == nil {
		require.True(t, Within(Single(last.Packet.Dst), from.Through), "%v", steps)
	}
	node := slices.ContainsFunc(in.Nodes, func(h Host) bool { return slices.Contains(h.Addrs, last.Packet.Dst) })
	if last.Verdict == Handed || node && last.Verdict == Sent && to == nil {
		require.True(t, reaches(in, *from, last.Packet, p.Flow != nil), "%v", steps)
	}
}

// reaches reports whether an IP leads a peer to the destination of a packet, and to its port
// unless the connection is known.
func reaches(in Input, from Peer, p Packet, known bool) bool {
	return slices.ContainsFunc(in.IPs, func(ip IP) bool {
		port := known || len(ip.Ports) == 0 || slices.Contains(ip.Ports, Service{p.Proto, p.DstPort})
		return ip.Real == p.Dst && ip.For(from.ID) && port
	})
}

// checkExposed sends from each peer to each IP, at ports that some IPs have: the guard lets
// pass what an IP leads to, and nothing else. It counts both.
func checkExposed(t *testing.T, in Input, s State, passed map[bool]int) {
	t.Helper()
	for _, peer := range in.Peers {
		for _, ip := range in.IPs {
			to, ok := peer.Ours.Out(ip.External)
			from := slices.IndexFunc(peer.Theirs.Pods, func(p netip.Prefix) bool { return family(p.Addr()) == family(to) })
			if peer.Use == 0 || !ok || from < 0 {
				continue
			}
			for _, service := range []Service{{"tcp", 80}, {"tcp", 81}, {"udp", 53}, {"udp", 80}} {
				p := Packet{In: TunnelDevice, Tuple: Tuple{Proto: service.Proto, Src: nth(peer.Theirs.Pods[from], 1), Dst: to, SrcPort: 40000, DstPort: service.Port}}
				checkSent(t, in, s, p)
				steps := Trace(s, p)
				last := steps[len(steps)-1]
				leads := p
				leads.Dst = ip.Real
				want := ip.For(peer.ID) && reaches(in, peer, leads, false)
				require.Equal(t, want, last.Verdict != Dropped, "%v", steps)
				passed[want]++
			}
		}
	}
}

func peerOf(in Input, key string) *Peer {
	for i, p := range in.Peers {
		if slices.ContainsFunc(p.Gateways, func(r Remote) bool { return r.Key == key }) {
			return &in.Peers[i]
		}
	}
	return nil
}
