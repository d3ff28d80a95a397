package engine

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"time"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/types"

	"github.com/liqod/liqod/kube/loop"
)

// anyone replaces the UID for objects that are created several times under one name:
// another client deletes them, or immutable fields require a new object.
const anyone = types.UID("")

// asked is the key of the last write. Create, update and replace are recorded separately,
// because a create follows each replace and would overwrite its record.
type asked struct {
	key loop.Key
	do  verb
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
	instead, err := mergePatch(merged, v.have)
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

// remake deletes an object that differs in immutable fields. The deletion triggers a new
// sync, which creates it again.
func (r *kindLoop[L, R]) remake(ctx context.Context, v view[L, R], w wish[R]) error {
	c, err := changeOf(anyone, w.want, nil)
	if err != nil {
		return err
	}
	last, now := r.lastSent(v.key, replace), r.engine.cfg.Clock.Now()
	wait, ok := last.due(c, string(v.have.GetUID()), now)
	switch {
	case !ok:
		return nil
	case wait > 0:
		return loop.After(wait)
	}
	r.log.Info("object created again: the changed field is immutable", zap.Stringer("key", v.key))
	if err := r.deleteRemote(ctx, v.scope, v.have); err != nil {
		return err
	}
	r.remember(v, replace, last.again(c, now))
	r.forgetSent(v.key, create) // the following create must not wait
	return nil
}

// made records a created object that an admission webhook has made immutable with a
// different content. A further replacement would give the same result.
func (r *kindLoop[L, R]) made(v view[L, R], w wish[R], written R) error {
	if r.Replaces == nil || !r.Replaces(written, w.want) {
		return nil
	}
	c, err := changeOf(anyone, w.want, nil)
	if err != nil {
		return err
	}
	next := r.lastSent(v.key, replace)
	if next.change != c {
		next = sent{change: c}
	}
	next.answer = string(written.GetUID())
	r.remember(v, replace, next)
	return nil
}

// changeOf returns the identity of a write. patch is nil if the whole object is sent.
func changeOf(object types.UID, want any, patch []byte) (change, error) {
	body, err := json.Marshal(want)
	if err != nil {
		return change{}, fmt.Errorf("encoding the object as wanted: %w", err)
	}
	return change{object, sha256.Sum256(body), sha256.Sum256(patch)}, nil
}

func (r *kindLoop[L, R]) lastSent(key loop.Key, do verb) sent {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.sent[asked{key, do}]
}

func (r *kindLoop[L, R]) remember(v view[L, R], do verb, s sent) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.closed(v) {
		r.sent[asked{v.key, do}] = s
	}
}

func (r *kindLoop[L, R]) forgetSent(key loop.Key, verbs ...verb) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, do := range verbs {
		delete(r.sent, asked{key, do})
	}
}
