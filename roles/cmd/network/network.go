// Package network checks the network between clusters: pods that it makes and removes send packets hop
// by hop, and their reports are judged together with what the gateways and nodes report in objects.
// What it finds out is in the files network and helpers, the judging of it in judge.
package network

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/api/generated/clientset/versioned"
	networkingv1beta1 "github.com/liqod/liqod/api/networking/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/netfabric/host"
	"github.com/liqod/liqod/netfabric/plan"
	"github.com/liqod/liqod/peering/join"
	"github.com/liqod/liqod/roles/cmd/report"
)

// Config says what is checked, and with what.
type Config struct {
	Kube kubernetes.Interface
	Liqo versioned.Interface
	// Peers are the ids of the peers; empty: all. Pods are two pods, as NAMESPACE/NAME, or none. Nodes are
	// the nodes of this cluster from which packets are sent; empty: MostNodes of them.
	Peers, Pods, Nodes []string
	// Image is that of the pods of the check.
	Image string
	// Program is the name of the program in messages.
	Program string
	// Now is the time by the cluster's clock.
	Now func() time.Time
	// Every is the time between two looks at the pods, Wait how long they may take to start and to report.
	Every, Wait time.Duration
	// Say prints a line about the progress.
	Say func(line string) error
	// Logs reads the log of a pod.
	Logs func(ctx context.Context, pod *corev1.Pod) ([]byte, error)
}

// MostNodes is the number of nodes that are checked if none is named.
const MostNodes = 10

// checker checks once.
type checker struct {
	Config
	seen   Seen
	space  string   // the namespace of the pods of this cluster
	spaces []string // all namespaces of the check
	liqod  string   // where liqod is installed
	fabric host.Objects
	// external is the range of the own gateways' addresses.
	external netip.Prefix
	peers    []*peering
	all      []string // the ids of all peers
	nodes    []*corev1.Node
	running  map[string]*corev1.Pod
	pods     []given
}

// Run checks, and returns the verdict. It removes what it has made, also when ctx ends.
func Run(ctx context.Context, cfg Config) (Verdict, error) {
	c := &checker{Config: cfg}
	if err := c.read(ctx); err != nil {
		return nil, err
	}
	if len(c.seen.Peers) == 0 {
		return nil, errors.New("no peer uses the network of this cluster: there is neither a Connection nor a condition NetworkStatus of a ForeignCluster")
	}
	if c.external.IsValid() { // else nothing has been agreed with any peer, and packets have no addresses
		sent, cleared := c.send(ctx), c.clear(ctx)
		if sent != nil {
			return nil, errors.Join(sent, cleared)
		}
		return Judge(&c.seen), cleared // packets were judged even if the removal is not over
	}
	return Judge(&c.seen), nil
}

// send makes the pods in order: those that answer first.
func (c *checker) send(ctx context.Context) error {
	if err := c.prepare(ctx); err != nil {
		return err
	}
	if err := c.Say(fmt.Sprintf("sending packets from pods in the namespaces %s", strings.Join(c.spaces, ", "))); err != nil {
		return err
	}
	for i, node := range c.nodes {
		if err := c.create(ctx, c.hostPod(i, node)); err != nil {
			return err
		}
	}
	if err := c.createEchoes(ctx); err != nil {
		return err
	}
	if err := c.createThere(ctx); err != nil {
		return err
	}
	for i, node := range c.nodes {
		if err := c.create(ctx, c.herePod(i, node)); err != nil {
			return err
		}
	}
	return c.collect(ctx)
}

// Text returns the verdict for people.
func (v Verdict) Text() string {
	end := "Packets pass on every hop that was checked."
	if first, broken := v.First(); broken {
		end = "Packets pass. Without a reserve: "
		if first.Level == report.Problem {
			end = "The first hop that breaks: "
		}
		end += first.Section + ", " + first.Subject
	}
	return report.FindingsText(v) + "\n" + end + "\n"
}

// peering is a peer with what is needed to send packets to it.
type peering struct {
	Peer
	// virtual is the node through which pods run in the peer; empty: there is none.
	virtual string
	// space is the namespace that is offloaded to the peer for the check; empty: none.
	space string
	local []networkingv1beta1.Mapping
	// address is that of the peer's gateways, own as the peer itself sees it, and ours as the peer sees
	// the gateways of this cluster.
	address, own, ours netip.Addr
	there              *corev1.Pod
}

// connected reports whether packets may reach the peer at all.
func (p *peering) connected() bool {
	return p.address.IsValid() && p.ours.IsValid() && p.Status.Status == metav1.ConditionTrue
}

// given is a pod that the command line names.
type given struct {
	name, node, cluster string // cluster is empty for this one
	address             netip.Addr
}

// Fabric reads what every host of the fabric watches. namespace is that of liqod, now the time by the cluster's clock.
func Fabric(ctx context.Context, kube kubernetes.Interface, liqo versioned.Interface, namespace string, now time.Time) (out host.Objects, err error) {
	connections, e1 := liqo.NetworkingV1beta1().Connections(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	ips, e2 := liqo.IPAMV1alpha1().IPs(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	nodes, e3 := kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	leases, e4 := kube.CoordinationV1().Leases(namespace).List(ctx, metav1.ListOptions{LabelSelector: host.GatewayKey + "=true"})
	if err := cmp.Or(e1, e2, e3, e4); err != nil {
		return out, fmt.Errorf("reading the objects of the network: %w", err)
	}
	out.Connections, out.IPs, out.Nodes = store.Pointers(connections.Items), store.Pointers(ips.Items), store.Pointers(nodes.Items)
	out.Gateways, _ = host.ReadGateways(leases.Items, now)
	return out, nil
}

// read reads the objects.
func (c *checker) read(ctx context.Context) error {
	var err error
	if c.seen.Cluster, c.liqod, err = join.Installed(ctx, c.Kube); err != nil {
		return err
	}
	if c.fabric, err = Fabric(ctx, c.Kube, c.Liqo, c.liqod, c.Now()); err != nil {
		return err
	}
	c.seen.Gateways = c.fabric.Gateways
	if err := c.readGiven(ctx); err != nil {
		return err
	}
	if err := c.readPeers(ctx); err != nil {
		return err
	}
	return c.readNodes(ctx)
}

// readGiven reads the pods of the command line, and restricts the check to their nodes and peers.
func (c *checker) readGiven(ctx context.Context) error {
	for _, name := range c.Pods {
		namespace, short, _ := strings.Cut(name, "/")
		pod, err := c.Kube.CoreV1().Pods(namespace).Get(ctx, short, metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("reading pod %s: %w", name, err)
		}
		g := given{name: name, node: pod.Spec.NodeName}
		if g.address, err = netip.ParseAddr(pod.Status.PodIP); err != nil {
			return fmt.Errorf("pod %s has no address yet (phase %s)", name, pod.Status.Phase)
		}
		if pod.Spec.HostNetwork {
			return fmt.Errorf("pod %s is in the network of its node, which has no address in other clusters: name a pod without hostNetwork", name)
		}
		for _, n := range c.fabric.Nodes {
			if n.Name == g.node && offloadingv1beta1.IsVirtual(n) {
				g.cluster = n.Labels[corev1beta1.RemoteClusterIDLabel]
			}
		}
		if g.cluster != "" {
			c.Peers = append(c.Peers, g.cluster)
		} else {
			c.Nodes = append(c.Nodes, g.node)
		}
		c.pods = append(c.pods, g)
	}
	if len(c.pods) == 2 && c.pods[0].cluster == c.pods[1].cluster {
		return fmt.Errorf("pods %s and %s run in one cluster: packets between them do not pass the network between clusters", c.pods[0].name, c.pods[1].name)
	}
	return nil
}

// readPeers reads the state of each peer.
func (c *checker) readPeers(ctx context.Context) error {
	clusters, err := c.Liqo.CoreV1beta1().ForeignClusters().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("listing ForeignClusters: %w", err)
	}
	for _, fc := range clusters.Items {
		id := fc.Spec.ClusterID
		c.all = append(c.all, id)
		if len(c.Peers) > 0 && !slices.Contains(c.Peers, id) && !slices.Contains(c.Peers, fc.Name) {
			continue
		}
		p := &peering{Peer: Peer{ID: id}}
		status := meta.FindStatusCondition(fc.Status.Conditions, corev1beta1.ConditionNetwork)
		i := slices.IndexFunc(c.fabric.Connections, func(o *networkingv1beta1.Connection) bool {
			return o.Name == id && o.Namespace == corev1beta1.TenantNamespace(id)
		})
		switch {
		case i >= 0:
			if err := c.connected(ctx, p, c.fabric.Connections[i]); err != nil {
				return err
			}
		case status != nil:
			p.Status = *status
		case len(c.Peers) == 0:
			continue // it has no network
		default:
			return fmt.Errorf("cluster %s and this one have no network with each other: see `%s status`", id, c.Program)
		}
		for _, n := range c.fabric.Nodes {
			if offloadingv1beta1.IsVirtual(n) && n.Labels[corev1beta1.RemoteClusterIDLabel] == id && (p.virtual == "" || report.NodeReady(n)) {
				p.virtual = n.Name
			}
		}
		c.peers = append(c.peers, p)
	}
	for _, name := range c.Peers {
		if !slices.ContainsFunc(clusters.Items, func(fc corev1beta1.ForeignCluster) bool { return fc.Spec.ClusterID == name || fc.Name == name }) {
			return report.NoPeer(name, c.all)
		}
	}
	for _, p := range c.peers {
		c.seen.Peers = append(c.seen.Peers, &p.Peer)
	}
	return nil
}

// connected reads what a Connection says.
func (c *checker) connected(ctx context.Context, p *peering, connection *networkingv1beta1.Connection) error {
	p.Status = metav1.Condition{Status: metav1.ConditionUnknown, Message: "the gateways have not reported on the Connection yet"}
	if status := meta.FindStatusCondition(connection.Status.Conditions, networkingv1beta1.ConditionReady); status != nil {
		p.Status = *status
	}
	p.local = connection.Spec.Local
	p.Endpoint = strings.Join(report.Names(connection.Status.Gateways, func(g *networkingv1beta1.GatewayStatus) string { return g.Endpoint }), ", ")
	for _, m := range connection.Spec.Local {
		if own, view := prefix(m.Own), prefix(m.View); m.Use == networkingv1beta1.RangeExternal && !p.ours.IsValid() && own.IsValid() && view.IsValid() {
			if !c.external.IsValid() {
				c.external = own
			}
			if own.Addr().Is4() == c.external.Addr().Is4() {
				p.ours = plan.GatewayAddr(view)
			}
		}
	}
	for _, m := range connection.Spec.Remote {
		if own, view := prefix(m.Own), prefix(m.View); m.Use == networkingv1beta1.RangeExternal && view.IsValid() && own.IsValid() && !p.address.IsValid() && view.Addr().Is4() == c.external.Addr().Is4() {
			p.own, p.address = plan.GatewayAddr(own), plan.GatewayAddr(view)
		}
	}
	return c.compareKeys(ctx, p, connection)
}

// compareKeys looks for a gateway of which the two clusters have different keys. A Configuration has the name of the
// cluster that it is for.
func (c *checker) compareKeys(ctx context.Context, p *peering, connection *networkingv1beta1.Connection) error {
	var own []networkingv1beta1.Gateway
	for _, a := range c.fabric.Gateways {
		if a.Alive {
			own = append(own, a.Gateway)
		}
	}
	configurations := c.Liqo.NetworkingV1beta1().Configurations(connection.Namespace)
	theirs, e1 := store.Live(ctx, "Configuration", configurations, c.seen.Cluster)
	ours, e2 := store.Live(ctx, "Configuration", configurations, p.ID)
	if other := differs(connection.Spec.Gateways, theirs); other != "" {
		p.Key = fmt.Sprintf("Connection %s/%s has another WireGuard key for gateway %s than cluster %s announces in its Configuration", connection.Namespace, connection.Name, other, p.ID)
	} else if other := differs(own, ours); other != "" {
		p.Key = fmt.Sprintf("gateway %s of this cluster has another WireGuard key than the Configuration that cluster %s reads", other, p.ID)
	}
	return cmp.Or(e1, e2)
}

// differs returns the name of a gateway whose key is another one in a Configuration, which may be nil.
func differs(have []networkingv1beta1.Gateway, conf *networkingv1beta1.Configuration) string {
	for _, g := range have {
		if conf != nil && slices.ContainsFunc(conf.Spec.Gateways, func(w networkingv1beta1.Gateway) bool { return g.Name == w.Name && g.PublicKey != w.PublicKey }) {
			return g.Name
		}
	}
	return ""
}

func prefix(text networkingv1beta1.CIDR) netip.Prefix {
	p, _ := netip.ParsePrefix(string(text)) // the API server accepts no other text
	return p
}

// view returns the address under which a peer sees one of this cluster, or of a cluster behind it.
func (p *peering) view(of netip.Addr) netip.Addr {
	for _, m := range p.local {
		if out, ok := (plan.Map{Own: prefix(m.Own), View: prefix(m.View)}).Out(of); ok {
			return out
		}
	}
	return netip.Addr{}
}

// routeLabel has the value routeOnHost on nodes that run role route as a service, not as a pod.
const (
	routeLabel  = "networking.liqo.io/route"
	routeOnHost = "host"
)

// readNodes chooses the nodes, and looks whether role route runs on them.
func (c *checker) readNodes(ctx context.Context) error {
	slices.SortFunc(c.fabric.Nodes, func(a, b *corev1.Node) int { return cmp.Compare(a.Name, b.Name) })
	agents, err := c.Kube.CoreV1().Pods(c.liqod).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/component=route"})
	if err != nil {
		return fmt.Errorf("listing the pods of role route: %w", err)
	}
	for _, n := range c.fabric.Nodes {
		named := slices.Contains(c.Nodes, n.Name)
		switch {
		case offloadingv1beta1.IsVirtual(n), len(c.Nodes) > 0 && !named, !named && !report.NodeReady(n):
			continue
		case !named && len(c.nodes) == MostNodes:
			c.seen.Left++
			continue
		}
		c.nodes = append(c.nodes, n)
		node := &Node{Name: n.Name, Agent: report.Unknown, Views: map[string]string{}, Ends: map[string]string{}}
		if len(agents.Items) > 0 && n.Labels[routeLabel] != routeOnHost {
			node.Agent = report.Problem
		}
		for j := range agents.Items {
			if pod := &agents.Items[j]; pod.Spec.NodeName == n.Name && report.PodReady(pod) {
				node.Agent = report.OK
			}
		}
		c.seen.Nodes = append(c.seen.Nodes, node)
	}
	if len(slices.Compact(slices.Sorted(slices.Values(c.Nodes)))) > len(c.nodes) && len(c.Pods) == 0 {
		return fmt.Errorf("not every node of %s is a node of this cluster itself: `kubectl get nodes` lists them", strings.Join(c.Nodes, ", "))
	}
	return nil
}
