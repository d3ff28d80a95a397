package scenarios

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/kube/kubetest"
)

func TestFaultsProvider(t *testing.T) {
	w := newAdjustedWorld(t, steadyNodes("milan"))
	w.deploy(t, "shop", 5)
	t.Run("one failed request in ten", func(t *testing.T) { testFailedProbes(t, w) })
	t.Run("replaced", func(t *testing.T) { testReplaced(t, w) })
	t.Run("emptied", func(t *testing.T) { testEmptied(t, w, 7) })
	replicas := int32(8)
	for _, f := range faults() {
		length := outage()
		if f.name == "cut off" {
			length = longOutage()
		}
		replicas++
		t.Run(f.name, func(t *testing.T) { testProviderAway(t, w, f, length, replicas) })
	}
}

// testProviderAway scales a Deployment while the provider's API server is away.
func testProviderAway(t *testing.T, w *world, f fault, length time.Duration, replicas int32) {
	before := lives(t, w.milan.Cluster, "shop-rome")
	require.Len(t, before, int(replicas)-1)
	begin := time.Now()
	f.strike(w.milan.Cluster)
	by(t, begin, promptly, "node NotReady", w.node("milan", corev1.ConditionFalse, "RemoteAPIServerNotReady"))
	by(t, begin, promptly, "pods at home Ready=False", w.ready("shop", corev1.ConditionFalse))
	w.scale(t, "shop", "web", replicas-1) // there is a bare pod too
	hold(t, time.Until(begin.Add(length)), "node NotReady", w.node("milan", corev1.ConditionFalse, "RemoteAPIServerNotReady"))

	require.NoError(t, f.heal(t.Context(), w.milan.Cluster))
	begin = time.Now()
	by(t, begin, promptly, "node Ready", w.node("milan", corev1.ConditionTrue))
	by(t, begin, promptly, "pod of the outage created", w.bound(w.milan.Cluster, "shop-rome", int(replicas), false))
	by(t, begin, promptly, "pods at home Ready=True", func(ctx context.Context) error {
		for name := range before {
			if err := w.podReady("shop", name)(ctx); err != nil {
				return err
			}
		}
		return nil
	})
	if !f.aside {
		// The provider's own scheduler has lost its API server too, and takes its time.
		within(t, 2*time.Minute, "pod of the outage scheduled there", w.bound(w.milan.Cluster, "shop-rome", int(replicas), true))
		begin = time.Now()
	}
	if !f.nodesLate {
		by(t, begin, promptly, "Deployment scaled", w.available("web", "shop", replicas-1))
	}
	hold(t, 3*time.Second, "node Ready", w.node("milan", corev1.ConditionTrue))
	requireLiving(t, before, lives(t, w.milan.Cluster, "shop-rome"))
}

// testFailedProbes lets single requests to the provider fail, probes among them.
func testFailedProbes(t *testing.T, w *world) {
	before := lives(t, w.milan.Cluster, "shop-rome")
	seen := w.transitions(t, "milan")
	_, failedBefore := w.milan.Proxied().Requests()
	w.milan.Proxied().FailEvery(10)
	hold(t, 40*time.Second, "pods at home Ready", w.ready("shop", corev1.ConditionTrue))
	w.milan.Proxied().Pass()
	_, failed := w.milan.Proxied().Requests()
	t.Logf("%d requests failed", failed-failedBefore)
	require.Equal(t, []corev1.ConditionStatus{corev1.ConditionTrue}, seen())
	requireLiving(t, before, lives(t, w.milan.Cluster, "shop-rome"))
}

// testReplaced lets another cluster, where the same rights are granted, answer instead.
func testReplaced(t *testing.T, w *world) {
	turin, kubeconfig := w.impostor(t)
	before := lives(t, w.milan.Cluster, "shop-rome")
	secrets := w.rome.Client().CoreV1().Secrets("liqo-tenant-milan")
	secret := kubetest.Get(t, secrets, "milan")
	right := secret.Data[corev1beta1.KubeconfigSecretKey]
	replace := func(data []byte) time.Time {
		patch := fmt.Appendf(nil, `{"stringData":{%q:%q}}`, corev1beta1.KubeconfigSecretKey, data)
		kubetest.Patch(t, secrets, "milan", types.MergePatchType, patch)
		return time.Now()
	}
	begin := replace(kubeconfig)
	by(t, begin, promptly, "node NotReady", w.node("milan", corev1.ConditionFalse, corev1beta1.ReasonClusterReplaced))
	by(t, begin, promptly, "ForeignCluster says so", peerSays(w.rome, "milan", corev1beta1.ConditionAPIServer, metav1.ConditionFalse, corev1beta1.ReasonClusterReplaced))
	replicas := int32(len(before) + 1)
	w.scale(t, "shop", "web", replicas)
	kubetest.Create(t, w.rome.Client().CoreV1().Pods("shop"), boundPod("lost"))
	hold(t, time.Until(begin.Add(15*time.Second)), "node NotReady", w.node("milan", corev1.ConditionFalse, corev1beta1.ReasonClusterReplaced))
	require.Empty(t, writes(t, turin, peer, time.Time{}))

	begin = replace(right)
	by(t, begin, promptly, "node Ready", w.node("milan", corev1.ConditionTrue))
	by(t, begin, promptly, "ForeignCluster says so", peerSays(w.rome, "milan", corev1beta1.ConditionAPIServer, metav1.ConditionTrue, corev1beta1.ReasonAPIServerReady))
	by(t, begin, promptly, "pod of that time runs", w.podReady("shop", "lost"))
	by(t, begin, promptly, "Deployment scaled", w.available("web", "shop", replicas))
	requireLiving(t, before, lives(t, w.milan.Cluster, "shop-rome"))
	require.Empty(t, writes(t, turin, peer, time.Time{}))
}

// impostor starts a third cluster with liqod that grants rome all that milan does, and
// returns rome's credentials there.
func (w *world) impostor(t *testing.T) (*lab.Cluster, []byte) {
	t.Helper()
	turin, err := w.sites.Lab.Start(t.Context(), lab.ClusterOptions{
		Name: "turin", SimulatedNodes: 1, Audit: true, PodCIDR: "10.120.0.0/16", ServiceCIDR: "10.121.0.0/16",
	})
	require.NoError(t, err)
	_, err = w.sites.Install(t.Context(), turin)
	require.NoError(t, err)
	require.NoError(t, turin.Apply(t.Context(), []byte(fmt.Sprintf(grants, peer))))
	kubeconfig := must(turin.KubeconfigData(t.Context(), lab.Access{Namespace: "liqo-tenant-rome", ServiceAccount: "peer-1", Proxied: true}))(t)
	return turin, []byte(strings.TrimSpace(string(kubeconfig)))
}

const grants = `
apiVersion: v1
kind: Namespace
metadata:
  name: liqo-tenant-rome
  labels: {liqo.io/remote-cluster-id: rome, liqo.io/tenant-namespace: "true"}
---
apiVersion: v1
kind: Namespace
metadata: {name: shop-rome}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: peer-1, namespace: liqo-tenant-rome}
---
apiVersion: core.liqo.io/v1beta1
kind: ForeignCluster
metadata: {name: rome}
spec: {clusterID: rome, userName: %q}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: peer, namespace: shop-rome}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: liqod-peer-twin}
subjects: [{kind: ServiceAccount, name: peer-1, namespace: liqo-tenant-rome}]
`

// testEmptied starts the provider with an empty etcd at its old address, and then with
// its own again.
func testEmptied(t *testing.T, w *world, replicas int32) {
	before, home := lives(t, w.milan.Cluster, "shop-rome"), lives(t, w.rome.Cluster, "shop")
	data, aside := filepath.Join(w.milan.Dir, "etcd"), filepath.Join(w.milan.Dir, "etcd-aside")
	begin := time.Now()
	w.milan.KillControlPlane()
	by(t, begin, promptly, "node NotReady", w.node("milan", corev1.ConditionFalse))
	require.NoError(t, os.Rename(data, aside))
	require.NoError(t, w.milan.StartControlPlane(t.Context()))
	hold(t, 15*time.Second, "node NotReady", w.node("milan", corev1.ConditionFalse))
	require.Equal(t, home, lives(t, w.rome.Cluster, "shop"))

	w.milan.KillControlPlane()
	require.NoError(t, os.RemoveAll(data))
	require.NoError(t, os.Rename(aside, data))
	require.NoError(t, w.milan.StartControlPlane(t.Context()))
	begin = time.Now()
	by(t, begin, promptly, "node Ready", w.node("milan", corev1.ConditionTrue))
	by(t, begin, promptly, "pods at home Ready=True", w.ready("shop", corev1.ConditionTrue))
	requireLiving(t, before, lives(t, w.milan.Cluster, "shop-rome"))
	w.scale(t, "shop", "web", replicas)
	// Roles whose credentials were refused ask again less and less often.
	within(t, time.Minute, "Deployment scaled", w.available("web", "shop", replicas))
	requireLiving(t, home, lives(t, w.rome.Cluster, "shop"))
}

// TestFaultsHome strikes the consumer: its API server, and its vkubelet.
func TestFaultsHome(t *testing.T) {
	w := newAdjustedWorld(t, steadyNodes("milan"))
	w.deploy(t, "shop", 5)
	t.Run("consumer", func(t *testing.T) {
		for i, f := range faults() {
			t.Run(f.name, func(t *testing.T) { testConsumerAway(t, w, f, 5+int32(i)) })
		}
	})
	t.Run("vkubelet", func(t *testing.T) { testFaultsVKubelet(t, w) })
}

// testConsumerAway loses a pod in the provider while the consumer's API server is away,
// and changes what is asked for: before the end for those who can, and right after.
func testConsumerAway(t *testing.T, w *world, f fault, replicas int32) {
	w.createPod(t, "shop", boundPod("leaver"))
	within(t, 20*time.Second, "a bare pod runs", w.podReady("shop", "leaver"))
	before := lives(t, w.milan.Cluster, "shop-rome")
	require.Len(t, before, int(replicas)+1)
	delete(before, "leaver")
	lost := slices.Sorted(maps.Keys(before))[0]

	f.strike(w.rome.Cluster)
	require.NoError(t, w.milan.Client().CoreV1().Pods("shop-rome").Delete(t.Context(), lost, metav1.DeleteOptions{}))
	by(t, time.Now(), 2*promptly, "pod lost in the provider runs again", w.succeeded(before[lost], lost))
	delete(before, lost)
	if f.aside {
		w.scale(t, "shop", "web", replicas+1)
		require.NoError(t, w.rome.Client().CoreV1().Pods("shop").Delete(t.Context(), "leaver", metav1.DeleteOptions{}))
	}
	hold(t, outage(), "nothing stops in the provider", lab.All(w.milan.Client().CoreV1().Pods("shop-rome"), metav1.ListOptions{}, func(pod *corev1.Pod) bool {
		return podReady(pod) == corev1.ConditionTrue && pod.DeletionTimestamp == nil
	}))

	require.NoError(t, f.heal(t.Context(), w.rome.Cluster))
	begin := time.Now()
	if !f.aside {
		w.scale(t, "shop", "web", replicas+1)
		require.NoError(t, w.rome.Client().CoreV1().Pods("shop").Delete(t.Context(), "leaver", metav1.DeleteOptions{}))
	}
	w.createPod(t, "shop", boundPod("joiner"))
	testCaughtUp(t, w, f, begin, replicas+1)
	hold(t, 3*time.Second, "node Ready", w.node("milan", corev1.ConditionTrue))
	require.NoError(t, w.ready("shop", corev1.ConditionTrue)(t.Context()))
	requireLiving(t, before, lives(t, w.milan.Cluster, "shop-rome"))
	require.NoError(t, w.rome.Client().CoreV1().Pods("shop").Delete(t.Context(), "joiner", metav1.DeleteOptions{}))
	within(t, 20*time.Second, "the other bare pod is gone too", w.podGone("shop", "joiner"))
}

func testCaughtUp(t *testing.T, w *world, f fault, begin time.Time, replicas int32) {
	t.Helper()
	by(t, begin, promptly, "node Ready", w.node("milan", corev1.ConditionTrue))
	by(t, begin, promptly, "pod of the outage gone", w.podGone("shop", "leaver"))
	by(t, begin, promptly, "pod bound after the outage runs", w.podReady("shop", "joiner"))
	by(t, begin, promptly, "pods at home Ready=True", w.ready("shop", corev1.ConditionTrue))
	if !f.aside {
		// The consumer's own controller manager has lost its API server too, and takes its time.
		within(t, 2*time.Minute, "pods of the Deployment scheduled", w.bound(w.rome.Cluster, "shop", int(replicas)+1, true)) // and the joiner
		begin = time.Now()
	}
	by(t, begin, promptly, "Deployment scaled", w.available("web", "shop", replicas))
}

// succeeded looks in the provider for the pod that follows a lost one.
func (w *world) succeeded(lost life, name string) func(context.Context) error {
	return lab.Is(w.milan.Client().CoreV1().Pods("shop-rome"), name, func(pod *corev1.Pod) bool {
		return pod.UID != lost.UID && podReady(pod) == corev1.ConditionTrue
	})
}

func (w *world) createPod(t *testing.T, namespace string, pod *corev1.Pod) {
	t.Helper()
	within(t, 20*time.Second, "a pod is taken", lab.Creates(w.rome.Client().CoreV1().Pods(namespace), pod))
}

// podGone looks for a pod in both clusters.
func (w *world) podGone(namespace, name string) func(context.Context) error {
	return lab.Together(isGone(w.rome.Client().CoreV1().Pods(namespace), name), isGone(w.milan.Client().CoreV1().Pods(namespace+"-rome"), name))
}
