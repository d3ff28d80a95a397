package dashboard

import (
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/roles/cmd/report"
)

// shownEvents is how many events the page lists, the newest.
const shownEvents = 100

// Event is an event that concerns liqod.
type Event struct {
	Time    time.Time `json:"time"`
	Warning bool      `json:"warning"`
	Object  string    `json:"object"`
	Reason  string    `json:"reason"`
	Message string    `json:"message"`
	Count   int32     `json:"count"`
	// Others is how many further objects have such an event.
	Others int `json:"others"`
	// From is the provider that the event comes from; empty if it is of this cluster.
	From string `json:"from"`
}

// alike is what equal events have in common. Their objects have one kind and namespace, and other names.
type alike struct{ kind, namespace, level, reason, message, from string }

// amounts are the numbers in a message, such as of milliseconds.
var amounts = regexp.MustCompile(`\d+`)

func likeness(e *corev1.Event) alike {
	about := e.InvolvedObject
	message := e.Message
	if about.Name != "" {
		message = strings.ReplaceAll(message, about.Name, "")
	}
	if e.Type != corev1.EventTypeWarning { // the numbers of warnings are codes
		message = amounts.ReplaceAllString(message, "")
	}
	return alike{about.Kind, about.Namespace, e.Type, e.Reason, message, e.Labels[offloadingv1beta1.OriginLabel]}
}

// events are the newest events, the newest first. Equal events are one, with the object and the words of
// the newest.
func events(p *picture) []Event {
	slices.SortStableFunc(p.events, func(a, b corev1.Event) int { return report.EventTime(&b).Compare(report.EventTime(&a)) })
	out, place, names := []Event{}, map[alike]int{}, map[alike]map[string]bool{}
	for i := range p.events {
		e := &p.events[i]
		key := likeness(e)
		if names[key] == nil {
			names[key], place[key] = map[string]bool{}, len(out)
			out = append(out, shownEvent(e))
		}
		names[key][e.InvolvedObject.Name] = true
		same := &out[place[key]]
		same.Count, same.Others = same.Count+occurrences(e), len(names[key])-1
	}
	return out[:min(len(out), shownEvents)]
}

// shownEvent is an event without its occurrences.
func shownEvent(e *corev1.Event) Event {
	object := e.InvolvedObject.Kind + " " + strings.TrimPrefix(e.InvolvedObject.Namespace+"/"+e.InvolvedObject.Name, "/")
	return Event{Time: report.EventTime(e).UTC(), Warning: e.Type == corev1.EventTypeWarning, Object: object, Reason: e.Reason, Message: e.Message,
		From: e.Labels[offloadingv1beta1.OriginLabel]}
}

func occurrences(e *corev1.Event) int32 {
	if e.Series != nil {
		return max(e.Series.Count, 1)
	}
	return max(e.Count, 1)
}
