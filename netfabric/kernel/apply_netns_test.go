package kernel

import (
	"fmt"
	"math/rand/v2"
	"net/netip"

	"github.com/liqod/liqod/netfabric/plan"
)

func text(v any) string { return fmt.Sprintf("%v", v) }

func addr(s string) netip.Addr     { return netip.MustParseAddr(s) }
func prefix(s string) netip.Prefix { return netip.MustParsePrefix(s) }

// part is what a cluster and a table are put together from at random: each thing is in it or not, and
// everything that a thing can be is in some of them.
type part struct{ *rand.Rand }

func (p part) yes() bool { return p.IntN(2) == 0 }

// keys are public keys.
var keys = []string{
	"AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=",
	"AgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgI=",
	"AwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwM=",
}

// elements are random elements of everySet.
func (p part) elements() (out []plan.Element) {
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
				out = append(out, e)
			}
		}
	}
	return out
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
