package plan

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Packet is a packet that Trace follows.
type Packet struct {
	In   string // device of arrival; empty: this host makes the packet
	Key  string // public key of the peer that it came from, through TunnelDevice; empty: that of its source
	Mark uint32

	Tuple
	SYN   bool  // TCP only
	Error bool  // an ICMP error about Flow
	Flow  *Flow // a connection that this host has seen before; nil: none
}

// Tuple identifies a connection in connection tracking. Ports of ICMP are zero.
type Tuple struct {
	Proto            string // "tcp", "udp" or "icmp"
	Src, Dst         netip.Addr
	SrcPort, DstPort uint16
}

func (t Tuple) reverse() Tuple {
	return Tuple{Proto: t.Proto, Src: t.Dst, Dst: t.Src, SrcPort: t.DstPort, DstPort: t.SrcPort}
}

// Flow is an entry of connection tracking: its first packet as it came, and the answer to
// it as it will come.
type Flow struct {
	Sent, Answer Tuple
}

// Verdict is the end of a packet on a host.
type Verdict string

// The verdicts. Handed is a packet that leaves by a route of the host that is not ours.
const (
	Dropped   Verdict = "dropped"
	Delivered Verdict = "delivered"
	Sent      Verdict = "sent"
	Handed    Verdict = "handed to the host"
)

// Step is one thing that happens to a packet. The last step has a verdict, and no other.
type Step struct {
	Where  string // hook and chain, rule, table or device
	What   string // the rule, route or entry
	Packet Packet // after the step, with the entry of connection tracking
	Verdict
	To string // of Sent: the underlay address, or the public key of the peer
}

// String writes s on a line.
func (s Step) String() string {
	t := s.Packet.Tuple
	return words(fmt.Sprintf("%s: %s [%s > %s]", s.Where, s.What, t.Src, t.Dst), string(s.Verdict), when(s.To != "", "to %s", s.To))
}

// Trace returns the steps of p through a host in state s: connection tracking, our chains,
// rules, routes, neighbours, forwarding entries and allowed addresses. It leaves out the
// chains and routes of other programs: a packet without a route of ours is handed to the
// host.
// The packet is within the share of its peer. Ports are never changed, though the kernel changes them where two connections collide.
func Trace(s State, p Packet) []Step {
	if p.Flow != nil {
		flow := *p.Flow
		p.Flow = &flow
	}
	t := &tracer{s: s, p: p, sets: map[string][]Element{}}
	for _, e := range s.Table.Elements {
		t.sets[e.Set] = append(t.sets[e.Set], e)
	}
	for _, set := range s.Table.Sets {
		if set.Value == Rate {
			delete(t.sets, set.Name)
		}
	}
	if p.In == "" {
		t.output()
	} else {
		t.input()
	}
	return t.steps
}

// tracking is the state of a packet in connection tracking.
type tracking string

const (
	untracked tracking = "untracked"
	fresh     tracking = "new"
	known     tracking = "established"
	related   tracking = "related"
	invalid   tracking = "invalid"
)

type tracer struct {
	s     State
	sets  map[string][]Element
	p     Packet
	steps []Step
	out   Route // the route, once there is one
	local bool  // it ends here
	ct    tracking
	seen  bool // by connection tracking
	back  bool // an answer, or an error about the flow's own packets
	done  bool
}

// elsewhere stands for a device that is not ours.
const elsewhere = "host"

func (t *tracer) note(where, format string, args ...any) {
	t.steps = append(t.steps, Step{Where: where, What: fmt.Sprintf(format, args...), Packet: t.p})
}

func (t *tracer) end(v Verdict, to, where, format string, args ...any) {
	t.note(where, format, args...)
	last := &t.steps[len(t.steps)-1]
	last.Verdict, last.To = v, to
	t.done = true
}

// input follows a packet that arrives.
func (t *tracer) input() {
	t.decrypted()
	t.hook(HookPrerouting)
	t.route()
	if t.local {
		t.hook(HookInput)
		if !t.done {
			t.confirm()
			t.end(Delivered, "", "local", "%s is an address of this host", t.p.Dst)
		}
		return
	}
	t.hook(HookForward)
	t.send()
}

// output follows a packet that this host makes.
func (t *tracer) output() {
	t.route()
	before := t.p.Dst
	t.hook(HookOutput)
	if !t.done && t.p.Dst != before {
		t.route()
	}
	if t.local && !t.done {
		t.confirm()
		t.end(Delivered, "", "local", "%s is an address of this host", t.p.Dst)
		return
	}
	t.send()
}

// send follows a packet that is routed to the end.
func (t *tracer) send() {
	t.hook(HookPostrouting)
	if t.done {
		return
	}
	t.confirm()
	switch t.out.Link {
	case TunnelDevice:
		t.encrypt()
	case OverlayDevice:
		t.encapsulate()
	default:
		t.end(Handed, "", "main table", "no route of ours")
	}
}

// decrypted drops a packet with a source that its peer may not use.
func (t *tracer) decrypted() {
	if t.p.In != TunnelDevice {
		return
	}
	a, ok := t.allowed(t.p.Src)
	if t.p.Key == "" {
		t.p.Key = a.Key
	}
	if !ok || a.Key != t.p.Key {
		t.end(Dropped, "", TunnelDevice, "%s is not allowed of %s", t.p.Src, cmp.Or(t.p.Key, "any peer"))
		return
	}
	t.note(TunnelDevice, "allowed-ips %s", a)
}

func (t *tracer) encrypt() {
	a, ok := t.allowed(t.p.Dst)
	if !ok {
		t.end(Dropped, "", TunnelDevice, "no peer has %s", t.p.Dst)
		return
	}
	t.end(Sent, a.Key, TunnelDevice, "allowed-ips %s", a)
}

// allowed is the longest prefix with a.
func (t *tracer) allowed(a netip.Addr) (best Allowed, ok bool) {
	for _, one := range t.s.Device.Allowed {
		if one.Prefix.Contains(a) && (!ok || one.Prefix.Bits() > best.Prefix.Bits()) {
			best, ok = one, true
		}
	}
	return best, ok
}

func (t *tracer) encapsulate() {
	i := slices.IndexFunc(t.s.Neighs, func(n Neigh) bool { return n.Link == t.out.Link && n.Addr == t.out.Via })
	if i < 0 {
		t.end(Dropped, "", t.out.Link, "no neighbour %s", cmp.Or(t.out.Via.String(), t.p.Dst.String()))
		return
	}
	n := t.s.Neighs[i]
	t.note(t.out.Link, "neigh %s", n)
	i = slices.IndexFunc(t.s.FDB, func(f FDB) bool { return f.Link == n.Link && f.MAC == n.MAC })
	if i < 0 {
		t.end(Dropped, "", t.out.Link, "no forwarding entry for %s", n.MAC)
		return
	}
	t.end(Sent, t.s.FDB[i].Remote.String(), t.out.Link, "fdb %s", t.s.FDB[i])
}

// route looks the packet up as the kernel does: local addresses, then the rules.
func (t *tracer) route() {
	t.out, t.local = Route{}, false
	if t.done {
		return
	}
	if t.isLocal(t.p.Dst) {
		t.local = true
		t.note("rule 0", "local table: %s", t.p.Dst)
		return
	}
	from := 0
	for _, r := range t.rules() {
		if r.Priority < from || !t.rule(r) {
			continue
		}
		if r.Goto != 0 {
			from = r.Goto
			t.note(fmt.Sprintf("rule %d", r.Priority), "%s", r)
			continue
		}
		if t.lookup(r) {
			return
		}
	}
}

func (t *tracer) isLocal(a netip.Addr) bool {
	return slices.ContainsFunc(t.s.Addrs, func(x Addr) bool { return x.Prefix.Addr() == a }) ||
		slices.ContainsFunc(t.s.Links, func(l Link) bool { return l.Local == a && a.IsValid() }) ||
		slices.ContainsFunc(t.s.Routes, func(r Route) bool { return r.Src == a && a.IsValid() })
}

func (t *tracer) rules() []Rule {
	f := family(t.p.Dst)
	rules := slices.DeleteFunc(slices.Clone(t.s.Rules), func(r Rule) bool { return r.Family != f })
	slices.SortStableFunc(rules, func(a, b Rule) int { return cmp.Compare(a.Priority, b.Priority) })
	return rules
}

func (t *tracer) rule(r Rule) bool {
	return (!r.Src.IsValid() || r.Src.Contains(t.p.Src)) && (r.In == "" || r.In == t.p.In) && (r.Mark == 0 || r.Mark == t.p.Mark)
}

// lookup looks in the table of r, and reports whether that was the end of the search.
func (t *tracer) lookup(r Rule) bool {
	best := -1
	for i, one := range t.s.Routes {
		if one.Table == r.Table && one.Dst.Contains(t.p.Dst) && (best < 0 || one.Dst.Bits() > t.s.Routes[best].Dst.Bits()) {
			best = i
		}
	}
	if r.Table == 0 || best < 0 {
		return false
	}
	t.out = t.s.Routes[best]
	where := fmt.Sprintf("rule %d", r.Priority)
	if t.out.Unreachable {
		t.end(Dropped, "", where, "%s", t.out)
		return true
	}
	t.note(where, "%s", t.out)
	return true
}

// hook runs the chains of a hook by their priorities, and connection tracking among them.
func (t *tracer) hook(h Hook) {
	chains := slices.DeleteFunc(slices.Clone(t.s.Table.Chains), func(c Chain) bool { return c.Hook != h })
	slices.SortStableFunc(chains, func(a, b Chain) int { return cmp.Compare(a.Priority, b.Priority) })
	const conntrack = -200
	i := 0
	for ; i < len(chains) && chains[i].Priority < conntrack; i++ {
		t.chain(string(h)+" "+chains[i].Name, chains[i].Rules)
	}
	if h == HookPrerouting || h == HookOutput {
		t.track()
	}
	t.translated(h)
	for _, c := range chains[i:] {
		if !c.NAT || t.ct == fresh {
			t.chain(string(h)+" "+c.Name, c.Rules)
		}
	}
}

// chain applies the rules of a chain, or of one that it goes to.
func (t *tracer) chain(where string, rules []Match) {
	for _, m := range rules {
		if t.done || !t.matches(m) {
			continue
		}
		stop := t.act(where, m)
		if stop {
			return
		}
	}
}

// matches reports whether all conditions of m hold.
func (t *tracer) matches(m Match) bool {
	return named(m.In, t.p.In) && named(m.Out, t.device()) &&
		(m.Family == 0 || m.Family == family(t.p.Dst)) &&
		(m.Proto == "" || m.Proto == t.p.Proto) &&
		(m.Port == 0 || m.Port == t.p.DstPort) && (m.From == 0 || m.From == t.p.SrcPort) &&
		(!m.Local || t.isLocal(t.p.Dst)) && (!m.Stays || t.isLocal(t.p.Dst) || t.p.Dst.IsMulticast()) && (!m.SYN || t.p.SYN) &&
		t.tracked(m.CT) &&
		(m.Set.Name == "" || t.in(m.Set) != m.Set.Not)
}

// tracked reports whether a condition on connection tracking holds.
func (t *tracer) tracked(want CT) bool {
	switch want {
	case "":
		return true
	case Answer:
		return t.back
	case First:
		return t.ct == fresh
	case Redirected:
		return t.p.Flow != nil && t.p.Flow.Sent.Dst != t.p.Dst
	}
	return slices.Contains(strings.Split(strings.TrimPrefix(string(want), ctState), ","), string(t.ct))
}

// device is the name of the device of departure, as far as the packet is routed.
func (t *tracer) device() string {
	return cmp.Or(t.out.Link, elsewhere)
}

// named reports whether a condition on a device holds.
func named(want, have string) bool {
	want, not := strings.CutPrefix(want, "!")
	begin, open := strings.CutSuffix(want, "*")
	return want == "" || (have == want || open && strings.HasPrefix(have, begin)) != not
}

func (t *tracer) in(l Lookup) bool {
	_, ok := t.find(l)
	return ok
}

func (t *tracer) find(l Lookup) (Element, bool) {
	a, b := t.p.Src, t.p.Dst
	switch {
	case l.Key == Dst || l.Key == DstSrc:
		a, b = b, a
	case l.Key == SrcInner && t.back:
		b = t.p.Flow.Answer.Src
	case l.Key == SrcInner:
		b = t.p.Flow.Sent.Src
	}
	for _, e := range t.sets[l.Name] {
		service := e.Service == Service{} || e.Service == Service{t.p.Proto, t.p.DstPort}
		if e.A.Contains(a) && (!e.B.IsValid() || e.B.Contains(b)) && service {
			return e, true
		}
	}
	return Element{}, false
}

// act applies m, and reports whether that ends the chain.
func (t *tracer) act(where string, m Match) bool {
	e, ok := t.find(m.Map)
	if m.Map.Name != "" && !ok {
		return false
	}
	what := words(m.String(), when(m.Map.Name != "", "%s", e))
	switch m.Do {
	case Drop:
		t.end(Dropped, "", where, "%s", what)
		return true
	case Goto:
		t.note(where, "%s", what)
		i := slices.IndexFunc(t.s.Table.Chains, func(c Chain) bool { return c.Name == m.To })
		t.chain(where, t.s.Table.Chains[i].Rules)
		return true
	case NoTrack:
		t.ct, t.seen = untracked, true
	case SetSrc:
		t.p.Src = e.Value.Addr()
	case SNAT:
		t.p.Src = e.Value.Addr()
	case DNAT:
		t.p.Dst = e.Value.Addr()
	case SNATPrefix:
		t.p.Src, _ = move(t.p.Src, keyFor(m.Map.Key, Src, e), e.Value)
	case DNATPrefix:
		t.p.Dst, _ = move(t.p.Dst, keyFor(m.Map.Key, Dst, e), e.Value)
	case Masquerade:
		t.masquerade()
	}
	t.note(where, "%s", what)
	return !slices.Contains([]Action{ClampMSS, NoTrack, SetSrc, Count}, m.Do)
}

// keyFor is the part of an element's key that is matched with the field.
func keyFor(k, field Key, e Element) netip.Prefix {
	if k == field || strings.HasPrefix(string(k), string(field)) {
		return e.A
	}
	return e.B
}

// masquerade gives the packet the address of this host.
func (t *tracer) masquerade() {
	for _, l := range t.s.Links {
		if l.Local.IsValid() && family(l.Local) == family(t.p.Src) {
			t.p.Src = l.Local
		}
	}
}

// track finds the flow of the packet, or begins one.
func (t *tracer) track() {
	if t.seen || t.done {
		return
	}
	t.seen = true
	f := t.p.Flow
	switch {
	case t.p.Error && f != nil:
		t.ct, t.back = related, t.p.Dst == f.Answer.Dst || t.p.Dst == f.Sent.Src
	case t.p.Error:
		t.ct = invalid
	case f != nil && (t.p.Tuple == f.Sent || t.p.Tuple == f.Answer):
		t.ct, t.back = known, t.p.Tuple != f.Sent
	default:
		t.ct = fresh
		t.p.Flow = &Flow{Sent: t.p.Tuple}
	}
	t.note("conntrack", "%s", t.ct)
}

// confirm remembers a new flow as it leaves.
func (t *tracer) confirm() {
	if t.ct == fresh {
		t.p.Flow.Answer = t.p.reverse()
	}
}

// translated repeats the translation of the first packet of a flow on a later packet, on an
// answer, or on an error about them: destinations on arrival, sources on departure. An error
// keeps its source where the flow's addresses are not translated.
func (t *tracer) translated(h Hook) {
	if t.done || t.ct != known && t.ct != related {
		return
	}
	sent, answer, before := t.p.Flow.Sent, t.p.Flow.Answer, t.p.Tuple
	if t.back {
		sent, answer = answer, sent
	}
	switch h {
	case HookPrerouting, HookOutput:
		t.p.Dst = answer.Src
	case HookPostrouting, HookInput:
		if t.ct == known || sent.Src != answer.Dst {
			t.p.Src = answer.Dst
		}
	}
	if t.p.Tuple != before {
		t.note(string(h)+" conntrack", "translated like the flow")
	}
}
