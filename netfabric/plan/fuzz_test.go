package plan

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// tape is bytes that an input is made from: the fuzzer's, or random ones. At its end it
// gives zeros.
type tape struct{ data []byte }

func randomTape(r *rand.Rand, n int) *tape {
	data := make([]byte, n)
	for i := range data {
		data[i] = byte(r.UintN(256))
	}
	return &tape{data}
}

func (t *tape) n(below int) int {
	if len(t.data) == 0 {
		return 0
	}
	b := t.data[0]
	t.data = t.data[1:]
	return int(b) % below
}

func (t *tape) addr() netip.Addr {
	if t.n(4) == 0 {
		a := netip.MustParseAddr("fd00::").As16()
		a[1], a[3], a[7], a[15] = byte(t.n(3)), byte(t.n(8)), byte(t.n(4)), byte(t.n(256))
		return netip.AddrFrom16(a)
	}
	first := []byte{10, 10, 10, 172, 192, 198, 127, 0, 255}[t.n(9)]
	return netip.AddrFrom4([4]byte{first, byte(t.n(8)), byte(t.n(4)), byte(t.n(256))})
}

func (t *tape) prefix() netip.Prefix {
	a := t.addr()
	bits := []int{8, 12, 16, 16, 16, 20, 24, 24, 28, 32}[t.n(10)]
	if a.Is6() {
		bits *= 4
	}
	p := netip.PrefixFrom(a, bits)
	switch t.n(32) {
	case 0:
		return netip.Prefix{}
	case 1:
		return p
	}
	return p.Masked()
}

func (t *tape) prefixes(atMost int) (out []netip.Prefix) {
	for range t.n(atMost + 1) {
		out = append(out, t.prefix())
	}
	return out
}

func (t *tape) addrs() (out []netip.Addr) {
	for range t.n(3) {
		out = append(out, t.addr())
	}
	return out
}

// like is a range of the length of p.
func (t *tape) like(p netip.Prefix) netip.Prefix {
	if q, err := t.addr().Prefix(p.Bits()); err == nil && t.n(3) > 0 {
		return q
	}
	return p
}

// input is anything.
func (t *tape) input() Input {
	in := Input{Pods: t.prefixes(2), External: t.prefixes(2), Ports: Ports{uint16(t.n(3)) * 6091, uint16(1 + t.n(2))}, MTU: 6 * t.n(256)}
	for i := range t.n(4) {
		in.Nodes = append(in.Nodes, Host{fmt.Sprint("n", i), t.addrs(), t.prefixes(2)})
	}
	for i := range t.n(3) {
		in.Gateways = append(in.Gateways, Replica{fmt.Sprint("g", i), i + t.n(3), t.addrs(), ""})
	}
	in.Via = []string{"", "g0", "g1"}[t.n(3)]
	for i := range t.n(4) {
		p := Peer{ID: fmt.Sprint("p", i), Theirs: Ranges{t.prefixes(2), t.prefixes(1), t.prefixes(1), t.prefixes(1)}, Use: t.n(3), MTU: 12 * t.n(128), Reach: t.prefixes(2)}
		for j := range t.n(3) {
			p.Gateways = append(p.Gateways, Remote{j + t.n(2), key(byte(8*i + j + 1)), netip.AddrPortFrom(t.addr(), uint16(t.n(3))), "", ""})
		}
		in.Peers = append(in.Peers, p)
	}
	owns := slices.Concat(in.Pods, in.External)
	for i := range in.Peers {
		for _, own := range owns {
			if t.n(4) > 0 {
				in.Peers[i].Ours = append(in.Peers[i].Ours, Map{own, t.like(own)})
			}
		}
		owns = append(owns, in.Peers[i].Theirs.All()...)
	}
	for range t.n(3) {
		ip := IP{External: t.addr(), Real: t.addr(), Peer: []string{"", "p0", "p1"}[t.n(3)]}
		for range t.n(3) {
			ip.Ports = append(ip.Ports, t.service())
		}
		in.IPs = append(in.IPs, ip)
	}
	return in
}

// service is a port that packets of the tests have, or none that is accepted.
func (t *tape) service() Service {
	return Service{[]string{"tcp", "udp", "tcp", "icmp"}[t.n(4)], []uint16{80, OverlayPort, TunnelPort, 0}[t.n(4)]}
}

// valid is an input of the same shape that passes Check.
func (t *tape) valid() Input {
	in := []Input{rome(), milan(), servesHome(rome()), livesAtHome(milan())}[t.n(4)]
	for range t.n(6) {
		was := in
		in = mutations[t.n(len(mutations))](t, clone(in))
		if in.Check() != nil {
			in = was
		}
	}
	return in
}

// packet is any packet that meets a gateway or node.
func (t *tape) packet(in Input) Packet {
	p := Packet{In: []string{"", "eth0", OverlayDevice, TunnelDevice, TunnelDevice}[t.n(5)], SYN: t.n(2) == 0, Error: t.n(8) == 0}
	p.Tuple = Tuple{Proto: []string{"tcp", "udp", "icmp"}[t.n(3)], Src: t.near(in), Dst: t.near(in)}
	if t.n(8) == 0 {
		p.Mark = TunnelMark
	}
	if p.Proto != "icmp" {
		p.SrcPort, p.DstPort = uint16(t.n(256)), []uint16{80, OverlayPort, TunnelPort, ProbePort}[t.n(4)]
	}
	if family(p.Src) != family(p.Dst) {
		p.Src = p.Dst
	}
	if p.In == TunnelDevice && len(in.Peers) > 0 {
		if g := in.Peers[t.n(len(in.Peers))].Gateways; len(g) > 0 {
			p.Key = g[t.n(len(g))].Key
		}
	}
	return p
}

// near is an address that means something in an input, or any.
func (t *tape) near(in Input) netip.Addr {
	ranges := slices.Concat(in.Pods, in.External)
	for _, p := range in.Peers {
		ranges = append(ranges, p.Theirs.All()...)
		for _, m := range p.Ours {
			ranges = append(ranges, m.View)
		}
	}
	for _, h := range in.Nodes {
		for _, a := range h.Addrs {
			ranges = append(ranges, Single(a))
		}
	}
	for _, ip := range in.IPs {
		ranges = append(ranges, Single(ip.External), Single(ip.Real))
	}
	for _, p := range in.Peers {
		for _, own := range in.External {
			for n := range 3 {
				ranges = append(ranges, Single(nth(own, 1+n)))
				if a, ok := p.Ours.Out(nth(own, 1+n)); ok {
					ranges = append(ranges, Single(a))
				}
			}
		}
	}
	if len(ranges) == 0 || t.n(16) == 0 {
		return t.addr()
	}
	r := ranges[t.n(len(ranges))]
	raw := r.Addr().AsSlice()
	for i := range raw {
		if 8*i >= r.Bits() {
			raw[i] = byte(t.n(32))
		}
	}
	a, _ := netip.AddrFromSlice(raw)
	return a
}

// checkAll plans every host of in, and follows a packet through each.
func checkAll(t *testing.T, in Input, tp *tape) {
	t.Helper()
	valid := in.Check() == nil
	for _, h := range append(in.Nodes, Host{Name: "nobody"}) {
		in.Self = h.Name
		s, err := Node(in)
		require.Equal(t, valid && h.Name != "nobody", err == nil, "%v", err)
		if err != nil {
			require.Equal(t, State{}, s)
			continue
		}
		checkState(t, s)
		require.NotEmpty(t, Trace(s, tp.packet(in)))
	}
	for _, g := range append(in.Gateways, Replica{Name: "nobody"}) {
		in.Self = g.Name
		s, err := Gateway(in)
		require.Equal(t, valid && g.Name != "nobody", err == nil, "%v", err)
		if err != nil {
			require.Equal(t, State{}, s)
			continue
		}
		checkState(t, s)
		checkSent(t, in, s, tp.packet(in))
	}
}

// FuzzPlan: whatever it is planned from, nothing panics, and what is planned is sound.
func FuzzPlan(f *testing.F) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 170 {
		f.Add(randomTape(r, 300).data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, input := range []func(*tape) Input{(*tape).input, (*tape).valid} {
			tp := &tape{data}
			checkAll(t, input(tp), tp)
		}
	})
}

// FuzzGuard: no packet, of whomever, makes a gateway send to a peer what the peer was not
// given, or take from it what it may not send.
func FuzzGuard(f *testing.F) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 50 {
		f.Add(randomTape(r, 60).data)
	}
	inputs := []Input{rome(), milan(), hub(), servesHome(hub())}
	var states []State
	for _, in := range inputs {
		states = append(states, planHost(f, Gateway, in, "gw-a"))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		tp := &tape{data}
		n := tp.n(4)
		checkSent(t, inputs[n], states[n], tp.packet(inputs[n]))
	})
}

func TestRandomPackets(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(7, 8))
	verdicts := map[Verdict]int{}
	for _, in := range []Input{rome(), milan(), hub(), servesHome(hub())} {
		s := planHost(t, Gateway, in, "gw-a")
		for range 1500 {
			p := randomTape(r, 60).packet(in)
			checkSent(t, in, s, p)
			steps := Trace(s, p)
			verdicts[steps[len(steps)-1].Verdict]++
		}
	}
	for _, v := range []Verdict{Dropped, Delivered, Sent, Handed} {
		require.Greater(t, verdicts[v], 20, "too few packets are %s to show anything: %v", v, verdicts)
	}
}

// The order of an input says nothing.
func TestOrderOfTheInput(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(9, 10))
	for range 20 {
		in := clone(rome())
		r.Shuffle(len(in.Nodes), func(i, j int) { in.Nodes[i], in.Nodes[j] = in.Nodes[j], in.Nodes[i] })
		r.Shuffle(len(in.Gateways), func(i, j int) { in.Gateways[i], in.Gateways[j] = in.Gateways[j], in.Gateways[i] })
		r.Shuffle(len(in.Peers), func(i, j int) { in.Peers[i], in.Peers[j] = in.Peers[j], in.Peers[i] })
		r.Shuffle(len(in.IPs), func(i, j int) { in.IPs[i], in.IPs[j] = in.IPs[j], in.IPs[i] })
		for i := range in.Peers {
			p := &in.Peers[i]
			r.Shuffle(len(p.Ours), func(i, j int) { p.Ours[i], p.Ours[j] = p.Ours[j], p.Ours[i] })
			r.Shuffle(len(p.Gateways), func(i, j int) { p.Gateways[i], p.Gateways[j] = p.Gateways[j], p.Gateways[i] })
			r.Shuffle(len(p.Theirs.Pods), func(i, j int) { p.Theirs.Pods[i], p.Theirs.Pods[j] = p.Theirs.Pods[j], p.Theirs.Pods[i] })
		}
		for self, build := range map[string]func(Input) (State, error){"rome-2": Node, "gw-b": Gateway} {
			require.Equal(t, planHost(t, build, rome(), self), planHost(t, build, in, self))
		}
	}
}
