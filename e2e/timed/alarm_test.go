package timed

import (
	"context"
	"fmt"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/e2e/site"
)

const (
	alarmNamespace = "alarm"
	alarmService   = "web"
	// The gateways stand still in turns, so often and for so long: a part of gateway.probe.silence,
	// as on a machine that has more to do.
	haltEvery, haltFor = 10 * time.Second, time.Second
	// alarmTable drops one in ten of the packets that a machine gets from the other cluster.
	alarmTable = "alarmloss"
)

// TestAlarm: with every core busy, gateways that stand still for a second now and then, and one of
// ten packets between the clusters lost, nothing is said to be down. The settings are those that are shipped.
func TestAlarm(t *testing.T) {
	if !*all {
		t.Log("left to make test-all: TestAlarm: all of it; make alarm runs it alone")
		return
	}
	w := newAlarmWorld(t)
	w.peer(t)
	w.deploy(t)
	for _, s := range []*site.Site{w.rome, w.milan} {
		other := w.milan
		if s == w.milan {
			other = w.rome
		}
		require.NoError(t, w.lose(t.Context(), s, other))
	}
	w.occupy(t)
	lasts := *duration
	seen := w.watch(t)
	t.Logf("for %s these stay: %s", lasts, strings.Join(seen.all(), ", "))
	w.halt(t, time.Now().Add(lasts))
	w.requireLoss(t)
	require.Empty(t, seen.changes(), "verdicts that changed")
}

// alarmWorld is rome, which uses milan, each with a real node and a gateway.
type alarmWorld struct {
	sites       *site.Sites
	rome, milan *site.Site
}

func newAlarmWorld(t *testing.T) alarmWorld {
	t.Helper()
	sites, list := site.World{
		Clusters: []string{"rome", "milan"}, RealNodes: []int{1, 1}, Fabric: site.FabricProcesses,
		// Empty sections undo what is set for tests.
		Settings: []map[string]any{{"lease": map[string]any{}, "vkubelet": map[string]any{}}},
		Adjust:   func(o *lab.ClusterOptions) { o.Audit, o.NodeGrace = false, time.Minute },
	}.Start(t)
	return alarmWorld{sites, list[0], list[1]}
}

// peer connects the clusters with a token, as people do.
func (w alarmWorld) peer(t *testing.T) {
	t.Helper()
	out, err := w.sites.Command(t.Context(), "token", "create", "--kubeconfig", w.milan.Kubeconfig).Output()
	require.NoError(t, err)
	i := slices.IndexFunc(strings.Fields(string(out)), func(word string) bool { return strings.HasPrefix(word, "liqod1.") })
	require.GreaterOrEqual(t, i, 0, "no token in %s", out)
	peer := w.sites.Command(t.Context(), "peer", "--kubeconfig", w.rome.Kubeconfig, "--token", strings.Fields(string(out))[i], "--timeout=5m")
	out, err = peer.CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// deploy runs a pod of a Service in each cluster. Their readiness is the kubelets', which do not
// probe: a kubelet that is late would be seen as a change.
func (w alarmWorld) deploy(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	require.NoError(t, w.rome.Offload(ctx, alarmNamespace, offloadingv1beta1.NamespaceOffloadingSpec{PodOffloadingStrategy: offloadingv1beta1.PodsLocalAndRemote}))
	home := w.rome.Client()
	_, err := home.CoreV1().Services(alarmNamespace).Create(ctx, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: alarmService}, Spec: corev1.ServiceSpec{
		Selector: map[string]string{"app": alarmService}, Ports: []corev1.ServicePort{{Port: 8080, TargetPort: intstr.FromInt32(8080)}},
	}}, metav1.CreateOptions{})
	require.NoError(t, err)
	for _, name := range []string{"here", "there"} {
		_, err := home.AppsV1().Deployments(alarmNamespace).Create(ctx, alarmDeployment(name), metav1.CreateOptions{})
		require.NoError(t, err)
	}
	require.NoError(t, lab.Eventually(ctx, w.well))
}

func alarmDeployment(name string) *appsv1.Deployment {
	labels := map[string]string{"app": alarmService, "part": name}
	spec := corev1.PodSpec{TerminationGracePeriodSeconds: ptr.To[int64](1), Containers: []corev1.Container{{
		Name: "c", Image: lab.TestImage, ImagePullPolicy: corev1.PullNever, Args: []string{"serve"},
	}}}
	if name == "there" {
		spec.RuntimeClassName = ptr.To("liqo")
	} else {
		spec.NodeSelector = map[string]string{corev1.LabelHostname: "rome-1"}
	}
	return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: appsv1.DeploymentSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: spec},
	}}
}

// well requires that both clusters are well in each other's eyes, and both pods are ready
// endpoints in both.
func (w alarmWorld) well(ctx context.Context) error {
	for s, namespace := range w.namespaces() {
		list, err := s.Client().DiscoveryV1().EndpointSlices(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		ready := 0
		for i := range list.Items {
			for _, e := range list.Items[i].Endpoints {
				if ptr.Deref(e.Conditions.Ready, true) {
					ready++
				}
			}
		}
		if ready != 2 {
			return fmt.Errorf("%d endpoints are ready in %s, not 2", ready, s.Name)
		}
		peers, err := s.Liqod().CoreV1beta1().ForeignClusters().List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for i := range peers.Items {
			for _, c := range peers.Items[i].Status.Conditions {
				if slices.Contains([]string{"Ready", "APIServerStatus", "NetworkStatus"}, c.Type) && c.Status != metav1.ConditionTrue {
					return fmt.Errorf("%s in %s: %s is %s: %s", peers.Items[i].Name, s.Name, c.Type, c.Status, c.Message)
				}
			}
		}
	}
	return nil
}

func (w alarmWorld) namespaces() map[*site.Site]string {
	return map[*site.Site]string{w.rome: alarmNamespace, w.milan: twinOf(alarmNamespace)}
}

// machines are those of a cluster: its nodes and its gateway.
func (w alarmWorld) machines(s *site.Site) []*lab.Machine {
	out := []*lab.Machine{s.Fabric.Machine}
	for _, n := range w.sites.Full.Nodes(s.Cluster) {
		out = append(out, n.Machine)
	}
	return out
}

// lose has the machines of a cluster drop one of ten packets of the other: of tunnels and of
// connections to API servers, requests and answers.
func (w alarmWorld) lose(ctx context.Context, s, other *site.Site) error {
	var from []string
	for _, m := range w.machines(other) {
		from = append(from, m.Address)
	}
	rules := fmt.Sprintf(`table inet %s { chain loss { type filter hook prerouting priority raw; ip saddr { %s } numgen random mod 10 < 1 counter drop; }; }
`, alarmTable, strings.Join(from, ", "))
	for _, m := range w.machines(s) {
		if _, err := m.Command(ctx, "nft", rules); err != nil {
			return err
		}
	}
	return nil
}

// requireLoss requires that every machine has dropped packets.
func (w alarmWorld) requireLoss(t *testing.T) {
	t.Helper()
	for s := range w.namespaces() {
		for _, m := range w.machines(s) {
			out, err := m.Command(t.Context(), "nft", "list table inet "+alarmTable)
			require.NoError(t, err)
			require.NotContains(t, out, "counter packets 0", "machine %s has lost nothing", m.Name)
			require.Contains(t, out, "counter packets")
		}
	}
}

// occupy keeps every core busy until the test ends.
func (w alarmWorld) occupy(t *testing.T) {
	t.Helper()
	for range runtime.NumCPU() {
		cmd := exec.Command("sh", "-c", "while :; do :; done")
		require.NoError(t, cmd.Start())
		t.Cleanup(func() {
			_ = cmd.Process.Kill() // it has no end of its own
			_ = cmd.Wait()
		})
	}
}

// halt has the gateways stand still in turns until then.
func (w alarmWorld) halt(t *testing.T, until time.Time) {
	t.Helper()
	for i := 0; time.Now().Add(haltEvery).Before(until); i++ {
		waitUntil(t, time.Now().Add(haltEvery-haltFor))
		gateway := []*site.Site{w.rome, w.milan}[i%2].Fabric.Gateway()
		gateway.Pause()
		waitUntil(t, time.Now().Add(haltFor))
		gateway.Resume()
	}
	waitUntil(t, until)
}
