package report

import (
	"cmp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
)

// A move is shown by storage list, status and check, with the commands that go on. Only one that does
// not go on by itself is a warning.
func TestMoves(t *testing.T) {
	now := time.Unix(1e9, 0)
	const finish, undo = "liqod storage move -n shop data --to worker", "liqod storage move -n shop data --undo"
	annotated := func(key, value string, ago time.Duration) func(*corev1.PersistentVolumeClaim) {
		return func(c *corev1.PersistentVolumeClaim) {
			c.Annotations[key] = value
			c.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "liqod-move", Time: ptr.To(metav1.NewTime(now.Add(-ago)))}, {Manager: "kubectl", Time: ptr.To(metav1.NewTime(now))}}
		}
	}
	to := func(ago time.Duration) func(*corev1.PersistentVolumeClaim) {
		return annotated(offloadingv1beta1.MoveToAnnotation, "worker", ago)
	}
	type copies = map[types.UID]Copying
	for name, tc := range map[string]struct {
		change []func(*corev1.PersistentVolumeClaim)
		copies copies
		want   *Move
	}{
		"none":                 {},
		"copying":              {[]func(*corev1.PersistentVolumeClaim){to(time.Hour)}, copies{"u1": {Progress: "copying: 43%"}}, &Move{To: "worker", State: "copying: 43%", Finish: finish, Undo: undo}},
		"pods may not be read": {[]func(*corev1.PersistentVolumeClaim){to(time.Hour)}, nil, &Move{To: "worker", State: "it is being copied", Finish: finish, Undo: undo}},
		"a pod fails": {[]func(*corev1.PersistentVolumeClaim){to(time.Second)}, copies{"u1": {Progress: "no space left", Failed: true}},
			&Move{To: "worker", State: "no space left", Stopped: true, Finish: finish, Undo: undo}},
		"just begun": {[]func(*corev1.PersistentVolumeClaim){to(time.Second)}, copies{}, &Move{To: "worker", State: "no pod copies it", Finish: finish, Undo: undo}},
		"interrupted before its pods": {[]func(*corev1.PersistentVolumeClaim){to(time.Hour)}, copies{},
			&Move{To: "worker", State: "no pod copies it; no command goes on with the move", Stopped: true, Finish: finish, Undo: undo}},
		"copied a moment ago": {[]func(*corev1.PersistentVolumeClaim){to(time.Hour)}, copies{"u1": {Progress: "copied and verified", Whole: now.Add(-time.Second)}},
			&Move{To: "worker", State: "copied and verified", Finish: finish, Undo: undo}},
		"copied, and interrupted": {[]func(*corev1.PersistentVolumeClaim){to(time.Hour)}, copies{"u1": {Progress: "copied and verified", Whole: now.Add(-time.Hour)}},
			&Move{To: "worker", State: "copied and verified; no command goes on with the move", Stopped: true, Finish: finish, Undo: undo}},
		"interrupted after the decision": {[]func(*corev1.PersistentVolumeClaim){to(time.Hour), annotated(SelectedNode, "worker", time.Hour)}, copies{},
			&Move{To: "worker", State: "the copy is verified, and the claim gets it; no command goes on with the move", Stopped: true, Finish: finish}},
		"to what is no node": {[]func(*corev1.PersistentVolumeClaim){annotated(offloadingv1beta1.MoveToAnnotation, "x; reboot", time.Hour)}, copies{},
			&Move{To: "x; reboot", State: "no pod copies it; no command goes on with the move", Stopped: true, Undo: undo}},
		"a copy there": {[]func(*corev1.PersistentVolumeClaim){annotated(offloadingv1beta1.DiscardCopyAnnotation, "turin", time.Hour)}, nil,
			&Move{State: "the other copy, behind virtual node turin, is deleted once its cluster can be reached"}},
		"a copy here": {[]func(*corev1.PersistentVolumeClaim){annotated(offloadingv1beta1.DiscardCopyAnnotation, offloadingv1beta1.CopyHere, time.Hour)}, nil,
			&Move{State: "the other copy, in this cluster, is being deleted"}},
	} {
		t.Run(name, func(t *testing.T) {
			claim := claimOf("shop", "data", "u1", tc.change...)
			volume := volumeFor("u1", "milan", func(v *corev1.PersistentVolume) { v.Status.Phase = corev1.VolumeBound })
			s := healthy(t)
			s.Program, s.Taken, s.Volumes, s.Copies = "liqod", now, []corev1.PersistentVolume{volume}, tc.copies
			s.Claims = []corev1.PersistentVolumeClaim{claim}
			s.Classes = []*storagev1.StorageClass{{ObjectMeta: metav1.ObjectMeta{Name: "liqo"}, Provisioner: "liqo.io/storage"}}
			list := s.Storage()
			row, status := list.Volumes[0], Summarize(s)
			text, check, listed := status.Text(false), CheckText(Check(s)), list.Text()
			if tc.want == nil {
				require.Nil(t, row.Move)
				require.Empty(t, status.Moves)
				require.NotContains(t, text+check, "data moves")
				return
			}
			tc.want.Namespace, tc.want.Claim, tc.want.From = "shop", "data", "cluster milan"
			require.Equal(t, tc.want, row.Move)
			require.Equal(t, []Move{*tc.want}, status.Moves)
			require.Contains(t, text, "\nMoving data:\n  shop/data "+tc.want.inOneLine()+"\n")
			require.Contains(t, listed, tc.want.State)
			require.Equal(t, map[bool]string{true: VolumeMoving, false: VolumeBound}[tc.want.To != ""], row.Phase)
			for _, command := range []string{tc.want.Finish, tc.want.Undo} {
				require.Contains(t, listed, command)
			}
			mark := map[bool]string{true: "‼", false: "✔"}[tc.want.Stopped]
			require.Contains(t, check, "\nVolumes\n  "+mark+" shop/data: its data moves "+tc.want.inOneLine())
			require.Equal(t, tc.want.Stopped, len(status.Warnings) > 0)
			require.NotContains(t, listed+text+check, "--to x")
			if tc.want.Stopped {
				require.Contains(t, check, cmp.Or(tc.want.Finish, tc.want.Undo))
				require.Contains(t, text, cmp.Or(tc.want.Finish, tc.want.Undo))
			}
		})
	}
}
