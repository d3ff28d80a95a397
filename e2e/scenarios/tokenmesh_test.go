package scenarios

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/e2e/site"
	"github.com/liqod/liqod/kube/kubetest"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/peering/trust"
)

// testTokenMesh connects three clusters both ways by three tokens, one for each pair, as
// people do who have access to one of them only; lets pods of each run in all; and parts.
func testTokenMesh(t *testing.T, m mesh) {
	for _, s := range m.list {
		kubetest.Create(t, s.Client().CoreV1().Namespaces(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "mesh"}})
	}
	before := atRest(t, m.list...)
	rome, milan, turin := m.list[0], m.list[1], m.list[2]
	t.Run("Pair", func(t *testing.T) { testTokenPair(t, m, rome, milan) })
	m.both(t, rome, turin)
	m.both(t, milan, turin)
	t.Run("Pods", func(t *testing.T) { testTokenMeshPods(t, m) })
	t.Run("Part", func(t *testing.T) { testTokenMeshParts(t, m, before) })
}

// world are two clusters of a mesh.
func (m mesh) world(consumer, provider *site.Site) *world {
	return &world{sites: m.sites, rome: consumer, milan: provider}
}

// both connects two clusters both ways by one token of the provider.
func (m mesh) both(t *testing.T, consumer, provider *site.Site) {
	t.Helper()
	w, begin := m.world(consumer, provider), time.Now()
	token := w.token(t, "--for", consumer.Name, "--both-ways")
	var wg sync.WaitGroup
	var errs [2]error
	for i, s := range []*site.Site{consumer, provider} {
		other := provider
		if s == provider {
			other = consumer
		}
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), longest)
			defer cancel()
			if errs[i] = s.StartVKubelet(ctx, corev1beta1.TenantNamespace(other.Name), other.Name); errs[i] == nil {
				errs[i] = s.WaitVirtualNode(ctx, other.Name, corev1.ConditionTrue)
			}
		})
	}
	out, code, err := w.command(t.Context(), consumer, "peer", "--timeout=1m", "--both-ways", "--token", token)
	wg.Wait()
	require.NoError(t, err)
	require.Zero(t, code, out)
	require.NoError(t, errs[0], "%s uses %s", consumer.Name, provider.Name)
	require.NoError(t, errs[1], "%s uses %s", provider.Name, consumer.Name)
	t.Logf("%s and %s: from token create to both virtual nodes Ready: %s", consumer.Name, provider.Name, time.Since(begin).Round(time.Millisecond))
}

// testTokenPair looks at what one token has made in two clusters.
func testTokenPair(t *testing.T, m mesh, rome, milan *site.Site) {
	m.both(t, rome, milan)
	for _, s := range []*site.Site{rome, milan} {
		other := milan
		if s == milan {
			other = rome
		}
		within(t, soon, s.Name+" says so", peerSays(s, other.Name, corev1beta1.ConditionReady, metav1.ConditionTrue, corev1beta1.ReasonAllChecksPassed))
		fc := kubetest.Get(t, s.Liqod().CoreV1beta1().ForeignClusters(), other.Name)
		require.Equal(t, corev1beta1.RoleConsumerAndProvider, fc.Status.Role)
	}
	sent := kubetest.Get(t, rome.Client().CoreV1().Secrets("liqod"), trust.SecretName(trust.BackID("milan")))
	record := must(trust.ReadSecret(sent))(t)
	require.True(t, record.UsedUp(), "good once")
	require.Equal(t, "milan", record.ClusterID)
	require.Less(t, time.Until(record.Expiration), 15*time.Minute)
	received := kubetest.Get(t, milan.Client().CoreV1().Secrets("liqod"), trust.ReceivedName("rome"))
	token := must(trust.ParseToken(string(received.Data[corev1beta1.TokenSecretKey])))(t)
	require.True(t, trust.Matches(record.Hash, token.Secret))

	// A cluster that was not offered one has none of the others' tokens.
	require.NotEmpty(t, newApplicant(t, "paris").enroll(t, token), "it is for milan alone")
}

// testTokenMeshPods lets a pod of each cluster run in each.
func testTokenMeshPods(t *testing.T, m mesh) {
	for _, s := range m.list {
		m.offload(t, s, "mesh", offloadingv1beta1.DefaultName)
		for _, in := range m.list {
			runsOn(t, s, "mesh", "on-"+in.Name, in)
		}
	}
	for _, s := range m.list {
		within(t, soon, "the pods of "+s.Name+" run", func(ctx context.Context) error { return second(podIPs(ctx, s, "mesh", len(m.list))) })
		for _, in := range m.others(s) {
			pod := kubetest.Get(t, in.Client().CoreV1().Pods(twinIn(in, s)), "on-"+in.Name)
			require.Contains(t, []string{in.SimulatedNodeName(1), in.SimulatedNodeName(2)}, pod.Spec.NodeName)
		}
	}
}

// testTokenMeshParts ends all peerings, in one cluster after the other: the later ones find
// that they have no rights any more in those before.
func testTokenMeshParts(t *testing.T, m mesh, before map[*site.Site][]string) {
	var all []task
	for _, s := range m.list {
		all = append(all, task{s, []string{"unoffload", "namespace", "mesh"}})
	}
	m.atOnce(t, all)
	for _, s := range m.list {
		for _, in := range m.list {
			err := s.Client().CoreV1().Pods("mesh").Delete(t.Context(), "on-"+in.Name, metav1.DeleteOptions{})
			require.NoError(t, store.IgnoreNotFound(err))
		}
	}
	for _, s := range m.list {
		all = nil
		for _, o := range m.others(s) {
			all = append(all, task{s, []string{"unpeer", o.Name}})
		}
		m.atOnce(t, all)
		for _, o := range m.others(s) {
			(*s.VKubelet(o.Name)).Kill()
		}
	}
	for _, s := range m.list {
		nothingLeft(t, s, before[s], quickly)
	}
}

// task is a command in a cluster.
type task struct {
	in   *site.Site
	args []string
}

// atOnce runs commands at the same time, and waits until all have done what they are to do.
func (m mesh) atOnce(t *testing.T, all []task) {
	t.Helper()
	said := make([]string, len(all))
	var wg sync.WaitGroup
	for i, do := range all {
		wg.Go(func() {
			begin := time.Now()
			out, code, err := finish(m.sites.Command(t.Context(), append(do.args, "--timeout=1m", "--kubeconfig", do.in.Kubeconfig)...))
			t.Logf("%s: %v: %s", do.in.Name, do.args[:2], time.Since(begin).Round(time.Millisecond))
			if err != nil || code != 0 {
				said[i] = fmt.Sprintf("%s: %v: code %d, %v\n%s", do.in.Name, do.args, code, err, out)
			}
		})
	}
	wg.Wait()
	require.Empty(t, strings.Join(said, ""))
}

// TestTokenProviders lets one cluster use ten, each by a token of its own, and loses one.
func TestTokenProviders(t *testing.T) {
	if !*all {
		t.Skip("NOT RUN: only with -all")
	}
	names := []string{"rome"}
	for i := range 10 {
		names = append(names, fmt.Sprintf("p%d", i+1))
	}
	begin := time.Now()
	m := newSites(t, names, func(o *lab.ClusterOptions) {
		// More control planes than CPUs: nothing may be late because of that.
		o.Audit, o.NodeGrace = false, 20*time.Second
		if o.Name != "rome" {
			o.SimulatedNodes = 1
		}
	}, map[string]any{"lease": map[string]any{"duration": "20s", "renewDeadline": "15s", "retryPeriod": "2s"}, "vkubelet": map[string]any{"nodeLeaseDuration": "20s"}})
	rome, providers := m.list[0], m.list[1:]
	w := &world{sites: m.sites, rome: rome, milan: providers[0]}
	var took []time.Duration
	for _, p := range providers {
		took = append(took, w.joins(t, p))
	}
	t.Logf("from the command to Ready, one after the other: %v", took)
	t.Run("Lost", func(t *testing.T) { testProviderLost(t, w, providers) })
	peak := must(peakMB(rome.Controller.PID))(t)
	t.Logf("peak memory of the consumer's controller with %d providers: %.0f MB; in all %s", len(providers), peak, time.Since(begin).Round(time.Second))
}

// joins lets rome use a provider by a token, and returns how long that took from the
// command to the virtual node that is Ready.
func (w *world) joins(t *testing.T, provider *site.Site) time.Duration {
	t.Helper()
	token := tokenOf(t, w.sites, provider)
	vkubelet := make(chan error, 1)
	begin := time.Now()
	go func() {
		vkubelet <- w.rome.StartVKubelet(t.Context(), corev1beta1.TenantNamespace(provider.Name), provider.Name)
	}()
	out, code, err := w.command(t.Context(), w.rome, "peer", "--timeout=1m", "--token", token)
	took := time.Since(begin).Round(time.Millisecond)
	require.NoError(t, err)
	require.Zero(t, code, out)
	require.NoError(t, <-vkubelet)
	return took
}

// testProviderLost spreads a Deployment over all providers and stops the last one for good:
// only its node is NotReady, and the others take pods as before.
func testProviderLost(t *testing.T, w *world, all []*site.Site) {
	w.offload(t, "many", offloadingv1beta1.NamespaceOffloadingSpec{})
	replicas := int32(len(all))
	d := deployment("web", replicas)
	d.Spec.Template.Spec.TopologySpreadConstraints = overHosts(d.Spec.Selector)
	kubetest.Create(t, w.rome.Client().AppsV1().Deployments("many"), d)
	within(t, longest, "a pod in each", w.available("web", "many", replicas))
	on := must(w.nodesOf(t.Context(), "many"))(t)
	want := map[string]int{}
	for _, p := range all {
		want[p.Name] = 1
	}
	require.Equal(t, want, on)

	others, lost := all[:len(all)-1], all[len(all)-1]
	seen := map[string]func() []corev1.ConditionStatus{}
	for _, p := range all {
		seen[p.Name] = w.transitions(t, p.Name)
	}
	lost.KillControlPlane()
	ctx, cancel := context.WithTimeout(t.Context(), longest)
	defer cancel()
	begin := time.Now()
	require.NoError(t, lab.Eventually(ctx, lab.Is(w.rome.Client().CoreV1().Nodes(), lost.Name, func(n *corev1.Node) bool {
		return readyOf(n).Status != corev1.ConditionTrue
	})))
	t.Logf("node %s is NotReady after %s", lost.Name, time.Since(begin).Round(time.Millisecond))
	for _, p := range others {
		runsOn(t, w.rome, "many", "after-"+p.Name, p)
	}
	for _, p := range others {
		within(t, longest, "a new pod runs in "+p.Name, lab.Is(w.rome.Client().CoreV1().Pods("many"), "after-"+p.Name, func(pod *corev1.Pod) bool {
			return podReady(pod) == corev1.ConditionTrue
		}))
	}
	for _, p := range others {
		require.Equal(t, []corev1.ConditionStatus{corev1.ConditionTrue}, seen[p.Name](), p.Name)
	}
	require.NotEqual(t, []corev1.ConditionStatus{corev1.ConditionTrue}, seen[lost.Name]())
}

// peakMB is the highest resident memory that a process has had, in MB (10^6 bytes).
func peakMB(pid int) (float64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	var kib float64
	_, err = fmt.Sscan(rest, &kib)
	return kib * 1024 / 1e6, err
}
