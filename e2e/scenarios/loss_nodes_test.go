package scenarios

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/e2e/site"
)

// afterVerdict is how long after Kubernetes has given a node up each role works again.
const afterVerdict = 15 * time.Second

// nodesWorld is rome on two nodes, with one replica of each role on one of them, and milan.
type nodesWorld struct {
	replicasWorld
	loss lossWorld
}

// TestNodesLost: rome peers with milan by a record in its DNS. It has one replica of each role, all on one node. This node is cut off from the control plane
// alone, so that what runs there runs on, then the node of those that replace them loses its power. Each time every
// role works again on the other node, and milan has one gateway of number 1 with a key of its own. The log is the
// table of lost nodes in docs/continuity.md#high-availability; with -all its times have a limit.
func TestNodesLost(t *testing.T) {
	w := nodesWorld{replicasWorld: replicasWorld{networkWorld: newNetworkWorldOf(t, site.World{
		Clusters: []string{"rome", "milan"}, RealNodes: []int{2, 1}, Fabric: site.FabricPods,
		Settings: []map[string]any{{"lease": map[string]any{}, "vkubelet": map[string]any{}}, discovers()}, // else the defaults
		Values:   valuesOfReplicas(1),
		Adjust:   func(o *lab.ClusterOptions) { o.Audit, o.NodeGrace = false, 40*time.Second },
	})}}
	w.loss = lossWorld{networkWorld: w.networkWorld, shops: []shop{{w.networkWorld}}}
	w.peerByRecord(t)
	w.deployReplicas(t)
	w.terms = newTerms(t, w.rome)
	w.gather(t, "rome-2")
	first := w.full.Node(w.rome.Cluster, "rome-2")
	plane := w.full.Node(w.rome.Cluster, "rome-1").Machine.Address
	w.lost(t, "cut off", "rome-2", func() error {
		return first.Machine.Drop(t.Context(), "cut", lab.Drops{Arriving: []string{"ip saddr " + plane + " meta l4proto tcp"}})
	})
	require.NoError(t, first.Machine.Pass(t.Context(), "cut"))
	w.settled(t, "after rome-2 is back")
	second := w.full.Node(w.rome.Cluster, "rome-1")
	w.lost(t, "without power", "rome-1", func() error { return second.Kill(t.Context()) })
	require.NoError(t, second.Start(t.Context()))
	w.settled(t, "after rome-1 is back")
}

// gather moves the pods of all roles to a node.
func (w nodesWorld) gather(t *testing.T, node string) {
	t.Helper()
	other := map[string]string{"rome-1": "rome-2", "rome-2": "rome-1"}[node]
	cordon(t, w.rome, true, other)
	for _, p := range must(w.rolePods(t.Context()))(t) {
		if p.Spec.NodeName == other && p.Labels["app.kubernetes.io/component"] != "route" {
			require.NoError(t, w.rome.Client().CoreV1().Pods(p.Namespace).Delete(t.Context(), p.Name, metav1.DeleteOptions{}))
		}
	}
	within(t, longest, "all roles are on "+node, func(ctx context.Context) error { return w.on(ctx, node) })
	cordon(t, w.rome, false, other)
	w.settled(t, "at first")
}

// on says whether all roles but route have one pod, on a node, and are ready.
func (w nodesWorld) on(ctx context.Context, node string) error {
	for _, role := range allRoles() {
		pods, err := w.loss.podsOf(ctx, w.rome, role)
		if err != nil {
			return err
		}
		pods = slices.DeleteFunc(pods, func(p corev1.Pod) bool { return p.DeletionTimestamp != nil })
		if role != "route" && (len(pods) != 1 || pods[0].Spec.NodeName != node || podReady(&pods[0]) != corev1.ConditionTrue) {
			return fmt.Errorf("role %s is not ready on %s", role, node)
		}
	}
	return nil
}

// settled waits until all roles of rome run, pods reach each other, and milan has one gateway of number 1.
func (w nodesWorld) settled(t *testing.T, when string) {
	t.Helper()
	within(t, longest, "all roles are there "+when, func(ctx context.Context) error {
		for _, role := range allRoles() {
			if err := w.loss.complete(ctx, w.rome, role); err != nil {
				return err
			}
			pods, err := w.loss.podsOf(ctx, w.rome, role)
			if err != nil || role != "route" && len(pods) != 1 {
				return fmt.Errorf("role %s has %d pods (%w)", role, len(pods), err)
			}
		}
		return nil
	})
	within(t, longest, "both pods of rome are ready "+when, w.available("here", replicasNamespace, 2))
	w.crossed(t, when, "rome-1", "rome-2")
}

// key returns the key of the only gateway of rome that milan has.
func (w nodesWorld) key(ctx context.Context) (string, error) {
	list, err := w.milan.Liqod().NetworkingV1beta1().Connections(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", err
	}
	if len(list.Items) != 1 || len(list.Items[0].Spec.Gateways) != 1 {
		return "", fmt.Errorf("milan has %d Connections, or not one gateway of rome", len(list.Items))
	}
	return list.Items[0].Spec.Gateways[0].PublicKey, nil
}

// returned notes since when each role works again.
type returned struct {
	mu   sync.Mutex
	list map[string]time.Time
}

// check notes the first success after each failure.
func (r *returned) check(role string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		delete(r.list, role)
	} else if _, known := r.list[role]; !known {
		r.list[role] = time.Now()
	}
}

// lost loses the node of all roles, and waits until they work on the other one.
func (w nodesWorld) lost(t *testing.T, how, victim string, lose func() error) {
	t.Helper()
	other := map[string]string{"rome-1": "rome-2", "rome-2": "rome-1"}[victim]
	before := w.offloaded(t)
	was := must(w.key(t.Context()))(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*longest)
	defer cancel()
	stop := w.streams(ctx, t, other)
	cut := time.Now()
	require.NoError(t, lose())
	verdict := w.givenUp(t, victim)
	works := &returned{list: map[string]time.Time{}}
	within(t, longest, "every role works on "+other, func(ctx context.Context) error {
		w.tried(ctx, works, other)
		works.mu.Lock()
		defer works.mu.Unlock()
		return lab.Wrong(nil, len(works.list) < 4, "these work: %v", works.list)
	})
	w.crossed(t, "while "+victim+" is "+how, other)
	w.started(t, "new-"+victim)
	within(t, longest, "milan has another key", func(ctx context.Context) error {
		is, err := w.key(ctx)
		return lab.Wrong(err, is == was, "it has %s, of the gateway on %s, which may still run", is, victim)
	})
	pause := longestPause(stop())
	works.check("gateway", nil)
	works.list["gateway"] = pause.Began.Add(pause.Length)
	w.kept(t, before)
	var lines []string
	for role, at := range works.list {
		lines = append(lines, fmt.Sprintf("%s works again %s after the verdict", role, at.Sub(verdict).Round(100*time.Millisecond)))
		requireFaster(t, at.Sub(verdict), afterVerdict, "role "+role)
	}
	slices.Sort(lines)
	t.Logf("node %s %s: Kubernetes gives it up after %s\n%s\nno packet passed for %s", victim, how, verdict.Sub(cut).Round(100*time.Millisecond),
		strings.Join(lines, "\n"), pause.Length.Round(100*time.Millisecond))
}

// givenUp waits for Kubernetes' verdict on a node: from then on pods are deleted that do not tolerate it.
func (w nodesWorld) givenUp(t *testing.T, node string) time.Time {
	t.Helper()
	within(t, longest, "Kubernetes gives "+node+" up", lab.Is(w.rome.Client().CoreV1().Nodes(), node, func(n *corev1.Node) bool {
		return slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool {
			return t.Key == corev1.TaintNodeUnreachable && t.Effect == corev1.TaintEffectNoExecute
		})
	}))
	return time.Now()
}

// tried notes which roles work on a node.
func (w nodesWorld) tried(ctx context.Context, works *returned, node string) {
	holders, err := w.terms.holders()
	pods, errPods := w.rolePods(ctx)
	for role, lease := range map[string]string{"controller": "liqod/liqod-controller", "ipam": "liqod/liqod-ipam", "vkubelet": tenantOfMilan + "/vk-milan"} {
		problem := err
		if problem == nil {
			problem = errPods
		}
		if problem == nil && pods[holders[lease]].Spec.NodeName != node {
			problem = fmt.Errorf("its Lease is held by %s", holders[lease])
		}
		if problem == nil && role == "vkubelet" {
			problem = w.node("milan", corev1.ConditionTrue)(ctx)
		}
		works.check(role, problem)
	}
	dry := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	short, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	_, err = w.rome.Client().CoreV1().Pods(replicasNamespace).Create(short, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "asked"}, Spec: testSpec(1, "serve")}, dry)
	works.check("webhook", err)
}
