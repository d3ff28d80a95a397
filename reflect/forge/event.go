package forge

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"hash/fnv"
	"strings"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
)

// RemoteSuffix ends the component of an event that was reported in a provider.
const RemoteSuffix = " (remote)"

// Limits in bytes: a provider is another organisation, and what it writes is kept here.
// Messages of kubelets may be longer than the 1024 of events.k8s.io.
const (
	longestEventMessage = 4096
	longestEventField   = 256
	longestObjectName   = 253
	eventHash           = 8 // bytes of the hash that ends an event's name
)

// EventSubject returns kind and name of the object at home that an event in the provider
// may be about, for the consumer with that id. It is not ok for kinds that are not
// reflected, and for events that came to the provider from another cluster: these stay there.
func EventSubject(remote *corev1.Event, consumerID string) (kind, name string, ok bool) {
	about := &remote.InvolvedObject
	if _, reflected := remote.Labels[offloadingv1beta1.OriginLabel]; reflected || about.Name == "" || len(about.Name) > longestObjectName ||
		(about.Namespace != "" && about.Namespace != remote.Namespace) {
		return "", "", false
	}
	// An empty version is that of the core group, whose only one is v1.
	group, _, _ := strings.Cut(cmp.Or(about.APIVersion, "v1"), "/")
	kind, ok = subjects[subject{group, about.Kind}]
	name = about.Name
	if kind == "ConfigMap" {
		name = LocalConfigMapName(name, consumerID)
	}
	return kind, name, ok
}

// subject is the group (the version, for the core group) and kind of an event's object.
type subject struct{ group, kind string }

// subjects are the kinds whose events come home (seed 004), and those that ask for them
// there, with the kinds at home that they stand for.
var subjects = map[subject]string{
	{"v1", "Pod"}:                    "Pod",
	{"v1", "Service"}:                "Service",
	{"v1", "ConfigMap"}:              "ConfigMap",
	{"v1", "Secret"}:                 "Secret",
	{"v1", "PersistentVolumeClaim"}:  "PersistentVolumeClaim",
	{"networking.k8s.io", "Ingress"}: "Ingress",

	{"discovery.k8s.io", "EndpointSlice"}:                "EndpointSlice",
	{offloadingv1beta1.GroupName, "ShadowPod"}:           "Pod",
	{offloadingv1beta1.GroupName, "ShadowEndpointSlice"}: "EndpointSlice",
}

// EventOptions say where an event of the provider comes home to.
type EventOptions struct {
	// ConsumerID and ProviderID are the ids of the two clusters.
	ConsumerID, ProviderID string
	// NodeName is the virtual node whose vkubelet writes it.
	NodeName string
	// Namespace is the one at home whose twin the event is in.
	Namespace string
}

// Event returns what stands at home for an event of the provider. Its involvedObject still
// is the provider's, until AboutSubject replaces it. Its name follows from the provider's
// id and the event's UID, so that it is found again.
func Event(remote *corev1.Event, o EventOptions) *corev1.Event {
	source := remote.Source
	if source.Component == "" {
		source.Component = remote.ReportingController // events.k8s.io has no source
	}
	e := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{
			Name: eventName(remote, o.ProviderID), Namespace: o.Namespace,
			Labels: map[string]string{
				offloadingv1beta1.OriginLabel: o.ProviderID, offloadingv1beta1.DestinationLabel: o.ConsumerID, offloadingv1beta1.NodeNameLabel: o.NodeName,
			},
			Annotations: map[string]string{offloadingv1beta1.RemoteEventAnnotation: o.ProviderID + "/" + remote.Namespace + "/" + remote.Name},
		},
		InvolvedObject: corev1.ObjectReference{
			Kind: remote.InvolvedObject.Kind, Namespace: remote.Namespace, Name: strings.Clone(remote.InvolvedObject.Name),
			UID: remote.InvolvedObject.UID, FieldPath: clip(remote.InvolvedObject.FieldPath, longestEventField),
		},
		Reason: clip(remote.Reason, longestEventField), Message: clip(remote.Message, longestEventMessage), Type: eventType(remote.Type),
		Source: corev1.EventSource{
			Component: clip(source.Component, longestEventField) + RemoteSuffix, Host: clip(source.Host, longestEventField),
		},
		FirstTimestamp: remote.FirstTimestamp, LastTimestamp: remote.LastTimestamp, Count: remote.Count,
		EventTime: remote.EventTime, Action: clip(remote.Action, longestEventField),
		ReportingController: clip(remote.ReportingController, longestEventField), ReportingInstance: clip(remote.ReportingInstance, longestEventField),
	}
	if remote.Series != nil {
		series := *remote.Series
		e.Series = &series
	}
	return e
}

// AboutSubject returns the event with the object at home in place of the provider's.
func AboutSubject(e *corev1.Event, subject corev1.ObjectReference) *corev1.Event {
	out := e.DeepCopy()
	subject.FieldPath = e.InvolvedObject.FieldPath
	out.InvolvedObject = subject
	return out
}

// eventName has room for the hash whatever the object's name is, and ends the name where a
// DNS subdomain may.
func eventName(remote *corev1.Event, provider string) string {
	sum := sha256.Sum256([]byte(provider + "/" + string(remote.UID)))
	hash := hex.EncodeToString(sum[:eventHash])
	name := remote.InvolvedObject.Name
	if room := longestObjectName - 1 - len(hash); len(name) > room {
		name = name[:room]
	}
	return strings.TrimRight(name, "-.") + "." + hash
}

func eventType(t string) string {
	if t == corev1.EventTypeWarning {
		return t
	}
	return corev1.EventTypeNormal
}

// clip returns at most limit bytes of s, in memory of their own.
func clip(s string, limit int) string {
	if len(s) <= limit {
		return strings.Clone(s)
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return strings.Clone(s[:limit])
}

// EventState is what changes when an event happens again.
type EventState struct {
	last    int64 // microseconds
	count   int64
	message uint64
}

// StateOf returns the state of an event as Event forges it, or as it is kept at home.
func StateOf(e *corev1.Event) EventState {
	h := fnv.New64a()
	_, _ = h.Write([]byte(e.Message)) // a hash takes everything
	s := EventState{count: int64(e.Count), message: h.Sum64()}
	times := []metav1.MicroTime{e.EventTime, metav1.MicroTime(e.FirstTimestamp), metav1.MicroTime(e.LastTimestamp)}
	if e.Series != nil {
		s.count += int64(e.Series.Count)
		times = append(times, e.Series.LastObservedTime)
	}
	for _, at := range times {
		if !at.IsZero() {
			s.last = max(s.last, at.UnixMicro())
		}
	}
	return s
}

// Last is when the event happened last by the provider's clock, in microseconds since
// 1970; 0 when it does not say.
func (s EventState) Last() int64 { return s.last }

// After tells whether s says something that before does not: the event happened again, or
// its text has changed. An older state, as a lagging API server may show, is not after.
func (s EventState) After(before EventState) bool {
	if c := cmp.Or(cmp.Compare(s.last, before.last), cmp.Compare(s.count, before.count)); c != 0 {
		return c > 0
	}
	return s.message != before.message
}

// EventPatch returns the JSON merge patch that makes an earlier state of an event at home
// the one of want.
func EventPatch(want *corev1.Event) ([]byte, error) {
	return json.Marshal(struct {
		Count         int32               `json:"count"`
		LastTimestamp metav1.Time         `json:"lastTimestamp"`
		Series        *corev1.EventSeries `json:"series"`
		Message       string              `json:"message"`
	}{want.Count, want.LastTimestamp, want.Series, want.Message})
}
