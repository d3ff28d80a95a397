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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/e2e/site"
	"github.com/liqod/liqod/kube/kubetest"
)

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
