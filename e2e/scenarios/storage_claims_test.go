package scenarios

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/kube/kubetest"
)

// selectedNode is the annotation by which the scheduler gives a claim the node of its first pod.
const selectedNode = "volume.kubernetes.io/selected-node"

// chosenClaim makes a claim, for whose pod the scheduler has chosen the virtual node.
func (w *world) chosenClaim(t *testing.T, name string) *corev1.PersistentVolumeClaim {
	t.Helper()
	claim := statefulSet("x", 1).Spec.VolumeClaimTemplates[0]
	claim.Name = name
	claims := w.rome.Client().CoreV1().PersistentVolumeClaims("disks")
	kubetest.Create(t, claims, &claim)
	return kubetest.Patch(t, claims, name, types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"milan"}}}`, selectedNode))
}

// claimBound looks for a claim here that is bound.
func (w *world) claimBound(name string) func(context.Context) error {
	return lab.Is(w.rome.Client().CoreV1().PersistentVolumeClaims("disks"), name, func(c *corev1.PersistentVolumeClaim) bool {
		return c.Status.Phase == corev1.ClaimBound
	})
}

// grow asks for a larger volume.
func (w *world) grow(t *testing.T, name, size string) {
	t.Helper()
	kubetest.Patch(t, w.rome.Client().CoreV1().PersistentVolumeClaims("disks"), name, types.MergePatchType, fmt.Appendf(nil, `{"spec":{"resources":{"requests":{"storage":%q}}}}`, size))
}

// asksFor looks for a size in the provider's claim.
func (w *world) asksFor(name, size string) func(context.Context) error {
	want := resource.MustParse(size)
	return lab.Is(w.milan.Client().CoreV1().PersistentVolumeClaims("disks-rome"), name, func(c *corev1.PersistentVolumeClaim) bool {
		return c.Spec.Resources.Requests.Storage().Cmp(want) == 0
	})
}

// testStorageNameTaken: a claim of the provider that has the name is left as it is; the
// user is told, and the name is taken when it is free.
func testStorageNameTaken(t *testing.T, w *world) {
	in := w.milan.Client().CoreV1().PersistentVolumeClaims("disks-rome")
	theirs := statefulSet("x", 1).Spec.VolumeClaimTemplates[0]
	theirs.Name, theirs.Spec.StorageClassName = "taken", nil
	before := kubetest.Create(t, in, &theirs)
	local := w.chosenClaim(t, "taken")
	w.eventAbout(t, local, "RemoteVolumeTaken", "disks-rome/taken of cluster milan was not made by liqod")
	now := kubetest.Get(t, in, "taken")
	require.Equal(t, before.Spec, now.Spec)
	require.Equal(t, before.ObjectMeta.Labels, now.ObjectMeta.Labels)
	require.Error(t, w.claimBound("taken")(t.Context()), "it waits")
	require.NoError(t, in.Delete(t.Context(), "taken", metav1.DeleteOptions{}))
	within(t, 30*time.Second, "bound when the name is free", w.claimBound("taken"))
	require.NotEqual(t, before.UID, w.claimUID(t, "disks-rome", "taken"))
	w.claimGone(t, "disks", "disks-rome", "taken")
}

// testStorageVKubeletDown: what is asked for while no vkubelet runs is caught up.
func testStorageVKubeletDown(t *testing.T, w *world) {
	w.chosenClaim(t, "deleted-down")
	within(t, 30*time.Second, "a claim is bound", w.claimBound("deleted-down"))
	claims := w.rome.Client().CoreV1().PersistentVolumeClaims("disks")
	deleted := kubetest.Get(t, claims, "deleted-down")
	kept := w.claimUID(t, "disks-rome", "data-db-1")
	vk := w.rome.VKubelet("milan")
	(*vk).Kill()
	w.grow(t, "data-db-1", "3Gi")
	w.chosenClaim(t, "made-down")
	require.NoError(t, claims.Delete(t.Context(), "deleted-down", metav1.DeleteOptions{}))
	require.NoError(t, w.sites.Restart(vk))
	within(t, 2*takeOver, "the provider is asked for more", w.asksFor("data-db-1", "3Gi"))
	require.Equal(t, kept, w.claimUID(t, "disks-rome", "data-db-1"))
	within(t, 30*time.Second, "the new claim is bound", w.claimBound("made-down"))
	within(t, 30*time.Second, "its data goes with a claim", w.dataGone("disks-rome", deleted))
	w.claimGone(t, "disks", "disks-rome", "made-down")
}

// testStorageSwitchedOff: without workers no claim is made or changed in the provider, and
// the data that is there stays.
func testStorageSwitchedOff(t *testing.T, w *world) {
	kept := w.claimUID(t, "disks-rome", "data-db-1")
	restore := w.vkubeletArgs(t, "--reflection.persistentvolumeclaim.workers=0")
	w.chosenClaim(t, "off")
	w.grow(t, "data-db-1", "4Gi")
	(&fixture{world: w, namespace: "disks", twin: "disks-rome"}).runs(t, "plain") // by then the vkubelet works
	hold(t, 2*time.Second, "no claim is made or changed", lab.Together(isGone(w.milan.Client().CoreV1().PersistentVolumeClaims("disks-rome"), "off"), w.asksFor("data-db-1", "3Gi")))
	require.NoError(t, w.podReady("disks", "db-1")(t.Context()), "pods run on")
	require.Equal(t, kept, w.claimUID(t, "disks-rome", "data-db-1"))
	restore()
	within(t, 30*time.Second, "switched on again, the claim is bound", w.claimBound("off"))
	within(t, quickly, "and the other one has grown", w.asksFor("data-db-1", "4Gi"))
	w.claimGone(t, "disks", "disks-rome", "off")
}

// testStorageLost: a claim that the provider has deleted is not replaced by an empty one;
// the user is told, and starts anew with another claim of the name.
func testStorageLost(t *testing.T, w *world) {
	local := w.chosenClaim(t, "lost")
	within(t, 30*time.Second, "a claim is bound", w.claimBound("lost"))
	there := w.milan.Client().CoreV1().PersistentVolumeClaims("disks-rome")
	require.NoError(t, there.Delete(t.Context(), "lost", metav1.DeleteOptions{}))
	w.eventAbout(t, local, "RemoteVolumeLost", "disks-rome/lost was deleted in cluster milan")
	require.NoError(t, w.sites.Restart(w.rome.VKubelet("milan")))
	(&fixture{world: w, namespace: "disks", twin: "disks-rome"}).runs(t, "after-loss") // by then the vkubelet works
	hold(t, 2*time.Second, "none is made in its place", isGone(there, "lost"))
	require.NoError(t, w.claimBound("lost")(t.Context()))
	w.claimGone(t, "disks", "disks-rome", "lost")
	w.chosenClaim(t, "lost")
	within(t, 30*time.Second, "a new one is bound", w.claimBound("lost"))
	w.claimGone(t, "disks", "disks-rome", "lost")
}

// testStorageEvents: what the provider says of its claim is told of the one here.
func testStorageEvents(t *testing.T, w *world) {
	c := &fixture{world: w, namespace: "disks", twin: "disks-rome"}
	claim := w.kindsFixture(t, "disks").twinOf(t, corev1.SchemeGroupVersion.WithResource("persistentvolumeclaims"), "data-db-0", "data-db-0")
	c.reportOf(t, "resizer", claim.remote)
	within(t, 30*time.Second, "told of the claim", c.eventsAbout([]withTwin{claim}, "resizer"))
}

// onVirtualNodes is a pod of the offloaded namespace with a volume.
func onVirtualNodes(name string, source corev1.VolumeSource) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: podSpec("sim/web:1")}
	pod.Spec.NodeSelector = map[string]string{"liqo.io/type": "virtual-node"}
	mounts(&pod.Spec, source)
	return pod
}

// mounts gives a pod, and its first container, a volume.
func mounts(spec *corev1.PodSpec, source corev1.VolumeSource) {
	spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
	spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: source}}
}

func mountsClaim(spec *corev1.PodSpec, claim string) {
	mounts(spec, corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}})
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
