package scenarios

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	networkingv1beta1 "github.com/liqod/liqod/api/networking/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/e2e/site"
	"github.com/liqod/liqod/kube/kubetest"
)

// Addresses of servers that are in neither cluster, and of the DNS cache of a node.
const (
	metadataAddress = "169.254.169.254"
	internetAddress = "203.0.113.80"
	companyAddress  = "10.99.0.80" // in a private network of the provider
	cacheAddress    = "169.254.20.10"

	hostPort = "8088" // of pods on the network of a node, and of servers in neither cluster

	secondNamespace = "second"
	ownNamespace    = "own"        // of milan itself
	turinNamespace  = "shop-turin" // the twin of another peer
)

// policyTargets are what a pod sends to, by name. A pod of rome reaches the open ones only.
type policyTargets struct{ open, closed map[string]string }

// networkPolicies: an engine enforces the NetworkPolicy liqod-twin in milan. It closes to the
// pods of rome what milan does not share. Pods of milan and of another peer, without such a
// policy, reach all of it: every server answers.
func networkPolicies(t *testing.T, w networkWorld) {
	w.policyPods(t)
	w.policyHosts(t)
	targets := w.policyTargets(t)
	for _, p := range must(w.netPods(t.Context()))(t) {
		if p.in != "milan" {
			continue
		}
		within(t, soon, "pod "+p.name+" of rome on "+p.node+" reaches what is open, and nothing else", func(ctx context.Context) error {
			return w.policyHolds(ctx, netTwin, p.name, targets.open, targets.closed)
		})
	}
	all := maps.Clone(targets.open)
	maps.Copy(all, targets.closed)
	// Names are those of the twin.
	maps.DeleteFunc(all, func(name, _ string) bool { return name == "DNS" })
	for _, namespace := range []string{ownNamespace, turinNamespace} {
		for _, node := range w.full.Nodes(w.milan.Cluster) {
			within(t, soon, "the pod in "+namespace+" on "+node.Name+" reaches everything", func(ctx context.Context) error {
				return w.policyHolds(ctx, namespace, node.Name, all, nil)
			})
		}
	}
}

// policyHolds has a pod of milan try all targets.
func (w networkWorld) policyHolds(ctx context.Context, namespace, pod string, open, closed map[string]string) error {
	command := slices.Concat([]string{"reach"}, slices.Collect(maps.Values(open)), slices.Collect(maps.Values(closed)))
	all, err := arrivals(w.milan.Exec(ctx, namespace, pod, command...))
	if err != nil {
		return err
	}
	problems := map[string]string{}
	for _, a := range all {
		problems[a.Target] = a.Problem
	}
	var errs []error
	for name, target := range open {
		if problem := problems[target]; problem != "" {
			errs = append(errs, fmt.Errorf("%s is closed: %s", name, problem))
		}
	}
	for name, target := range closed {
		if problems[target] == "" {
			errs = append(errs, fmt.Errorf("%s is open: %s", name, target))
		}
	}
	return errors.Join(errs...)
}

// policyPods runs, on each node of milan, a pod of its own, one of another peer and one on the
// network of the node; and a pod of a second namespace of rome.
func (w networkWorld) policyPods(t *testing.T) {
	t.Helper()
	core := w.milan.Client().CoreV1()
	for _, ns := range []*corev1.Namespace{
		{ObjectMeta: metav1.ObjectMeta{Name: ownNamespace}},
		{ObjectMeta: metav1.ObjectMeta{Name: turinNamespace, Labels: map[string]string{corev1beta1.RemoteClusterIDLabel: "turin"}}},
	} {
		kubetest.Create(t, core.Namespaces(), ns)
		t.Cleanup(func() { // before the inventory of the peering's end
			require.NoError(t, core.Namespaces().Delete(context.WithoutCancel(t.Context()), ns.Name, metav1.DeleteOptions{}))
		})
		for _, node := range w.full.Nodes(w.milan.Cluster) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: node.Name, Labels: map[string]string{"app": "web"}}, Spec: testSpec(1, "serve")}
			if ns.Name == turinNamespace {
				pod.Labels[offloadingv1beta1.ManagedByLabel] = offloadingv1beta1.ManagedByShadowPod
			}
			pod.Spec.NodeName = node.Name
			w.policyPod(t, w.milan, ns.Name, pod)
		}
	}
	for _, node := range w.full.Nodes(w.milan.Cluster) {
		host := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "host-" + node.Name}, Spec: testSpec(1, "serve", hostPort)}
		dns := host.Spec.Containers[0]
		dns.Name, dns.Command = "dns", []string{"serve", "53"}
		host.Spec.NodeName, host.Spec.HostNetwork, host.Spec.Containers = node.Name, true, append(host.Spec.Containers, dns)
		w.policyPod(t, w.milan, ownNamespace, host)
	}
	kubetest.Create(t, core.Services(ownNamespace), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, Selector: map[string]string{"app": "web"},
			Ports: []corev1.ServicePort{{Port: 8080, TargetPort: intstr.FromInt32(8080)}}},
	})

	w.offload(t, secondNamespace, offloadingv1beta1.NamespaceOffloadingSpec{})
	t.Cleanup(func() {
		require.NoError(t, w.rome.Client().CoreV1().Namespaces().Delete(context.WithoutCancel(t.Context()), secondNamespace, metav1.DeleteOptions{}))
	})
	spec := testSpec(1, "serve")
	spec.RuntimeClassName = ptr.To("liqo")
	w.policyPod(t, w.rome, secondNamespace, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: secondNamespace}, Spec: spec})
}

// policyPod creates a pod and waits until it is Ready.
func (w networkWorld) policyPod(t *testing.T, s *site.Site, namespace string, pod *corev1.Pod) {
	t.Helper()
	pods := s.Client().CoreV1().Pods(namespace)
	within(t, soon, "pod "+pod.Name+" is created: its namespace may lack its account yet", lab.Creates(pods, pod))
	within(t, longest, "pod "+pod.Name+" is Ready", lab.Is(pods, pod.Name, func(have *corev1.Pod) bool {
		return podReady(have) == corev1.ConditionTrue
	}))
}

// policyHosts makes the servers that are in neither cluster, on one machine. The metadata
// service is on that machine for the one node, and on the node itself for the other.
func (w networkWorld) policyHosts(t *testing.T) {
	t.Helper()
	outside, err := w.full.Network().AddMachine(t.Context(), "outside")
	require.NoError(t, err)
	for _, port := range []string{hostPort, "53"} {
		_, err = w.full.Serve(outside, port)
		require.NoError(t, err)
	}
	nodes := w.full.Nodes(w.milan.Cluster)
	commands := [][]string{}
	for _, address := range []string{metadataAddress, internetAddress, companyAddress} {
		commands = append(commands, []string{outside.Netns, "addr", "add", address + "/32", "dev", "lo"})
		for i, node := range nodes {
			if address == metadataAddress && i == 0 {
				commands = append(commands, []string{node.Machine.Netns, "addr", "add", address + "/32", "dev", "lo"})
				continue
			}
			commands = append(commands, []string{node.Machine.Netns, "route", "add", address, "via", outside.Address})
		}
	}
	for _, node := range nodes {
		commands = append(commands, []string{node.Machine.Netns, "addr", "add", cacheAddress + "/32", "dev", "lo"})
	}
	for _, command := range commands {
		require.NoError(t, second(outside.Command(t.Context(), "ip", append([]string{"-n"}, command...)...)))
	}
}

// policyTargets are what docs/security.md says of the pods of a peer, row by row.
func (w networkWorld) policyTargets(t *testing.T) policyTargets {
	t.Helper()
	out := policyTargets{
		open: map[string]string{
			"the internet": "tcp://" + internetAddress + ":" + hostPort, "the node's DNS cache": "tcp://" + cacheAddress + ":53",
			"DNS": "tcp://each:8080",
		},
		closed: map[string]string{
			"metadata": "tcp://" + metadataAddress + ":" + hostPort, "metadata, port of DNS": "tcp://" + metadataAddress + ":53",
			"a private network": "tcp://" + companyAddress + ":" + hostPort, "the DNS cache's other ports": "tcp://" + cacheAddress + ":" + hostPort,
			"the API server": "connect://" + strings.TrimPrefix(w.milan.APIServer, "https://"),
		},
	}
	w.policyServers(t, out)
	for _, p := range must(w.netPods(t.Context()))(t) {
		for _, scheme := range policySchemes() {
			out.open["pod "+p.name+" of rome in "+p.in+", "+scheme] = fmt.Sprintf(scheme, p.seen["milan"])
		}
	}
	second := kubetest.Get(t, w.milan.Client().CoreV1().Pods(secondNamespace+"-rome"), secondNamespace)
	out.open["pod of another twin of rome"] = "tcp://" + second.Status.PodIP + ":8080"
	return out
}

// policyServers adds the nodes, the Services and the pods of milan that are not rome's.
func (w networkWorld) policyServers(t *testing.T, out policyTargets) {
	t.Helper()
	core := w.milan.Client().CoreV1()
	web := kubetest.Get(t, core.Services(ownNamespace), "web")
	kubernetes := kubetest.Get(t, core.Services(metav1.NamespaceDefault), "kubernetes")
	out.closed["a Service"] = "tcp://" + web.Spec.ClusterIP + ":8080"
	out.closed["the Service of the API server"] = "connect://" + kubernetes.Spec.ClusterIP + ":443"
	for _, s := range []*site.Site{w.milan, w.rome} {
		for _, node := range w.full.Nodes(s.Cluster) {
			out.closed["kubelet of "+node.Name] = "connect://" + node.Machine.Address + ":10250"
		}
	}
	for _, node := range kubetest.List(t, core.Nodes(), metav1.ListOptions{LabelSelector: "!" + corev1beta1.RemoteClusterIDLabel}).Items {
		address := node.Status.Addresses[0].Address
		inside := netip.MustParsePrefix(node.Spec.PodCIDR).Addr().Next().String()
		out.closed["node "+node.Name] = "icmp://" + address
		out.closed["host port of "+node.Name] = "tcp://" + address + ":" + hostPort
		out.closed["port of DNS of "+node.Name] = "tcp://" + address + ":53"
		out.closed["node port of "+node.Name] = fmt.Sprintf("tcp://%s:%d", address, web.Spec.Ports[0].NodePort)
		out.closed[node.Name+" by the address of its bridge"] = "tcp://" + inside + ":" + hostPort
	}
	for _, server := range []struct {
		namespace, selector string
		schemes             []string
	}{
		{ownNamespace, "app=web", policySchemes()}, {turinNamespace, "app=web", policySchemes()},
		{metav1.NamespaceSystem, "k8s-app=kube-dns", []string{"connect://%s:8181"}},
		{site.Namespace, "app.kubernetes.io/component=controller", []string{"connect://%s:8080", "connect://%s:8443"}}, // metrics, authentication
		{site.Namespace, "app.kubernetes.io/component=webhook", []string{"connect://%s:8080", "connect://%s:9443"}},
	} {
		pods := kubetest.List(t, core.Pods(server.namespace), metav1.ListOptions{LabelSelector: server.selector})
		require.NotEmpty(t, pods.Items, server.selector)
		for _, p := range pods.Items {
			for _, scheme := range server.schemes {
				out.closed["pod "+p.Namespace+"/"+p.Name+", "+scheme] = fmt.Sprintf(scheme, p.Status.PodIP)
			}
		}
	}
}

// policySchemes are the ways in which a pod with the server of the test image is asked.
func policySchemes() []string { return []string{"tcp://%s:8080", "udp://%s:8080", "icmp://%s"} }

const netApart = "net-apart"

// networkShared: a pod of a namespace that is not offloaded is closed to the peer, opens when
// an EndpointSlice of an offloaded namespace names it, and closes with that EndpointSlice. Its own
// connections to the peer pass all the time.
func networkShared(t *testing.T, w networkWorld) {
	pods := must(w.netPods(t.Context()))(t)
	var here, there netPod
	for _, p := range pods {
		if p.in == "rome" {
			here = p
		} else {
			there = p
		}
	}
	home := w.rome.Client()
	kubetest.Create(t, home.CoreV1().Namespaces(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: netApart}})
	kubetest.Create(t, home.CoreV1().Pods(netApart), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "apart"}, Spec: testSpec(1, "serve")})
	own := untilPod(t, w.rome, longest, netApart, "apart", "runs", func(p *corev1.Pod) bool { return podReady(p) == corev1.ConditionTrue }).Status.PodIP
	view := beside(here.seen["milan"], own)
	asks := func(ctx context.Context) error {
		return arrives(w.milan.Exec(ctx, netTwin, there.name, "reach", "tcp://"+view+":8080/0"))
	}
	answered := func(ctx context.Context) error {
		return arrives(w.rome.Exec(ctx, netApart, "apart", "reach", "tcp://"+there.seen["rome"]+":8080/0", "udp://"+there.seen["rome"]+":8080/64", "icmp://"+there.seen["rome"]+"/64"))
	}
	within(t, longest, "the pod reaches the peer", answered)
	require.ErrorContains(t, asks(t.Context()), view, "a pod that is not shared")

	port := int32(8080)
	endpointSlices := home.DiscoveryV1().EndpointSlices(netNamespace)
	kubetest.Create(t, endpointSlices, &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: "apart"},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{own}}},
		Ports:       []discoveryv1.EndpointPort{{Port: &port}},
	})
	within(t, longest, "a shared pod is reached", asks)
	require.NoError(t, endpointSlices.Delete(t.Context(), "apart", metav1.DeleteOptions{}))
	within(t, longest, "a pod that is no longer shared is closed", func(ctx context.Context) error {
		return lab.Wrong(nil, asks(ctx) == nil, "%s still answers", view)
	})
	require.NoError(t, answered(t.Context()), "the pod still reaches the peer")
	require.NoError(t, home.CoreV1().Namespaces().Delete(t.Context(), netApart, metav1.DeleteOptions{}))
	within(t, longest, "the namespace is gone", isGone(home.CoreV1().Namespaces(), netApart))
}

// beside returns the address under which a cluster would see a pod, if it saw it: the range in which it
// sees another pod of the same cluster, a /16 or a /56, and there the place of the pod's own address.
func beside(seen, own string) string {
	view, place := netip.MustParseAddr(seen).AsSlice(), netip.MustParseAddr(own).AsSlice()
	network := 2
	if len(view) == net.IPv6len {
		network = 7
	}
	out, _ := netip.AddrFromSlice(slices.Concat(view[:network], place[network:]))
	return out.String()
}

// arrivals are what a command reach says of each target.
func arrivals(said string, err error) (all []arrival, _ error) {
	if err == nil {
		err = json.Unmarshal([]byte(said), &all)
	}
	return all, err
}

// arrives reports what has not arrived of the targets of a command reach.
func arrives(said string, err error) error {
	all, err := arrivals(said, err)
	for _, a := range all {
		if a.Problem != "" {
			return fmt.Errorf("%s: %s", a.Target, a.Problem)
		}
	}
	return err
}

// TestNetworkKept: of two clusters of one organisation with ranges that do not overlap, pods keep
// their addresses, and reach each other as those of TestNetwork do. Their external ranges are equal,
// so these are translated.
func TestNetworkKept(t *testing.T) {
	pods := map[string]string{"rome": "10.44.0.0/16", "milan": "10.45.0.0/16"}
	w := newNetworkWorldOf(t, site.World{
		Clusters: []string{"rome", "milan"}, RealNodes: []int{2, 2}, Fabric: site.FabricProcesses,
		Settings: []map[string]any{{"sharing": map[string]any{"trust": "Organisation"}}},
		Adjust:   func(o *lab.ClusterOptions) { o.Audit, o.PodCIDR = false, pods[o.Name] },
	})
	w.peer(t)
	w.deploy(t)
	w.reached(t, "with kept addresses")
	for _, p := range must(w.netPods(t.Context()))(t) {
		require.Equal(t, p.seen["rome"], p.seen["milan"], p.name)
	}
	for s, peer := range map[*site.Site]string{w.rome: "milan", w.milan: "rome"} {
		c := kubetest.Get(t, s.Liqod().NetworkingV1beta1().Connections("liqo-tenant-"+peer), peer)
		for _, m := range c.Spec.Remote {
			if m.Use == networkingv1beta1.RangePod {
				require.Equal(t, networkingv1beta1.CIDR(pods[peer]), m.Own)
			}
			require.Equal(t, m.Use == networkingv1beta1.RangePod, m.Own == m.View, "%s sees %+v", s.Name, m)
		}
	}
	networkRestarts(t, w)
}
