package scenarios

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/kube/kubetest"
)

const diskProvisioner = "example.com/disk"

// disks makes the provider's volumes as a driver does: a class whose claims get a volume
// as soon as a pod is scheduled.
func disks(t *testing.T, w *world) {
	t.Helper()
	c := w.milan.Client()
	class := &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: "disk"}, Provisioner: diskProvisioner,
		VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer), AllowVolumeExpansion: ptr.To(true),
	}
	kubetest.Create(t, c.StorageV1().StorageClasses(), class)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			provisionDisks(ctx, w)
			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
}

func provisionDisks(ctx context.Context, w *world) {
	c := w.milan.Client().CoreV1()
	claims, err := c.PersistentVolumeClaims("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return
	}
	for i := range claims.Items {
		claim := &claims.Items[i]
		if ptr.Deref(claim.Spec.StorageClassName, "") != "disk" || claim.Spec.VolumeName != "" || claim.Annotations[selectedNode] == "" {
			continue
		}
		_, _ = c.PersistentVolumes().Create(ctx, &corev1.PersistentVolume{ // one that exists already is as good
			ObjectMeta: metav1.ObjectMeta{Name: "disk-" + string(claim.UID), Annotations: map[string]string{"pv.kubernetes.io/provisioned-by": diskProvisioner}},
			Spec: corev1.PersistentVolumeSpec{
				Capacity: claim.Spec.Resources.Requests, AccessModes: claim.Spec.AccessModes, StorageClassName: "disk",
				ClaimRef:                      &corev1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID},
				PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
				PersistentVolumeSource:        corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/disk"}},
			},
		}, metav1.CreateOptions{})
	}
}

// offersStorage sets the classes of a virtual node.
func (w *world) offersStorage(t *testing.T, node, classes string) {
	t.Helper()
	patch := fmt.Appendf(nil, `{"spec":{"storageClasses":%s}}`, classes)
	kubetest.Patch(t, w.rome.Liqod().OffloadingV1beta1().VirtualNodes(tenantOfMilan), node, types.MergePatchType, patch)
}

func statefulSet(name string, replicas int32) *appsv1.StatefulSet {
	labels := map[string]string{"app": name}
	spec := podSpec("sim/web:1")
	spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
	return &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.StatefulSetSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels}, ServiceName: name,
			PodManagementPolicy: appsv1.ParallelPodManagement,
			Template:            corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: spec},
			VolumeClaimTemplates: []corev1.PersistentVolumeClaim{{
				ObjectMeta: metav1.ObjectMeta{Name: "data"},
				Spec: corev1.PersistentVolumeClaimSpec{
					StorageClassName: ptr.To("liqo"), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
					Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
				},
			}},
		},
	}
}

// claimUID is the UID of a claim of the provider; empty when there is none.
func (w *world) claimUID(t *testing.T, twin, name string) types.UID {
	t.Helper()
	claim, err := w.milan.Client().CoreV1().PersistentVolumeClaims(twin).Get(t.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return ""
	}
	require.NoError(t, err)
	return claim.UID
}

// testStorage: the volumes of offloaded pods are in the provider.
func testStorage(t *testing.T, w *world) {
	disks(t, w)
	testNoStorage(t, w)
	testOwnClass(t, w)
	w.offersStorage(t, "milan", `[{"storageClassName":"disk"}]`)
	testStorageComes(t, w)
	w.offload(t, "disks", offloadingv1beta1.NamespaceOffloadingSpec{})
	sets := w.rome.Client().AppsV1().StatefulSets("disks")
	kubetest.Create(t, sets, statefulSet("db", 2))
	for _, pod := range []string{"db-0", "db-1"} {
		within(t, 30*time.Second, pod+" runs with its volume", w.podReady("disks", pod))
	}
	w.requireVolume(t, "disks", "disks-rome", "data-db-0")
	inTurn(t, w, []part[*world]{
		{"Events", testStorageEvents}, {"RestartWritesNothing", testStorageRestart}, {"SecondPod", testSecondPod}, {"Expansion", testExpansion},
		{"ProviderAway", testStorageProviderAway}, {"DataAway", testDataAway}, {"NameTaken", testStorageNameTaken},
		{"VKubeletDown", testStorageVKubeletDown}, {"SwitchedOff", testStorageSwitchedOff}, {"Lost", testStorageLost},
		{"EphemeralVolume", testEphemeralVolume}, {"DataOfAnother", testDataOfAnother}, {"MadeUpClass", testMadeUpClass},
		{"DeletedByName", testDeletedByName}, {"Retain", testRetain}, {"Unoffloaded", testUnoffloadKeeps}, {"NamespaceDeleted", testNamespaceKeeps},
		{"Adopted", testAdoption}, {"TwinDeletedByName", testTwinDataDeleted},
	})
}

// requireVolume requires a claim that is bound in both clusters, and its volume here.
func (w *world) requireVolume(t *testing.T, namespace, twin, name string) {
	t.Helper()
	claim := kubetest.Get(t, w.rome.Client().CoreV1().PersistentVolumeClaims(namespace), name)
	require.Equal(t, corev1.ClaimBound, claim.Status.Phase)
	volume := kubetest.Get(t, w.rome.Client().CoreV1().PersistentVolumes(), claim.Spec.VolumeName)
	require.Equal(t, []string{"milan"}, volume.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0].Values)
	there := kubetest.Get(t, w.milan.Client().CoreV1().PersistentVolumeClaims(twin), name)
	require.Equal(t, corev1.ClaimBound, there.Status.Phase)
	require.Equal(t, "disk", *there.Spec.StorageClassName)
	require.Equal(t, string(claim.UID), there.Labels[offloadingv1beta1.LocalClaimUIDLabel])
}

// testNoStorage: the scheduler does not choose a virtual node without classes, neither for a claim that
// exists nor for one that is created after its pod.
func testNoStorage(t *testing.T, w *world) {
	c := w.rome.Client()
	w.offload(t, "dry", offloadingv1beta1.NamespaceOffloadingSpec{})
	set := statefulSet("db", 1)
	kubetest.Create(t, c.AppsV1().StatefulSets("dry"), set)
	refused := func(name string) {
		within(t, 30*time.Second, name+" is refused a node", lab.Is(c.CoreV1().Pods("dry"), name, func(pod *corev1.Pod) bool {
			return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
				return c.Reason == corev1.PodReasonUnschedulable
			})
		}))
	}
	refused("db-0")
	early := bare("early", corev1.RestartPolicyAlways)
	early.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "early"}}}}
	kubetest.Create(t, c.CoreV1().Pods("dry"), early)
	kubetest.Create(t, c.CoreV1().PersistentVolumeClaims("dry"), &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "early"}, Spec: set.Spec.VolumeClaimTemplates[0].Spec})
	refused("early")
	require.Empty(t, w.claimUID(t, "dry-rome", "data-db-0"))
	require.Empty(t, w.claimUID(t, "dry-rome", "early"))
	require.NoError(t, c.CoreV1().Pods("dry").Delete(t.Context(), "early", metav1.DeleteOptions{}))
}

// testStorageComes: the scheduler tries again once the virtual node has classes.
func testStorageComes(t *testing.T, w *world) {
	c := w.rome.Client()
	within(t, longest, "the pod runs with its volume", w.podReady("dry", "db-0"))
	require.NoError(t, c.AppsV1().StatefulSets("dry").Delete(t.Context(), "db", metav1.DeleteOptions{}))
	require.NoError(t, c.CoreV1().PersistentVolumeClaims("dry").Delete(t.Context(), "data-db-0", metav1.DeleteOptions{}))
	within(t, 30*time.Second, "the volume goes with its claim", lab.Number(c.CoreV1().PersistentVolumes(), metav1.ListOptions{}, 0))
	require.NoError(t, c.CoreV1().Namespaces().Delete(t.Context(), "dry", metav1.DeleteOptions{}))
}

// testOwnClass: the scheduler gives no virtual node to claims of a class of this cluster.
func testOwnClass(t *testing.T, w *world) {
	c, namespace := w.rome.Client(), "own-disks"
	w.offload(t, namespace, offloadingv1beta1.NamespaceOffloadingSpec{PodOffloadingStrategy: offloadingv1beta1.PodsLocalAndRemote})
	kubetest.Create(t, c.StorageV1().StorageClasses(), &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: "own"}, Provisioner: diskProvisioner, VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer),
	})
	set := statefulSet("own", 3)
	set.Spec.VolumeClaimTemplates[0].Spec.StorageClassName = ptr.To("own")
	kubetest.Create(t, c.AppsV1().StatefulSets(namespace), set)
	for i := range 3 {
		var node string
		within(t, 30*time.Second, "the scheduler has chosen a node", lab.Is(c.CoreV1().PersistentVolumeClaims(namespace), fmt.Sprintf("data-own-%d", i), func(claim *corev1.PersistentVolumeClaim) bool {
			node = claim.Annotations[selectedNode]
			return node != ""
		}))
		require.NotEqual(t, "milan", node, "claim %d", i)
	}
	require.NoError(t, c.CoreV1().Namespaces().Delete(t.Context(), namespace, metav1.DeleteOptions{}))
}

func testStorageRestart(t *testing.T, w *world) {
	before := w.claimUID(t, "disks-rome", "data-db-0")
	versions := w.storageVersions(t)
	require.NoError(t, w.sites.Restart(w.rome.VKubelet("milan")))
	within(t, 20*time.Second, "the vkubelet leads again", w.node("milan", corev1.ConditionTrue))
	kubetest.Create(t, w.rome.Client().AppsV1().StatefulSets("disks"), statefulSet("late", 1))
	within(t, 30*time.Second, "another volume is provisioned", w.podReady("disks", "late-0"))
	for name, version := range w.storageVersions(t) {
		if before, had := versions[name]; had {
			require.Equal(t, before, version, name)
		}
	}
	require.Equal(t, before, w.claimUID(t, "disks-rome", "data-db-0"))
}

func (w *world) storageVersions(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for namespace, c := range map[string]*lab.Cluster{"disks": w.rome.Cluster, "disks-rome": w.milan.Cluster} {
		for _, claim := range kubetest.List(t, c.Client().CoreV1().PersistentVolumeClaims(namespace)).Items {
			out[namespace+"/"+claim.Name] = claim.ResourceVersion
		}
	}
	for _, v := range kubetest.List(t, w.rome.Client().CoreV1().PersistentVolumes()).Items {
		out["volume "+v.Name] = v.ResourceVersion
	}
	return out
}
