package dashboard

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
)

// shownEvents is how many events the page lists, the newest.
const shownEvents = 100

// Event is an event that concerns liqod.
type Event struct {
	Time    time.Time `json:"time"`
	Warning bool      `json:"warning"`
	Object  Text      `json:"object"`
	Reason  Text      `json:"reason"`
	Message Text      `json:"message"`
	Count   int32     `json:"count"`
	// From is the provider that the event comes from; empty if it is of this cluster.
	From Text `json:"from"`
}

// events are the newest events, the newest first.
func events(p *picture) []Event {
	out := []Event{}
	for i := range p.events {
		e := &p.events[i]
		object := e.InvolvedObject.Kind + " " + e.InvolvedObject.Name
		if e.InvolvedObject.Namespace != "" {
			object = e.InvolvedObject.Kind + " " + e.InvolvedObject.Namespace + "/" + e.InvolvedObject.Name
		}
		out = append(out, Event{
			Time: lastSeen(e), Warning: e.Type == corev1.EventTypeWarning, Object: Text(object), Reason: Text(e.Reason), Message: Text(e.Message),
			Count: occurrences(e), From: Text(e.Labels[offloadingv1beta1.OriginLabel]),
		})
	}
	slices.SortStableFunc(out, func(a, b Event) int { return b.Time.Compare(a.Time) })
	return out[:min(len(out), shownEvents)]
}

func lastSeen(e *corev1.Event) time.Time {
	switch {
	case e.Series != nil && !e.Series.LastObservedTime.IsZero():
		return e.Series.LastObservedTime.UTC()
	case !e.LastTimestamp.IsZero():
		return e.LastTimestamp.UTC()
	case !e.EventTime.IsZero():
		return e.EventTime.UTC()
	}
	return e.CreationTimestamp.UTC()
}

func occurrences(e *corev1.Event) int32 {
	if e.Series != nil {
		return max(e.Series.Count, 1)
	}
	return max(e.Count, 1)
}
