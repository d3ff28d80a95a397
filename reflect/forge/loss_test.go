package forge

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
)

// TestOnLoss: what is given to a pod is taken back to the letter, however often, and none of
// it reaches the provider.
func TestOnLoss(t *testing.T) {
	t.Parallel()
	const keep, evict = offloadingv1beta1.OnProviderLossKeep, offloadingv1beta1.OnProviderLossEvict
	within := func(seconds int64, taints ...string) (out []corev1.Toleration) {
		for _, taint := range taints {
			out = append(out, corev1.Toleration{Key: taint, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: &seconds})
		}
		return out
	}
	join := func(parts ...[]corev1.Toleration) (out []corev1.Toleration) {
		for _, p := range parts {
			out = append(out, p...)
		}
		return out
	}
	both := []string{corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable}
	given := offloadingv1beta1.LossTolerations()
	for name, tc := range map[string]struct {
		own         []corev1.Toleration
		taken       []corev1.Toleration // the given ones that were taken back
		keepsItsOwn bool
	}{
		"the usual ones":          {own: within(300, both...), taken: within(300, both...)},
		"none":                    {taken: within(0, both...)},
		"another time for each":   {own: join(within(1, both[0]), within(9, both[1])), taken: join(within(1, both[0]), within(9, both[1]))},
		"kept by its own":         {own: given, keepsItsOwn: true},
		"tolerates all":           {own: []corev1.Toleration{{Operator: corev1.TolerationOpExists}}, keepsItsOwn: true},
		"one of the two for ever": {own: join(given[:1], within(300, both[1])), taken: join(given[:1], within(300, both[1]))},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pod := &corev1.Pod{Spec: corev1.PodSpec{Tolerations: tc.own}}
			become := func(keep bool, tolerations []corev1.Toleration, mark string) {
				t.Helper()
				before := pod.DeepCopy()
				for range 2 {
					gotTolerations, gotMark := OnLoss(pod, keep)
					require.Equal(t, before, pod, "the argument is changed")
					require.Equal(t, tolerations, gotTolerations)
					require.Equal(t, mark, gotMark)
					pod = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{}}, Spec: corev1.PodSpec{Tolerations: gotTolerations}}
					if mark != "" {
						pod.Annotations[offloadingv1beta1.OnProviderLossAnnotation] = gotMark
					}
					before = pod.DeepCopy()
				}
				require.Equal(t, tc.own, forgeTolerations(pod, nil), "in the provider")
			}
			become(false, tc.own, "")
			if tc.keepsItsOwn {
				become(true, tc.own, "")
				return
			}
			for range 2 {
				become(true, join(given, tc.own), keep)
				become(false, join(tc.taken, tc.own), evict)
			}
		})
	}
}
