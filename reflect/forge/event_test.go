package forge

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
)

var noon = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

// eventFields has a rule and a reason for each field of an event that is copied from the
// provider.
var eventFields = map[string]rule{
	"TypeMeta":            {removed, "clients set it"},
	"ObjectMeta":          {forced, "a name that follows from the UID; our labels and annotation"},
	"InvolvedObject":      {forced, "the object at home, with the path of the provider's"},
	"Reason":              {partly, "at most 256 bytes"},
	"Message":             {partly, "at most 4096 bytes"},
	"Source":              {partly, "the component says that it is remote"},
	"FirstTimestamp":      {kept, ""},
	"LastTimestamp":       {kept, ""},
	"Count":               {kept, ""},
	"Type":                {partly, "Normal or Warning"},
	"EventTime":           {kept, ""},
	"Series":              {kept, ""},
	"Action":              {partly, "at most 256 bytes"},
	"Related":             {removed, "names an object of the provider"},
	"ReportingController": {partly, "at most 256 bytes"},
	"ReportingInstance":   {partly, "at most 256 bytes"},
}

func TestEveryFieldOfAnEventHasARule(t *testing.T) {
	requireLines[corev1.Event](t, eventFields)
}

func remoteEvent(change ...func(*corev1.Event)) *corev1.Event {
	e := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop-rome", Name: "web.1", UID: "event-1", ResourceVersion: "7", Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"c": "d"},
			Finalizers: []string{"x/y"}, OwnerReferences: []metav1.OwnerReference{{Name: "o"}}, ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m"}},
		},
		InvolvedObject: corev1.ObjectReference{
			APIVersion: "v1", Kind: "Pod", Namespace: "shop-rome", Name: "web", UID: "remote-1", ResourceVersion: "5", FieldPath: "spec.containers{c}",
		},
		Reason: "Pulling", Message: "Pulling image \"i\"", Type: "Normal", Source: corev1.EventSource{Component: "kubelet", Host: "node-1"},
		FirstTimestamp: metav1.NewTime(noon), LastTimestamp: metav1.NewTime(noon.Add(time.Minute)), Count: 3,
		ReportingController: "kubelet", ReportingInstance: "node-1", Related: &corev1.ObjectReference{Name: "r"},
	}
	for _, c := range change {
		c(e)
	}
	return e
}

// series gives the event the fields that clients of events.k8s.io write.
func series(e *corev1.Event) {
	e.Source, e.FirstTimestamp, e.LastTimestamp, e.Count = corev1.EventSource{}, metav1.Time{}, metav1.Time{}, 0
	e.EventTime, e.ReportingController, e.ReportingInstance, e.Action = metav1.NewMicroTime(noon), "default-scheduler", "s-1", "Scheduling"
	e.Series = &corev1.EventSeries{Count: 4, LastObservedTime: metav1.NewMicroTime(noon.Add(time.Second))}
}

var homeward = EventOptions{ConsumerID: "rome", ProviderID: "milan", NodeName: "milan-1", Namespace: "shop"}

func TestEvent(t *testing.T) {
	subject := corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: "shop", Name: "web", UID: "local-1"}
	about := subject
	about.FieldPath = "spec.containers{c}"
	base := corev1.Event{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Labels: map[string]string{
				offloadingv1beta1.OriginLabel: "milan", offloadingv1beta1.DestinationLabel: "rome", offloadingv1beta1.NodeNameLabel: "milan-1",
			},
			Annotations: map[string]string{offloadingv1beta1.RemoteEventAnnotation: "milan/shop-rome/web.1"},
		},
		InvolvedObject: about, Reason: "Pulling", Message: "Pulling image \"i\"", Type: "Normal",
	}
	counted, repeated := base, base
	counted.Source = corev1.EventSource{Component: "kubelet (remote)", Host: "node-1"}
	counted.FirstTimestamp, counted.LastTimestamp, counted.Count = metav1.NewTime(noon), metav1.NewTime(noon.Add(time.Minute)), 3
	counted.ReportingController, counted.ReportingInstance = "kubelet", "node-1"
	repeated.Source = corev1.EventSource{Component: "default-scheduler (remote)"}
	repeated.EventTime, repeated.ReportingController, repeated.ReportingInstance, repeated.Action = metav1.NewMicroTime(noon), "default-scheduler", "s-1", "Scheduling"
	repeated.Series = &corev1.EventSeries{Count: 4, LastObservedTime: metav1.NewMicroTime(noon.Add(time.Second))}
	for name, tc := range map[string]struct {
		remote *corev1.Event
		want   corev1.Event
		patch  string
	}{
		"counted":  {remoteEvent(), counted, `{"count":3,"lastTimestamp":"2026-05-04T12:01:00Z","series":null,"message":"Pulling image \"i\""}`},
		"a series": {remoteEvent(series), repeated, `{"count":0,"lastTimestamp":null,"series":{"count":4,"lastObservedTime":"2026-05-04T12:00:01.000000Z"},"message":"Pulling image \"i\""}`},
	} {
		t.Run(name, func(t *testing.T) {
			before := tc.remote.DeepCopy()
			forged := Event(tc.remote, homeward)
			require.Equal(t, "remote-1", string(forged.InvolvedObject.UID), "the provider's, so far")
			got := AboutSubject(forged, subject)
			require.Regexp(t, `^web\.[0-9a-f]{16}$`, got.Name)
			require.Equal(t, "remote-1", string(forged.InvolvedObject.UID), "left alone")
			got.Name = ""
			require.Equal(t, &tc.want, got)
			require.Equal(t, before, tc.remote)
			require.False(t, CopiesEvent(forged), "it goes no further")

			patch, err := EventPatch(forged)
			require.NoError(t, err)
			require.JSONEq(t, tc.patch, string(patch))
			text, err := json.Marshal(forged)
			require.NoError(t, err)
			var home corev1.Event
			require.NoError(t, json.Unmarshal(text, &home))
			require.Equal(t, StateOf(forged), StateOf(&home), "its state survives the API server")
		})
	}
}

func TestEventKeepsWithinBounds(t *testing.T) {
	long := strings.Repeat("ä", 100000)
	e := Event(remoteEvent(func(e *corev1.Event) {
		e.Message, e.Reason, e.Action, e.Type = long, long, long, "Shouting"
		e.Source, e.ReportingController, e.ReportingInstance = corev1.EventSource{Component: long, Host: long}, long, long
		e.InvolvedObject.FieldPath = long
	}), homeward)
	text, err := json.Marshal(e)
	require.NoError(t, err)
	require.Less(t, len(text), 8000)
	require.Equal(t, corev1.EventTypeNormal, e.Type)
	for _, s := range []string{e.Message, e.Reason, e.Source.Component} {
		require.True(t, utf8.ValidString(s), "cut between characters")
	}
}

func TestEventName(t *testing.T) {
	name := func(object, uid, provider string) string {
		return Event(remoteEvent(func(e *corev1.Event) { e.InvolvedObject.Name, e.UID = object, types.UID(uid) }), EventOptions{ProviderID: provider}).Name
	}
	require.Equal(t, name("web", "1", "milan"), name("web", "1", "milan"))
	require.NotEqual(t, name("web", "1", "milan"), name("web", "2", "milan"), "an event of the same name that was made anew")
	require.NotEqual(t, name("web", "1", "milan"), name("web", "1", "paris"))
	for _, object := range []string{"web", strings.Repeat("x", 253), strings.Repeat("x", 235) + "-." + strings.Repeat("y", 16)} {
		require.Empty(t, validation.NameIsDNSSubdomain(name(object, "1", "milan"), false), object)
	}
}

func TestCopiesEvent(t *testing.T) {
	about := func(version, kind, name string) func(*corev1.Event) {
		return func(e *corev1.Event) {
			e.InvolvedObject.APIVersion, e.InvolvedObject.Kind, e.InvolvedObject.Name = version, kind, name
		}
	}
	for name, tc := range map[string]struct {
		change func(*corev1.Event)
		want   bool
	}{
		"Pod":                    {about("v1", "Pod", "a"), true},
		"Pod, no version":        {about("", "Pod", "a"), true},
		"Service":                {about("v1", "Service", "a"), true},
		"ConfigMap":              {about("v1", "ConfigMap", "a"), true},
		"Secret":                 {about("v1", "Secret", "a"), true},
		"PersistentVolumeClaim":  {about("v1", "PersistentVolumeClaim", "a"), true},
		"Ingress":                {about("networking.k8s.io/v1", "Ingress", "a"), true},
		"EndpointSlice":          {about("discovery.k8s.io/v1", "EndpointSlice", "a"), true},
		"ShadowPod":              {about("offloading.liqo.io/v1beta1", "ShadowPod", "a"), true},
		"ShadowEndpointSlice":    {about("offloading.liqo.io/v1beta1", "ShadowEndpointSlice", "a"), true},
		"not reflected":          {about("apps/v1", "Deployment", "a"), false},
		"another group":          {about("example.org/v1", "Pod", "a"), false},
		"no kind":                {about("v1", "", "a"), false},
		"no group":               {about("/v1", "Deployment", "a"), false},
		"no name":                {about("v1", "Pod", ""), false},
		"no possible name":       {about("v1", "Pod", strings.Repeat("x", 254)), false},
		"no namespace":           {func(e *corev1.Event) { e.InvolvedObject.Namespace = "" }, true},
		"another namespace":      {func(e *corev1.Event) { e.InvolvedObject.Namespace = "theirs" }, false},
		"from a third cluster":   {func(e *corev1.Event) { e.Labels[offloadingv1beta1.OriginLabel] = "paris" }, false},
		"from this cluster":      {func(e *corev1.Event) { e.Labels[offloadingv1beta1.OriginLabel] = "rome" }, false},
		"reported with a series": {series, true},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, tc.want, CopiesEvent(remoteEvent(tc.change)))
		})
	}
}

func TestEventState(t *testing.T) {
	again := func(e *corev1.Event) {
		e.Count, e.LastTimestamp = e.Count+1, metav1.NewTime(e.LastTimestamp.Add(time.Second))
	}
	for name, tc := range map[string]struct {
		before, after *corev1.Event
		want          bool
	}{
		"the same":                     {remoteEvent(), remoteEvent(), false},
		"once more":                    {remoteEvent(), remoteEvent(again), true},
		"twice within a second":        {remoteEvent(), remoteEvent(func(e *corev1.Event) { e.Count++ }), true},
		"another text":                 {remoteEvent(), remoteEvent(func(e *corev1.Event) { e.Message = "x" }), true},
		"another text, but older":      {remoteEvent(again), remoteEvent(func(e *corev1.Event) { e.Message = "x" }), false},
		"another resource version":     {remoteEvent(), remoteEvent(func(e *corev1.Event) { e.ResourceVersion = "99" }), false},
		"a series goes on":             {remoteEvent(series), remoteEvent(series, func(e *corev1.Event) { e.Series.Count++ }), true},
		"a series begins":              {remoteEvent(series, func(e *corev1.Event) { e.Series = nil }), remoteEvent(series), true},
		"a series goes on, seen later": {remoteEvent(series), remoteEvent(series, func(e *corev1.Event) { e.Series.LastObservedTime = metav1.NewMicroTime(noon.Add(time.Hour)) }), true},
	} {
		t.Run(name, func(t *testing.T) {
			before, after := StateOf(Event(tc.before, homeward)), StateOf(Event(tc.after, homeward))
			require.Equal(t, tc.want, after.After(before))
		})
	}
	require.Zero(t, StateOf(remoteEvent(func(e *corev1.Event) { e.FirstTimestamp, e.LastTimestamp = metav1.Time{}, metav1.Time{} })).Last())
	require.Equal(t, noon.Add(time.Minute).UnixMicro(), StateOf(remoteEvent()).Last())
}
