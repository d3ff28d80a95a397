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
	// reports a second are so few that none is given up because there are too many.
	reports = 2
	// recent is how many of the last events may happen again.
	recent       = 20
	reporterName = "soak-reporter"
	remoteSuffix = " (remote)"
)

// reporter is a component of the provider that has something to say about the objects in
// the twins, whoever they belong to. Its methods are called one after the other.
type reporter struct {
	w     *shaken
	kinds []kind
	r     *rand.Rand
	// told are the last of its events.
	told []types.NamespacedName
	// first and again count the events, and how often they happened again.
	first, again int
}

func newReporter(w *shaken, all []kind) *reporter {
	return &reporter{w: w, kinds: all, r: rand.New(rand.NewPCG(*seed, 4))}
}

// run reports until ctx ends.
func (p *reporter) run(ctx context.Context) {
	tick := time.NewTicker(time.Second / reports)
	defer tick.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-tick.C:
			for ctx.Err() == nil && p.something(ctx) != nil {
			}
		}
	}
}

// something is a new event, or one that happens again.
func (p *reporter) something(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerWithin)
	defer cancel()
	if len(p.told) > 0 && p.r.IntN(3) == 0 {
		of := one(p.r, p.told...)
		have, err := p.w.away.CoreV1().Events(of.Namespace).Get(ctx, of.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		return p.repeat(ctx, have)
	}
	k, ns := one(p.r, p.kinds...), one(p.r, p.w.namespaces...)
	obj, err := k.at(p.w.away, twinOf(ns)).get(ctx, nameOf(p.r.IntN(names)))
	if err != nil {
		return err
	}
	return p.report(ctx, obj)
}

// report has something happen to an object for the first time.
func (p *reporter) report(ctx context.Context, obj metav1.Object) error {
	about, err := reference.GetReference(scheme.Scheme, obj.(runtime.Object))
	if err != nil {
		return err
	}
	now := metav1.Now()
	have, err := p.w.away.CoreV1().Events(about.Namespace).Create(ctx, &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{GenerateName: about.Name + "."},
		InvolvedObject: *about, Reason: "Shaken", Message: occurrence(1), Type: one(p.r, corev1.EventTypeNormal, corev1.EventTypeWarning),
		Source: corev1.EventSource{Component: reporterName}, FirstTimestamp: now, LastTimestamp: now, Count: 1,
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	p.first++
	p.told = append(p.told[max(0, len(p.told)+1-recent):], types.NamespacedName{Namespace: have.Namespace, Name: have.Name})
	return nil
}

// repeat has an event happen again.
func (p *reporter) repeat(ctx context.Context, have *corev1.Event) error {
	body := fmt.Sprintf(`{"count":%d,"message":%q,"lastTimestamp":%q}`, have.Count+1, occurrence(have.Count+1), time.Now().UTC().Format(time.RFC3339))
	_, err := p.w.away.CoreV1().Events(have.Namespace).Patch(ctx, have.Name, types.MergePatchType, []byte(body), metav1.PatchOptions{})
	if err == nil {
		p.again++
	}
	return err
}

func occurrence(n int32) string { return fmt.Sprintf("shaken %d times", n) }

// heard compares what was reported with what the consumer was told. It is made when the
// objects are equal.
type heard struct {
	// local are the objects at home by the UIDs of what stands for them.
	local map[types.UID]metav1.Object
	// own are the UIDs of the provider's own objects.
	own map[types.UID]bool
	// away and home are the events that were reported, and that were told.
	away, home []corev1.Event
}

func (c *checker) hear(ctx context.Context) (*heard, error) {
	h := &heard{local: map[types.UID]metav1.Object{}, own: map[types.UID]bool{}}
	for _, ns := range c.w.namespaces {
		for _, k := range c.kinds {
			b, err := c.look(ctx, k, ns)
			if err != nil {
				return nil, err
			}
			h.subjects(k, b)
		}
		away, err := c.w.away.CoreV1().Events(twinOf(ns)).List(ctx, metav1.ListOptions{FieldSelector: "source=" + reporterName})
		if err != nil {
			return nil, err
		}
		home, err := c.w.home.CoreV1().Events(ns).List(ctx, metav1.ListOptions{FieldSelector: "source=" + reporterName + remoteSuffix})
		if err != nil {
			return nil, err
		}
		h.away, h.home = append(h.away, away.Items...), append(h.home, home.Items...)
	}
	return h, nil
}

// subjects takes what events may be about.
func (h *heard) subjects(k kind, b both) {
	for name, remote := range b.away {
		switch {
		case reflected(remote):
			h.local[remote.GetUID()] = b.home[name]
		case k.manager == reflectionManager:
			// A consumer may not read EndpointSlices, and knows them by their names only.
			h.own[remote.GetUID()] = true
		}
	}
}

// living are the events about objects that exist in both clusters.
func (h *heard) living() []*corev1.Event {
	var out []*corev1.Event
	for i := range h.away {
		if h.local[h.away[i].InvolvedObject.UID] != nil {
			out = append(out, &h.away[i])
		}
	}
	return out
}

// compare returns what must never be, and what has not been told, or not the last of it.
func (h *heard) compare() (wrong, untold []string) {
	byRemote := map[string][]*corev1.Event{}
	for i := range h.home {
		of := h.home[i].Annotations[offloadingv1beta1.RemoteEventAnnotation]
		byRemote[of] = append(byRemote[of], &h.home[i])
	}
	for i := range h.away {
		e := &h.away[i]
		name := fmt.Sprintf("%s event %s/%s about %s, last at %s,", e.Type, e.Namespace, e.Name, e.InvolvedObject.Kind, e.LastTimestamp.Format(time.TimeOnly))
		told := byRemote[provider+"/"+e.Namespace+"/"+e.Name]
		local := h.local[e.InvolvedObject.UID]
		switch {
		case len(told) > 1:
			wrong = append(wrong, fmt.Sprintf("%s is told %d times", name, len(told)))
		case len(told) == 1 && h.own[e.InvolvedObject.UID]:
			wrong = append(wrong, name+" is about the provider's own, and is told")
		case local == nil: // it may have been told in time, or not
		case len(told) == 0:
			untold = append(untold, name+" is not told")
		default:
			if d := retold(e, told[0], local); d != "" {
				wrong = append(wrong, name+": "+d)
			}
			if !sameOccurrence(e, told[0]) {
				untold = append(untold, fmt.Sprintf("%s is told as %d %q, not %d %q", name, told[0].Count, told[0].Message, e.Count, e.Message))
			}
		}
	}
	return wrong, untold
}

// retold says what of a told event is not about the object at home.
func retold(e, told *corev1.Event, local metav1.Object) string {
	want := e.InvolvedObject
	want.Namespace, want.Name, want.UID, want.ResourceVersion = local.GetNamespace(), local.GetName(), local.GetUID(), ""
	if !told.CreationTimestamp.After(local.GetCreationTimestamp().Time) {
		// It was told when another object had the name, or may have been.
		want.UID = told.InvolvedObject.UID
	}
	switch {
	case told.InvolvedObject != want:
		return fmt.Sprintf("is told about %+v, not %+v", told.InvolvedObject, want)
	case told.Reason != e.Reason || told.Type != e.Type:
		return fmt.Sprintf("is told as %s %s, not %s %s", told.Type, told.Reason, e.Type, e.Reason)
	case told.Labels[offloadingv1beta1.OriginLabel] != provider:
		return "lacks the label that says where it is from"
	}
	return ""
}

func sameOccurrence(a, b *corev1.Event) bool {
	return a.Count == b.Count && a.Message == b.Message && a.LastTimestamp.Equal(&b.LastTimestamp)
}

// checkEvents requires that the consumer was told of what happened to the objects that
// exist. No event has to be told: it is given up when its object was away at home when it
// came, and when a vkubelet ends that had told newer ones. Therefore some may be missing, but
// none that happens once more now that nothing else does.
func (c *checker) checkEvents(t *testing.T, p *reporter) {
	t.Helper()
	h, err := c.hear(t.Context())
	require.NoError(t, err)
	wrong, untold := h.compare()
	living := h.living()
	t.Logf("%d events, again %d times; %d at home; %d about objects that exist, of which %d are not told to the end:\n%s",
		p.first, p.again, len(h.home), len(living), len(untold), strings.Join(untold, "\n"))
	require.Empty(t, wrong)
	require.NotEmpty(t, h.home, "events that were told meanwhile")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, e := range living {
		require.NoError(t, p.repeat(ctx, e))
	}
	require.NoError(t, lab.Eventually(ctx, func(ctx context.Context) error {
		h, err := c.hear(ctx)
		if err != nil {
			return err
		}
		if wrong, untold := h.compare(); len(wrong)+len(untold) > 0 {
			return fmt.Errorf("%d events are not as they have to be:\n%s", len(wrong)+len(untold), strings.Join(slices.Concat(wrong, untold), "\n"))
		}
		return nil
	}))
}

// TestHeard shows that the comparison finds each thing that may go wrong.
func TestHeard(t *testing.T) {
	local := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a", UID: "home", CreationTimestamp: metav1.Unix(100, 0)}}
	event := func(about types.UID) corev1.Event {
		return corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{Namespace: "ns-rome", Name: "a.1"},
			InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "ConfigMap", Namespace: "ns-rome", Name: "a", UID: about},
			Reason:         "Shaken", Type: corev1.EventTypeNormal, Message: occurrence(2), Count: 2,
		}
	}
	told := func(change ...func(*corev1.Event)) corev1.Event {
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
		about         types.UID
		home          []corev1.Event
		wrong, untold string
	}{
		"told":         {about: "ours", home: []corev1.Event{told()}},
		"not told":     {about: "ours", untold: "is not told"},
		"twice":        {about: "ours", home: []corev1.Event{told(), told()}, wrong: "is told 2 times"},
		"behind":       {about: "ours", home: []corev1.Event{told(func(e *corev1.Event) { e.Count = 1 })}, untold: "is told as 1"},
		"of ones own":  {about: "own", home: []corev1.Event{told()}, wrong: "the provider's own"},
		"own":          {about: "own"},
		"gone":         {about: "gone", home: []corev1.Event{told()}},
		"other object": {about: "ours", home: []corev1.Event{told(func(e *corev1.Event) { e.InvolvedObject.UID = "ours" })}, wrong: "is told about"},
		"predecessor": {about: "ours", home: []corev1.Event{told(func(e *corev1.Event) {
			e.InvolvedObject.UID, e.CreationTimestamp = "before", metav1.Unix(90, 0)
		})}},
		"other reason": {about: "ours", home: []corev1.Event{told(func(e *corev1.Event) { e.Reason = "Other" })}, wrong: "not Normal Shaken"},
		"no origin":    {about: "ours", home: []corev1.Event{told(func(e *corev1.Event) { e.Labels = nil })}, wrong: "lacks the label"},
	} {
		t.Run(name, func(t *testing.T) {
			h := &heard{local: map[types.UID]metav1.Object{"ours": local}, own: map[types.UID]bool{"own": true}, away: []corev1.Event{event(test.about)}, home: test.home}
			wrong, untold := h.compare()
			for want, found := range map[*string][]string{&test.wrong: wrong, &test.untold: untold} {
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
