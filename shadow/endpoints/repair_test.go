package endpoints

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/kube/loop"
)

func TestWhoUndoesIsNotRaced(t *testing.T) {
	for name, tc := range map[string]struct {
		undo func(*rig)
		want []string
	}{
		"changed": {func(r *rig) { r.change(func(s *discoveryv1.EndpointSlice) { s.Endpoints = nil }) }, []string{"update"}},
		"deleted": {func(r *rig) { r.deleteSlice() }, []string{"create"}},
		"label lost": {func(r *rig) {
			r.change(func(s *discoveryv1.EndpointSlice) { delete(s.Labels, discoveryv1.LabelManagedBy) })
		}, []string{"create", "update"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, newShadow())
			waits := func(d time.Duration) {
				t.Helper()
				tc.undo(r)
				r.refresh()
				_, err := r.sync()
				require.Equal(t, loop.After(d), err)
				require.NotContains(t, r.writes, tc.want[len(tc.want)-1])
				r.clock.SetTime(r.clock.Now().Add(d))
				require.Equal(t, tc.want, r.settle())
			}
			r.settle()
			tc.undo(r)
			require.Equal(t, tc.want, r.settle(), "the first time at once")
			waits(time.Second)
			waits(2 * time.Second)
			for range 10 {
				tc.undo(r)
				r.clock.SetTime(r.clock.Now().Add(time.Minute))
				require.Equal(t, tc.want, r.settle())
			}
			waits(time.Minute)

			tc.undo(r)
			r.changeShadow(endpointsOf(at("10.100.1.6")))
			require.Equal(t, tc.want, r.settle(), "a change of the shadow is due at once")
			require.Equal(t, []string{"+10.100.1.6"}, r.ready())
			r.peer(check(corev1beta1.ConditionAPIServer, metav1.ConditionFalse, ago(0)))
			require.Equal(t, []string{"update"}, r.settle())
			tc.undo(r)
			r.settle()
			tc.undo(r)
			r.peer(check(corev1beta1.ConditionAPIServer, metav1.ConditionTrue, ago(0)))
			require.Equal(t, tc.want, r.settle(), "so is another health")
			require.Equal(t, []string{"+10.100.1.6"}, r.ready())

			r.clock.SetTime(r.clock.Now().Add(time.Hour))
			tc.undo(r)
			require.Equal(t, tc.want, r.settle(), "what was undone long ago does not count")
			tc.undo(r)
			require.Equal(t, tc.want, r.settle())
			require.Len(t, r.e.memory.sent, 1)
			r.deleteShadow()
			r.settle()
			require.Empty(t, r.e.memory.sent)
		})
	}
}

// TestUndoneWhileTheConsumerIsDown: while a reverted change backs off, no endpoint of an
// unwell consumer is ready, and the end of the grace is not missed.
func TestUndoneWhileTheConsumerIsDown(t *testing.T) {
	r := newRig(t, newShadow())
	edit := func(ready bool) {
		r.change(func(s *discoveryv1.EndpointSlice) {
			s.Endpoints[0].Conditions.Ready, s.Endpoints[0].Zone = new(ready), new("theirs")
		})
		r.refresh()
	}
	r.settle()
	edit(true)
	require.Equal(t, []string{"update"}, r.settle())
	r.peer(check(corev1beta1.ConditionAPIServer, metav1.ConditionUnknown, ago(testGrace-500*time.Millisecond)))
	edit(true)
	_, err := r.sync()
	require.Equal(t, loop.After(500*time.Millisecond), err)
	r.clock.SetTime(testTime().Add(500 * time.Millisecond))
	require.Equal(t, []string{"update"}, r.settle())
	edit(false)
	require.Equal(t, []string{"update"}, r.settle())
	edit(false)
	require.Empty(t, r.settle())
	edit(true)
	require.Equal(t, []string{"delete"}, r.settle(), "what cannot be turned off is taken away")
	r.clock.SetTime(testTime().Add(2 * time.Second))
	require.Equal(t, []string{"create"}, r.settle())
	require.Equal(t, []string{"-10.100.1.5"}, r.ready())
}
