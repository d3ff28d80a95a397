package scenarios

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/e2e/site"
	"github.com/liqod/liqod/kube/kubetest"
)

const (
	moveNamespace = "moves"
	moveClaim     = "data"
)

// moveWorld is clusters with the fabric, a provisioner in each, and a claim with data.
type moveWorld struct {
	networkWorld
	// list are the clusters, rome first.
	list []*site.Site
	// bytes are the size of the data, and files its checksum on the disk.
	bytes int64
	files string
}

// TestStorageMove: the data of a claim moves from the provider home and back, whatever is killed.
// With -all it is 1 GiB, killed at 20 points.
func TestStorageMove(t *testing.T) {
	bytes, points := int64(64<<20), 4
	if *all {
		bytes, points = 1<<30, 20
	} else {
		t.Logf("left to make test-all: %s: 1 GiB killed at 20 points", t.Name())
	}
	w := &moveWorld{networkWorld: newNetworkWorld(t, site.FabricProcesses, nil, 1, 1), bytes: bytes}
	w.list = []*site.Site{w.rome, w.milan}
	w.peer(t)
	w.storage(t)
	w.offload(t, moveNamespace, offloadingv1beta1.NamespaceOffloadingSpec{PodOffloadingStrategy: offloadingv1beta1.PodsLocalAndRemote})
	w.fill(t)

	t.Run("refused while mounted", func(t *testing.T) { moveRefused(t, w) })
	took := map[string]time.Duration{}
	for _, to := range []string{w.homeNode(), "milan"} {
		t.Run("to "+to, func(t *testing.T) {
			begin := time.Now()
			w.move(t, to)
			took[to] = time.Since(begin)
			w.readBytes(t)
		})
	}
	t.Run("undo", func(t *testing.T) { moveUndone(t, w, took[w.homeNode()]) })
	nodes := []string{w.homeNode(), "milan"}
	for i := range points {
		to := nodes[i%2]
		t.Run(fmt.Sprintf("killed at point %d on the way to %s", i+1, to), func(t *testing.T) {
			w.killed(t, to, took[to]*time.Duration(i+1)/time.Duration(points+1), i)
		})
	}
	w.readBytes(t)
}

// storage gives each cluster a provisioner, and waits until rome knows those of its providers.
func (w *moveWorld) storage(t *testing.T) {
	t.Helper()
	for _, s := range w.list {
		require.NoError(t, w.full.ApplyStorage(t.Context(), s.Cluster))
	}
	for _, provider := range w.list[1:] {
		within(t, longest, provider.Name+" offers its class", lab.Is(w.rome.Liqod().OffloadingV1beta1().VirtualNodes(corev1beta1.TenantNamespace(provider.Name)), provider.Name, func(vn *offloadingv1beta1.VirtualNode) bool {
			return len(vn.Spec.StorageClasses) > 0
		}))
	}
}

// at returns the provider behind a virtual node, or rome.
func (w *moveWorld) at(node string) *site.Site {
	for _, provider := range w.list[1:] {
		if provider.Name == node {
			return provider
		}
	}
	return w.rome
}

func (w *moveWorld) homeNode() string { return w.full.Nodes(w.rome.Cluster)[0].Name }

// user is a pod that uses the claim. selector may be nil.
func (w *moveWorld) user(name string, selector map[string]string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: testSpec(1, "serve")}
	pod.Spec.NodeSelector = selector
	mountsClaim(&pod.Spec, moveClaim)
	return pod
}

// start creates a pod and waits until it is ready.
func (w *moveWorld) start(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	kubetest.Create(t, w.rome.Client().CoreV1().Pods(moveNamespace), pod)
	within(t, longest, pod.Name+" runs with its volume", w.podReady(moveNamespace, pod.Name))
}

func (w *moveWorld) end(t *testing.T, name string) {
	t.Helper()
	pods := w.rome.Client().CoreV1().Pods(moveNamespace)
	require.NoError(t, pods.Delete(t.Context(), name, metav1.DeleteOptions{}))
	within(t, longest, name+" is gone", isGone(pods, name))
}

// fill creates the claim with its first pod in milan, and writes files of many kinds there.
func (w *moveWorld) fill(t *testing.T) {
	t.Helper()
	kubetest.Create(t, w.rome.Client().CoreV1().PersistentVolumeClaims(moveNamespace), &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: moveClaim},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: ptr.To("liqo"), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("2Gi")}},
		},
	})
	w.start(t, w.user("first", map[string]string{corev1beta1.RemoteClusterIDLabel: "milan"}))
	folder := w.folder(t, w.milan)
	require.NotEmpty(t, folder)
	large := must(os.Create(filepath.Join(folder, "large")))(t)
	chunk := make([]byte, 1<<20)
	for range w.bytes / int64(len(chunk)) {
		_, _ = rand.Read(chunk)
		require.NoError(t, second(large.Write(chunk)))
	}
	require.NoError(t, errors.Join(large.Truncate(w.bytes+10<<20), large.Close()))
	for i := range 200 {
		dir := filepath.Join(folder, "base", fmt.Sprint(i%7))
		require.NoError(t, errors.Join(os.MkdirAll(dir, 0o750), os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), fmt.Append(nil, "file ", i), 0o600), os.Chown(filepath.Join(dir, fmt.Sprint(i)), 70, 70)))
	}
	require.NoError(t, errors.Join(os.WriteFile(filepath.Join(folder, "bytes"), []byte("of the first pod\n"), 0o644),
		os.Symlink("base/1", filepath.Join(folder, "current")), os.Link(filepath.Join(folder, "bytes"), filepath.Join(folder, "again"))))
	w.files = checksum(t, folder)
}

// folder returns the folder of the volume that a cluster has, or "".
func (w *moveWorld) folder(t *testing.T, s *site.Site) string {
	t.Helper()
	var out []string
	for _, n := range w.full.Nodes(s.Cluster) {
		for _, e := range must(os.ReadDir(n.Volumes()))(t) {
			out = append(out, filepath.Join(n.Volumes(), e.Name()))
		}
	}
	require.LessOrEqual(t, len(out), 1)
	return strings.Join(out, "")
}

// checksum reads all files below a folder.
func checksum(t *testing.T, folder string) string {
	t.Helper()
	sum := sha256.New()
	require.NoError(t, filepath.WalkDir(folder, func(name string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := os.Lstat(name)
		if err != nil {
			return err
		}
		owner := info.Sys().(*syscall.Stat_t)
		fmt.Fprintln(sum, strings.TrimPrefix(name, folder), info.Mode(), owner.Uid, owner.Gid)
		if info.Mode()&fs.ModeSymlink != 0 {
			target, err := os.Readlink(name)
			fmt.Fprintln(sum, target)
			return err
		}
		if !info.Mode().IsRegular() {
			return nil
		}
		fmt.Fprintln(sum, owner.Nlink, info.ModTime().UnixNano())
		data, err := os.ReadFile(name)
		sum.Write(data)
		return err
	}))
	return hex.EncodeToString(sum.Sum(nil))
}

// whole requires that the cluster which the claim's PersistentVolume names has all data, and returns
// the cluster. Between two PersistentVolumes it is the one that the claim is to get.
func (w *moveWorld) whole(t *testing.T) *site.Site {
	t.Helper()
	claim := kubetest.Get(t, w.rome.Client().CoreV1().PersistentVolumeClaims(moveNamespace), moveClaim)
	at := w.rome
	volume, err := w.rome.Client().CoreV1().PersistentVolumes().Get(t.Context(), claim.Spec.VolumeName, metav1.GetOptions{})
	switch {
	case err == nil:
		at = w.at(volume.Labels[corev1beta1.RemoteClusterIDLabel])
	case apierrors.IsNotFound(err):
		at = w.at(claim.Annotations[selectedNode])
	default:
		require.NoError(t, err)
	}
	folder := w.folder(t, at)
	require.NotEmpty(t, folder, "no volume in %s", at.Name)
	require.Equal(t, w.files, checksum(t, folder), "in %s", at.Name)
	return at
}

func (w *moveWorld) arguments(args ...string) []string {
	return append([]string{"storage", "move", moveClaim, "-n", moveNamespace}, args...)
}

// move moves the data, and requires it to be whole there, and nowhere else.
func (w *moveWorld) move(t *testing.T, to string) {
	t.Helper()
	w.ready(t)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	out, code, err := w.command(ctx, w.rome, w.arguments("--to", to)...)
	t.Logf("to %s:\n%s", to, out)
	require.NoError(t, err)
	require.Zero(t, code)
	require.Same(t, w.at(to), w.whole(t))
	within(t, longest, "the other copy is gone", func(context.Context) error {
		for _, s := range w.list {
			if folder := w.folder(t, s); s != w.at(to) && folder != "" {
				return fmt.Errorf("there is %s", folder)
			}
		}
		return nil
	})
	secrets := kubetest.List(t, w.rome.Client().CoreV1().Secrets(metav1.NamespaceAll), metav1.ListOptions{LabelSelector: "offloading.liqo.io/move"})
	require.Empty(t, secrets.Items)
}

// readBytes reads in a new pod, which the scheduler places by the volume.
func (w *moveWorld) readBytes(t *testing.T) {
	t.Helper()
	w.start(t, w.user("reader", nil))
	read := must(w.rome.Exec(t.Context(), moveNamespace, "reader", "cat", "/data/bytes"))(t)
	require.Equal(t, "of the first pod\n", read)
	w.end(t, "reader")
}

func moveRefused(t *testing.T, w *moveWorld) {
	out, code, err := w.command(t.Context(), w.rome, w.arguments("--to", w.homeNode())...)
	require.NoError(t, err)
	require.Equal(t, 1, code, out)
	require.Contains(t, out, "is in use")
	require.Contains(t, out, "first")
	w.end(t, "first")
}

// ready waits until each virtual node is Ready: a move to another node is refused.
func (w *moveWorld) ready(t *testing.T) {
	t.Helper()
	for _, provider := range w.list[1:] {
		within(t, longest, provider.Name+" is Ready", w.node(provider.Name, corev1.ConditionTrue))
	}
}

// begin starts a move and kills the command after a while. It reports whether the command had ended.
func (w *moveWorld) begin(t *testing.T, to string, after time.Duration) (ended bool) {
	t.Helper()
	w.ready(t)
	cmd := w.sites.Command(t.Context(), append(w.arguments("--to", to), "--kubeconfig", w.rome.Kubeconfig)...)
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	require.NoError(t, cmd.Start())
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	select {
	case err := <-done:
		require.NoError(t, err, out.String())
		return true
	case <-time.After(after):
		if err := cmd.Process.Kill(); !errors.Is(err, os.ErrProcessDone) { // it may end at this moment
			require.NoError(t, err)
		}
		return (<-done) == nil
	}
}

// killed kills the command, and one of its pods or all, after a while. A second call ends the move.
func (w *moveWorld) killed(t *testing.T, to string, after time.Duration, victim int) {
	ended := w.begin(t, to, after)
	at := w.whole(t)
	claim := kubetest.Get(t, w.rome.Client().CoreV1().PersistentVolumeClaims(moveNamespace), moveClaim)
	t.Logf("killed after %s (it had ended: %t): the data is whole in %s", after.Round(time.Millisecond), ended, at.Name)
	for i, pod := range []struct{ namespace, suffix string }{{moveNamespace, "-there"}, {moveNamespace, "-here"}, {"liqo-storage", "-here"}, {moveNamespace, "-target"}} {
		if victim%4 == 3 || victim%4 == min(i, 1) {
			err := w.rome.Client().CoreV1().Pods(pod.namespace).Delete(t.Context(), "liqod-move-"+string(claim.UID)+pod.suffix, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)})
			if !apierrors.IsNotFound(err) {
				require.NoError(t, err)
			}
		}
	}
	if !ended && claim.Annotations[offloadingv1beta1.MoveToAnnotation] != "" {
		_, err := w.rome.Client().CoreV1().Pods(moveNamespace).Create(t.Context(), w.user("early", nil), metav1.CreateOptions{})
		require.ErrorContains(t, err, "is being moved to node")
	}
	w.move(t, to)
}

// moveUndone gives up a move to this cluster: nothing is left there.
func moveUndone(t *testing.T, w *moveWorld, took time.Duration) {
	require.False(t, w.begin(t, w.homeNode(), min(took/3, 5*time.Second)))
	w.done(t, w.rome, w.arguments("--undo")...)
	require.Same(t, w.milan, w.whole(t))
	within(t, longest, "the copy is gone", func(context.Context) error {
		folder := w.folder(t, w.rome)
		return lab.Wrong(nil, folder != "", "there is %s", folder)
	})
	w.readBytes(t)
}
