package rules

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
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
			require.Equal(t, got, applied(t, pod, got), "the patch makes something else")
		})
	}
}

// applied is pod with the patch to want applied.
func applied(t *testing.T, pod, want *corev1.Pod) *corev1.Pod {
	t.Helper()
	text, err := json.Marshal(OffloadPatch(pod, want))
	require.NoError(t, err)
	var steps []struct {
		Op, Path string
		Value    json.RawMessage
	}
	require.NoError(t, json.Unmarshal(text, &steps))
	out := pod.DeepCopy()
	read := func(raw json.RawMessage, into any) { require.NoError(t, json.Unmarshal(raw, into)) }
	for _, step := range steps {
		require.Equal(t, "add", step.Op)
		index, inList := strings.CutPrefix(step.Path, "/spec/tolerations/")
		var one corev1.Toleration
		switch {
		case step.Path == "/metadata/annotations":
			read(step.Value, &out.Annotations)
		case step.Path == "/metadata/annotations/offloading.liqo.io~1on-provider-loss":
			require.NotNil(t, out.Annotations)
			var value string
			read(step.Value, &value)
			out.Annotations[offloadingv1beta1.OnProviderLossAnnotation] = value
		case step.Path == "/spec/tolerations":
			read(step.Value, &out.Spec.Tolerations)
		case inList && index == "-":
			read(step.Value, &one)
			out.Spec.Tolerations = append(out.Spec.Tolerations, one)
		case inList:
			read(step.Value, &one)
			at, err := strconv.Atoi(index)
			require.NoError(t, err)
			out.Spec.Tolerations = slices.Insert(out.Spec.Tolerations, at, one)
		case strings.HasPrefix(step.Path, "/spec/affinity"):
			out.Spec.Affinity = want.Spec.Affinity
		default:
			t.Fatalf("unexpected path %s", step.Path)
		}
	}
	return out
}

// TestKeepAfterOffload: what both change is one patch.
func TestKeepAfterOffload(t *testing.T) {
	t.Parallel()
	pod := &corev1.Pod{Spec: corev1.PodSpec{Tolerations: []corev1.Toleration{{Key: "own", Operator: corev1.TolerationOpExists}}}}
	want, err := Offload(pod, remote, corev1.NodeSelector{})
	require.NoError(t, err)
	want = KeepOnLoss(want)
	require.Equal(t, want, applied(t, pod, want))
	require.Len(t, want.Spec.Tolerations, 4)
}
