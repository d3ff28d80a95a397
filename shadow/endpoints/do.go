package endpoints

import (
	"context"
	"fmt"
	"maps"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/kube/store"
)

// do carries out an action. It decides nothing itself, except how to react to the API
// server's answers.
func (e *Enforcer) do(ctx context.Context, f facts, a action) error {
	switch a.verb {
	case createSlice, updateSlice:
		return e.write(ctx, f, a)
	case deleteSlice:
		if err := e.deleteSlice(ctx, f.slice); err != nil {
			return err
		}
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

// write creates the EndpointSlice, or updates it. A full update costs the API server less than a patch. It fails with
// a conflict if the EndpointSlice has changed since it was read.
func (e *Enforcer) write(ctx context.Context, f facts, a action) error {
	slices, updates := e.cfg.Kube.DiscoveryV1().EndpointSlices(f.want.Namespace), a.verb == updateSlice
	var made *discoveryv1.EndpointSlice
	var err error
	if updates {
		made, err = slices.Update(ctx, changed(f.want, f.slice), metav1.UpdateOptions{FieldManager: FieldManager})
	} else {
		made, err = slices.Create(ctx, f.want, metav1.CreateOptions{FieldManager: FieldManager})
	}
	switch {
	case err == nil:
		return e.wrote(ctx, f, a, made)
	case apierrors.IsAlreadyExists(err):
		return e.afterCollision(ctx, cache.MetaObjectToName(f.want))
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause), updates && apierrors.IsNotFound(err):
		return nil // the event of the namespace, or of the deletion, is on its way
	case !loop.IsRefusal(err):
		return fmt.Errorf("writing EndpointSlice %s/%s: %w", f.want.Namespace, f.want.Name, err)
	case updates && (apierrors.IsInvalid(err) || f.outlives() && (!apierrors.IsInternalError(err) || !readApplied(f.want).Well)):
		// The existing EndpointSlice can no longer be updated, so it would follow neither the
		// peer's health nor its changes.
		if err := e.deleteSlice(ctx, f.slice); err != nil {
			return err
		}
	}
	return e.refused(ctx, f, err)
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

// wrote remembers how the API server answered a write, and concludes.
func (e *Enforcer) wrote(ctx context.Context, f facts, a action, made *discoveryv1.EndpointSlice) error {
	e.slices.Wrote(made)
	e.memory.refusals.Forget(f.shadow.UID)
	if err := e.memory.sending(f.want, made, f.now); err != nil {
		return err
	}
	if differs(f.want, made) {
		e.cfg.Log.Debug("EndpointSlice is not kept as written", zap.String("key", made.Namespace+"/"+made.Name))
	}
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

// differs reports whether have is to be changed.
func differs(want, have *discoveryv1.EndpointSlice) bool {
	return !apiequality.Semantic.DeepEqual(changed(want, have), have)
}

// changed returns have as it is wanted. It shares what does not change with have. Labels and annotations of
// other clients stay.
func changed(want, have *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
	out, done := *have, readApplied(have)
	out.Labels = store.Merged(want.Labels, maps.Clone(have.Labels), done.Labels)
	out.Annotations = store.Merged(want.Annotations, maps.Clone(have.Annotations), done.Annotations)
	out.Endpoints, out.Ports = want.Endpoints, want.Ports
	return &out
}
