package forge

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
)

// eventFields says what happens to each field of an event of a provider.
var eventFields = map[string]rule{
	"TypeMeta":            {apart, "nobody's"},
	"ObjectMeta":          {forced, "a name and labels of ours"},
	"InvolvedObject":      {forced, "the local object; the part of it is kept"},
	"Reason":              {kept, ""},
	"Message":             {kept, ""},
	"Source":              {partly, "its component says that it is remote"},
	"FirstTimestamp":      {kept, ""},
	"LastTimestamp":       {kept, ""},
	"Count":               {kept, ""},
	"Type":                {kept, ""},
	"EventTime":           {kept, ""},
	"Series":              {kept, ""},
	"Action":              {kept, ""},
	"Related":             {apart, "dropped: names an object of the provider"},
	"ReportingController": {kept, "the API server accepts no suffix here"},
	"ReportingInstance":   {kept, ""},
}

func remoteEvent() *corev1.Event {
	return &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Name: "web-1.17", Namespace: "shop-rome", UID: "e1", Annotations: map[string]string{"note": "x"}},
		InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: "shop-rome", Name: "web-1", UID: "r", FieldPath: "spec.containers{web}"},
	}
}

func eventOptions() EventOptions {
	return EventOptions{ProviderID: "milan", ConsumerID: "rome",
		Object: corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: "shop", Name: "web-1", UID: uid, ResourceVersion: "7"}}
}

func TestEveryFieldOfAnEventHasARule(t *testing.T) {
	t.Parallel()
	requireRules(t, eventFields, kind[corev1.Event, corev1.Event]{
		local:  remoteEvent,
		forge:  func(e *corev1.Event) (*corev1.Event, error) { return Event(e, eventOptions()), nil },
		merge:  MergeEvent,
		here:   func(e *corev1.Event) any { return e },
		remote: func(e *corev1.Event) any { return e },
	})
}

func TestEvent(t *testing.T) {
	t.Parallel()
	remote := remoteEvent()
	remote.Reason, remote.Source = "Pulled", corev1.EventSource{Component: "kubelet", Host: "milan-1"}
	remote.Related = &corev1.ObjectReference{Name: "x"}
	before := remote.DeepCopy()
	got := Event(remote, eventOptions())
	require.Equal(t, before, remote, "the argument is not changed")
	require.Regexp(t, `^web-1\.[0-9a-f]{16}$`, got.Name)
	require.Equal(t, &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: got.Name, Namespace: "shop",
			Labels: map[string]string{"offloading.liqo.io/origin": "milan", "offloading.liqo.io/destination": "rome"}},
		InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: "shop", Name: "web-1", UID: uid,
			ResourceVersion: "7", FieldPath: "spec.containers{web}"},
		Reason: "Pulled", Source: corev1.EventSource{Component: "kubelet (remote)", Host: "milan-1"},
	}, got)

	remote.Source.Component, remote.ReportingController = "", "example.org/scaler"
	require.Equal(t, "example.org/scaler (remote)", Event(remote, eventOptions()).Source.Component)
}

func TestEventNames(t *testing.T) {
	t.Parallel()
	first := Event(remoteEvent(), eventOptions()).Name
	cases := map[string]struct {
		remote func(*corev1.Event)
		o      func(*EventOptions)
		same   bool
	}{
		"counted":                {remote: func(e *corev1.Event) { e.Count, e.ResourceVersion = 2, "9" }, same: true},
		"the object was written": {o: func(o *EventOptions) { o.Object.ResourceVersion = "8" }, same: true},
		"another event":          {remote: func(e *corev1.Event) { e.UID = "e2" }},
		"another provider":       {o: func(o *EventOptions) { o.ProviderID = "turin" }},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			remote, o := remoteEvent(), eventOptions()
			if tc.remote != nil {
				tc.remote(remote)
			}
			if tc.o != nil {
				tc.o(&o)
			}
			require.Equal(t, tc.same, Event(remote, o).Name == first)
		})
	}
	o := eventOptions()
	o.Object.Name = strings.Repeat("a", 235) + "." + strings.Repeat("b", 17)
	require.Empty(t, validation.IsDNS1123Subdomain(Event(remoteEvent(), o).Name))
}

func TestMergeEvent(t *testing.T) {
	t.Parallel()
	have := Event(remoteEvent(), eventOptions())
	have.ResourceVersion = "5"
	o := eventOptions()
	o.Object.ResourceVersion = "8"
	require.Equal(t, have, MergeEvent(have, Event(remoteEvent(), o)), "the object alone was written")

	again := remoteEvent()
	again.Count, again.LastTimestamp = 2, at(60)
	want := have.DeepCopy()
	want.Count, want.LastTimestamp = 2, at(60)
	require.Equal(t, want, MergeEvent(have, Event(again, o)))
}

func TestEventSubject(t *testing.T) {
	t.Parallel()
	ref := func(version, kind, name string) corev1.ObjectReference {
		return corev1.ObjectReference{APIVersion: version, Kind: kind, Name: name}
	}
	cases := map[string]struct {
		object     corev1.ObjectReference
		labels     map[string]string
		kind, name string // none for what is not reflected
	}{
		"Pod":                       {object: ref("v1", "Pod", "a"), kind: "Pod", name: "a"},
		"Service":                   {object: ref("v1", "Service", "a"), kind: "Service", name: "a"},
		"ConfigMap":                 {object: ref("v1", "ConfigMap", "a"), kind: "ConfigMap", name: "a"},
		"root CA":                   {object: ref("v1", "ConfigMap", "kube-root-ca.crt.rome"), kind: "ConfigMap", name: "kube-root-ca.crt"},
		"Secret":                    {object: ref("v1", "Secret", "a"), kind: "Secret", name: "a"},
		"PersistentVolumeClaim":     {object: ref("v1", "PersistentVolumeClaim", "a"), kind: "PersistentVolumeClaim", name: "a"},
		"Ingress":                   {object: ref("networking.k8s.io/v1", "Ingress", "a"), kind: "Ingress", name: "a"},
		"EndpointSlice":             {object: ref("discovery.k8s.io/v1", "EndpointSlice", "a"), kind: "EndpointSlice", name: "a"},
		"ShadowPod":                 {object: ref("offloading.liqo.io/v1beta1", "ShadowPod", "a"), kind: "Pod", name: "a"},
		"ShadowEndpointSlice":       {object: ref("offloading.liqo.io/v1beta1", "ShadowEndpointSlice", "a"), kind: "EndpointSlice", name: "a"},
		"not reflected":             {object: ref("apps/v1", "Deployment", "a")},
		"another group":             {object: ref("example.org/v1", "Pod", "a")},
		"from a cluster further on": {object: ref("v1", "Pod", "a"), labels: map[string]string{offloadingv1beta1.OriginLabel: "turin"}},
		"one that we brought there": {object: ref("v1", "Pod", "a"), labels: map[string]string{offloadingv1beta1.OriginLabel: "rome"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kind, name, ok := EventSubject(&corev1.Event{ObjectMeta: metav1.ObjectMeta{Labels: tc.labels}, InvolvedObject: tc.object}, "rome")
			require.Equal(t, tc.kind != "", ok)
			if ok {
				require.Equal(t, []string{tc.kind, tc.name}, []string{kind, name})
			}
		})
	}
}
