package scenarios

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/e2e/site"
	"github.com/liqod/liqod/kube/kubetest"
)

const remoteSuffix = " (remote)"

func testEvents(t *testing.T, w *world) {
	t.Run("Unschedulable", func(t *testing.T) { testUnschedulable(t, w) })
	c := w.fixture(t, "story")
	pod := c.runs(t, "web")
	t.Run("Counted", func(t *testing.T) { testEventCounted(t, c, pod) })
	t.Run("Series", func(t *testing.T) { testEventSeries(t, c, pod) })
	t.Run("NotOurs", func(t *testing.T) { testEventNotOurs(t, c, pod) })
	t.Run("Restart", func(t *testing.T) { testEventsRestart(t, c, pod) })
	t.Run("ProviderAway", func(t *testing.T) { testEventsProviderAway(t, c, pod) })
	t.Run("Kinds", func(t *testing.T) { testEventKinds(t, w) })
	t.Run("KindsMissed", func(t *testing.T) { testEventKindsMissed(t, w) })
	t.Run("Policy", func(t *testing.T) { testEventPolicy(t, c, pod) })
	t.Run("Flood", func(t *testing.T) { testEventFlood(t, w) })
}

// runs creates a pod and waits until both clusters say that it runs.
func (c *fixture) runs(t *testing.T, name string) *corev1.Pod {
	t.Helper()
	c.create(t, boundPod(name))
	return c.untilLocal(t, 30*time.Second, name, "runs", podRunning)
}

// reported returns the events that kubectl describe shows of a pod at home, and whose component
// is the one given.
func (w *world) reported(ctx context.Context, pod *corev1.Pod, component string) ([]corev1.Event, error) {
	list, err := w.rome.Client().CoreV1().Events(pod.Namespace).List(ctx, metav1.ListOptions{
		FieldSelector: fmt.Sprintf("involvedObject.kind=Pod,involvedObject.name=%s,involvedObject.namespace=%s,involvedObject.uid=%s,source=%s",
			pod.Name, pod.Namespace, pod.UID, component),
	})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// untilEvent waits for the only event of a component about a pod to be as wanted.
func (w *world) untilEvent(t *testing.T, pod *corev1.Pod, component, what string, is func(corev1.Event) bool) corev1.Event {
	t.Helper()
	var seen corev1.Event
	within(t, 30*time.Second, what, func(ctx context.Context) error {
		list, err := w.reported(ctx, pod, component)
		if err != nil {
			return err
		}
		if len(list) != 1 || !is(list[0]) {
			return fmt.Errorf("the events of %s about pod %s are %+v", component, pod.Name, list)
		}
		seen = list[0]
		return nil
	})
	return seen
}

// remoteEvent is one of the provider about a pod of a fixture, as a kubelet's.
func (c *fixture) remoteEvent(name string, pod *corev1.Pod) *corev1.Event {
	now := metav1.Now()
	return &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.twin, Name: name},
		InvolvedObject: corev1.ObjectReference{
			APIVersion: "v1", Kind: "Pod", Namespace: c.twin, Name: pod.Name, UID: pod.UID, FieldPath: "spec.containers{c}",
		},
		Reason: "BackOff", Message: "Back-off restarting failed container c", Type: corev1.EventTypeWarning,
		Source: corev1.EventSource{Component: "kubelet-of-" + name, Host: "node-1"}, FirstTimestamp: now, LastTimestamp: now, Count: 1,
	}
}

func (c *fixture) report(t *testing.T, e *corev1.Event) *corev1.Event {
	t.Helper()
	return kubetest.Create(t, c.milan.Client().CoreV1().Events(c.twin), e)
}

// again has an event happen again.
func (c *fixture) again(t *testing.T, name string, count int32) {
	t.Helper()
	patch := fmt.Appendf(nil, `{"count":%d,"lastTimestamp":%q}`, count, time.Now().UTC().Format(time.RFC3339))
	kubetest.Patch(t, c.milan.Client().CoreV1().Events(c.twin), name, types.MergePatchType, patch)
}

// testUnschedulable: what the provider's scheduler says of a pod that fits nowhere.
func testUnschedulable(t *testing.T, w *world) {
	c := w.fixture(t, "full")
	spec := boundPod("huge")
	spec.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("900")}
	pod := c.create(t, spec)
	e := w.untilEvent(t, pod, "default-scheduler"+remoteSuffix, "the provider's scheduler is heard at home", func(corev1.Event) bool { return true })
	require.Equal(t, "FailedScheduling", e.Reason)
	require.Equal(t, corev1.EventTypeWarning, e.Type)
	require.Contains(t, e.Message, "Insufficient cpu")
	require.Equal(t, "milan", e.Labels[offloadingv1beta1.OriginLabel])
	require.True(t, strings.HasPrefix(e.Annotations[offloadingv1beta1.RemoteEventAnnotation], "milan/full-rome/huge."), e.Annotations)

	// Nothing of it goes back, and nothing of home's own goes out.
	list := kubetest.List(t, w.milan.Client().CoreV1().Events(c.twin))
	require.NotEmpty(t, list.Items)
	for _, e := range list.Items {
		require.NotContains(t, e.Source.Component, remoteSuffix)
		require.NotEqual(t, pod.UID, e.InvolvedObject.UID)
		require.Empty(t, e.Labels[offloadingv1beta1.OriginLabel])
	}
}

func testEventCounted(t *testing.T, c *fixture, pod *corev1.Pod) {
	begin := time.Now()
	c.report(t, c.remoteEvent("counted", c.remote(t, "web")))
	e := c.untilEvent(t, pod, "kubelet-of-counted"+remoteSuffix, "the event is told at home", func(corev1.Event) bool { return true })
	require.Equal(t, "spec.containers{c}", e.InvolvedObject.FieldPath)
	require.EqualValues(t, 1, e.Count)
	for i := range int32(40) {
		c.again(t, "counted", 2+i)
	}
	c.untilEvent(t, pod, "kubelet-of-counted"+remoteSuffix, "it has happened 41 times", func(e corev1.Event) bool { return e.Count == 41 })
	records := must(c.rome.Audited(func(r lab.AuditRecord) bool {
		return r.Verb == "patch" && r.ObjectRef.Resource == "events" && r.ObjectRef.Name == e.Name && r.RequestReceivedTimestamp.After(begin)
	}))(t)
	// One event is patched at most once in 5 s, so a slow machine may see more patches.
	took := time.Since(begin)
	require.LessOrEqual(t, len(records), 4+int(took/(5*time.Second)), "seldom written, however often it happens: 41 times in %s", took)
	t.Logf("41 occurrences: 1 create and %d patches", len(records))
}

func testEventSeries(t *testing.T, c *fixture, pod *corev1.Pod) {
	remote := c.remote(t, "web")
	now := metav1.NowMicro()
	events := c.milan.Client().EventsV1().Events(c.twin)
	have := kubetest.Create(t, events, &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: "series"}, EventTime: now, ReportingController: "example.com/prober", ReportingInstance: "p-1",
		Action: "Probing", Reason: "Unhealthy", Note: "the probe failed", Type: corev1.EventTypeWarning,
		Regarding: corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: c.twin, Name: remote.Name, UID: remote.UID},
	})
	component := "example.com/prober" + remoteSuffix
	e := c.untilEvent(t, pod, component, "the event is told at home", func(corev1.Event) bool { return true })
	require.Equal(t, "example.com/prober", e.ReportingController)
	require.Equal(t, now.UnixMicro(), e.EventTime.UnixMicro())
	have.Series = &eventsv1.EventSeries{Count: 7, LastObservedTime: metav1.NowMicro()}
	kubetest.Update(t, events, have)
	c.untilEvent(t, pod, component, "its series is told", func(e corev1.Event) bool { return e.Series != nil && e.Series.Count == 7 })
}

// testEventNotOurs: events about the provider's own objects, and such as came there from
// elsewhere, stay there.
func testEventNotOurs(t *testing.T, c *fixture, pod *corev1.Pod) {
	own := kubetest.Create(t, c.milan.Client().CoreV1().Pods(c.twin), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "own"}, Spec: podSpec("sim/own:1"),
	})
	c.report(t, c.remoteEvent("own", own))
	predecessor := c.remote(t, "web")
	predecessor.UID = "of-a-predecessor"
	c.report(t, c.remoteEvent("predecessor", predecessor))
	reflected := c.remoteEvent("reflected", c.remote(t, "web"))
	reflected.Labels = map[string]string{offloadingv1beta1.OriginLabel: "paris"}
	c.report(t, reflected)
	job := c.remoteEvent("job", c.remote(t, "web"))
	job.InvolvedObject.Kind = "Job"
	c.report(t, job)
	c.report(t, c.remoteEvent("last", c.remote(t, "web")))
	c.untilEvent(t, pod, "kubelet-of-last"+remoteSuffix, "a later event is told", func(corev1.Event) bool { return true })
	// Longer than an object that is not known is looked for.
	end := time.Now().Add(8 * time.Second)
	hold(t, time.Until(end), "events that are not ours are not told", lab.Those(c.rome.Client().CoreV1().Events(c.namespace), metav1.ListOptions{}, func(list *corev1.EventList) error {
		for _, e := range list.Items {
			for _, name := range []string{"own", "predecessor", "reflected", "job"} {
				if e.Source.Component == "kubelet-of-"+name+remoteSuffix || e.InvolvedObject.Name == "own" {
					return fmt.Errorf("event %s about %s is told at home", e.Name, e.InvolvedObject.Name)
				}
			}
		}
		return nil
	}))
}

// testEventsRestart: a vkubelet that is started again writes no event that home has, and
// brings what it has missed.
func testEventsRestart(t *testing.T, c *fixture, pod *corev1.Pod) {
	vkubelet := c.rome.VKubelet("milan")
	begin := time.Now()
	require.NoError(t, c.sites.Restart(vkubelet))
	c.report(t, c.remoteEvent("missed", c.remote(t, "web")))
	c.untilEvent(t, pod, "kubelet-of-missed"+remoteSuffix, "a new event is told after the restart", func(corev1.Event) bool { return true })
	hold(t, 3*time.Second, "nothing else is written", func(context.Context) error {
		records, err := c.rome.Audited(func(r lab.AuditRecord) bool {
			return r.Write() && r.ObjectRef.Resource == "events" && liqods(r) && r.RequestReceivedTimestamp.After(begin)
		})
		return lab.Wrong(err, len(records) != 1, "%d writes of events: %+v", len(records), records)
	})
}

// testEventsProviderAway: what happens while the provider cannot be reached is told later.
func testEventsProviderAway(t *testing.T, c *fixture, pod *corev1.Pod) {
	remote := c.remote(t, "web")
	begin := time.Now()
	c.milan.Proxied().Drop()
	require.NoError(t, c.rome.WaitVirtualNode(t.Context(), "milan", corev1.ConditionFalse))
	c.report(t, c.remoteEvent("unheard", remote))
	c.milan.Proxied().Pass()
	c.untilEvent(t, pod, "kubelet-of-unheard"+remoteSuffix, "an event of the outage is told", func(corev1.Event) bool { return true })
	records := must(c.rome.Audited(func(r lab.AuditRecord) bool {
		return r.Verb == "create" && r.ObjectRef.Resource == "events" && r.ObjectRef.Namespace == c.namespace && liqods(r) && r.RequestReceivedTimestamp.After(begin)
	}))(t)
	for _, r := range records {
		require.Less(t, r.ResponseStatus.Code, 300, "nothing is created twice")
	}
	require.NoError(t, c.rome.WaitVirtualNode(t.Context(), "milan", corev1.ConditionTrue))
}

// testEventFlood: 2,000 events in the provider, and how long pods take meanwhile.
func testEventFlood(t *testing.T, w *world) {
	const events, pods, senders = 2000, 60, 8
	c := w.fixture(t, "flood")
	c.runs(t, "victim")
	victim := c.remote(t, "victim")
	batch := func(name string) {
		begin := time.Now()
		for i := range pods {
			c.create(t, boundPod(fmt.Sprintf("%s-%d", name, i)))
		}
		within(t, time.Minute, fmt.Sprintf("%d pods run, %s", pods, name), c.running(name, pods))
		t.Logf("%d pods, %s: %s from the first request to the last pod's Running", pods, name, time.Since(begin).Round(time.Millisecond))
		ofBatch := func(is func(moment) bool) func(moment) bool {
			return func(m moment) bool { return strings.HasPrefix(m.pod.Name, name+"-") && is(m) }
		}
		c.home.latency(t, "bound to Running, "+name, ofBatch(func(moment) bool { return true }), ofBatch(func(m moment) bool { return podRunning(m.pod) }))
	}
	batch("before")
	var wg sync.WaitGroup
	begin := time.Now()
	for s := range senders {
		wg.Go(func() {
			for i := s; i < events; i += senders {
				e := c.remoteEvent(fmt.Sprintf("flood-%d", i), victim)
				e.Type = corev1.EventTypeNormal
				if _, err := c.milan.Client().CoreV1().Events(c.twin).Create(t.Context(), e, metav1.CreateOptions{}); err != nil {
					t.Errorf("creating an event: %v", err)
					return
				}
			}
		})
	}
	batch("meanwhile")
	wg.Wait()
	t.Logf("%d events made in %s", events, time.Since(begin).Round(time.Millisecond))
	batch("after")
	records := must(w.rome.Audited(func(r lab.AuditRecord) bool {
		return r.Verb == "create" && r.ObjectRef.Resource == "events" && r.ObjectRef.Namespace == c.namespace && liqods(r)
	}))(t)
	elapsed := time.Since(begin)
	t.Logf("%d events written at home within %s of the flood's begin", len(records), elapsed.Round(time.Millisecond))
	require.Less(t, float64(len(records)), 100+25*elapsed.Seconds()+pods, "the rate is bounded")
}

// running waits for so many pods of a batch.
func (c *fixture) running(name string, want int) func(context.Context) error {
	return lab.Those(c.rome.Client().CoreV1().Pods(c.namespace), metav1.ListOptions{}, func(list *corev1.PodList) error {
		n := 0
		for i := range list.Items {
			if strings.HasPrefix(list.Items[i].Name, name+"-") && podRunning(&list.Items[i]) {
				n++
			}
		}
		return lab.Wrong(nil, n != want, "%d of %d pods run", n, want)
	})
}

// requireNoEventsOfLiqod: in normal operation it has nothing to say of a pod.
func requireNoEventsOfLiqod(t *testing.T, s *site.Site, namespace string) {
	t.Helper()
	for _, e := range kubetest.List(t, s.Client().CoreV1().Events(namespace)).Items {
		if e.InvolvedObject.Kind == "NamespaceOffloading" {
			continue // of each change of its condition
		}
		if e.Reason == "NotReflectedYet" {
			continue // a wait of more than three seconds, which a busy machine has
		}
		require.False(t, strings.HasPrefix(e.Source.Component, "liqod"), "event of %s: %s: %s", e.Source.Component, e.Reason, e.Message)
	}
}
