package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/liqod/liqod/netfabric/kernel"
	"github.com/liqod/liqod/netfabric/plan"
)

// underlay is the MTU of all networks below.
const underlay = 1500

// The ways that are measured.
const (
	pathRaw      = "raw"
	pathBare     = "bare"
	pathGateways = "gateways"
	pathPods     = "pods"
)

// path is a way from one namespace to an address.
type path struct {
	name, to         string
	sender, receiver *child
	ends             []*child // of its tunnel
}

// network is a router that connects two clusters, and two hosts with a bare tunnel.
type network struct {
	opts    networkOptions
	closers []func() error
	router  *space
	paths   []path
}

// newNetwork builds the network. Both clusters have the same ranges, so everything is
// translated.
func newNetwork(ctx context.Context, o networkOptions) (*network, error) {
	n := &network{opts: o}
	if err := n.fill(ctx); err != nil {
		return nil, errors.Join(err, n.close())
	}
	return n, nil
}

// close ends the processes before their namespaces.
func (n *network) close() (err error) {
	for _, f := range slices.Backward(n.closers) {
		err = errors.Join(err, f())
	}
	return err
}

func (n *network) fill(ctx context.Context) (err error) {
	if n.router, err = n.space(ctx, "router"); err != nil {
		return err
	}
	if err := n.router.run(ctx, "echo 1 > /proc/sys/net/ipv4/ip_forward"); err != nil {
		return err
	}
	if err := n.hosts(ctx); err != nil {
		return err
	}
	if err := n.clusters(ctx); err != nil {
		return err
	}
	for _, p := range n.paths { // until a packet passes and its answer comes back
		if _, err := p.sender.call(sendRequest{To: p.to, Kind: kindRTT, Each: time.Millisecond}); err != nil {
			return fmt.Errorf("path %s: %w", p.name, err)
		}
	}
	return nil
}

// path adds a path from one namespace to another, with a sender and a receiver there.
func (n *network) path(name string, from *space, to string, at *space, ends ...*child) error {
	sender, err := n.start(from, senderCommand)
	if err != nil {
		return err
	}
	receiver, err := n.start(at, receiverCommand)
	n.paths = append(n.paths, path{name, to, sender, receiver, ends})
	return err
}

// tunnelEnd starts a process that is one end of a tunnel.
func (n *network) tunnelEnd(s *space, command string) (*child, error) {
	if n.opts.memory == 0 {
		return n.start(s, command)
	}
	return n.start(s, command, fmt.Sprintf("GOMEMLIMIT=%dMiB", n.opts.memory))
}

// outside makes a namespace with an address on the router: the number-th.
func (n *network) outside(ctx context.Context, name string, number byte) (*space, netip.Addr, error) {
	gateway := netip.AddrFrom4([4]byte{203, 0, 113, 4*number + 1})
	address := gateway.Next()
	s, err := n.space(ctx, name)
	if err != nil {
		return nil, address, err
	}
	err = cable(ctx, n.router, fmt.Sprintf("to%d", number), gateway.String()+"/30", s, "wan", address.String()+"/30")
	if err == nil {
		err = s.run(ctx, "ip route add default via "+gateway.String())
	}
	return s, address, err
}

// hosts makes the raw path and the bare tunnel, which have the same hosts.
func (n *network) hosts(ctx context.Context) error {
	var spaces [2]*space
	var public [2]netip.Addr
	var keys [2]kernel.Key
	var ends [2]*child
	for i, name := range []string{"host-a", "host-b"} {
		var err error
		if spaces[i], public[i], err = n.outside(ctx, name, byte(i)); err != nil {
			return err
		}
		if keys[i], err = kernel.GenerateKey(); err != nil {
			return err
		}
		if ends[i], err = n.tunnelEnd(spaces[i], tunnelCommand); err != nil {
			return err
		}
	}
	for i := range ends {
		other := 1 - i
		_, err := ends[i].call(tunnelRequest{
			Key: keys[i].Private(), Peer: keys[other].Public(),
			Endpoint: netip.AddrPortFrom(public[other], plan.TunnelPort).String(), Allowed: fmt.Sprintf("10.99.0.%d/32", other+1),
		})
		if err == nil {
			err = spaces[i].run(ctx, fmt.Sprintf("ip address add 10.99.0.%d/24 dev %s; ip link set %[2]s up", i+1, bareDevice))
		}
		if err != nil {
			return err
		}
	}
	sender, err := n.start(spaces[0], senderCommand)
	if err != nil {
		return err
	}
	receiver, err := n.start(spaces[1], receiverCommand)
	n.paths = append(n.paths, path{pathRaw, public[1].String(), sender, receiver, nil}, path{pathBare, "10.99.0.2", sender, receiver, ends[:]})
	return err
}

// Addresses of each cluster, and the ranges under which it sees the other.
var (
	podRange      = netip.MustParsePrefix("10.244.0.0/16")
	externalRange = netip.MustParsePrefix("10.70.0.0/16")
	podView       = netip.MustParsePrefix("10.200.0.0/16")
	externalView  = netip.MustParsePrefix("10.201.0.0/16")
	nodePods      = netip.MustParsePrefix("10.244.1.0/24")
	podAddress    = netip.MustParseAddr("10.244.1.10")
	nodeAddress   = netip.MustParseAddr("192.168.0.11")
	insideAddress = netip.MustParseAddr("192.168.0.13") // of the gateway
)

// cluster is a gateway, a node and a pod.
type cluster struct {
	gateway, node, pod *space
	public             netip.Addr
	key                kernel.Key
	process            *child
}

func (n *network) clusters(ctx context.Context) error {
	a, err := n.cluster(ctx, "rome", 2)
	if err != nil {
		return err
	}
	b, err := n.cluster(ctx, "milan", 3)
	if err != nil {
		return err
	}
	if err := errors.Join(b.apply(ctx, a), a.apply(ctx, b)); err != nil {
		return err
	}
	seen := func(own, view netip.Prefix, a netip.Addr) string {
		out, _ := plan.Map{Own: own, View: view}.Out(a)
		return out.String()
	}
	err = n.path(pathGateways, a.gateway, seen(externalRange, externalView, plan.GatewayAddr(externalRange)), b.gateway, a.process, b.process)
	if err != nil {
		return err
	}
	return n.path(pathPods, a.pod, seen(podRange, podView, podAddress), b.pod, a.process, b.process)
}

// cluster builds the hosts of a cluster, with the masquerade of a CNI on the node.
func (n *network) cluster(ctx context.Context, name string, number byte) (c cluster, err error) {
	if c.key, err = kernel.GenerateKey(); err != nil {
		return c, err
	}
	if c.gateway, c.public, err = n.outside(ctx, name+"-gateway", number); err != nil {
		return c, err
	}
	if c.node, err = n.space(ctx, name+"-node"); err != nil {
		return c, err
	}
	if c.pod, err = n.space(ctx, name+"-pod"); err != nil {
		return c, err
	}
	bridge := nodePods.Addr().Next().String()
	if err := errors.Join(
		cable(ctx, c.gateway, "eth0", insideAddress.String()+"/24", c.node, "eth0", nodeAddress.String()+"/24"),
		cable(ctx, c.node, "pod", bridge+"/24", c.pod, "eth0", podAddress.String()+"/24"),
	); err != nil {
		return c, err
	}
	masquerade := fmt.Sprintf(`table ip cni {
	chain post {
		type nat hook postrouting priority 100
		ip saddr %s ip daddr != %[1]s masquerade
	}
}`, podRange)
	if err := errors.Join(
		c.pod.run(ctx, "ip route add default via "+bridge),
		c.node.run(ctx, "echo 1 > /proc/sys/net/ipv4/ip_forward; nft '"+masquerade+"'"),
	); err != nil {
		return c, err
	}
	c.process, err = n.tunnelEnd(c.gateway, gatewayCommand)
	return c, err
}

// input is the cluster with other as its peer.
func (c cluster) input(other cluster) plan.Input {
	return plan.Input{
		Pods:     []netip.Prefix{podRange},
		External: []netip.Prefix{externalRange},
		Nodes:    []plan.Host{{Name: "node", Addrs: []netip.Addr{nodeAddress}, Pods: []netip.Prefix{nodePods}}},
		Gateways: []plan.Replica{{Name: "gateway", Number: 1, Addrs: []netip.Addr{insideAddress}}},
		Via:      "gateway",
		Ports:    plan.Ports{Overlay: plan.OverlayPort, Tunnel: plan.TunnelPort},
		MTU:      underlay,
		Peers: []plan.Peer{{
			ID:     "peer",
			Theirs: plan.Ranges{Pods: []netip.Prefix{podView}, External: []netip.Prefix{externalView}},
			Ours:   plan.Maps{{Own: podRange, View: podView}, {Own: externalRange, View: externalView}},
			Gateways: []plan.Remote{{
				Number: 1, Key: other.key.Public(), Endpoint: netip.AddrPortFrom(other.public, plan.TunnelPort),
			}},
			Use:   1,
			Reach: sharedPods(),
		}},
	}
}

// sharedPods are the pods of a full node, all shared with the peer: with the default of
// networking.reach, each is an element of its own.
func sharedPods() (out []netip.Prefix) {
	for a := podAddress; len(out) < 110; a = a.Next() {
		out = append(out, netip.PrefixFrom(a, a.BitLen()))
	}
	return out
}

// apply makes other a peer of the cluster.
func (c cluster) apply(ctx context.Context, other cluster) error {
	in := c.input(other)
	in.Self = "gateway"
	state, err := plan.Gateway(in)
	if err != nil {
		return fmt.Errorf("planning a gateway: %w", err)
	}
	if _, err := c.process.call(gatewayRequest{Key: c.key.Private(), State: open(state)}); err != nil {
		return err
	}
	in.Self = "node"
	if state, err = plan.Node(in); err != nil {
		return fmt.Errorf("planning a node: %w", err)
	}
	return kernel.New(kernel.Config{Namespace: c.node.fd}).Apply(ctx, state)
}

// open lets traffic of any kind end at a gateway, which has no such traffic otherwise: the
// path between gateways ends there. The rule that it removes is the last one of its chain.
func open(s plan.State) plan.State {
	for i, c := range s.Table.Chains {
		if c.Hook == plan.HookInput {
			s.Table.Chains[i].Rules = c.Rules[:len(c.Rules)-1]
		}
	}
	return s
}
