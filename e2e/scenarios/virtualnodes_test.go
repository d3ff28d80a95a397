package scenarios

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/e2e/site"
	"github.com/liqod/liqod/kube/kubetest"
)

// How long a virtual node that goes away asks its pods to leave, and how long it then
// waits for their end.
const (
	drainTimeout    = 8 * time.Second
	drainForceAfter = 5 * time.Second
)

const tenant = "liqo-tenant-milan"

// TestVirtualNodes makes, drains and deletes virtual nodes. Package virtualnode tests what others do to a Node.
func TestVirtualNodes(t *testing.T) {
	w := newWorld(t, map[string]any{"controller": map[string]any{
		"drainTimeout": drainTimeout.String(), "drainForceAfter": drainForceAfter.String()}})
	w.offload(t, "nodes", offloadingv1beta1.NamespaceOffloadingSpec{})
	inTurn(t, w, []part[*world]{
		{"Steady", testSteady}, {"NodeDeleted", testNodeDeleted}, {"Certificates", testCertificates}, {"KubeletAPI", testKubeletAPI},
		{"KubeletRoutes", testKubeletRoutes}, {"Drained", testDrained}, {"DeletedWhileAway", testNodeDeletedWhileAway},
		{"LastDeleted", testLastNodeDeleted}, {"TakenDown", testPeeringTakenDown},
	})
}

// testSteady lets the controller look at a virtual node again and again, and counts what it
// writes to the Deployment.
func testSteady(t *testing.T, w *world) {
	bindings := w.rome.Client().RbacV1().RoleBindings("nodes")
	name := "liqod-vkubelet-namespace:" + tenant + ":milan"
	for turn := range 5 {
		within(t, soon, "a RoleBinding gets another subject", lab.Changes(bindings, name, func(b *rbacv1.RoleBinding) {
			b.Subjects = append(b.Subjects, rbacv1.Subject{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: fmt.Sprint("other-", turn)})
		}))
		within(t, soon, "the controller takes it off", lab.Is(bindings, name, func(b *rbacv1.RoleBinding) bool { return len(b.Subjects) == 1 }))
	}
	records := must(w.rome.Audited(func(r lab.AuditRecord) bool {
		return r.Write() && r.Resource() == "deployments" && r.ObjectRef.Namespace == tenant && r.ObjectRef.Name == "vk-milan"
	}))(t)
	var verbs []string
	for _, r := range records {
		verbs = append(verbs, r.Verb)
	}
	require.Equal(t, []string{"create"}, verbs, "nothing else is written")
}

// virtualNode returns a condition: the Ready condition of a VirtualNode has a reason.
func (w *world) virtualNode(namespace, name, reason string, says ...string) func(context.Context) error {
	return lab.That(w.rome.Liqod().OffloadingV1beta1().VirtualNodes(namespace), name, func(vn *offloadingv1beta1.VirtualNode) error {
		c := meta.FindStatusCondition(vn.Status.Conditions, offloadingv1beta1.VirtualNodeReady)
		if c == nil || c.Reason != reason {
			return fmt.Errorf("virtual node %s: %+v", name, vn.Status.Conditions)
		}
		for _, text := range says {
			if !strings.Contains(c.Message, text) {
				return fmt.Errorf("virtual node %s says %q, not %q", name, c.Message, text)
			}
		}
		return nil
	})
}

// remotes returns UID and resource version of the pods of a twin, by name.
func (w *world) remotes(t *testing.T, twin string) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, p := range kubetest.List(t, w.milan.Client().CoreV1().Pods(twin)).Items {
		out[p.Name] = string(p.UID) + "@" + p.ResourceVersion
	}
	return out
}

func testNodeDeleted(t *testing.T, w *world) {
	kubetest.Create(t, w.rome.Client().AppsV1().Deployments("nodes"), deployment("web", 5))
	within(t, soon, "5 pods run", w.available("web", "nodes", 5))
	before, locals := w.remotes(t, "nodes-rome"), w.localUIDs(t, "nodes")
	node := kubetest.Get(t, w.rome.Client().CoreV1().Nodes(), "milan")
	for range 3 {
		gone := kubetest.Get(t, w.rome.Client().CoreV1().Nodes(), "milan")
		require.NoError(t, w.rome.Client().CoreV1().Nodes().Delete(t.Context(), "milan", metav1.DeleteOptions{}))
		took := within(t, soon, "the Node is back", lab.Is(w.rome.Client().CoreV1().Nodes(), "milan", func(again *corev1.Node) bool {
			return again.UID != gone.UID
		}))
		requireFaster(t, took, time.Second, "a deleted Node is back")
	}
	within(t, soon, "the Node is Ready", func(ctx context.Context) error { return w.rome.WaitVirtualNode(ctx, "milan", corev1.ConditionTrue) })
	again := kubetest.Get(t, w.rome.Client().CoreV1().Nodes(), "milan")
	for k, v := range node.Labels {
		if !strings.HasPrefix(k, "beta.kubernetes.io/") { // the controller manager's, in its own time
			require.Equal(t, v, again.Labels[k], k)
		}
	}
	require.Equal(t, node.Spec.ProviderID, again.Spec.ProviderID)
	require.Equal(t, node.Status.Allocatable, again.Status.Allocatable)
	within(t, soon, "its Lease is its own", w.leaseOf("milan", again.UID))
	within(t, soon, "the pods are Ready", w.available("web", "nodes", 5))
	require.Equal(t, before, w.remotes(t, "nodes-rome"), "nothing was written in the provider")
	require.Equal(t, locals, w.localUIDs(t, "nodes"))
}

func (w *world) localUIDs(t *testing.T, namespace string) map[string]types.UID {
	t.Helper()
	out := map[string]types.UID{}
	for _, p := range kubetest.List(t, w.rome.Client().CoreV1().Pods(namespace)).Items {
		out[p.Name] = p.UID
	}
	return out
}

func (w *world) leaseOf(node string, uid types.UID) func(context.Context) error {
	return func(ctx context.Context) error {
		l, err := w.rome.Client().CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(ctx, node, metav1.GetOptions{})
		return lab.Wrong(err, len(l.OwnerReferences) != 1 || l.OwnerReferences[0].UID != uid, "owners %+v", l.OwnerReferences)
	}
}

func (w *world) virtualNodeGone(name string) func(context.Context) error {
	return isGone(w.rome.Liqod().OffloadingV1beta1().VirtualNodes(tenant), name)
}

// secondNode adds a virtual node with a Deployment on it.
func (w *world) secondNode(t *testing.T, node, app string, replicas int32) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), longest)
	defer cancel()
	require.NoError(t, w.rome.AddVirtualNode(ctx, w.milan, site.PeerOptions{Node: node}))
	d := deployment(app, replicas)
	d.Spec.Template.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node}
	require.NoError(t, second(w.rome.Client().AppsV1().Deployments("nodes").Create(ctx, d, metav1.CreateOptions{})))
	within(t, soon, fmt.Sprintf("%d pods run on %s", replicas, node), w.available(app, "nodes", replicas))
}

// podsAt returns the pods of an application that are bound to a node of rome.
func (w *world) podsAt(ctx context.Context, node, app string) ([]corev1.Pod, error) {
	list, err := w.rome.Client().CoreV1().Pods("nodes").List(ctx, metav1.ListOptions{LabelSelector: "app=" + app, FieldSelector: "spec.nodeName=" + node})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// testDrained deletes a virtual node with two applications on it: one may leave, the
// other is held by its budget until the deadline.
func testDrained(t *testing.T, w *world) {
	w.secondNode(t, "second", "free", 4)
	d := deployment("held", 2)
	d.Spec.Template.Spec.NodeSelector = map[string]string{corev1.LabelHostname: "second"}
	kubetest.Create(t, w.rome.Client().AppsV1().Deployments("nodes"), d)
	within(t, soon, "2 pods run on second", w.available("held", "nodes", 2))
	kubetest.Create(t, w.rome.Client().PolicyV1().PodDisruptionBudgets("nodes"), &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "held"}, Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: &intstr.IntOrString{IntVal: 2}, Selector: d.Spec.Selector}})
	within(t, soon, "the budget is known", lab.Is(w.rome.Client().PolicyV1().PodDisruptionBudgets("nodes"), "held", func(b *policyv1.PodDisruptionBudget) bool {
		return b.Status.CurrentHealthy == 2
	}))
	others, free := w.remotesOf(t, "web"), w.localUIDs(t, "nodes")
	maps.DeleteFunc(free, func(pod string, _ types.UID) bool { return !strings.HasPrefix(pod, "free-") })
	begin := time.Now()
	require.NoError(t, w.rome.Liqod().OffloadingV1beta1().VirtualNodes(tenant).Delete(t.Context(), "second", metav1.DeleteOptions{}))
	within(t, soon, "the progress shows", w.virtualNode(tenant, "second", "Draining", "pods are left", "evictions are refused: in namespace nodes, The disruption budget held needs 2 healthy pods"))
	within(t, drainTimeout, "those that may leave have left", func(ctx context.Context) error {
		pods, err := w.podsAt(ctx, "second", "free")
		return lab.Wrong(err, len(pods) > 0, "%d pods are left", len(pods))
	})
	within(t, drainTimeout+soon, "the budget no longer holds", func(ctx context.Context) error {
		pods, err := w.podsAt(ctx, "second", "held")
		if err != nil {
			return err
		}
		for _, p := range pods {
			if p.DeletionTimestamp == nil {
				return fmt.Errorf("pod %s stands", p.Name)
			}
		}
		return nil
	})
	// The deadline counts from a time that the API server gives in whole seconds.
	require.Greater(t, time.Since(begin), drainTimeout-time.Second, "it held until the deadline")
	vkubeletGoes(t, w.rome, 30*time.Second, tenant, "second")
	within(t, soon, "the virtual node is gone", w.virtualNodeGone("second"))
	t.Logf("virtual node with a budget that holds, gone after %s; the deadline is %s", time.Since(begin).Round(time.Millisecond), drainTimeout)
	w.nothingLeft(t, "second")
	ofSecond := metav1.ListOptions{LabelSelector: "offloading.liqo.io/nodename=second"}
	within(t, soon, "no pod is left in milan", lab.Number(w.milan.Client().CoreV1().Pods("nodes-rome"), ofSecond, 0))
	within(t, soon, "no ShadowPod is left in milan", lab.Number(w.milan.Liqod().OffloadingV1beta1().ShadowPods("nodes-rome"), ofSecond, 0))
	require.Equal(t, others, w.remotesOf(t, "web"), "the pods of the other virtual node are untouched")
	evictions := must(w.rome.Audited(func(r lab.AuditRecord) bool {
		return r.Resource() == "pods/eviction" && r.ObjectRef.Namespace == "nodes"
	}))(t)
	codes := map[int]int{}
	for _, r := range evictions {
		codes[r.ResponseStatus.Code]++
		if r.ResponseStatus.Code == http.StatusCreated {
			require.NotContains(t, r.ObjectRef.Name, "held-")
			delete(free, r.ObjectRef.Name)
		}
	}
	t.Logf("evictions by answer: %v", codes)
	require.Empty(t, free, "the pods without a budget were evicted")
	require.NotZero(t, codes[http.StatusTooManyRequests], "the others were asked")
}

// remotesOf is remotes for one application.
func (w *world) remotesOf(t *testing.T, app string) map[string]string {
	t.Helper()
	all := w.remotes(t, "nodes-rome")
	for name := range all {
		if !strings.HasPrefix(name, app+"-") {
			delete(all, name)
		}
	}
	return all
}

// nothingLeft wants nothing of a virtual node in rome.
func (w *world) nothingLeft(t *testing.T, node string) {
	t.Helper()
	ctx, client := t.Context(), w.rome.Client()
	mine := metav1.ListOptions{LabelSelector: offloadingv1beta1.VirtualNodeLabel + "=" + node}
	require.NoError(t, absent(client.CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})))
	require.NoError(t, absent(client.CoreV1().ServiceAccounts(tenant).Get(ctx, "vk-"+node, metav1.GetOptions{})))
	require.NoError(t, absent(client.CoordinationV1().Leases(tenant).Get(ctx, "vk-"+node, metav1.GetOptions{})))
	bindings := kubetest.List(t, client.RbacV1().RoleBindings(""), mine)
	require.Empty(t, bindings.Items)
	cluster := kubetest.List(t, client.RbacV1().ClusterRoleBindings(), mine)
	require.Empty(t, cluster.Items)
	kubelets := kubetest.List(t, client.CoreV1().Pods(tenant), mine)
	require.Empty(t, kubelets.Items)
	pods := kubetest.List(t, client.CoreV1().Pods(""), metav1.ListOptions{FieldSelector: "spec.nodeName=" + node})
	require.Empty(t, pods.Items)
	within(t, soon, "the Lease of the Node is collected", isGone(client.CoordinationV1().Leases(corev1.NamespaceNodeLease), node))
}

// testNodeDeletedWhileAway deletes a virtual node whose provider swallows all packets.
func testNodeDeletedWhileAway(t *testing.T, w *world) {
	w.secondNode(t, "third", "far", 3)
	w.milan.Proxied().Drop()
	defer w.milan.Proxied().Pass()
	within(t, soon, "third is NotReady", func(ctx context.Context) error { return w.rome.WaitVirtualNode(ctx, "third", corev1.ConditionFalse) })
	begin := time.Now()
	require.NoError(t, w.rome.Liqod().OffloadingV1beta1().VirtualNodes(tenant).Delete(t.Context(), "third", metav1.DeleteOptions{}))
	vkubeletGoes(t, w.rome, drainTimeout+drainForceAfter+20*time.Second, tenant, "third")
	within(t, soon, "the virtual node is gone", w.virtualNodeGone("third"))
	t.Logf("virtual node with its provider away, gone after %s; the deadlines are %s and %s", time.Since(begin).Round(time.Millisecond), drainTimeout, drainForceAfter)
	w.nothingLeft(t, "third")
	w.milan.Proxied().Pass()
	within(t, soon, "milan is Ready", func(ctx context.Context) error { return w.rome.WaitVirtualNode(ctx, "milan", corev1.ConditionTrue) })
}

// testLastNodeDeleted deletes the only virtual node that a provider has left: what was
// offloaded through it goes.
func testLastNodeDeleted(t *testing.T, w *world) {
	begin := time.Now()
	require.NoError(t, w.rome.Liqod().OffloadingV1beta1().VirtualNodes(tenant).Delete(t.Context(), "milan", metav1.DeleteOptions{}))
	vkubeletGoes(t, w.rome, 30*time.Second, tenant, "milan")
	within(t, soon, "the virtual node is gone", w.virtualNodeGone("milan"))
	t.Logf("virtual node gone after %s", time.Since(begin).Round(time.Millisecond))
	w.nothingLeft(t, "milan")
	within(t, soon, "the namespace is told", w.offloadingIs("nodes", offloadingv1beta1.PhaseNoClusterSelected))
	within(t, soon, "its twin is gone", w.noTwin("nodes-rome"))
}

// testPeeringTakenDown goes on as docs/peering.md#connecting-two-clusters-by-hand ends. Neither side hears of the
// other: milan does not answer rome, and has never dialled it.
func testPeeringTakenDown(t *testing.T, w *world) {
	w.milan.Proxied().Drop()
	defer w.milan.Proxied().Pass()
	require.NoError(t, w.rome.Liqod().OffloadingV1beta1().NamespaceOffloadings("nodes").Delete(t.Context(), "offloading", metav1.DeleteOptions{}))
	takeDown(t, w.rome, "milan")
	w.milan.Proxied().Pass() // milan's own roles come this way, too; rome no longer knows it
	takeDown(t, w.milan, "rome")
	ns := kubetest.Get(t, w.rome.Client().CoreV1().Namespaces(), "nodes")
	require.NotContains(t, ns.Labels, offloadingv1beta1.SchedulingEnabledLabel)
}

// takeDown removes what a site knows of a peer, and wants nothing of it to be left.
func takeDown(t *testing.T, s *site.Site, peer string) {
	t.Helper()
	ctx, client := t.Context(), s.Client()
	require.NoError(t, s.Liqod().CoreV1beta1().ForeignClusters().Delete(ctx, peer, metav1.DeleteOptions{}))
	require.NoError(t, client.CoreV1().Namespaces().Delete(ctx, "liqo-tenant-"+peer, metav1.DeleteOptions{}))
	within(t, bounded, s.Name+" knows nothing of "+peer, func(ctx context.Context) error {
		mine := metav1.ListOptions{LabelSelector: "liqo.io/remote-cluster-id=" + peer}
		namespaces, err := client.CoreV1().Namespaces().List(ctx, mine)
		if err != nil {
			return err
		}
		bindings, err := client.RbacV1().RoleBindings("").List(ctx, mine)
		if err != nil {
			return err
		}
		cluster, err := client.RbacV1().ClusterRoleBindings().List(ctx, mine)
		if err != nil {
			return err
		}
		clusters, err := s.Liqod().CoreV1beta1().ForeignClusters().List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		n := []int{len(namespaces.Items), len(bindings.Items), len(cluster.Items), len(clusters.Items)}
		return lab.Wrong(nil, n[0]+n[1]+n[2]+n[3] > 0, "left: %d namespaces, %d bindings, %d cluster bindings, %d ForeignClusters: %+v", n[0], n[1], n[2], n[3], namespaces.Items)
	})
}
