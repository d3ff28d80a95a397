package rules

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
)

func TestKeepOnLoss(t *testing.T) {
	t.Parallel()
	virtual := corev1.Toleration{Key: offloadingv1beta1.VirtualNodeTaintKey, Operator: corev1.TolerationOpExists}
	all := corev1.Toleration{Operator: corev1.TolerationOpExists}
	forTime := func(key string) corev1.Toleration {
		return corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: ptr.To[int64](300)}
	}
	usual := []corev1.Toleration{forTime(corev1.TaintNodeNotReady), forTime(corev1.TaintNodeUnreachable)}
	given := offloadingv1beta1.LossTolerations()
	join := func(parts ...any) (out []corev1.Toleration) {
		for _, part := range parts {
			switch p := part.(type) {
			case corev1.Toleration:
				out = append(out, p)
			case []corev1.Toleration:
				out = append(out, p...)
			}
		}
		return out
	}
	for name, tc := range map[string]struct {
		have, want  []corev1.Toleration // want nil: unchanged
		annotations map[string]string
		node        string
	}{
		"a pod that may not leave":      {have: usual},
		"a pod with a node":             {have: join(usual, virtual), node: "milan"},
		"the usual ones":                {have: join(usual, virtual), want: join(given, usual, virtual)},
		"none but the virtual node's":   {have: join(virtual), want: join(given, virtual)},
		"with annotations of its own":   {have: join(virtual), want: join(given, virtual), annotations: map[string]string{"a": "b"}},
		"already kept":                  {have: join(given, virtual)},
		"one of the two is kept":        {have: join(given[0], usual[1], virtual), want: join(given, given[0], usual[1], virtual)},
		"kept, after one that ends":     {have: join(usual, given, virtual), want: join(given, usual, given, virtual)},
		"everything is tolerated":       {have: join(all)},
		"everything for a time":         {have: join(corev1.Toleration{Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: ptr.To[int64](9)}), want: join(given, corev1.Toleration{Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: ptr.To[int64](9)})},
		"another effect says nothing":   {have: join(corev1.Toleration{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}, virtual), want: join(given, corev1.Toleration{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}, virtual)},
		"an effect that is not said is": {have: join(corev1.Toleration{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists}, given[1], virtual)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: tc.annotations}, Spec: corev1.PodSpec{NodeName: tc.node, Tolerations: tc.have}}
			before := pod.DeepCopy()
			got := KeepOnLoss(pod)
			require.Equal(t, before, pod, "the argument is changed")
			if tc.want == nil {
				require.Same(t, pod, got)
				return
			}
			require.Equal(t, tc.want, got.Spec.Tolerations)
			require.Equal(t, offloadingv1beta1.OnProviderLossKeep, got.Annotations[offloadingv1beta1.OnProviderLossAnnotation])
			require.Len(t, got.Annotations, len(tc.annotations)+1)
			require.Same(t, got, KeepOnLoss(got), "it is not given twice")
			requirePatch(t, pod, got)
		})
	}
}

// TestKeepAfterOffload: what both change is one patch.
func TestKeepAfterOffload(t *testing.T) {
	t.Parallel()
	pod := &corev1.Pod{Spec: corev1.PodSpec{Tolerations: []corev1.Toleration{{Key: "own", Operator: corev1.TolerationOpExists}}}}
	want, err := Offload(pod, remote, corev1.NodeSelector{})
	require.NoError(t, err)
	want = KeepOnLoss(want)
	requirePatch(t, pod, want)
	require.Len(t, want.Spec.Tolerations, 4)
}
