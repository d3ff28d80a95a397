package plan

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// host is a host with one rule of each kind, to see by itself what Trace does with it.
func host(rules ...Match) State {
	return State{
		Links:  []Link{{Name: OverlayDevice, Kind: VXLAN, Local: addr("192.168.0.1")}},
		Addrs:  []Addr{{TunnelDevice, prefix("10.70.0.1/32")}},
		Neighs: []Neigh{{OverlayDevice, addr("192.168.0.2"), MAC{1}}},
		FDB:    []FDB{{OverlayDevice, MAC{1}, addr("192.168.0.2")}},
		Table: Table{
			Sets:   []Set{{"a4", V4, 1, NoValue, 0}, {"m4", V4, 2, Prefix, 0}, {"to4", V4, 1, Address, 0}},
			Chains: []Chain{{Name: "one", Hook: HookForward, Rules: rules}},
			Elements: []Element{
				{Set: "a4", A: prefix("10.1.0.0/16")},
				{Set: "m4", A: prefix("10.2.0.0/16"), B: prefix("10.1.0.0/16"), Value: prefix("10.9.0.0/16")},
				{Set: "to4", A: prefix("10.2.0.0/16"), Value: prefix("10.7.7.7/32")},
			},
		},
		Rules:  []Rule{{Priority: PeersPriority, Family: V4, Table: PeersTable}},
		Routes: []Route{{Table: PeersTable, Dst: prefix("10.2.0.0/16"), Link: OverlayDevice, Via: addr("192.168.0.2")}},
	}
}

func last(steps []Step) Step { return steps[len(steps)-1] }

func TestTraceConditions(t *testing.T) {
	t.Parallel()
	icmp := tcp("10.1.0.1", "10.2.0.2")
	icmp.Proto, icmp.SrcPort, icmp.DstPort = "icmp", 0, 0
	settled := tcp("10.1.0.1", "10.2.0.2")
	settled.SYN = false
	settled.Flow = &Flow{Sent: settled.Tuple, Answer: settled.reverse()}
	answered := settled
	answered.Flow = &Flow{Sent: settled.reverse(), Answer: settled.Tuple}
	fault := icmp
	fault.Error, fault.Flow = true, &Flow{Sent: settled.reverse(), Answer: settled.Tuple}
	invalid := icmp
	invalid.Error = true

	// An error about a connection of 10.1.0.1 to 10.2.0.2.
	errorTo := func(to string) Packet {
		p := fault
		p.Src, p.Dst, p.Flow = addr("10.2.0.9"), addr(to), settled.Flow
		return p
	}

	for name, tc := range map[string]struct {
		rule   Match
		packet Packet
		want   bool
	}{
		"none":                      {Match{}, tcp("10.1.0.1", "10.2.0.2"), true},
		"device of arrival":         {Match{In: "veth0"}, tcp("10.1.0.1", "10.2.0.2"), true},
		"another":                   {Match{In: "veth1"}, tcp("10.1.0.1", "10.2.0.2"), false},
		"all but":                   {Match{In: "!veth0"}, tcp("10.1.0.1", "10.2.0.2"), false},
		"all but another":           {Match{In: "!veth1"}, tcp("10.1.0.1", "10.2.0.2"), true},
		"beginning":                 {Match{In: "ve*"}, tcp("10.1.0.1", "10.2.0.2"), true},
		"all but a beginning":       {Match{In: "!ve*"}, tcp("10.1.0.1", "10.2.0.2"), false},
		"a whole name is no prefix": {Match{In: "veth"}, tcp("10.1.0.1", "10.2.0.2"), false},
		"device of departure":       {Match{Out: OverlayDevice}, tcp("10.1.0.1", "10.2.0.2"), true},
		"departure elsewhere":       {Match{Out: OverlayDevice}, tcp("10.1.0.1", "10.3.0.2"), false},
		"departure by the host":     {Match{Out: OutsideDevices}, tcp("10.1.0.1", "10.3.0.2"), true},
		"family":                    {Match{Family: V4}, tcp("10.1.0.1", "10.2.0.2"), true},
		"the other family":          {Match{Family: V6}, tcp("10.1.0.1", "10.2.0.2"), false},
		"family of IPv6":            {Match{Family: V6}, tcp("fd00::1", "fd00::2"), true},
		"protocol":                  {Match{Proto: "tcp"}, tcp("10.1.0.1", "10.2.0.2"), true},
		"another protocol":          {Match{Proto: "udp"}, tcp("10.1.0.1", "10.2.0.2"), false},
		"port":                      {Match{Proto: "tcp", Port: 80}, tcp("10.1.0.1", "10.2.0.2"), true},
		"another port":              {Match{Proto: "tcp", Port: 81}, tcp("10.1.0.1", "10.2.0.2"), false},
		"source port":               {Match{Proto: "tcp", From: 40000}, tcp("10.1.0.1", "10.2.0.2"), true},
		"another source port":       {Match{Proto: "tcp", From: 80}, tcp("10.1.0.1", "10.2.0.2"), false},
		"not to this host":          {Match{Local: true}, tcp("10.1.0.1", "10.2.0.2"), false},
		"the first of TCP":          {Match{SYN: true}, tcp("10.1.0.1", "10.2.0.2"), true},
		"not the first":             {Match{SYN: true}, settled, false},
		"new":                       {Match{CT: New}, tcp("10.1.0.1", "10.2.0.2"), true},
		"not new":                   {Match{CT: New}, settled, false},
		"known":                     {Match{CT: Known}, settled, true},
		"no answer":                 {Match{CT: Answer}, settled, false},
		"an answer":                 {Match{CT: Answer}, answered, true},
		"a new one is no answer":    {Match{CT: Answer}, tcp("10.1.0.1", "10.2.0.2"), false},
		"an error is known":         {Match{CT: Known}, fault, true},
		"an error is related":       {Match{CT: Related}, fault, true},
		"a packet is not related":   {Match{CT: Related}, settled, false},
		"an error about nothing":    {Match{CT: Invalid}, invalid, true},
		"which is not new":          {Match{CT: New}, invalid, false},
		"source in a set":           {Match{Set: Lookup{Name: "a4", Key: Src}}, tcp("10.1.0.1", "10.2.0.2"), true},
		"source not in it":          {Match{Set: Lookup{Name: "a4", Key: Src}}, tcp("10.3.0.1", "10.2.0.2"), false},
		"destination in a set":      {Match{Set: Lookup{Name: "a4", Key: Dst}}, tcp("10.2.0.1", "10.1.0.2"), true},
		"and not":                   {Match{Set: Lookup{Name: "a4", Key: Src, Not: true}}, tcp("10.1.0.1", "10.2.0.2"), false},
		"and not, which it is not":  {Match{Set: Lookup{Name: "a4", Key: Src, Not: true}}, tcp("10.3.0.1", "10.2.0.2"), true},
		"a pair":                    {Match{Set: Lookup{Name: "m4", Key: DstSrc}}, tcp("10.1.0.1", "10.2.0.2"), true},
		"a pair the other way":      {Match{Set: Lookup{Name: "m4", Key: SrcDst}}, tcp("10.1.0.1", "10.2.0.2"), false},
		"half a pair":               {Match{Set: Lookup{Name: "m4", Key: DstSrc}}, tcp("10.3.0.1", "10.2.0.2"), false},
		"an error about an answer":  {Match{Set: Lookup{Name: "m4", Key: SrcInner}}, errorTo("10.2.0.2"), true},
		"about what was sent":       {Match{Set: Lookup{Name: "m4", Key: SrcInner}}, errorTo("10.1.0.1"), false},
		"all of many":               {Match{In: "veth0", Proto: "tcp", Port: 80, SYN: true, CT: New}, tcp("10.1.0.1", "10.2.0.2"), true},
		"all but one of many":       {Match{In: "veth0", Proto: "tcp", Port: 80, SYN: true, CT: Known}, tcp("10.1.0.1", "10.2.0.2"), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tc.rule.Do = Drop
			got := last(Trace(host(tc.rule), tc.packet))
			require.Equal(t, tc.want, got.Verdict == Dropped && got.Where == "forward one", "%v", got)
		})
	}
}

func TestTraceActions(t *testing.T) {
	t.Parallel()
	in := func(h Hook, nat bool, rules ...Match) State {
		s := host()
		s.Table.Chains = []Chain{{Name: "one", NAT: nat, Hook: h, Rules: rules}}
		return s
	}
	byPrefix, bySet := Lookup{Name: "m4", Key: DstSrc}, Lookup{Name: "to4", Key: Dst}
	counted := in(HookForward, false, Match{Do: Goto, To: "off"}, Match{Do: Accept})
	counted.Table.Chains = append(counted.Table.Chains, Chain{Name: "off", Rules: []Match{{Set: Lookup{Name: "a4", Key: Src}, Do: Count}, {Do: Drop}}})
	two := in(HookPostrouting, true, Match{Do: SNATPrefix, Map: byPrefix}, Match{Do: SNAT, Map: bySet})
	there := tcp("10.1.3.4", "10.2.0.2")
	for name, tc := range map[string]struct {
		state   State
		packet  Packet
		as      string
		verdict Verdict
	}{
		"accept ends the chain":                {in(HookForward, false, Match{Do: Accept}, Match{Do: Drop}), there, "10.1.3.4 > 10.2.0.2", Sent},
		"clamping does not":                    {in(HookForward, false, Match{Do: ClampMSS}, Match{Do: Drop}), there, "10.1.3.4 > 10.2.0.2", Dropped},
		"a source that no element has":         {in(HookPostrouting, true, Match{Do: SNATPrefix, Map: byPrefix}), tcp("10.3.3.4", "10.2.0.2"), "10.3.3.4 > 10.2.0.2", Sent},
		"the first that fits":                  {two, there, "10.9.3.4 > 10.2.0.2", Sent},
		"or the second":                        {two, tcp("10.3.3.4", "10.2.0.2"), "10.7.7.7 > 10.2.0.2", Sent},
		"a destination, before routing":        {in(HookPrerouting, true, Match{Do: DNAT, Map: bySet}), there, "10.1.3.4 > 10.7.7.7", Handed},
		"a destination by prefix":              {in(HookPrerouting, true, Match{Do: DNATPrefix, Map: byPrefix}), there, "10.1.3.4 > 10.9.0.2", Handed},
		"a destination of this host's packet":  {in(HookOutput, true, Match{Do: DNAT, Map: bySet}), local(tcp("192.168.0.1", "10.2.0.2")), "192.168.0.1 > 10.7.7.7", Handed},
		"the address of this host":             {in(HookPostrouting, true, Match{Do: Masquerade}), there, "192.168.0.1 > 10.2.0.2", Sent},
		"which has none of IPv6":               {in(HookPostrouting, true, Match{Do: Masquerade}), tcp("fd00::1", "fd00::2"), "fd00::1 > fd00::2", Handed},
		"one packet":                           {in(HookPostrouting, false, Match{Do: SetSrc, Map: bySet}), there, "10.7.7.7 > 10.2.0.2", Sent},
		"counted and dropped in another chain": {counted, tcp("10.1.0.1", "10.2.0.2"), "10.1.0.1 > 10.2.0.2", Dropped},
		"what goes on in the chain": {
			in(HookPostrouting, false, Match{Do: SetSrc, Map: bySet}, Match{Set: Lookup{Name: "a4", Key: Src}, Do: Drop}), there, "10.7.7.7 > 10.2.0.2", Sent,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			steps := Trace(tc.state, tc.packet)
			require.Equal(t, tc.verdict, last(steps).Verdict, "%v", steps)
			require.Equal(t, tc.as, last(steps).Packet.ends())
		})
	}
}

// Chains of a hook run by priority, those that translate only for the first packet.
func TestTraceChains(t *testing.T) {
	t.Parallel()
	s := host()
	s.Table.Chains = []Chain{
		{Name: "late", Hook: HookPrerouting, Priority: 10, Rules: []Match{{Do: Accept}}},
		{Name: "nat", NAT: true, Hook: HookPrerouting, Priority: DNATPriority, Rules: []Match{{Do: DNAT, Map: Lookup{Name: "to4", Key: Dst}}}},
		{Name: "early", Hook: HookPrerouting, Priority: RawPriority, Rules: []Match{{Do: Accept}}},
	}
	where := func(steps []Step) (out []string) {
		for _, s := range steps {
			out = append(out, s.Where)
		}
		return out
	}
	first := Trace(s, tcp("10.1.0.1", "10.2.0.2"))
	require.Equal(t, []string{"prerouting early", "conntrack", "prerouting nat", "prerouting late", "main table"}, where(first))

	again := tcp("10.1.0.1", "10.2.0.2")
	again.Flow = last(first).Packet.Flow
	second := Trace(s, again)
	require.Equal(t, []string{"prerouting early", "conntrack", "prerouting conntrack", "prerouting late", "main table"}, where(second))
	require.Equal(t, "10.7.7.7", last(second).Packet.Dst.String())

	s.Table.Chains[2].Rules = []Match{{Do: NoTrack}}
	require.Equal(t, []string{"prerouting early", "prerouting late", "rule 91", "liqod-vx", "liqod-vx"}, where(Trace(s, tcp("10.1.0.1", "10.2.0.2"))))
}

func TestTraceRouting(t *testing.T) {
	t.Parallel()
	rules := func(more ...Rule) func(*State) { return func(s *State) { s.Rules = append(s.Rules, more...) } }
	unreachable := func(dst string) func(*State) {
		return func(s *State) {
			s.Routes = append(s.Routes, Route{Table: PeersTable, Dst: prefix(dst), Unreachable: true})
		}
	}
	for name, tc := range map[string]struct {
		change func(*State)
		packet Packet
		want   Verdict
		to     string
	}{
		"by a rule":                          {func(*State) {}, tcp("10.1.0.1", "10.2.0.2"), Sent, "192.168.0.2"},
		"by no rule":                         {func(s *State) { s.Rules = nil }, tcp("10.1.0.1", "10.2.0.2"), Handed, ""},
		"by another family's":                {func(s *State) { s.Rules[0].Family = V6 }, tcp("10.1.0.1", "10.2.0.2"), Handed, ""},
		"by no route":                        {func(*State) {}, tcp("10.1.0.1", "10.3.0.2"), Handed, ""},
		"of another table":                   {func(s *State) { s.Routes[0].Table = InsideTable }, tcp("10.1.0.1", "10.2.0.2"), Handed, ""},
		"of the source":                      {func(s *State) { s.Rules[0].Src = prefix("10.1.0.0/16") }, tcp("10.1.0.1", "10.2.0.2"), Sent, "192.168.0.2"},
		"of another source":                  {func(s *State) { s.Rules[0].Src = prefix("10.5.0.0/16") }, tcp("10.1.0.1", "10.2.0.2"), Handed, ""},
		"of the device":                      {func(s *State) { s.Rules[0].In = "veth0" }, tcp("10.1.0.1", "10.2.0.2"), Sent, "192.168.0.2"},
		"of another device":                  {func(s *State) { s.Rules[0].In = "veth1" }, tcp("10.1.0.1", "10.2.0.2"), Handed, ""},
		"of another mark":                    {func(s *State) { s.Rules[0].Mark = 7 }, tcp("10.1.0.1", "10.2.0.2"), Handed, ""},
		"of this host's own":                 {func(s *State) { s.Rules[0].In = "veth0" }, local(tcp("192.168.0.1", "10.2.0.2")), Handed, ""},
		"skipped":                            {rules(Rule{Priority: 90, Family: V4, Goto: 93}, Rule{Priority: 93, Family: V4}), tcp("10.1.0.1", "10.2.0.2"), Handed, ""},
		"skipped, but not so far":            {rules(Rule{Priority: 90, Family: V4, Goto: 91}), tcp("10.1.0.1", "10.2.0.2"), Sent, "192.168.0.2"},
		"unreachable":                        {unreachable("10.2.0.0/24"), tcp("10.1.0.1", "10.2.0.2"), Dropped, ""},
		"the longest prefix":                 {unreachable("10.0.0.0/8"), tcp("10.1.0.1", "10.2.0.2"), Sent, "192.168.0.2"},
		"a neighbour that is not there":      {func(s *State) { s.Neighs = nil }, tcp("10.1.0.1", "10.2.0.2"), Dropped, ""},
		"an entry that is not there":         {func(s *State) { s.FDB = nil }, tcp("10.1.0.1", "10.2.0.2"), Dropped, ""},
		"to an address of this host":         {func(*State) {}, tcp("10.1.0.1", "10.70.0.1"), Delivered, ""},
		"to its underlay address":            {func(*State) {}, tcp("10.1.0.1", "192.168.0.1"), Delivered, ""},
		"to the source of one of its routes": {func(s *State) { s.Routes[0].Src = addr("10.5.5.5") }, tcp("10.1.0.1", "10.5.5.5"), Delivered, ""},
		"from this host to itself":           {func(*State) {}, local(tcp("192.168.0.1", "10.70.0.1")), Delivered, ""},
		"into a tunnel that is of nobody":    {func(s *State) { s.Routes[0].Link = TunnelDevice }, tcp("10.1.0.1", "10.2.0.2"), Dropped, ""},
		"into a tunnel": {
			func(s *State) {
				s.Routes[0].Link = TunnelDevice
				s.Device.Allowed = []Allowed{{"A", prefix("10.2.0.0/16")}, {"B", prefix("10.2.0.2/32")}, {"C", prefix("10.0.0.0/8")}}
			},
			tcp("10.1.0.1", "10.2.0.2"), Sent, "B",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := host()
			tc.change(&s)
			steps := Trace(s, tc.packet)
			require.Equal(t, tc.want, last(steps).Verdict, "%v", steps)
			require.Equal(t, tc.to, last(steps).To)
		})
	}
}

func TestTraceOfTheTunnel(t *testing.T) {
	t.Parallel()
	s := host()
	s.Device.Allowed = []Allowed{{"A", prefix("10.1.0.0/16")}, {"B", prefix("10.1.0.9/32")}}
	for name, tc := range map[string]struct {
		src, key string
		want     Verdict
		from     string
	}{
		"its own":                      {"10.1.0.1", "A", Sent, "A"},
		"another's":                    {"10.1.0.1", "B", Dropped, "B"},
		"another's, within its own":    {"10.1.0.9", "A", Dropped, "A"},
		"its own, within another's":    {"10.1.0.9", "B", Sent, "B"},
		"nobody's":                     {"10.5.0.1", "A", Dropped, "A"},
		"of whom it is":                {"10.1.0.1", "", Sent, "A"},
		"of whom it is, if of anybody": {"10.5.0.1", "", Dropped, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := tcp(tc.src, "10.2.0.2")
			p.In, p.Key = TunnelDevice, tc.key
			got := last(Trace(s, p))
			require.Equal(t, tc.want, got.Verdict, "%v", got)
			require.Equal(t, tc.from, got.Packet.Key)
		})
	}
}

// The caller's flow is read, and what becomes of it is in the steps.
func TestTraceChangesNothing(t *testing.T) {
	t.Parallel()
	s := host()
	s.Table.Chains = []Chain{{Name: "nat", NAT: true, Hook: HookPostrouting, Rules: []Match{{Do: SNAT, Map: Lookup{Name: "to4", Key: Dst}}}}}
	p := tcp("10.1.0.1", "10.2.0.2")
	first := Trace(s, p)
	require.Nil(t, p.Flow)
	flow := last(first).Packet.Flow
	require.Equal(t, p.Tuple, flow.Sent)
	require.Equal(t, "10.2.0.2 > 10.7.7.7", flow.Answer.Src.String()+" > "+flow.Answer.Dst.String())

	before := *flow
	other := tcp("10.1.0.2", "10.2.0.2")
	other.Flow = flow
	second := Trace(s, other)
	require.Equal(t, before, *flow)
	require.Equal(t, other.Tuple, last(second).Packet.Flow.Sent, "it is no packet of that flow")
	require.Empty(t, Trace(State{}, Packet{In: "x"})[0].To, "nothing at all is no reason to panic")
}
