package scenarios

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	networkingv1beta1 "github.com/liqod/liqod/api/networking/v1beta1"
	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/e2e/site"
	"github.com/liqod/liqod/kube/kubetest"
)

// statusTurns is how soon the condition NetworkStatus follows from packets that are lost.
const statusTurns = 3 * time.Second

// networkFault is one that the lab can inject.
type networkFault struct {
	name string
	// stops says that no packet passes between the clusters, so that NetworkStatus turns.
	stops        bool
	inject, mend func(*testing.T, networkWorld)
	args         []string
	says         []string
}

// TestNetworkCheck: `liqod network check` finds nothing where all is well, names the hop of each fault,
// and leaves nothing behind.
func TestNetworkCheck(t *testing.T) {
	w := newNetworkWorldOf(t, site.World{
		Clusters: []string{"rome", "milan"}, RealNodes: []int{2, 1}, Fabric: site.FabricProcesses,
		Adjust: func(o *lab.ClusterOptions) { o.Audit = false },
	})
	w.peer(t)
	within(t, longest, "the tunnel is up", w.networkIs(metav1.ConditionTrue))
	t.Run("nothing is broken", func(t *testing.T) { networkCheckWell(t, w) })
	t.Run("measured", func(t *testing.T) { networkPerf(t, w) })
	t.Run("interrupted", func(t *testing.T) { networkCheckInterrupted(t, w) })
	for _, f := range networkFaults() {
		t.Run(f.name, func(t *testing.T) { f.run(t, w) })
	}
}

// networkIs returns a condition: rome's NetworkStatus of milan has a status.
func (w networkWorld) networkIs(want metav1.ConditionStatus) func(context.Context) error {
	return peerSays(w.rome, "milan", corev1beta1.ConditionNetwork, want, "")
}

// cleared requires that no namespace of a check is left, in either cluster.
func (w networkWorld) cleared(t *testing.T) {
	t.Helper()
	within(t, longest, "nothing of the check is left", func(ctx context.Context) error {
		for _, s := range []*site.Site{w.rome, w.milan} {
			list, err := s.Client().CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
			if err != nil {
				return err
			}
			for i := range list.Items {
				if name := list.Items[i].Name; strings.HasPrefix(name, "network-check-") {
					return fmt.Errorf("%s has namespace %s", s.Name, name)
				}
			}
		}
		return nil
	})
}

func networkCheckWell(t *testing.T, w networkWorld) {
	out := w.done(t, w.rome, "network", "check")
	for _, hop := range []string{
		"node rome-1 > gateway: ", "pod > node rome-2 > gateway: ", "gateway > gateway of milan: ", "in milan, pod > node > gateway: ", "in milan, pod > gateway of rome: ",
		"pod on rome-1 > pod in milan: ", "pod on rome-2 > pod in milan: ", "pod in milan > pod here: ", "name service, pod on rome-2: ", "name service, pod in milan: ",
	} {
		require.Contains(t, out, "✔ "+hop)
	}
	require.Contains(t, out, "Packets pass on every hop that was checked.")
	w.cleared(t)
	// milan runs no pods in rome: it sees rome's gateway.
	out = w.done(t, w.milan, "network", "check", "rome")
	require.Contains(t, out, "✔ gateway > gateway of rome: ")
	require.Contains(t, out, "? gateway of rome > node > pod: this cluster runs no pods in it")
	w.cleared(t)
}

// networkPerf: `liqod network perf` measures every way, and leaves nothing behind.
func networkPerf(t *testing.T, w networkWorld) {
	out, code, err := w.command(t.Context(), w.rome, "network", "perf", "milan", "--for", "500ms")
	t.Log(out)
	require.NoError(t, err)
	require.Zero(t, code)
	measured := `\s+([0-9.]+ [GMk]bit/s\s+){4}[0-9.]+[mµ]?s\s+[0-9.]+[mµ]?s\n`
	for _, row := range []string{"POD ON rome-1 >", "the pod in milan" + measured, `the gateway of milan\s+(–\s+){4}[0-9.]+[mµ]?s`, "the pod on rome-2" + measured} {
		require.Regexp(t, row, out)
	}
	w.cleared(t)
}

// networkCheckInterrupted: a signal at any time ends the command with nothing left.
func networkCheckInterrupted(t *testing.T, w networkWorld) {
	for _, after := range []time.Duration{time.Second, 4 * time.Second} {
		cmd := w.sites.Command(t.Context(), "network", "check", "--kubeconfig", w.rome.Kubeconfig)
		require.NoError(t, cmd.Start())
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		select {
		case err := <-ended:
			require.NoError(t, err, "it ended by itself")
		case <-time.After(after):
			require.NoError(t, cmd.Process.Signal(syscall.SIGINT))
			if err := <-ended; err != nil { // else the signal came while it removed what it had made
				require.Equal(t, 130, cmd.ProcessState.ExitCode(), err)
			}
		}
		w.cleared(t)
	}
}

// run injects the fault, and requires the verdict on it.
func (f networkFault) run(t *testing.T, w networkWorld) {
	defer func() {
		f.mend(t, w)
		within(t, longest, "the tunnel is up again", w.networkIs(metav1.ConditionTrue))
		w.cleared(t)
	}()
	f.inject(t, w)
	begin := time.Now()
	if f.stops {
		within(t, longest, "NetworkStatus turns", w.networkIs(metav1.ConditionFalse))
		require.Less(t, time.Since(begin), statusTurns, "NetworkStatus turns")
	}
	out, code, err := w.command(t.Context(), w.rome, append([]string{"network", "check"}, f.args...)...)
	t.Log(out)
	require.NoError(t, err)
	require.Equal(t, 1, code)
	for _, text := range f.says {
		require.Contains(t, out, text)
	}
}

// onHost runs a command on a host of the fabric.
func onHost(t *testing.T, m *lab.Machine, command ...string) {
	t.Helper()
	out, err := m.Command(t.Context(), command[0], command[1:]...)
	require.NoError(t, err, out)
}

// filtered is a fault of packets that a host drops: rules are those of a chain at its input or output.
func filtered(name, says string, stops bool, host func(networkWorld) *lab.Machine, rules func(networkWorld) []string) networkFault {
	return networkFault{
		name: name, stops: stops, says: []string{says},
		inject: func(t *testing.T, w networkWorld) {
			ruleset := "add table inet fault; add chain inet fault in { type filter hook prerouting priority -400; }; add chain inet fault out { type filter hook output priority -400; }"
			for _, rule := range rules(w) {
				ruleset += "; add rule inet fault " + rule
			}
			onHost(t, host(w), "nft", ruleset)
		},
		mend: func(t *testing.T, w networkWorld) { onHost(t, host(w), "nft", "delete table inet fault") },
	}
}

func gatewayOf(s func(networkWorld) *site.Site) func(networkWorld) *lab.Machine {
	return func(w networkWorld) *lab.Machine { return s(w).Fabric.Machine }
}

func constantly(rules ...string) func(networkWorld) []string {
	return func(networkWorld) []string { return rules }
}

// networkFaults are the faults of issue 33 that the lab can inject. The others (a second gateway, a transit leg,
// connection tracking, which all hosts of the lab share) are in the table of roles/cmd/network.
func networkFaults() []networkFault {
	rome, milan := gatewayOf(func(w networkWorld) *site.Site { return w.rome }), gatewayOf(func(w networkWorld) *site.Site { return w.milan })
	node := func(w networkWorld) *lab.Machine { return w.full.Node(w.rome.Cluster, "rome-2").Machine }
	return []networkFault{
		filtered("the peer dropped, there", "The first hop that breaks: peer milan, gateway > gateway of milan, there", true, milan, func(w networkWorld) []string {
			return []string{"in ip saddr " + w.rome.Fabric.Machine.Address + " udp dport 51840 drop"}
		}),
		filtered("the peer dropped, back", "The first hop that breaks: peer milan, gateway > gateway of milan\n", true, rome, func(w networkWorld) []string {
			return []string{"in ip saddr " + w.milan.Fabric.Machine.Address + " udp dport 51840 drop"}
		}),
		filtered("port closed", "The first hop that breaks: peer milan, gateway > gateway of milan\n", true, milan, constantly("in udp dport 51840 drop", "out udp sport 51840 drop")),
		filtered("MTU too small", "The first hop that breaks: peer milan, gateway > gateway of milan\n", false, milan, constantly("in udp dport 51840 meta length > 1300 drop")),
		filtered("overlay filtered", "The first hop that breaks: this cluster, rome, node rome-2 > gateway\n", false, node, constantly("in udp dport 6091 drop", "out udp dport 6091 drop")),
		wrongKey(), routeDeleted(), tableFlushed(),
		noNames("DNS", "The first hop that breaks: this cluster, rome, name service, pod on rome-1\n", func(w networkWorld) *site.Site { return w.rome }),
		noNames("DNS of the peer", "The first hop that breaks: peer milan, name service, pod in milan\n", func(w networkWorld) *site.Site { return w.milan }),
	}
}

// wrongKey: the Connection has another key than the peer announces. The controller would correct it.
func wrongKey() networkFault {
	return networkFault{
		name: "wrong key",
		inject: func(t *testing.T, w networkWorld) {
			scale(t, w.rome, site.Namespace, "liqod-controller", 0)
			connections := w.rome.Liqod().NetworkingV1beta1().Connections(tenantOfMilan)
			c := kubetest.Get(t, connections, "milan")
			gateways := c.Spec.Gateways
			gateways[0].PublicKey = "AAAA" + gateways[0].PublicKey[4:]
			body := must(json.Marshal(map[string]any{"spec": map[string]any{"gateways": gateways}}))(t)
			kubetest.Patch(t, connections, "milan", types.MergePatchType, body)
			begin := time.Now()
			within(t, longest, "the Connection is not Ready", lab.Is(connections, "milan", func(c *networkingv1beta1.Connection) bool {
				return !meta.IsStatusConditionTrue(c.Status.Conditions, networkingv1beta1.ConditionReady)
			}))
			require.Less(t, time.Since(begin), statusTurns)
		},
		says: []string{"The first hop that breaks: peer milan, gateway > gateway of milan\n", "has another WireGuard key for gateway "},
		mend: func(t *testing.T, w networkWorld) { scale(t, w.rome, site.Namespace, "liqod-controller", 1) },
	}
}

// routeDeleted: a node has lost its routes, and nobody repairs them.
func routeDeleted() networkFault {
	return networkFault{
		name: "route deleted, and the node's agent dead",
		inject: func(t *testing.T, w networkWorld) {
			w.rome.Fabric.Route("rome-2").Kill()
			onHost(t, w.full.Node(w.rome.Cluster, "rome-2").Machine, "ip", "route", "flush", "table", "6171")
		},
		says: []string{"The first hop that breaks: this cluster, rome, node rome-2 > gateway\n", "no route by liqod-vx to "},
		mend: agentBack,
	}
}

// agentBack starts the agent of rome-2 again, and waits until that has the table and the routes: the tunnel's state
// does not say so.
func agentBack(t *testing.T, w networkWorld) {
	t.Helper()
	require.NoError(t, w.rome.Fabric.RestartRoute("rome-2"))
	host := w.full.Node(w.rome.Cluster, "rome-2").Machine
	within(t, longest, "rome-2 has its table and its routes again", func(ctx context.Context) error {
		if out, err := host.Command(ctx, "nft", "list", "table", "inet", "liqod"); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		out, err := host.Command(ctx, "ip", "route", "show", "table", "6171")
		return lab.Wrong(err, strings.TrimSpace(out) == "", "no route in table 6171")
	})
}

// tableFlushed: a node has lost its table, and nobody repairs it: its pods lose their addresses.
func tableFlushed() networkFault {
	return networkFault{
		name: "table flushed, and the node's agent dead",
		inject: func(t *testing.T, w networkWorld) {
			w.rome.Fabric.Route("rome-2").Kill()
			onHost(t, w.full.Node(w.rome.Cluster, "rome-2").Machine, "nft", "delete", "table", "inet", "liqod")
		},
		says: []string{"peer milan, translation on node rome-2\n"},
		mend: agentBack,
	}
}

// noNames: the name service of a cluster does not run. The hosts files of pods in a peer have the name of the API server.
func noNames(name, says string, of func(networkWorld) *site.Site) networkFault {
	return networkFault{
		name:   name,
		inject: func(t *testing.T, w networkWorld) { scale(t, of(w), metav1.NamespaceSystem, "coredns", 0) },
		says:   []string{says},
		mend:   func(t *testing.T, w networkWorld) { scale(t, of(w), metav1.NamespaceSystem, "coredns", 1) },
	}
}

// scale sets the replicas of a Deployment, and waits for them.
func scale(t *testing.T, s *site.Site, namespace, name string, replicas int32) {
	t.Helper()
	deployments := s.Client().AppsV1().Deployments(namespace)
	kubetest.Patch(t, deployments, name, types.MergePatchType, fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas))
	within(t, longest, fmt.Sprintf("%s has %d pods", name, replicas), func(ctx context.Context) error {
		d, err := deployments.Get(ctx, name, metav1.GetOptions{})
		wrong := d.Status.ObservedGeneration < d.Generation || d.Status.Replicas != replicas || d.Status.AvailableReplicas != replicas
		if err := lab.Wrong(err, wrong, "it has %d, %d of them available", d.Status.Replicas, d.Status.AvailableReplicas); err != nil {
			return err
		}
		// A pod that ends does not count in the status, and still works.
		pods, err := s.Client().CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: metav1.FormatLabelSelector(d.Spec.Selector)})
		return lab.Wrong(err, len(pods.Items) != int(replicas), "it has %d pods", len(pods.Items))
	})
}

// networkRun is a network that the packets of a test are sent over. `go run ./hack runs` writes
// those of e2e/networks into docs/platforms.md.
type networkRun struct {
	Kubernetes string        `json:"kubernetes"`
	Plugin     lab.CNI       `json:"plugin"`
	Proxy      lab.ProxyMode `json:"proxy"`
	Families   site.Families `json:"families"`
	// With is what else is unusual.
	With   string `json:"with,omitempty"`
	Passed bool   `json:"passed"`
}

// onNetworks runs a test on each network; without -all on one of them, another one with each sample.
func onNetworks(t *testing.T, networks []networkRun, test func(*testing.T, networkRun)) {
	t.Helper()
	if !*all {
		sample := must(strconv.Atoi(cmp.Or(os.Getenv("LAB_SAMPLE"), "0")))(t)
		networks = []networkRun{networks[sample%len(networks)]}
	}
	for _, n := range networks {
		t.Run(fmt.Sprint(n.Plugin, " ", n.Proxy, " ", n.Families), func(t *testing.T) { test(t, n) })
	}
}

// TestNetworks: pods reach pods of the other cluster by name and by address with each network plugin, each mode
// of kube-proxy, and addresses of either family or of both. Gateways are reached by the first, by nodes too where
// that is IPv6. TestNetwork has the bridge with nftables and IPv4.
func TestNetworks(t *testing.T) {
	onNetworks(t, []networkRun{
		{Plugin: lab.CNIFlannel, Proxy: lab.ProxyNFTables, Families: site.DualStack},
		{Plugin: lab.CNIBridge, Proxy: lab.ProxyNFTables, Families: site.DualStack},
		{Plugin: lab.CNIBridge, Proxy: lab.ProxyNFTables, Families: site.DualStackIPv6},
		{Plugin: lab.CNIBridge, Proxy: lab.ProxyNFTables, Families: site.IPv6},
		{Plugin: lab.CNIBridge, Proxy: lab.ProxyIPTables, Families: site.IPv4},
		{Plugin: lab.CNIFlannel, Proxy: lab.ProxyNFTables, Families: site.IPv4},
		{Plugin: lab.CNIFlannel, Proxy: lab.ProxyIPTables, Families: site.IPv4},
		{Plugin: lab.CNIKubeRouter, Proxy: lab.ProxyNFTables, Families: site.IPv4},
		{Plugin: lab.CNIKubeRouter, Proxy: lab.ProxyIPTables, Families: site.IPv4},
	}, func(t *testing.T, n networkRun) {
		w := newNetworkWorldOf(t, site.World{
			Clusters: []string{"rome", "milan"}, RealNodes: []int{2, 2}, Fabric: site.FabricProcesses, Families: n.Families, CNI: n.Plugin, Proxy: n.Proxy,
			Adjust: func(o *lab.ClusterOptions) { o.Audit = false },
		})
		n.records(t, w.rome)
		w.peer(t)
		w.deploy(t)
		n.used(t, w.full, w.rome, w.milan)
		inTurn(t, w, []part[networkWorld]{
			{"pods reach pods", networkReached}, {"origin's API server", networkOrigin}, {"roles restarted", networkRestarts},
			{"rebooted", networkReboots},
		})
	})
}

// used requires that the nodes have, of each family, the routes and rules of the network plugin and of kube-proxy.
func (n networkRun) used(t *testing.T, full *lab.Full, list ...*site.Site) {
	t.Helper()
	for _, s := range list {
		for _, node := range full.Nodes(s.Cluster) {
			for _, cidr := range s.Options.PodCIDRs() {
				version, six := "-4", ""
				if family(cidr) == "6" {
					version, six = "-6", "6"
				}
				routes := must(node.Machine.Command(t.Context(), "ip", version, "-N", "route"))(t)
				require.Equal(t, n.Plugin == lab.CNIFlannel, strings.Contains(routes, "dev flannel"), routes)
				require.Equal(t, n.Plugin == lab.CNIKubeRouter, strings.Contains(routes, "dev kube-bridge"), routes)
				require.Equal(t, n.Plugin == lab.CNIKubeRouter, strings.Contains(routes, "proto 17 "), routes)
				tables := must(node.Machine.Command(t.Context(), "nft", "list", "tables"))(t)
				require.Equal(t, n.Proxy == lab.ProxyNFTables, strings.Contains(tables, "table ip"+six+" kube-proxy"), tables)
				chains := must(node.Machine.Command(t.Context(), "ip"+six+"tables-save", "-t", "nat"))(t)
				require.Equal(t, n.Proxy == lab.ProxyIPTables, strings.Contains(chains, "-A KUBE-SERVICES "))
			}
		}
	}
}

// records has recordRun write the result of the test.
func (n networkRun) records(t *testing.T, s *site.Site) {
	t.Helper()
	n.Kubernetes = must(s.Client().Discovery().ServerVersion())(t).GitVersion
	name := strings.Join(strings.Fields(strings.ReplaceAll(fmt.Sprintln(n.Plugin, n.Proxy, n.Families, n.With), ",", "")), "-")
	recordRun(t, "networks/"+strings.ToLower(name), &n, &n.Passed)
}

// recordRun writes a run into a file below the folder that LAB_RUNS names, if it is set, when the test ends.
// passed is the field of run for the result.
func recordRun(t *testing.T, name string, run any, passed *bool) {
	dir := os.Getenv("LAB_RUNS")
	if dir == "" {
		return
	}
	t.Cleanup(func() {
		*passed = !t.Failed()
		data := must(json.MarshalIndent(run, "", "  "))(t)
		require.NoError(t, os.WriteFile(filepath.Join(dir, name+".json"), append(data, '\n'), 0o644))
	})
}
