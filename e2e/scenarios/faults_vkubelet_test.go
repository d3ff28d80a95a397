package scenarios

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/e2e/site"
	"github.com/liqod/liqod/kube/kubetest"
)

// takeOver is the lab's lease of 4 s, which a new process waits out, and what is granted.
const takeOver = 4*time.Second + promptly

func testFaultsVKubelet(t *testing.T, w *world) {
	w.scale(t, "shop", "web", 10)
	within(t, longest, "Deployment scaled", w.available("web", "shop", 10))
	within(t, longest, "pods at home Ready=True", w.ready("shop", corev1.ConditionTrue))
	t.Run("killed", func(t *testing.T) { testVKubeletKilled(t, w) })
	t.Run("two replicas", func(t *testing.T) { testTwoReplicas(t, w) })
	t.Run("started while the provider is away", func(t *testing.T) { testStartedAlone(t, w) })
}

func testVKubeletKilled(t *testing.T, w *world) {
	remote, home := w.versions(t, w.milan.Cluster, "shop-rome"), w.statuses(t, "shop")
	vk := w.rome.VKubelet("milan")
	begin := time.Now()
	(*vk).Kill()
	// The Lease of the node lasts 4 s, the controller manager's grace is 6 s and its period 1 s.
	by(t, begin, 12*time.Second, "node Unknown", w.node("milan", corev1.ConditionUnknown))
	by(t, begin, 12*time.Second, "pods at home Ready=False", w.ready("shop", corev1.ConditionFalse))
	hold(t, outage(), "node Unknown", w.node("milan", corev1.ConditionUnknown))
	require.Equal(t, remote, w.versions(t, w.milan.Cluster, "shop-rome"))

	begin = time.Now()
	require.NoError(t, w.sites.Restart(vk))
	by(t, begin, takeOver, "node Ready", w.node("milan", corev1.ConditionTrue))
	by(t, begin, takeOver, "pods at home Ready=True", w.ready("shop", corev1.ConditionTrue))
	hold(t, time.Until(begin.Add(15*time.Second)), "pods at home Ready=True", w.ready("shop", corev1.ConditionTrue))
	require.Equal(t, remote, w.versions(t, w.milan.Cluster, "shop-rome"))
	require.Equal(t, home, w.statuses(t, "shop"))
	require.Empty(t, writes(t, w.milan.Cluster, peer, begin))
	ours := podWrites(writes(t, w.rome.Cluster, vkubelet, begin))
	for _, write := range ours {
		require.True(t, strings.HasPrefix(write, "patch pods/status shop/"), write)
	}
	require.Len(t, ours, len(home), "one write each: %v", ours)
}

func podWrites(all []string) []string {
	return slices.DeleteFunc(all, func(s string) bool { return !strings.Contains(s, " pods") })
}

// versions returns UID and resource version of the pods of a namespace.
func (w *world) versions(t *testing.T, c *lab.Cluster, namespace string) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, pod := range kubetest.List(t, c.Client().CoreV1().Pods(namespace)).Items {
		out[pod.Name] = fmt.Sprintf("%s %s", pod.UID, pod.ResourceVersion)
	}
	return out
}

// statuses returns the pods' status at home, without the times of its transitions.
func (w *world) statuses(t *testing.T, namespace string) map[string]corev1.PodStatus {
	t.Helper()
	out := map[string]corev1.PodStatus{}
	for _, pod := range kubetest.List(t, w.rome.Client().CoreV1().Pods(namespace)).Items {
		for i := range pod.Status.Conditions {
			pod.Status.Conditions[i].LastTransitionTime = metav1.Time{}
		}
		slices.SortFunc(pod.Status.Conditions, func(a, b corev1.PodCondition) int { return strings.Compare(string(a.Type), string(b.Type)) })
		out[pod.Name] = pod.Status
	}
	return out
}

// testTwoReplicas kills and pauses the active one of two replicas.
func testTwoReplicas(t *testing.T, w *world) {
	first := w.rome.VKubelet("milan")
	second := w.secondReplica(t)
	before := lives(t, w.milan.Cluster, "shop-rome")
	begin := time.Now()
	by(t, begin, promptly, "the first is active", w.served(t, *first))

	begin = time.Now()
	(*first).Kill()
	w.scale(t, "shop", "web", 15)
	by(t, begin, takeOver, "the second has taken over", w.served(t, second))
	by(t, begin, takeOver+promptly, "Deployment scaled", w.available("web", "shop", 15))
	requireLiving(t, before, lives(t, w.milan.Cluster, "shop-rome"))
	require.NoError(t, w.sites.Restart(first))

	before = lives(t, w.milan.Cluster, "shop-rome")
	begin = time.Now()
	second.Pause()
	by(t, begin, takeOver, "the first has taken over", w.served(t, *first))
	w.scale(t, "shop", "web", 20)
	by(t, begin, takeOver+promptly, "Deployment scaled", w.available("web", "shop", 20))
	by(t, begin, takeOver+promptly, "node Ready", w.node("milan", corev1.ConditionTrue))
	settled := time.Now()
	second.Resume()
	hold(t, time.Until(settled.Add(10*time.Second)), "the first stays", w.served(t, *first))
	requireLiving(t, before, lives(t, w.milan.Cluster, "shop-rome"))
	require.Empty(t, writes(t, w.milan.Cluster, peer, settled))
	require.Empty(t, podWrites(writes(t, w.rome.Cluster, vkubelet, settled)))
	requireOnce(t, writes(t, w.milan.Cluster, peer, begin), "create shadowpods", 5)
	// What the other one can do is not lost: it takes over again.
	begin = time.Now()
	(*first).Kill()
	by(t, begin, takeOver, "the second has taken over again", w.served(t, second))
	w.scale(t, "shop", "web", 10)
	by(t, begin, takeOver+promptly, "Deployment scaled", w.available("web", "shop", 10))
	require.NoError(t, second.Stop(t.Context(), 10*time.Second))
	begin = time.Now()
	require.NoError(t, w.sites.Restart(first))
	by(t, begin, promptly, "the first is back", w.served(t, *first))
}

// requireOnce requires n different writes of one kind, each sent once and accepted.
func requireOnce(t *testing.T, all []string, prefix string, n int) {
	t.Helper()
	all = slices.DeleteFunc(all, func(s string) bool { return !strings.HasPrefix(s, prefix) })
	slices.Sort(all)
	require.Len(t, slices.Compact(slices.Clone(all)), n, "%v", all)
	require.Len(t, all, n, "%v", all)
	for _, write := range all {
		require.True(t, strings.HasSuffix(write, ": 201"), write)
	}
}

// secondReplica starts another process for the virtual node.
func (w *world) secondReplica(t *testing.T) *lab.Process {
	t.Helper()
	return must(w.sites.Replica(*w.rome.VKubelet("milan"), "-2"))(t)
}

// served looks whether a process is the active one: the Node names its port.
func (w *world) served(t *testing.T, p *lab.Process) func(context.Context) error {
	t.Helper()
	return lab.That(w.rome.Client().CoreV1().Nodes(), "milan", func(n *corev1.Node) error {
		port := n.Status.DaemonEndpoints.KubeletEndpoint.Port
		return lab.Wrong(nil, !slices.Contains(p.Options.Args, fmt.Sprintf("--vkubelet.listenAddress=127.0.0.1:%d", port)), "the node's port is %d, not that of %s", port, p.Name)
	})
}

// testStartedAlone adds a virtual node while its provider cannot be reached.
func testStartedAlone(t *testing.T, w *world) {
	w.milan.Proxied().Drop()
	defer w.milan.Proxied().Pass()
	added := make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), longest)
	defer cancel()
	begin := time.Now()
	go func() { added <- w.rome.AddVirtualNode(ctx, w.milan, site.PeerOptions{Node: "milan-b"}) }()
	by(t, begin, 15*time.Second, "node created, NotReady", w.node("milan-b", corev1.ConditionFalse))
	hold(t, outage(), "node NotReady", w.node("milan-b", corev1.ConditionFalse))
	n := kubetest.Get(t, w.rome.Client().CoreV1().Nodes(), "milan-b")
	t.Logf("%s: %s", readyOf(n).Reason, readyOf(n).Message)

	w.milan.Proxied().Pass()
	begin = time.Now()
	by(t, begin, promptly, "node Ready", w.node("milan-b", corev1.ConditionTrue))
	require.NoError(t, <-added)
	by(t, begin, promptly, "the other node Ready", w.node("milan", corev1.ConditionTrue))
}
