package host

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	ipamv1alpha1 "github.com/liqod/liqod/api/ipam/v1alpha1"
	networkingv1beta1 "github.com/liqod/liqod/api/networking/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/lease"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/netfabric/check"
	"github.com/liqod/liqod/netfabric/kernel"
	"github.com/liqod/liqod/netfabric/plan"
)

// Objects are the API objects of one cluster that a host of its fabric follows.
type Objects struct {
	Connections []*networkingv1beta1.Connection
	Nodes       []*corev1.Node
	IPs         []*ipamv1alpha1.IP
	Gateways    []Announcement // own ones
	// Pods are the addresses of the pods of nodes without podCIDRs, by node. Only a gateway
	// needs them.
	Pods map[string][]netip.Prefix
	// Shared are the Pods that peers reach, and what says so. A node needs its own Pods, a gateway
	// those in third clusters.
	Shared Shared
}

// Settings are what a host does not read from API objects.
type Settings struct {
	ClusterID string
	Self      string // a node, or a gateway
	Ports     plan.Ports
	AnySender bool // the overlay's packets are taken from every address
	MTU       int  // of the underlay of this host
	// Closed are ranges of this cluster that no gateway of a peer may be at: those of its
	// Services, and others that its nodes reach.
	Closed []ipamv1alpha1.NamedRange

	// AllPods reports whether a peer reaches all pods of this node, and not those of Objects.Shared
	// alone, by spec.trust of its Connection. A gateway needs none.
	AllPods func(corev1beta1.Trust) bool

	// Via returns the name of the own gateway that a node uses for the packets of a peer, or those
	// to own addresses, where peer is empty. It may be nil.
	Via func(peer string) string
	// Use is the number of the gateway in use, by the id of the peer.
	Use map[string]int
	// Tunnels are the peers of the tunnel device, by public key.
	Tunnels map[string]kernel.Peer
	// Endpoint returns the address to send to of a peer's gateway, among those that accept
	// allows. It may be nil: no gateway of a peer has an address.
	Endpoint func(peer string, g networkingv1beta1.Gateway, accept func(netip.Addr) error) netip.AddrPort
}

// Refusal is the reason why an object, or a part of it, is left out of an Input.
type Refusal struct {
	Kind            string // of the object: Connection, Node, IP, Gateway
	Namespace, Name string
	Message         string
}

// String writes r on a line.
func (r Refusal) String() string {
	name := r.Name
	if r.Namespace != "" {
		name = r.Namespace + "/" + name
	}
	return fmt.Sprintf("%s %s is left out: %s", r.Kind, name, r.Message)
}

// BuildInput turns API objects into the Input of one host. An object that fails a check is left
// out alone, with a Refusal; of two that collide the older one stays. An error means that the
// settings or this host's own objects are wrong; then there is no Input.
func BuildInput(objects Objects, set Settings) (plan.Input, []Refusal, error) {
	b := &builder{set: set, shared: objects.Shared.sharing(admissions(objects.Connections)), ports: map[string][]netip.AddrPort{}}
	b.addGateways(objects.Gateways)
	b.addNodes(objects.Nodes, objects.Pods)
	if err := b.base(); err != nil {
		return plan.Input{}, b.refused, err
	}
	b.addConnections(objects.Connections)
	b.addIPs(objects.IPs)
	in, dropped := b.fit()
	b.refuse(dropped...)
	b.strays(in.Pods)
	slices.SortFunc(b.refused, func(x, y Refusal) int {
		return cmp.Or(strings.Compare(x.Kind, y.Kind), strings.Compare(x.Namespace, y.Namespace), strings.Compare(x.Name, y.Name))
	})
	return in, b.refused, nil
}

type builder struct {
	set     Settings
	shared  sharing
	ports   map[string][]netip.AddrPort // node ports of virtual nodes that peers reach, by peer
	refused []Refusal

	replicas []plan.Replica
	keys     map[string]string // of own gateways
	hosts    []plan.Host
	whole    bool        // this node is one without podCIDRs
	peers    []candidate // the oldest first
	ips      []exposure

	nodeAddrs []netip.Addr // all of all nodes
}

// candidate is a peer that a Connection requests.
type candidate struct {
	from   *networkingv1beta1.Connection
	peer   plan.Peer
	own    plan.Ranges // that it is given
	behind plan.Maps   // ranges of third clusters
	meant  plan.Maps   // what the addresses of the peer mean here
}

// exposure is an address that an IP requests.
type exposure struct {
	from *ipamv1alpha1.IP
	ip   plan.IP
}

func (b *builder) refuse(r ...Refusal) { b.refused = append(b.refused, r...) }

// addGateways adds the own gateways. Of two with one name or address the live one stays: a
// gateway that has died may have left its address to the next.
func (b *builder) addGateways(list []Announcement) {
	b.keys = map[string]string{}
	taken, named := map[netip.Addr]bool{}, map[string]bool{}
	list = slices.Clone(list)
	slices.SortStableFunc(list, func(x, y Announcement) int {
		if x.Alive != y.Alive {
			if x.Alive {
				return -1
			}
			return 1
		}
		return cmp.Compare(x.Number, y.Number)
	})
	for _, a := range list {
		r, err := a.replica()
		if err != nil {
			b.refuse(Refusal{Kind: "Gateway", Name: a.Name, Message: err.Error()})
			continue
		}
		if named[r.Name] || slices.ContainsFunc(r.Addrs, func(addr netip.Addr) bool { return taken[addr] }) {
			continue
		}
		named[r.Name] = true
		for _, addr := range r.Addrs {
			taken[addr] = true
		}
		for _, key := range a.Keys() {
			b.keys[key] = "gateway " + a.Name + " of this cluster"
		}
		b.replicas = append(b.replicas, r)
	}
}

// addNodes adds the nodes of the cluster, and of virtual nodes the ports that peers reach.
func (b *builder) addNodes(list []*corev1.Node, pods map[string][]netip.Prefix) {
	for _, n := range list {
		if offloadingv1beta1.IsVirtual(n) {
			peer, ports := offloadingv1beta1.NodePorts(n)
			b.ports[peer] = append(b.ports[peer], ports...)
			continue
		}
		host := plan.Host{Name: n.Name, Pods: check.PodRanges(n)}
		if len(host.Pods) == 0 {
			host.Pods = pods[n.Name]
			b.whole = b.whole || n.Name == b.set.Self
			b.unknownPods(n.Name, pods != nil)
		}
		b.nodeAddrs = append(b.nodeAddrs, check.Addresses(n)...)
		for _, a := range underlayOf(n) {
			if !slices.ContainsFunc(host.Addrs, func(have netip.Addr) bool { return have.Is4() == a.Is4() }) {
				host.Addrs = append(host.Addrs, a)
			}
		}
		b.hosts = append(b.hosts, host)
	}
	slices.SortFunc(b.hosts, func(x, y plan.Host) int { return strings.Compare(x.Name, y.Name) })
	b.apart()
}

// unknownPods adds a Refusal if this gateway cannot lead packets to the pods of a node.
func (b *builder) unknownPods(node string, followed bool) {
	if !followed && slices.ContainsFunc(b.replicas, func(r plan.Replica) bool { return r.Name == b.set.Self }) {
		b.refuse(Refusal{Kind: "Node", Name: node, Message: "it has no podCIDRs, so peers do not reach its pods: set gateway.podAddresses where the CNI gives addresses by itself"})
	}
}

// apart takes a range of pods from all nodes but one: packets to it can go to one only.
func (b *builder) apart() {
	for i := range b.hosts {
		h := &b.hosts[i]
		var mine []netip.Prefix
		for _, p := range h.Pods {
			j := slices.IndexFunc(b.hosts[:i], func(before plan.Host) bool { return slices.ContainsFunc(before.Pods, p.Overlaps) })
			if j >= 0 {
				b.refuse(Refusal{Kind: "Node", Name: h.Name, Message: fmt.Sprintf("its podCIDR %s overlaps one of node %s", p, b.hosts[j].Name)})
				continue
			}
			mine = append(mine, p)
		}
		h.Pods = mine
	}
}

// base leaves out own hosts until the Input without peers is valid.
func (b *builder) base() error {
	for {
		err := b.with(nil).Check()
		if err == nil {
			return nil
		}
		host, message := guilty(err)
		if host == "" || host == b.set.Self {
			return err
		}
		if i := slices.IndexFunc(b.hosts, func(h plan.Host) bool { return h.Name == host }); i >= 0 {
			b.refuse(Refusal{Kind: "Node", Name: host, Message: message})
			b.hosts = slices.Delete(b.hosts, i, i+1)
			continue
		}
		i := slices.IndexFunc(b.replicas, func(r plan.Replica) bool { return r.Name == host })
		if i < 0 {
			return err
		}
		b.refuse(Refusal{Kind: "Gateway", Name: host, Message: message})
		b.replicas = slices.Delete(b.replicas, i, i+1)
	}
}

// guilty returns a host that an error names, and the text about it.
func guilty(err error) (host, message string) {
	var joined interface{ Unwrap() []error }
	if !errors.As(err, &joined) {
		return "", ""
	}
	for _, one := range joined.Unwrap() {
		var field *plan.FieldError
		if errors.As(one, &field) && field.Host != "" {
			return field.Host, field.Field + ": " + field.Text
		}
	}
	return "", ""
}

func (b *builder) addConnections(list []*networkingv1beta1.Connection) {
	for _, c := range list {
		if c.DeletionTimestamp != nil {
			continue
		}
		one, err := b.candidate(c)
		if err != nil {
			b.refuse(refusedConnection(c, err))
			continue
		}
		b.peers = append(b.peers, one)
	}
	slices.SortFunc(b.peers, func(x, y candidate) int {
		return cmp.Or(x.from.CreationTimestamp.Compare(y.from.CreationTimestamp.Time), strings.Compare(x.peer.ID, y.peer.ID))
	})
}

func refusedConnection(c *networkingv1beta1.Connection, err error) Refusal {
	return Refusal{Kind: "Connection", Namespace: c.Namespace, Name: c.Name, Message: store.OneLine(err)}
}

// candidate reads one Connection by itself.
func (b *builder) candidate(c *networkingv1beta1.Connection) (out candidate, err error) {
	id := c.Spec.ClusterID
	if id == "" || c.Namespace != corev1beta1.TenantNamespace(id) || c.Name != id {
		return out, fmt.Errorf("spec.clusterID is %.64q: the Connection of a peer has its id as its name, and is in namespace %sID", id, corev1beta1.TenantNamespacePrefix)
	}
	out = candidate{from: c, peer: plan.Peer{ID: id, MTU: int(c.Spec.MTU)}}
	for _, m := range c.Spec.Local {
		mapping, err := readMapping("local", m)
		if err != nil {
			return out, err
		}
		out.meant = append(out.meant, plan.Map{Own: mapping.View, View: mapping.Own})
		if m.Use == networkingv1beta1.RangeTransit {
			out.behind = append(out.behind, mapping)
			continue // given with the third cluster alone
		}
		addRange(&out.own, m.Use, mapping.Own)
		out.peer.Ours = append(out.peer.Ours, mapping)
	}
	for _, m := range c.Spec.Remote {
		mapping, err := readMapping("remote", m)
		if err != nil {
			return out, err
		}
		addRange(&out.peer.Theirs, m.Use, mapping.View)
		out.meant = append(out.meant, mapping)
	}
	return out, b.remotes(&out)
}

func addRange(to *plan.Ranges, use networkingv1beta1.RangeUse, r netip.Prefix) {
	list := map[networkingv1beta1.RangeUse]*[]netip.Prefix{
		networkingv1beta1.RangePod: &to.Pods, networkingv1beta1.RangeExternal: &to.External,
		networkingv1beta1.RangeTransit: &to.Transit, networkingv1beta1.RangeService: &to.Services,
	}[use]
	*list = append(*list, r)
}

func readMapping(side string, m networkingv1beta1.Mapping) (plan.Map, error) {
	if !slices.Contains(networkingv1beta1.RangeUses(), m.Use) {
		return plan.Map{}, fmt.Errorf("spec.%s: use is %.64q: one of %s is accepted", side, m.Use, networkingv1beta1.RangeUses())
	}
	return check.ReadMapping("spec."+side, m)
}

// remotes reads the gateways of a peer, without their addresses: those depend on the ranges
// of the other peers.
func (b *builder) remotes(c *candidate) error {
	s := check.Surroundings{ClusterID: b.set.ClusterID, Keys: b.keys}
	for _, g := range c.from.Spec.Gateways {
		for _, key := range g.Keys() {
			if err := s.CheckKey(key); err != nil {
				return fmt.Errorf("spec.gateways: gateway %.64q: a key: %w", g.Name, err)
			}
		}
		r := plan.Remote{Name: g.Name, Number: int(g.Number), Key: g.PublicKey, Next: g.NextPublicKey}
		if b.set.Tunnels[r.Next].Handshake.After(b.set.Tunnels[r.Key].Handshake) {
			r.Key, r.Next = r.Next, r.Key
		}
		c.peer.Gateways = append(c.peer.Gateways, r)
	}
	slices.SortFunc(c.peer.Gateways, func(x, y plan.Remote) int { return cmp.Compare(x.Number, y.Number) })
	use := b.set.Use[c.peer.ID]
	if slices.ContainsFunc(c.peer.Gateways, func(r plan.Remote) bool { return r.Number == use }) {
		c.peer.Use = use
	}
	return nil
}

// addIPs adds the IPs, the oldest first.
func (b *builder) addIPs(list []*ipamv1alpha1.IP) {
	list = slices.Clone(list)
	slices.SortFunc(list, func(x, y *ipamv1alpha1.IP) int {
		return cmp.Or(x.CreationTimestamp.Compare(y.CreationTimestamp.Time), strings.Compare(x.Namespace, y.Namespace), strings.Compare(x.Name, y.Name))
	})
	for _, i := range list {
		external, given := i.Status.IP.Addr()
		destination, ok := i.Spec.IP.Addr()
		if !given || i.DeletionTimestamp != nil {
			continue
		}
		if !ok {
			b.refuse(refusedIP(i, "spec.ip is %.64q: an address is accepted", i.Spec.IP))
			continue
		}
		if destination == external {
			b.refuse(refusedIP(i, "spec.ip %s is the address that it has been given", i.Spec.IP))
			continue
		}
		if i.Labels[offloadingv1beta1.ManagedByLabel] == ipamv1alpha1.ManagedByAPIServer {
			destination = external // gateways lead connections on
		}
		b.ips = append(b.ips, exposure{i, plan.IP{External: external, Real: destination, Peer: corev1beta1.PeerOfNamespace(i.Namespace), Ports: planPorts(i.Spec.Ports)}})
	}
}

// planPorts returns ports as the plan has them. A port out of range becomes 0, which the plan
// refuses.
func planPorts(ports []ipamv1alpha1.IPPort) (out []plan.Service) {
	for _, p := range ports {
		s := plan.Service{Proto: strings.ToLower(string(p.Protocol)), Port: uint16(p.Port)}
		if int32(s.Port) != p.Port {
			s.Port = 0
		}
		out = append(out, s)
	}
	return out
}

func refusedIP(i *ipamv1alpha1.IP, format string, args ...any) Refusal {
	return Refusal{Kind: "IP", Namespace: i.Namespace, Name: i.Name, Message: fmt.Sprintf(format, args...)}
}

// fit returns the Input with every peer that fits beside the older ones. It tries all at
// once first: that is what nearly always succeeds.
func (b *builder) fit() (plan.Input, []Refusal) {
	in, dropped := b.attempt(b.peers)
	if in.Check() == nil {
		return in, dropped
	}
	var refused []Refusal
	var good []candidate
	for _, c := range b.peers {
		in, _ := b.attempt(append(slices.Clip(good), c))
		if err := in.Check(); err != nil {
			refused = append(refused, refusedConnection(c.from, err))
			continue
		}
		good = append(good, c)
	}
	in, dropped = b.attempt(good)
	return in, append(refused, dropped...)
}

// attempt is the Input with some peers, and with the IPs that are valid beside them. An IP that leads
// to an address within the view of an older Connection is left out: else a client with the right to write IPs
// could cut a peer off. Within that of a younger one, the IP stays, and the check refuses the Connection.
func (b *builder) attempt(peers []candidate) (in plan.Input, dropped []Refusal) {
	in = b.with(peers)
	taken := map[netip.Addr]bool{}
	for _, e := range b.ips {
		probe := plan.Input{External: in.External, Ports: in.Ports, MTU: in.MTU, IPs: []plan.IP{e.ip}}
		older := slices.IndexFunc(peers, func(c candidate) bool {
			return !e.from.CreationTimestamp.Before(&c.from.CreationTimestamp) && plan.Within(plan.Single(e.ip.Real), c.peer.Theirs.All())
		})
		switch err := probe.Check(); {
		case len(in.External) == 0: // no Connection yet, so the external range is not known
		case err != nil:
			dropped = append(dropped, refusedIP(e.from, "%s", store.OneLine(err)))
		case taken[e.ip.External]:
			dropped = append(dropped, refusedIP(e.from, "status.ip %s is that of an older IP", e.ip.External))
		case older >= 0:
			dropped = append(dropped, refusedIP(e.from, "spec.ip %s is an address of peer %s", e.ip.Real, peers[older].peer.ID))
		default:
			taken[e.ip.External] = true
			in.IPs = append(in.IPs, e.ip)
		}
	}
	return in, dropped
}

// with is the Input with some peers.
func (b *builder) with(peers []candidate) plan.Input {
	in := plan.Input{Self: b.set.Self, Gateways: b.replicas, Ports: b.set.Ports, AnySender: b.set.AnySender, MTU: b.set.MTU, Via: b.via("")}
	for _, c := range peers {
		in.Pods, in.External, in.Services = union(in.Pods, c.own.Pods), union(in.External, c.own.External), union(in.Services, c.own.Services)
	}
	for _, h := range b.hosts {
		in.Nodes = append(in.Nodes, b.podsOf(h, in.Pods))
	}
	for i, c := range peers {
		peer := c.peer
		peer.Gateways, peer.Reach, peer.Via = b.located(c, b.around(peers, i, in)), b.reach(c), b.via(peer.ID)
		// A vkubelet writes its Node: what it names is open only where a vkubelet of the same peer answers.
		vkubelets := within(b.shared.vkubelets[peer.ID], c.own.Pods)
		peer.Ports = slices.DeleteFunc(slices.Clone(b.ports[peer.ID]), func(at netip.AddrPort) bool { return !plan.Within(plan.Single(at.Addr()), vkubelets) })
		peer.Home = within(b.shared.home[peer.ID], c.own.Pods)
		if len(peer.Home) > 0 {
			peer.Meant = c.meant
		}
		peer.Served = within(b.shared.served[peer.ID], peer.Theirs.Pods)
		b.lead(&peer, c, peers)
		in.Peers = append(in.Peers, peer)
	}
	return in
}

// via returns the gateway that this node uses for the packets of a peer; empty: none.
func (b *builder) via(peer string) string {
	if b.set.Via == nil {
		return ""
	}
	name := b.set.Via(peer)
	if !slices.ContainsFunc(b.replicas, func(r plan.Replica) bool { return r.Name == name }) {
		return ""
	}
	return name
}

// reach returns what a peer reaches of the pods of this node.
func (b *builder) reach(c candidate) []netip.Prefix {
	if b.set.AllPods != nil && b.set.AllPods(corev1beta1.Trust(c.from.Spec.Trust)) {
		return c.own.Pods
	}
	return within(b.shared.reach[c.peer.ID], c.own.Pods)
}

// within returns the addresses that lie in a range.
func within(addresses, ranges []netip.Prefix) []netip.Prefix {
	return slices.DeleteFunc(slices.Clone(addresses), func(p netip.Prefix) bool { return !plan.Within(p, ranges) })
}

// strays adds a Refusal for each podCIDR outside of the published ranges: its pods do not reach
// peers.
func (b *builder) strays(own []netip.Prefix) {
	for _, h := range b.hosts {
		for _, p := range h.Pods {
			same := slices.ContainsFunc(own, func(r netip.Prefix) bool { return r.Addr().Is4() == p.Addr().Is4() })
			if same && !p.IsSingleIP() && !plan.Within(p, own) {
				b.refuse(Refusal{Kind: "Node", Name: h.Name, Message: fmt.Sprintf("its podCIDR %s is in none of the pod ranges %s, which peers know", p, own)})
			}
		}
	}
}

func union(have, more []netip.Prefix) []netip.Prefix {
	for _, p := range more {
		if !slices.Contains(have, p) {
			have = append(have, p)
		}
	}
	return have
}

// podsOf returns h with the ranges of its pods that lie in the own ones. Where the CNI gives
// addresses by itself, a node has no podCIDRs; but the pods that send packets through this
// node are its own, whatever their addresses, and it needs to know of no other's.
func (b *builder) podsOf(h plan.Host, own []netip.Prefix) plan.Host {
	if b.whole {
		h.Pods = nil
		if h.Name == b.set.Self {
			h.Pods = own
		}
		return h
	}
	h.Pods = within(h.Pods, own)
	return h
}

// around is what the address of a gateway of one peer is judged by.
func (b *builder) around(peers []candidate, one int, in plan.Input) check.Surroundings {
	s := check.Surroundings{ClusterID: b.set.ClusterID, Own: check.Own{Pods: in.Pods, External: in.External, Nodes: b.nodeAddrs}, Views: slices.Clone(b.set.Closed)}
	for i, c := range peers {
		if i != one {
			s.Views = append(s.Views, check.Named("a range of peer "+c.peer.ID, c.peer.Theirs.All())...)
		}
	}
	return s
}

// located are the gateways of a peer with the addresses to send to.
func (b *builder) located(c candidate, around check.Surroundings) []plan.Remote {
	if b.set.Endpoint == nil {
		return c.peer.Gateways
	}
	out := slices.Clone(c.peer.Gateways)
	for i, r := range out {
		for _, g := range c.from.Spec.Gateways {
			if int(g.Number) == r.Number {
				out[i].Endpoint = b.set.Endpoint(c.peer.ID, g, around.CheckEndpointAddr)
			}
		}
	}
	return out
}

// ReadGateways reads the Leases of this cluster's gateways at the time now. What is wrong with
// one is said in its Refusal.
func ReadGateways(leases []coordinationv1.Lease, now time.Time) (out []Announcement, refused []Refusal) {
	for i := range leases {
		have := &leases[i]
		if have.Annotations[GatewayKey] == "" {
			continue
		}
		a, err := readAnnouncement(have)
		if err != nil {
			refused = append(refused, Refusal{Kind: "Lease", Namespace: have.Namespace, Name: have.Name, Message: err.Error()})
			continue
		}
		holds := lease.Holder(have) == a.Name
		a.Alive = holds && have.Spec.RenewTime != nil && now.Sub(have.Spec.RenewTime.Time) <= lease.Duration(have, 0)
		out = append(out, a)
	}
	return byNumber(out), refused
}
