package pod

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/reasons"
)

// TestRefusal: a refusal is reported once, and the pod is created again later. The message of a condition is shortened
// to the length that the API server accepts.
func TestRefusal(t *testing.T) {
	forbidden := func(why string) *apierrors.StatusError {
		return apierrors.NewForbidden(corev1.Resource("pods"), testName, errors.New(why))
	}
	going := forbidden("it is being terminated")
	going.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	for name, tc := range map[string]struct {
		err    error
		reason string
	}{
		"a quota":                  {forbidden("exceeded quota: count"), offloadingv1beta1.ReasonPodRefused},
		"a long one":               {forbidden(strings.Repeat("é", 30000)), offloadingv1beta1.ReasonPodRefused},
		"a webhook that fails":     {apierrors.NewInternalError(errors.New(`failed calling webhook "broken"`)), offloadingv1beta1.ReasonPodRefused},
		"a namespace that is gone": {going, reasons.NamespaceTerminating},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, newShadow(always))
			r.refuse[createWrite] = tc.err
			r.settle()
			require.Equal(t, tc.reason, r.enforced().Reason)
			message := r.enforced().Message
			require.True(t, utf8.ValidString(message))
			if len(tc.err.Error()) > 32768 {
				require.InDelta(t, 32768, len(message), 1)
			} else if tc.reason == offloadingv1beta1.ReasonPodRefused {
				require.Equal(t, tc.err.Error(), message)
			}
			require.Equal(t, []string{createWrite, statusWrite, createWrite, createWrite}, r.writes[:4], "tried again, told once")
			require.Empty(t, r.events.Events, "the consumer's vkubelet records it")

			delete(r.refuse, createWrite)
			r.settle()
			require.NotNil(t, r.pod())
			require.Nil(t, r.enforced(), "cleared when it succeeds")
		})
	}
}

// TestPodsOfATwinAreBounded: no ResourceQuota counts them.
func TestPodsOfATwinAreBounded(t *testing.T) {
	r := newRig(t, newShadow(always))
	others := func(phase corev1.PodPhase, n int) {
		for i := range n {
			pod := podOf(newShadow(always))
			pod.Name, pod.Status.Phase = fmt.Sprintf("other-%d", i), phase
			require.NoError(t, r.pods.GetIndexer().Add(pod))
		}
	}
	sync := func() string {
		r.clock.SetTime(r.clock.Now().Add(10 * time.Minute))
		r.refreshShadow()
		_ = r.e.sync(t.Context(), r.key())
		r.refreshShadow()
		if r.pod() != nil {
			return ""
		}
		require.Equal(t, offloadingv1beta1.ReasonPodRefused, r.enforced().Reason)
		return r.enforced().Message
	}
	r.e.cfg.Limits = corev1.ResourceList{corev1.ResourcePods: resource.MustParse("2"), CountPods: resource.MustParse("3")}
	others(corev1.PodRunning, 2)
	require.Equal(t, "namespace shop-rome is full: this provider accepts pods=2 there (sharing.twinLimits)", sync())
	others(corev1.PodSucceeded, 3)
	require.Equal(t, "namespace shop-rome is full: this provider accepts count/pods=3 there (sharing.twinLimits)", sync())
	require.NotContains(t, r.writes, createWrite)
	require.NoError(t, r.pods.GetIndexer().Delete(r.e.pods.Cached(loop.Key{Namespace: testNamespace, Name: "other-0"})))
	require.Empty(t, sync(), "there is room")
}

func TestRefusalIsNotRetriedBeforeItsTime(t *testing.T) {
	r := newRig(t, newShadow(always))
	r.refuse[createWrite] = apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Pod").GroupKind(), testName, nil)
	require.Error(t, r.e.sync(t.Context(), r.key()))
	r.refresh()
	require.Error(t, r.e.sync(t.Context(), r.key()))
	require.Equal(t, []string{createWrite, statusWrite}, r.writes, "our own status write wakes us: no reason to ask again")
	r.changeShadow(image("img:2"))
	r.refresh()
	require.Error(t, r.e.sync(t.Context(), r.key()))
	require.Equal(t, createWrite, r.writes[2], "a new spec is tried at once")
}

func TestServerErrorsAreRetriedAndNotShown(t *testing.T) {
	r := newRig(t, newShadow(always))
	for _, err := range []error{
		apierrors.NewServiceUnavailable("x"), apierrors.NewTooManyRequests("x", 1), apierrors.NewUnauthorized("x"),
		apierrors.NewNotFound(corev1.Resource("namespaces"), testNamespace),
	} {
		r.refuse[createWrite] = err
		require.ErrorIs(t, r.e.sync(t.Context(), r.key()), err)
		require.Nil(t, r.enforced())
	}
}

func TestCollision(t *testing.T) {
	other := podOf(newShadow(always), foreign, func(p *corev1.Pod) { p.Labels = nil })
	r := newRig(t, newShadow(always), other)
	r.settle()
	require.Equal(t, offloadingv1beta1.ReasonPodCollision, r.enforced().Reason)
	require.Equal(t, other.UID, r.pod().UID)
	require.NotContains(t, r.writes, patchWrite)
	require.NotContains(t, r.writes, deleteWrite)

	r.deletePod(0)
	r.settle()
	require.NotEqual(t, other.UID, r.pod().UID)
	require.Nil(t, r.enforced())
}
