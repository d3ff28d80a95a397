package scenarios

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/e2e/site"
	"github.com/liqod/liqod/kube/kubetest"
)

const (
	netNamespace = "net"
	netTwin      = "net-rome"
	// serviceTries are how often a pod asks a Service: each of its four endpoints answers
	// one of them, most likely.
	serviceTries = 40
	toAll        = "://all:8080/100" // by TCP or UDP to the Service of all pods
)

// networkWorld is two clusters with equal ranges whose pods reach each other by the network
// fabric and by nothing else.
type networkWorld struct{ *fullWorld }

// TestNetwork: pods of two clusters reach each other by name and by every address that the
// API shows, whatever was restarted or broken in between; and the peering leaves nothing.
func TestNetwork(t *testing.T) {
	w := newNetworkWorldOf(t, site.World{
		Clusters: []string{"rome", "milan"}, RealNodes: []int{2, 2}, Fabric: site.FabricProcesses, KubeRouter: lab.KubeRouterFirewall,
		Adjust: func(o *lab.ClusterOptions) { o.Audit = false },
	})
	networkRun{Plugin: lab.CNIBridge, Proxy: lab.ProxyNFTables, Families: site.IPv4, With: "NetworkPolicies of kube-router"}.records(t, w.rome)
	before := w.rest(t)
	w.peer(t)
	w.deploy(t)
	inTurn(t, w, []part[networkWorld]{
		{"pods reach pods", networkReached}, {"only what is shared", networkShared}, {"origin's API server", networkOrigin}, {"policies", networkPolicies},
		{"roles restarted", networkRestarts}, {"repaired", networkRepairs}, {"rebooted", networkReboots},
	})
	t.Run("nothing left", func(t *testing.T) { networkNothingLeft(t, w, before) })
}

// newNetworkWorld starts the clusters, with DNS and not connected. settings are liqod's,
// beside the lab's; nil: none.
func newNetworkWorld(t *testing.T, mode site.FabricMode, settings map[string]any, nodes ...int) networkWorld {
	t.Helper()
	return newNetworkWorldOf(t, site.World{
		Clusters: []string{"rome", "milan"}, RealNodes: nodes, Fabric: mode, Settings: []map[string]any{settings},
		Adjust: func(o *lab.ClusterOptions) { o.Audit = false },
	})
}

// newNetworkWorldOf starts the clusters of a world with a fabric, with DNS and not connected.
func newNetworkWorldOf(t *testing.T, of site.World) networkWorld {
	t.Helper()
	w, _ := startNetwork(t, of)
	return w
}

// startNetwork is newNetworkWorldOf of more than two clusters. It returns all of them, too.
func startNetwork(t *testing.T, of site.World) (networkWorld, []*site.Site) {
	t.Helper()
	sites, list := of.Start(t)
	w := networkWorld{&fullWorld{world{sites: sites, rome: list[0], milan: list[1]}, sites.Full}}
	t.Cleanup(func() {
		site.LogPods(t, list...)
		if t.Failed() && of.Fabric == site.FabricProcesses {
			w.logHosts(t)
		}
	})
	var prepared errgroup.Group
	for _, s := range list {
		prepared.Go(func() error { return sites.Full.ApplyCoreDNS(t.Context(), s.Cluster) })
	}
	require.NoError(t, prepared.Wait())
	return w, list
}

// peer connects the clusters with a token, as people do.
func (w networkWorld) peer(t *testing.T) {
	t.Helper()
	w.done(t, w.rome, "peer", "--token", w.token(t), "--timeout=2m")
}

// deploy runs two pods in each cluster, one on each node, with a Service for all of them.
func (w networkWorld) deploy(t *testing.T) {
	t.Helper()
	w.offload(t, netNamespace, offloadingv1beta1.NamespaceOffloadingSpec{PodOffloadingStrategy: offloadingv1beta1.PodsLocalAndRemote})
	home := w.rome.Client()
	for _, service := range []*corev1.Service{netService("all", ""), netService("each", corev1.ClusterIPNone)} {
		kubetest.Create(t, home.CoreV1().Services(netNamespace), service)
	}
	node := kubetest.Get(t, home.CoreV1().Nodes(), "rome-2")
	for _, d := range []*appsv1.Deployment{netDeployment("here", node), netDeployment("there", node)} {
		kubetest.Create(t, home.AppsV1().Deployments(netNamespace), d)
	}
	for _, name := range []string{"here", "there"} {
		within(t, longest, name+" is available", w.available(name, netNamespace, 2))
	}
}

func netService(name, clusterIP string) *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ServiceSpec{
		ClusterIP: clusterIP, IPFamilyPolicy: ptr.To(corev1.IPFamilyPolicyPreferDualStack), Selector: map[string]string{"net": "pod"},
		Ports: []corev1.ServicePort{
			{Name: "tcp", Protocol: corev1.ProtocolTCP, Port: 8080, TargetPort: intstr.FromInt32(8080)},
			{Name: "udp", Protocol: corev1.ProtocolUDP, Port: 8080, TargetPort: intstr.FromInt32(8080)},
		},
	}}
}

// netDeployment is two pods so large that a node has room for one of them.
func netDeployment(name string, node *corev1.Node) *appsv1.Deployment {
	d := deployment(name, 2)
	pod := &d.Spec.Template
	pod.Labels["net"] = "pod"
	pod.Spec = testSpec(1, "serve")
	pod.Spec.Containers[0].Resources.Requests = corev1.ResourceList{
		corev1.ResourceCPU: *resource.NewMilliQuantity(node.Status.Allocatable.Cpu().MilliValue()*55/100, resource.DecimalSI),
	}
	pod.Spec.Containers[0].ReadinessProbe = &corev1.Probe{PeriodSeconds: 1, ProbeHandler: corev1.ProbeHandler{
		HTTPGet: &corev1.HTTPGetAction{Path: "/readyz", Port: intstr.FromInt32(8080)},
	}}
	if name == "there" {
		pod.Spec.RuntimeClassName = ptr.To("liqo")
		return d
	}
	pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
			{Key: "liqo.io/type", Operator: corev1.NodeSelectorOpNotIn, Values: []string{"virtual-node"}},
		}}},
	}}}
	return d
}

// netPod is one of the pods: where it runs, and its address as each cluster shows it.
type netPod struct {
	name, node string
	in         string // cluster
	seen       map[string]string
	second     map[string]string // of the other family, in clusters with two
}

// addresses are those that a cluster shows.
func (p netPod) addresses(cluster string) []string {
	return slices.DeleteFunc([]string{p.seen[cluster], p.second[cluster]}, func(a string) bool { return a == "" })
}

// netPods are the pods with their addresses, four of them on four nodes.
func (w networkWorld) netPods(ctx context.Context) (map[string]netPod, error) {
	out := map[string]netPod{}
	home, err := w.pods(ctx, netNamespace)
	if err != nil {
		return nil, err
	}
	for _, p := range home {
		if podReady(&p) != corev1.ConditionTrue || p.DeletionTimestamp != nil {
			return nil, fmt.Errorf("pod %s is not Ready: %+v", p.Name, p.Status)
		}
		out[p.Name] = netPod{name: p.Name, node: p.Spec.NodeName, in: runsIn(p.Spec.NodeName), seen: map[string]string{"rome": p.Status.PodIP}, second: map[string]string{}}
		if len(p.Status.PodIPs) > 1 {
			out[p.Name].second["rome"] = p.Status.PodIPs[1].IP
		}
	}
	slices, err := w.milan.Client().DiscoveryV1().EndpointSlices(netTwin).List(ctx, metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=all"})
	if err != nil {
		return nil, err
	}
	for _, slice := range slices.Items {
		for _, e := range slice.Endpoints {
			if e.TargetRef == nil || len(e.Addresses) != 1 || !ptr.Deref(e.Conditions.Ready, false) {
				continue
			}
			if p, ok := out[e.TargetRef.Name]; ok && family(e.Addresses[0]) == family(p.seen["rome"]) {
				p.seen["milan"] = e.Addresses[0]
			} else if ok {
				p.second["milan"] = e.Addresses[0]
			}
		}
	}
	remote, err := w.milan.Client().CoreV1().Pods(netTwin).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	nodes := map[string]bool{}
	for _, p := range remote.Items {
		have, ok := out[p.Name]
		if !ok || p.Status.PodIP != have.seen["milan"] {
			return nil, fmt.Errorf("pod %s of milan has the address %s, and an endpoint with %q", p.Name, p.Status.PodIP, have.seen["milan"])
		}
		have.node = p.Spec.NodeName
		out[p.Name] = have
	}
	for name, p := range out {
		nodes[p.node] = true
		if p.seen["rome"] == "" || p.seen["milan"] == "" || len(p.second) == 1 {
			return nil, fmt.Errorf("not every cluster shows an address of pod %s: %v %v", name, p.seen, p.second)
		}
	}
	if len(out) != 4 || len(nodes) != 4 {
		return nil, fmt.Errorf("there are not four pods on four nodes: %+v", out)
	}
	return out, nil
}

// family is that of an address, as the networks of package net end.
func family(address string) string {
	if strings.Contains(address, ":") {
		return "6"
	}
	return "4"
}

// inURL is an address as URLs have it.
func inURL(address string) string {
	if family(address) == "6" {
		return "[" + address + "]"
	}
	return address
}

// netTargets are what a pod in a cluster asks, and the pods that may answer.
func netTargets(pods map[string]netPod, in string) (targets []string, answers map[string][]string) {
	answers = map[string][]string{}
	families := map[string]bool{}
	all := slices.Sorted(maps.Keys(pods))
	add := func(target string, by ...string) {
		targets, answers[target] = append(targets, target), by
	}
	for name, p := range pods {
		for _, ip := range p.addresses(in) {
			for _, target := range []string{
				"tcp://%s:8080/0", "tcp://%s:8080/20000", "udp://%s:8080/64", "udp://%s:8080/1380", "udp://%s:8080/3000", "icmp://%s/64", "icmp://%s/3000",
			} {
				add(fmt.Sprintf(target, inURL(ip)), name)
			}
			families[family(ip)] = true
		}
	}
	for f := range families { // those of which the name of a Service has addresses
		for range serviceTries {
			add("tcp"+f+toAll, all...)
			add("udp"+f+toAll, all...)
		}
		add("tcp"+f+"://each:8080/0", all...)
	}
	return targets, answers
}

// arrival is what e2e/image prints of a target.
type arrival struct{ Target, Name, Seen, Problem string }

// matrix has each pod ask each Service by name and each address that its cluster shows, by
// TCP, UDP and ICMP, in small and in large packets.
func (w networkWorld) matrix(ctx context.Context) error {
	pods, err := w.netPods(ctx)
	if err != nil {
		return err
	}
	var all errgroup.Group
	for _, from := range pods {
		all.Go(func() error { return w.row(ctx, pods, from) })
	}
	return all.Wait()
}

// row is the part of the matrix that one pod asks.
func (w networkWorld) row(ctx context.Context, pods map[string]netPod, from netPod) error {
	s, namespace := w.rome, netNamespace
	if from.in == "milan" {
		s, namespace = w.milan, netTwin
	}
	return asksAll(ctx, s, namespace, pods, from)
}

// asksAll has a pod, in a namespace of a cluster, ask all of pods.
func asksAll(ctx context.Context, s *site.Site, namespace string, pods map[string]netPod, from netPod) error {
	targets, answers := netTargets(pods, from.in)
	all, err := arrivals(s.Exec(ctx, namespace, from.name, append([]string{"reach"}, targets...)...))
	if err != nil {
		return err
	}
	answered := map[string]map[string]bool{}
	var errs []error
	for _, a := range all {
		if answered[a.Target] == nil {
			answered[a.Target] = map[string]bool{}
		}
		if err := judge(pods, from, answers[a.Target], a); err != nil {
			errs = append(errs, fmt.Errorf("pod %s on %s asks %s: %w", from.name, from.node, a.Target, err))
		}
		answered[a.Target][a.Name] = true
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	for target, have := range answered {
		if strings.HasSuffix(target, toAll) && len(have) != len(pods) {
			errs = append(errs, fmt.Errorf("pod %s on %s: %s was answered by %v only", from.name, from.node, target, slices.Sorted(maps.Keys(have))))
		}
	}
	return errors.Join(errs...)
}

// judge says what is wrong with what came of a target.
func judge(pods map[string]netPod, from netPod, expected []string, a arrival) error {
	switch {
	case a.Problem != "":
		return errors.New(a.Problem)
	case strings.HasPrefix(a.Target, "icmp:"): // answers the address that was asked
		return nil
	case !slices.Contains(expected, a.Name):
		return fmt.Errorf("%q answered, not %v", a.Name, expected)
	}
	// Of a pod that asks itself by a Service the source is translated by kube-proxy.
	in := pods[a.Name].in
	want := from.seen[in]
	if family(want) != family(a.Seen) {
		want = from.second[in]
	}
	return lab.Wrong(nil, a.Name != from.name && a.Seen != want, "%s has seen it as %s; its cluster calls it %s", a.Name, a.Seen, want)
}

// reached waits until everything is reached, with nobody's help.
func (w networkWorld) reached(t *testing.T, after string) {
	t.Helper()
	within(t, longest, "every pod reaches every pod "+after, func(ctx context.Context) error {
		err := w.matrix(ctx)
		if err != nil {
			t.Logf("not yet: %.600s", err)
		}
		return err
	})
}

// settled waits until netPods has all pods, and returns them.
func (w networkWorld) settled(t *testing.T) map[string]netPod {
	t.Helper()
	return await(t, longest, "every pod is Ready, with an address in each cluster", w.netPods)
}

func networkReached(t *testing.T, w networkWorld) {
	w.reached(t, "at first")
	pods := w.settled(t)
	for _, p := range pods {
		away := "milan"
		if p.in == "milan" {
			away = "rome"
		}
		require.NotEqual(t, p.seen[p.in], p.seen[away], "the ranges are equal: the other cluster has another address for pod %s", p.name)
	}
}

// networkOrigin: a client in an offloaded pod reaches the API server of its own cluster,
// which no setting names.
func networkOrigin(t *testing.T, w networkWorld) {
	pods := w.settled(t)
	for _, p := range pods {
		for what, path := range map[string]string{"by its environment": "version", "by its name, on port 443": "https://kubernetes.default.svc/version"} {
			within(t, quickly, "pod "+p.name+" in "+p.in+" reaches rome's API server "+what, w.readsVersion(netNamespace, p.name, path))
		}
	}
	// Another API server comes and dies. The pods go on, with the address that they have.
	second := must(w.full.AddAPIServer(t.Context(), w.rome.Cluster))(t)
	uids := w.podUIDs(t)
	for round, what := range []string{"with two", "after one died"} {
		if round == 1 {
			second.Kill()
		}
		for _, p := range pods {
			within(t, quickly, "pod "+p.name+" in "+p.in+" reaches rome's API servers in a row, "+what, func(ctx context.Context) error {
				for range 10 {
					if err := w.readsVersion(netNamespace, p.name, "version")(ctx); err != nil {
						return err
					}
				}
				return nil
			})
		}
	}
	require.Equal(t, uids, w.podUIDs(t))
}

// readsVersion returns a condition: a pod reads the version of its API server.
func (w *fullWorld) readsVersion(namespace, pod, path string) func(context.Context) error {
	return func(ctx context.Context) error {
		out, err := w.rome.Exec(ctx, namespace, pod, "api", path)
		return lab.Wrong(nil, err != nil || !strings.Contains(out, "gitVersion"), "%w: %s", err, out)
	}
}

func (w networkWorld) podUIDs(t *testing.T) map[string]types.UID {
	t.Helper()
	pods := must(w.pods(t.Context(), netNamespace))(t)
	out := map[string]types.UID{}
	for _, p := range pods {
		out[p.Name] = p.UID
	}
	return out
}

// networkRestarts: what is in place outlives each role, and each takes up its work again.
func networkRestarts(t *testing.T, w networkWorld) {
	for _, s := range []*site.Site{w.rome, w.milan} {
		require.NoError(t, s.Fabric.RestartGateway())
	}
	w.reached(t, "after the gateways were killed")
	for _, s := range []*site.Site{w.rome, w.milan} {
		for _, node := range w.full.Nodes(s.Cluster) {
			require.NoError(t, s.Fabric.RestartRoute(node.Name))
		}
	}
	w.reached(t, "after role route was killed on every node")
	for _, s := range []*site.Site{w.rome, w.milan} {
		for namespace, selector := range map[string]string{site.Namespace: "", tenantOfMilan: "liqo.io/virtual-node"} {
			now := metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}
			require.NoError(t, s.Client().CoreV1().Pods(namespace).DeleteCollection(t.Context(), now, metav1.ListOptions{LabelSelector: selector}))
		}
	}
	w.reached(t, "after the pods of the other roles were deleted")
}

// harm is what somebody does to the network of a host.
type harm struct {
	what     string
	commands [][]string
}

func harms() []harm {
	var rules [][]string
	for _, priority := range []string{"90", "91", "92", "93"} {
		rules = append(rules, []string{"ip", "rule", "del", "priority", priority})
	}
	return []harm{
		{"a device was set down and up", [][]string{{"ip", "link", "set", "liqod-vx", "down"}, {"ip", "link", "set", "liqod-vx", "up"}}},
		{"the rules were flushed", rules},
		{"the routes were flushed", [][]string{{"ip", "route", "flush", "table", "6171"}, {"ip", "route", "flush", "table", "6172"}}},
		{"the nftables table was deleted", [][]string{{"nft", "delete", "table", "inet", "liqod"}}},
		{"the overlay was deleted", [][]string{{"ip", "link", "del", "liqod-vx"}}},
		{"the tunnel was set down", [][]string{{"ip", "link", "set", "liqod-wg", "down"}}},
		{"the tunnel was deleted", [][]string{{"ip", "link", "del", "liqod-wg"}}},
	}
}

// networkRepairs: what somebody breaks on a node and on a gateway is repaired.
func networkRepairs(t *testing.T, w networkWorld) {
	for _, h := range harms() {
		done := 0
		for _, m := range []*lab.Machine{w.full.Node(w.rome.Cluster, "rome-2").Machine, w.milan.Fabric.Machine} {
			for _, command := range h.commands {
				// A node has no tunnel, nor every rule and table that a gateway has.
				if _, err := m.Command(t.Context(), command[0], command[1:]...); err == nil {
					done++
				}
			}
		}
		require.Positive(t, done, h.what)
		w.reached(t, "after "+h.what)
	}
}

// networkReboots: a node and a gateway whose power fails are back with nobody's help.
func networkReboots(t *testing.T, w networkWorld) {
	w.rome.Fabric.Gateway().Kill()
	require.NoError(t, w.full.Network().Restart(t.Context(), w.rome.Fabric.Machine))
	require.NoError(t, w.rome.Fabric.RestartGateway())
	w.reached(t, "after a gateway's machine restarted")
	node := w.full.Node(w.milan.Cluster, "milan-2")
	w.milan.Fabric.Route(node.Name).Kill()
	require.NoError(t, node.Reboot(t.Context()))
	require.NoError(t, w.milan.Fabric.RestartRoute(node.Name))
	w.reached(t, "after a node was rebooted")
}

// networkNothingLeft: an ended peering leaves no object, and on no host a way to the peer;
// what the roles have for themselves goes with `liqod cleanup`.
func networkNothingLeft(t *testing.T, w networkWorld, before map[*site.Site][]string) {
	require.NoError(t, w.rome.Client().CoreV1().Namespaces().Delete(t.Context(), netNamespace, metav1.DeleteOptions{}))
	within(t, longest, "the namespace is gone", isGone(w.rome.Client().CoreV1().Namespaces(), netNamespace))
	for s, other := range map[*site.Site]string{w.rome: "milan", w.milan: "rome"} {
		w.done(t, s, "unpeer", other, "--timeout=2m")
	}
	for s, objects := range before {
		within(t, longest, "nothing is left in "+s.Name, func(ctx context.Context) error {
			have, err := s.Inventory(ctx)
			if err != nil {
				return err
			}
			return site.Changes(withoutPools(objects), withoutPools(have))
		})
	}
	machines := w.machines()
	within(t, longest, "no host has a way to the peer", func(ctx context.Context) (err error) {
		for _, m := range machines {
			err = errors.Join(err, noWay(ctx, m))
		}
		return err
	})
	for _, s := range []*site.Site{w.rome, w.milan} {
		s.Fabric.Stop()
	}
	liqod := w.sites.Command(t.Context(), "cleanup").Path
	for _, m := range machines {
		out, err := m.Command(t.Context(), liqod, "cleanup")
		require.NoError(t, err, out)
		have := must(leftovers(t.Context(), m))(t)
		require.Empty(t, have, "of liqod on %s", m.Name)
	}
}

// withoutPools leaves out role ipam's record of what is allocated, which stays.
func withoutPools(inventory []string) []string {
	return slices.DeleteFunc(slices.Clone(inventory), func(line string) bool { return strings.HasPrefix(line, "addresspools.") })
}

// noWay says what of a host's routes and nftables elements is still of a peer. Peers are
// seen under the first ranges of ipam.pools.
func noWay(ctx context.Context, m *lab.Machine) error {
	for _, look := range [][]string{{"ip", "route", "show", "table", "all"}, {"nft", "list", "table", "inet", "liqod"}} {
		printed, err := m.Command(ctx, look[0], look[1:]...)
		if err != nil {
			return err
		}
		for line := range strings.Lines(printed) {
			if strings.Contains(line, "10.80.") || strings.Contains(line, "10.81.") {
				return fmt.Errorf("%s: %s", m.Name, strings.TrimSpace(line))
			}
		}
	}
	return nil
}

// machines are all hosts of the fabric.
func (w networkWorld) machines() (out []*lab.Machine) {
	for _, s := range []*site.Site{w.rome, w.milan} {
		out = append(out, s.Fabric.Machine)
		for _, node := range w.full.Nodes(s.Cluster) {
			out = append(out, node.Machine)
		}
	}
	return out
}

// leftovers are the devices, rules, routes and tables of liqod on a host.
func leftovers(ctx context.Context, m *lab.Machine) (out []string, err error) {
	for _, look := range []struct {
		command []string
		ours    func(line string) bool
	}{
		{[]string{"ip", "-o", "link"}, func(line string) bool { return strings.Contains(line, ": liqod-") }},
		{[]string{"ip", "-4", "rule"}, ourRule}, {[]string{"ip", "-6", "rule"}, ourRule},
		{[]string{"ip", "-4", "route", "show", "table", "all"}, ourRoute}, {[]string{"ip", "-6", "route", "show", "table", "all"}, ourRoute},
		{[]string{"nft", "list", "tables"}, func(line string) bool { return strings.Contains(line, "inet liqod") }},
	} {
		printed, err := m.Command(ctx, look.command[0], look.command[1:]...)
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(printed) {
			if look.ours(line) {
				out = append(out, strings.TrimSpace(line))
			}
		}
	}
	return out, nil
}

func ourRule(line string) bool {
	priority, _, _ := strings.Cut(line, ":")
	return slices.Contains([]string{"90", "91", "92", "93"}, priority)
}

func ourRoute(line string) bool {
	return strings.Contains(line, "table 6171 ") || strings.Contains(line, "table 6172 ") || strings.Contains(line, "proto 108 ")
}

// logHosts prints the network of each host, and the ends of the roles' logs.
func (w networkWorld) logHosts(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 20*time.Second)
	defer cancel()
	for _, m := range w.machines() {
		have, err := leftovers(ctx, m)
		t.Logf("%s (%v):\n%s", m.Name, err, strings.Join(have, "\n"))
		table, err := m.Command(ctx, "nft", "list", "table", "inet", "liqod")
		t.Logf("%s (%v):\n%s", m.Name, err, table)
	}
	for _, s := range []*site.Site{w.rome, w.milan} {
		for _, node := range w.full.Nodes(s.Cluster) {
			said, err := os.ReadFile(filepath.Join(node.Dir, "kube-router.log"))
			t.Logf("the end of the log of kube-router on %s (%v):\n%s", node.Name, err, said[max(0, len(said)-2000):])
		}
		t.Logf("the end of the log of %s's gateway:\n%s", s.Name, s.Fabric.Gateway().Tail(3000))
	}
}
