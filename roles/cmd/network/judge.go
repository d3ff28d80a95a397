package network

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	networkingv1beta1 "github.com/liqod/liqod/api/networking/v1beta1"
	"github.com/liqod/liqod/netfabric/host"
	"github.com/liqod/liqod/reasons"
	"github.com/liqod/liqod/roles/cmd/report"
)

// Seen is everything that a check has observed.
type Seen struct {
	Cluster  string
	Gateways []host.Announcement // of this cluster; one without a node is on a host outside
	Nodes    []*Node
	Left     int // nodes that were not checked
	Peers    []*Peer
}

// Node is one of this cluster.
type Node struct {
	Name  string
	Agent report.Level // of the pod of role route there
	// Host is the report of the pod in the network of the node, Pod that of an ordinary one. Why says why
	// one of them is missing.
	Host, Pod *Report
	Why       string
	// Views are the addresses under which peers see the ordinary pod, and Ends says where its packets to a peer end, both
	// by the plan of the hosts of this cluster.
	Views, Ends map[string]string
}

// Peer is another cluster.
type Peer struct {
	ID string
	// Status is the condition of the tunnel as the gateways report it.
	Status   metav1.Condition
	Endpoint string // that the gateways send to
	Key      string // says which two objects have different keys; empty: none
	// There is the report of the pod in the peer, Why says why there is none.
	There   *Report
	Why     string
	ThereIP string // of that pod, as this cluster sees it
}

// Verdict has a finding about each hop, in the order of a packet. At a warning packets pass, and something is broken
// that another fault makes felt.
type Verdict []report.Finding

// First returns the first hop that breaks; else the first with a warning.
func (v Verdict) First() (report.Finding, bool) {
	for _, level := range []report.Level{report.Problem, report.Warning} {
		if i := slices.IndexFunc(v, func(f report.Finding) bool { return f.Level == level }); i >= 0 {
			return v[i], true
		}
	}
	return report.Finding{}, false
}

// Names of targets, in reports.
const (
	toGateway    = "the gateway of this cluster"
	toOwnGateway = "the gateway of its own cluster"
	toPodHere    = "the pod in this cluster"
)

func toGatewayOf(peer string) string { return "the gateway of " + peer }
func toPodIn(peer string) string     { return "the pod in " + peer }
func toPod(name string) string       { return "pod " + name }

// Judge judges what was seen. It is pure.
func Judge(s *Seen) Verdict {
	j := &judge{Seen: s, part: "this cluster, " + s.Cluster}
	for _, g := range s.Gateways {
		j.gateway(g)
	}
	if len(s.Gateways) == 0 {
		j.add("gateway", report.Problem, "no gateway has announced itself", gatewayPods)
	}
	for _, n := range s.Nodes {
		j.node(n)
	}
	if s.Left > 0 {
		j.add("other nodes", report.Unknown, fmt.Sprintf("%d nodes were not checked", s.Left), "Name them with --node.")
	}
	for _, n := range s.Nodes {
		j.name("name service, pod on "+n.Name, s.Cluster, n.Pod)
	}
	for _, p := range s.Peers {
		j.part = "peer " + p.ID
		j.peer(p)
	}
	return j.verdict
}

type judge struct {
	*Seen
	part    string
	verdict Verdict
}

// add adds a finding. Pods in peers have reported some of the text, and add no lines to it.
func (j *judge) add(hop string, level report.Level, text, advice string) {
	line := func(text string) string { return strings.Join(strings.Fields(text), " ") }
	j.verdict = append(j.verdict, report.Finding{Section: j.part, Level: level, Subject: line(hop), Message: line(text), Fix: advice})
}

// gatewayPods is advice about the gateways of the chart.
const gatewayPods = "kubectl get pods -A -l app.kubernetes.io/component=gateway"

func (j *judge) gateway(g host.Announcement) {
	advice := gatewayPods
	if g.NodeName == "" {
		advice = "On host " + g.Name + ", which is no node: systemctl status liqod-gateway"
	}
	advice += fmt.Sprintf("\nIf it is gone for good: kubectl delete lease -n NAMESPACE %s", host.LeaseName(int(g.Number)))
	switch {
	case g.Alive:
		j.add("gateway "+g.Name, report.OK, "renews its Lease", "")
	case slices.ContainsFunc(j.Gateways, func(g host.Announcement) bool { return g.Alive }):
		j.add("gateway "+g.Name, report.Warning, "does not renew its Lease; another gateway has its packets", advice)
	default:
		j.add("gateway "+g.Name, report.Problem, "does not renew its Lease, and there is no other", advice)
	}
}

// figures returns the figures of a way.
func figures(w Way) string {
	text := fmt.Sprintf("%d of %d packets answered", w.Answered, w.Sent)
	if w.Answered > 0 {
		text += fmt.Sprintf(", round trip %s, packets up to %d bytes", w.RTT.Round(10*time.Microsecond), w.Fits)
	}
	if w.Error != "" {
		text += ": " + w.Error
	}
	return text
}

func works(w Way, sent bool) bool { return sent && w.Answered > 0 }

// remedy says what to do about a way: where packets are lost, and where only large ones are.
type remedy struct{ lost, small string }

// judge judges packets of a way that were sent, and reports whether they pass. about begins the text.
func (j *judge) judge(w Way, hop, about string, a remedy) bool {
	switch {
	case w.Answered == 0:
		j.add(hop, report.Problem, about+figures(w), a.lost)
	case w.Fits < w.Says:
		j.add(hop, report.Problem, fmt.Sprintf("%spackets up to %d bytes pass, the hosts announce %d: larger ones vanish", about, w.Fits, w.Says), a.small)
	default:
		j.add(hop, report.OK, about+figures(w), "")
		return true
	}
	return false
}

// nodesCarryLess is the advice about large packets within a cluster.
const nodesCarryLess = "The network between nodes carries less than the devices say: set gateway.mtu and route.mtu to what it carries."

// restart is the advice about a host that is not as planned.
const restart = "Role route repairs this within seconds where it runs: look at its pod on that node, and its log."

// node judges the way of a node, and of a pod there, to the gateways and back.
func (j *judge) node(n *Node) {
	hop := fmt.Sprintf("node %s > gateway", n.Name)
	if n.Agent == report.Problem {
		j.add("role route on node "+n.Name, report.Warning, "does not run: the routes and rules stay, and nobody repairs or changes them", "kubectl get pods -A -o wide -l app.kubernetes.io/component=route")
	}
	if n.Host == nil && n.Pod == nil {
		j.add(hop, report.Unknown, n.Why, "")
		return
	}
	if h := n.Host; h != nil && h.Host != nil && !j.host(hop, h.Host) {
		return
	}
	lost := restart
	for _, g := range j.Gateways {
		w, sent := n.Host.way("gateway " + g.Name)
		if !sent || !g.Alive {
			continue
		}
		if !j.judge(w, hop, "gateway "+g.Name+": ", remedy{"The routes of the node are right, so packets are lost on the way to the gateway or back: let UDP 6091 (VXLAN) pass between nodes, and between node and gateway pod, in firewalls, security groups and network policies.", nodesCarryLess}) {
			return
		}
		lost = podsAlone
	}
	if n.Host == nil {
		lost = podsAlone
	}
	hop = fmt.Sprintf("pod > node %s > gateway", n.Name)
	if n.Pod == nil {
		j.add(hop, report.Unknown, n.Why, "")
		return
	}
	w, _ := n.Pod.way(toGateway)
	j.judge(w, hop, "", remedy{lost, nodesCarryLess})
}

// podsAlone is the advice where packets of a node pass, and those of its pods do not.
const podsAlone = "Packets of the node itself pass, those of its pods do not: a NetworkPolicy of the cluster, or the network plugin, keeps pods from addresses outside of the pod range."

// host judges the routes and the tables of a node, and reports whether they let packets pass.
func (j *judge) host(hop string, h *Host) bool {
	switch {
	case h.Most > 0 && h.Tracked*100 >= h.Most*97:
		j.add(hop, report.Problem, fmt.Sprintf("connection tracking is full: %d of %d", h.Tracked, h.Most), "The kernel drops new connections: raise net.netfilter.nf_conntrack_max on this node, or find the pod that opens so many.")
	case !h.Rule:
		j.add(hop, report.Problem, "the routing rule 91 is missing, which leads to the routes of peers", restart)
	case len(h.Lost) > 0:
		j.add(hop, report.Problem, "no route by liqod-vx to "+strings.Join(h.Lost, ", "), restart)
	default:
		return true
	}
	return false
}

// name judges the name service of the cluster that a pod runs in.
func (j *judge) name(hop, cluster string, r *Report) {
	switch {
	case r == nil || r.Name == "":
	case r.NameError != "":
		j.add(hop, report.Problem, r.NameError, "The name service of cluster "+cluster+" does not answer. There: kubectl -n kube-system get service,endpointslices,pods -l k8s-app=kube-dns\nIf its pods are Ready, look for a NetworkPolicy that keeps others from them.")
	default:
		j.add(hop, report.OK, "answers for "+r.Name, "")
	}
}

// peer judges the tunnel, and the ways beyond it.
func (j *judge) peer(p *Peer) {
	if !j.tunnel(p) {
		return
	}
	part := "In the peer, "
	if p.There == nil {
		j.add("gateway of "+p.ID+" > node > pod", report.Unknown, p.Why, part+"run the same command.")
	} else {
		own, _ := p.There.way(toOwnGateway)
		if !j.judge(own, fmt.Sprintf("in %s, pod > node > gateway", p.ID), "", remedy{part + "run the same command: it looks at the nodes there, too. Let UDP 6091 pass between its nodes and its gateway.", part + "set gateway.mtu and route.mtu to what its network carries."}) {
			return
		}
		if !j.way(p.There, toGateway, fmt.Sprintf("in %s, pod > gateway of %s", p.ID, j.Cluster), "The tunnel carries packets from here and answers, but none that begin there: the networking.reach or a NetworkPolicy of the peer, or its tables.") {
			return
		}
	}
	for _, n := range j.Nodes {
		if !j.pods(p, n) {
			return
		}
	}
	if p.There != nil {
		if j.way(p.There, toPodHere, fmt.Sprintf("pod in %s > pod here", p.ID), "Packets reach the gateway of this cluster, and not the pod: `liqod network explain POD --from PEER-POD` says what drops them.") {
			j.source(p, "translation of "+p.ID, p.There, toPodHere, p.ThereIP, "the node of the pod in "+p.ID)
		}
		for _, w := range p.There.Ways {
			if strings.HasPrefix(w.To, toPod("")) {
				j.way(p.There, w.To, fmt.Sprintf("pod in %s > %s", p.ID, w.To), "A NetworkPolicy, or the pod is not shared with that cluster. Between two peers: both need the namespace, and the tunnels of both.")
			}
		}
		j.name("name service, pod in "+p.ID, p.ID, p.There)
	}
}

// pods judges the way of a pod on a node to pods in a peer.
func (j *judge) pods(p *Peer, n *Node) bool {
	if end := n.Ends[p.ID]; end != "" {
		j.add(fmt.Sprintf("pod on %s > pod in %s", n.Name, p.ID), report.Problem, "as planned, "+end, "`liqod network explain` with the addresses of both pods prints the way up to there.")
		return false
	}
	if w, sent := n.Pod.way(toGateway); !works(w, sent) {
		return true // judged as a hop of this cluster
	}
	if !j.way(n.Pod, toPodIn(p.ID), fmt.Sprintf("pod on %s > pod in %s", n.Name, p.ID), "Packets reach the gateway of the peer, and not the pod: in the peer, run the same command; look for a NetworkPolicy, and at UDP 6091 between its gateway and nodes.") {
		return false
	}
	j.source(p, "translation on node "+n.Name, n.Pod, toPodIn(p.ID), n.Views[p.ID], "node "+n.Name)
	for _, w := range n.Pod.Ways {
		if strings.HasPrefix(w.To, toPod("")) {
			j.way(n.Pod, w.To, fmt.Sprintf("pod on %s > %s", n.Name, w.To), "Other pods there are reached, so a NetworkPolicy keeps packets from this one, or it does not answer ICMP.")
		}
	}
	return true
}

// source compares the address that a target has seen.
func (j *judge) source(p *Peer, hop string, r *Report, to, want, where string) {
	if w, sent := r.way(to); works(w, sent) && want != "" && w.Source != "" && w.Source != want {
		j.add(hop, report.Warning, fmt.Sprintf("the pod is seen as %s, not as %s: the nftables table liqod of %s is not in force", w.Source, want, where), restart)
	}
}

// way judges one way of a report, and reports whether packets pass. A way that was not tried passes.
func (j *judge) way(r *Report, to, hop, lost string) bool {
	w, sent := r.way(to)
	return !sent || j.judge(w, hop, "", remedy{lost, tooSmall})
}

const tooSmall = "A network on the way carries less than the hosts announce, and drops the ICMP messages that say so: let these pass, or set gateway.mtu in both clusters to what it carries."

// tunnel judges the way between the gateways of both clusters.
func (j *judge) tunnel(p *Peer) bool {
	hop, c := fmt.Sprintf("gateway > gateway of %s", p.ID), p.Status
	at := ""
	if p.Endpoint != "" {
		at = " (" + p.Endpoint + ")"
	}
	if c.Status != metav1.ConditionTrue {
		advice := fmt.Sprintf("Nothing of the peer arrives: let UDP to its endpoint%s pass in both directions, in firewalls and security groups of both clusters, and see whether its gateway runs.", at)
		fix := report.Expanded(reasons.Entry("Connection", c.Reason).Fix, map[string]string{"peer": p.ID})
		switch {
		case p.Key != "":
			advice = "The keys differ, so each side drops the packets of the other: the controllers of both clusters bring the keys across. Look whether they run, and reach the API server of the peer."
			c.Message += "; " + p.Key
		case fix != "":
			advice = fix
		case c.Reason == reasons.TunnelOneWay:
			hop += ", there"
			advice = fmt.Sprintf("The peer's packets arrive here, and ours do not arrive there: let UDP to its endpoint%s pass, out of this cluster and into the peer.", at)
		case c.Reason == networkingv1beta1.ReasonNoGateway:
			advice = "In the peer: " + gatewayPods
		case c.Reason == networkingv1beta1.ReasonNotApplied, c.Reason == networkingv1beta1.ReasonInvalid:
			advice = "The log of the gateway has more: kubectl logs -n NAMESPACE -l app.kubernetes.io/component=gateway"
		}
		j.add(hop, report.Problem, strings.TrimSpace(c.Reason+": "+c.Message), advice)
		return false
	}
	for _, n := range j.Nodes {
		if w, sent := n.Pod.way(toGateway); !works(w, sent) {
			continue // judged as a hop of this cluster
		}
		return j.way(n.Pod, toGatewayOf(p.ID), hop, "The gateways reach each other, and packets of pods do not pass: the nftables table of one of them is not as planned. Their logs say what they could not apply.")
	}
	j.add(hop, report.OK, c.Message, "")
	return true
}
