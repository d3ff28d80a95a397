package scenarios

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/e2e/site"
	"github.com/liqod/liqod/kube/kubetest"
)

// replicasNamespace is offloaded from rome to milan.
const replicasNamespace = "replicas"

// replicasWorld is rome on two nodes, with two replicas of each role of the chart, and milan.
type replicasWorld struct {
	networkWorld
	terms *terms
}

// TestReplicas: each role of rome has two replicas, which pods flood with connections. The node of
// the active ones is killed, then the other one, which has become theirs; all active ones are
// stopped, and all are replaced. Each time the others take over, and what runs in milan runs on.
func TestReplicas(t *testing.T) {
	w := replicasWorld{networkWorld: newNetworkWorldOf(t, site.World{
		Clusters: []string{"rome", "milan"}, RealNodes: []int{2, 1}, Fabric: site.FabricPods,
		Settings: []map[string]any{{"lease": map[string]any{}}}, // the defaults
		Values:   valuesOfReplicas(2),
		// Longer than a take-over, as everywhere.
		Adjust: func(o *lab.ClusterOptions) { o.Audit, o.NodeGrace = false, 15*time.Second },
	})}
	w.peer(t)
	w.deployReplicas(t)
	w.terms = newTerms(t, w.rome)
	w.whole(t, "at first")
	w.spread(t)
	replicasGateways(t, w)
	replicasFlooded(t, w)
	replicasKilled(t, w, "the node of the active controller")
	replicasKilled(t, w, "the other node")
	replicasStopped(t, w)
	replicasRolled(t, w)
	w.logMemory(t)
}

// valuesOfReplicas are the values of the chart for a number of replicas of each role.
func valuesOfReplicas(n int) map[string]any {
	each := map[string]any{"replicas": n}
	return map[string]any{
		"controllerManager": each, "webhook": each, "virtualKubelet": each,
		"ipam": map[string]any{"internal": each}, "networking": map[string]any{"gatewayTemplates": each},
	}
}

// deployReplicas runs a pod on each node of rome and two in milan, with a Service for those.
func (w replicasWorld) deployReplicas(t *testing.T) {
	t.Helper()
	w.offload(t, replicasNamespace, offloadingv1beta1.NamespaceOffloadingSpec{PodOffloadingStrategy: offloadingv1beta1.PodsLocalAndRemote})
	home := w.rome.Client()
	service := netService("there", "")
	service.Spec.Selector = map[string]string{"app": "there"}
	kubetest.Create(t, home.CoreV1().Services(replicasNamespace), service)
	node := kubetest.Get(t, home.CoreV1().Nodes(), "rome-2")
	for _, name := range []string{"here", "there"} {
		d := netDeployment(name, node)
		d.Spec.Template.Labels["app"] = name
		d.Spec.Template.Spec.Containers[0].Resources.Requests = nil
		d.Spec.Template.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
			MaxSkew: 1, TopologyKey: corev1.LabelHostname, WhenUnsatisfiable: corev1.ScheduleAnyway, LabelSelector: d.Spec.Selector,
		}}
		kubetest.Create(t, home.AppsV1().Deployments(replicasNamespace), d)
	}
	for _, name := range []string{"here", "there"} {
		within(t, longest, name+" is available", w.available(name, replicasNamespace, 2))
	}
}

// terms notes the holders of the Leases of a site's roles.
type terms struct {
	mu   sync.Mutex
	list map[string][]term // by Lease
}

// term begins when a watch shows another holder; none: the Lease was released.
type term struct {
	holder string
	began  time.Time
}

// replicasLeases are those by which replicas in rome elect the active one.
func replicasLeases() []string {
	return []string{
		"liqod/liqod-controller", "liqod/liqod-webhook", "liqod/liqod-ipam",
		tenantOfMilan + "/vk-milan", tenantOfMilan + "/" + offloadingv1beta1.ReflectionLease,
	}
}

func newTerms(t *testing.T, s *site.Site) *terms {
	t.Helper()
	out := &terms{list: map[string][]term{}}
	factory := informers.NewSharedInformerFactory(s.Client(), 0)
	informer := factory.Coordination().V1().Leases().Informer()
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: out.see, UpdateFunc: func(_, obj any) { out.see(obj) }})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	factory.Start(ctx.Done())
	t.Cleanup(func() {
		cancel()
		factory.Shutdown()
	})
	require.True(t, cache.WaitForCacheSync(ctx.Done(), informer.HasSynced))
	return out
}

func (h *terms) see(obj any) {
	lease, ok := obj.(*coordinationv1.Lease)
	if !ok {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	name, by := lease.Namespace+"/"+lease.Name, ptr.Deref(lease.Spec.HolderIdentity, "")
	if list := h.list[name]; len(list) == 0 || list[len(list)-1].holder != by {
		h.list[name] = append(list, term{by, time.Now()})
	}
}

// since returns the terms of a Lease that began after a time.
func (h *terms) since(lease string, at time.Time) []term {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(h.list[lease]), func(t term) bool { return t.began.Before(at) })
}

// holders returns the pods that hold the Leases now.
func (h *terms) holders() (map[string]string, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := map[string]string{}
	for _, lease := range replicasLeases() {
		list := h.list[lease]
		if len(list) == 0 || list[len(list)-1].holder == "" {
			return nil, fmt.Errorf("nobody holds Lease %s", lease)
		}
		out[lease] = list[len(list)-1].holder
	}
	return out, nil
}

// rolePods are the pods of rome's roles, by name.
func (w replicasWorld) rolePods(ctx context.Context) (map[string]corev1.Pod, error) {
	out := map[string]corev1.Pod{}
	for _, namespace := range []string{site.Namespace, tenantOfMilan} {
		list, err := w.rome.Client().CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		for _, p := range list.Items {
			out[p.Name] = p
		}
	}
	return out, nil
}

// complete says whether every Deployment of rome's roles has two ready replicas, and each
// Lease a holder among them.
func (w replicasWorld) complete(ctx context.Context) error {
	apps := w.rome.Client().AppsV1()
	count := 0
	for _, namespace := range []string{site.Namespace, tenantOfMilan} {
		list, err := apps.Deployments(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, d := range list.Items {
			count++
			if d.Status.ObservedGeneration < d.Generation || d.Status.ReadyReplicas != 2 || d.Status.Replicas != 2 {
				return fmt.Errorf("deployment %s has %d of 2 replicas ready", d.Name, d.Status.ReadyReplicas)
			}
		}
	}
	if count != 5 {
		return fmt.Errorf("there are %d deployments, not 5", count)
	}
	d, err := apps.DaemonSets(site.Namespace).Get(ctx, "liqod-route", metav1.GetOptions{})
	if err != nil {
		return err
	}
	if d.Status.NumberReady != 2 {
		return fmt.Errorf("role route is ready on %d of 2 nodes", d.Status.NumberReady)
	}
	pods, err := w.rolePods(ctx)
	if err != nil {
		return err
	}
	holders, err := w.terms.holders()
	for lease, pod := range holders {
		if _, ok := pods[pod]; !ok {
			return fmt.Errorf("pod %s, which holds Lease %s, is gone", pod, lease)
		}
	}
	return err
}

// whole waits until everything of rome runs, and pods reach each other.
func (w replicasWorld) whole(t *testing.T, when string) {
	t.Helper()
	within(t, longest, "everything is there "+when, w.complete)
	within(t, longest, "both pods of rome are ready "+when, w.available("here", replicasNamespace, 2))
	w.crossed(t, when, "rome-1", "rome-2")
}

// spread checks that the replicas of each role are on different nodes, and budgets keep one.
func (w replicasWorld) spread(t *testing.T) {
	t.Helper()
	pods, err := w.rolePods(t.Context())
	require.NoError(t, err)
	nodes := map[string]map[string]bool{}
	for _, p := range pods {
		if role := p.Labels["app.kubernetes.io/component"] + p.Labels["liqo.io/virtual-node"]; role != "route" {
			if nodes[role] == nil {
				nodes[role] = map[string]bool{}
			}
			nodes[role][p.Spec.NodeName] = true
		}
	}
	require.Len(t, nodes, 5)
	for role, on := range nodes {
		require.Len(t, on, 2, "replicas of %s are on %v", role, slices.Sorted(maps.Keys(on)))
	}
	for _, namespace := range []string{site.Namespace, tenantOfMilan} {
		list := kubetest.List(t, w.rome.Client().PolicyV1().PodDisruptionBudgets(namespace))
		require.Len(t, list.Items, map[string]int{site.Namespace: 4, tenantOfMilan: 1}[namespace])
	}
}

// crossed waits until the pods on these nodes of rome reach the pods in milan by the Service
// and by their addresses, and those reach them.
func (w replicasWorld) crossed(t *testing.T, when string, nodes ...string) {
	t.Helper()
	within(t, longest, "pods on "+strings.Join(nodes, ", ")+" and in milan reach each other "+when, func(ctx context.Context) error {
		pods, err := w.pods(ctx, replicasNamespace)
		if err != nil {
			return err
		}
		service, err := w.rome.Client().CoreV1().Services(replicasNamespace).Get(ctx, "there", metav1.GetOptions{})
		if err != nil {
			return err
		}
		targets := []string{"tcp://" + service.Spec.ClusterIP + ":8080/100"}
		var here, there []corev1.Pod
		for _, p := range pods {
			switch {
			case slices.Contains(nodes, p.Spec.NodeName):
				here = append(here, p)
			case p.Spec.NodeName == "milan":
				there, targets = append(there, p), append(targets, "tcp://"+p.Status.PodIP+":8080/100")
			}
		}
		if len(here) != len(nodes) || len(there) == 0 {
			return fmt.Errorf("%d pods of rome, %d in milan", len(here), len(there))
		}
		var errs []error
		for _, p := range here {
			errs = append(errs, w.reach(ctx, p.Name, targets...))
		}
		// By the kubelet API of the active vkubelet.
		for _, p := range there {
			errs = append(errs, w.reach(ctx, p.Name, "tcp://127.0.0.1:8080/0"))
		}
		return errors.Join(errs...)
	})
}

// reach has a pod send to targets.
func (w replicasWorld) reach(ctx context.Context, pod string, targets ...string) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	return arrives(w.rome.Exec(ctx, replicasNamespace, pod, append([]string{"reach"}, targets...)...))
}

// started waits until a pod that is created now runs in milan, and is Ready at home.
func (w replicasWorld) started(t *testing.T, name string) {
	t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: testSpec(1, "serve")}
	pod.Spec.RuntimeClassName = ptr.To("liqo")
	// The API server may still ask the webhook on the node that is lost.
	within(t, longest, "pod "+name+" is created", lab.Creates(w.rome.Client().CoreV1().Pods(replicasNamespace), pod))
	within(t, longest, "pod "+name+" is Ready", lab.Is(w.rome.Client().CoreV1().Pods(replicasNamespace), name, func(p *corev1.Pod) bool {
		return podReady(p) == corev1.ConditionTrue && p.Spec.NodeName == "milan"
	}))
}

// offloaded are the pods in milan, at home and there, with their containers.
func (w replicasWorld) offloaded(t *testing.T) map[string]string {
	t.Helper()
	there, err := containers(t.Context(), w.milan, replicasNamespace+"-rome")
	require.NoError(t, err)
	here, err := containers(t.Context(), w.rome, replicasNamespace)
	require.NoError(t, err)
	out := map[string]string{}
	for name, c := range there {
		out[name] = c + " " + here[name]
	}
	return out
}

// kept checks that what ran in milan before runs there unchanged.
func (w replicasWorld) kept(t *testing.T, before map[string]string) {
	t.Helper()
	now := w.offloaded(t)
	for name, was := range before {
		require.Equal(t, was, now[name], "pod %s in milan", name)
	}
}

// replicasKilled kills the node of the active controller. All Leases that pods on this node
// hold get other holders, on the other node.
func replicasKilled(t *testing.T, w replicasWorld, which string) {
	pods, err := w.rolePods(t.Context())
	require.NoError(t, err)
	holders, err := w.terms.holders()
	require.NoError(t, err)
	victim := w.full.Node(w.rome.Cluster, pods[holders["liqod/liqod-controller"]].Spec.NodeName)
	require.NotNil(t, victim)
	other := map[string]string{"rome-1": "rome-2", "rome-2": "rome-1"}[victim.Name]
	before := w.offloaded(t)
	var lost []string
	for lease, pod := range holders {
		if pods[pod].Spec.NodeName == victim.Name {
			lost = append(lost, lease)
		}
	}
	slices.Sort(lost)
	t.Logf("killing %s, %s; pods there hold %v", which, victim.Name, lost)
	killed := time.Now()
	require.NoError(t, victim.Kill(t.Context()))
	w.taken(t, "killed", killed, lost, func(lease, pod string) error {
		pods, err := w.rolePods(t.Context()) // a pod of the lost node may have another one in its place
		if err != nil {
			return err
		}
		if pod == holders[lease] || pods[pod].Spec.NodeName != other {
			return fmt.Errorf("pod %s on node %s holds Lease %s", pod, pods[pod].Spec.NodeName, lease)
		}
		return nil
	})
	w.crossed(t, "after "+victim.Name+" was killed", other)
	w.started(t, "after-"+victim.Name)
	w.kept(t, before)
	require.NoError(t, victim.Start(t.Context()))
	within(t, longest, "the pods on "+victim.Name+" were started again", func(ctx context.Context) error { return w.restarted(ctx, victim.Name, killed) })
	w.whole(t, "after "+victim.Name+" is back")
	w.kept(t, before)
}

// restarted says whether every pod of a node's roles has been started after a time, and is
// ready. What the API says of the pods of a lost node is from before.
func (w replicasWorld) restarted(ctx context.Context, node string, after time.Time) error {
	pods, err := w.rolePods(ctx)
	if err != nil {
		return err
	}
	for _, p := range pods {
		if p.Spec.NodeName != node {
			continue
		}
		for _, c := range p.Status.ContainerStatuses {
			if c.State.Running == nil || !c.State.Running.StartedAt.After(after) || !c.Ready {
				return fmt.Errorf("container %s of pod %s: %+v", c.Name, p.Name, c.State)
			}
		}
	}
	return nil
}

// taken waits until each of the Leases has a holder that is accepted, and logs when that was.
func (w replicasWorld) taken(t *testing.T, what string, since time.Time, leases []string, accepted func(lease, pod string) error) {
	t.Helper()
	within(t, longest, "the standbys are active", func(context.Context) error {
		holders, err := w.terms.holders()
		for _, lease := range leases {
			err = errors.Join(err, accepted(lease, holders[lease]))
		}
		return err
	})
	for _, lease := range leases {
		var said []string
		for _, term := range w.terms.since(lease, since) {
			said = append(said, fmt.Sprintf("%s by %q", term.began.Sub(since).Round(10*time.Millisecond), term.holder))
		}
		t.Logf("take-over of Lease %s (%s): %s", lease, what, strings.Join(said, ", "))
	}
}

// replicasStopped deletes the pods of all active replicas, as a drain of their nodes does. Each
// releases its Lease, and the other replica takes it.
func replicasStopped(t *testing.T, w replicasWorld) {
	pods, err := w.rolePods(t.Context())
	require.NoError(t, err)
	holders, err := w.terms.holders()
	require.NoError(t, err)
	before := w.offloaded(t)
	stopped := time.Now()
	gone := map[string]bool{}
	for _, name := range holders {
		if !gone[name] {
			gone[name] = true
			require.NoError(t, w.rome.Client().CoreV1().Pods(pods[name].Namespace).Delete(t.Context(), name, metav1.DeleteOptions{}))
		}
	}
	w.taken(t, "stopped", stopped, replicasLeases(), func(lease, pod string) error {
		if gone[pod] {
			return fmt.Errorf("pod %s holds Lease %s still", pod, lease)
		}
		return nil
	})
	// A role has seconds to release its Lease: a busy API server may not answer in time.
	released, leases := 0, replicasLeases()
	for _, lease := range leases {
		if list := w.terms.since(lease, stopped); len(list) > 1 && list[0].holder == "" {
			released++
		}
	}
	require.Greater(t, 2*released, len(leases), "Leases that were released")
	w.whole(t, "after the active replicas were stopped")
	w.kept(t, before)
}

// replicasRolled replaces the pods of all roles, as an upgrade does. Meanwhile no creation of a
// pod fails: there is always a webhook.
func replicasRolled(t *testing.T, w replicasWorld) {
	before := w.offloaded(t)
	failed := make(chan error, 1)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var asked atomic.Int64
	go func() { failed <- w.admitted(ctx, &asked) }()
	began := time.Now()
	apps := w.rome.Client().AppsV1().Deployments(site.Namespace)
	list := kubetest.List(t, apps)
	for _, d := range list.Items {
		kubetest.Patch(t, apps, d.Name, types.MergePatchType, []byte(`{"spec":{"template":{"metadata":{"annotations":{"rolled":"once"}}}}}`))
	}
	within(t, longest, "all pods are others", func(ctx context.Context) error {
		pods, err := w.rolePods(ctx)
		if err != nil {
			return err
		}
		for _, p := range pods {
			if role := p.Labels["app.kubernetes.io/component"]; role != "" && role != "route" && p.Annotations["rolled"] == "" {
				return fmt.Errorf("pod %s is of the revision before", p.Name)
			}
		}
		return w.complete(ctx)
	})
	t.Logf("rolled within %s; %d pods admitted meanwhile", time.Since(began).Round(time.Millisecond), asked.Load())
	w.spread(t)
	w.crossed(t, "after the rollout", "rome-1", "rome-2")
	stop()
	require.NoError(t, <-failed)
	require.Positive(t, asked.Load())
	w.kept(t, before)
}

// admitted creates pods without storing them, which the webhook must allow, until ctx is done
// or one fails.
func (w replicasWorld) admitted(ctx context.Context, asked *atomic.Int64) error {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "asked"}, Spec: testSpec(1, "serve")}
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for {
		_, err := w.rome.Client().CoreV1().Pods(replicasNamespace).Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("after %d pods: %w", asked.Load(), err)
		}
		asked.Add(1)
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// logMemory logs what the containers of the roles use, from their cgroups.
func (w replicasWorld) logMemory(t *testing.T) {
	t.Helper()
	for _, n := range w.full.Nodes(w.rome.Cluster) {
		out, err := n.Exec(t.Context(), "sh", "-c", `for p in /proc/[0-9]*; do tr '\0' ' ' < $p/cmdline 2>/dev/null | grep -q -- --role= && { tr '\0' ' ' < $p/cmdline | cut -d' ' -f2; grep -E 'VmHWM|VmRSS' $p/status; }; done`)
		t.Logf("memory on %s (%v):\n%s", n.Name, err, out)
	}
}
