package endpoints

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/apply"
)

// Reasons of the condition Enforced that the API package does not name.
const (
	// ReasonNotTwinNamespace says that the ShadowEndpointSlice stands in a namespace that
	// liqod did not make for a consumer.
	ReasonNotTwinNamespace = "NotTwinNamespace"
	// ReasonForeignOrigin says that its origin label names another cluster than the one that
	// the twin namespace was made for.
	ReasonForeignOrigin = "ForeignOrigin"
)

// freshFor is the time within which the event of a new twin namespace arrives.
const freshFor = 10 * time.Second

// facts are all that a decision rests on. Nothing in them is written to.
type facts struct {
	shadow    *offloadingv1beta1.ShadowEndpointSlice // nil: there is none
	slice     *discoveryv1.EndpointSlice             // the one of that name; nil: there is none
	namespace *corev1.Namespace                      // nil: there is none
	want      *discoveryv1.EndpointSlice             // nil if nothing of the shadow is accepted, or of no interest
	refused   string                                 // what want leaves out, and why
	// again is when want may be another without an event: an unknown health is waited for.
	again time.Duration
	// kept says that the API server has been sent want and made of it what slice is.
	kept bool
	// notBefore is when a request that was refused may be tried again, and undone when want,
	// which was written and is not there any more, may be written again.
	notBefore, undone, now time.Time
	// live says that shadow and slice were read from the API server, not from a cache.
	live bool
	// left says that there is no shadow because the API server has shown the deletion of the
	// one that slice was made for.
	left bool
}

type verb string

const (
	nothing     verb = "nothing"
	createSlice verb = "create" // facts.want
	updateSlice verb = "update" // towards facts.want
	deleteSlice verb = "delete"
)

// action is one decision: at most one write of the EndpointSlice and one of the condition.
type action struct {
	verb verb
	// confirm asks for a new decision on live facts before anything is done.
	confirm bool
	// after is when to look again; zero: when something changes.
	after time.Duration
	// retry asks for another try, later each time.
	retry bool
	// keep leaves the condition of the shadow as it stands.
	keep bool
	// condition is Enforced as it has to be; nil: there is nothing to say.
	condition *metav1.Condition
}

// decide says what is to be done. It is pure.
func decide(f facts) action {
	switch {
	case f.shadow == nil || f.shadow.DeletionTimestamp != nil:
		return f.withdraw(nil)
	case f.slice != nil && !owns(f.shadow, f.slice) && ofAnyShadow(f.slice):
		return f.withdraw(nil) // the predecessor's: its end is an event
	case f.slice != nil && !owns(f.shadow, f.slice):
		return f.occupied()
	}
	if a, bad := f.misplaced(); bad {
		return a
	}
	switch {
	case f.want == nil:
		return f.withdraw(f.deny(offloadingv1beta1.ReasonEndpointsRefused, f.refused))
	case f.slice == nil:
		return f.absent()
	case f.slice.DeletionTimestamp != nil:
		return action{verb: nothing, keep: true}
	case replaces(f.want, f.slice):
		return action{verb: deleteSlice, keep: true}
	case len(changes(f.want, f.slice)) > 0 && !f.kept:
		if wait := max(f.notBefore.Sub(f.now), f.undone.Sub(f.now)); wait > 0 && f.outlives() {
			return action{verb: deleteSlice, keep: true, after: wait}
		}
		return f.try(updateSlice)
	default:
		return f.accepted(nothing)
	}
}

// withdraw takes away an EndpointSlice that nothing asks for, or nothing that is accepted.
func (f facts) withdraw(why *metav1.Condition) action {
	a := action{verb: nothing, condition: why, keep: why == nil}
	if f.namespace != nil && f.namespace.DeletionTimestamp != nil {
		return action{verb: nothing, keep: true} // it goes with its namespace, and with our rights there
	}
	if f.slice != nil && f.slice.DeletionTimestamp == nil && ofAnyShadow(f.slice) {
		a.verb, a.confirm = deleteSlice, !f.live && !f.left
	}
	return a
}

// occupied is about a name that somebody else's EndpointSlice has: it is left alone.
func (f facts) occupied() action {
	if f.now.Before(f.notBefore) {
		return action{verb: nothing, keep: true, after: f.notBefore.Sub(f.now)}
	}
	return action{verb: nothing, retry: true, condition: f.deny(offloadingv1beta1.ReasonEndpointSliceCollision, fmt.Sprintf(
		"an EndpointSlice %s/%s exists that was not made for this ShadowEndpointSlice; it is left alone, and ours is created when it is gone",
		f.slice.Namespace, f.slice.Name))}
}

// absent is about an EndpointSlice that is wanted and not there.
func (f facts) absent() action {
	if f.namespace.DeletionTimestamp != nil {
		return action{verb: nothing, keep: true} // nothing can be created there, and soon nothing asks for it
	}
	return f.try(createSlice)
}

// try does something that the API server may have refused before, or others undone, when it
// is time.
func (f facts) try(v verb) action {
	if f.now.Before(f.notBefore) {
		return action{verb: nothing, keep: true, after: f.within(f.notBefore.Sub(f.now))}
	}
	a := f.accepted(v)
	if wait := f.undone.Sub(f.now); wait > 0 {
		a.verb, a.after = nothing, f.within(wait)
	}
	return a
}

// within returns when to look again if nothing else is to be done for a time: the health of
// the consumer does not wait for that.
func (f facts) within(wait time.Duration) time.Duration {
	if f.again > 0 {
		return min(wait, f.again)
	}
	return wait
}

// outlives reports whether endpoints count as ready of a consumer that does not count as
// well: what cannot be turned off is taken away. Of pods that run here some may be wanted
// so: they do not end with the consumer.
func (f facts) outlives() bool {
	return !readApplied(f.want).Well && slices.ContainsFunc(f.slice.Endpoints, func(e discoveryv1.Endpoint) bool {
		return isReady(e) && !slices.ContainsFunc(f.want.Endpoints, func(w discoveryv1.Endpoint) bool {
			return isReady(w) && slices.Equal(w.Addresses, e.Addresses)
		})
	})
}

func isReady(e discoveryv1.Endpoint) bool { return e.Conditions.Ready == nil || *e.Conditions.Ready }

// accepted is about an EndpointSlice that is, or can be, as wanted.
func (f facts) accepted(v verb) action {
	a := action{verb: v, after: f.again}
	if f.refused != "" {
		a.condition = f.deny(offloadingv1beta1.ReasonEndpointsRefused, f.refused)
	}
	return a
}

// misplaced reports a shadow that nothing may be made for where it stands. Its author
// writes its labels; nobody but the provider writes the namespace's.
func (f facts) misplaced() (action, bool) {
	ns := f.namespace
	if age := f.now.Sub(f.shadow.CreationTimestamp.Time); ns == nil && age < freshFor {
		return action{verb: nothing, keep: true, after: freshFor - max(age, 0)}, true
	}
	if ns == nil || ns.Labels[corev1beta1.RemoteClusterIDLabel] == "" || offloadingv1beta1.TwinOf(ns) == "" {
		return f.withdraw(f.deny(ReasonNotTwinNamespace, fmt.Sprintf(
			"namespace %s is not the twin of a consumer's namespace; ShadowEndpointSlices are enforced only in namespaces made by a NamespaceMap",
			f.shadow.Namespace))), true
	}
	want, have := ns.Labels[corev1beta1.RemoteClusterIDLabel], f.shadow.Labels[offloadingv1beta1.OriginLabel]
	if have != want {
		return f.withdraw(f.deny(ReasonForeignOrigin, fmt.Sprintf("label %s is %q; namespace %s belongs to cluster %q, and only that is accepted",
			offloadingv1beta1.OriginLabel, have, ns.Name, want))), true
	}
	return action{}, false
}

// deny is the condition that says why the shadow is not enforced, or not wholly. What the
// API server says can be as long as what a peer wrote.
func (f facts) deny(reason, message string) *metav1.Condition {
	return &metav1.Condition{
		Type: offloadingv1beta1.ShadowEndpointSliceEnforced, Status: metav1.ConditionFalse, Reason: reason, Message: apply.ClipMessage(message),
		ObservedGeneration: f.shadow.Generation, LastTransitionTime: metav1.NewTime(f.now),
	}
}

// owns reports whether slice was made for shadow: for this very one, not for one that had
// its name. A record that somebody took away is put back.
func owns(shadow *offloadingv1beta1.ShadowEndpointSlice, slice *discoveryv1.EndpointSlice) bool {
	of := madeFor(slice)
	return ofAnyShadow(slice) && (of == "" || of == shadow.UID)
}

// madeFor is the UID of the shadow that slice, which may be nil, was made for; empty: that
// is not known.
func madeFor(slice *discoveryv1.EndpointSlice) types.UID {
	return readApplied(slice).Shadow
}

// ofAnyShadow reports whether slice was made for a shadow: it bears our mark or our record,
// and nothing else controls it.
func ofAnyShadow(slice *discoveryv1.EndpointSlice) bool {
	return metav1.GetControllerOf(slice) == nil &&
		(slice.Labels[discoveryv1.LabelManagedBy] == offloadingv1beta1.ManagedByShadowEndpointSlice || madeFor(slice) != "")
}
