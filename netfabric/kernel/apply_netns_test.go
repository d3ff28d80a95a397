package kernel

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/liqod/liqod/netfabric/plan"
)

func text(v any) string { return fmt.Sprintf("%v", v) }

func addr(s string) netip.Addr     { return netip.MustParseAddr(s) }
func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }

// part is what a state is put together from at random: each thing is in it or not, and
// everything that a thing can be is in some of them.
type part struct{ *rand.Rand }

func (p part) yes() bool { return p.IntN(2) == 0 }

// state is a random state with the overlay device, and with the tunnel device if there can
// be one.
func (p part) state(tunnel bool) (s plan.State) {
	mac := plan.MAC{2, 0xfa, 10, 9, 0, byte(p.IntN(3))}
	s.Links = append(s.Links, plan.Link{
		Name: plan.OverlayDevice, Kind: plan.VXLAN, MTU: 1400 + 10*p.IntN(3), ID: plan.OverlayID,
		Port: plan.OverlayPort, Local: addr([]string{"10.9.0.1", "10.9.0.2", "fd09::1"}[p.IntN(3)]), MAC: mac,
	})
	for i := range 4 {
		p.host(&s, i)
	}
	if tunnel {
		p.tunnel(&s)
	}
	p.rules(&s)
	s.Table = p.table()
	return s
}

// host adds what leads to another host of the overlay.
func (p part) host(s *plan.State, i int) {
	if !p.yes() {
		return
	}
	mac := plan.MAC{2, 0xfa, 10, 9, 1, byte(i + 4*p.IntN(2))}
	via4, via6 := addr(fmt.Sprintf("10.9.1.%d", i)), addr(fmt.Sprintf("fe80::%d", i+1))
	s.FDB = append(s.FDB, plan.FDB{Link: plan.OverlayDevice, MAC: mac, Remote: p.remote(s.Links[0].Local)})
	s.Neighs = append(s.Neighs,
		plan.Neigh{Link: plan.OverlayDevice, Addr: via4, MAC: mac},
		plan.Neigh{Link: plan.OverlayDevice, Addr: via6, MAC: mac})
	r := plan.Route{Table: plan.InsideTable, Dst: prefix(fmt.Sprintf("10.244.%d.0/24", i)), Link: plan.OverlayDevice, Via: via4, MTU: 1300 * p.IntN(2)}
	switch p.IntN(3) {
	case 0:
		r.Via = via6
	case 1:
		r = plan.Route{Table: r.Table, Dst: r.Dst, Unreachable: true}
	}
	s.Routes = append(s.Routes, r)
	r = plan.Route{Table: plan.PeersTable, Dst: prefix(fmt.Sprintf("fd00:%d::/48", i)), Link: plan.OverlayDevice, Via: via6}
	if p.yes() {
		r = plan.Route{Table: r.Table, Dst: r.Dst, Unreachable: true}
	}
	s.Routes = append(s.Routes, r)
}

// remote is an underlay address of the family of local.
func (p part) remote(local netip.Addr) netip.Addr {
	if local.Is6() {
		return addr(fmt.Sprintf("fd08::%d", 1+p.IntN(2)))
	}
	return addr(fmt.Sprintf("10.8.0.%d", 1+p.IntN(2)))
}

// keys are public keys.
var keys = []string{
	"AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=",
	"AgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgI=",
	"AwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwM=",
}

func (p part) tunnel(s *plan.State) {
	s.Links = append(s.Links, plan.Link{Name: plan.TunnelDevice, Kind: plan.WireGuard, MTU: 1380 + 10*p.IntN(2)})
	s.Addrs = append(s.Addrs, plan.Addr{Link: plan.TunnelDevice, Prefix: prefix("10.70.0.1/32")})
	if p.yes() {
		s.Addrs = append(s.Addrs, plan.Addr{Link: plan.TunnelDevice, Prefix: prefix("fd70::1/128")})
	}
	s.Device = plan.Device{Name: plan.TunnelDevice, Port: 51840, Mark: plan.TunnelMark}
	for i, key := range keys {
		if p.yes() {
			continue
		}
		t := plan.Tunnel{Key: key, Keepalive: time.Duration(p.IntN(2)) * 25 * time.Second}
		if i > 0 {
			t.Endpoint = netip.AddrPortFrom(addr("192.0.2.1"), uint16(1000+i))
		}
		s.Device.Peers = append(s.Device.Peers, t)
	}
	for i := range 6 {
		if n := len(s.Device.Peers); n > 0 && p.yes() {
			a := plan.Allowed{Key: s.Device.Peers[p.IntN(n)].Key, Prefix: prefix(fmt.Sprintf("10.%d.0.0/16", 100+i))}
			s.Device.Allowed = append(s.Device.Allowed, a)
			s.Routes = append(s.Routes, plan.Route{Table: plan.PeersTable, Dst: a.Prefix, Link: plan.TunnelDevice, Src: addr("10.70.0.1"), MTU: 1300 + p.IntN(2)})
		}
	}
}

func (p part) rules(s *plan.State) {
	for _, r := range []plan.Rule{
		{Priority: plan.SkipPriority, Family: plan.V4, Mark: plan.TunnelMark, Goto: plan.EndPriority},
		{Priority: plan.SkipPriority, Family: plan.V4, Src: prefix("10.9.1.1/32"), Goto: plan.EndPriority},
		{Priority: plan.PeersPriority, Family: plan.V4, Table: plan.PeersTable},
		{Priority: plan.InsidePriority, Family: plan.V4, In: plan.TunnelDevice, Table: plan.InsideTable},
		{Priority: plan.InsidePriority, Family: plan.V6, Src: prefix("fd70::1/128"), Table: plan.InsideTable},
		{Priority: plan.PeersPriority, Family: plan.V6, Table: plan.PeersTable},
		{Priority: plan.EndPriority, Family: plan.V4},
		{Priority: plan.EndPriority, Family: plan.V6},
	} {
		if p.yes() {
			s.Rules = append(s.Rules, r)
		}
	}
}

// table is one of two tables, with random elements.
func (p part) table() plan.Table {
	t := plan.Table{Name: plan.TableName, Sets: everySet(), Chains: everyRule()}
	if p.IntN(4) == 0 {
		t.Chains = t.Chains[:len(t.Chains)-1]
	}
	for i := range 8 {
		net4, net6 := prefix(fmt.Sprintf("10.%d.0.0/16", i)), prefix(fmt.Sprintf("fd00:%d::/48", i))
		if i == 7 {
			net4, net6 = prefix("255.255.255.0/24"), prefix("ffff:ff00::/24")
		}
		view4, view6 := prefix(fmt.Sprintf("10.%d.0.0/16", 100+p.IntN(3))), prefix(fmt.Sprintf("fd01:%d::/48", p.IntN(3)))
		if i == 7 {
			view4, view6 = prefix("10.200.0.0/24"), prefix("aa00::/24")
		}
		for _, e := range []plan.Element{
			{Set: "one4", A: net4},
			{Set: "one6", A: net6},
			{Set: "two4", A: net4, B: view4},
			{Set: "two6", A: net6, B: view6},
			{Set: "prefix4", A: net4, Value: view4},
			{Set: "prefix6", A: net6, Value: view6},
			{Set: "pair4", A: prefix("10.0.0.0/8"), B: net4, Value: view4},
			{Set: "pair6", A: net6, B: prefix("fd01::/16"), Value: view6},
			{Set: "address4", A: prefix(fmt.Sprintf("10.70.0.%d/32", i)), B: net4, Value: prefix(fmt.Sprintf("10.9.0.%d/32", p.IntN(2)))},
			{Set: "address6", A: prefix(fmt.Sprintf("fd70::%d/128", i)), Value: prefix(fmt.Sprintf("fd09::%d/128", 1+p.IntN(2)))},
		} {
			if p.yes() {
				t.Elements = append(t.Elements, e)
			}
		}
	}
	return t
}

func everySet() []plan.Set {
	return []plan.Set{
		{Name: "one4", Family: plan.V4, Keys: 1},
		{Name: "one6", Family: plan.V6, Keys: 1},
		{Name: "rate4", Family: plan.V4, Keys: 1, Value: plan.Rate, Rate: 100},
		{Name: "two4", Family: plan.V4, Keys: 2},
		{Name: "two6", Family: plan.V6, Keys: 2},
		{Name: "prefix4", Family: plan.V4, Keys: 1, Value: plan.Prefix},
		{Name: "prefix6", Family: plan.V6, Keys: 1, Value: plan.Prefix},
		{Name: "pair4", Family: plan.V4, Keys: 2, Value: plan.Prefix},
		{Name: "pair6", Family: plan.V6, Keys: 2, Value: plan.Prefix},
		{Name: "address4", Family: plan.V4, Keys: 2, Value: plan.Address},
		{Name: "address6", Family: plan.V6, Keys: 1, Value: plan.Address},
	}
}

// everyRule has each condition and each action once at least.
func everyRule() []plan.Chain {
	return []plan.Chain{
		{Name: "guard_in", Hook: plan.HookPrerouting, Priority: plan.RawPriority, Rules: []plan.Match{
			{Proto: "udp", Port: 6091, Local: true, Do: plan.NoTrack},
			{Family: plan.V4, CT: plan.First, Set: plan.Lookup{Name: "rate4", Key: plan.Src}, Do: plan.Drop},
			{In: plan.TunnelDevice, Family: plan.V4, Set: plan.Lookup{Name: "two4", Key: plan.SrcDst, Not: true}, Do: plan.Drop, Name: plan.DropFromPeer},
			{In: plan.TunnelDevice, Family: plan.V6, Set: plan.Lookup{Name: "two6", Key: plan.SrcDst, Not: true}, Do: plan.Drop},
			{In: plan.OverlayDevice, Family: plan.V4, Set: plan.Lookup{Name: "one4", Key: plan.Src}, Do: plan.Drop},
			{In: plan.OverlayDevice, Family: plan.V6, Set: plan.Lookup{Name: "one6", Key: plan.Src}, Do: plan.Drop},
		}},
		{Name: "outer_out", Hook: plan.HookOutput, Priority: plan.RawPriority, Rules: []plan.Match{
			{Out: plan.OutsideDevices, Proto: "udp", From: 51840, Do: plan.NoTrack},
		}},
		{Name: "translate_in", NAT: true, Hook: plan.HookPrerouting, Priority: plan.DNATPriority, Rules: []plan.Match{
			{In: plan.TunnelDevice, Family: plan.V4, Do: plan.DNAT, Map: plan.Lookup{Name: "address4", Key: plan.SrcDst}},
			{In: plan.TunnelDevice, Family: plan.V6, Do: plan.DNAT, Map: plan.Lookup{Name: "address6", Key: plan.Dst}},
			{In: plan.TunnelDevice, Family: plan.V4, Do: plan.DNATPrefix, Map: plan.Lookup{Name: "pair4", Key: plan.SrcDst}},
			{In: plan.TunnelDevice, Family: plan.V6, Do: plan.DNATPrefix, Map: plan.Lookup{Name: "prefix6", Key: plan.Dst}},
		}},
		{Name: "clamp", Hook: plan.HookForward, Priority: plan.ManglePriority, Rules: []plan.Match{
			{Out: plan.TunnelDevice, Proto: "tcp", SYN: true, Do: plan.ClampMSS},
		}},
		{Name: "pass", Hook: plan.HookForward, Priority: plan.FilterPriority, Rules: []plan.Match{
			{In: plan.TunnelDevice, Out: plan.OverlayDevice, Family: plan.V4, CT: plan.New, Set: plan.Lookup{Name: "one4", Key: plan.Dst}, Do: plan.Drop},
			{In: plan.OverlayDevice, Out: "!" + plan.TunnelDevice, Do: plan.Drop},
			{In: plan.AllDevices, CT: plan.Invalid, Do: plan.Drop},
		}},
		{Name: "local_in", Hook: plan.HookInput, Priority: plan.FilterPriority, Rules: []plan.Match{
			{In: plan.AllDevices, Family: plan.V4, Proto: "icmp", Do: plan.Accept},
			{In: plan.AllDevices, Family: plan.V6, Proto: "icmp", Do: plan.Accept},
			{In: plan.AllDevices, CT: plan.Known, Do: plan.Accept},
			{In: plan.AllDevices, CT: plan.Answer, Do: plan.Accept},
		}},
		{Name: "translate_out", NAT: true, Hook: plan.HookPostrouting, Priority: plan.SNATPriority, Rules: []plan.Match{
			{Out: plan.TunnelDevice, Family: plan.V4, Do: plan.SNATPrefix, Map: plan.Lookup{Name: "pair4", Key: plan.DstSrc}},
			{Out: plan.TunnelDevice, Family: plan.V6, Do: plan.SNATPrefix, Map: plan.Lookup{Name: "pair6", Key: plan.DstSrc}},
			{Out: plan.TunnelDevice, Family: plan.V4, Set: plan.Lookup{Name: "one4", Key: plan.Src, Not: true}, Do: plan.SNAT, Map: plan.Lookup{Name: "address4", Key: plan.DstSrc}},
			{Out: plan.TunnelDevice, Family: plan.V6, Do: plan.SNAT, Map: plan.Lookup{Name: "address6", Key: plan.Dst}},
			{In: plan.TunnelDevice, Out: plan.OutsideDevices, Do: plan.Masquerade},
		}},
		{Name: "guard_out", Hook: plan.HookPostrouting, Priority: plan.LastGuardPriority, Rules: []plan.Match{
			{Out: plan.TunnelDevice, Family: plan.V4, Proto: "icmp", CT: plan.Related, Do: plan.SetSrc, Map: plan.Lookup{Name: "address4", Key: plan.DstSrc}},
			{Out: plan.TunnelDevice, Family: plan.V6, Proto: "icmp", CT: plan.Related, Do: plan.SetSrc, Map: plan.Lookup{Name: "address6", Key: plan.Dst}},
		}},
	}
}

// walk applies states at random, now and then the empty one.
func walk(t *testing.T, k *Kernel, c counter, tunnel bool) {
	p := part{rand.New(rand.NewPCG(1, 2))}
	for range 40 {
		var want plan.State
		if p.IntN(8) > 0 {
			want = p.state(tunnel)
		}
		applied(t, k, c, want)
	}
}

func TestNetnsRandomStates(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	k, c := kernelAt(t, s.FD)
	walk(t, k, c, false)
}

func TestNetnsRandomStatesWithTunnel(t *testing.T) {
	t.Parallel()
	if !alone(t) {
		return
	}
	here(t)
	k, c := kernelAt(t, 0)
	walk(t, k, c, true)
}
