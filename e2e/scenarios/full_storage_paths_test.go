package scenarios

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/e2e/site"
	"github.com/liqod/liqod/kube/kubetest"
)

const pathsNamespace = "paths"

// volumePath is what may happen to a claim of class liqo.
type volumePath struct {
	// virtual says that its first pod is for the virtual node; else it is for a node of rome.
	virtual bool
	// bound says that its pods have written before the rest happens.
	bound bool
	// retain is the reclaim policy of its class; else that is Delete.
	retain bool
	// away says that the rest happens while the provider is cut off: the deletion of a bound claim,
	// and the first pod of another one.
	away bool
	// alone says that the access mode is ReadWriteOncePod; else it is ReadWriteOnce.
	alone bool
}

// name of the claim and its pods.
func (p volumePath) name() string {
	word := func(is bool, yes, no string) string {
		if is {
			return yes
		}
		return no
	}
	return strings.Join([]string{word(p.virtual, "virtual", "real"), word(p.bound, "bound", "unbound"), word(p.retain, "retain", "delete"),
		word(p.away, "away", "there"), word(p.alone, "rwop", "rwo")}, "-")
}

// bytes are what its pods write.
func (p volumePath) bytes() string { return strings.Repeat(p.name()+" ", 200) }

// volumePaths are all of them.
func volumePaths() (out []volumePath) {
	for i := range 1 << 5 {
		out = append(out, volumePath{virtual: i&1 > 0, bound: i&2 > 0, retain: i&4 > 0, away: i&8 > 0, alone: i&16 > 0})
	}
	return out
}

// those returns the paths that are so.
func those(all []volumePath, is func(volumePath) bool) []volumePath {
	return slices.DeleteFunc(slices.Clone(all), func(p volumePath) bool { return !is(p) })
}

// fullVolumePaths: on every path of a claim its bytes are there, exactly, until its deletion by name
// under the policy Delete, and then they are gone. What is kept goes by the commands of storage list.
func fullVolumePaths(t *testing.T, w *fullWorld) {
	w.offload(t, pathsNamespace, offloadingv1beta1.NamespaceOffloadingSpec{PodOffloadingStrategy: offloadingv1beta1.PodsLocalAndRemote})
	kubetest.Create(t, w.rome.Client().StorageV1().StorageClasses(), &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: "liqo-retain"}, Provisioner: "liqo.io/storage",
		ReclaimPolicy: ptr.To(corev1.PersistentVolumeReclaimRetain), VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer),
	})
	all := volumePaths()
	bound := those(all, func(p volumePath) bool { return p.bound })
	w.createClaims(t, those(all, func(p volumePath) bool { return p.bound || !p.away }))
	w.writesAndReads(t, bound)

	w.deleteClaims(t, those(all, func(p volumePath) bool { return !p.away }))
	w.ended(t, those(all, func(p volumePath) bool { return !p.away }))

	back := w.cutOff(t)
	started := those(all, func(p volumePath) bool { return p.away && !p.bound })
	w.deleteClaims(t, those(bound, func(p volumePath) bool { return p.away }))
	w.createClaims(t, started)
	w.writesAndReads(t, those(started, func(p volumePath) bool { return !p.virtual }))
	w.ended(t, those(bound, func(p volumePath) bool { return p.away && !p.virtual }))
	for _, p := range those(bound, func(p volumePath) bool { return p.away && p.virtual }) {
		require.Equal(t, []string{"milan"}, w.hasBytes(t, p), "%s: the provider has it as long as it is cut off", p.name())
	}
	back()
	w.ended(t, those(bound, func(p volumePath) bool { return p.away && p.virtual }))
	w.writesAndReads(t, those(started, func(p volumePath) bool { return p.virtual }))
	w.deleteClaims(t, started)
	for i := range started {
		started[i].bound = true // by now
	}
	w.ended(t, started)
	w.deletesKept(t, those(all, func(p volumePath) bool { return p.retain && (p.bound || p.away) }))
}

func (w *fullWorld) createClaims(t *testing.T, paths []volumePath) {
	t.Helper()
	for _, p := range paths {
		claim := statefulSet("x", 1).Spec.VolumeClaimTemplates[0]
		claim.Name = p.name()
		if p.retain {
			claim.Spec.StorageClassName = ptr.To("liqo-retain")
		}
		if p.alone {
			claim.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod}
		}
		kubetest.Create(t, w.rome.Client().CoreV1().PersistentVolumeClaims(pathsNamespace), &claim)
	}
}

func (w *fullWorld) createPods(t *testing.T, paths []volumePath) {
	t.Helper()
	for _, p := range paths {
		spec := testSpec(1, "serve")
		spec.NodeSelector = map[string]string{corev1.LabelHostname: "rome-1"}
		if p.virtual {
			spec.NodeSelector = map[string]string{offloadingv1beta1.TypeLabel: offloadingv1beta1.TypeVirtualNode}
		}
		mountsClaim(&spec, p.name())
		kubetest.Create(t, w.rome.Client().CoreV1().Pods(pathsNamespace), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: p.name()}, Spec: spec})
	}
}

// onAll waits until something holds for all paths.
func onAll(t *testing.T, what string, paths []volumePath, cond func(context.Context, volumePath) error) {
	t.Helper()
	left := slices.Clone(paths)
	within(t, longest, what, func(ctx context.Context) error {
		var errs []error
		left = slices.DeleteFunc(left, func(p volumePath) bool {
			err := cond(ctx, p)
			if err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", p.name(), err))
			}
			return err == nil
		})
		return errors.Join(errs...)
	})
}

// writesAndReads has a pod of each path write, and another one read. The bytes are in one cluster.
func (w *fullWorld) writesAndReads(t *testing.T, paths []volumePath) {
	t.Helper()
	w.createPods(t, paths)
	onAll(t, "pods write", paths, func(ctx context.Context, p volumePath) error {
		if err := w.podReady(pathsNamespace, p.name())(ctx); err != nil {
			return err
		}
		return second(w.rome.Exec(ctx, pathsNamespace, p.name(), "write", bytesFile, p.bytes()))
	})
	w.deletePods(t, paths)
	w.createPods(t, paths)
	onAll(t, "other pods read", paths, func(ctx context.Context, p volumePath) error {
		return w.hasWritten(pathsNamespace, p.name(), p.bytes())(ctx)
	})
	for _, p := range paths {
		want := "rome"
		if p.virtual {
			want = "milan"
		}
		require.Equal(t, []string{want}, w.hasBytes(t, p), p.name())
	}
}

// hasBytes returns the clusters that have the bytes of a path, once for each volume.
func (w *fullWorld) hasBytes(t *testing.T, p volumePath) (clusters []string) {
	t.Helper()
	for _, s := range []*site.Site{w.rome, w.milan} {
		for _, n := range w.full.Nodes(s.Cluster) {
			for _, file := range must(filepath.Glob(filepath.Join(n.Volumes(), "*", filepath.Base(bytesFile))))(t) {
				if data, err := os.ReadFile(file); err == nil && string(data) == p.bytes()+"\n" {
					clusters = append(clusters, s.Name)
				}
			}
		}
	}
	return clusters
}

func (w *fullWorld) deletePods(t *testing.T, paths []volumePath) {
	t.Helper()
	for _, p := range paths {
		require.NoError(t, w.rome.Client().CoreV1().Pods(pathsNamespace).Delete(t.Context(), p.name(), metav1.DeleteOptions{}))
	}
	onAll(t, "the pods are gone", paths, func(ctx context.Context, p volumePath) error {
		return absent(w.rome.Client().CoreV1().Pods(pathsNamespace).Get(ctx, p.name(), metav1.GetOptions{}))
	})
}

// deleteClaims deletes claims and their pods, and does not wait.
func (w *fullWorld) deleteClaims(t *testing.T, paths []volumePath) {
	t.Helper()
	c := w.rome.Client().CoreV1()
	for _, p := range paths {
		if err := c.Pods(pathsNamespace).Delete(t.Context(), p.name(), metav1.DeleteOptions{}); !apierrors.IsNotFound(err) {
			require.NoError(t, err)
		}
		require.NoError(t, c.PersistentVolumeClaims(pathsNamespace).Delete(t.Context(), p.name(), metav1.DeleteOptions{}))
	}
}

// ended requires that claims are gone, and of their bytes that they are where they were with the
// policy Retain, and nowhere with Delete.
func (w *fullWorld) ended(t *testing.T, paths []volumePath) {
	t.Helper()
	onAll(t, "the claims end as their class says", paths, func(ctx context.Context, p volumePath) error {
		if err := absent(w.rome.Client().CoreV1().PersistentVolumeClaims(pathsNamespace).Get(ctx, p.name(), metav1.GetOptions{})); err != nil {
			return err
		}
		have := w.hasBytes(t, p)
		return lab.Wrong(nil, len(have) > 0 != (p.bound && p.retain), "the bytes are in %v", have)
	})
}

// cutOff cuts the clusters from each other until back is called, and waits until home has noticed.
func (w *fullWorld) cutOff(t *testing.T) (back func()) {
	t.Helper()
	sites := []*site.Site{w.rome, w.milan}
	for _, s := range sites {
		other := w.other(s)
		var theirs []string
		for _, n := range w.full.Nodes(other.Cluster) {
			theirs = append(theirs, n.Machine.Address)
		}
		if other.Options.PodCIDR != s.Options.PodCIDR {
			theirs = append(theirs, other.Options.PodCIDR)
		}
		for _, n := range w.full.Nodes(s.Cluster) {
			require.NoError(t, n.Machine.Drop(t.Context(), "cut", lab.Drops{Arriving: []string{"ip saddr { " + strings.Join(theirs, ", ") + " }"}}))
		}
	}
	pass := func() {
		for _, s := range sites {
			for _, n := range w.full.Nodes(s.Cluster) {
				require.NoError(t, n.Machine.Pass(context.WithoutCancel(t.Context()), "cut"))
			}
		}
	}
	t.Cleanup(pass)
	within(t, longest, "the virtual node is not Ready", w.node("milan", corev1.ConditionFalse))
	return pass
}

// deletesKept runs the commands of storage list that delete the data of paths. Then no volume is left.
func (w *fullWorld) deletesKept(t *testing.T, paths []volumePath) {
	t.Helper()
	for _, p := range paths {
		kept := w.listedAs(t, w.rome, pathsNamespace, p.name(), "kept")
		w.pastes(t, w.rome, kept.Delete, "")
	}
	onAll(t, "the data is gone", paths, func(_ context.Context, p volumePath) error {
		have := w.hasBytes(t, p)
		return lab.Wrong(nil, len(have) > 0, "the bytes are in %v", have)
	})
	within(t, longest, "no volume is left", func(context.Context) error {
		left := w.volumeFolders(t)
		return lab.Wrong(nil, len(left) > 0, "there are still %v", left)
	})
}
