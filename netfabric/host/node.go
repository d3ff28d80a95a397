package host

import (
	"context"
	"fmt"
	"math"
	"slices"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/netfabric/plan"
)

// NodeConfig configures a Node.
type NodeConfig struct {
	ClusterID string
	Name      string // of this node
	Overlay   uint16 // UDP port
	AnySender bool   // as in Settings
	MTU       int    // of the underlay; 0: that of the device with the node's address

	Host    Host
	Sources Sources
	// Open opens a socket of UDP for probes of several gateways.
	Open    func() (ProbeSocket, error)
	Shares  *Shares                      // nil: no peer needs them
	AllPods func(corev1beta1.Trust) bool // as in Settings
	Clock   clock.WithTicker
	Log     *zap.Logger
	// Observer may be nil.
	Observer loop.Observer
}

// NodeHost brings the network of one node to its plan, and keeps it there.
type NodeHost struct {
	*fabric
	cfg    NodeConfig
	probes *NodeProbes
	via    map[string]int // numbers by peer; the loop's
}

// NewNode registers with the informers and starts nothing.
func NewNode(cfg NodeConfig) *NodeHost {
	n := &NodeHost{cfg: cfg}
	n.fabric = &fabric{src: cfg.Sources, host: cfg.Host, log: cfg.Log, clk: cfg.Clock, seen: presence{client: cfg.Sources.Client}}
	n.Loop = loop.New(loop.Config{Name: "node", Sync: n.sync, Beside: atOnce, Log: cfg.Log, Observer: cfg.Observer})
	n.probes = NewNodeProbes(cfg.Open, cfg.Clock, cfg.Log, n.wake)
	n.watch()
	if cfg.Shares != nil {
		cfg.Shares.watch(n.Loop, n.wake)
	}
	return n
}

// Run works until ctx is done. What is applied stays.
func (n *NodeHost) Run(ctx context.Context) error {
	defer loop.Start(ctx, n.probes.Run)()
	return n.run(ctx)
}

func (n *NodeHost) sync(ctx context.Context, key loop.Key) error {
	objects, err := n.objects(ctx)
	if err != nil {
		return n.ended(err)
	}
	if n.cfg.Shares != nil {
		objects.Shared = n.cfg.Shares.read()
	}
	mtu, err := n.underlayMTU(objects.Nodes)
	if err != nil {
		return n.ended(err)
	}
	chosen := map[string]int{}
	in, refused, err := BuildInput(objects, Settings{
		ClusterID: n.cfg.ClusterID, Self: n.cfg.Name, MTU: smallestUnderlay(mtu, objects.Gateways),
		Ports:     plan.Ports{Overlay: n.cfg.Overlay, Tunnel: n.cfg.Overlay%math.MaxUint16 + 1}, // any other one: nodes have no port for tunnels
		AnySender: n.cfg.AnySender, AllPods: n.cfg.AllPods,
		Via: func(peer string) string { return n.choose(peer, objects.Gateways, chosen) },
	})
	n.via = chosen
	n.logRefused(refused)
	if err != nil {
		return n.ended(err)
	}
	n.keepOwners(in.Peers)
	n.probes.follow(in)
	state, err := plan.Node(in)
	if err != nil {
		return n.ended(err)
	}
	return n.ended(n.cfg.Host.Apply(ctx, state))
}

// underlayMTU returns the MTU of the underlay of this node.
func (n *NodeHost) underlayMTU(nodes []*corev1.Node) (int, error) {
	if n.cfg.MTU != 0 {
		return n.cfg.MTU, nil
	}
	i := slices.IndexFunc(nodes, func(o *corev1.Node) bool { return o.Name == n.cfg.Name })
	if i < 0 {
		return 0, fmt.Errorf("there is no Node %q: the name of the Node that this process runs on is accepted", n.cfg.Name)
	}
	return UnderlayMTU(underlayOf(nodes[i]))
}

// choose returns the name of the gateway to use for the packets of a peer, and adds its number
// to chosen. While this node hears none, as where there is one alone, the Leases decide.
func (n *NodeHost) choose(peer string, gateways []Announcement, chosen map[string]int) string {
	var probed, announced []plan.Candidate
	known := false
	for _, g := range gateways {
		c, heard := n.probes.judge(int(g.Number), peer)
		probed, known = append(probed, c), known || heard
		announced = append(announced, plan.Candidate{Number: int(g.Number), Alive: g.Alive})
	}
	if !known {
		probed = announced
	}
	plan.Prefer(n.cfg.ClusterID, peer, probed)
	chosen[peer] = plan.Choose(n.via[peer], probed)
	i := slices.IndexFunc(gateways, func(g Announcement) bool { return int(g.Number) == chosen[peer] })
	if i < 0 {
		return ""
	}
	return gateways[i].Name
}

// smallestUnderlay is the MTU of the way between a host and all gateways: a gateway in a pod
// has less room than its node.
func smallestUnderlay(own int, gateways []Announcement) int {
	for _, g := range gateways {
		own = plan.SmallerMTU(own, g.MTU)
	}
	return own
}
