package scenarios

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/e2e/site"
	"github.com/liqod/liqod/kube/kubetest"
)

// inProvider is the database that milan runs.
func (w *postgresWorld) inProvider(t *testing.T) string {
	t.Helper()
	for db, node := range w.places {
		if runsIn(node) == "milan" {
			return db
		}
	}
	require.Fail(t, "milan runs none", "%v", w.places)
	return ""
}

// postgresPeeredAgain ends the peering, and makes it again. Meanwhile both clusters show the data that
// milan keeps.
func postgresPeeredAgain(t *testing.T, w *postgresWorld) {
	db := w.inProvider(t)
	out := w.done(t, w.rome, "unpeer", "milan", "--remote-kubeconfig", w.milan.Kubeconfig)
	require.Contains(t, out, "data in volumes is kept")
	kept := w.listedAs(t, w.milan, databases, "data-"+db, "kept")
	require.Equal(t, "rome", kept.Owner)
	require.Contains(t, w.listedAs(t, w.rome, databases, "data-"+db, "bound").Where, "cluster milan")
	w.peer(t)
	w.pastes(t, w.milan, kept.Get, "")
}

// createLate creates a StatefulSet that no backup has. Its pod and its volume are for milan.
func (w *postgresWorld) createLate(t *testing.T, name string) {
	t.Helper()
	set := servingSet(name, 1)
	set.Spec.Template.Spec.NodeSelector = map[string]string{offloadingv1beta1.TypeLabel: offloadingv1beta1.TypeVirtualNode}
	kubetest.Create(t, w.rome.Client().AppsV1().StatefulSets(databases), set)
}

// writesLate writes into the volume of the pod of a StatefulSet, once it runs.
func (w *postgresWorld) writesLate(t *testing.T, name, bytes string) {
	t.Helper()
	within(t, longest, name+" runs", w.podReady(databases, name+"-0"))
	require.NoError(t, second(w.rome.Exec(t.Context(), databases, name+"-0", "write", bytesFile, bytes)))
}

// onDisk requires that one volume of milan's nodes has some bytes.
func (w *postgresWorld) onDisk(t *testing.T, bytes string) {
	t.Helper()
	have := 0
	for _, n := range w.full.Nodes(w.milan.Cluster) {
		for _, file := range must(filepath.Glob(filepath.Join(n.Volumes(), "*", filepath.Base(bytesFile))))(t) {
			data := must(os.ReadFile(file))(t)
			if string(data) == bytes+"\n" {
				have++
			}
		}
	}
	require.Equal(t, 1, have, "volumes of milan with %q", bytes)
}

// restore restores a cluster from a backup, and restarts kubelets and kube-proxies there: their watches are silent
// until the revision has passed the one before. Liqod is not restarted.
func (w *postgresWorld) restore(t *testing.T, s *site.Site, backup string) {
	t.Helper()
	require.NoError(t, s.Restore(t.Context(), backup))
	for _, n := range w.full.Nodes(s.Cluster) {
		for _, config := range []string{"kubelet.yaml", "kube-proxy.yaml"} {
			processes := must(n.Processes(t.Context(), filepath.Join(n.Dir, config)))(t)
			require.NotEmpty(t, processes, "%s of %s", config, n.Name)
			require.NoError(t, n.Signal(t.Context(), syscall.SIGKILL, processes...))
		}
	}
	w.follows(t, "after-the-restore-of-"+s.Name)
}

// follows waits until the vkubelet sees both clusters: it reflects a new ConfigMap, and again after that was deleted
// in milan.
func (w *postgresWorld) follows(t *testing.T, name string) {
	t.Helper()
	reflected := w.milan.Client().CoreV1().ConfigMaps(databases + "-rome")
	kubetest.Create(t, w.rome.Client().CoreV1().ConfigMaps(databases), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}})
	for _, event := range []string{"created at home", "deleted in milan"} {
		within(t, longest, "a ConfigMap is reflected after it was "+event, lab.Exists(reflected, name))
		require.NoError(t, reflected.Delete(t.Context(), name, metav1.DeleteOptions{}))
	}
}

// reads waits until a pod reads some bytes from its volume.
func (w *postgresWorld) reads(t *testing.T, pod, bytes string) {
	t.Helper()
	within(t, 2*longest, pod+" reads its bytes", w.hasWritten(databases, pod, bytes))
}

// postgresConsumerRestored restores rome from a backup that is older than a StatefulSet, its claim and its
// data in milan. Rome shows the data. Created again, the StatefulSet gets it by the commands that rome shows.
func postgresConsumerRestored(t *testing.T, w *postgresWorld) {
	const name, bytes = "late", "written after the backup of rome"
	backup := must(w.rome.BackUp(t.Context()))(t)
	w.hasRows(t)
	w.createLate(t, name)
	w.writesLate(t, name, bytes)
	uid := w.claimUID(t, databases+"-rome", "data-late-0")
	w.restore(t, w.rome, backup)
	w.hasRows(t)

	kept := w.listedAs(t, w.rome, databases, "data-late-0", "kept")
	require.Equal(t, "cluster milan, namespace "+databases+"-rome", kept.Where)
	require.Contains(t, kept.Why, "the state of this cluster went back")
	require.Equal(t, "rome", w.listedAs(t, w.milan, databases, "data-late-0", "bound").Owner)
	require.Equal(t, uid, w.claimUID(t, databases+"-rome", "data-late-0"))
	w.onDisk(t, bytes)

	w.createLate(t, name)
	within(t, longest, "there is a claim again", lab.Exists(w.rome.Client().CoreV1().PersistentVolumeClaims(databases), "data-late-0"))
	w.pastes(t, w.rome, kept.Get, "")
	// The pod that milan ran all the time, as docs/continuity.md says.
	require.NoError(t, w.milan.Liqod().OffloadingV1beta1().ShadowPods(databases+"-rome").Delete(t.Context(), "late-0", metav1.DeleteOptions{}))
	w.reads(t, "late-0", bytes)
	require.Equal(t, uid, w.claimUID(t, databases+"-rome", "data-late-0"))
}

// postgresProviderRestored restores milan from a backup that is older than a claim. No empty volume
// replaces the data, and it is there again once milan's administrators have made the objects again.
func postgresProviderRestored(t *testing.T, w *postgresWorld) {
	const name, bytes, twin = "later", "written after the backup of milan", databases + "-rome"
	backup := must(w.milan.BackUp(t.Context()))(t)
	w.hasRows(t)
	w.createLate(t, name)
	w.writesLate(t, name, bytes)
	local := kubetest.Get(t, w.rome.Client().CoreV1().PersistentVolumeClaims(databases), "data-later-0")
	core := w.milan.Client().CoreV1()
	claim := kubetest.Get(t, core.PersistentVolumeClaims(twin), "data-later-0")
	volume := kubetest.Get(t, core.PersistentVolumes(), claim.Spec.VolumeName)
	w.restore(t, w.milan, backup)
	w.hasRows(t)
	within(t, longest, "the claim says that its data is not found", lab.Are(w.rome.Client().CoreV1().Events(databases), metav1.ListOptions{FieldSelector: "reason=RemoteVolumeLost,involvedObject.uid=" + string(local.UID)}, func(events *corev1.EventList) bool {
		return len(events.Items) > 0 && strings.Contains(events.Items[0].Message, "the state of that cluster went back")
	}))
	hold(t, cutFor, "no claim replaces it", isGone(core.PersistentVolumeClaims(twin), "data-later-0"))
	w.onDisk(t, bytes)

	w.makesAgain(t, volume, claim)
	w.reads(t, "later-0", bytes)
	w.listedAs(t, w.rome, databases, "data-later-0", "bound")
}

// makesAgain creates a volume of milan and its claim again, as an administrator does from saved objects.
func (w *postgresWorld) makesAgain(t *testing.T, volume *corev1.PersistentVolume, claim *corev1.PersistentVolumeClaim) {
	t.Helper()
	core := w.milan.Client().CoreV1()
	volume.ObjectMeta = metav1.ObjectMeta{Name: volume.Name, Annotations: volume.Annotations}
	volume.Spec.ClaimRef.UID, volume.Spec.ClaimRef.ResourceVersion = "", ""
	_, err := core.PersistentVolumes().Create(t.Context(), volume, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		require.NoError(t, err)
	}
	claim.ObjectMeta = metav1.ObjectMeta{Name: claim.Name, Namespace: claim.Namespace, Labels: claim.Labels}
	kubetest.Create(t, core.PersistentVolumeClaims(claim.Namespace), claim)
}
