package plan

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
)

// paris has ranges of its own; rome, through which it sees milan, is its only peer.
func paris() Input {
	return Input{
		Pods:     prefixes("10.1.0.0/16"),
		External: prefixes("10.202.0.0/16"),
		Nodes:    []Host{{"paris-1", addrs("192.168.0.31"), prefixes("10.1.1.0/24")}},
		Gateways: []Replica{{"gw-a", 1, addrs("192.168.0.33"), ""}},
		Via:      "gw-a",
		Peers: []Peer{{
			ID:       "rome",
			Theirs:   Ranges{Pods: prefixes("10.244.0.0/16"), External: prefixes("10.70.0.0/16"), Transit: prefixes("10.204.0.0/16")},
			Ours:     maps("10.1.0.0/16", "10.1.0.0/16", "10.202.0.0/16", "10.202.0.0/16"),
			Gateways: []Remote{{1, key(1), netip.MustParseAddrPort("203.0.113.10:51840"), "", ""}},
			Use:      1,
			Reach:    prefixes("10.1.0.0/16"),
		}},
		Ports: Ports{Overlay: OverlayPort, Tunnel: TunnelPort},
		MTU:   1450,
	}
}

// three is a world in which milan and paris see each other through rome.
func three(t *testing.T, change ...func(rome *Input)) *world {
	t.Helper()
	w := romeAndMilan(t, func(rome, milan *Input) {
		*rome = hub()
		for _, c := range change {
			c(rome)
		}
		milan.Peers[0].Theirs.Transit = prefixes("10.203.0.0/16")
	})
	w.cluster("paris", paris())
	w.keys[key(21)] = "paris gw-a"
	return w
}

func TestThroughAHub(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		from        string
		packet      Packet
		at, as, way string
	}{
		"spoke to spoke":                    {"paris paris-1", tcp("10.1.1.5", "10.204.2.20"), "milan milan-2", "10.203.1.5 > 10.244.2.20", "paris paris-1, paris gw-a, rome gw-a, milan gw-a, milan milan-2"},
		"and the other way":                 {"milan milan-2", tcp("10.244.2.20", "10.203.1.5"), "paris paris-1", "10.204.2.20 > 10.1.1.5", "milan milan-2, milan gw-a, rome gw-a, paris gw-a, paris paris-1"},
		"spoke to hub":                      {"paris paris-1", tcp("10.1.1.5", "10.244.1.10"), "rome rome-1", "10.1.1.5 > 10.244.1.10", "paris paris-1, paris gw-a, rome gw-a, rome rome-1"},
		"a node, to a pod of another spoke": {"paris paris-1", local(tcp("192.168.0.31", "10.204.2.20")), "milan milan-2", "10.71.0.1 > 10.244.2.20", "paris paris-1, paris gw-a, rome gw-a, milan gw-a, milan milan-2"},
		"hub to spoke":                      {"rome rome-2", tcp("10.244.2.10", "10.1.1.5"), "paris paris-1", "10.244.2.10 > 10.1.1.5", "rome rome-2, rome gw-a, paris gw-a, paris paris-1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := three(t)
			got, way := w.arrives(tc.from, tc.packet, tc.at, Handed, tc.as)
			require.Equal(t, tc.way, way)
			w.answered(tc.from, tc.packet, tc.at, got)
		})
	}
}

// What a hub does not give, spokes do not reach: not each other's other pods, nor what is exposed.
func TestAHubGivesRangesOneByOne(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		from   string
		packet Packet
		at     string
	}{
		"a range that paris does not know": {"paris paris-1", tcp("10.1.1.5", "10.201.0.1"), "paris paris-1"},
		"a pod that is not shared":         {"paris paris-1", tcp("10.1.1.5", "10.204.2.21"), "rome gw-a"},
		"a pod of paris that is not":       {"milan milan-2", tcp("10.244.2.20", "10.203.1.6"), "rome gw-a"},
		"what rome exposes, by its view":   {"milan milan-2", tcp("10.244.2.20", "10.70.0.20"), "milan gw-a"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if w := three(t); tc.at != tc.from {
				w.drops(tc.from, tc.packet, tc.at)
			} else { // no route of the fabric
				w.arrives(tc.from, tc.packet, tc.at, Handed, tc.packet.ends())
			}
		})
	}
}

// moved is the world after nodes and peers have left one gateway for the other. What
// connection tracking on the nodes holds is still there, the gateways hold nothing.
func (w *world) moved(t *testing.T) *world {
	t.Helper()
	after := romeAndMilan(t, func(rome, milan *Input) {
		rome.Via, rome.Peers[0].Use, milan.Via, milan.Peers[0].Use = "gw-b", 2, "gw-b", 2
	})
	for _, host := range []string{"rome rome-1", "rome rome-2", "milan milan-1", "milan milan-2"} {
		if f := w.flows[host]; f != nil {
			after.flows[host] = f
		}
	}
	return after
}

// A connection goes on by another gateway, whoever sends first.
func TestConnectionsSurviveAMove(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		from   string
		packet Packet
		home   bool // the first packet after the move comes from who opened the connection
	}{
		"who opened it sends":         {"rome rome-1", tcp("10.244.1.10", "10.200.2.20"), true},
		"who answers sends":           {"rome rome-1", tcp("10.244.1.10", "10.200.2.20"), false},
		"the other way, it sends":     {"milan milan-2", tcp("10.244.2.20", "10.200.1.10"), true},
		"the other way, it answers":   {"milan milan-2", tcp("10.244.2.20", "10.200.1.10"), false},
		"IPv6":                        {"rome rome-1", tcp("fd00:10:244:1::10", "fd00:aa:0:2::20"), true},
		"IPv6, who answers sends":     {"rome rome-1", tcp("fd00:10:244:1::10", "fd00:aa:0:2::20"), false},
		"a node, when it sends":       {"rome rome-1", local(tcp("192.168.0.11", "10.200.2.20")), true},
		"an exposed node, by a peer":  {"milan milan-2", tcp("10.244.2.20", "10.71.0.20"), true},
		"by a peer, the node answers": {"milan milan-2", tcp("10.244.2.20", "10.71.0.20"), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := romeAndMilan(t)
			at, got, _ := w.follow(tc.from, tc.packet)
			require.NotEqual(t, Dropped, got.Verdict)

			w = w.moved(t)
			there := later(tc.packet)
			if tc.home {
				again, now, way := w.follow(tc.from, there)
				require.Equal(t, at, again)
				require.Contains(t, way, "gw-b")
				require.NotContains(t, way, "gw-a")
				require.Equal(t, got.Packet.Tuple, now.Packet.Tuple, "it arrives as before")
			}
			w.answered(tc.from, tc.packet, at, got)
			again, now, _ := w.follow(tc.from, there)
			require.Equal(t, at, again)
			require.Equal(t, got.Packet.Tuple, now.Packet.Tuple)
		})
	}
}

// While nodes and peers have not moved all at once, packets go by different gateways, and
// arrive nevertheless.
func TestHalfAMove(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(rome, milan *Input){
		"the nodes of rome first": func(rome, _ *Input) { rome.Via = "gw-b" },
		"rome's gateways first":   func(rome, _ *Input) { rome.Peers[0].Use = 2 },
		"the nodes of milan":      func(_, milan *Input) { milan.Via = "gw-b" },
		"milan's gateways":        func(_, milan *Input) { milan.Peers[0].Use = 2 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := romeAndMilan(t, change)
			at, got, way := w.follow("rome rome-1", tcp("10.244.1.10", "10.200.2.20"))
			if got.Verdict == Dropped {
				// The peer still takes these sources from the other gateway only.
				require.Equal(t, TunnelDevice, got.Where, "%s: %v", way, got)
				return
			}
			require.Equal(t, "milan milan-2", at, "%v", got)
			require.Equal(t, "10.200.1.10 > 10.244.2.20", got.Packet.Src.String()+" > "+got.Packet.Dst.String())
		})
	}
}

// A peer that is gone leaves nothing behind: what comes from it, or goes to it, is no longer
// the fabric's business.
func TestAPeerThatIsGone(t *testing.T) {
	t.Parallel()
	w := romeAndMilan(t, func(rome, _ *Input) { rome.Peers = rome.Peers[1:] })
	w.drops("milan milan-2", tcp("10.244.2.20", "10.200.1.10"), "rome gw-a", TunnelDevice+": ")
	w.arrives("rome rome-1", tcp("10.244.1.10", "10.200.2.20"), "rome rome-1", Handed, "10.244.1.10 > 10.200.2.20")
}

// An IP for one peer leads that peer to its ports, and nobody to anything else. What the
// host begins passes, and so do the answers.
func TestAnAddressForOnePeerAtAPort(t *testing.T) {
	t.Parallel()
	ping := func(src, dst string) Packet {
		return Packet{In: "veth0", Tuple: Tuple{Proto: "icmp", Src: addr(src), Dst: addr(dst)}}
	}
	datagram := func(src, dst string) Packet {
		p := tcp(src, dst)
		p.Proto, p.SYN = "udp", false
		return p
	}
	for name, tc := range map[string]struct {
		peer   string
		ports  []Service
		packet Packet
		rule   string // it is dropped by, on rome's gateway
	}{
		"the peer, at the port":     {"milan", []Service{{"tcp", 80}}, tcp("10.244.2.20", "10.71.0.21"), ""},
		"the peer, at all ports":    {"milan", nil, tcp("10.244.2.20", "10.71.0.21"), ""},
		"all peers, at the port":    {"", []Service{{"udp", 53}, {"tcp", 80}}, tcp("10.244.2.20", "10.71.0.21"), ""},
		"the peer, at another port": {"milan", []Service{{"tcp", 443}}, tcp("10.244.2.20", "10.71.0.21"), DropToPort},
		"by another protocol":       {"milan", []Service{{"tcp", 80}}, datagram("10.244.2.20", "10.71.0.21"), DropToPort},
		"by ICMP":                   {"milan", []Service{{"tcp", 80}}, ping("10.244.2.20", "10.71.0.21"), DropToPort},
		"another peer":              {"paris", nil, tcp("10.244.2.20", "10.71.0.21"), DropToOutside},
		"another peer, at the port": {"paris", []Service{{"tcp", 80}}, tcp("10.244.2.20", "10.71.0.21"), DropToOutside},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := romeAndMilan(t, func(rome, _ *Input) {
				rome.IPs = []IP{{External: addr("10.70.0.21"), Real: addr("172.16.5.5"), Peer: tc.peer, Ports: tc.ports}}
			})
			if tc.rule != "" {
				w.drops("milan milan-2", tc.packet, "rome gw-a", "forward pass: ", tc.rule)
				return
			}
			got, _ := w.arrives("milan milan-2", tc.packet, "rome gw-a", Handed, "10.244.1.9 > 172.16.5.5")
			w.answered("milan milan-2", tc.packet, "rome gw-a", got)
		})
	}
}

// A host that an IP exposes to one peer begins connections to that peer only, as far as the
// fabric is concerned, and the answers need no port.
func TestAHostThatIsExposedToOnePeer(t *testing.T) {
	t.Parallel()
	for peer, reached := range map[string]bool{"": true, "milan": true, "paris": false} {
		w := romeAndMilan(t, func(rome, _ *Input) {
			rome.IPs = []IP{{External: addr("10.70.0.21"), Real: addr("172.16.5.5"), Peer: peer, Ports: []Service{{"tcp", 443}}}}
		})
		p := tcp("172.16.5.5", "10.200.2.20")
		if !reached {
			w.drops("rome gw-a", p, "rome gw-a", DropFromOutside)
			continue
		}
		got, _ := w.arrives("rome gw-a", p, "milan milan-2", Handed, "10.71.0.21 > 10.244.2.20")
		w.answered("rome gw-a", p, "milan milan-2", got)
	}
}

// An address that is no longer exposed is reached no more, and a connection to it ends.
func TestAnAddressThatIsNoLongerExposed(t *testing.T) {
	t.Parallel()
	w := romeAndMilan(t)
	_, got, _ := w.follow("milan milan-2", tcp("10.244.2.20", "10.71.0.21"))
	require.Equal(t, Handed, got.Verdict)
	flow := w.flows["rome gw-a"]

	w = romeAndMilan(t, func(rome, _ *Input) { rome.IPs = nil })
	w.flows["rome gw-a"] = flow
	for range 2 { // a known connection, and a new one
		w.drops("milan milan-2", tcp("10.244.2.20", "10.71.0.21"), "rome gw-a", "forward pass: ")
		w.flows["rome gw-a"] = nil
	}
}
