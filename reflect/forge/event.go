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

// RemoteSuffix is appended to the component of an event that comes from a provider.
const RemoteSuffix = " (remote)"

// Limits in bytes. The provider is a different organisation, and its events are stored in
// this cluster. Messages of kubelets can be longer than the 1024 bytes of events.k8s.io.
const (
	longestEventMessage = 4096
	longestEventField   = 256
	longestObjectName   = 253
	eventHash           = 8 // bytes of the hash at the end of the event's name
)

// CopiesEvent reports whether an event in the provider may be about a reflected object. It is false
// for events that the provider copied from another cluster, which are not copied further.
func CopiesEvent(remote *corev1.Event) bool {
	about := &remote.InvolvedObject
	if _, copied := remote.Labels[offloadingv1beta1.OriginLabel]; copied || about.Name == "" || len(about.Name) > longestObjectName ||
		(about.Namespace != "" && about.Namespace != remote.Namespace) {
		return false
	}
	// An empty apiVersion means the core group, which has only v1.
	group, _, _ := strings.Cut(cmp.Or(about.APIVersion, "v1"), "/")
	want, known := subjects[about.Kind]
	return known && want == group
}

// subjects has the API group of each kind of object whose events are copied from the provider; for
// the core group it has the version. Events about ShadowPods and ShadowEndpointSlices are copied as
// events about the object that they were created for. docs/reflection.md ("Events") lists the kinds
// for users.
var subjects = map[string]string{
	"Pod": "v1", "Service": "v1", "ConfigMap": "v1", "Secret": "v1", "PersistentVolumeClaim": "v1",
	"Ingress": "networking.k8s.io", "EndpointSlice": "discovery.k8s.io",
	"ShadowPod": offloadingv1beta1.GroupName, "ShadowEndpointSlice": offloadingv1beta1.GroupName,
}

// EventOptions are the parameters of copying an event from a provider.
type EventOptions struct {
	// ConsumerID and ProviderID are the ids of the two clusters.
	ConsumerID, ProviderID string
	// NodeName is the virtual node whose vkubelet writes the event.
	NodeName string
	// Namespace is the local namespace whose twin contains the event.
	Namespace string
}

// Event returns the local copy of an event in the provider. Its involvedObject still
// refers to the object in the provider until AboutSubject replaces it. Its name is
// derived from the provider's id and the event's UID, so that a restarted vkubelet finds
// the copy again.
func Event(remote *corev1.Event, o EventOptions) *corev1.Event {
	source := remote.Source
	source.Component = cmp.Or(source.Component, remote.ReportingController) // events.k8s.io has no source
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

// AboutSubject returns a copy of the event whose involvedObject is the local object.
func AboutSubject(e *corev1.Event, subject corev1.ObjectReference) *corev1.Event {
	out := e.DeepCopy()
	subject.FieldPath = e.InvolvedObject.FieldPath
	out.InvolvedObject = subject
	return out
}

// eventName truncates the object's name so that the hash always fits, and so that the
// result is a valid DNS subdomain.
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

// clip returns at most limit bytes of s, in a new string that does not keep s in memory.
func clip(s string, limit int) string {
	limit = min(limit, len(s))
	for limit > 0 && limit < len(s) && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return strings.Clone(s[:limit])
}

// EventState has the fields that change when an event occurs again.
type EventState struct {
	last    int64 // microseconds
	count   int64
	message uint64
}

// StateOf returns the state of an event, which is either a result of Event or a copy
// stored in this cluster.
func StateOf(e *corev1.Event) EventState {
	h := fnv.New64a()
	_, _ = h.Write([]byte(e.Message)) // hash.Hash.Write returns no error
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

// Last is the time of the latest occurrence by the provider's clock, in microseconds
// since 1970; 0 if the event has no time.
func (s EventState) Last() int64 { return s.last }

// After reports whether s is newer than before: the event occurred again, or its message
// has changed. An older state, which a lagging API server can return, is not newer.
func (s EventState) After(before EventState) bool {
	if c := cmp.Or(cmp.Compare(s.last, before.last), cmp.Compare(s.count, before.count)); c != 0 {
		return c > 0
	}
	return s.message != before.message
}

// EventPatch returns the JSON merge patch (RFC 7396) that updates the stored copy of an
// event to want.
func EventPatch(want *corev1.Event) ([]byte, error) {
	return json.Marshal(map[string]any{"count": want.Count, "lastTimestamp": want.LastTimestamp, "series": want.Series, "message": want.Message})
}
