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

// anyone stands for the objects of a name that are made one after the other, since somebody
// deletes them, or since each can only become as wanted by being made anew.
const anyone = types.UID("")

// asked is of what is remembered what was asked for last: to create, to update, or to
// replace the object of a key. One must not hide another: after a replace comes a create.
type asked struct {
	key loop.Key
	do  verb
}

// change is what an object in the provider is asked for.
type change struct {
	object types.UID // or anyone
	// want identifies what is wanted: who undoes now this of it and now that is no less to
	// be spaced.
	want [sha256.Size]byte
	// patch identifies what of it differs, where not the whole is sent.
	patch [sha256.Size]byte
}

// sent is the last change that was asked for. Whoever undoes it in the provider, an
// admission webhook or another writer, is not raced.
type sent struct {
	change
	at    time.Time
	delay time.Duration // until the same is asked for again
	// answer is the version of the object that the API server made of the change, or the UID
	// of one made anew that it made such that another would be no better. If the same is
	// still to be changed there, it drops what it does not know, or admission rewrites it.
	answer string
	// left identifies what then stands there instead. It is only looked at when the change
	// comes again, and left alone whatever else of the object others change.
	left [sha256.Size]byte
}

// wished reports whether the same was asked for.
func (s sent) wished(c change) bool { return s.object == c.object && s.want == c.want }

// due returns how long to wait before a change of an object, as it is in a version, is
// sent. It is false for one that was sent, and of which the API server made this version.
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

// again returns what is remembered once the change was sent.
func (s sent) again(c change, now time.Time) sent {
	next := sent{change: c, at: now}
	if !s.wished(c) {
		return next
	}
	next.left, next.delay = s.left, loop.RepairDelay(s.delay, now.Sub(s.at))
	return next
}

// repair returns how long to wait before a change that makes have merged is sent, and false
// if it is none: what differs is what the API server has made of the same change.
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

// remake deletes an object that can only become as wanted by being made anew.
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
	r.log.Info("object made anew: what has changed is immutable", zap.Stringer("key", v.key))
	if err := r.deleteRemote(ctx, v.scope, v.have); err != nil {
		return err
	}
	r.remember(v, replace, last.again(c, now))
	r.forgetSent(v.key, create) // the next is made at once
	return nil
}

// made remembers a new object that admission has made such that it would have to be made
// anew to be as wanted: the next would be no other.
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

// changeOf identifies the change that makes an object as wanted, by a patch if there is one.
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
