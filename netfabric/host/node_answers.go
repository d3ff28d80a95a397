package host

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/liqod/liqod/netfabric/plan"
)

// Where a cluster has several gateways, each node probes all of them over the overlay, and
// moves the packets of a peer to another one by itself. An answer lists the peers that the
// gateway does not serve, and twice those that none of its tunnels leads to. A gateway sends it
// unasked when that changes, so nodes and peers move at the same time.
//
// The packets are not authenticated: a sender that reaches the overlay can send packets of pods
// there too.
const (
	nodeProbeEvery   = 300 * time.Millisecond
	nodeProbeSilence = 1500 * time.Millisecond // after it, a gateway that has answered is dead
	nodeForget       = 3 * time.Second         // after it, a gateway sends a node nothing unasked
)

// A probe of a node is, in network byte order: magic and version (4 bytes), kind (1), the
// random number of the node (8). An answer goes on: flags (1), number of peers (2), the
// beginning of the ClusterHash of each (8).
const (
	nodeMagic   = "lqn\x01"
	nodeRequest = 1
	nodeAnswer  = 2
	nodeHeader  = len(nodeMagic) + 1 + 8
	flagAway    = 1   // the gateway serves no peer
	mostAway    = 128 // entries in an answer; with more peers it serves none
)

func isNodeProbe(packet []byte) bool {
	return len(packet) >= nodeHeader && string(packet[:len(nodeMagic)]) == nodeMagic
}

// NodeProbe returns a probe as nodes send it to plan.ReplicaAddr of a gateway of their own cluster, on
// plan.ProbePort, padded to size bytes.
func NodeProbe(nonce uint64, size int) []byte {
	packet := nodePacket(nodeRequest, nonce)
	return append(packet, make([]byte, max(0, size-len(packet)))...)
}

// IsNodeAnswer reports whether a packet is a gateway's answer to the probe with nonce.
func IsNodeAnswer(packet []byte, nonce uint64) bool {
	return len(packet) >= nodeHeader+3 && string(packet[:nodeHeader]) == string(nodePacket(nodeAnswer, nonce))
}

func nodePacket(kind byte, nonce uint64) []byte {
	return binary.BigEndian.AppendUint64(append([]byte(nodeMagic), kind), nonce)
}

// short is the beginning of a hash.
func (h ClusterHash) short() uint64 { return binary.BigEndian.Uint64(h[:]) }

// NodeAnswers answers the probes of nodes at a gateway. It is safe for concurrent use.
type NodeAnswers struct {
	clock clock.PassiveClock

	mu     sync.Mutex
	nodes  map[netip.Addr]bool // addresses of nodes; packets of others are dropped
	asked  map[netip.Addr]nodeAsk
	answer []byte // what follows the number of the node
}

// nodeAsk is the last probe of a node.
type nodeAsk struct {
	from  netip.AddrPort
	nonce uint64
	at    time.Time
}

// NewNodeAnswers returns answers for no node.
func NewNodeAnswers(clk clock.PassiveClock) *NodeAnswers {
	return &NodeAnswers{clock: clk, asked: map[netip.Addr]nodeAsk{}, answer: []byte{flagAway, 0, 0}}
}

// follow replaces the addresses of nodes.
func (n *NodeAnswers) follow(nodes []plan.Host) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.nodes = map[netip.Addr]bool{}
	for _, h := range nodes {
		for _, a := range h.Addrs {
			n.nodes[a] = true
		}
	}
}

// take answers a probe of a node.
func (n *NodeAnswers) take(conn ProbeSocket, packet []byte, from netip.AddrPort) {
	n.mu.Lock()
	node := from.Addr().Unmap()
	known := n.nodes[node] && packet[len(nodeMagic)] == nodeRequest
	last := nodeAsk{from, binary.BigEndian.Uint64(packet[nodeHeader-8:]), n.clock.Now()}
	if known {
		n.asked[node] = last
	}
	answer := n.answer
	n.mu.Unlock()
	if known {
		_, _ = conn.WriteToUDPAddrPort(append(nodePacket(nodeAnswer, last.nonce), answer...), from)
	}
}

// set replaces the answer: away are the peers that this gateway does not serve, with those that
// it cannot reach twice. It sends a new answer to all nodes that have asked of late.
func (n *NodeAnswers) set(conn ProbeSocket, leaving bool, away []uint64) {
	answer := []byte{flagAway, 0, 0}
	slices.Sort(away)
	if len(away) > mostAway {
		away = slices.Compact(away)
	}
	if !leaving && len(away) <= mostAway {
		answer = binary.BigEndian.AppendUint16([]byte{0}, uint16(len(away)))
		for _, peer := range away {
			answer = binary.BigEndian.AppendUint64(answer, peer)
		}
	}
	n.mu.Lock()
	changed, now := !slices.Equal(answer, n.answer), n.clock.Now()
	n.answer = answer
	var all []nodeAsk
	for node, last := range n.asked {
		if now.Sub(last.at) > nodeForget || !n.nodes[node] {
			delete(n.asked, node)
			continue
		}
		all = append(all, last)
	}
	n.mu.Unlock()
	if !changed {
		return
	}
	for _, last := range all {
		_, _ = conn.WriteToUDPAddrPort(append(nodePacket(nodeAnswer, last.nonce), answer...), last.from)
	}
}
