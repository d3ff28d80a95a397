package scenarios

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/kube/kubetest"
)

// onVirtualNodes is a pod of the offloaded namespace with a volume.
func onVirtualNodes(name string, source corev1.VolumeSource) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: podSpec("sim/web:1")}
	pod.Spec.NodeSelector = map[string]string{"liqo.io/type": "virtual-node"}
	pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
	pod.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: source}}
	return pod
}

// testEphemeralVolume: a pod's own claim is carried as any other, and its data goes with
// the pod.
func testEphemeralVolume(t *testing.T, w *world) {
	pods := w.rome.Client().CoreV1().Pods("disks")
	template := statefulSet("x", 1).Spec.VolumeClaimTemplates[0]
	kubetest.Create(t, pods, onVirtualNodes("scratch", corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{
		VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{Spec: template.Spec},
	}}))
	within(t, 30*time.Second, "it runs with its volume", w.podReady("disks", "scratch"))
	w.requireVolume(t, "disks", "disks-rome", "scratch-data")
	there := kubetest.Get(t, w.milan.Client().CoreV1().Pods("disks-rome"), "scratch")
	require.Equal(t, "scratch-data", there.Spec.Volumes[0].PersistentVolumeClaim.ClaimName)

	claim := kubetest.Get(t, w.rome.Client().CoreV1().PersistentVolumeClaims("disks"), "scratch-data")
	require.NoError(t, pods.Delete(t.Context(), "scratch", metav1.DeleteOptions{}))
	within(t, 30*time.Second, "its data goes with the pod", w.dataGone("disks-rome", claim))
}

// testDataOfAnother: a pod whose claim is bound otherwise does not get what an earlier
// claim of the name has left in the provider.
func testDataOfAnother(t *testing.T, w *world) {
	pods, volumes, claims := w.rome.Client().CoreV1().Pods("disks"), w.rome.Client().CoreV1().PersistentVolumes(), w.rome.Client().CoreV1().PersistentVolumeClaims("disks")
	source := corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "reused"}}
	w.chosenClaim(t, "reused")
	kubetest.Create(t, pods, onVirtualNodes("user", source))
	within(t, 30*time.Second, "a pod writes its data", w.podReady("disks", "user"))
	require.NoError(t, pods.Delete(t.Context(), "user", metav1.DeleteOptions{}))
	earlier := w.claimUID(t, "disks-rome", "reused")
	claim := kubetest.Get(t, claims, "reused")
	kubetest.Patch(t, volumes, claim.Spec.VolumeName, types.MergePatchType, []byte(`{"spec":{"persistentVolumeReclaimPolicy":"Retain"}}`))
	require.NoError(t, claims.Delete(t.Context(), "reused", metav1.DeleteOptions{}))
	within(t, 30*time.Second, "the claim is gone here", isGone(claims, "reused"))

	template := statefulSet("x", 1).Spec.VolumeClaimTemplates[0]
	class := "by-hand"
	kubetest.Create(t, volumes, &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "by-hand-reused"},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: template.Spec.Resources.Requests, AccessModes: template.Spec.AccessModes, StorageClassName: class,
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			PersistentVolumeSource:        corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/by-hand"}},
		},
	})
	template.Name, template.Spec.StorageClassName = "reused", &class
	kubetest.Create(t, claims, &template)
	kubetest.Create(t, pods, onVirtualNodes("reuser", source))
	within(t, 30*time.Second, "it says what it waits for", lab.Is(pods, "reuser", func(have *corev1.Pod) bool {
		return strings.Contains(have.Status.String(), "RemoteVolumeTaken")
	}))
	require.NoError(t, absent(w.milan.Client().CoreV1().Pods("disks-rome").Get(t.Context(), "reuser", metav1.GetOptions{})))
	require.Equal(t, earlier, w.claimUID(t, "disks-rome", "reused"))

	require.NoError(t, w.milan.Client().CoreV1().PersistentVolumeClaims("disks-rome").Delete(t.Context(), "reused", metav1.DeleteOptions{}))
	within(t, 30*time.Second, "it goes out when the name is free", lab.Exists(w.milan.Client().CoreV1().Pods("disks-rome"), "reuser"))
	require.NoError(t, pods.Delete(t.Context(), "reuser", metav1.DeleteOptions{}))
	require.NoError(t, claims.Delete(t.Context(), "reused", metav1.DeleteOptions{}))
}
