package endpoints

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/shadow/rules"
)

func (e *Enforcer) sync(ctx context.Context, key loop.Key) error {
	if key == podsKey(key.Name) {
		e.podsChanged(key.Name)
		return nil
	}
	f, err := e.cached(key)
	if err != nil {
		return err
	}
	if err := e.confirmAbsences(ctx, f); err != nil {
		return err
	}
	a := decide(f)
	if a.confirm {
		if f, err = e.live(ctx, key); err != nil {
			return err
		}
		a = decide(f)
	}
	return e.do(ctx, f, a)
}

// confirmAbsences confirms that the API server has neither the namespace nor the ForeignCluster of
// its peer, if the caches lack one of them: without it the EndpointSlice of a shadow would lose
// its endpoints.
func (e *Enforcer) confirmAbsences(ctx context.Context, f facts) error {
	if f.shadow == nil || f.slice == nil {
		return nil // there is nothing to lose
	}
	if f.namespace == nil {
		return e.namespaces.ConfirmGone(ctx, loop.Key{Name: f.shadow.Namespace})
	}
	peer := loop.Key{Name: peerOf(f.namespace)}
	if peer.Name == "" || e.clusters.Cached(peer) != nil {
		return nil
	}
	return e.clusters.ConfirmNone(ctx, peer, func(fc *corev1beta1.ForeignCluster) bool { return fc.DeletionTimestamp == nil })
}

// freshFor is how long a sync waits for the namespace of a new ShadowEndpointSlice to
// appear in the cache.
const freshFor = 10 * time.Second

// facts are the inputs of a decision. They are read-only.
type facts struct {
	shadow    *offloadingv1beta1.ShadowEndpointSlice // nil: there is none
	slice     *discoveryv1.EndpointSlice             // the EndpointSlice of that name; nil: there is none
	namespace *corev1.Namespace                      // nil: there is none
	want      *discoveryv1.EndpointSlice             // nil if nothing of the shadow is accepted, or if not needed
	refused   string                                 // the endpoints that want leaves out, and the reasons
	// again is when want may change without an event, because the grace for an unknown
	// health ends; zero: it does not.
	again time.Duration
	// kept: the API server has already accepted want, and turned it into slice.
	kept bool
	// notBefore is when a refused request may be tried again. undone is when want may be
	// written again after another client reverted it.
	notBefore, undone, now time.Time
	// live: shadow and slice were read from the API server, not from a cache.
	live bool
	// left: a watch event has shown the deletion of the shadow that slice was made for.
	left bool
}

// cached gathers the facts about key from the caches, and from writes of this process that
// the caches do not show yet.
func (e *Enforcer) cached(key loop.Key) (facts, error) {
	shadow := e.shadows.Cached(key)
	if shadow != nil {
		shadow = e.shadows.Latest(key, shadow)
	} else {
		e.memory.forgetSent(key) // the shadow may have been deleted during the write
	}
	slice := e.cachedSlice(key)
	f, err := e.gather(key, shadow, slice)
	f.left = shadow == nil && !e.memory.left.Begun(madeFor(slice)).IsZero()
	return f, err
}

// cachedSlice returns the EndpointSlice of that name. It returns nil if there is none or if
// this process has deleted it.
func (e *Enforcer) cachedSlice(key loop.Key) *discoveryv1.EndpointSlice {
	slice := e.slices.Get(key)
	if slice == nil || e.slices.WasDeleted(slice.UID) {
		return nil
	}
	return slice
}

// live gathers the facts about key with two requests to the API server.
func (e *Enforcer) live(ctx context.Context, key loop.Key) (facts, error) {
	shadow, err := e.shadows.Live(ctx, key)
	if err != nil {
		return facts{}, err
	}
	slice, err := e.slices.Live(ctx, key)
	if err != nil {
		return facts{}, err
	}
	f, err := e.gather(key, shadow, slice)
	f.live = true
	return f, err
}

func (e *Enforcer) gather(key loop.Key, shadow *offloadingv1beta1.ShadowEndpointSlice, slice *discoveryv1.EndpointSlice) (facts, error) {
	f := facts{shadow: shadow, slice: slice, namespace: e.namespaces.Cached(loop.Key{Name: key.Namespace}), now: e.cfg.Clock.Now()}
	if shadow == nil || f.namespace == nil {
		return f, nil
	}
	f.notBefore = e.memory.refusals.NotBefore(shadow.UID, shadow.Generation)
	return f, e.forge(&f)
}

// forge adds the wanted EndpointSlice to the facts.
func (e *Enforcer) forge(f *facts) error {
	r, conditions := e.rules(f.namespace)
	conditions = e.memory.sighted(r.peer, conditions, f.now)
	ready, again := well(conditions, e.lastWell(r.peer, f.slice), e.cfg.Grace, f.now)
	f.again = again
	if again == 0 {
		e.memory.judged(r.peer, ready)
	}
	r.standby = e.standby(f.shadow, r)
	if f.want, f.refused = forge(f.shadow, r, ready); f.want == nil {
		return nil
	}
	var err error
	if f.undone, err = e.memory.due(f.want, f.now); err != nil || f.slice == nil {
		return err
	}
	f.kept, err = e.memory.kept(f.want, f.slice)
	return err
}

type verb string

const (
	nothing     verb = "nothing"
	createSlice verb = "create" // facts.want
	updateSlice verb = "update" // change the slice to match facts.want
	deleteSlice verb = "delete"
)

// action is one decision. It leads to at most one write of the EndpointSlice and one of the
// condition.
type action struct {
	verb verb
	// confirm: decide again on live facts before the action is carried out.
	confirm bool
	// after is the delay before the key is requeued; zero: only an event requeues it.
	after time.Duration
	// retry: requeue with back-off.
	retry bool
	// keep: do not change the shadow's condition.
	keep bool
	// condition is the wanted condition Enforced; nil: none.
	condition *metav1.Condition
}

// decide returns the next action. It is pure.
func decide(f facts) action {
	switch {
	case f.shadow == nil || f.shadow.DeletionTimestamp != nil:
		return f.withdraw(nil)
	case f.slice != nil && !owns(f.shadow, f.slice) && ofAnyShadow(f.slice):
		return f.withdraw(nil) // the EndpointSlice of an earlier shadow: its deletion is an event
	case f.slice != nil && !owns(f.shadow, f.slice):
		return f.occupied()
	}
	if a, bad := f.misplaced(); bad {
		return a
	}
	switch {
	case f.want == nil:
		return f.withdraw(f.deny(offloadingv1beta1.ReasonEndpointsRefused, f.refused))
	case f.slice == nil && f.namespace.DeletionTimestamp == nil:
		return f.try(createSlice)
	case f.slice == nil: // nothing can be created there, and the shadow is deleted soon
		return action{verb: nothing, keep: true}
	case f.slice.DeletionTimestamp != nil:
		return action{verb: nothing, keep: true}
	case f.want.AddressType != f.slice.AddressType: // it is immutable
		return action{verb: deleteSlice, keep: true}
	case differs(f.want, f.slice) && !f.kept:
		if wait := max(f.notBefore.Sub(f.now), f.undone.Sub(f.now)); wait > 0 && !readApplied(f.want).Well && f.outlives() {
			return action{verb: deleteSlice, keep: true, after: wait}
		}
		return f.try(updateSlice)
	default:
		return f.accepted(nothing)
	}
}

// withdraw deletes an EndpointSlice without a shadow, or with a shadow nothing of which is
// accepted. why is the shadow's condition, if any.
func (f facts) withdraw(why *metav1.Condition) action {
	a := action{verb: nothing, condition: why, keep: why == nil}
	if f.namespace != nil && f.namespace.DeletionTimestamp != nil {
		return action{verb: nothing, keep: true} // deleted with the namespace; liqod may lack the right by then
	}
	if f.slice != nil && f.slice.DeletionTimestamp == nil && ofAnyShadow(f.slice) {
		a.verb, a.confirm = deleteSlice, !f.live && !f.left
	}
	return a
}

// occupied handles a name that another author's EndpointSlice has. That EndpointSlice is
// not touched.
func (f facts) occupied() action {
	if f.now.Before(f.notBefore) {
		return action{verb: nothing, keep: true, after: f.notBefore.Sub(f.now)}
	}
	return action{verb: nothing, retry: true, condition: f.deny(offloadingv1beta1.ReasonEndpointSliceCollision, fmt.Sprintf(
		"an EndpointSlice %s/%s exists that was not made for this ShadowEndpointSlice; it is not changed, and the own one is created when it is gone",
		f.slice.Namespace, f.slice.Name))}
}

// try returns the action v. If the API server refused the same request before, or another
// client reverted it, the action waits for the end of the back-off.
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

// within shortens a wait so that the end of the grace for the consumer's health is not
// missed.
func (f facts) within(wait time.Duration) time.Duration {
	if f.again > 0 {
		return min(wait, f.again)
	}
	return wait
}

// outlives reports whether slice has other ports than wanted, or ready endpoints that must not
// be ready: the consumer has withdrawn them or counts as unwell. If such a slice cannot be
// updated, it is deleted. Endpoints of pods in this cluster may stay ready while the consumer is
// unwell, as those pods do not depend on it.
func (f facts) outlives() bool {
	return !apiequality.Semantic.DeepEqual(f.want.Ports, f.slice.Ports) || slices.ContainsFunc(f.slice.Endpoints, func(e discoveryv1.Endpoint) bool {
		return isReady(e) && !slices.ContainsFunc(f.want.Endpoints, func(w discoveryv1.Endpoint) bool {
			return isReady(w) && slices.Equal(w.Addresses, e.Addresses)
		})
	})
}

func isReady(e discoveryv1.Endpoint) bool { return e.Conditions.Ready == nil || *e.Conditions.Ready }

// accepted returns action v, with a condition if want leaves out endpoints.
func (f facts) accepted(v verb) action {
	a := action{verb: v, after: f.again}
	if f.refused != "" {
		a.condition = f.deny(offloadingv1beta1.ReasonEndpointsRefused, f.refused)
	}
	return a
}

// misplaced returns the action for a shadow in a namespace where liqod may not create its
// EndpointSlice.
func (f facts) misplaced() (action, bool) {
	if age := f.now.Sub(f.shadow.CreationTimestamp.Time); f.namespace == nil && age < freshFor {
		return action{verb: nothing, keep: true, after: freshFor - max(age, 0)}, true
	}
	if reason, message := rules.Misplaced(f.namespace, f.shadow, "ShadowEndpointSlices"); reason != "" {
		return f.withdraw(f.deny(reason, message)), true
	}
	return action{}, false
}

// deny returns the condition Enforced=False. The message is clipped, as it may quote what
// the peer wrote.
func (f facts) deny(reason, message string) *metav1.Condition {
	return &metav1.Condition{
		Type: offloadingv1beta1.ShadowEndpointSliceEnforced, Status: metav1.ConditionFalse, Reason: reason, Message: store.ClipMessage(message),
		ObservedGeneration: f.shadow.Generation, LastTransitionTime: metav1.NewTime(f.now),
	}
}

// owns reports whether slice was made for shadow, and not for an earlier shadow of that
// name. A slice whose record was removed counts as owned, and gets its record back.
func owns(shadow *offloadingv1beta1.ShadowEndpointSlice, slice *discoveryv1.EndpointSlice) bool {
	of := madeFor(slice)
	return ofAnyShadow(slice) && (of == "" || of == shadow.UID)
}

// madeFor returns the UID of the shadow that slice was made for; empty: unknown. slice may
// be nil.
func madeFor(slice *discoveryv1.EndpointSlice) types.UID {
	return readApplied(slice).Shadow
}

// ofAnyShadow reports whether slice was made for a shadow: it has liqod's managed-by label
// or record, and no other controller owns it.
func ofAnyShadow(slice *discoveryv1.EndpointSlice) bool {
	return metav1.GetControllerOf(slice) == nil &&
		(slice.Labels[discoveryv1.LabelManagedBy] == offloadingv1beta1.ManagedByShadowEndpointSlice || madeFor(slice) != "")
}
