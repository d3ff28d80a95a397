package plan

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// big is a cluster with many nodes and peers: each peer has a pod range and an external range, is
// given views of both of this cluster's, and has two gateways.
func big(peers, nodes int) Input {
	in := Input{
		Self: "node-0", Pods: prefixes("10.0.0.0/11"), External: prefixes("10.32.0.0/16"),
		Gateways: []Replica{{"gw-a", 1, addrs("172.16.255.1"), ""}, {"gw-b", 2, addrs("172.16.255.2"), ""}}, Via: "gw-a",
		Ports: Ports{Overlay: OverlayPort, Tunnel: TunnelPort}, MTU: 1450,
	}
	for i := range nodes {
		in.Nodes = append(in.Nodes, bigNode(i))
	}
	for i := range peers {
		in.Peers = append(in.Peers, bigPeer(i))
	}
	return in
}

func bigNode(i int) Host {
	return Host{fmt.Sprintf("node-%d", i), []netip.Addr{at4(172, 16, i)}, []netip.Prefix{netip.PrefixFrom(at4(10, 0, i<<8), 24)}}
}

func bigPeer(i int) Peer {
	pods, external := netip.PrefixFrom(at4(10, 64, i<<10), 22), netip.PrefixFrom(at4(10, 128, i<<10), 22)
	remote := func(number int) Remote {
		secret := make([]byte, 32)
		binary.BigEndian.PutUint32(secret, uint32(2*i+number))
		return Remote{number, base64.StdEncoding.EncodeToString(secret), netip.AddrPortFrom(at4(198, 18, i), TunnelPort), "", ""}
	}
	return Peer{
		ID: fmt.Sprintf("peer-%d", i), Theirs: Ranges{Pods: []netip.Prefix{pods}, External: []netip.Prefix{external}},
		Ours: maps("10.0.0.0/11", "10.0.0.0/11", "10.32.0.0/16", "10.32.0.0/16"), Gateways: []Remote{remote(1), remote(2)}, Use: 1 + i%2,
		Reach: []netip.Prefix{netip.PrefixFrom(at4(10, 0, i%200), 32)}, // pods of its on this node
	}
}

// at4 is the address n addresses after a.b.0.0.
func at4(a, b byte, n int) netip.Addr {
	n += int(a)<<24 | int(b)<<16
	return netip.AddrFrom4([4]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)})
}

// messages is the number of netlink messages that lead from one state to another: one for the
// WireGuard device, one for each address, neighbor, route and rule, and one for the transaction
// that changes the elements of all sets.
func messages(from, to State) (n int) {
	tunnels, gone := Diff(to.Device.Peers, from.Device.Peers)
	allowed, ended := Diff(to.Device.Allowed, from.Device.Allowed)
	if len(tunnels)+len(gone)+len(allowed)+len(ended) > 0 {
		n++
	}
	n += differ(from.Links, to.Links) + differ(from.Addrs, to.Addrs) + differ(from.Neighs, to.Neighs) + differ(from.FDB, to.FDB) +
		differ(from.Rules, to.Rules) + differ(from.Routes, to.Routes) + differ(from.Sysctls, to.Sysctls)
	if differ(from.Table.Elements, to.Table.Elements) > 0 {
		n++
	}
	return n
}

func differ[T comparable](from, to []T) int {
	add, del := Diff(to, from)
	return len(add) + len(del)
}

// TestScale: a change of one peer or one node of many is a few netlink messages for each node and
// gateway. The log says how long a plan takes and how much memory it has.
func TestScale(t *testing.T) {
	const peers, nodes = 1000, 5000
	changes := map[string]func(in *Input){
		"a peer comes":                   func(in *Input) { in.Peers = append(in.Peers, bigPeer(peers)) },
		"a peer goes":                    func(in *Input) { in.Peers = slices.Delete(slices.Clone(in.Peers), 500, 501) },
		"a peer uses another gateway":    func(in *Input) { in.Peers = slices.Clone(in.Peers); in.Peers[500].Use = 2 },
		"a peer is led to another of us": func(in *Input) { in.Peers = slices.Clone(in.Peers); in.Peers[500].Via = "gw-b" },
		"a peer moves": func(in *Input) {
			in.Peers = slices.Clone(in.Peers)
			moved := in.Peers[500].Gateways[0]
			moved.Endpoint = netip.MustParseAddrPort("203.0.113.9:51840")
			in.Peers[500].Gateways = []Remote{moved, in.Peers[500].Gateways[1]}
		},
		"a node comes": func(in *Input) { in.Nodes = append(in.Nodes, bigNode(nodes)) },
		"a node goes":  func(in *Input) { in.Nodes = slices.Delete(slices.Clone(in.Nodes), 2500, 2501) },
	}
	for role, planned := range map[string]func(Input) (State, error){
		"node":    Node,
		"gateway": func(in Input) (State, error) { in.Self = "gw-a"; return Gateway(in) },
	} {
		t.Run(role, func(t *testing.T) {
			in := big(peers, nodes)
			before := heap()
			begin := time.Now()
			state, err := planned(in)
			require.NoError(t, err)
			took := time.Since(begin)
			t.Logf("%d peers, %d nodes: planned in %s, %d KiB of memory", peers, nodes, took.Round(time.Millisecond), (heap()-before)>>10)
			less, err := planned(big(peers/2, nodes))
			require.NoError(t, err)
			t.Logf("%d of the peers have %d routes, %d tunnels, %d elements", peers/2, len(state.Routes)-len(less.Routes), len(state.Device.Peers)-len(less.Device.Peers), len(state.Table.Elements)-len(less.Table.Elements))
			require.LessOrEqual(t, len(state.Table.Elements), 2*len(less.Table.Elements), "elements grow with the peers, not with the pairs of peers")
			for name, change := range changes {
				changed := in
				change(&changed)
				next, err := planned(changed)
				require.NoError(t, err, name)
				t.Logf("%s: %d messages", name, messages(state, next))
				require.LessOrEqual(t, messages(state, next), 10, name)
			}
			runtime.KeepAlive(state)
		})
	}
}

// heap is the memory that is in use, in bytes.
func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
