package kinds

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/kubetest"
)

func TestRefusedChangeIsToldOnce(t *testing.T) {
	s := shopSite(localPod(running))
	s.there(localPod(), true, running)
	s.startIdle(t)
	refuse := func(status metav1.ConditionStatus, message string) {
		shadow := s.shadow(t)
		meta.SetStatusCondition(&shadow.Status.Conditions, metav1.Condition{
			Type: offloadingv1beta1.ShadowPodEnforced, Status: status, Reason: "UpdateRefused", Message: message,
		})
		kubetest.UpdateStatus(t, s.remoteLiqod.OffloadingV1beta1().ShadowPods("shop-rome"), shadow)
	}
	refuse(metav1.ConditionFalse, "the quota is used up")
	require.Contains(t, <-s.events.Events, "the quota is used up")
	s.pods.Resync()
	require.Never(t, func() bool { return len(s.events.Events) > 0 }, 200*time.Millisecond, 10*time.Millisecond)
	require.Equal(t, corev1.PodRunning, s.local(t).Status.Phase)

	refuse(metav1.ConditionTrue, "")
	s.idle(t, "shop")
	refuse(metav1.ConditionFalse, "the image may not run here")
	require.Contains(t, <-s.events.Events, "the image may not run here")
}

// TestRefusalReason: a pod gets the reason that the provider's webhook gives, if it is one of Quotas.
func TestRefusalReason(t *testing.T) {
	for cause, want := range map[string]string{
		offloadingv1beta1.ReasonQuotaTooSmall: offloadingv1beta1.ReasonQuotaTooSmall, offloadingv1beta1.ReasonQuotaUndeclared: offloadingv1beta1.ReasonQuotaUndeclared,
		"$(id)": offloadingv1beta1.ReasonPodRefused, offloadingv1beta1.ReasonPodReplaced: offloadingv1beta1.ReasonPodRefused,
	} {
		err := apierrors.NewForbidden(corev1.Resource("shadowpods"), "web", errors.New("no"))
		require.Equal(t, offloadingv1beta1.ReasonPodRefused, refusalReason(err))
		err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseType(cause)}}
		require.Equal(t, want, refusalReason(err), cause)
	}
}

func TestAnnotationsThatAreLeftOutAreToldOnce(t *testing.T) {
	s := shopSite()
	marked := func(p *corev1.Pod) {
		p.Annotations = map[string]string{"example.com/note": "x", "iam.amazonaws.com/role": "admin", "kept": "x"}
	}
	s.add(s.home.Tracker(), localPod(running, marked))
	s.there(localPod(marked), true, running, func(p *corev1.Pod) {
		p.Annotations = map[string]string{"kept": "x", offloadingv1beta1.LeftOutAnnotation: offloadingv1beta1.MarksSum(p)}
	})
	s.startIdle(t)
	event := <-s.events.Events
	require.Contains(t, event, "AnnotationsLeftOut")
	require.Contains(t, event, ": example.com/note, iam.amazonaws.com/role;")
	require.Contains(t, event, "sharing.annotations")
	s.pods.Resync()
	s.idle(t, "shop")
	require.Empty(t, s.events.Events)

	// The pod follows an earlier version of its ShadowPod, and may still get what it lacks.
	local := s.local(t)
	local.Annotations["new"] = "x"
	kubetest.Update(t, s.home.CoreV1().Pods("shop"), local)
	eventually(t, func() bool { return s.shadow(t).Annotations["new"] == "x" }, "the ShadowPod has the new annotation")
	s.idle(t, "shop")
	require.Empty(t, s.events.Events)
}

// TestStatusComesHomeThoughAChangeIsRefused requires that a rejected change does not
// block the status.
func TestStatusComesHomeThoughAChangeIsRefused(t *testing.T) {
	s := shopSite(localPod(func(p *corev1.Pod) { p.Labels["tier"] = "web" }))
	s.there(localPod(), true, running)
	var allowed atomic.Bool
	s.remoteLiqod.PrependReactor("update", "shadowpods", func(clienttesting.Action) (bool, runtime.Object, error) {
		return !allowed.Load(), nil, apierrors.NewForbidden(offloadingv1beta1.SchemeGroupVersion.WithResource("shadowpods").GroupResource(), "web", errors.New("no such labels here"))
	})
	s.start(t)
	eventually(t, func() bool { return s.local(t).Status.Phase == corev1.PodRunning }, "its status is known here")
	require.Contains(t, <-s.events.Events, "no such labels here")
	tries := func() int { return len(writes(s.remoteLiqod.Actions())) }
	eventually(t, func() bool { return tries() > 2 }, "tried again")
	require.Empty(t, s.events.Events, "told once")
	allowed.Store(true)
	eventually(t, func() bool { return s.shadow(t).Labels["tier"] == "web" }, "and made when it may be")
}

func TestDebugContainersAreCarriedUntilTheyBegin(t *testing.T) {
	s := shopSite()
	debugged := func(p *corev1.Pod) {
		p.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debugger", Image: "tools:1"}}}
	}
	s.add(s.home.Tracker(), localPod(running, debugged))
	s.there(localPod(), true, running)
	s.start(t)
	carried := func(n int) func() bool {
		return func() bool { return len(s.shadow(t).Spec.Pod.EphemeralContainers) == n }
	}
	require.Eventually(t, carried(1), time.Minute, 5*time.Millisecond)
	remote := kubetest.Get(t, s.remote.CoreV1().Pods("shop-rome"), "web")
	debugged(remote)
	remote.Status.EphemeralContainerStatuses = []corev1.ContainerStatus{{
		Name: "debugger", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
	kubetest.Update(t, s.remote.CoreV1().Pods("shop-rome"), remote)
	require.Eventually(t, func() bool { return len(s.local(t).Status.EphemeralContainerStatuses) == 1 }, time.Minute, 5*time.Millisecond)
	require.Eventually(t, carried(0), time.Minute, 5*time.Millisecond)
}

// lengthy returns an error of a provider with a very long message.
func lengthy(resource string) error {
	return apierrors.NewForbidden(corev1.Resource(resource), "web", errors.New(strings.Repeat("no ", 1<<20)))
}

// TestPodThatIsTooLarge: a ShadowPod that the provider does not store for its size is refused.
func TestPodThatIsTooLarge(t *testing.T) {
	s := shopSite(localPod())
	s.remoteLiqod.PrependReactor("create", "shadowpods", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewRequestEntityTooLargeError("limit is 3145728")
	})
	s.start(t)
	eventually(t, func() bool { return s.local(t).Status.Reason == offloadingv1beta1.ReasonPodRefused }, "it says why it waits")
}

// few is an upper bound, in bytes, for the events and status messages about a rejection.
const few = 2000

func TestRefusalsAreToldInFewWords(t *testing.T) {
	t.Run("a pod", func(t *testing.T) {
		s := shopSite(localPod())
		s.remoteLiqod.PrependReactor("create", "shadowpods", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, lengthy("shadowpods")
		})
		s.start(t)
		eventually(t, func() bool { return strings.Contains(s.local(t).Status.String(), "refuses the ShadowPod") }, "it says why it waits")
		require.Less(t, s.local(t).Size(), 3*few)
	})
	t.Run("a change of a pod", func(t *testing.T) {
		s := shopSite()
		local := localPod(func(p *corev1.Pod) { p.Labels["tier"] = "web" })
		s.add(s.home.Tracker(), local)
		s.there(localPod(), true, running)
		s.remoteLiqod.PrependReactor("update", "shadowpods", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, lengthy("shadowpods")
		})
		s.start(t)
		require.Less(t, len(<-s.events.Events), few)
		require.Less(t, len(s.pods.memo(local.UID).rejected), few, "nor is more remembered")
	})
	t.Run("a claim", func(t *testing.T) {
		s := storageSite(t, fast)
		s.add(s.home.Tracker(), claimAt("milan"))
		s.remote.PrependReactor("create", "persistentvolumeclaims", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, lengthy("persistentvolumeclaims")
		})
		s.startClaims(t)
		eventually(t, func() bool { return len(s.events.Events) > 0 }, "it is told")
		require.Less(t, len(<-s.events.Events), few)
	})
	t.Run("the state of a claim", func(t *testing.T) {
		s := storageSite(t, fast)
		claim := claimAt("milan")
		s.add(s.home.Tracker(), claim)
		s.add(s.remote.Tracker(), remoteClaim(t, claim, func(c *corev1.PersistentVolumeClaim) {
			c.Status.Conditions = []corev1.PersistentVolumeClaimCondition{{
				Type: corev1.PersistentVolumeClaimControllerResizeError, Status: corev1.ConditionTrue, Message: strings.Repeat("no ", 1<<20)}}
		}))
		s.startClaims(t)
		eventually(t, func() bool { return len(s.events.Events) > 0 }, "it is told")
		require.Less(t, len(<-s.events.Events), few)
	})
	t.Run("a token", func(t *testing.T) {
		inTokenSite(t, func(s *tokenSite) {
			s.add(s.home.Tracker(), cashier("a"))
			s.remote.PrependReactor("create", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
				return true, nil, lengthy("secrets")
			})
			s.run()
			s.settle(time.Second)
			require.NotEmpty(t, s.events.Events)
			require.Less(t, len(<-s.events.Events), few)
		})
	})
}
