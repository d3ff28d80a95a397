package kinds

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	clienttesting "k8s.io/client-go/testing"

	liqodfake "github.com/liqod/liqod/api/generated/clientset/versioned/fake"
	"github.com/liqod/liqod/api/generated/informers/externalversions"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/kubetest"
	"github.com/liqod/liqod/reflect/engine"
)

// at makes the consumer answer lists of pods with this resource version.
func (s *site) at(revision string) {
	s.home.PrependReactor("list", "pods", func(a clienttesting.Action) (bool, runtime.Object, error) {
		list, err := s.home.Tracker().List(a.GetResource(), corev1.SchemeGroupVersion.WithKind("Pod"), a.GetNamespace())
		if err == nil {
			list.(*corev1.PodList).ResourceVersion = revision
		}
		return true, list, err
	})
}

func known(rv string) func(*corev1.Pod) { return func(p *corev1.Pod) { p.ResourceVersion = rv } }

func TestWhatARestoredConsumerHasForgottenIsKept(t *testing.T) {
	s := shopSite()
	s.there(localPod(known("500")), true, running)
	s.at("400")
	stop := s.start(t)
	eventually(t, func() bool { return s.shadow(t) != nil && engine.IsKept(s.shadow(t)) }, "it is marked")
	require.Contains(t, <-s.events.Events, offloadingv1beta1.ReasonRemotePodKept)
	stop()

	// The revision has passed that of the pod, and the vkubelet is another.
	s.at("600")
	s.remoteLiqod.ClearActions()
	s.remote.ClearActions()
	s.startIdle(t)
	require.Never(t, func() bool { return len(writes(s.remoteLiqod.Actions()))+len(writes(s.remote.Actions())) > 0 }, 200*time.Millisecond, 10*time.Millisecond)
}

func TestRevisionOfTheNewestPodCountsForAll(t *testing.T) {
	s := shopSite()
	s.there(localPod(known("300")), true, running)
	s.there(localPod(known("500"), func(p *corev1.Pod) { p.Name, p.UID = "newer", "local-2" }), true, running)
	s.at("400") // it has passed that of the older pod
	s.start(t)
	eventually(t, func() bool { return s.shadow(t) != nil && engine.IsKept(s.shadow(t)) }, "it is marked")
}

func TestFallenRevisionOfTheLease(t *testing.T) {
	for name, c := range map[string]struct {
		created time.Duration // after the loss
		kept    bool
	}{
		"created before":             {-time.Hour, true},
		"by the provider's clock":    {4 * time.Minute, true},
		"created when all was known": {time.Hour, false},
	} {
		t.Run(name, func(t *testing.T) {
			lost := time.Now()
			s := newSite()
			s.lost = func() time.Time { return lost }
			s.offload("shop")
			s.there(localPod(known("500")), true, running)
			shadow := s.shadow(t)
			shadow.CreationTimestamp = metav1.NewTime(lost.Add(c.created))
			kubetest.Update(t, s.remoteLiqod.OffloadingV1beta1().ShadowPods("shop-rome"), shadow)
			s.at("600")
			s.start(t)
			eventually(t, func() bool {
				shadow := s.shadow(t)
				return shadow == nil && !c.kept || shadow != nil && engine.IsKept(shadow) && c.kept
			}, "it is kept or not")
		})
	}
}

// TestShadowPodThatNoCacheHasYet has a cache of ShadowPods that lags behind that of pods.
func TestShadowPodThatNoCacheHasYet(t *testing.T) {
	s := shopSite()
	s.there(localPod(known("500")), true, running)
	s.at("400")
	s.remoteLiqod.PrependReactor("list", "shadowpods", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, &offloadingv1beta1.ShadowPodList{}, nil
	})
	s.remoteLiqod.PrependWatchReactor("shadowpods", func(clienttesting.Action) (bool, watch.Interface, error) { return true, watch.NewFake(), nil })
	s.startIdle(t)
	require.Never(t, func() bool { return len(writes(s.remote.Actions())) > 0 }, 300*time.Millisecond, 10*time.Millisecond)
	require.NoError(t, s.remoteLiqod.Tracker().Delete(offloadingv1beta1.SchemeGroupVersion.WithResource("shadowpods"), "shop-rome", "web"))
	eventually(t, func() bool { return contains(writes(s.remote.Actions()), "delete pods") }, "what no ShadowPod asks for goes")
}

func TestPodThatIsSeenToLeaveIsNotKept(t *testing.T) {
	s := shopSite(localPod(running))
	s.lost = time.Now
	s.there(localPod(), true, running)
	s.startIdle(t)
	require.NoError(t, s.home.CoreV1().Pods("shop").Delete(t.Context(), "web", metav1.DeleteOptions{})) // at once, by force
	eventually(t, func() bool { return s.shadow(t) == nil }, "it is withdrawn")
}

func TestWhatAConsumerThatWentOnDoesNotKnowIsWithdrawn(t *testing.T) {
	s := shopSite()
	s.there(localPod(known("500")), true, running)
	s.at("600")
	s.start(t)
	eventually(t, func() bool { return s.shadow(t) == nil }, "what belongs to no local pod is withdrawn")
}

func TestNamesakeOfAKeptPodWaits(t *testing.T) {
	for name, c := range map[string]struct {
		local []func(*corev1.Pod)
		gone  bool
		phase corev1.PodPhase
	}{
		"a new one":       {phase: corev1.PodPending},
		"one that ran":    {local: []func(*corev1.Pod){running}, phase: corev1.PodRunning},
		"one that is old": {local: []func(*corev1.Pod){running, deleting}, gone: true},
		"one whose last status was written by who was killed then": {
			local: []func(*corev1.Pod){running, deleting, func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }}, gone: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := shopSite()
			s.there(localPod(known("500")), true, running)
			local := localPod(append(c.local, uid("local-0"))...)
			s.add(s.home.Tracker(), local)
			s.at("400")
			s.start(t)
			if c.gone {
				eventually(t, func() bool { return contains(writes(s.home.Actions()), "delete pods") }, "it is released")
			} else {
				eventually(t, func() bool { return s.local(t).Status.Reason == offloadingv1beta1.ReasonRemotePodKept }, "it is told")
				require.Equal(t, c.phase, s.local(t).Status.Phase)
			}
			require.True(t, engine.IsKept(s.shadow(t)))
			remote := kubetest.Get(t, s.remote.CoreV1().Pods("shop-rome"), "web")
			require.Nil(t, remote.DeletionTimestamp)
		})
	}
}

func contains(all []string, one string) bool {
	for _, s := range all {
		if s == one {
			return true
		}
	}
	return false
}

// TestNothingIsRememberedOfAClosedNamespace closes a namespace without a deletion of what is in
// it, as the informers that end with it report none.
func TestNothingIsRememberedOfAClosedNamespace(t *testing.T) {
	s := shopSite(localPod(running))
	s.gate = errors.New("nothing is withdrawn")
	s.there(localPod(), true, running)
	s.startIdle(t)
	require.NoError(t, s.home.CoreV1().Pods("shop").Delete(t.Context(), "web", metav1.DeleteOptions{}))
	first := s.pods.twins.Get("shop")
	eventually(t, func() bool { return !first.left.Begun("local-1").IsZero() }, "it is seen to leave")
	s.editMap(t, func(m *offloadingv1beta1.NamespaceMap) { delete(m.Spec.DesiredMapping, "shop") })
	eventually(t, func() bool { return s.pods.twins.Get("shop") == nil }, "the namespace is closed")
	s.editMap(t, func(m *offloadingv1beta1.NamespaceMap) { m.Spec.DesiredMapping["shop"] = "shop-rome" })
	s.idle(t, "shop")
	require.True(t, s.pods.twins.Get("shop").left.Begun("local-1").IsZero())
}

// TestNewestListsNothing: the ShadowPods of all namespaces are not listed for each of those that
// have no local pod any more. The twins of the test have no cache.
func TestNewestListsNothing(t *testing.T) {
	p := &Pods{twins: engine.NewSpaces(func(_ context.Context, local, _ string) *twin {
		tw := &twin{opened: opened{local: local}}
		for _, version := range []string{"7", "300", "40"} {
			tw.saw(&offloadingv1beta1.ShadowPod{Spec: offloadingv1beta1.ShadowPodSpec{LocalResourceVersion: version + local}})
		}
		return tw
	}, nil)}
	require.Empty(t, p.newest())
	maps := externalversions.NewSharedInformerFactory(liqodfake.NewSimpleClientset(mapOf("1", "2")), 0)
	f, err := engine.NewFollower(maps.Offloading().V1beta1().NamespaceMaps(), tenant, "milan")
	require.NoError(t, err)
	maps.Start(t.Context().Done())
	f.Follow(t.Context(), nil, p.twins)
	require.Equal(t, "3002", p.newest())
}
