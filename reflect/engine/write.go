package engine

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/reasons"
	"github.com/liqod/liqod/reflect/forge"
)

const (
	// FieldManager identifies the writes of the reflection in managedFields.
	FieldManager = "liqod-vkubelet"

	// NamespaceRetry is the poll interval for a namespace that is being deleted.
	NamespaceRetry = 2 * time.Second
	// TakenRetry is the poll interval for a name that a foreign object occupies. Foreign
	// objects are not watched.
	TakenRetry = 10 * time.Second
	// forgotten is longer than kube/store keeps records.
	forgotten = 11 * time.Second
)

func (r *kindLoop[L, R]) writer(s Scope) Writer[R] {
	return r.Writer(r.engine.cfg.Remote, s.RemoteNamespace)
}

func (r *kindLoop[L, R]) create(ctx context.Context, v view[L, R], w wish[R]) error {
	c, err := changeOf(anyone, w.want, nil)
	if err != nil {
		return err
	}
	last, now := r.lastSent(v, create), r.engine.cfg.Clock.Now()
	if wait, _ := last.due(c, "", now); wait > 0 {
		return loop.After(wait)
	}
	if r.blocked(v) {
		// A get costs the provider less than a create that fails.
		if done, err := r.taken(ctx, v, w.want.GetName()); done {
			return err
		}
	}
	written, err := r.write(v, w, func(want R) (R, error) {
		written, err := r.writer(v.scope).Create(ctx, want, metav1.CreateOptions{FieldManager: FieldManager})
		if err == nil {
			r.remember(v, create, last.again(c, now))
		}
		return written, err
	})
	switch {
	case err == nil:
		r.made(v, w, c, written)
	case apierrors.IsAlreadyExists(err):
		if done, err := r.taken(ctx, v, w.want.GetName()); done {
			return err
		}
		return loop.After(store.CatchUp)
	}
	return err
}

// write calls send with the object of a wish. While the provider refuses parts that the object can do
// without, write calls send with the rest, and returns the first refusal with the object that was
// written. With any other error it returns no object. It records the object, and the event about it.
func (r *kindLoop[L, R]) write(v view[L, R], w wish[R], send func(R) (R, error)) (R, error) {
	var none R
	var refusal error
	for want := w.want; ; {
		written, err := v.stores.remote.Note(send(want))
		switch {
		case err == nil && refusal != nil:
			return written, r.refused(v, refusesPart, refusal)
		case err == nil:
			r.tellWritten(v, w, written)
			return written, nil
		case !loop.IsRefusal(err):
			return none, r.refused(v, refuses, err)
		}
		refusal = cmp.Or(refusal, err)
		var rest R
		if r.Rest != nil {
			rest = r.Rest(want, refusedFields(err))
		}
		if rest == none {
			return none, r.refused(v, refuses, refusal)
		}
		want = rest
	}
}

// refusedFields returns the fields that are the causes of a refusal.
func refusedFields(err error) (fields []string) {
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Details != nil {
		for _, cause := range status.Status().Details.Causes {
			fields = append(fields, cause.Field)
		}
	}
	return fields
}

// tellWritten records the event of a wish after its object was written. Without one, it
// records which annotations of the object the provider has not accepted.
func (r *kindLoop[L, R]) tellWritten(v view[L, R], w wish[R], written R) {
	reason, message := w.reason, w.message
	if keys := forge.LeftOut(w.want, written); message == "" && len(keys) > 0 {
		reason, message = reasons.AnnotationsLeftOut, forge.LeftOutMessage(v.scope.DestinationClusterID, strings.Join(keys, ", "))
	}
	r.tell(v, reason, message, false)
}

// taken reads the object that occupies the name. If it is a reflected one, the watch will
// report it. If it is foreign, an event says so. done is false if there is no object any
// more.
func (r *kindLoop[L, R]) taken(ctx context.Context, v view[L, R], name string) (done bool, err error) {
	have, err := r.writer(v.scope).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return true, fmt.Errorf("looking at the object that has the name: %w", err)
	case r.engine.cfg.Reflected(have):
		r.tell(v, "", "", false)
		return true, loop.After(store.CatchUp)
	}
	r.tell(v, offloadingv1beta1.ReasonFailedReflection, fmt.Sprintf("%s %s/%s of cluster %s was not made by liqod for this object, and is not changed; waiting until it is gone",
		r.Resource, v.scope.RemoteNamespace, name, v.scope.DestinationClusterID), true)
	return true, loop.After(TakenRetry)
}

func (r *kindLoop[L, R]) update(ctx context.Context, v view[L, R], w wish[R], merged R) error {
	patch, err := r.patch(v.have, merged)
	if err != nil {
		return err
	}
	c, err := changeOf(v.have.GetUID(), w.want, patch)
	if err != nil {
		return err
	}
	last := r.lastSent(v, update)
	wait, ok, err := r.repair(v, merged, last, c)
	switch {
	case err != nil:
		return err
	case !ok:
		r.tellWritten(v, w, v.have)
		return nil
	case wait > 0:
		return loop.After(wait)
	}
	written, err := r.write(v, w, func(want R) (R, error) {
		if want == w.want {
			return r.send(ctx, v, merged, patch)
		}
		rest := r.Merge(v.have, want)
		patch, err := r.patch(v.have, rest)
		if err != nil {
			return rest, err
		}
		return r.send(ctx, v, rest, patch)
	})
	var none R
	switch {
	case err == nil:
		next := last.again(c, r.engine.cfg.Clock.Now())
		next.answer = written.GetResourceVersion()
		r.remember(v, update, next)
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return loop.After(store.CatchUp) // the object has changed or is gone
	// An internal error is mostly an admission webhook that does not answer. It refuses nothing.
	case written == none && r.Misleads != nil && loop.IsRefusal(err) && !apierrors.IsInternalError(err) && r.Misleads(v.have, merged):
		return r.remake(ctx, v, w)
	}
	return err
}

// patch returns the merge patch from have to merged. It is nil if they are equal or the
// whole object is sent.
func (r *kindLoop[L, R]) patch(have, merged R) ([]byte, error) {
	if r.Whole {
		return nil, nil
	}
	return MergePatch(have, merged)
}

// send writes merged to the provider. A whole object is sent with its resource version,
// so that concurrent changes conflict; otherwise a patch is sent.
func (r *kindLoop[L, R]) send(ctx context.Context, v view[L, R], merged R, patch []byte) (R, error) {
	switch {
	case r.Whole:
		return r.writer(v.scope).Update(ctx, merged, metav1.UpdateOptions{FieldManager: FieldManager})
	case patch == nil:
		return v.have, nil
	default:
		return r.writer(v.scope).Patch(ctx, merged.GetName(), types.MergePatchType, patch, metav1.PatchOptions{FieldManager: FieldManager})
	}
}

// What events about refusals say.
const (
	refuses     = "refuses it"
	refusesPart = "refuses a part of it, and has the rest"
)

// IsRefusal reports whether the provider's API server rejects the content of a write.
func IsRefusal(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsRequestEntityTooLargeError(err)
}

// refused records an event if the provider rejects the object or a part of it, and returns the
// error for a retry with back-off.
func (r *kindLoop[L, R]) refused(v view[L, R], what string, err error) error {
	switch {
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return loop.After(NamespaceRetry)
	case IsRefusal(err):
		r.tell(v, offloadingv1beta1.ReasonFailedReflection, store.ClipMessage(fmt.Sprintf("cluster %s %s: %s", v.scope.DestinationClusterID, what, offloadingv1beta1.ExplainBound(err.Error()))), false)
	}
	return fmt.Errorf("writing to the provider: %w", err)
}

// withdraw deletes an object whose local object is gone or no longer reflected. A live
// read confirms the absence, unless the watch has reported the deletion of the local
// object. An object that a restored consumer may have lost is kept.
func (r *kindLoop[L, R]) withdraw(ctx context.Context, v view[L, R]) error {
	var live, none L
	if !v.left {
		var excluded bool
		var err error
		if live, excluded, err = r.excluded(ctx, v); err != nil {
			return fmt.Errorf("confirming that it is not to be reflected: %w", err)
		}
		if !excluded {
			return loop.After(store.CatchUp) // the cache is behind
		}
	}
	if !v.left && live == none && (IsKept(v.have) || store.MadeBefore(v.have, r.engine.cfg.HomeLost)) {
		return r.keep(ctx, v)
	}
	err := v.stores.remote.Delete(ctx, v.have)
	switch {
	case err == nil:
		r.forgetSent(v, create, update, replace) // the object may be wanted again before its deletion ends
	case v.left:
		v.stores.left.Begin(v.key.Name, r.engine.cfg.Clock.Now()) // the retry must still distinguish the deletion from a loss
	}
	return err
}

// excluded reads the local object (nil if it does not exist) and reports whether it is
// not reflected.
func (r *kindLoop[L, R]) excluded(ctx context.Context, v view[L, R]) (live L, yes bool, err error) {
	var none L
	live, err = store.Live(ctx, r.Resource, r.Reader(r.engine.cfg.Home, v.key.Namespace), v.key.Name)
	if err != nil {
		return none, false, err
	}
	w, err := r.wishFor(live, v.scope)
	if err != nil {
		return none, false, err
	}
	var unwanted R
	yes = w.want == unwanted
	if yes && live != none && r.Excluded != nil {
		yes, err = r.Excluded(ctx, r.engine.cfg.Home, live, v.scope)
	}
	return live, yes, err
}

// sweep deletes the reflected objects of kinds that are off, in one namespace.
func (e *Engine) sweep(ctx context.Context, key loop.Key) error {
	s := e.spaces.Get(key.Name)
	if s == nil || e.cfg.Gate() != nil || s.swept.Load() {
		return nil
	}
	var errs []error
	for _, c := range e.cfg.Kinds {
		if c.Setting.Workers > 0 {
			continue
		}
		found, err := c.Kind.sweep(ctx, e.cfg.Remote, s.remote, metav1.ListOptions{LabelSelector: e.cfg.Selector()})
		if found > 0 {
			e.cfg.Log.Info("removing what is left of a kind that is off", zap.String("resource", c.Kind.resource()),
				zap.String("remoteNamespace", s.remote), zap.Int("objects", found))
		}
		errs = append(errs, store.IgnoreNotFound(err))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	s.swept.Store(true)
	return nil
}

// anyone replaces the UID for objects that are created several times under one name:
// another client deletes them, or immutable fields require a new object.
const anyone = types.UID("")

// asked is the key of the last write. Create, update and replace are recorded separately,
// because a create follows each replace and would overwrite its record.
type asked struct {
	name string
	do   verb
}

// change identifies a write.
type change struct {
	object types.UID // or anyone
	// want is the hash of the desired object. It is compared instead of the patch: reverts
	// of different fields count as the same conflict.
	want [sha256.Size]byte
	// patch is the hash of the patch; constant if the whole object is sent.
	patch [sha256.Size]byte
}

// sent is the record of the last write. It serves to back off if an admission webhook or
// another client of the provider keeps reverting the write.
type sent struct {
	change
	at    time.Time
	delay time.Duration // before the same change is sent again
	// answer is the resource version with which the API server answered an update, or the
	// UID of a created object that a further replacement would not improve. If an object
	// with this version still differs in the same way, the API server dropped unknown
	// fields or an admission webhook rewrote them, and a repeated write is pointless.
	answer string
	// left is the hash of the difference that remained in that answer. It is compared when
	// the same change is due again. As long as it is the same, no write follows, even if
	// other clients have changed other fields.
	left [sha256.Size]byte
}

// wished reports whether the record is of a write for the same object and desired state.
func (s sent) wished(c change) bool { return s.object == c.object && s.want == c.want }

// due returns how long to wait before a change is sent to an object in the given version.
// ok is false if the version is the API server's answer to the same change.
func (s sent) due(c change, version string, now time.Time) (wait time.Duration, ok bool) {
	switch {
	case !s.wished(c):
		return 0, true
	case s.patch == c.patch && s.answer != "" && s.answer == version:
		return 0, false
	default:
		return max(0, s.at.Add(s.delay).Sub(now)), true
	}
}

// again returns the record after the change was sent.
func (s sent) again(c change, now time.Time) sent {
	next := sent{change: c, at: now}
	if !s.wished(c) {
		return next
	}
	next.left, next.delay = s.left, loop.RepairDelay(s.delay, now.Sub(s.at))
	return next
}

// repair returns how long to wait before the change from have to merged is sent. ok is
// false if the remaining difference is the API server's answer to the same change.
func (r *kindLoop[L, R]) repair(v view[L, R], merged R, last sent, c change) (wait time.Duration, ok bool, err error) {
	wait, ok = last.due(c, v.have.GetResourceVersion(), r.engine.cfg.Clock.Now())
	if !last.wished(c) {
		return wait, ok, nil
	}
	instead, err := MergePatch(merged, v.have)
	if err != nil {
		return 0, false, err
	}
	left := sha256.Sum256(instead)
	if !ok && left != last.left {
		last.left = left
		r.remember(v, update, last)
	}
	return wait, ok && left != last.left, nil
}

// remake deletes an object that differs in immutable fields, or that would mislead clients as
// the provider refuses its change. The deletion triggers a new sync, which creates it again.
func (r *kindLoop[L, R]) remake(ctx context.Context, v view[L, R], w wish[R]) error {
	c, err := changeOf(anyone, w.want, nil)
	if err != nil {
		return err
	}
	last, now := r.lastSent(v, replace), r.engine.cfg.Clock.Now()
	wait, ok := last.due(c, string(v.have.GetUID()), now)
	switch {
	case !ok:
		return nil
	case wait > 0:
		return loop.After(wait)
	}
	r.log.Info("object created again: its change is not possible", zap.Stringer("key", v.key))
	if err := v.stores.remote.Delete(ctx, v.have); err != nil {
		return err
	}
	r.remember(v, replace, last.again(c, now))
	r.forgetSent(v, create) // the following create must not wait
	return nil
}

// made records a created object that an admission webhook has made immutable with a
// different content. A further replacement would give the same result.
func (r *kindLoop[L, R]) made(v view[L, R], w wish[R], c change, written R) {
	if r.Replaces == nil || !r.Replaces(written, w.want) {
		return
	}
	next := r.lastSent(v, replace)
	if next.change != c {
		next = sent{change: c}
	}
	next.answer = string(written.GetUID())
	r.remember(v, replace, next)
}

// changeOf returns the identity of a write. patch is nil if the whole object is sent.
func changeOf(object types.UID, want any, patch []byte) (change, error) {
	body, err := json.Marshal(want)
	if err != nil {
		return change{}, fmt.Errorf("encoding the object: %w", err)
	}
	return change{object, sha256.Sum256(body), sha256.Sum256(patch)}, nil
}

func (r *kindLoop[L, R]) lastSent(v view[L, R], do verb) sent {
	v.stores.mu.Lock()
	defer v.stores.mu.Unlock()
	return v.stores.sent[asked{v.key.Name, do}]
}

func (r *kindLoop[L, R]) remember(v view[L, R], do verb, s sent) {
	v.stores.mu.Lock()
	defer v.stores.mu.Unlock()
	v.stores.sent[asked{v.key.Name, do}] = s
}

func (r *kindLoop[L, R]) forgetSent(v view[L, R], verbs ...verb) {
	v.stores.mu.Lock()
	defer v.stores.mu.Unlock()
	for _, do := range verbs {
		delete(v.stores.sent, asked{v.key.Name, do})
	}
}
