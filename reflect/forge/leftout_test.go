package forge

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
)

func TestLeftOut(t *testing.T) {
	t.Parallel()
	want := &metav1.ObjectMeta{Annotations: map[string]string{"b": "1", "a": "1", "same": "1", "changed": "1", offloadingv1beta1.ReflectedAnnotation: "x"}}
	have := &metav1.ObjectMeta{Annotations: map[string]string{"same": "1", "changed": "2", "theirs": "1"}}
	want.Labels, have.Labels = map[string]string{"app": "x", "sidecar.istio.io/inject": "true"}, map[string]string{"app": "x"}
	require.Equal(t, []string{"a", "b", "changed", "label sidecar.istio.io/inject"}, LeftOut(want, have))
	require.Empty(t, LeftOut(have, have))
	require.Empty(t, LeftOut(&metav1.ObjectMeta{}, have))

	template := func(annotations map[string]string) []corev1.Volume {
		return []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{
			VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{ObjectMeta: metav1.ObjectMeta{Annotations: annotations}},
		}}}}
	}
	shadow := &offloadingv1beta1.ShadowPod{ObjectMeta: *want}
	shadow.Spec.Pod.Volumes = template(map[string]string{"volume.kubernetes.io/selected-node": "worker-1"})
	pod := &corev1.Pod{ObjectMeta: *have, Spec: corev1.PodSpec{Volumes: template(nil)}}
	require.Equal(t, []string{"a", "b", "changed", "label sidecar.istio.io/inject", "volume.kubernetes.io/selected-node of volume data"}, LeftOutOfPod(shadow, pod))
	require.Less(t, len(LeftOutMessage("milan", strings.Repeat("x", 1<<20))), 1024, "a provider may name any")
}
