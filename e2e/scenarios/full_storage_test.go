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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/e2e/lab"
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
	w.offload(t, "volumes", offloadingv1beta1.NamespaceOffloadingSpec{PodOffloadingStrategy: offloadingv1beta1.PodsRemote})
	_, err := w.rome.Client().AppsV1().StatefulSets("volumes").Create(t.Context(), servingSet("db", 2), metav1.CreateOptions{})
	require.NoError(t, err)
	for _, pod := range []string{"db-0", "db-1"} {
		w.keepsBytes(t, "volumes", pod)
	}
	require.Len(t, w.volumeFolders(t, w.milan.Cluster), 2)

	require.NoError(t, w.rome.Client().AppsV1().StatefulSets("volumes").Delete(t.Context(), "db", metav1.DeleteOptions{}))
	for _, claim := range []string{"data-db-0", "data-db-1"} {
		require.NoError(t, w.rome.Client().CoreV1().PersistentVolumeClaims("volumes").Delete(t.Context(), claim, metav1.DeleteOptions{}))
	}
	within(t, time.Minute, "the data goes with the claims", func(context.Context) error {
		if left := w.volumeFolders(t, w.milan.Cluster); len(left) > 0 {
			return fmt.Errorf("milan has %v", left)
		}
		return nil
	})
}

// keepsBytes writes into the volume of a pod of a StatefulSet, deletes the pod, and reads from
// the next one, on the same node.
func (w *fullWorld) keepsBytes(t *testing.T, namespace, name string) {
	t.Helper()
	within(t, time.Minute, name+" runs with its volume", w.ready(namespace, name))
	before := w.podOf(t, namespace, name)
	_, err := w.rome.Exec(t.Context(), namespace, name, "write", bytesFile, "of", name, string(before.UID))
	require.NoError(t, err)
	require.NoError(t, w.rome.Client().CoreV1().Pods(namespace).Delete(t.Context(), name, metav1.DeleteOptions{}))
	within(t, time.Minute, "another "+name+" runs", func(ctx context.Context) error {
		if err := w.ready(namespace, name)(ctx); err != nil {
			return err
		}
		pod, err := w.rome.Client().CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if pod.UID == before.UID {
			return fmt.Errorf("it is the same")
		}
		return nil
	})
	read, err := w.rome.Exec(t.Context(), namespace, name, "cat", bytesFile)
	require.NoError(t, err)
	require.Equal(t, fmt.Sprintf("of %s %s\n", name, before.UID), read)
	require.Equal(t, before.Spec.NodeName, w.podOf(t, namespace, name).Spec.NodeName)
}

func (w *fullWorld) podOf(t *testing.T, namespace, name string) *corev1.Pod {
	t.Helper()
	pod, err := w.rome.Client().CoreV1().Pods(namespace).Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)
	return pod
}

// volumeFolders are the volumes on the nodes of a cluster.
func (w *fullWorld) volumeFolders(t *testing.T, c *lab.Cluster) []string {
	t.Helper()
	var out []string
	for _, n := range w.full.Nodes(c) {
		entries, err := os.ReadDir(n.Volumes())
		require.NoError(t, err)
		for _, e := range entries {
			out = append(out, n.Name+"/"+e.Name())
		}
	}
	return out
}
