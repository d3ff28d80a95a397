package network

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	networkingv1beta1 "github.com/liqod/liqod/api/networking/v1beta1"
	"github.com/liqod/liqod/netfabric/host"
	"github.com/liqod/liqod/netfabric/plan"
)

// usualMTU is what Explain takes for that of the underlay, which no object says.
const usualMTU = 1500

// Errors of a way. errEnds: a host drops the packet.
var (
	// ErrNoPeer is returned for an address that no peer has.
	ErrNoPeer = errors.New("the address belongs to no peer")
	errEnds   = errors.New("the packet ends here")
)

// Explain tells the way of a packet from a pod to an address, and that of the answer, as far
// as the objects of this cluster say. from may be the zero value: then a pod of the first
// node is made up. If from is an address of a peer, and to one of a pod, Explain tells the way of
// the packet within this cluster; allPods is AllPods of Settings. The error of an address that leads
// to no peer is ErrNoPeer.
func Explain(objects host.Objects, to, from netip.Addr, allPods func(corev1beta1.Trust) bool) (string, error) {
	e := &explanation{objects: objects, to: to, from: from, allPods: allPods}
	for _, step := range []func() error{e.prepare, e.arrive, e.there, e.back} {
		if e.arrived {
			break
		}
		if err := step(); err != nil {
			return e.text.String(), err
		}
	}
	return e.text.String(), nil
}

// planned returns the source with which a packet leaves for a peer as the hosts are planned. Its error is errEnds if a
// host drops the packet.
func planned(objects host.Objects, to, from netip.Addr) (netip.Addr, error) {
	e := &explanation{objects: objects, to: to, from: from, allPods: func(corev1beta1.Trust) bool { return true }}
	if err := e.prepare(); err != nil || e.arriving {
		return netip.Addr{}, err
	}
	err := e.there()
	return e.sent.Src, err
}

// explanation is what is found out while a packet is followed.
type explanation struct {
	objects  host.Objects
	to, from netip.Addr
	allPods  func(corev1beta1.Trust) bool
	arriving bool // from is a peer's, to one of a pod
	arrived  bool
	text     strings.Builder

	connection *networkingv1beta1.Connection
	peer       plan.Peer
	node       string
	gateway    string
	onNode     plan.State
	onGateway  plan.State
	sent       plan.Packet // as it left the gateway
	nodeFlow   *plan.Flow
	key        string // of the peer's gateway
}

func (e *explanation) line(format string, args ...any) { fmt.Fprintf(&e.text, format+"\n", args...) }

// prepare plans the two hosts of this cluster.
func (e *explanation) prepare() error {
	set := host.Settings{Ports: plan.Ports{Overlay: plan.OverlayPort, Tunnel: plan.TunnelPort}, MTU: usualMTU, AllPods: e.allPods}
	for _, g := range e.objects.Gateways {
		if g.MTU != 0 {
			set.MTU = min(set.MTU, g.MTU)
		}
	}
	i := slices.IndexFunc(e.objects.Gateways, func(g host.Announcement) bool { return g.Alive })
	if i < 0 && len(e.objects.Gateways) > 0 {
		i = 0
		e.line("no gateway of this cluster renews its Lease: %s stays in use", e.objects.Gateways[0].Name)
	}
	if i >= 0 {
		e.gateway = e.objects.Gateways[i].Name
		set.Via = func(string) string { return e.gateway }
	}
	if len(e.objects.Gateways) > 1 {
		e.line("this cluster has %d gateways, each peer uses one of them: this is the way by %s", len(e.objects.Gateways), e.gateway)
	}
	in, refused, err := host.BuildInput(e.objects, set)
	if err != nil {
		return err
	}
	for _, r := range refused {
		e.line("%s", r)
	}
	if err := e.find(in); err != nil {
		return err
	}
	if e.gateway == "" {
		return errors.New("no gateway of this cluster has announced itself: no Lease has the label " + host.GatewayKey + "=true; packets to peers are refused")
	}
	set.Self = e.node
	if in, _, err = host.BuildInput(e.objects, set); err != nil {
		return err
	}
	if e.onNode, err = plan.Node(in); err != nil {
		return err
	}
	set.Self, set.Use = e.gateway, e.inUse()
	if in, _, err = host.BuildInput(e.objects, set); err != nil {
		return err
	}
	e.onGateway, err = plan.Gateway(in)
	return err
}

// find finds the peer of the address, and the node of the pod.
func (e *explanation) find(in plan.Input) error {
	e.arriving = contains(in.Pods, e.to) && e.from.IsValid() && !contains(in.Pods, e.from)
	there, here := &e.to, &e.from
	if e.arriving {
		there, here = here, there
	}
	for _, p := range in.Peers {
		if meant, ok := p.Meant.Out(e.to); ok && contains(p.Home, e.from) {
			e.line("%s lives in the address space of peer %s (services Home): %s is %s here", e.from, p.ID, e.to, meant)
			there = &meant
		}
	}
	i := slices.IndexFunc(in.Peers, func(p plan.Peer) bool { return contains(p.Theirs.All(), *there) })
	if i < 0 {
		return fmt.Errorf("%w: %s is %s; the peers of this cluster have %s", ErrNoPeer, *there, whose(in, *there), ranged(in.Peers))
	}
	e.peer = in.Peers[i]
	for _, c := range e.objects.Connections {
		if c.Spec.ClusterID == e.peer.ID {
			e.connection = c
		}
	}
	for _, h := range in.Nodes {
		for _, p := range h.Pods {
			switch {
			case !here.IsValid() && p.Addr().Is4() == e.to.Is4():
				e.from = p.Addr().Next()
				e.line("no pod is given: %s stands for one on %s", e.from, h.Name)
				e.node = h.Name
				return nil
			case p.Contains(*here):
				e.node = h.Name
				return nil
			}
		}
	}
	if here.IsValid() {
		return fmt.Errorf("%s is not in the podCIDRs of a Node: the address of a pod of this cluster is accepted", *here)
	}
	return errors.New("no Node has podCIDRs of the family of the address: give the address of a pod")
}

func contains(ranges []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(ranges, func(p netip.Prefix) bool { return p.Contains(a) })
}

// whose says what an address is that no peer has.
func whose(in plan.Input, a netip.Addr) string {
	for _, h := range in.Nodes {
		if slices.Contains(h.Addrs, a) {
			return "that of node " + h.Name
		}
	}
	for _, ip := range in.IPs {
		if ip.External == a {
			return fmt.Sprintf("one of this cluster's external range, for %s, which %s", ip.Real, reached(ip))
		}
	}
	switch {
	case contains(in.Pods, a):
		return "one of a pod range of this cluster"
	case contains(in.External, a):
		return "one of an external range of this cluster"
	}
	return "outside of the fabric, which the routes of the node lead to"
}

// reached says who reaches what of an IP.
func reached(ip plan.IP) string {
	who, what := "all peers reach", "at all ports"
	if ip.Peer != "" {
		who = "peer " + ip.Peer + " alone reaches"
	}
	var ports []string
	for _, s := range ip.Ports {
		ports = append(ports, fmt.Sprintf("%s %d", s.Proto, s.Port))
	}
	if len(ports) > 0 {
		what = "at " + strings.Join(ports, ", ") + " only"
	}
	return who + " " + what
}

func ranged(peers []plan.Peer) string {
	var texts []string
	for _, p := range peers {
		for _, r := range p.Theirs.All() {
			texts = append(texts, fmt.Sprintf("%s (%s)", r, p.ID))
		}
	}
	if len(texts) == 0 {
		return "no ranges: there is no Connection that can be used"
	}
	return strings.Join(texts, ", ")
}

// inUse are the gateways of peers that the own gateway says it sends to, and else the first.
func (e *explanation) inUse() map[string]int {
	out := map[string]int{}
	for _, c := range e.objects.Connections {
		name := ""
		for _, s := range c.Status.Gateways {
			if s.Name == e.gateway {
				name = s.PeerGateway
			}
		}
		for _, g := range c.Spec.Gateways {
			lowest := out[c.Spec.ClusterID] == 0 || int(g.Number) < out[c.Spec.ClusterID]
			if g.Name == name || name == "" && lowest {
				out[c.Spec.ClusterID] = int(g.Number)
			}
		}
	}
	return out
}

// follow tells the steps of a packet on one host, and returns the last one. Its error is errEnds if that has another
// verdict than the wanted one.
func (e *explanation) follow(where string, s plan.State, p plan.Packet, want plan.Verdict) (last plan.Step, err error) {
	e.line("%s", where)
	for _, last = range plan.Trace(s, p) {
		e.line("  %s", last)
	}
	if last.Verdict != want {
		err = fmt.Errorf("%w: %s: %s", errEnds, last.Verdict, last.Where)
	}
	return last, err
}

// viaGateway tells the way of a packet from the tunnel to the pod.
func (e *explanation) viaGateway(p plan.Packet, flow *plan.Flow) (plan.Step, error) {
	last, err := e.follow("gateway "+e.gateway, e.onGateway, p, plan.Sent)
	if err != nil {
		return last, err
	}
	return e.follow("node "+e.node, e.onNode, plan.Packet{In: plan.OverlayDevice, Tuple: last.Packet.Tuple, SYN: p.SYN, Flow: flow}, plan.Handed)
}

// arrive tells the way of a packet of a peer to a pod of this cluster.
func (e *explanation) arrive() error {
	if !e.arriving {
		return nil
	}
	e.arrived = true
	view, ok := e.peer.Ours.Out(e.to)
	if !ok {
		return fmt.Errorf("peer %s was given no address of %s", e.peer.ID, e.to)
	}
	e.line("from %s, in peer %s, to %s, which it calls %s:", e.from, e.peer.ID, e.to, view)
	p := plan.Packet{In: plan.TunnelDevice, Tuple: plan.Tuple{Proto: "tcp", Src: e.from, Dst: view, SrcPort: 40000, DstPort: 80}, SYN: true}
	last, err := e.viaGateway(p, nil)
	if last.Verdict == plan.Dropped && last.Packet.In == plan.OverlayDevice && strings.Contains(last.What, plan.DropToPod) {
		return fmt.Errorf("%w: networking.reach is Shared, and no pod with the address %s is shared with peer %s: offload the namespace of the pod to it, create an IP for the address, or set networking.reach to All; where networking.reach is not set, spec.trust Organisation of ForeignCluster %s opens all pods to it",
			err, e.to, e.peer.ID, e.peer.ID)
	}
	if err != nil {
		return err
	}
	e.line("pod %s", e.to)
	return nil
}

func (e *explanation) there() error {
	e.line("from %s to %s, in peer %s:", e.from, e.to, e.peer.ID)
	first := plan.Packet{In: "pod", Tuple: plan.Tuple{Proto: "tcp", Src: e.from, Dst: e.to, SrcPort: 40000, DstPort: 80}, SYN: true}
	last, err := e.follow("node "+e.node, e.onNode, first, plan.Sent)
	e.nodeFlow = last.Packet.Flow
	if err != nil {
		return err
	}
	next := plan.Packet{In: plan.OverlayDevice, Tuple: last.Packet.Tuple, SYN: true}
	if last, err = e.follow("gateway "+e.gateway, e.onGateway, next, plan.Sent); err != nil {
		return err
	}
	e.sent, e.key = last.Packet, last.To
	i := slices.IndexFunc(e.connection.Spec.Gateways, func(g networkingv1beta1.Gateway) bool { return g.PublicKey == e.key })
	if i < 0 {
		return fmt.Errorf("the packet leaves for a gateway of another peer, with the key %s", e.key)
	}
	e.line("peer %s, gateway %s", e.peer.ID, e.connection.Spec.Gateways[i].Name)
	e.line("  it sees %s > %s, and translates %s to %s; the rest of the way is known there", e.sent.Src, e.sent.Dst, e.sent.Dst, e.real())
	return nil
}

// real is the address that the peer has for the pod: its own, or that of one in a cluster behind it.
func (e *explanation) real() string {
	for _, m := range e.connection.Spec.Remote {
		if a, ok := (plan.Map{Own: prefix(m.Own), View: prefix(m.View)}).In(e.sent.Dst); ok && m.Use == networkingv1beta1.RangeTransit {
			return fmt.Sprintf("%s, by which it sees a pod in a third cluster", a)
		} else if ok {
			return "its own " + a.String()
		}
	}
	return "its own address"
}

func (e *explanation) back() error {
	t := e.sent.Tuple
	e.line("and back:")
	answer := plan.Packet{In: plan.TunnelDevice, Key: e.key, Flow: e.sent.Flow, Tuple: plan.Tuple{Proto: t.Proto, Src: t.Dst, Dst: t.Src, SrcPort: t.DstPort, DstPort: t.SrcPort}}
	last, err := e.viaGateway(answer, e.nodeFlow)
	if err != nil {
		return err
	}
	e.line("pod %s", last.Packet.Dst)
	e.line("  it has the answer from %s", last.Packet.Src)
	return e.tunnel()
}

// tunnel adds the state of the tunnel: a plan contains nothing of the network below.
func (e *explanation) tunnel() error {
	s := e.connection.Status
	if s.Value == networkingv1beta1.Connected {
		e.line("the gateways answer each other's probes")
		return nil
	}
	message := ""
	if c := meta.FindStatusCondition(s.Conditions, networkingv1beta1.ConditionReady); c != nil {
		message = ": " + c.Message
	}
	return fmt.Errorf("the way is planned, but Connection %s/%s is %q%s", e.connection.Namespace, e.connection.Name, s.Value, message)
}
