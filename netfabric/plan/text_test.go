package plan

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTexts(t *testing.T) {
	t.Parallel()
	mac := MAC{0x02, 0xfa, 10, 0, 0, 1}
	for want, one := range map[string]fmt.Stringer{
		"net/ipv4/ip_forward = 1":          Sysctl{"net/ipv4/ip_forward", "1"},
		"liqod-wg mtu 1420 type wireguard": Link{Name: "liqod-wg", Kind: WireGuard, MTU: 1420},
		"liqod-vx mtu 1450 address 02:fa:0a:00:00:01 type vxlan id 7 local 10.0.0.1 dstport 4789 nolearning": Link{
			Name: "liqod-vx", Kind: VXLAN, MTU: 1450, ID: 7, Port: 4789, Local: addr("10.0.0.1"), MAC: mac,
		},
		"10.70.0.1/32 dev liqod-wg nodad":                              Addr{"liqod-wg", prefix("10.70.0.1/32")},
		"10.0.0.1 lladdr 02:fa:0a:00:00:01 dev liqod-vx nud permanent": Neigh{"liqod-vx", addr("10.0.0.1"), mac},
		"02:fa:0a:00:00:01 dev liqod-vx dst 10.0.0.1 self permanent":   FDB{"liqod-vx", mac, addr("10.0.0.1")},
		"KEY persistent-keepalive 25":                                  Tunnel{Key: "KEY", Keepalive: 25 * time.Second},
		"KEY endpoint [2001:db8::1]:51840 persistent-keepalive 5":      Tunnel{"KEY", netip.MustParseAddrPort("[2001:db8::1]:51840"), 5 * time.Second},
		"10.1.0.0/16 of KEY":                                           Allowed{"KEY", prefix("10.1.0.0/16")},
		"table 6171 10.1.0.0/16 dev liqod-wg proto 108":                Route{Table: 6171, Dst: prefix("10.1.0.0/16"), Link: "liqod-wg"},
		"table 6171 unreachable 10.1.0.0/16 proto 108":                 Route{Table: 6171, Dst: prefix("10.1.0.0/16"), Unreachable: true},
		"table 6171 fd00::/64 via fe80::1 dev liqod-vx onlink src fd00:1::1 mtu 1420 proto 108": Route{
			Table: 6171, Dst: prefix("fd00::/64"), Link: "liqod-vx", Via: addr("fe80::1"), Src: addr("fd00:1::1"), MTU: 1420,
		},
		"-4 priority 90 from 10.0.0.1/32 goto 93":             Rule{Priority: 90, Family: V4, Src: prefix("10.0.0.1/32"), Goto: 93},
		"-6 priority 92 iif liqod-wg lookup 6172":             Rule{Priority: 92, Family: V6, In: "liqod-wg", Table: 6172},
		"-4 priority 90 fwmark 0x6c71 goto 93":                Rule{Priority: 90, Family: V4, Mark: 0x6c71, Goto: 93},
		"-4 priority 93 nop":                                  Rule{Priority: 93, Family: V4},
		"a4 { 10.0.0.0/8 }":                                   Element{Set: "a4", A: prefix("10.0.0.0/8")},
		"a4 { 10.0.0.0/8 . 11.0.0.1 }":                        Element{Set: "a4", A: prefix("10.0.0.0/8"), B: prefix("11.0.0.1/32")},
		"a4 { 10.0.0.0/8 : 11.0.0.1 }":                        Element{Set: "a4", A: prefix("10.0.0.0/8"), Value: prefix("11.0.0.1/32")},
		"a6 { fd00::/64 . fd01::/64 : fd02::/64 }":            Element{Set: "a6", A: prefix("fd00::/64"), B: prefix("fd01::/64"), Value: prefix("fd02::/64")},
		"set a4 { type ipv4_addr; flags interval; }":          Set{"a4", V4, 1, NoValue, 0},
		"set c4 { type ipv4_addr; flags interval; counter; }": Set{"c4", V4, 1, Counter, 0},
		"set c4 { type ipv4_addr; flags interval; limit rate over 7/second burst 56 packets; }": Set{"c4", V4, 1, Rate, 7},
		"set a6 { type ipv6_addr . ipv6_addr; flags interval; }":                                Set{"a6", V6, 2, NoValue, 0},
		"map a4 { type ipv4_addr : ipv4_addr; flags interval; }":                                Set{"a4", V4, 1, Address, 0},
		"map a6 { type ipv6_addr . ipv6_addr : interval ipv6_addr; flags interval; }":           Set{"a6", V6, 2, Prefix, 0},
		`host "rome-1": nodes: wrong`:                                                           stringer{&FieldError{Host: "rome-1", Field: "nodes", Text: "wrong"}},
		`peer "milan": theirs: wrong`:                                                           stringer{&FieldError{Peer: "milan", Host: "x", Field: "theirs", Text: "wrong"}},
		`mtu: wrong`:                                                                            stringer{&FieldError{Field: "mtu", Text: "wrong"}},
	} {
		require.Equal(t, want, one.String())
	}
}

// stringer makes a Stringer of an error.
type stringer struct{ error }

func (s stringer) String() string { return s.Error() }

func TestTextsOfRules(t *testing.T) {
	t.Parallel()
	for want, m := range map[string]Match{
		"accept":                          {Do: Accept},
		"counter drop":                    {Do: Drop},
		`iifname "liqod-vx" counter drop`: {In: "liqod-vx", Do: Drop},
		`iifname != "liqod-*" oifname "liqod-wg" accept`:                   {In: "!liqod-*", Out: "liqod-wg", Do: Accept},
		"udp dport 6091 fib daddr type local notrack":                      {Local: true, Proto: "udp", Port: 6091, Do: NoTrack},
		"udp sport 51840 notrack":                                          {Proto: "udp", From: 51840, Do: NoTrack},
		"meta l4proto icmp accept":                                         {Family: V4, Proto: "icmp", Do: Accept},
		"meta l4proto ipv6-icmp accept":                                    {Family: V6, Proto: "icmp", Do: Accept},
		"ct state established,related accept":                              {CT: Known, Do: Accept},
		"ct state new counter drop":                                        {CT: New, Do: Drop},
		"ct direction reply accept":                                        {CT: Answer, Do: Accept},
		"ip saddr @a4 counter drop":                                        {Family: V4, Set: Lookup{Name: "a4", Key: Src}, Do: Drop},
		"ip6 daddr != @a6 counter drop":                                    {Family: V6, Set: Lookup{Name: "a6", Key: Dst, Not: true}, Do: Drop},
		"ip saddr . ip daddr @a4 accept":                                   {Family: V4, Set: Lookup{Name: "a4", Key: SrcDst}, Do: Accept},
		"ip6 daddr . ip6 saddr @a6 accept":                                 {Family: V6, Set: Lookup{Name: "a6", Key: DstSrc}, Do: Accept},
		"ip saddr . @th,192,32 @a4 accept":                                 {Family: V4, Set: Lookup{Name: "a4", Key: SrcInner}, Do: Accept},
		"ip6 saddr . @th,256,128 @a6 accept":                               {Family: V6, Set: Lookup{Name: "a6", Key: SrcInner}, Do: Accept},
		"snat ip to ip daddr map @m4":                                      {Family: V4, Do: SNAT, Map: Lookup{Name: "m4", Key: Dst}},
		"snat ip prefix to ip daddr . ip saddr map @m4":                    {Family: V4, Do: SNATPrefix, Map: Lookup{Name: "m4", Key: DstSrc}},
		"dnat ip6 to ip6 daddr map @m6":                                    {Family: V6, Do: DNAT, Map: Lookup{Name: "m6", Key: Dst}},
		"dnat ip6 prefix to ip6 saddr . ip6 daddr map @m6":                 {Family: V6, Do: DNATPrefix, Map: Lookup{Name: "m6", Key: SrcDst}},
		"ip saddr set ip daddr map @m4":                                    {Family: V4, Do: SetSrc, Map: Lookup{Name: "m4", Key: Dst}},
		"ip6 saddr set ip6 daddr map @m6":                                  {Family: V6, Do: SetSrc, Map: Lookup{Name: "m6", Key: Dst}},
		"masquerade":                                                       {Do: Masquerade},
		"ip saddr @a4":                                                     {Family: V4, Set: Lookup{Name: "a4", Key: Src}, Do: Count},
		`iifname "liqod-vx" goto c`:                                        {In: "liqod-vx", Do: Goto, To: "c"},
		"tcp flags & (syn | rst) == syn tcp option maxseg size set rt mtu": {Proto: "tcp", SYN: true, Do: ClampMSS},
	} {
		require.Equal(t, want, m.String())
	}
}

func TestTextOfAState(t *testing.T) {
	t.Parallel()
	s := State{
		Sysctls: []Sysctl{{"a", "1"}},
		Addrs:   []Addr{{"liqod-wg", prefix("10.0.0.1/32")}},
		Device:  Device{Name: "liqod-wg", Port: 5, Mark: 6, Peers: []Tunnel{{Key: "K"}}, Allowed: []Allowed{{"K", prefix("10.1.0.0/16")}}},
		Table: Table{
			Name:     "liqod",
			Sets:     []Set{{"a4", V4, 1, NoValue, 0}},
			Chains:   []Chain{{Name: "c", NAT: true, Hook: HookInput, Priority: -5, Rules: []Match{{Do: Accept}}}, {Name: "d", Hook: HookOutput}, {Name: "e"}},
			Elements: []Element{{Set: "a4", A: prefix("10.0.0.0/8")}},
		},
		Rules:  []Rule{{Priority: 93, Family: V4}},
		Routes: []Route{{Table: 1, Dst: prefix("10.1.0.0/16"), Unreachable: true}},
	}
	require.Equal(t, strings.TrimPrefix(`
sysctl a = 1
address 10.0.0.1/32 dev liqod-wg nodad
wg set liqod-wg listen-port 5 fwmark 0x6
wg peer K persistent-keepalive 0
wg allowed-ips 10.1.0.0/16 of K
rule -4 priority 93 nop
route table 1 unreachable 10.1.0.0/16 proto 108
table inet liqod {
	set a4 { type ipv4_addr; flags interval; }
	chain c {
		type nat hook input priority -5; policy accept;
		accept
	}
	chain d {
		type filter hook output priority 0; policy accept;
	}
	chain e {
	}
}
add element inet liqod a4 { 10.0.0.0/8 }
`, "\n"), s.String())
}

// States with different contents have different texts: what is compared as text is compared
// whole.
func TestTextsTellApart(t *testing.T) {
	t.Parallel()
	for _, s := range planned(t) {
		seen := map[string]bool{}
		for _, list := range [][]string{
			texts(s.Sysctls), texts(s.Links), texts(s.Addrs), texts(s.Neighs), texts(s.FDB), texts(s.Device.Peers),
			texts(s.Device.Allowed), texts(s.Rules), texts(s.Routes), texts(s.Table.Elements),
		} {
			for _, line := range list {
				require.False(t, seen[line], line)
				seen[line] = true
			}
		}
	}
}

func TestOrdered(t *testing.T) {
	t.Parallel()
	a, b := Allowed{"K", prefix("10.1.0.0/16")}, Allowed{"K", prefix("10.2.0.0/16")}
	require.Equal(t, []Allowed{a, b}, ordered([]Allowed{b, a, b, a}))
	require.Nil(t, ordered([]Allowed{}), "an empty list and none are the same")
}
