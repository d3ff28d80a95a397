package move

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	liqodfake "github.com/liqod/liqod/api/generated/clientset/versioned/fake"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/kubetest"
	"github.com/liqod/liqod/roles/cmd/report"
)

// errKilled is the answer to the write at which a command is interrupted.
var errKilled = errors.New("killed")

// world is a cluster with the nodes worker, milan and turin, the latter two virtual ones, and a claim. At each read it does
// what Kubernetes, liqod and the pods of the move do. It knows what is in the volumes.
type world struct {
	t    *testing.T
	core *fake.Clientset
	liqo *liqodfake.Clientset

	mu     sync.Mutex
	clock  time.Time
	writes int
	// killAt is the write that fails, if not 0; lost: after it was done.
	killAt int
	lost   bool
	// uids numbers the objects that were created.
	uids int
	// lies is called before each read, for what a provider says or a stranger does.
	lies func()
	// data says what each place has: whole, part or nothing.
	data  map[string]string
	lines []string
}

const here = "worker"

func newWorld(t *testing.T, at string, change ...func(*corev1.PersistentVolumeClaim)) *world {
	t.Helper()
	ready := corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}
	claim := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data", UID: "uid", Annotations: map[string]string{report.SelectedNode: at}},
		Spec:       corev1.PersistentVolumeClaimSpec{VolumeName: "pvc-uid"}, Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.ClaimBound},
	}
	for _, f := range change {
		if f != nil {
			f(claim)
		}
	}
	virtual := func(name string) *offloadingv1beta1.VirtualNode {
		vn := &offloadingv1beta1.VirtualNode{ObjectMeta: metav1.ObjectMeta{Namespace: corev1beta1.TenantNamespace(name), Name: name}}
		vn.Spec.StorageClasses = []offloadingv1beta1.ClassOffer{{StorageClassName: "fast"}}
		return vn
	}
	w := &world{t: t, clock: time.Unix(1e9, 0), data: map[string]string{at: "whole"}, liqo: liqodfake.NewSimpleClientset(virtual("milan"), virtual("turin")), core: fake.NewClientset(
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: here}, Status: ready},
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "turin", Labels: map[string]string{offloadingv1beta1.TypeLabel: offloadingv1beta1.TypeVirtualNode, corev1beta1.RemoteClusterIDLabel: "turin"}}, Status: ready},
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "milan", Labels: map[string]string{offloadingv1beta1.TypeLabel: offloadingv1beta1.TypeVirtualNode, corev1beta1.RemoteClusterIDLabel: "milan"}}, Status: ready},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: map[string]string{offloadingv1beta1.SchedulingEnabledLabel: "true"}}},
		claim, volumeIn(at),
	)}
	w.core.PrependReactor("*", "*", w.react)
	return w
}

func volumeIn(node string) *corev1.PersistentVolume {
	v := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pvc-uid", UID: "volume", Annotations: map[string]string{report.ProvisionedBy: offloadingv1beta1.StorageProvisioner}},
		Spec:       corev1.PersistentVolumeSpec{ClaimRef: &corev1.ObjectReference{Namespace: "shop", Name: "data", UID: "uid"}},
	}
	if node != here {
		v.Labels = map[string]string{corev1beta1.RemoteClusterIDLabel: node}
	}
	return v
}

// react plays the cluster before each read, and interrupts a write.
func (w *world) react(action clienttesting.Action) (bool, runtime.Object, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if slices.Contains([]string{"get", "list", "watch"}, action.GetVerb()) {
		w.play()
		return false, nil, nil
	}
	if create, ok := action.(clienttesting.CreateActionImpl); ok && len(create.GetCreateOptions().DryRun) > 0 {
		if w.claim().Annotations[offloadingv1beta1.MoveToAnnotation] == "" {
			return true, create.GetObject(), nil
		}
		err := apierrors.NewForbidden(corev1.Resource("pods"), "x", errors.New("it is being moved"))
		err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: offloadingv1beta1.CauseMoving}}
		return true, nil, err
	}
	if create, ok := action.(clienttesting.CreateActionImpl); ok {
		w.uids++
		create.GetObject().(metav1.Object).SetUID(types.UID(fmt.Sprint("uid-", w.uids)))
	}
	w.writes++
	if w.writes != w.killAt {
		return false, nil, nil
	}
	if w.lost {
		_, _, _ = clienttesting.ObjectReaction(w.core.Tracker())(action) // whatever the answer was
	}
	return true, nil, errKilled
}

func get[T runtime.Object](w *world, resource, namespace, name string) (out T, found bool) {
	obj, err := w.core.Tracker().Get(corev1.SchemeGroupVersion.WithResource(resource), namespace, name)
	if err != nil {
		return out, false
	}
	return obj.DeepCopyObject().(T), true
}

func (w *world) claim() *corev1.PersistentVolumeClaim {
	claim, found := get[*corev1.PersistentVolumeClaim](w, "persistentvolumeclaims", "shop", "data")
	require.True(w.t, found)
	return claim
}

func (w *world) update(resource string, obj runtime.Object) {
	meta := obj.(metav1.Object)
	require.NoError(w.t, w.core.Tracker().Update(corev1.SchemeGroupVersion.WithResource(resource), obj, meta.GetNamespace()))
}

// play does what the others do, and requires that the claim's place has all data.
func (w *world) play() {
	claim := w.claim()
	to, selected := claim.Annotations[offloadingv1beta1.MoveToAnnotation], claim.Annotations[report.SelectedNode]
	if to != "" && to != selected && w.data[to] == "" {
		w.data[to] = "part"
	}
	if w.lies != nil {
		w.lies()
	}
	there, _ := get[*corev1.Pod](w, "pods", "shop", "liqod-move-uid-there")
	target, _ := get[*corev1.Pod](w, "pods", "shop", "liqod-move-uid-target")
	own, _ := get[*corev1.Pod](w, "pods", "shop", "liqod-move-uid-here")
	if own == nil {
		own, _ = get[*corev1.Pod](w, "pods", "liqo-storage", "liqod-move-uid-here")
	}
	switch {
	case there != nil && there.Status.Phase == "":
		there.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.0.0.1"}
		w.update("pods", there)
	case target != nil && target.Status.Phase == "":
		target.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.0.0.2"}
		w.update("pods", target)
	case own != nil && own.Status.Phase == "":
		own.Status.Phase = corev1.PodRunning
		w.update("pods", own)
	case own != nil && there != nil && target != nil && target.Status.Phase == corev1.PodRunning:
		require.Equal(w.t, []string{"storage", "copy", "--key", keyFolder, "--connect", "10.0.0.1:5473", "--connect", "10.0.0.2:5473"}, own.Spec.Containers[0].Args)
		require.Len(w.t, own.Spec.Volumes, 1)
		w.succeeds(own, to, there, target)
	case own != nil && there != nil && target == nil && own.Status.Phase == corev1.PodRunning && len(own.Spec.Volumes) == 2:
		require.Contains(w.t, own.Spec.Containers[0].Args, "10.0.0.1:5473")
		w.succeeds(own, to, there)
	}
	volume, found := get[*corev1.PersistentVolume](w, "persistentvolumes", "", "pvc-uid")
	at := selected
	if found {
		if at = volume.Labels[corev1beta1.RemoteClusterIDLabel]; at == "" {
			at = here
		}
	} else {
		require.Equal(w.t, to, selected, "the PersistentVolume goes after the decision")
		require.NoError(w.t, w.core.Tracker().Add(volumeIn(to)))
	}
	require.Equal(w.t, "whole", w.data[at], "the place of the claim's data: %s", at)
	gone := claim.Annotations[offloadingv1beta1.DiscardCopyAnnotation]
	if gone == offloadingv1beta1.CopyHere {
		gone = here
	}
	if found && gone != "" && gone != at {
		require.Nil(w.t, own, "a volume in use")
		require.Nil(w.t, target, "a volume in use")
		delete(w.data, gone)
		delete(claim.Annotations, offloadingv1beta1.DiscardCopyAnnotation)
		w.update("persistentvolumeclaims", claim)
	}
}

// succeeds ends a copy, if each end has its own key, and the certificates of those that it meets.
func (w *world) succeeds(own *corev1.Pod, to string, others ...*corev1.Pod) {
	key := func(pod *corev1.Pod) *corev1.Secret {
		secret, found := get[*corev1.Secret](w, "secrets", pod.Namespace, pod.Name)
		require.True(w.t, found)
		require.Equal(w.t, secret.UID, pod.OwnerReferences[0].UID)
		require.Equal(w.t, pod.Name, pod.Spec.Volumes[0].Secret.SecretName)
		return secret
	}
	mine := key(own)
	require.Equal(w.t, map[string]string{offloadingv1beta1.SkipReflectionAnnotation: "true"}, mine.Annotations)
	require.Len(w.t, mine.Data, 2+len(others))
	for _, pod := range others {
		their, part, other := key(pod), "receiver.crt", "sender.crt"
		if slices.Contains(pod.Spec.Containers[0].Args, "--read") {
			part, other = other, part
		}
		require.Equal(w.t, map[string]string{offloadingv1beta1.AllowReflectionAnnotation: "true", offloadingv1beta1.ReflectOnlyToAnnotation: pod.Spec.NodeName}, their.Annotations)
		require.Len(w.t, their.Data, 3)
		require.NotEqual(w.t, mine.Data["tls.key"], their.Data["tls.key"])
		require.Equal(w.t, mine.Data["tls.crt"], their.Data[other])
		require.Equal(w.t, their.Data["tls.crt"], mine.Data[part])
	}
	own.Status.Phase = corev1.PodSucceeded
	w.update("pods", own)
	w.data[to] = "whole"
}

func (w *world) config(to string) Config {
	return Config{
		Kube: w.core, Liqo: w.liqo, Namespace: "shop", Claim: "data", Node: to, Image: "liqod:1", StorageNamespace: "liqo-storage", Program: "liqod", Every: time.Millisecond,
		Now: func() time.Time {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.clock = w.clock.Add(time.Second)
			return w.clock
		},
		Say: func(line string) error { w.lines = append(w.lines, line); return nil },
	}
}

func (w *world) run(to string) error {
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	return Run(ctx, w.config(to))
}

// left requires that the data is whole in one place, and that nothing else is left.
func (w *world) left(at string) {
	w.t.Helper()
	w.play()
	require.Equal(w.t, map[string]string{at: "whole"}, w.data, strings.Join(w.lines, "\n"))
	require.Equal(w.t, map[string]string{report.SelectedNode: at}, w.claim().Annotations)
	pods := kubetest.List(w.t, w.core.CoreV1().Pods(metav1.NamespaceAll))
	require.Empty(w.t, pods.Items)
	secrets := kubetest.List(w.t, w.core.CoreV1().Secrets(metav1.NamespaceAll))
	require.Empty(w.t, secrets.Items)
}

// eachInterruption calls test with an interruption of each write, before it and after it, in all
// directions.
func eachInterruption(t *testing.T, test func(t *testing.T, w *world, from, to string, first error)) {
	for _, way := range [][2]string{{"milan", here}, {here, "milan"}, {"milan", "turin"}} {
		for _, lost := range []bool{false, true} {
			ended := false
			for k := 1; !ended; k++ {
				t.Run(fmt.Sprintf("to %s, write %d, lost %t", way[1], k, lost), func(t *testing.T) {
					w := newWorld(t, way[0])
					w.killAt, w.lost = k, lost
					err := w.run(way[1])
					if ended = w.writes < k; ended {
						require.NoError(t, err)
					}
					w.killAt = 0
					test(t, w, way[0], way[1], err)
				})
			}
		}
	}
}

// TestInterruptedAnywhere: a second call ends the move, wherever the first one was interrupted.
func TestInterruptedAnywhere(t *testing.T) {
	eachInterruption(t, func(t *testing.T, w *world, _, to string, first error) {
		if first != nil {
			require.ErrorIs(t, first, errKilled)
			require.NoError(t, w.run(to), strings.Join(w.lines, "\n"))
		}
		w.left(to)
		require.NoError(t, w.run(to), "it is there already")
		w.left(to)
	})
}

// TestUndoneAnywhere: before the decision, undo leaves the data where it was; after it, the move goes on.
func TestUndoneAnywhere(t *testing.T) {
	eachInterruption(t, func(t *testing.T, w *world, from, to string, first error) {
		decided := w.claim().Annotations[report.SelectedNode] == to
		err := Undo(t.Context(), w.config(""))
		switch {
		case !decided:
			require.NoError(t, err)
			w.left(from)
		case first != nil && err != nil:
			require.ErrorContains(t, err, "finish the move with liqod storage move -n shop data --to "+to)
			require.NoError(t, w.run(to))
			w.left(to)
		default:
			w.left(to)
		}
	})
}

// TestInterruptedUndo: undo ends, too, after any interruption.
func TestInterruptedUndo(t *testing.T) {
	for _, lost := range []bool{false, true} {
		for k, ended := 1, false; !ended; k++ {
			w := newWorld(t, "milan")
			w.killAt = 5 // the pods run
			require.ErrorIs(t, w.run(here), errKilled)
			w.writes, w.killAt, w.lost = 0, k, lost
			err := Undo(t.Context(), w.config(""))
			if ended = w.writes < k; !ended {
				require.ErrorIs(t, err, errKilled)
				w.killAt = 0
				err = Undo(t.Context(), w.config(""))
			}
			require.NoError(t, err)
			w.left("milan")
		}
	}
}

// TestNotMoved: what is refused is refused before anything is written.
func TestNotMoved(t *testing.T) {
	says := func(key, value string) func(*corev1.PersistentVolumeClaim) {
		return func(c *corev1.PersistentVolumeClaim) { c.Annotations[key] = value }
	}
	for name, tc := range map[string]struct {
		claim func(*corev1.PersistentVolumeClaim)
		world func(*world)
		to    string
		want  string
	}{
		"no such node":           {to: "genoa", want: "node genoa does not exist"},
		"there already":          {to: "milan"},
		"in use":                 {want: "is in use: scale its workload down, or delete the pods, and run the command again; pods: web-0", world: func(w *world) { w.pod("web-0", corev1.PodRunning) }},
		"an ended pod":           {want: errKilled.Error(), world: func(w *world) { w.pod("job", corev1.PodSucceeded); w.killAt = 1 }},
		"not bound":              {want: "has no volume", claim: func(c *corev1.PersistentVolumeClaim) { c.Status.Phase = corev1.ClaimPending }},
		"a block device":         {want: "has volumeMode Block", claim: func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeMode = ptr.To(corev1.PersistentVolumeBlock) }},
		"bound by hand":          {want: "is bound to the volume of an earlier claim", claim: func(c *corev1.PersistentVolumeClaim) { c.UID = "other" }},
		"of a pod":               {want: "is an ephemeral volume", claim: func(c *corev1.PersistentVolumeClaim) { c.OwnerReferences = []metav1.OwnerReference{{Kind: "Pod"}} }},
		"a clone":                {want: "has a data source", claim: func(c *corev1.PersistentVolumeClaim) { c.Spec.DataSource = &corev1.TypedLocalObjectReference{} }},
		"another move":           {want: "is being moved to node turin: finish the move with liqod storage move -n shop data --to turin, or end it with liqod storage move -n shop data --undo", claim: says(offloadingv1beta1.MoveToAnnotation, "turin")},
		"a move to a command":    {want: "is being moved: finish the move by correcting the annotation offloading.liqo.io/move-to, which names no node, or end it with liqod storage move -n shop data --undo", claim: says(offloadingv1beta1.MoveToAnnotation, "milan; reboot #")},
		"decided without a copy": {want: "correct the annotation", claim: says(report.SelectedNode, here)},
		"another class": {want: "was not made by liqod", world: func(w *world) {
			v := volumeIn("milan")
			v.Annotations = nil
			w.update("persistentvolumes", v)
		}},
		"not offloaded": {want: "namespace shop is not offloaded", world: func(w *world) {
			w.update("namespaces", &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, "milan", tc.claim)
			if tc.world != nil {
				tc.world(w)
			}
			err := w.run(cmp.Or(tc.to, here))
			if tc.want == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, tc.want)
			}
			require.Equal(t, w.killAt, w.writes)
		})
	}
}

func (w *world) pod(name string, phase corev1.PodPhase) {
	w.t.Helper()
	require.NoError(w.t, w.core.Tracker().Add(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Status: corev1.PodStatus{Phase: phase},
		Spec: corev1.PodSpec{Volumes: []corev1.Volume{{Name: "x", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}},
	}))
}

// TestPodDuringTheMove: a pod that was created in spite of the lock keeps the claim from being
// exchanged under it.
func TestPodDuringTheMove(t *testing.T) {
	w := newWorld(t, "milan")
	w.killAt = 6
	require.ErrorIs(t, w.run(here), errKilled)
	w.killAt = 0
	w.pod("late", corev1.PodPending)
	require.ErrorContains(t, w.run(here), "pods: late")
	require.Equal(t, "milan", w.claim().Annotations[report.SelectedNode])
}

// TestWebhookOfAnEarlierVersion: without a lock nothing is moved.
func TestWebhookOfAnEarlierVersion(t *testing.T) {
	w := newWorld(t, "milan")
	w.core.PrependReactor("create", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		return true, action.(clienttesting.CreateAction).GetObject(), nil
	})
	require.ErrorContains(t, w.run(here), "webhook would let pods use the claim")
	w.play()
	w.left("milan")

	w.core.PrependReactor("create", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(corev1.Resource("pods"), "x", errors.New("another webhook refuses what "+offloadingv1beta1.MoveToAnnotation+" names"))
	})
	require.ErrorContains(t, w.run(here), "trying if pods are kept from using the claim")
}

// TestAPIServerAway: a command that has begun goes on when the API server is back.
func TestAPIServerAway(t *testing.T) {
	w, reads := newWorld(t, "milan"), 0
	w.core.PrependReactor("get", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		if reads++; reads <= 3 {
			return true, nil, &url.Error{Op: "Get", URL: "https://rome", Err: errors.New("TLS handshake timeout")}
		}
		return false, nil, nil
	})
	require.NoError(t, w.run(here))
	w.left(here)
	require.Contains(t, w.lines, `waiting for the API server: reading pod liqod-move-uid-here: Get "https://rome": TLS handshake timeout`)
}

// TestProvidersEndNothing: whatever a provider says of its pods, and whoever takes their names, the claim gets no copy
// that the end in this cluster has not checked.
func TestProvidersEndNothing(t *testing.T) {
	for _, way := range [][2]string{{"milan", here}, {here, "milan"}, {"milan", "turin"}} {
		for _, phase := range []corev1.PodPhase{corev1.PodSucceeded, corev1.PodFailed} {
			for _, suffix := range []string{"-there", "-target"} {
				w, lied := newWorld(t, way[0]), 0
				w.lies = func() {
					pod, found := get[*corev1.Pod](w, "pods", "shop", "liqod-move-uid"+suffix)
					if found && pod.Status.Phase == corev1.PodRunning && lied < 3 {
						lied++
						pod.Status.Phase = phase
						w.update("pods", pod)
					}
				}
				require.NoError(t, w.run(way[1]), strings.Join(w.lines, "\n"))
				w.left(way[1])
			}
		}
	}
}

// TestPodsOfOthers: a pod with the name of one of a move is that only by the UID of the move's key.
func TestPodsOfOthers(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*corev1.Pod)
		want   string
	}{
		"a stranger's":       {func(p *corev1.Pod) { p.Labels = nil }, "pod shop/liqod-move-uid-here is not of this move: delete it, and run the command again"},
		"of another key":     {change: func(p *corev1.Pod) { p.OwnerReferences = []metav1.OwnerReference{{Kind: "Secret", UID: "earlier"}} }},
		"without an owner":   {change: func(*corev1.Pod) {}},
		"of another Secret":  {change: func(p *corev1.Pod) { p.OwnerReferences = []metav1.OwnerReference{{Kind: "Secret", UID: "uid"}} }},
		"of another address": {change: func(p *corev1.Pod) { p.Spec.Containers[0].Args = []string{"--connect", "10.0.0.9:5473"} }},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, here)
			pod := &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "liqod-move-uid-here", UID: "other", Labels: map[string]string{moveLabel: "uid"}},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{}}}, Status: corev1.PodStatus{Phase: corev1.PodSucceeded},
			}
			tc.change(pod)
			require.NoError(t, w.core.Tracker().Add(pod))
			w.lies = func() { // it is no end of a copy
				if have, found := get[*corev1.Pod](w, "pods", "shop", pod.Name); found && have.UID == "other" {
					require.NotEqual(t, "whole", w.data["milan"])
				}
			}
			err := w.run("milan")
			if tc.want != "" {
				require.ErrorContains(t, err, tc.want)
				require.Equal(t, here, w.claim().Annotations[report.SelectedNode])
				return
			}
			require.NoError(t, err)
			w.left("milan")
		})
	}
}

// TestLostKey: without the key of one end, all are made anew, and pods with earlier ones end nothing.
func TestLostKey(t *testing.T) {
	w, lost := newWorld(t, "milan"), false
	w.lies = func() {
		own, found := get[*corev1.Pod](w, "pods", "liqo-storage", "liqod-move-uid-here")
		if found && own.Status.Phase == corev1.PodRunning && !lost {
			lost = true
			require.NoError(t, w.core.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("secrets"), "shop", "liqod-move-uid-there"))
			own.Status.Phase = corev1.PodSucceeded
			w.update("pods", own)
		}
	}
	require.NoError(t, w.run(here), strings.Join(w.lines, "\n"))
	require.True(t, lost)
	w.left(here)
}

// TestCopies: the pods of a move show how far it is.
func TestCopies(t *testing.T) {
	t.Parallel()
	ended, failed := metav1.NewTime(time.Unix(1e9, 0)), corev1.ContainerStatus{RestartCount: mostRestarts}
	failed.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{ExitCode: 1, Message: "no space left"}
	done := corev1.ContainerStatus{}
	done.State.Terminated = &corev1.ContainerStateTerminated{FinishedAt: ended}
	running, noImage := corev1.PodStatus{Phase: corev1.PodRunning}, corev1.ContainerStatus{Name: "liqod"}
	noImage.State.Waiting = &corev1.ContainerStateWaiting{Reason: "ErrImagePull", Message: "not found"}
	for name, tc := range map[string]struct {
		here, there corev1.PodStatus
		want        report.Copying
	}{
		"starts":                      {corev1.PodStatus{Phase: corev1.PodPending}, running, report.Copying{Progress: "pod here is not running yet: Pending"}},
		"gets no image":               {corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{noImage}}, running, report.Copying{Progress: "pod here is not running yet: container liqod: not found"}},
		"is refused":                  {corev1.PodStatus{Phase: corev1.PodPending, Message: "no room"}, running, report.Copying{Progress: "pod here is not running yet: no room"}},
		"runs":                        {running, running, report.Copying{Progress: "waiting for the first line of pod here"}}, // a fake has no such log
		"fails":                       {running, corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{failed}}, report.Copying{Failed: true, Progress: "pod there cannot copy the data: no space left; correct that and run the command again, or end the move with --undo"}},
		"is whole":                    {corev1.PodStatus{Phase: corev1.PodSucceeded, ContainerStatuses: []corev1.ContainerStatus{done}}, running, report.Copying{Progress: "copied and verified", Whole: ended.Time}},
		"is whole, says its provider": {running, corev1.PodStatus{Phase: corev1.PodSucceeded, ContainerStatuses: []corev1.ContainerStatus{done}}, report.Copying{Progress: "waiting for the first line of pod here"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			of, connects := map[string]string{moveLabel: "uid"}, corev1.PodSpec{Containers: []corev1.Container{{Args: []string{"--connect"}}}}
			core := fake.NewClientset(
				&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "here", Labels: of}, Status: tc.here, Spec: connects},
				&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "there", Labels: of}, Status: tc.there},
				&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}, Status: running},
			)
			got, err := Copies(t.Context(), core, metav1.NamespaceAll)
			require.NoError(t, err)
			require.Equal(t, map[types.UID]report.Copying{"uid": tc.want}, got)
		})
	}
}
