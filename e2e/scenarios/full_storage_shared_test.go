package scenarios

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/kube/kubetest"
)

// fullSharedVolume: with a class of the provider whose volumes all of its nodes share, pods on two of them
// read what the other one has written, through one claim.
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
	kubetest.Create(t, claims, &claim)

	names := []string{"milan-1", "milan-2"}
	for i, node := range names {
		cordon(t, w.milan, true, names[1-i])
		spec := testSpec(1, "serve")
		spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim.Name}}}}
		spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
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

	for _, node := range names {
		require.NoError(t, w.rome.Client().CoreV1().Pods(namespace).Delete(t.Context(), node, metav1.DeleteOptions{}))
	}
	require.NoError(t, claims.Delete(t.Context(), claim.Name, metav1.DeleteOptions{}))
	within(t, longest, "the data goes with the claim", isGone(w.milan.Client().CoreV1().PersistentVolumes(), there.Spec.VolumeName))
}
