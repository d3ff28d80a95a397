package network

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	networkingv1beta1 "github.com/liqod/liqod/api/networking/v1beta1"
	"github.com/liqod/liqod/netfabric/host"
	"github.com/liqod/liqod/reasons"
	"github.com/liqod/liqod/roles/cmd/report"
)

func passed(to string) Way {
	return Way{To: to, Sent: tries, Answered: tries, RTT: time.Millisecond, Fits: 1420, Says: 1420}
}

func lost(to string) Way {
	return Way{To: to, Sent: tries, Error: "waiting for the answer: i/o timeout"}
}

// healthy is what a check sees of rome, with two gateways and two nodes, and of its peers milan and paris.
func healthy() *Seen {
	s := &Seen{Cluster: "rome", Gateways: []host.Announcement{
		{Gateway: networkingv1beta1.Gateway{Name: "gw", Number: 1}, Alive: true, NodeName: "rome-1"}, {Gateway: networkingv1beta1.Gateway{Name: "gw-2", Number: 2}, Alive: true, NodeName: "rome-2"},
	}}
	for _, name := range []string{"rome-1", "rome-2"} {
		s.Nodes = append(s.Nodes, &Node{
			Name: name, Agent: report.OK, Views: map[string]string{"milan": "10.80.0.5", "paris": "10.82.0.5"},
			Host: &Report{Host: &Host{Rule: true, Tracked: 100, Most: 1000}, Ways: []Way{passed("gateway gw"), passed("gateway gw-2")}},
			Pod:  &Report{Name: resolved, Ways: []Way{passed(toGateway), passed(toGatewayOf("milan")), passed(toGatewayOf("paris")), seenAs(toPodIn("milan"), "10.80.0.5"), seenAs(toPodIn("paris"), "10.82.0.5")}},
		})
	}
	for _, id := range []string{"milan", "paris"} {
		s.Peers = append(s.Peers, &Peer{
			ID: id, Status: metav1.Condition{Status: metav1.ConditionTrue, Reason: reasons.ProbesAnswered}, Endpoint: "192.0.2.7:51840", ThereIP: "10.81.0.9",
			There: &Report{Name: resolved, Ways: []Way{passed(toOwnGateway), passed(toGateway), seenAs(toPodHere, "10.81.0.9"), passed(toPod("shop/db"))}},
		})
	}
	return s
}

func seenAs(to, source string) Way {
	w := passed(to)
	w.Source = source
	return w
}

// set replaces ways of a report.
func (r *Report) set(ways ...Way) {
	for _, w := range ways {
		for i := range r.Ways {
			if r.Ways[i].To == w.To {
				r.Ways[i] = w
			}
		}
	}
}

func narrow(to string) Way {
	w := passed(to)
	w.Fits = 1300
	return w
}

func down(p *Peer, reason, message string) {
	p.Status = metav1.Condition{Status: metav1.ConditionFalse, Reason: reason, Message: message}
}

// TestTwelveFaults: each fault is named with its hop, and with what to do.
func TestTwelveFaults(t *testing.T) {
	for name, test := range map[string]struct {
		fault             func(*Seen)
		part, hop, advice string
		state             report.Level
	}{
		"peer dropped one way": {func(s *Seen) { down(s.Peers[0], reasons.TunnelOneWay, "hears nothing") },
			"peer milan", "gateway > gateway of milan, there", "ours do not arrive there: let UDP to its endpoint (192.0.2.7:51840) pass", report.Problem},
		"wrong key": {func(s *Seen) { down(s.Peers[0], reasons.TunnelSilent, "nothing"); s.Peers[0].Key = "other key" },
			"peer milan", "gateway > gateway of milan", "The keys differ", report.Problem},
		"packets of another key": {func(s *Seen) { down(s.Peers[0], reasons.KeyDiffers, "no answer") },
			"peer milan", "gateway > gateway of milan", "In cluster milan:\nkubectl get pods -A -l app.kubernetes.io/component=gateway\nDelete the pod of its gateway", report.Problem},
		"MTU too small": {func(s *Seen) {
			for _, n := range s.Nodes {
				n.Pod.set(narrow(toGatewayOf("milan")), narrow(toPodIn("milan")))
			}
		}, "peer milan", "gateway > gateway of milan", "gateway.mtu", report.Problem},
		"port closed": {func(s *Seen) { down(s.Peers[0], reasons.TunnelSilent, "nothing has come") },
			"peer milan", "gateway > gateway of milan", "let UDP to its endpoint (192.0.2.7:51840) pass in both directions", report.Problem},
		"one node's agent dead": {func(s *Seen) { s.Nodes[1].Agent = report.Problem },
			"this cluster, rome", "role route on node rome-2", "component=route", report.Warning},
		"table flushed": {func(s *Seen) { s.Nodes[1].Pod.set(seenAs(toPodIn("milan"), "10.80.9.1")) },
			"peer milan", "translation on node rome-2", "Role route repairs this", report.Warning},
		"route deleted": {func(s *Seen) { s.Nodes[1].Host.Host.Lost = []string{"10.81.0.1"} },
			"this cluster, rome", "node rome-2 > gateway", "Role route repairs this", report.Problem},
		"second gateway down": {func(s *Seen) { s.Gateways[1].Alive = false; s.Nodes[0].Host.set(lost("gateway gw-2")) },
			"this cluster, rome", "gateway gw-2", "component=gateway", report.Warning},
		"second gateway down, on a host outside": {func(s *Seen) { s.Gateways[1].Alive, s.Gateways[1].NodeName = false, "" },
			"this cluster, rome", "gateway gw-2", "On host gw-2, which is no node: systemctl status liqod-gateway\nIf it is gone for good: kubectl delete lease -n NAMESPACE liqod-gateway-2", report.Warning},
		"transit leg down": {func(s *Seen) {
			down(s.Peers[1], reasons.TunnelSilent, "nothing has come")
			s.Peers[0].There.set(lost(toPod("shop/db")))
		}, "peer milan", "pod in milan > pod shop/db", "the tunnels of both", report.Problem},
		"overlay filtered": {func(s *Seen) {
			s.Nodes[1].Host.set(lost("gateway gw"), lost("gateway gw-2"))
			s.Nodes[1].Pod.set(lost(toGateway), lost(toGatewayOf("milan")), lost(toPodIn("milan")))
		}, "this cluster, rome", "node rome-2 > gateway", "UDP 6091 (VXLAN)", report.Problem},
		"conntrack full": {func(s *Seen) { s.Nodes[0].Host.Host.Tracked = 1000 },
			"this cluster, rome", "node rome-1 > gateway", "nf_conntrack_max", report.Problem},
		"DNS": {func(s *Seen) { s.Nodes[0].Pod.NameError = "no such host" },
			"this cluster, rome", "name service, pod on rome-1", "k8s-app=kube-dns", report.Problem},

		// Beside the twelve.
		"the peer's overlay": {func(s *Seen) { s.Peers[0].There.set(lost(toOwnGateway), lost(toGateway), lost(toPodHere)) },
			"peer milan", "in milan, pod > node > gateway", "In the peer, run the same command", report.Problem},
		"a pod of the peer is not reached": {func(s *Seen) { s.Nodes[0].Pod.set(lost(toPodIn("milan"))) },
			"peer milan", "pod on rome-1 > pod in milan", "NetworkPolicy", report.Problem},
		"planned not to pass": {func(s *Seen) { s.Nodes[1].Ends = map[string]string{"milan": "the packet ends here: dropped: rule 91"} },
			"peer milan", "pod on rome-2 > pod in milan", "network explain", report.Problem},
		"the way back": {func(s *Seen) { s.Peers[0].There.set(lost(toPodHere)) },
			"peer milan", "pod in milan > pod here", "network explain", report.Problem},
		"pods of a node": {func(s *Seen) { s.Nodes[0].Pod.set(lost(toGateway)) },
			"this cluster, rome", "pod > node rome-1 > gateway", "network plugin", report.Problem},
		"no gateway": {func(s *Seen) { s.Gateways = nil }, "this cluster, rome", "gateway", "component=gateway", report.Problem},
	} {
		t.Run(name, func(t *testing.T) {
			s := healthy()
			test.fault(s)
			v := Judge(s)
			first, broken := v.First()
			require.True(t, broken, v.Text())
			require.Equal(t, []string{test.part, test.hop, string(test.state)}, []string{first.Section, first.Subject, string(first.Level)}, v.Text())
			require.Contains(t, first.Fix, test.advice)
			require.Contains(t, v.Text(), first.Section+", "+first.Subject+"\n")
		})
	}
}

func TestNothingIsBroken(t *testing.T) {
	v := Judge(healthy())
	_, broken := v.First()
	require.False(t, broken, v.Text())
	require.Contains(t, v.Text(), "Packets pass on every hop that was checked.")
	require.NotContains(t, v.Text(), "?")
	// What was not seen is neither well nor broken.
	s := healthy()
	s.Nodes[0].Host, s.Nodes[0].Pod, s.Nodes[0].Why, s.Left = nil, nil, "the image cannot be pulled", 3
	s.Peers[0].There, s.Peers[0].Why = nil, "no pods in it"
	v = Judge(s)
	_, broken = v.First()
	require.False(t, broken)
	require.Equal(t, 3, strings.Count(v.Text(), "? "), v.Text())
}

// TestReportsOfPeersAddNoLines: a pod in a peer reports what the peer likes.
func TestReportsOfPeersAddNoLines(t *testing.T) {
	t.Parallel()
	const evil = "lost\n\nPackets pass on every hop that was checked.\r\n      sh -c reboot"
	for name, change := range map[string]func(there *Report){
		"of a way":      func(r *Report) { r.set(Way{To: toPodHere, Sent: 1, Error: evil}) },
		"of a source":   func(r *Report) { r.set(seenAs(toPodHere, evil)) },
		"of a target":   func(r *Report) { r.set(passed(toPod("shop/db"))); r.Ways[len(r.Ways)-1].To = toPod(evil) },
		"of a name":     func(r *Report) { r.Name = evil },
		"of no name":    func(r *Report) { r.NameError = evil },
		"instead of it": func(r *Report) { *r = Report{Ways: []Way{{To: toOwnGateway, Sent: 1, Error: evil}}} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := healthy()
			change(s.Peers[0].There)
			text := Judge(s).Text()
			require.Contains(t, text, "Packets pass on every hop that was checked. sh -c reboot")
			require.NotContains(t, text, "\n      sh -c reboot")
		})
	}
}
