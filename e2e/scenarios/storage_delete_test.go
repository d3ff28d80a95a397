package scenarios

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/e2e/site"
	"github.com/liqod/liqod/kube/kubetest"
)

// testSecondPod: the volume leads another pod, which would run anywhere, to the provider.
func testSecondPod(t *testing.T, w *world) {
	spec := podSpec("sim/web:1")
	spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data-db-0"}}}}
	kubetest.Create(t, w.rome.Client().CoreV1().Pods("disks"), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "reader"}, Spec: spec})
	within(t, 30*time.Second, "a second pod of the claim runs", w.podReady("disks", "reader"))
	pod := kubetest.Get(t, w.rome.Client().CoreV1().Pods("disks"), "reader")
	require.Equal(t, "milan", pod.Spec.NodeName)
	require.NoError(t, w.rome.Client().CoreV1().Pods("disks").Delete(t.Context(), "reader", metav1.DeleteOptions{}))
}

func testExpansion(t *testing.T, w *world) {
	w.grow(t, "data-db-1", "2Gi")
	within(t, 15*time.Second, "the provider is asked for more", w.asksFor("data-db-1", "2Gi"))
	two := resource.MustParse("2Gi")
	within(t, 15*time.Second, "there is more, as its driver says", func(ctx context.Context) error {
		c, err := w.milan.Client().CoreV1().PersistentVolumeClaims("disks-rome").Get(ctx, "data-db-1", metav1.GetOptions{})
		if err != nil {
			return err
		}
		c.Status.Capacity = corev1.ResourceList{corev1.ResourceStorage: two}
		return second(w.milan.Client().CoreV1().PersistentVolumeClaims("disks-rome").UpdateStatus(ctx, c, metav1.UpdateOptions{}))
	})
	within(t, 15*time.Second, "the size shows here", lab.Is(w.rome.Client().CoreV1().PersistentVolumeClaims("disks"), "data-db-1", func(c *corev1.PersistentVolumeClaim) bool {
		return c.Status.Capacity.Storage().Cmp(two) == 0
	}))
}

// testStorageProviderAway: what is asked for while the provider is away is made when it
// is back.
func testStorageProviderAway(t *testing.T, w *world) {
	w.milan.Proxied().Drop()
	w.chosenClaim(t, "away")
	w.milan.Proxied().Pass()
	within(t, 30*time.Second, "it is bound when the provider is back", w.claimBound("away"))
	w.claimGone(t, "disks", "disks-rome", "away")
}

// testDataAway: a pod whose data is in a provider that does not answer waits for it, says so, and has its
// claim again afterwards.
func testDataAway(t *testing.T, w *world) {
	pods, kept := w.rome.Client().CoreV1().Pods("disks"), w.claimUID(t, "disks-rome", "data-db-0")
	before := kubetest.Get(t, pods, "db-0")
	w.milan.Proxied().Drop()
	within(t, time.Minute, "the virtual node is NotReady", w.node("milan", corev1.ConditionFalse))
	require.NoError(t, pods.Delete(t.Context(), "db-0", metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}))
	within(t, 30*time.Second, "the next pod waits", lab.Is(pods, "db-0", func(pod *corev1.Pod) bool {
		return pod.UID != before.UID && pod.Spec.NodeName == ""
	}))
	within(t, 30*time.Second, "it says for what", w.says(w.rome, []string{"status", "-n", "disks"}, 1,
		`PersistentVolumeClaim data-db-0 (class "liqo") has its data in cluster milan, whose virtual node milan is not Ready: the pod waits for it`))
	w.milan.Proxied().Pass()
	within(t, time.Minute, "it returns to its data", w.podReady("disks", "db-0"))
	require.Equal(t, kept, w.claimUID(t, "disks-rome", "data-db-0"))
}

// claimGone deletes a claim by name, and requires that everything of it goes.
func (w *world) claimGone(t *testing.T, namespace, twin, name string) {
	t.Helper()
	claims := w.rome.Client().CoreV1().PersistentVolumeClaims(namespace)
	claim := kubetest.Get(t, claims, name)
	require.NoError(t, claims.Delete(t.Context(), name, metav1.DeleteOptions{}))
	within(t, 30*time.Second, "its data goes with a claim", w.dataGone(twin, claim))
}

// dataGone looks for neither a claim in the provider nor a volume here.
func (w *world) dataGone(twin string, claim *corev1.PersistentVolumeClaim) func(context.Context) error {
	return lab.Together(isGone(w.milan.Client().CoreV1().PersistentVolumeClaims(twin), claim.Name), isGone(w.rome.Client().CoreV1().PersistentVolumes(), claim.Spec.VolumeName))
}

func testDeletedByName(t *testing.T, w *world) {
	require.NoError(t, w.rome.Client().AppsV1().StatefulSets("disks").Delete(t.Context(), "late", metav1.DeleteOptions{}))
	within(t, 30*time.Second, "its pod is gone", isGone(w.rome.Client().CoreV1().Pods("disks"), "late-0"))
	w.claimGone(t, "disks", "disks-rome", "data-late-0")
}

// twinKept waits until a twin is kept, and requires its data and nothing that runs.
func (w *world) twinKept(t *testing.T, twin, claim string, uid types.UID) {
	t.Helper()
	within(t, 30*time.Second, "the twin is kept", lab.Together(lab.Is(w.milan.Client().CoreV1().Namespaces(), twin, func(ns *corev1.Namespace) bool {
		return ns.Annotations[offloadingv1beta1.DataKeptAnnotation] != "" && ns.DeletionTimestamp == nil
	}), lab.Number(w.milan.Client().CoreV1().Pods(twin), metav1.ListOptions{}, 0)))
	require.Equal(t, uid, w.claimUID(t, twin, claim))
}

func testUnoffloadKeeps(t *testing.T, w *world) {
	uid := w.claimUID(t, "disks-rome", "data-db-0")
	require.NotEmpty(t, uid)
	offloadings := w.rome.Liqod().OffloadingV1beta1().NamespaceOffloadings("disks")
	require.NoError(t, offloadings.Delete(t.Context(), offloadingv1beta1.NamespaceOffloadingName, metav1.DeleteOptions{}))
	w.twinKept(t, "disks-rome", "data-db-0", uid)
	within(t, 30*time.Second, "the NamespaceOffloading is gone", isGone(offloadings, offloadingv1beta1.NamespaceOffloadingName))
	require.Equal(t, "cluster milan, namespace disks-rome", w.listedAs(t, w.rome, "disks", "data-db-0", "bound").Where)
	kept := w.listedAs(t, w.milan, "disks", "data-db-0", "kept")
	require.Equal(t, "rome", kept.Owner)
	require.Equal(t, "this cluster, namespace disks-rome", kept.Where)

	w.pastes(t, w.milan, kept.Get, "")
	w.listedAs(t, w.milan, "disks", "data-db-0", "bound")
	require.NoError(t, w.rome.Client().CoreV1().Pods("disks").DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}))
	within(t, 60*time.Second, "the pods are back with their data", w.podReady("disks", "db-0"))
	w.requireVolume(t, "disks", "disks-rome", "data-db-0")
	require.Equal(t, uid, w.claimUID(t, "disks-rome", "data-db-0"))
}

func (w *world) namespaceDeleted(t *testing.T, name string) {
	t.Helper()
	namespaces := w.rome.Client().CoreV1().Namespaces()
	require.NoError(t, namespaces.Delete(t.Context(), name, metav1.DeleteOptions{}))
	within(t, 60*time.Second, "the namespace goes", isGone(namespaces, name))
}

func testNamespaceKeeps(t *testing.T, w *world) {
	uid := w.claimUID(t, "disks-rome", "data-db-0")
	claim := kubetest.Get(t, w.rome.Client().CoreV1().PersistentVolumeClaims("disks"), "data-db-0")
	w.namespaceDeleted(t, "disks")
	w.twinKept(t, "disks-rome", "data-db-0", uid)
	within(t, 30*time.Second, "the volume says that the data is kept", lab.Is(w.rome.Client().CoreV1().PersistentVolumes(), claim.Spec.VolumeName, func(v *corev1.PersistentVolume) bool {
		return v.Annotations[offloadingv1beta1.DataKeptAnnotation] != ""
	}))
	require.Equal(t, uid, w.claimUID(t, "disks-rome", "data-db-0"))
	require.Equal(t, "cluster milan, namespace disks-rome", w.listedAs(t, w.rome, "disks", "data-db-0", "kept").Where)
	require.Equal(t, "rome", w.listedAs(t, w.milan, "disks", "data-db-0", "kept").Owner)
}

// testAdoption: what another namespace of the name asks for does not get the data that was
// kept, unless it says so.
func testAdoption(t *testing.T, w *world) {
	uid := w.claimUID(t, "disks-rome", "data-db-0")
	require.NotEmpty(t, uid)
	w.offload(t, "disks", offloadingv1beta1.NamespaceOffloadingSpec{PodOffloadingStrategy: offloadingv1beta1.PodsRemote})
	kubetest.Create(t, w.rome.Client().AppsV1().StatefulSets("disks"), statefulSet("db", 1))
	claims := w.rome.Client().CoreV1().PersistentVolumeClaims("disks")
	within(t, 30*time.Second, "the claim is made", lab.Exists(claims, "data-db-0"))
	local := kubetest.Get(t, claims, "data-db-0")
	w.eventAbout(t, local, "RemoteVolumeTaken", "keeps the data of an earlier PersistentVolumeClaim of this name")
	require.Error(t, w.claimBound("data-db-0")(t.Context()), "it waits")
	w.pastes(t, w.rome, w.keptOf(t, w.rome, "data-db-0").Get, "")
	within(t, 60*time.Second, "its pod runs with the data", w.podReady("disks", "db-0"))
	w.requireVolume(t, "disks", "disks-rome", "data-db-0")
	require.Equal(t, uid, w.claimUID(t, "disks-rome", "data-db-0"))
	w.namespaceDeleted(t, "disks")
	w.twinKept(t, "disks-rome", "data-db-0", uid)
}

// testTwinDataDeleted: kept data goes by the commands of storage list: a claim by those of its
// home, and the rest by those of the provider.
func testTwinDataDeleted(t *testing.T, w *world) {
	w.pastes(t, w.rome, w.keptOf(t, w.rome, "data-db-1").Delete, "")
	w.unlisted(t, w.rome, "disks", "data-db-1")
	w.unlisted(t, w.milan, "disks", "data-db-1")
	w.pastes(t, w.milan, w.keptOf(t, w.milan, "data-db-0").Delete, "annotate namespace")
	within(t, 30*time.Second, "the twin goes", isGone(w.milan.Client().CoreV1().Namespaces(), "disks-rome"))
	w.unlisted(t, w.milan, "disks", "data-db-0")
}

// listed is a volume of storage list -o json.
type listed struct {
	Namespace, Claim, Owner, Where, Phase, Why, Get, Delete string
}

// lists returns the volumes of a claim that storage list shows in a cluster.
func (w *world) lists(ctx context.Context, at *site.Site, namespace, claim string) ([]listed, error) {
	cmd := w.sites.Command(ctx, "storage", "list", "-o", "json", "--kubeconfig", at.Kubeconfig)
	out, err := cmd.Output()
	if err != nil {
		return nil, err
	}
	var list struct{ Volumes []listed }
	if err := json.Unmarshal(out, &list); err != nil {
		return nil, fmt.Errorf("reading %s: %w", out, err)
	}
	var of []listed
	for _, v := range list.Volumes {
		if v.Namespace == namespace && v.Claim == claim {
			of = append(of, v)
		}
	}
	return of, nil
}

// listedAs waits until storage list shows a cluster's only volume of a claim in a phase.
func (w *world) listedAs(t *testing.T, at *site.Site, namespace, claim, phase string) listed {
	t.Helper()
	var is listed
	within(t, 30*time.Second, fmt.Sprintf("%s lists %s/%s as %s", at.Name, namespace, claim, phase), func(ctx context.Context) error {
		all, err := w.lists(ctx, at, namespace, claim)
		if err != nil {
			return err
		}
		if len(all) != 1 || all[0].Phase != phase {
			return fmt.Errorf("%+v", all)
		}
		is = all[0]
		return nil
	})
	return is
}

// keptOf returns one of the volumes that storage list shows as kept of a claim in namespace disks.
func (w *world) keptOf(t *testing.T, at *site.Site, claim string) listed {
	t.Helper()
	all := must(w.lists(t.Context(), at, "disks", claim))(t)
	for _, v := range all {
		if v.Phase == "kept" {
			return v
		}
	}
	require.Fail(t, "none is kept", "%+v", all)
	return listed{}
}

// unlisted waits until storage list shows no volume of a claim.
func (w *world) unlisted(t *testing.T, at *site.Site, namespace, claim string) {
	t.Helper()
	within(t, 30*time.Second, fmt.Sprintf("%s lists no %s/%s", at.Name, namespace, claim), func(ctx context.Context) error {
		all, err := w.lists(ctx, at, namespace, claim)
		return lab.Wrong(err, len(all) > 0, "%+v", all)
	})
}

// pastes runs the commands of a text of storage list that have some words, each in the cluster
// that the text says.
func (w *world) pastes(t *testing.T, at *site.Site, text, only string) {
	t.Helper()
	w.paste(t, faultCase{at: at, only: only}, strings.Split(text, "\n"))
}

// testRetain: with the reclaim policy Retain the data of a claim that is deleted by name is kept. By
// the commands of storage list a new claim gets it, and by those of the next list it is deleted.
func testRetain(t *testing.T, w *world) {
	c := w.rome.Client()
	kubetest.Create(t, c.StorageV1().StorageClasses(), &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: "liqo-retain"}, Provisioner: "liqo.io/storage",
		ReclaimPolicy: ptr.To(corev1.PersistentVolumeReclaimRetain), VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer),
	})
	set := statefulSet("kept", 1)
	set.Spec.VolumeClaimTemplates[0].Spec.StorageClassName = ptr.To("liqo-retain")
	w.runsSet(t, set)
	within(t, 30*time.Second, "its pod runs", w.podReady("disks", "kept-0"))
	uid := w.claimUID(t, "disks-rome", "data-kept-0")
	w.deletesSet(t, "kept")
	kept := w.listedAs(t, w.rome, "disks", "data-kept-0", "kept")
	require.Equal(t, "cluster milan, namespace disks-rome", kept.Where)
	require.Contains(t, kept.Why, "Retain")

	w.runsSet(t, set)
	within(t, 30*time.Second, "there is another claim", lab.Exists(c.CoreV1().PersistentVolumeClaims("disks"), "data-kept-0"))
	w.pastes(t, w.rome, kept.Get, "")
	within(t, 30*time.Second, "its pod runs with the data", w.podReady("disks", "kept-0"))
	require.Equal(t, uid, w.claimUID(t, "disks-rome", "data-kept-0"))
	w.pastes(t, w.rome, w.keptOf(t, w.rome, "data-kept-0").Delete, "delete pv")
	w.listedAs(t, w.rome, "disks", "data-kept-0", "bound")
	require.Equal(t, uid, w.claimUID(t, "disks-rome", "data-kept-0"), "a PersistentVolume without data is gone, and the data is not")

	w.deletesSet(t, "kept")
	w.pastes(t, w.rome, w.listedAs(t, w.rome, "disks", "data-kept-0", "kept").Delete, "")
	require.Empty(t, w.claimUID(t, "disks-rome", "data-kept-0"))
	w.unlisted(t, w.rome, "disks", "data-kept-0")
	w.unlisted(t, w.milan, "disks", "data-kept-0")
}

func (w *world) runsSet(t *testing.T, set *appsv1.StatefulSet) {
	t.Helper()
	kubetest.Create(t, w.rome.Client().AppsV1().StatefulSets("disks"), set)
}

// deletesSet deletes a StatefulSet of one pod, and the claim of the pod.
func (w *world) deletesSet(t *testing.T, name string) {
	t.Helper()
	c := w.rome.Client()
	require.NoError(t, c.AppsV1().StatefulSets("disks").Delete(t.Context(), name, metav1.DeleteOptions{}))
	require.NoError(t, c.CoreV1().PersistentVolumeClaims("disks").Delete(t.Context(), "data-"+name+"-0", metav1.DeleteOptions{}))
	within(t, 30*time.Second, "its claim is gone", isGone(c.CoreV1().PersistentVolumeClaims("disks"), "data-"+name+"-0"))
}
