package pod

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/reasons"
)

const ephemeralWrite = "patch pods/ephemeralcontainers"

func moved(s *offloadingv1beta1.ShadowPod) { s.Generation++ }

func TestDebugContainers(t *testing.T) {
	r := newRunningRig(t, always, debug("early"))
	require.Equal(t, debugContainers("early"), r.pod().Spec.EphemeralContainers, "illegal at creation, so added afterwards")
	require.Equal(t, []string{createWrite, ephemeralWrite}, r.writes)
	r.changeShadow(debug("early", "late"), moved)
	r.settle()
	require.ElementsMatch(t, debugContainers("early", "late"), r.pod().Spec.EphemeralContainers)
	require.Equal(t, []string{createWrite, ephemeralWrite, ephemeralWrite, patchWrite}, r.writes)
	r.changeShadow(debug(), moved)
	r.settle()
	require.Len(t, r.pod().Spec.EphemeralContainers, 2, "what has begun is asked for no more, and stays")

	r.deletePod(0)
	r.settle()
	require.Empty(t, r.pod().Spec.EphemeralContainers, "a pod that replaces another starts none of them again")
}

// TestDebugContainersPullTheirImages: a peer cannot run an image that a node has by adding
// it to a running pod.
func TestDebugContainersPullTheirImages(t *testing.T) {
	r := newRig(t, newShadow(always, debug("a")))
	r.e.cfg.AlwaysPull = true
	r.settle()
	require.Equal(t, corev1.PullAlways, r.pod().Spec.EphemeralContainers[0].ImagePullPolicy)
	require.Empty(t, r.shadow().Spec.Pod.EphemeralContainers[0].ImagePullPolicy, "the peer's object is left alone")
}

func TestARefusedDebugContainerKeepsNothingBack(t *testing.T) {
	r := newRunningRig(t, always)
	r.refuse[ephemeralWrite] = apierrors.NewForbidden(corev1.Resource("pods"), testName, errors.New(`violates PodSecurity "baseline:latest": privileged`))
	r.changeShadow(image("img:2"), debug("a"))
	r.settle()
	require.Equal(t, "img:2", r.pod().Spec.Containers[0].Image)
	require.Equal(t, reasons.UpdateRefused, r.enforced().Reason)
	require.Contains(t, r.enforced().Message, "privileged")
	require.Equal(t, 1, countOf(r.writes, patchWrite))
	r.changeShadow(debug(), moved)
	r.settle()
	require.Nil(t, r.enforced(), "withdrawn")
}

// TestARefusedChangeDelaysNoReplacement: a pod whose change was refused is deleted in the
// provider. The time until the change is tried again is no time of the new pod.
func TestARefusedChangeDelaysNoReplacement(t *testing.T) {
	r := newRunningRig(t, always)
	first := r.pod().UID
	r.refuse[ephemeralWrite] = apierrors.NewForbidden(corev1.Resource("pods"), testName, errors.New(`violates PodSecurity "baseline:latest": privileged`))
	r.changeShadow(debug("a"))
	r.settle()
	r.refresh()
	require.ErrorContains(t, r.e.sync(t.Context(), r.key()), "again in")
	now := r.clock.Now()
	r.deletePod(0)
	for r.pod() == nil {
		r.refresh()
		if err := r.e.sync(t.Context(), r.key()); err != nil {
			require.NotContains(t, err.Error(), "again in")
		}
	}
	require.NotEqual(t, first, r.pod().UID)
	require.Equal(t, now, r.clock.Now())
	r.deleteShadow()
	r.deletePod(0)
	r.settle()
	require.Zero(t, r.e.memory.refusals.Len())
}
