package kinds

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/kubetest"
	"github.com/liqod/liqod/reasons"
	"github.com/liqod/liqod/reflect/forge"
)

// reflecting is shared with Pods. It must be used in a bubble.
type reflecting struct {
	*shared
	// fails is the answer of the provider to writes of these kinds; nil: it accepts them.
	fails  atomic.Pointer[error]
	asleep bool // another process reflects
}

func newReflecting(objects ...runtime.Object) *reflecting {
	s := &reflecting{shared: newShared(objects...)}
	s.remote.PrependReactor("*", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if err := s.fails.Load(); err != nil && slices.Contains([]string{"create", "update", "patch"}, action.GetVerb()) {
			return true, nil, *err
		}
		return false, nil, nil
	})
	return s
}

func (s *reflecting) failing(err error) { s.fails.Store(&err) }

func (s *reflecting) run(t *testing.T) (stop func()) {
	t.Helper()
	own := s.newEngine(t)
	e := s.engine
	s.behind = func(ctx context.Context, namespace, remote string, named []forge.Named, existed time.Time) (forge.Named, bool, error) {
		if s.asleep {
			return e.BehindLive(ctx, namespace, remote, named, existed)
		}
		return e.Behind(ctx, namespace, named, existed)
	}
	ctx, cancel := context.WithCancel(t.Context())
	own.Start(ctx.Done())
	own.WaitForCacheSync(ctx.Done())
	stopPods, stopEngine := s.site.start(t), func() {}
	if !s.asleep {
		stopEngine = kubetest.Run(t, e.Run)
	}
	return func() {
		stopPods()
		stopEngine()
		cancel()
		own.Shutdown()
	}
}

// reason returns the reason of the status of the pod.
func (s *reflecting) reason(t *testing.T) string { return s.local(t).Status.Reason }

func app() *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: in("app"), Data: map[string]string{"a": "2"}}
}

// optional has a pod name a ConfigMap that it can start without.
func optional(p *corev1.Pod) {
	p.Spec.Containers[0].EnvFrom = []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{
		LocalObjectReference: corev1.LocalObjectReference{Name: "app"}, Optional: new(true)}}}
}

func pulling(p *corev1.Pod) {
	p.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "app"}}
}

func older(name string, change ...func(*corev1.ConfigMap)) *corev1.ConfigMap {
	cm := app()
	cm.Data = map[string]string{"a": "1"}
	for _, c := range change {
		c(cm)
	}
	copied, err := forge.ConfigMap(cm, forge.ObjectOptions{OriginClusterID: "rome", DestinationClusterID: "milan", RemoteNamespace: "shop-rome"})
	if err != nil {
		panic(err)
	}
	copied.UID = types.UID("remote-" + name)
	return copied
}

// TestPodStartsAfterWhatItNames: while the provider does not take the copy of what a pod names,
// the pod waits and says for what. It starts when the copy arrives.
func TestPodStartsAfterWhatItNames(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		object runtime.Object
		there  runtime.Object
		pod    func(*corev1.Pod)
		asleep bool
		want   string
	}{
		"an optional ConfigMap":                      {object: app(), pod: optional, want: "ConfigMap shop/app"},
		"an optional ConfigMap with its old content": {object: app(), there: older("app"), pod: optional, want: "ConfigMap shop/app"},
		"a Secret of a registry":                     {object: &corev1.Secret{ObjectMeta: in("app")}, pod: pulling, want: "Secret shop/app"},
		"a Service of its namespace":                 {object: webService(), pod: func(*corev1.Pod) {}, want: "Service shop/web"},
		"a ConfigMap that another process reflects":  {object: app(), pod: optional, asleep: true, want: "ConfigMap shop/app"},
		"old content that another process reflects":  {object: app(), there: older("app"), pod: optional, asleep: true, want: "ConfigMap shop/app"},
	} {
		t.Run(name, func(t *testing.T) {
			kubetest.Bubble(t, func(t *testing.T) {
				s := newReflecting(tc.object, localPod(tc.pod))
				if tc.there != nil {
					s.add(s.remote.Tracker(), tc.there)
				}
				s.asleep = tc.asleep
				s.failing(apierrors.NewServiceUnavailable("not now"))
				defer s.run(t)()
				kubetest.Settled(copiesSilence / 2)
				require.Nil(t, s.shadow(t))
				require.Empty(t, writes(s.home.Actions()), "a short wait is not worth a write")
				kubetest.Settled(2 * copiesSilence)
				require.Nil(t, s.shadow(t))
				require.Equal(t, reasons.NotReflectedYet, s.reason(t))
				require.Contains(t, s.local(t).Status.Message, "cluster milan does not have "+tc.want+" yet as it is here")
				require.Contains(t, <-s.events.Events, reasons.NotReflectedYet)
				s.fails.Store(nil)
				if tc.asleep {
					s.copyNow(t)
				}
				kubetest.Settled(copiesRetry)
				require.NotNil(t, s.shadow(t))
			})
		})
	}
}

// copyNow writes the copy of the ConfigMap to the provider, as another process does.
func (s *reflecting) copyNow(t *testing.T) {
	t.Helper()
	copied, err := forge.ConfigMap(app(), forge.ObjectOptions{OriginClusterID: "rome", DestinationClusterID: "milan", RemoteNamespace: "shop-rome"})
	require.NoError(t, err)
	if _, err = s.remote.CoreV1().ConfigMaps("shop-rome").Update(t.Context(), copied, metav1.UpdateOptions{}); err != nil {
		s.add(s.remote.Tracker(), copied)
	}
}

// TestPodStartsWithoutWaiting: what is not reflected holds up no pod, nor what came later.
func TestPodStartsWithoutWaiting(t *testing.T) {
	t.Parallel()
	skipped, foreign, late := app(), older("app"), webService()
	skipped.Annotations = map[string]string{offloadingv1beta1.SkipReflectionAnnotation: "true"}
	foreign.Labels = nil
	late.CreationTimestamp = metav1.NewTime(time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC))
	forbidden := apierrors.NewForbidden(corev1.Resource("configmaps"), "app", nil)
	unavailable := apierrors.NewServiceUnavailable("not now")
	for name, tc := range map[string]struct {
		object, there runtime.Object
		pod           func(*corev1.Pod)
		off           string
		asleep        bool
		fails         error
		within        time.Duration
	}{
		"it is skipped":                            {object: skipped, pod: optional, fails: unavailable},
		"it is skipped, not reflected here":        {object: skipped, pod: optional, fails: unavailable, asleep: true},
		"its kind is not reflected":                {object: app(), pod: optional, off: "configmap", fails: unavailable},
		"it does not exist":                        {object: &corev1.ConfigMap{ObjectMeta: in("other")}, pod: optional, fails: unavailable},
		"the provider refuses it":                  {object: app(), pod: optional, fails: forbidden, within: 3 * refusedFor},
		"another object has its name":              {object: app(), there: foreign, pod: optional},
		"another has its name, not reflected here": {object: app(), there: foreign, pod: optional, asleep: true},
		"a Service that is newer":                  {object: late, pod: func(*corev1.Pod) {}, fails: unavailable},
		"a Service, without links":                 {object: webService(), pod: func(p *corev1.Pod) { p.Spec.EnableServiceLinks = new(false) }, fails: unavailable},
	} {
		t.Run(name, func(t *testing.T) {
			kubetest.Bubble(t, func(t *testing.T) {
				s := newReflecting(tc.object, localPod(tc.pod))
				if tc.there != nil {
					s.add(s.remote.Tracker(), tc.there)
				}
				s.off, s.asleep = tc.off, tc.asleep
				if tc.fails != nil {
					s.failing(tc.fails)
				}
				defer s.run(t)()
				kubetest.Settled(max(tc.within, 2*copiesSilence))
				require.NotNil(t, s.shadow(t))
			})
		})
	}
}

// refusedFor is longer than the engine waits for a provider that refuses a copy.
const refusedFor = 2 * time.Second

// TestPodDoesNotWaitForEver: a pod that has waited for too long starts, and an event says so.
func TestPodDoesNotWaitForEver(t *testing.T) {
	kubetest.Bubble(t, func(t *testing.T) {
		s := newReflecting(app(), localPod(optional))
		s.failing(apierrors.NewServiceUnavailable("not now"))
		defer s.run(t)()
		kubetest.Settled(copiesPatience - copiesRetry)
		require.Nil(t, s.shadow(t))
		kubetest.Settled(2 * copiesRetry)
		require.NotNil(t, s.shadow(t))
		var all []string
		for len(s.events.Events) > 0 {
			all = append(all, <-s.events.Events)
		}
		require.Contains(t, strings.Join(all, "\n"), "the pod starts although cluster milan does not have ConfigMap shop/app yet as it is here, after 1m0s")
	})
}

// TestPodStartsWithWhatChanged: a pod that is bound after a change starts with the change, also
// where the change came while the vkubelet or its provider was away.
func TestPodStartsWithWhatChanged(t *testing.T) {
	kubetest.Bubble(t, func(t *testing.T) {
		s := newReflecting(app())
		stop := s.run(t)
		kubetest.Settled(time.Second)
		changes := corev1.SchemeGroupVersion.WithResource("configmaps")
		content := func() string {
			copied := kubetest.Get(t, s.remote.CoreV1().ConfigMaps("shop-rome"), "app")
			return copied.Data["a"]
		}
		require.Equal(t, "2", content())
		stop()
		changed := app()
		changed.Data["a"] = "3"
		require.NoError(t, s.home.Tracker().Update(changes, changed, "shop"))
		s.add(s.home.Tracker(), localPod(optional))
		s.failing(apierrors.NewServiceUnavailable("away"))
		defer s.run(t)()
		kubetest.Settled(2 * copiesSilence)
		require.Nil(t, s.shadow(t))
		var seen string
		s.remoteLiqod.PrependReactor("create", "shadowpods", func(clienttesting.Action) (bool, runtime.Object, error) {
			seen = content()
			return false, nil, nil
		})
		s.fails.Store(nil)
		kubetest.Settled(copiesRetry)
		require.NotNil(t, s.shadow(t))
		require.Equal(t, "3", seen)
	})
}

// TestPodWaitsForItsToken: a pod starts after its token, and without one if its service account
// does not exist.
func TestPodWaitsForItsToken(t *testing.T) {
	inTokenSite(t, func(s *tokenSite) {
		s.refuse = apierrors.NewServiceUnavailable("not now")
		s.add(s.home.Tracker(), cashier("web"))
		s.run()
		s.settle(2 * copiesSilence)
		require.Nil(t, s.shadow(t))
		require.Equal(t, reasons.NotReflectedYet, s.local(t).Status.Reason)
		require.Contains(t, s.local(t).Status.Message, "does not have Secret shop/token-cashier-")
		s.refuse = nil
		s.settle(5 * tokenPace)
		require.NotNil(t, s.shadow(t))
		require.Equal(t, 1, s.given)
	})
	inTokenSite(t, func(s *tokenSite) {
		s.add(s.home.Tracker(), cashier("web", func(p *corev1.Pod) { p.Spec.ServiceAccountName = "nobody" }))
		s.run()
		require.NotNil(t, s.shadow(t))
	})
}

// TestNoRequestsForWhatIsThere: a pod whose references are in the provider costs its one write.
func TestNoRequestsForWhatIsThere(t *testing.T) {
	kubetest.Bubble(t, func(t *testing.T) {
		s := newReflecting(app(), webService(), &corev1.Secret{ObjectMeta: in("app")})
		defer s.run(t)()
		kubetest.Settled(time.Minute)
		s.home.ClearActions()
		s.remote.ClearActions()
		s.remoteLiqod.ClearActions()
		s.add(s.home.Tracker(), localPod(optional, pulling))
		kubetest.Settled(time.Second)
		require.NotNil(t, s.shadow(t))
		require.Empty(t, s.home.Actions())
		require.Empty(t, s.remote.Actions())
		require.Equal(t, []string{"create shadowpods"}, writes(s.remoteLiqod.Actions()))
	})
}
