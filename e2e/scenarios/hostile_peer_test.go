package scenarios

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"

	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/e2e/site"
	"github.com/liqod/liqod/kube/kubetest"
)

const (
	// bastion is a pod of each node of milan in the host network, and hidden is one of milan's own:
	// rome was given neither of them.
	bastion, bastionPort = "bastion", 9022
	hidden, hiddenPort   = "hidden", 8080
	routePort            = 6093
	kubeletPort          = 10250
)

// A victim is an address of milan as rome sees it, with a port.
type victim struct {
	name, address string
	answers       bool
}

// hostilePeer: from rome's gateway, as root, and from a pod of rome, nothing of milan answers
// but pods, if milan's networking.reach is All: no node by the addresses that its CNI has, at no port, and no gateway. What
// rome's gateway could forge is tested in package kernel. gateway runs a program in the network of rome's gateway.
func hostilePeer(t *testing.T, w *fullWorld, fromPod string, gateway func(ctx context.Context, name string, args ...string) (string, error)) {
	nodePort := victims(t, w)
	targets := targetsOf(t, w, nodePort)
	own := w.controls(t)

	var both errgroup.Group
	var byGateway, byPod map[string]string
	both.Go(func() (err error) {
		before, err := w.dropped(t.Context())
		if err != nil {
			return err
		}
		byGateway, err = tryFrom(t.Context(), gateway, tries{Connect: addressesOf(targets)})
		if err != nil {
			return err
		}
		return lab.Within(t.Context(), shortest, func(ctx context.Context) error {
			after, err := w.dropped(ctx)
			return lab.Wrong(err, after["to_node"] <= before["to_node"], "to_node has counted %g, and before %g", after["to_node"], before["to_node"])
		})
	})
	both.Go(func() (err error) {
		byPod, err = w.reachFrom(t.Context(), w.rome, fromPod, addressesOf(targets))
		return err
	})
	require.NoError(t, both.Wait())
	for _, target := range targets {
		for from, problems := range map[string]map[string]string{"gateway": byGateway, "pod": byPod} {
			problem, tried := problems[target.address]
			require.True(t, tried, "%s: %s", from, target.name)
			require.Equal(t, target.answers, answered(problem), "%s at %s, from rome's %s: %q", target.name, target.address, from, problem)
		}
	}
	for address, problem := range own {
		require.True(t, answered(problem), "milan's own pods reach %s: %q", address, problem)
	}
}

// answered reports whether a connection was accepted or refused by its destination.
func answered(problem string) bool {
	for _, silent := range []string{"i/o timeout", "deadline exceeded", "no route to host", "permission denied", "unreachable"} {
		if strings.Contains(problem, silent) {
			return false
		}
	}
	return true
}

// victims runs in milan what rome was given nothing of, and returns the node port of the Service.
func victims(t *testing.T, w *fullWorld) int32 {
	t.Helper()
	core := w.milan.Client()
	labels := map[string]string{"app": bastion}
	hosts := testSpec(1, "serve", strconv.Itoa(bastionPort))
	hosts.HostNetwork = true
	kubetest.Create(t, core.AppsV1().DaemonSets("default"), &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: bastion}, Spec: appsv1.DaemonSetSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: hosts},
	}})
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: hidden, Labels: map[string]string{"app": hidden}}, Spec: testSpec(1, "serve")}
	kubetest.Create(t, core.CoreV1().Pods("default"), pod)
	service := kubetest.Create(t, core.CoreV1().Services("default"), &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: hidden}, Spec: corev1.ServiceSpec{
		Type: corev1.ServiceTypeNodePort, Selector: pod.Labels, Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(hiddenPort)}},
	}})
	t.Cleanup(func() {
		now := metav1.DeleteOptions{}
		require.NoError(t, errors.Join(core.AppsV1().DaemonSets("default").Delete(context.Background(), bastion, now),
			core.CoreV1().Pods("default").Delete(context.Background(), hidden, now), core.CoreV1().Services("default").Delete(context.Background(), hidden, now)))
	})
	within(t, longest, "milan's own pods are Ready", podsAre(w.milan.Cluster, "default", "app in ("+bastion+","+hidden+")", len(w.full.Nodes(w.milan.Cluster))+1,
		func(p *corev1.Pod) bool { return podReady(p) == corev1.ConditionTrue }))
	return service.Spec.Ports[0].NodePort
}

// targetsOf returns what rome tries.
func targetsOf(t *testing.T, w *fullWorld, nodePort int32) (out []victim) {
	t.Helper()
	conn := kubetest.Get(t, w.rome.Liqod().NetworkingV1beta1().Connections(tenantOfMilan), "milan")
	view := func(own string) string {
		for _, m := range conn.Spec.Remote {
			if moved, ok := moved(netip.MustParseAddr(own), netip.MustParsePrefix(string(m.Own)), netip.MustParsePrefix(string(m.View))); ok {
				return moved.String()
			}
		}
		require.Fail(t, "rome has no view of "+own)
		return ""
	}
	at := func(name, own string, port int32, answers bool) {
		out = append(out, victim{fmt.Sprintf("%s, port %d", name, port), fmt.Sprintf("%s:%d", view(own), port), answers})
	}
	_, api, _ := strings.Cut(strings.TrimPrefix(w.milan.APIServer, "https://"), ":")
	apiPort := must(strconv.Atoi(api))(t)
	for _, n := range kubetest.List(t, w.milan.Client().CoreV1().Nodes()).Items {
		first := netip.MustParsePrefix(n.Spec.PodCIDR).Addr()
		for _, own := range []netip.Addr{first, first.Next()} {
			for _, port := range []int32{kubeletPort, nodePort, bastionPort, routePort, int32(apiPort)} {
				at(fmt.Sprintf("%s of node %s", own, n.Name), own.String(), port, false)
			}
		}
	}
	for _, port := range []int32{22, 8080, routePort} {
		at("the gateway", "10.70.0.1", port, false)
	}
	pod := kubetest.Get(t, w.milan.Client().CoreV1().Pods("default"), hidden)
	at("a pod that is milan's own", pod.Status.PodIP, hiddenPort, w.reachesAll(t))
	return out
}

// reachesAll reports whether peers of milan reach its own pods, by its settings.
func (w *fullWorld) reachesAll(t *testing.T) bool {
	t.Helper()
	cm := kubetest.Get(t, w.milan.Client().CoreV1().ConfigMaps(site.Namespace), "liqod")
	var settings struct { // its keys match in any case
		Networking struct{ Reach string }
		Sharing    struct{ Trust string }
	}
	require.NoError(t, yaml.Unmarshal([]byte(cm.Data["config.yaml"]), &settings))
	return cmp.Or(settings.Networking.Reach, map[string]string{"Organisation": "All"}[settings.Sharing.Trust]) == "All"
}

// moved is an address of one range in another.
func moved(a netip.Addr, from, to netip.Prefix) (netip.Addr, bool) {
	if !from.Contains(a) || from.Bits() != to.Bits() {
		return a, false
	}
	out, host := to.Masked().Addr().AsSlice(), a.AsSlice()
	for i := range out {
		if bits := from.Bits() - 8*i; bits <= 0 {
			out[i] = host[i]
		} else if bits < 8 {
			out[i] |= host[i] & (0xff >> bits)
		}
	}
	b, _ := netip.AddrFromSlice(out)
	return b, true
}

func addressesOf(targets []victim) (out []string) {
	for _, t := range targets {
		out = append(out, t.address)
	}
	return out
}

// reachFrom has a pod of the test image connect to addresses, and returns the problems.
func (w *fullWorld) reachFrom(ctx context.Context, s *site.Site, pod string, addresses []string) (map[string]string, error) {
	namespace, name, _ := strings.Cut(pod, "/")
	args := []string{"reach"}
	for _, a := range addresses {
		args = append(args, "tcp://"+a+"/0")
	}
	all, err := arrivals(s.Exec(ctx, namespace, name, args...))
	out := map[string]string{}
	for _, a := range all {
		out[strings.TrimSuffix(strings.TrimPrefix(a.Target, "tcp://"), "/0")] = a.Problem
	}
	return out, err
}

// controls are the problems of a pod of milan with its own node, which answers it.
func (w *fullWorld) controls(t *testing.T) map[string]string {
	t.Helper()
	pod := kubetest.Get(t, w.milan.Client().CoreV1().Pods("default"), hidden)
	node := kubetest.Get(t, w.milan.Client().CoreV1().Nodes(), pod.Spec.NodeName)
	address := netip.MustParsePrefix(node.Spec.PodCIDR).Addr().Next().String()
	return must(w.reachFrom(t.Context(), w.milan, "default/"+hidden, []string{fmt.Sprintf("%s:%d", address, bastionPort)}))(t)
}

// dropped are the packets that milan's gateway and nodes have dropped, by reason.
func (w *fullWorld) dropped(ctx context.Context) (map[string]float64, error) {
	texts, err := w.metricsOfFabric(ctx)
	if err != nil {
		return nil, err
	}
	out := map[string]float64{}
	for _, found := range regexp.MustCompile(`(?m)^liqod_guard_dropped_packets_total\{.*reason="(\w+)".*\} (\S+)$`).FindAllStringSubmatch(texts, -1) {
		n, err := strconv.ParseFloat(found[2], 64)
		if err != nil {
			return nil, err
		}
		out[found[1]] += n
	}
	return out, nil
}

// metricsOfFabric are the metrics of milan's gateway and of role route of its nodes.
func (w *fullWorld) metricsOfFabric(ctx context.Context) (string, error) {
	var all strings.Builder
	nodes := w.full.Nodes(w.milan.Cluster)
	if f := w.milan.Fabric; f != nil {
		text, err := metricsIn(ctx, f.Machine, f.Gateway())
		for _, n := range nodes {
			if err == nil {
				all.WriteString(text)
				text, err = metricsIn(ctx, n.Machine, f.Route(n.Name))
			}
		}
		return all.String() + text, err
	}
	list, err := w.milan.Client().CoreV1().Pods(site.Namespace).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/component=gateway"})
	if err != nil {
		return "", err
	}
	for _, p := range list.Items {
		text, err := w.milan.Client().CoreV1().RESTClient().Get().Namespace(site.Namespace).Resource("pods").Name(p.Name + ":8080").
			SubResource("proxy").Suffix("metrics").DoRaw(ctx)
		if err != nil {
			return "", fmt.Errorf("reading the metrics of pod %s: %w", p.Name, err)
		}
		all.Write(text)
	}
	for _, n := range nodes {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://%s:%d/metrics", n.Machine.Address, routePort), nil)
		if err != nil {
			return "", err
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return "", err
		}
		text, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil {
			return "", err
		}
		all.Write(text)
	}
	return all.String(), nil
}

// metricsIn are the metrics of a process that serves them in the network of its machine only.
func metricsIn(ctx context.Context, m *lab.Machine, p *lab.Process) (string, error) {
	host, port, err := net.SplitHostPort(p.Flag("server.address"))
	if err != nil {
		return "", err
	}
	return m.Command(ctx, "bash", "-c", `exec 3<>"/dev/tcp/$0/$1"; printf 'GET /metrics HTTP/1.0\r\n\r\n' >&3; cat <&3`, host, port)
}

// gatewayPod runs a program in the network of rome's gateway, which is a pod.
func (w *fullWorld) gatewayPod(ctx context.Context, name string, args ...string) (string, error) {
	for _, node := range w.full.Nodes(w.rome.Cluster) {
		processes, err := node.Processes(ctx, "--role=gateway")
		if err != nil {
			return "", err
		}
		if len(processes) > 0 {
			return node.Exec(ctx, "nsenter", append([]string{"-t", processes[0], "-n", "--", name}, args...)...)
		}
	}
	return "", errors.New("no node runs a gateway")
}

// tryFrom runs this program, as which it tries.
func tryFrom(ctx context.Context, run func(ctx context.Context, name string, args ...string) (string, error), what tries) (map[string]string, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(what)
	if err != nil {
		return nil, err
	}
	said, err := run(ctx, "env", triesVariable+"="+string(text), self)
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	return out, json.Unmarshal([]byte(said), &out)
}
