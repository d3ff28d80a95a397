package scenarios

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/liqod/liqod/e2e/site"
	"github.com/liqod/liqod/kube/kubetest"
)

// testClaims: generic ephemeral volumes and claims are carried by name: each cluster has
// its own claim. Those of ephemeral volumes each cluster makes itself, from the template.
func testClaims(t *testing.T, w *world) {
	c := w.fixture(t, "claims")
	block := corev1.PersistentVolumeBlock
	template := corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: ptr.To("by-hand"),
		Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
	}
	device := *template.DeepCopy()
	device.VolumeMode = &block
	kubetest.Create(t, w.milan.Client().StorageV1().StorageClasses(), &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: "by-hand"}, Provisioner: "x.example.org"})
	// As an administrator would, without reflection of claims and without a provisioner.
	for s, namespace := range map[*site.Site]string{w.rome: c.namespace, w.milan: c.twin} {
		for name, mode := range map[string]*corev1.PersistentVolumeMode{"scratch": nil, "device": &block} {
			kubetest.Create(t, s.Client().CoreV1().PersistentVolumes(), &corev1.PersistentVolume{
				ObjectMeta: metav1.ObjectMeta{Name: name},
				Spec: corev1.PersistentVolumeSpec{
					AccessModes: template.AccessModes, StorageClassName: "by-hand", VolumeMode: mode, Capacity: template.Resources.Requests,
					PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "x.example.org", VolumeHandle: name}},
				},
			})
		}
		kubetest.Create(t, s.Client().CoreV1().PersistentVolumeClaims(namespace), &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "device"}, Spec: device})
	}
	pod := bare("web", corev1.RestartPolicyAlways)
	pod.Spec.Volumes = []corev1.Volume{
		{Name: "scratch", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{Spec: template}}}},
		{Name: "device", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "device"}}},
	}
	pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "scratch", MountPath: "/scratch"}}
	pod.Spec.Containers[0].VolumeDevices = []corev1.VolumeDevice{{Name: "device", DevicePath: "/dev/x"}}
	c.create(t, pod)
	local := c.untilLocal(t, 30*time.Second, "web", "runs", podRunning)
	remote := c.remote(t, "web")
	require.Equal(t, local.Spec.Volumes[:2], remote.Spec.Volumes[:2])
	require.Equal(t, local.Spec.Containers[0].VolumeDevices, remote.Spec.Containers[0].VolumeDevices)
	for s, owner := range map[*site.Site]*corev1.Pod{w.rome: local, w.milan: remote} {
		claim := kubetest.Get(t, s.Client().CoreV1().PersistentVolumeClaims(owner.Namespace), "web-scratch")
		require.Equal(t, corev1.ClaimBound, claim.Status.Phase)
		require.Equal(t, owner.UID, metav1.GetControllerOf(claim).UID, "in %s it goes with the pod of %s", s.Name, s.Name)
	}
	c.deleteAll(t)
}
