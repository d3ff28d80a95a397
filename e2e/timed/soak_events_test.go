package timed

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/reference"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/e2e/lab"
)

const (
	// reports a second are so few that liqod drops none because there are too many.
	reports = 2
	// recent is how many of the last events may be repeated.
	recent       = 20
	reporterName = "soak-reporter"
	remoteSuffix = " (remote)"
)

// reporter is a component of the provider that creates events about the objects in the twins,
// reflected or not. Its methods are called one after the other.
type reporter struct {
	w     *soakWorld
	kinds []kind
	r     *rand.Rand
	last  []types.NamespacedName // of its events
	// created and repeated count the events.
	created, repeated int
}

func newReporter(w *soakWorld, all []kind) *reporter {
	return &reporter{w: w, kinds: all, r: rand.New(rand.NewPCG(*seed, 4))}
}

// run creates and repeats events until ctx ends.
func (p *reporter) run(ctx context.Context) {
	tick := time.NewTicker(time.Second / reports)
	defer tick.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-tick.C:
			for ctx.Err() == nil && p.createOrRepeat(ctx) != nil {
			}
		}
	}
}

// createOrRepeat creates an event or repeats one.
func (p *reporter) createOrRepeat(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerWithin)
	defer cancel()
	if len(p.last) > 0 && p.r.IntN(3) == 0 {
		of := one(p.r, p.last...)
		have, err := p.w.remote.CoreV1().Events(of.Namespace).Get(ctx, of.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		return p.repeat(ctx, have)
	}
	k, ns := one(p.r, p.kinds...), one(p.r, p.w.namespaces...)
	obj, err := k.at(p.w.remote, twinOf(ns)).get(ctx, nameOf(p.r.IntN(names)))
	if err != nil {
		return err
	}
	return p.create(ctx, obj)
}

// create creates an event about an object.
func (p *reporter) create(ctx context.Context, obj metav1.Object) error {
	about, err := reference.GetReference(scheme.Scheme, obj.(runtime.Object))
	if err != nil {
		return err
	}
	now := metav1.Now()
	have, err := p.w.remote.CoreV1().Events(about.Namespace).Create(ctx, &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{GenerateName: about.Name + "."},
		InvolvedObject: *about, Reason: "Changed", Message: occurrence(1), Type: one(p.r, corev1.EventTypeNormal, corev1.EventTypeWarning),
		Source: corev1.EventSource{Component: reporterName}, FirstTimestamp: now, LastTimestamp: now, Count: 1,
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	p.created++
	p.last = append(p.last[max(0, len(p.last)+1-recent):], types.NamespacedName{Namespace: have.Namespace, Name: have.Name})
	return nil
}

// repeat increases the count of an event.
func (p *reporter) repeat(ctx context.Context, have *corev1.Event) error {
	body := fmt.Sprintf(`{"count":%d,"message":%q,"lastTimestamp":%q}`, have.Count+1, occurrence(have.Count+1), time.Now().UTC().Format(time.RFC3339))
	_, err := p.w.remote.CoreV1().Events(have.Namespace).Patch(ctx, have.Name, types.MergePatchType, []byte(body), metav1.PatchOptions{})
	if err == nil {
		p.repeated++
	}
	return err
}

func occurrence(n int32) string { return fmt.Sprintf("changed %d times", n) }

// eventComparison compares the reporter's events with the events at home. It is made when the
// objects of both clusters are equal.
type eventComparison struct {
	// local are the objects at home by the UIDs of their reflected objects.
	local map[types.UID]metav1.Object
	// own are the UIDs of the provider's own objects.
	own map[types.UID]bool
	// remote and home are the events of the reporter, and those reflected to home.
	remote, home []corev1.Event
}

func (c *comparison) events(ctx context.Context) (*eventComparison, error) {
	h := &eventComparison{local: map[types.UID]metav1.Object{}, own: map[types.UID]bool{}}
	for _, ns := range c.w.namespaces {
		for _, k := range c.kinds {
			b, err := c.list(ctx, k, ns)
			if err != nil {
				return nil, err
			}
			h.add(k, b)
		}
		remote, err := c.w.remote.CoreV1().Events(twinOf(ns)).List(ctx, metav1.ListOptions{FieldSelector: "source=" + reporterName})
		if err != nil {
			return nil, err
		}
		home, err := c.w.home.CoreV1().Events(ns).List(ctx, metav1.ListOptions{FieldSelector: "source=" + reporterName + remoteSuffix})
		if err != nil {
			return nil, err
		}
		h.remote, h.home = append(h.remote, remote.Items...), append(h.home, home.Items...)
	}
	return h, nil
}

// add adds the objects that events may be about.
func (h *eventComparison) add(k kind, b both) {
	for name, remote := range b.remote {
		switch {
		case reflected(remote):
			h.local[remote.GetUID()] = b.home[name]
		case k.manager == reflectionManager:
			// A consumer may not read EndpointSlices, so liqod compares their names only.
			h.own[remote.GetUID()] = true
		}
	}
}

// current are the events about objects that exist in both clusters.
func (h *eventComparison) current() []*corev1.Event {
	var out []*corev1.Event
	for i := range h.remote {
		if h.local[h.remote[i].InvolvedObject.UID] != nil {
			out = append(out, &h.remote[i])
		}
	}
	return out
}

// compare returns the events that are wrong at home, and those that are missing or not up to date.
func (h *eventComparison) compare() (wrong, late []string) {
	byRemote := map[string][]*corev1.Event{}
	for i := range h.home {
		of := h.home[i].Annotations[offloadingv1beta1.RemoteEventAnnotation]
		byRemote[of] = append(byRemote[of], &h.home[i])
	}
	for i := range h.remote {
		e := &h.remote[i]
		name := fmt.Sprintf("%s event %s/%s about %s, last at %s,", e.Type, e.Namespace, e.Name, e.InvolvedObject.Kind, e.LastTimestamp.Format(time.TimeOnly))
		reflected := byRemote[provider+"/"+e.Namespace+"/"+e.Name]
		local := h.local[e.InvolvedObject.UID]
		switch {
		case len(reflected) > 1:
			wrong = append(wrong, fmt.Sprintf("%s exists %d times", name, len(reflected)))
		case len(reflected) == 1 && h.own[e.InvolvedObject.UID]:
			wrong = append(wrong, name+" is about the provider's own object, and is reflected")
		case local == nil: // it may have been reflected before, or not
		case len(reflected) == 0:
			late = append(late, name+" is not reflected")
		default:
			if d := eventDifference(e, reflected[0], local); d != "" {
				wrong = append(wrong, name+": "+d)
			}
			if !sameOccurrence(e, reflected[0]) {
				late = append(late, fmt.Sprintf("%s has count %d and message %q, not %d %q", name, reflected[0].Count, reflected[0].Message, e.Count, e.Message))
			}
		}
	}
	return wrong, late
}

// eventDifference returns how a reflected event differs from the one that stands for the object at home.
func eventDifference(e, reflected *corev1.Event, local metav1.Object) string {
	want := e.InvolvedObject
	want.Namespace, want.Name, want.UID, want.ResourceVersion = local.GetNamespace(), local.GetName(), local.GetUID(), ""
	if !reflected.CreationTimestamp.After(local.GetCreationTimestamp().Time) {
		// It may have been reflected when another object had the name.
		want.UID = reflected.InvolvedObject.UID
	}
	switch {
	case reflected.InvolvedObject != want:
		return fmt.Sprintf("is about %+v, not %+v", reflected.InvolvedObject, want)
	case reflected.Reason != e.Reason || reflected.Type != e.Type:
		return fmt.Sprintf("is %s %s, not %s %s", reflected.Type, reflected.Reason, e.Type, e.Reason)
	case reflected.Labels[offloadingv1beta1.OriginLabel] != provider:
		return "lacks the label of its origin"
	}
	return ""
}

func sameOccurrence(a, b *corev1.Event) bool {
	return a.Count == b.Count && a.Message == b.Message && a.LastTimestamp.Equal(&b.LastTimestamp)
}

// checkEvents requires that the events about existing objects are at home. liqod drops an event
// while its object does not exist at home, and when a vkubelet ends that has reflected newer
// ones. Therefore events may be missing at first, but none that is repeated now that nothing else
// changes.
func (c *comparison) checkEvents(t *testing.T, p *reporter) {
	t.Helper()
	h, err := c.events(t.Context())
	require.NoError(t, err)
	wrong, late := h.compare()
	current := h.current()
	t.Logf("%d events, repeated %d times; %d at home; %d about objects that exist, of which %d are not up to date:\n%s",
		p.created, p.repeated, len(h.home), len(current), len(late), strings.Join(late, "\n"))
	require.Empty(t, wrong)
	require.NotEmpty(t, h.home, "events that were reflected meanwhile")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, e := range current {
		require.NoError(t, p.repeat(ctx, e))
	}
	require.NoError(t, lab.Eventually(ctx, func(ctx context.Context) error {
		h, err := c.events(ctx)
		if err != nil {
			return err
		}
		wrong, late := h.compare()
		return lab.Wrong(nil, len(wrong)+len(late) > 0, "%d events are not as they have to be:\n%s", len(wrong)+len(late), strings.Join(slices.Concat(wrong, late), "\n"))
	}))
}

// TestCompareEvents: the comparison finds each difference.
func TestCompareEvents(t *testing.T) {
	local := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a", UID: "home", CreationTimestamp: metav1.Unix(100, 0)}}
	event := func(about types.UID) corev1.Event {
		return corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{Namespace: "ns-rome", Name: "a.1"},
			InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "ConfigMap", Namespace: "ns-rome", Name: "a", UID: about},
			Reason:         "Changed", Type: corev1.EventTypeNormal, Message: occurrence(2), Count: 2,
		}
	}
	reflectedEvent := func(change ...func(*corev1.Event)) corev1.Event {
		e := event("")
		e.ObjectMeta = metav1.ObjectMeta{
			Namespace: "ns", Name: "a.hash", CreationTimestamp: metav1.Unix(200, 0), Labels: map[string]string{offloadingv1beta1.OriginLabel: provider},
			Annotations: map[string]string{offloadingv1beta1.RemoteEventAnnotation: "milan/ns-rome/a.1"},
		}
		e.InvolvedObject.Namespace, e.InvolvedObject.UID = "ns", "home"
		for _, c := range change {
			c(&e)
		}
		return e
	}
	for name, test := range map[string]struct {
		about       types.UID
		home        []corev1.Event
		wrong, late string
	}{
		"reflected":    {about: "ours", home: []corev1.Event{reflectedEvent()}},
		"missing":      {about: "ours", late: "is not reflected"},
		"twice":        {about: "ours", home: []corev1.Event{reflectedEvent(), reflectedEvent()}, wrong: "exists 2 times"},
		"behind":       {about: "ours", home: []corev1.Event{reflectedEvent(func(e *corev1.Event) { e.Count = 1 })}, late: "has count 1"},
		"of ones own":  {about: "own", home: []corev1.Event{reflectedEvent()}, wrong: "the provider's own"},
		"own":          {about: "own"},
		"gone":         {about: "gone", home: []corev1.Event{reflectedEvent()}},
		"other object": {about: "ours", home: []corev1.Event{reflectedEvent(func(e *corev1.Event) { e.InvolvedObject.UID = "ours" })}, wrong: "is about"},
		"predecessor": {about: "ours", home: []corev1.Event{reflectedEvent(func(e *corev1.Event) {
			e.InvolvedObject.UID, e.CreationTimestamp = "before", metav1.Unix(90, 0)
		})}},
		"other reason": {about: "ours", home: []corev1.Event{reflectedEvent(func(e *corev1.Event) { e.Reason = "Other" })}, wrong: "not Normal Changed"},
		"no origin":    {about: "ours", home: []corev1.Event{reflectedEvent(func(e *corev1.Event) { e.Labels = nil })}, wrong: "lacks the label"},
	} {
		t.Run(name, func(t *testing.T) {
			h := &eventComparison{local: map[types.UID]metav1.Object{"ours": local}, own: map[types.UID]bool{"own": true}, remote: []corev1.Event{event(test.about)}, home: test.home}
			wrong, late := h.compare()
			for want, found := range map[*string][]string{&test.wrong: wrong, &test.late: late} {
				if *want == "" {
					require.Empty(t, found)
					continue
				}
				require.Len(t, found, 1)
				require.Contains(t, found[0], *want)
			}
		})
	}
}
