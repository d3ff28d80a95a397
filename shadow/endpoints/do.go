package endpoints

import (
	"context"
	"fmt"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/kube/store"
)

// do carries out an action. It decides nothing itself, except how to react to the API
// server's answers.
func (e *Enforcer) do(ctx context.Context, f facts, a action) error {
	var err error
	switch a.verb {
	case createSlice:
		return e.create(ctx, f, a)
	case updateSlice:
		return e.update(ctx, f, a)
	case deleteSlice:
		err = e.deleteSlice(ctx, f.slice)
	}
	if err != nil {
		return err
	}
	return e.conclude(ctx, f, a)
}

// conclude writes the condition, and requeues the key if the action needs it.
func (e *Enforcer) conclude(ctx context.Context, f facts, a action) error {
	after := a.after
	if a.retry {
		after = f.within(e.memory.refusals.Refused(f.shadow.UID, f.shadow.Generation, f.now))
	}
	if !a.keep {
		if err := e.tell(ctx, f.shadow, a.condition); err != nil {
			return err
		}
	}
	if after > 0 {
		return loop.After(after)
	}
	return nil
}

func (e *Enforcer) create(ctx context.Context, f facts, a action) error {
	made, err := e.cfg.Kube.DiscoveryV1().EndpointSlices(f.want.Namespace).Create(ctx, f.want, metav1.CreateOptions{FieldManager: FieldManager})
	switch {
	case err == nil:
		e.cfg.Log.Debug("EndpointSlice created", zap.String("key", f.want.Namespace+"/"+f.want.Name))
		return e.wrote(ctx, f, a, made)
	case apierrors.IsAlreadyExists(err):
		return e.afterCollision(ctx, loop.Key{Namespace: f.want.Namespace, Name: f.want.Name})
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return nil // the event of the namespace is on its way
	case loop.IsRefusal(err):
		return e.refused(ctx, f, err)
	default:
		return fmt.Errorf("creating the EndpointSlice of ShadowEndpointSlice %s/%s: %w", f.want.Namespace, f.want.Name, err)
	}
}

// afterCollision handles a creation that failed because the name is taken. The
// EndpointSlice may belong to this shadow (its answer or event was lost, or its managed-by
// label was removed), to an earlier shadow, or to another author.
func (e *Enforcer) afterCollision(ctx context.Context, key loop.Key) error {
	f, err := e.live(ctx, key)
	if err != nil {
		return err
	}
	a := decide(f)
	if a.verb == createSlice {
		return loop.After(takenRetry) // the other EndpointSlice was deleted in between
	}
	return e.do(ctx, f, a)
}

func (e *Enforcer) update(ctx context.Context, f facts, a action) error {
	// A full update costs the API server less than a patch. It fails with a conflict if the
	// EndpointSlice has changed since it was read.
	next := changed(f.want, f.slice)
	made, err := e.cfg.Kube.DiscoveryV1().EndpointSlices(next.Namespace).Update(ctx, next, metav1.UpdateOptions{FieldManager: FieldManager})
	switch {
	case err == nil:
		return e.wrote(ctx, f, a, made)
	case apierrors.IsNotFound(err):
		return nil // its deletion is an event
	case apierrors.IsInvalid(err), loop.IsRefusal(err) && f.outlives() && (!apierrors.IsInternalError(err) || !readApplied(f.want).Well):
		// The existing EndpointSlice can no longer be updated, so it would follow neither the
		// peer's health nor its changes.
		if err := e.deleteSlice(ctx, f.slice); err != nil {
			return err
		}
		return e.refused(ctx, f, err)
	case loop.IsRefusal(err):
		return e.refused(ctx, f, err)
	default:
		return fmt.Errorf("updating EndpointSlice %s/%s: %w", f.slice.Namespace, f.slice.Name, err)
	}
}

// wrote remembers how the API server answered a write, and concludes.
func (e *Enforcer) wrote(ctx context.Context, f facts, a action, made *discoveryv1.EndpointSlice) error {
	e.slices.Wrote(made)
	e.memory.refusals.Forget(f.shadow.UID)
	if err := e.memory.sending(f.want, f.now); err != nil {
		return err
	}
	rest, err := remaining(f.want, made)
	if err != nil {
		return err
	}
	if rest != "" {
		e.cfg.Log.Debug("EndpointSlice is not kept as written", zap.String("key", made.Namespace+"/"+made.Name))
	}
	e.memory.answered(made, rest)
	return e.conclude(ctx, f, a)
}

// refused sets the condition for a request that the API server refused, and requeues with
// back-off.
func (e *Enforcer) refused(ctx context.Context, f facts, err error) error {
	return e.conclude(ctx, f, action{retry: true, condition: f.deny(offloadingv1beta1.ReasonEndpointSliceRefused, err.Error())})
}

func (e *Enforcer) deleteSlice(ctx context.Context, slice *discoveryv1.EndpointSlice) error {
	if err := e.slices.Delete(ctx, slice); err != nil {
		return err
	}
	e.cfg.Log.Debug("EndpointSlice deleted", zap.String("key", slice.Namespace+"/"+slice.Name))
	return nil
}

// tell sets the condition Enforced of a shadow, or removes it if want is nil. It writes
// only changes. It records one event per reason and message.
func (e *Enforcer) tell(ctx context.Context, shadow *offloadingv1beta1.ShadowEndpointSlice, want *metav1.Condition) error {
	have := meta.FindStatusCondition(shadow.Status.Conditions, offloadingv1beta1.ShadowEndpointSliceEnforced)
	if want == nil && have == nil || want != nil && have != nil && have.Reason == want.Reason && have.Message == want.Message &&
		have.ObservedGeneration == want.ObservedGeneration {
		return nil
	}
	next := shadow.DeepCopy()
	if want == nil {
		meta.RemoveStatusCondition(&next.Status.Conditions, offloadingv1beta1.ShadowEndpointSliceEnforced)
	} else {
		store.SetCondition(&next.Status.Conditions, *want)
	}
	// The update fails with a conflict if the shadow has changed since. The next sync then
	// decides anew.
	_, err := e.shadows.Note(e.cfg.Liqo.OffloadingV1beta1().ShadowEndpointSlices(next.Namespace).UpdateStatus(ctx, next, metav1.UpdateOptions{FieldManager: FieldManager}))
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("writing the status of ShadowEndpointSlice %s/%s: %w", next.Namespace, next.Name, err)
	}
	if want == nil || have != nil && have.Reason == want.Reason && have.Message == want.Message {
		return nil
	}
	e.cfg.Recorder.Event(shadow, corev1.EventTypeWarning, want.Reason, want.Message)
	e.cfg.Log.Warn("ShadowEndpointSlice not enforced", zap.String("key", shadow.Namespace+"/"+shadow.Name),
		zap.String("reason", want.Reason), zap.String("message", want.Message))
	return nil
}

// changes returns the patch that makes have equal to want, or an empty one. Labels and
// annotations of other clients stay.
func changes(want, have *discoveryv1.EndpointSlice) store.Patch {
	patch, metadata, done := store.Patch{}, store.Patch{}, readApplied(have)
	store.Put(metadata, "labels", store.MapChanges(want.Labels, have.Labels, done.Labels))
	store.Put(metadata, "annotations", store.MapChanges(want.Annotations, have.Annotations, done.Annotations))
	store.Put(patch, "metadata", metadata)
	if !apiequality.Semantic.DeepEqual(want.Endpoints, have.Endpoints) {
		patch["endpoints"] = want.Endpoints
	}
	if !apiequality.Semantic.DeepEqual(want.Ports, have.Ports) {
		patch["ports"] = want.Ports
	}
	return patch
}

// changed returns a copy of have with the patch of changes applied.
func changed(want, have *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
	out, done := have.DeepCopy(), readApplied(have)
	out.Labels, out.Annotations = store.Merged(want.Labels, out.Labels, done.Labels), store.Merged(want.Annotations, out.Annotations, done.Annotations)
	out.Endpoints, out.Ports = want.Endpoints, want.Ports
	return out
}

// replaces reports whether have must be deleted and created again, because an immutable
// field differs.
func replaces(want, have *discoveryv1.EndpointSlice) bool {
	return want.AddressType != have.AddressType
}
