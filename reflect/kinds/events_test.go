package kinds

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/util/flowcontrol"

	liqodfake "github.com/liqod/liqod/api/generated/clientset/versioned/fake"
	"github.com/liqod/liqod/api/generated/informers/externalversions"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/kubetest"
	"github.com/liqod/liqod/reflect/engine"
)

// stream is a fake consumer, a fake provider and an Events between them. It must be
// created in a synctest bubble.
type stream struct {
	home, provider *fake.Clientset
	liqod          *liqodfake.Clientset

	mu      sync.Mutex
	dropped map[string]int
	gate    error
	busy    bool
	// subject answers for pods; nil: every pod is ours.
	subject Subject
	// tune changes limits: the fakes are slow.
	tune func(*Events)
	// events runs, where tune has put it here.
	events *Events
}

func newStream() *stream {
	s := &stream{home: fake.NewClientset(), provider: fake.NewClientset(), liqod: liqodfake.NewSimpleClientset(), dropped: map[string]int{}}
	s.mapped("shop")
	return s
}

// mapped maps the given namespaces to twins.
func (s *stream) mapped(namespaces ...string) {
	m := mapOf(namespaces...)
	err := s.liqod.Tracker().Add(m)
	if apierrors.IsAlreadyExists(err) {
		err = s.liqod.Tracker().Update(offloadingv1beta1.SchemeGroupVersion.WithResource("namespacemaps"), m, tenant)
	}
	if err != nil {
		panic(err)
	}
}

// run runs a new Events until the returned function is called.
func (s *stream) run(t *testing.T) (stop func()) {
	t.Helper()
	factory := externalversions.NewSharedInformerFactory(s.liqod, 0)
	namespaces, err := engine.NewFollower(factory.Offloading().V1beta1().NamespaceMaps(), tenant, "milan")
	require.NoError(t, err)
	e := NewEvents(EventsConfig{
		OfNode: ofNode(namespaces, factory, nil, func() error { return locked(s, &s.gate) }, nil),
		Home:   s.home, Provider: s.provider, Pods: s.find, Objects: s.find,
		Chosen: func(map[string]string) bool { return true }, Busy: func() bool { return locked(s, &s.busy) },
		Dropped: func(reason string) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.dropped[reason]++
		},
		Workers: 2,
	})
	if s.tune != nil {
		s.tune(e)
	}
	stop = kubetest.Run(t, func(ctx context.Context) error {
		factory.Start(ctx.Done())
		defer factory.Shutdown()
		return e.Run(ctx)
	})
	synctest.Wait()
	return stop
}

func locked[T any](s *stream, field *T) T {
	s.mu.Lock()
	defer s.mu.Unlock()
	return *field
}

func set[T any](s *stream, field *T, value T) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*field = value
}

func (s *stream) find(ctx context.Context, namespace string, remote corev1.ObjectReference) (corev1.ObjectReference, bool, error) {
	if f := locked(s, &s.subject); f != nil {
		return f(ctx, namespace, remote)
	}
	return corev1.ObjectReference{
		APIVersion: "v1", Kind: "Pod", Namespace: namespace, Name: remote.Name, UID: types.UID(strings.Replace(string(remote.UID), "remote", "local", 1)),
	}, true, nil
}

func (s *stream) event(name string, count int32) *corev1.Event {
	return &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: "shop-rome", Name: name, UID: types.UID("uid-" + name)},
		InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: "shop-rome", Name: "web", UID: "remote-1"},
		Reason:         "BackOff", Message: "Back-off", Type: corev1.EventTypeNormal, Source: corev1.EventSource{Component: "kubelet"},
		FirstTimestamp: metav1.Now(), LastTimestamp: metav1.Now(), Count: count,
	}
}

// happens creates an event in the provider, or updates it to a new occurrence.
func (s *stream) happens(name string, count int32, change ...func(*corev1.Event)) {
	e := s.event(name, count)
	for _, c := range change {
		c(e)
	}
	events := corev1.SchemeGroupVersion.WithResource("events")
	err := s.provider.Tracker().Create(events, e, e.Namespace)
	if apierrors.IsAlreadyExists(err) {
		err = s.provider.Tracker().Update(events, e, e.Namespace)
	}
	if err != nil {
		panic(err)
	}
}

func warning(e *corev1.Event) { e.Type = corev1.EventTypeWarning }

// writes returns the writes of events in the consumer since the last call: "create", or
// "patch" with the count.
func (s *stream) writes() []string {
	var out []string
	for _, a := range s.home.Actions() {
		switch a := a.(type) {
		case clienttesting.PatchAction:
			count, _, _ := strings.Cut(string(a.GetPatch()), ",")
			out = append(out, "patch "+count)
		case clienttesting.CreateAction:
			out = append(out, fmt.Sprintf("create %d", a.GetObject().(*corev1.Event).Count))
		}
	}
	s.home.ClearActions()
	return out
}

func (s *stream) require(t *testing.T, want ...string) {
	t.Helper()
	synctest.Wait()
	require.Equal(t, want, s.writes())
}

func (s *stream) atHome(t *testing.T) []corev1.Event {
	t.Helper()
	list := kubetest.List(t, s.home.CoreV1().Events(""))
	return list.Items
}

// bubble runs a test in a synctest bubble, whose time starts at a fixed date.
func bubble(t *testing.T, test func(t *testing.T, s *stream)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, newStream()) })
}

func TestEventsComeHome(t *testing.T) {
	bubble(t, func(t *testing.T, s *stream) {
		s.run(t)
		s.happens("e", 1)
		s.require(t, "create 1")
		have := s.atHome(t)
		require.Len(t, have, 1)
		require.Equal(t, corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: "shop", Name: "web", UID: "local-1"}, have[0].InvolvedObject)
		require.Equal(t, "kubelet (remote)", have[0].Source.Component)

		// Often, and written seldom.
		for i := range int32(10) {
			time.Sleep(100 * time.Millisecond)
			s.happens("e", 2+i)
		}
		s.require(t)
		time.Sleep(eventInterval)
		s.require(t, `patch {"count":11`)
		require.EqualValues(t, 11, s.atHome(t)[0].Count)
		time.Sleep(time.Hour)
		s.require(t)
		s.happens("e", 12)
		s.require(t, `patch {"count":12`)
		require.Empty(t, s.dropped)
	})
}

func TestEventsAfterARestart(t *testing.T) {
	bubble(t, func(t *testing.T, s *stream) {
		stop := s.run(t)
		s.happens("e", 1)
		s.happens("f", 1)
		s.require(t, "create 1", "create 1")
		stop()
		time.Sleep(time.Minute)
		stop = s.run(t)
		s.require(t)
		stop()
		s.happens("e", 2)
		s.happens("g", 1)
		s.run(t)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.ElementsMatch(t, []string{`patch {"count":2`, "create 1"}, s.writes())
		require.Len(t, s.atHome(t), 3)
	})
}

func TestEventsThatHomeCannotBeAskedOf(t *testing.T) {
	bubble(t, func(t *testing.T, s *stream) {
		s.happens("e", 1)
		away := errors.New("no rights yet")
		s.home.PrependReactor("list", "events", func(clienttesting.Action) (bool, runtime.Object, error) {
			err := locked(s, &away)
			return err != nil, &corev1.EventList{}, err
		})
		s.run(t)
		time.Sleep(time.Minute)
		s.require(t) // it may be there already
		set(s, &away, nil)
		time.Sleep(2 * time.Second)
		s.require(t, "create 1")
	})
}

func TestEventsThatAreOld(t *testing.T) {
	bubble(t, func(t *testing.T, s *stream) {
		s.happens("old", 1)
		s.happens("timeless", 1, func(e *corev1.Event) { e.FirstTimestamp, e.LastTimestamp = metav1.Time{}, metav1.Time{} })
		time.Sleep(eventTooOld + time.Second)
		s.happens("young", 1)
		s.run(t)
		s.require(t, "create 1", "create 1")
		require.Equal(t, map[string]int{droppedStale: 1}, s.dropped)
		// By the provider's clock this was long ago: what is watched happens now.
		s.happens("late", 1, func(e *corev1.Event) {
			e.FirstTimestamp, e.LastTimestamp = metav1.NewTime(time.Now().Add(-time.Hour)), metav1.NewTime(time.Now().Add(-time.Hour))
		})
		s.require(t, "create 1")
	})
}

func TestEventsAreWrittenSlowly(t *testing.T) {
	bubble(t, func(t *testing.T, s *stream) {
		s.tune = func(e *Events) { e.limiter = flowcontrol.NewTokenBucketRateLimiter(2, 10) }
		s.run(t)
		for i := range 30 {
			s.happens(fmt.Sprintf("e-%d", i), 1)
		}
		synctest.Wait()
		require.InDelta(t, 10, len(s.writes()), 1)
		time.Sleep(4 * time.Second)
		synctest.Wait()
		require.InDelta(t, 8, len(s.writes()), 1)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		require.Len(t, s.atHome(t), 30)
		require.Empty(t, s.dropped)
	})
}

// TestEventsHaveALastingLimit: some events about each object are written. Further ones, and those
// that occur again, have a limit over all objects.
func TestEventsHaveALastingLimit(t *testing.T) {
	bubble(t, func(t *testing.T, s *stream) {
		s.tune = func(e *Events) { e.lasting = flowcontrol.NewTokenBucketRateLimiter(1, 5) }
		s.run(t)
		for i := range 30 {
			s.happens(fmt.Sprintf("e-%d", i), 1)
		}
		synctest.Wait()
		require.Len(t, s.writes(), eventsOfOne+5)
		require.Equal(t, map[string]int{droppedRate: 15}, locked(s, &s.dropped))
		time.Sleep(10 * time.Second)
		for i := range 30 {
			s.happens(fmt.Sprintf("e-%d", i), 2)
		}
		synctest.Wait()
		require.Len(t, s.writes(), 5, "what was saved up")
		time.Sleep(time.Minute)
		synctest.Wait()
		require.GreaterOrEqual(t, len(s.writes()), 10, "those that wait are written later")
	})
}

func TestEventsWaitWhilePodsDo(t *testing.T) {
	bubble(t, func(t *testing.T, s *stream) {
		s.busy = true
		s.run(t)
		for i := range 30 {
			s.happens(fmt.Sprintf("e-%d", i), 1)
		}
		s.require(t)
		time.Sleep(5*eventBusyPause + time.Millisecond)
		synctest.Wait()
		require.Len(t, s.writes(), 10, "two workers, each a write a second")
		set(s, &s.busy, false)
		time.Sleep(eventBusyPause)
		synctest.Wait()
		require.Len(t, s.writes(), 20, "at once")
	})
}

func TestEventsWhileTheGateIsClosed(t *testing.T) {
	bubble(t, func(t *testing.T, s *stream) {
		s.gate = errors.New("closed")
		s.run(t)
		s.happens("e", 1)
		time.Sleep(time.Minute)
		s.require(t) // the provider is not known
		set(s, &s.gate, nil)
		time.Sleep(10 * time.Second)
		s.require(t, "create 1")
	})
}

// TestEventsOfAProviderThatWasAway lists all events again, as a watch does after a long
// outage. The API server may lag behind.
func TestEventsOfAProviderThatWasAway(t *testing.T) {
	bubble(t, func(t *testing.T, s *stream) {
		s.tune = func(e *Events) { s.events = e }
		s.run(t)
		s.happens("e", 1)
		s.require(t, "create 1")
		s.happens("f", 3)
		s.require(t, "create 3")
		relist := func() {
			list := kubetest.List(t, s.provider.CoreV1().Events("shop-rome"))
			var objects []any
			for i := range list.Items {
				objects = append(objects, &list.Items[i])
			}
			require.NoError(t, passage{s.events, "shop"}.Replace(objects, "9"))
			time.Sleep(eventInterval)
		}
		relist()
		s.require(t)
		lagging := s.event("f", 2)
		lagging.FirstTimestamp, lagging.LastTimestamp = metav1.NewTime(time.Now().Add(-time.Hour)), metav1.NewTime(time.Now().Add(-time.Hour))
		require.NoError(t, passage{s.events, "shop"}.Update(lagging))
		time.Sleep(time.Minute)
		s.require(t)
		require.Len(t, s.events.backlog.entries, 2)
		require.NoError(t, s.provider.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("events"), "shop-rome", "e"))
		relist()
		s.require(t)
		time.Sleep(eventsStay)
		require.NoError(t, passage{s.events, "shop"}.Update(lagging))
		require.Len(t, s.events.backlog.entries, 1, "nothing is kept of what neither side has any more")
	})
}

func TestEventsWhileHomeIsAway(t *testing.T) {
	bubble(t, func(t *testing.T, s *stream) {
		away := true
		s.home.PrependReactor("*", "events", func(a clienttesting.Action) (bool, runtime.Object, error) {
			return a.GetVerb() != "list" && locked(s, &away), nil, apierrors.NewServiceUnavailable("away")
		})
		s.run(t)
		s.happens("e", 1)
		time.Sleep(10 * time.Minute)
		s.happens("e", 2)
		synctest.Wait()
		require.Empty(t, s.atHome(t))
		set(s, &away, false)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.Len(t, s.atHome(t), 1)
		require.EqualValues(t, 2, s.atHome(t)[0].Count)
		require.Empty(t, s.dropped)
	})
}

func TestEventsThatAreRefused(t *testing.T) {
	bubble(t, func(t *testing.T, s *stream) {
		var refusal error = apierrors.NewForbidden(schema.GroupResource{Resource: "events"}, "e", errors.New("the namespace is being terminated"))
		s.home.PrependReactor("create", "events", func(clienttesting.Action) (bool, runtime.Object, error) {
			err := locked(s, &refusal)
			return err != nil, nil, err
		})
		s.run(t)
		s.happens("e", 1)
		s.require(t, "create 1")
		time.Sleep(time.Hour)
		s.require(t)
		require.Equal(t, map[string]int{droppedRefused: 1}, s.dropped)
		set(s, &refusal, nil)
		s.happens("e", 2)
		s.require(t, "create 2")
	})
}

func TestEventsThatSomebodyDeletes(t *testing.T) {
	bubble(t, func(t *testing.T, s *stream) {
		s.run(t)
		s.happens("e", 1)
		s.require(t, "create 1")
		require.NoError(t, s.home.CoreV1().Events("shop").Delete(t.Context(), s.atHome(t)[0].Name, metav1.DeleteOptions{}))
		time.Sleep(time.Hour)
		s.require(t) // it is not news
		s.happens("e", 2)
		time.Sleep(2 * time.Second)
		s.require(t, `patch {"count":2`, "create 2")

		// In the provider: what is written stays, and one of the same name is another.
		require.NoError(t, s.provider.CoreV1().Events("shop-rome").Delete(t.Context(), "e", metav1.DeleteOptions{}))
		synctest.Wait()
		s.happens("e", 1, func(e *corev1.Event) { e.UID = "another" })
		s.require(t, "create 1")
		require.Len(t, s.atHome(t), 2)
	})
}

func TestEventsThatAnotherHasWritten(t *testing.T) {
	bubble(t, func(t *testing.T, s *stream) {
		stop := s.run(t)
		s.happens("e", 1)
		s.require(t, "create 1")
		stop()
		// The label by which it is found is gone.
		have := s.atHome(t)[0]
		have.Labels = nil
		require.NoError(t, s.home.Tracker().Update(corev1.SchemeGroupVersion.WithResource("events"), &have, "shop"))
		s.happens("e", 2)
		s.run(t)
		time.Sleep(2 * time.Second)
		s.require(t, "create 2", `patch {"count":2`)
	})
}

func TestEventsOfOthers(t *testing.T) {
	none := corev1.ObjectReference{}
	for name, tc := range map[string]struct {
		subject Subject
		change  func(*corev1.Event)
	}{
		"not ours": {func(context.Context, string, corev1.ObjectReference) (corev1.ObjectReference, bool, error) {
			return none, false, nil
		}, nil},
		"not known, ever": {func(context.Context, string, corev1.ObjectReference) (corev1.ObjectReference, bool, error) {
			return none, false, ErrSubjectUnknown
		}, nil},
		"reflected already": {nil, func(e *corev1.Event) { e.Labels = labels.Set{offloadingv1beta1.OriginLabel: "paris"} }},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *stream) {
				s.subject = tc.subject
				s.run(t)
				if tc.change == nil {
					tc.change = func(*corev1.Event) {}
				}
				s.happens("e", 1, tc.change)
				time.Sleep(time.Hour)
				s.require(t)
				require.Empty(t, s.dropped)
			})
		})
	}
}

func TestEventsOfWhatIsKnownALittleLater(t *testing.T) {
	for name, err := range map[string]error{"the pod": ErrSubjectUnknown, "the caches": errNotSynced} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *stream) {
				wait := map[error]time.Duration{ErrSubjectUnknown: 3 * time.Second, errNotSynced: time.Minute}[err]
				s.subject = func(context.Context, string, corev1.ObjectReference) (corev1.ObjectReference, bool, error) {
					return corev1.ObjectReference{}, false, err
				}
				s.run(t)
				s.happens("e", 1)
				time.Sleep(wait)
				s.require(t)
				set(s, &s.subject, nil)
				time.Sleep(2 * time.Second)
				s.require(t, "create 1")
			})
		})
	}
}

// TestEventsAtAHandOver ends the process that writes certain events. The process that
// takes over must write them within seconds.
func TestEventsAtAHandOver(t *testing.T) {
	bubble(t, func(t *testing.T, s *stream) {
		another := func(context.Context, string, corev1.ObjectReference) (corev1.ObjectReference, bool, error) {
			return corev1.ObjectReference{}, false, ErrSubjectOfAnother
		}
		s.subject = another
		s.tune = func(e *Events) { s.events = e }
		s.run(t)
		s.happens("late", 1)
		time.Sleep(15 * time.Second) // a Lease runs out
		s.require(t)
		set(s, &s.subject, nil)
		time.Sleep(eventHandOver)
		s.require(t, "create 1")

		set(s, &s.subject, another)
		s.happens("theirs", 1)
		time.Sleep((eventTries + 1) * eventHandOver)
		s.require(t)
		s.events.backlog.mu.Lock()
		defer s.events.backlog.mu.Unlock()
		require.Len(t, s.events.backlog.entries, 1, "what another brings home is forgotten")
	})
}

func TestEventsFollowTheMap(t *testing.T) {
	bubble(t, func(t *testing.T, s *stream) {
		inBank := func(e *corev1.Event) { e.Namespace, e.InvolvedObject.Namespace = "bank-rome", "bank-rome" }
		s.run(t)
		s.happens("b", 1, inBank)
		s.require(t) // not mapped
		s.mapped("bank")
		s.require(t, "create 1")
		s.happens("e", 1)
		s.happens("b", 2, inBank)
		time.Sleep(eventInterval)
		s.require(t, `patch {"count":2`)
		s.mapped("bank", "shop")
		s.require(t, "create 1")
	})
}

func TestEventsWhoseAnnotationsAreJudged(t *testing.T) {
	bubble(t, func(t *testing.T, s *stream) {
		p := passage{events: NewEvents(EventsConfig{Chosen: func(a map[string]string) bool { return a["x"] == "y" }}), local: "shop"}
		e := &corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{Namespace: "shop-rome", Name: "e"},
			InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: "shop-rome", Name: "web"},
		}
		require.Nil(t, p.localCopy(e))
		e.Annotations = map[string]string{"x": "y"}
		require.NotNil(t, p.localCopy(e))
	})
}
