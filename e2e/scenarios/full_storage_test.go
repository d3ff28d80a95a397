package scenarios

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/e2e/site"
	"github.com/liqod/liqod/kube/kubetest"
)

// bytesFile is what pods write into their volume.
const bytesFile = "/data/bytes"

// servingSet is a StatefulSet of class liqo, of the test image's server.
func servingSet(name string, replicas int32) *appsv1.StatefulSet {
	set := statefulSet(name, replicas)
	mounts := set.Spec.Template.Spec.Containers[0].VolumeMounts
	set.Spec.Template.Spec = testSpec(1, "serve")
	set.Spec.Template.Spec.Containers[0].VolumeMounts = mounts
	return set
}

// fullStorage: what a pod of class liqo has written is there for the next pod of its claim, from
// volumes that kubelets mount. It goes with the claim.
func fullStorage(t *testing.T, w *fullWorld) {
	for _, c := range []*lab.Cluster{w.rome.Cluster, w.milan.Cluster} {
		require.NoError(t, w.full.ApplyStorage(t.Context(), c))
	}
	w.offersStorage(t, "milan", `[{"storageClassName":"`+lab.StorageClass+`"}]`)
	for _, test := range []struct {
		name     string
		strategy offloadingv1beta1.PodOffloadingStrategy
		replicas int32
	}{
		{"remote", offloadingv1beta1.PodsRemote, 2},
		{"both", offloadingv1beta1.PodsLocalAndRemote, 3},
	} {
		t.Run(test.name, func(t *testing.T) { testVolumes(t, w, "volumes-"+test.name, test.strategy, test.replicas) })
	}
	t.Run("every path", func(t *testing.T) { fullVolumePaths(t, w) })
	t.Run("two nodes", func(t *testing.T) { fullSharedVolume(t, w) })
}

// testVolumes runs a StatefulSet in a namespace. Under LocalAndRemote its pods are in both clusters.
// Each volume is where its pod is.
func testVolumes(t *testing.T, w *fullWorld, namespace string, strategy offloadingv1beta1.PodOffloadingStrategy, replicas int32) {
	w.offload(t, namespace, offloadingv1beta1.NamespaceOffloadingSpec{PodOffloadingStrategy: strategy})
	set := servingSet("db", replicas)
	if strategy == offloadingv1beta1.PodsLocalAndRemote {
		set.Spec.Template.Spec.TopologySpreadConstraints = overHosts(set.Spec.Selector)
	}
	kubetest.Create(t, w.rome.Client().AppsV1().StatefulSets(namespace), set)
	pods := map[string][]string{}
	for i := range replicas {
		pod := fmt.Sprintf("db-%d", i)
		w.keepsBytes(t, namespace, pod)
		cluster := "rome"
		if w.podOf(t, namespace, pod).Spec.NodeName == "milan" {
			cluster = "milan"
		}
		pods[cluster] = append(pods[cluster], pod)
	}
	want := map[string]int{}
	for cluster, there := range pods {
		want[cluster] = len(there)
	}
	require.Equal(t, want, w.volumeFolders(t))
	if strategy == offloadingv1beta1.PodsLocalAndRemote {
		require.Len(t, pods, 2, "pods of both clusters")
		w.waitsForData(t, namespace, pods["milan"][0])
	}
	if strategy == offloadingv1beta1.PodsRemote {
		w.bytesOutliveNode(t, namespace, "db-0")
	}

	require.NoError(t, w.rome.Client().AppsV1().StatefulSets(namespace).Delete(t.Context(), "db", metav1.DeleteOptions{}))
	for i := range replicas {
		require.NoError(t, w.rome.Client().CoreV1().PersistentVolumeClaims(namespace).Delete(t.Context(), fmt.Sprintf("data-db-%d", i), metav1.DeleteOptions{}))
	}
	within(t, time.Minute, "the data goes with the claims", func(ctx context.Context) error {
		if left := w.volumeFolders(t); len(left) > 0 {
			return fmt.Errorf("there are still %v", left)
		}
		return lab.Number(w.rome.Client().CoreV1().PersistentVolumes(), metav1.ListOptions{}, 0)(ctx)
	})
}

// keepsBytes writes into the volume of a pod of a StatefulSet, deletes the pod, and reads from
// the next one, on the same node.
func (w *fullWorld) keepsBytes(t *testing.T, namespace, name string) {
	t.Helper()
	within(t, time.Minute, name+" runs with its volume", w.podReady(namespace, name))
	before := w.podOf(t, namespace, name)
	require.NoError(t, second(w.rome.Exec(t.Context(), namespace, name, "write", bytesFile, "of", name, string(before.UID))))
	require.NoError(t, w.rome.Client().CoreV1().Pods(namespace).Delete(t.Context(), name, metav1.DeleteOptions{}))
	within(t, time.Minute, "another "+name+" runs", lab.Is(w.rome.Client().CoreV1().Pods(namespace), name, func(pod *corev1.Pod) bool {
		return podReady(pod) == corev1.ConditionTrue && pod.UID != before.UID
	}))
	read := must(w.rome.Exec(t.Context(), namespace, name, "cat", bytesFile))(t)
	require.Equal(t, fmt.Sprintf("of %s %s\n", name, before.UID), read)
	require.Equal(t, before.Spec.NodeName, w.podOf(t, namespace, name).Spec.NodeName)
}

// waitsForData cordons the virtual node, deletes a pod whose data is there, and requires that the next
// one waits and says for what, although home has room. It runs and has its bytes once the node is back.
func (w *fullWorld) waitsForData(t *testing.T, namespace, name string) {
	t.Helper()
	c := w.rome.Client().CoreV1()
	require.NoError(t, second(w.rome.Exec(t.Context(), namespace, name, "write", bytesFile, "before the cordon")))
	cordon(t, w.rome, true, "milan")
	require.NoError(t, c.Pods(namespace).Delete(t.Context(), name, metav1.DeleteOptions{}))
	within(t, time.Minute, name+" says what it waits for", w.says(w.rome, []string{"status", "-n", namespace}, 0, fmt.Sprintf(
		`PersistentVolumeClaim data-%s (class "liqo") has its data in cluster milan, whose virtual node milan is cordoned: the pod waits for it`, name)))
	require.Empty(t, w.podOf(t, namespace, name).Spec.NodeName)
	cordon(t, w.rome, false, "milan")
	within(t, time.Minute, name+" returns to its data", w.podReady(namespace, name))
	read := must(w.rome.Exec(t.Context(), namespace, name, "cat", bytesFile))(t)
	require.Equal(t, "before the cordon\n", read)
}

// bytesOutliveNode ends the provider's node of a pod as a power failure does, starts it again, and
// reads what the pod had written.
func (w *fullWorld) bytesOutliveNode(t *testing.T, namespace, name string) {
	t.Helper()
	require.NoError(t, second(w.rome.Exec(t.Context(), namespace, name, "write", bytesFile, "before the power failure")))
	there := kubetest.Get(t, w.milan.Client().CoreV1().Pods(namespace+"-rome"), name)
	node := w.full.Node(w.milan.Cluster, there.Spec.NodeName)
	require.NoError(t, node.Kill(t.Context()))
	require.NoError(t, node.Start(t.Context()))
	within(t, 2*time.Minute, name+" has its bytes after the power failure of "+node.Name, w.hasWritten(namespace, name, "before the power failure"))
}

// hasWritten returns a condition: a pod is Ready, and its volume has the bytes.
func (w *world) hasWritten(namespace, name, bytes string) func(context.Context) error {
	return lab.Together(w.podReady(namespace, name), func(ctx context.Context) error {
		read, err := w.rome.Exec(ctx, namespace, name, "cat", bytesFile)
		return lab.Wrong(err, read != bytes+"\n", "it reads %q", read)
	})
}

func (w *fullWorld) podOf(t *testing.T, namespace, name string) *corev1.Pod {
	t.Helper()
	return kubetest.Get(t, w.rome.Client().CoreV1().Pods(namespace), name)
}

// volumeFolders returns how many volumes are on the nodes of each cluster that has some.
func (w *fullWorld) volumeFolders(t *testing.T) map[string]int {
	t.Helper()
	out := map[string]int{}
	for _, s := range []*site.Site{w.rome, w.milan} {
		for _, n := range w.full.Nodes(s.Cluster) {
			entries := must(os.ReadDir(n.Volumes()))(t)
			if len(entries) > 0 {
				out[s.Name] += len(entries)
			}
		}
	}
	return out
}

// fullSharedVolume: with a class of the provider whose volumes all of its nodes share, pods on two of them
// read what the other one has written, through one claim. An event at home reports its volume.
func fullSharedVolume(t *testing.T, w *fullWorld) {
	const namespace = "both-nodes"
	kubetest.Create(t, w.milan.Client().StorageV1().StorageClasses(), &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: lab.SharedStorageClass}, Provisioner: lab.StorageProvisioner,
		VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer),
	})
	w.offersStorage(t, "milan", `[{"storageClassName":"`+lab.StorageClass+`"},{"storageClassName":"`+lab.SharedStorageClass+`"}]`)
	w.offload(t, namespace, offloadingv1beta1.NamespaceOffloadingSpec{})
	claim := statefulSet("x", 1).Spec.VolumeClaimTemplates[0]
	claim.Annotations = map[string]string{offloadingv1beta1.RemoteStorageClassAnnotation: lab.SharedStorageClass}
	claim.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}
	claims := w.rome.Client().CoreV1().PersistentVolumeClaims(namespace)
	local := kubetest.Create(t, claims, &claim)

	names := []string{"milan-1", "milan-2"}
	for i, node := range names {
		cordon(t, w.milan, true, names[1-i])
		spec := testSpec(1, "serve")
		mountsClaim(&spec, claim.Name)
		kubetest.Create(t, w.rome.Client().CoreV1().Pods(namespace), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: node}, Spec: spec})
		within(t, longest, "a pod runs on "+node, w.podReady(namespace, node))
		there := kubetest.Get(t, w.milan.Client().CoreV1().Pods(namespace+"-rome"), node)
		require.Equal(t, node, there.Spec.NodeName)
		cordon(t, w.milan, false, names[1-i])
	}
	for i, node := range names {
		require.NoError(t, second(w.rome.Exec(t.Context(), namespace, node, "write", "/data/"+node, "of", node)))
		read := must(w.rome.Exec(t.Context(), namespace, names[1-i], "cat", "/data/"+node))(t)
		require.Equal(t, fmt.Sprintf("of %s\n", node), read, "on %s", names[1-i])
	}
	there := kubetest.Get(t, w.milan.Client().CoreV1().PersistentVolumeClaims(namespace+"-rome"), claim.Name)
	require.Equal(t, []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}, there.Status.AccessModes)
	within(t, time.Minute, "what the provisioner reports of the claim is told", w.told(local, "ProvisioningSucceeded"))

	for _, node := range names {
		require.NoError(t, w.rome.Client().CoreV1().Pods(namespace).Delete(t.Context(), node, metav1.DeleteOptions{}))
	}
	require.NoError(t, claims.Delete(t.Context(), claim.Name, metav1.DeleteOptions{}))
	within(t, longest, "the data goes with the claim", isGone(w.milan.Client().CoreV1().PersistentVolumes(), there.Spec.VolumeName))
}
