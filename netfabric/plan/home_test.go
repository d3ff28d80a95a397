package plan

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
)

// servesHome is rome, in whose Services pods of milan live: 10.200.2.20 is one.
func servesHome(rome Input) Input {
	rome.Services = prefixes("10.96.0.0/16")
	rome.Peers[0].Ours = append(rome.Peers[0].Ours, maps("10.96.0.0/16", "10.210.0.0/16")...)
	rome.Peers[0].Served = prefixes("10.200.2.20/32")
	return rome
}

// livesAtHome is milan, where the addresses of rome mean to the pod 10.244.2.20 what they mean in rome.
func livesAtHome(milan Input) Input {
	milan.Peers[0].Theirs.Services = prefixes("10.210.0.0/16")
	milan.Peers[0].Home = prefixes("10.244.2.20/32")
	milan.Peers[0].Meant = maps(
		"10.244.0.0/16", "10.200.0.0/16", "10.70.0.0/16", "10.71.0.0/16", "10.96.0.0/16", "10.210.0.0/16",
		"10.200.0.0/16", "10.244.0.0/16", "10.201.0.0/16", "10.70.0.0/16")
	return milan
}

func atHome(t *testing.T, change ...func(rome, milan *Input)) *world {
	t.Helper()
	return romeAndMilan(t, func(rome, milan *Input) {
		*rome, *milan = servesHome(*rome), livesAtHome(*milan)
		for _, c := range change {
			c(rome, milan)
		}
	})
}

// To a pod with services Home each address means what it means in rome, and to another pod of the same
// node what it means in milan.
func TestAddressesAtHome(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		pod, to  string
		at       string
		src, dst string
		verdict  Verdict
		back     bool
	}{
		"a Service":                     {"10.244.2.20", "10.96.0.10", "rome rome-1", "10.200.2.20", "10.96.0.10", Handed, true},
		"a Service, from another pod":   {"10.244.2.21", "10.96.0.10", "milan milan-2", "10.244.2.21", "10.96.0.10", Handed, false},
		"its view, from another pod":    {"10.244.2.21", "10.210.0.10", "rome gw-a", "10.200.2.21", "10.96.0.10", Dropped, false},
		"a pod of rome":                 {"10.244.2.20", "10.244.1.10", "rome rome-1", "10.200.2.20", "10.244.1.10", Handed, true},
		"rome's view of a pod of milan": {"10.244.2.20", "10.200.1.7", "milan milan-2", "10.244.2.20", "10.244.1.7", Handed, true},
		"that number, from another pod": {"10.244.2.21", "10.200.1.7", "rome rome-1", "10.200.2.21", "10.244.1.7", Handed, true},
		"an exposed node of rome":       {"10.244.2.20", "10.70.0.20", "rome rome-2", "10.200.2.20", "192.168.0.12", Delivered, false},
		"the internet":                  {"10.244.2.20", "192.0.2.1", "milan milan-2", "10.244.2.20", "192.0.2.1", Handed, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := atHome(t)
			sent := tcp(tc.pod, tc.to)
			got, _ := w.arrives("milan milan-2", sent, tc.at, tc.verdict, tc.src+" > "+tc.dst)
			if tc.back {
				w.answered("milan milan-2", sent, tc.at, got)
			}
		})
	}
}

// A pod with services Home sees a caller at the address that the caller has in rome, and answers and calls
// back at this address. If the address lies in the range of its node, it sees the caller's address in milan.
func TestCallersAtHome(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ from, caller, to, seen string }{
		"a pod of rome":              {"rome rome-1", "10.244.1.10", "10.200.2.20", "10.244.1.10"},
		"a pod of milan":             {"milan milan-1", "10.244.1.7", "10.244.2.20", "10.200.1.7"},
		"a number of the own node":   {"rome rome-2", "10.244.2.10", "10.200.2.20", "10.200.2.10"},
		"a pod of rome, another pod": {"rome rome-1", "10.244.1.10", "10.200.2.21", "10.200.1.10"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := atHome(t)
			sent := tcp(tc.caller, tc.to)
			at, got, _ := w.follow(tc.from, sent)
			if at == "milan milan-1" { // the network of milan leads on
				p := sent
				p.In = "eth0"
				at, got, _ = w.follow("milan milan-2", p)
			}
			require.Equal(t, "milan milan-2", at, "%v", got)
			require.Equal(t, tc.seen, got.Packet.Src.String(), "%v", got)
			_, last, _ := w.follow(at, answer(got.Packet, "veth0"))
			require.Equal(t, sent.reverse(), last.Packet.Tuple)
		})
	}
}

// What is not given is not reached: another pod of milan, and a peer without such pods.
func TestServicesAreOpenToPodsThatLiveAtHome(t *testing.T) {
	t.Parallel()
	w := atHome(t, func(rome, _ *Input) { rome.Peers[0].Served = nil })
	w.drops("milan milan-2", tcp("10.244.2.20", "10.96.0.10"), "rome gw-a", DropToPod)
	w.drops("rome gw-a", fromPeer(21, "10.1.1.5", "10.96.0.10"), "rome gw-a", "guard_in") // paris was not given the range
}

// The traces of a pod that lives at home, with equal ranges: to a Service and back, to a pod of a third
// cluster, and while no gateway leads home.
func TestTracesAtHome(t *testing.T) {
	t.Parallel()
	w := atHome(t)
	there, last := w.walk("milan milan-2", tcp("10.244.2.20", "10.96.0.10"))
	compareTrace(t, "home", there)
	back, _ := w.walk("rome rome-1", answer(last.Packet, "cni0"))
	compareTrace(t, "home back", back)

	third := three(t, func(rome *Input) { *rome = servesHome(*rome) })
	in := livesAtHome(milan())
	in.Peers[0].Theirs.Transit = prefixes("10.203.0.0/16")
	in.Peers[0].Meant = append(in.Peers[0].Meant, maps("10.1.0.0/16", "10.203.0.0/16")...)
	third.cluster("milan", in)
	lines, last := third.walk("milan milan-2", tcp("10.244.2.20", "10.1.1.5"))
	compareTrace(t, "home third", lines)
	require.Equal(t, "10.204.2.20 > 10.1.1.5", last.Packet.ends())

	away := atHome(t, func(_, milan *Input) { milan.Via = "" })
	lines, _ = away.walk("milan milan-2", tcp("10.244.2.20", "10.96.0.10"))
	compareTrace(t, "home away", lines)
}

// answersNodePort is rome, where the vkubelet of milan's virtual node answers the node port 30080 at 10.244.1.8.
// No pod is shared with a peer.
func answersNodePort(rome, _ *Input) {
	rome.Peers[0].Reach, rome.Peers[1].Reach = nil, nil
	rome.Peers[0].Ports = []netip.AddrPort{netip.MustParseAddrPort("10.244.1.8:30080"), netip.MustParseAddrPort("[fd00:10:244:1::8]:30080")}
}

// to is a packet to another port, by another protocol.
func to(p Packet, proto string, port uint16) Packet {
	p.Proto, p.DstPort, p.SYN = proto, port, proto == "tcp"
	return p
}

// A peer reaches a node port at the address of its virtual node, by TCP, and nothing else of the vkubelet. A pod that
// lives at home reaches it by the address in rome.
func TestNodePortsOfAVirtualNode(t *testing.T) {
	t.Parallel()
	const lives, other, lives6 = "10.244.2.20", "10.244.2.21", "fd00:10:244:2::20"
	for name, tc := range map[string]struct {
		packet Packet
		passes bool
	}{
		"the node port":                         {to(tcp(lives, "10.244.1.8"), "tcp", 30080), true},
		"by milan's view, from another pod":     {to(tcp(other, "10.200.1.8"), "tcp", 30080), true},
		"by IPv6":                               {to(tcp(lives6, "fd00:ba:0:1::8"), "tcp", 30080), true},
		"from a node":                           {local(to(tcp("192.168.0.22", "10.200.1.8"), "tcp", 30080)), true},
		"the kubelet API":                       {to(tcp(lives, "10.244.1.8"), "tcp", 10250), false},
		"the kubelet API by milan's view":       {to(tcp(other, "10.200.1.8"), "tcp", 10250), false},
		"the kubelet API by IPv6":               {to(tcp(lives6, "fd00:ba:0:1::8"), "tcp", 10250), false},
		"the port by UDP":                       {to(tcp(lives, "10.244.1.8"), "udp", 30080), false},
		"the port of another pod":               {to(tcp(lives, "10.244.1.7"), "tcp", 30080), false},
		"from the node port":                    {Packet{In: "veth0", SYN: true, Tuple: Tuple{Proto: "tcp", Src: addr(lives), Dst: addr("10.244.1.8"), SrcPort: 30080, DstPort: 8080}}, false},
		"the port of the node":                  {to(tcp(lives, "10.244.1.0"), "tcp", 30080), false},
		"a node port that nobody answers there": {to(tcp(lives, "10.244.1.8"), "tcp", 30081), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := atHome(t, answersNodePort)
			if !tc.passes {
				w.drops("milan milan-2", tc.packet, "rome rome-1", DropToPod)
				return
			}
			at, got, _ := w.follow("milan milan-2", tc.packet)
			require.Equal(t, "rome rome-1", at, "%v", got)
			require.Equal(t, Handed, got.Verdict, "%v", got)
			w.answered("milan milan-2", tc.packet, at, got)
		})
	}

	w := atHome(t, answersNodePort)
	w.drops("rome gw-a", to(fromPeer(21, "10.1.1.5", "10.244.1.8"), "tcp", 30080), "rome rome-1", DropToPod) // of another peer's virtual node

	w = atHome(t, answersNodePort)
	open := to(tcp(lives, "10.244.1.8"), "tcp", 30080)
	lines, last := w.walk("milan milan-2", open)
	require.Equal(t, Handed, last.Verdict)
	compareTrace(t, "home node port", lines)
	closed := atHome(t, answersNodePort, func(rome, _ *Input) { rome.Peers[0].Ports = nil })
	closed.flows = w.flows
	closed.drops("milan milan-2", later(open), "rome rome-1", DropToPod) // a connection ends with its node port
}
