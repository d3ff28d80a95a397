package cmd

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/version"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/roles/cmd/report"
)

const (
	sectionPre   = "Before the installation"
	sectionToken = "Token"

	// servesOwnCIDRs is the version from which clusters have ServiceCIDRs.
	servesOwnCIDRs = "1.33.0"
	// clockSlack is the difference of two clocks that does no harm: certificates and tokens
	// of liqod last minutes at least, and Leases 8 seconds.
	clockSlack = 2 * time.Second
	// nodeLeaseRenewal is the time in which a kubelet surely renews its Lease.
	nodeLeaseRenewal = 30 * time.Second
	// mostNamed limits the objects that a message names.
	mostNamed = 5
)

// nodePort is a port that liqod opens on each node, and the setting that changes it.
type nodePort struct {
	protocol corev1.Protocol
	number   int32
	use      string
	setting  string
}

// nodePorts are the ports of role route, which is in the network of its node.
var nodePorts = []nodePort{
	{corev1.ProtocolUDP, 6091, "the overlay between nodes and gateways", "route.overlayPort and gateway.overlayPort, by networking.route.extraArgs and networking.gatewayTemplates.extraArgs"},
	{corev1.ProtocolTCP, 6093, "the health of role route", "networking.route.healthPort"},
}

// Checks before an installation, and of a token, in the order of docs/checks.md.
const (
	idPreKubernetes    report.ID = "pre-kubernetes-version"
	idPreServices      report.ID = "pre-service-addresses"
	idPreAPIs          report.ID = "pre-apis"
	idPreInstalled     report.ID = "pre-installation"
	idPreRights        report.ID = "pre-rights"
	idPreWebhooks      report.ID = "pre-webhooks"
	idPrePorts         report.ID = "pre-ports"
	idPreLoadBalancers report.ID = "pre-load-balancers"
	idPreClocks        report.ID = "pre-clocks"
	idPrePods          report.ID = "pre-pod-addresses"
	idPrePlugin        report.ID = "pre-network-plugin"
	idPreNodes         report.ID = "pre-nodes"
	idPreMTU           report.ID = "pre-mtu"
	idPreUnread        report.ID = "pre-objects-read"
	idToken            report.ID = "token"
	idTokenCluster     report.ID = "token-cluster"
	idTokenEndpoint    report.ID = "token-endpoint"
	idTokenClocks      report.ID = "token-clocks"
)

// judge returns the findings about a cluster before the installation. It is pure.
func (p *preflight) judge() []report.Finding {
	p.Section = sectionPre
	p.judgeVersion()
	p.judgeKinds()
	p.judgeRights()
	p.judgeWebhooks()
	p.judgePorts()
	p.judgeLoadBalancers()
	p.judgeClocks()
	p.judgeNodes()
	for _, what := range slices.Sorted(maps.Keys(p.snap.Unread)) {
		p.Add(idPreUnread, report.Unknown, what, "cannot be read: "+p.snap.Unread[what].Error(), "ask with the rights of an administrator")
	}
	return p.Findings
}

func (p *preflight) judgeVersion() {
	have := p.KubernetesVersion(idPreKubernetes, report.Problem, p.snap.Kubernetes)
	if have != nil && have.LessThan(version.MustParseGeneric(servesOwnCIDRs)) {
		p.Add(idPreServices, report.Warning, "Service addresses", "this version has no ServiceCIDRs, so liqod cannot find the range of the Services", "set networking.serviceCIDRs of the chart to it")
	}
}

func (p *preflight) judgeKinds() {
	if len(p.missing) > 0 {
		p.Add(idPreAPIs, report.Problem, "APIs", "the API server does not serve "+strings.Join(p.missing, ", "), "enable them (--runtime-config of the API server)")
	} else {
		p.Add(idPreAPIs, report.OK, "APIs", "the API server serves all that liqod needs", "")
	}
	switch {
	case p.snap.Namespace != "":
		p.Add(idPreInstalled, report.Warning, "Installation", "liqod is installed already, in namespace "+p.snap.Namespace, "liqod check examines it")
	case p.kinds:
		p.Add(idPreInstalled, report.Warning, "Installation", "there are kinds of the group core.liqo.io, but no liqod: an earlier installation has left them, or another product with the same kinds, such as Liqo, is installed",
			"kubectl get crd | grep liqo.io; remove the other product first")
	}
}

func (p *preflight) judgeRights() {
	switch {
	case p.snap.Unread["your rights"] != nil:
	case len(p.denied) > 0:
		p.Add(idPreRights, report.Problem, "Rights", "you may not: "+strings.Join(p.denied, ", "), "install with the rights of cluster-admin")
	default:
		p.Add(idPreRights, report.OK, "Rights", "you may create all objects of the chart", "")
	}
}

func (p *preflight) judgeWebhooks() {
	known := p.snap.Unread[report.ReadWebhooks] == nil && p.snap.Unread[report.ReadRules] == nil
	for _, g := range p.webhooks {
		known = false
		p.Add(idPreWebhooks, report.Problem, "Webhook "+g.name, "it has to allow pods or nodes, and its Service "+g.service+" has no ready endpoint: it refuses the pods and nodes of liqod too",
			"start it, or remove its configuration")
	}
	if known {
		p.Add(idPreWebhooks, report.OK, "Webhooks", "no webhook of others refuses pods or nodes because it does not answer", "")
	}
}

// portsOf returns the ports of a pod on its node.
func portsOf(pod *corev1.Pod) (ports []nodePort) {
	if offloadingv1beta1.Ended(pod.Status.Phase) {
		return nil
	}
	for _, c := range pod.Spec.Containers {
		for _, port := range c.Ports {
			number := port.HostPort
			if pod.Spec.HostNetwork && number == 0 {
				number = port.ContainerPort
			}
			if number != 0 {
				ports = append(ports, nodePort{protocol: cmp.Or(port.Protocol, corev1.ProtocolTCP), number: number})
			}
		}
	}
	return ports
}

// judgePorts finds pods that have the ports of liqod on their nodes, other than those of
// liqod itself.
func (p *preflight) judgePorts() {
	if p.snap.Unread[report.ReadPods] != nil {
		return
	}
	for _, want := range nodePorts {
		var by []string
		for _, pod := range p.snap.Pods {
			taken := slices.ContainsFunc(portsOf(&pod), func(n nodePort) bool { return n.protocol == want.protocol && n.number == want.number })
			if taken && pod.Labels["app.kubernetes.io/name"] != "liqod" {
				by = append(by, pod.Namespace+"/"+pod.Name)
			}
		}
		subject := fmt.Sprintf("%s port %d", want.protocol, want.number)
		if len(by) > 0 {
			p.Add(idPrePorts, report.Problem, subject, fmt.Sprintf("pods have it on their nodes: %s; liqod uses it for %s", report.Some(by, mostNamed), want.use), "set "+want.setting+" to another one")
			continue
		}
		p.Add(idPrePorts, report.OK, subject, "no pod has it on its node; nodes must reach each other at it, for "+want.use, "")
	}
}

// judgeLoadBalancers finds out whether Services of type LoadBalancer get addresses.
func (p *preflight) judgeLoadBalancers() {
	if p.snap.Unread[report.ReadServices] != nil {
		return
	}
	const subject = "Load balancers"
	const fix = "if nothing gives addresses here: set networking.gatewayTemplates.service.type of the chart to NodePort, or to ClusterIP if gateways of peers need not dial this one"
	said := "there is no Service of type LoadBalancer yet, so it is not known whether it would get an address"
	for i := range p.services {
		switch svc := &p.services[i]; {
		case svc.Spec.Type != corev1.ServiceTypeLoadBalancer:
		case len(svc.Status.LoadBalancer.Ingress) > 0:
			p.Add(idPreLoadBalancers, report.OK, subject, "Service "+svc.Namespace+"/"+svc.Name+" has an address", "")
			return
		default:
			said = "Service " + svc.Namespace + "/" + svc.Name + " waits for an address, and no other has one"
		}
	}
	p.Add(idPreLoadBalancers, report.Warning, subject, said, fix)
}

func (p *preflight) judgeClocks() {
	apart := p.skew.Abs() > clockSlack
	if apart {
		p.Add(idPreClocks, report.Warning, "Clock of the API server", fmt.Sprintf("it is %s the clock of this machine", ahead(p.skew)), "set the clocks by NTP")
	}
	ready := map[string]bool{}
	for i := range p.snap.Nodes {
		ready[p.snap.Nodes[i].Name] = report.NodeReady(&p.snap.Nodes[i])
	}
	var wrong []string
	for _, l := range p.snap.Leases {
		if l.Spec.RenewTime == nil || !ready[l.Name] {
			continue
		}
		off := l.Spec.RenewTime.Sub(p.snap.Taken)
		if off > clockSlack || off < -nodeLeaseRenewal {
			wrong = append(wrong, fmt.Sprintf("%s (%s it)", l.Name, ahead(off)))
		}
	}
	switch {
	case len(wrong) > 0:
		p.Add(idPreClocks, report.Warning, "Clocks of the nodes", "they differ from the clock of the API server, by the renewal of their Leases: "+report.Some(wrong, mostNamed), "set the clocks by NTP")
	case len(p.snap.Leases) > 0 && !apart:
		p.Add(idPreClocks, report.OK, "Clocks", "those of this machine, the API server and the nodes agree, as far as can be seen", "")
	}
}

func ahead(d time.Duration) string {
	if d < 0 {
		return fmt.Sprintf("%s behind", -d.Round(time.Second))
	}
	return fmt.Sprintf("%s ahead of", d.Round(time.Second))
}

func (p *preflight) judgeNodes() {
	if p.snap.Unread[report.ReadNodes] != nil {
		return
	}
	var bare, down []string
	for _, node := range p.snap.Nodes {
		if node.Spec.PodCIDR == "" && !offloadingv1beta1.IsVirtual(&node) {
			bare = append(bare, node.Name)
		}
		if !report.NodeReady(&node) {
			down = append(down, node.Name)
		}
	}
	if len(bare) > 0 {
		p.Add(idPrePods, report.Warning, "Pod addresses", "nodes have no podCIDR: "+report.Some(bare, mostNamed)+". The network plugin uses ranges that liqod cannot find", "set networking.podCIDRs of the chart to them")
	} else {
		p.Add(idPrePods, report.OK, "Pod addresses", "all nodes have a podCIDR; if the network plugin uses other ranges, set networking.podCIDRs", "")
	}
	p.judgePlugins()
	if len(down) > 0 {
		p.Add(idPreNodes, report.Warning, "Nodes", "not Ready: "+report.Some(down, mostNamed), "kubectl describe node")
	}
	p.Add(idPreMTU, report.Warning, "MTU", "the API does not tell the packet sizes of the networks. liqod takes 80 bytes off what its devices say between the clusters, 50 between the nodes",
		"if the way between the clusters carries less than the devices of the nodes (ip link): set networking.gatewayTemplates.mtu of the chart")
}

// judgePlugins says what is known of the network plugin.
func (p *preflight) judgePlugins() {
	plugins := p.networkFacts.Plugins()
	for _, plugin := range plugins {
		level := report.Warning
		if plugin.Run {
			level = report.OK
		}
		p.Add(idPrePlugin, level, "Network plugin "+plugin.Name, plugin.Message, plugin.Fix)
	}
	if len(plugins) == 0 && p.snap.Unread[report.ReadDaemonSets] == nil {
		p.Add(idPrePlugin, report.OK, "Network plugin", "no plugin that needs settings of liqod was recognised", "")
	}
}
