package site

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/liqod/liqod/e2e/lab"
)

// The same in all clusters of a fabric: each is told only what is its own.
const (
	fabricPodCIDR      = "10.244.0.0/16"
	fabricServiceCIDR  = "10.96.0.0/16"
	fabricExternalCIDR = "10.70.0.0/16"

	fabricPodCIDR6      = "fd00:10:244::/56"
	fabricServiceCIDR6  = "fd00:10:96::/112"
	fabricExternalCIDR6 = "fd00:10:70::/112"

	// TunnelPort is the UDP port of gateways that are processes.
	TunnelPort     = 51840
	tunnelNodePort = 31840 // of gateways that are pods
)

// FabricMode says whether, and how, the roles of the network run.
type FabricMode string

// Modes.
const (
	// FabricOff: pods reach pods of other clusters by routes of the lab, if at all.
	FabricOff FabricMode = ""
	// FabricProcesses: each gateway is a process on a machine of its own, and role route one in
	// the network of each node. A test breaks them as it likes.
	FabricProcesses FabricMode = "processes"
	// FabricPods: the workloads of the chart, as everybody has them.
	FabricPods FabricMode = "pods"
)

// Families are those of the addresses of pods, Services and nodes.
type Families string

// Combinations of families. Of two, gateways are reached by the first, and Services without a family
// have it.
const (
	IPv4          Families = "IPv4"
	DualStack     Families = "IPv4, IPv6"
	DualStackIPv6 Families = "IPv6, IPv4"
	IPv6          Families = "IPv6"
)

// of returns the ranges of the families, with commas between them.
func (f Families) of(ipv4, ipv6 string) string {
	return strings.NewReplacer(" ", "", string(IPv4), ipv4, string(IPv6), ipv6).Replace(string(cmp.Or(f, IPv4)))
}

// FabricOptions give a cluster the ranges that every cluster of a fabric has.
func FabricOptions(o *lab.ClusterOptions, families Families) {
	o.PodCIDR, o.ServiceCIDR = families.of(fabricPodCIDR, fabricPodCIDR6), families.of(fabricServiceCIDR, fabricServiceCIDR6)
}

// Fabric is what connects the pods of a site with those of others: a gateway on a machine
// of its own, which stands for the gateway's pod, and a process of role route in the
// network of each node. Its methods may be called concurrently.
type Fabric struct {
	// Machine of the gateway.
	Machine *lab.Machine

	sites   *Sites
	mu      sync.Mutex
	gateway *lab.Process
	routes  map[string]*lab.Process // by node
}

// fabricValues are the chart's values of a cluster in a fabric.
func (s *Site) fabricValues() map[string]any {
	values := map[string]any{"enabled": true, "externalCIDRs": strings.Split(s.sites.Families.of(fabricExternalCIDR, fabricExternalCIDR6), ",")}
	if s.sites.Fabric == FabricPods { // the other ranges are found
		values["gatewayTemplates"] = map[string]any{"service": map[string]any{"type": "NodePort", "nodePort": tunnelNodePort}}
		return values
	}
	values["podCIDRs"], values["serviceCIDRs"] = s.Options.PodCIDRs(), s.Options.ServiceCIDRs()
	values["nodeCIDRs"] = s.sites.Full.Network().Ranges()
	return values
}

// fabricWorkloads are those of the chart that run as processes instead.
func fabricWorkloads() []string { return []string{"Deployment/liqod-gateway", "DaemonSet/liqod-route"} }

// startFabric starts the gateway and a role route for each node.
func (s *Site) startFabric(ctx context.Context) error {
	if err := s.startGateway(ctx, "liqod-gateway", 1); err != nil {
		return err
	}
	for _, node := range s.sites.Full.Nodes(s.Cluster) {
		if err := s.StartRoute(ctx, node.Name); err != nil {
			return err
		}
	}
	return nil
}

// startGateway starts a gateway on a machine of its own, with the rights of an account and a number.
func (s *Site) startGateway(ctx context.Context, account string, number int) (err error) {
	f := &Fabric{sites: s.sites, routes: map[string]*lab.Process{}}
	if f.Machine, err = s.sites.Full.Network().AddMachine(ctx, s.Name+"-gw"); err != nil {
		return fmt.Errorf("making the machine of the gateway of %s: %w", s.Name, err)
	}
	address := f.Machine.AddressFor(s.Options.PodCIDR)
	args := []string{fmt.Sprintf("--gateway.number=%d", number), "--gateway.stateDir=" + filepath.Join(s.Dir, "gateway"),
		"--gateway.endpoints=" + net.JoinHostPort(address, strconv.Itoa(TunnelPort))}
	if s.sites.Families == DualStackIPv6 { // of two addresses, nodes send to the one of IPv4
		args = append(args, "--gateway.addresses="+address)
	}
	f.gateway, err = s.roleIn(ctx, f.Machine, "gateway", "gateway", account, args...)
	if err != nil {
		return fmt.Errorf("starting the gateway of %s: %w", s.Name, err)
	}
	s.Fabric = f
	return nil
}

// Outside is the name, in the chart's values, of the gateway that StartOutside starts.
const Outside = "edge"

// SetGateways changes the number of gateways that are pods, as helm upgrade does. Beside them the chart
// has Outside with number 2.
func (s *Site) SetGateways(ctx context.Context, replicas int) error {
	gateways := map[string]any{"replicas": replicas, "outside": []any{map[string]any{"name": Outside, "number": 2}}}
	if replicas == 0 {
		gateways["service"] = map[string]any{} // of no use then
	}
	return s.upgradeChart(ctx, s.version, map[string]any{"networking": map[string]any{"gatewayTemplates": gateways}})
}

// StartOutside starts a gateway on a machine of its own, with the rights that SetGateways has given it.
func (s *Site) StartOutside(ctx context.Context) error {
	return s.startGateway(ctx, "liqod-gateway-"+Outside, 2)
}

// StartRoute starts role route on a node that has no pod of it.
func (s *Site) StartRoute(ctx context.Context, node string) error {
	p, err := s.roleIn(ctx, s.sites.Full.Node(s.Cluster, node).Machine, "route", "route-"+node, "liqod-route", "--route.nodeName="+node)
	if err != nil {
		return fmt.Errorf("starting role route of node %s: %w", node, err)
	}
	s.Fabric.mu.Lock()
	defer s.Fabric.mu.Unlock()
	s.Fabric.routes[node] = p
	return nil
}

// RestartGateway kills the gateway and starts it again.
func (f *Fabric) RestartGateway() error {
	return f.restart(func() *lab.Process { return f.gateway }, func(p *lab.Process) { f.gateway = p })
}

// RestartRoute kills role route of a node and starts it again.
func (f *Fabric) RestartRoute(node string) error {
	return f.restart(func() *lab.Process { return f.routes[node] }, func(p *lab.Process) { f.routes[node] = p })
}

func (f *Fabric) restart(get func() *lab.Process, set func(*lab.Process)) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := get()
	if err := f.sites.Restart(&p); err != nil {
		return err
	}
	set(p)
	return nil
}

// Gateway is the process of the gateway.
func (f *Fabric) Gateway() *lab.Process {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.gateway
}

// Route is the process of role route of a node.
func (f *Fabric) Route(node string) *lab.Process {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.routes[node]
}

// Stop ends the gateway and all of role route at once.
func (f *Fabric) Stop() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.gateway.Kill()
	for _, p := range f.routes {
		p.Kill()
	}
}

// routing says whether role route runs on every node.
func (s *Site) routing(ctx context.Context) error {
	d, err := s.Client().AppsV1().DaemonSets(Namespace).Get(ctx, "liqod-route", metav1.GetOptions{})
	if err != nil {
		return err
	}
	want := len(s.sites.Full.Nodes(s.Cluster))
	return lab.Wrong(nil, int(d.Status.NumberAvailable) != want || int(d.Status.UpdatedNumberScheduled) != want || d.Status.ObservedGeneration != d.Generation,
		"role route runs on %d of %d nodes", d.Status.NumberAvailable, want)
}

// KillGatewayPod deletes the pod of the gateway without grace; the Deployment makes another.
func (s *Site) KillGatewayPod(ctx context.Context) error {
	now := metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}
	err := s.Client().CoreV1().Pods(Namespace).DeleteCollection(ctx, now, metav1.ListOptions{LabelSelector: "app.kubernetes.io/component=gateway"})
	if err != nil {
		return fmt.Errorf("deleting the gateway's pod in %s: %w", s.Name, err)
	}
	return nil
}
