package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/jsonmergepatch"
	"k8s.io/client-go/tools/cache"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/reflect/forge"
)

// kindLoop reflects the objects of one kind. Its keys are the namespaces and names of
// local objects.
type kindLoop[L, R Object] struct {
	Kind[L, R]

	engine  *Engine
	setting Setting
	loop    *loop.Loop
	log     *zap.Logger
}

// stores are the caches of one kind for one offloaded namespace, and what is remembered of its
// objects, by their names.
type stores[R Object] struct {
	space  *space
	local  cache.Store
	remote *store.Store[R]
	synced func() bool
	// changes has the objects that have changed and whose copy is not known to follow.
	changes *changes
	// left has the objects whose deletion the watch in the consumer has reported and no sync has
	// handled yet.
	left loop.Since[string]

	mu sync.Mutex
	// told is the last event that was recorded about each object, and sent the last write of each
	// object in the provider, by verb.
	told map[string]note
	sent map[asked]sent
}

type note struct {
	reason, text string
	// blocked is true if a foreign object occupies the name in the provider.
	blocked bool
}

// view is the known state of one object. Fields are nil if an object does not exist.
type view[L, R Object] struct {
	key loop.Key
	// stores are the namespace's stores when the sync began.
	stores *stores[R]
	scope  Scope
	local  L
	have   R
	// left is true if the watch in the consumer has reported the deletion of the object.
	left bool
}

func (r *kindLoop[L, R]) sync(ctx context.Context, key loop.Key) error {
	st := r.storesOf(key.Namespace)
	if st == nil || !st.synced() {
		return nil // enqueue follows when the caches have synced
	}
	if err := r.engine.cfg.Gate(); err != nil {
		return nil // Engine.Resync follows
	}
	scope, ok := r.engine.scope(st.space, r.setting.Policy)
	if !ok {
		return nil // the VirtualNodes are being deleted, and without them the skipped keys are unknown
	}
	change := st.changes.of(key.Name) // read before the caches, as left
	left := st.left.End(key.Name)     // read before the cache, which is updated before the handler is called
	v := view[L, R]{key: key, stores: st, scope: scope, local: store.Cached[L](st.local, key)}
	var gone L
	v.left = left && v.local == gone
	there := loop.Key{Namespace: st.space.remote, Name: r.remoteName(key.Name, scope.ObjectOptions)}
	// The object of this name in the provider may belong to another local object. Then the
	// sync of that one decides about it.
	if r.localName(there.Name, scope.ObjectOptions) == key.Name {
		v.have = st.remote.Get(there)
	}
	w, err := r.wishFor(v.local, scope)
	if err != nil {
		return err
	}
	err = r.apply(ctx, v, w)
	r.settle(v, change, err)
	return err
}

// wish is the desired object in the provider and the warning for its owner.
type wish[R Object] struct {
	want R
	// The event about the local object; empty: none.
	reason, message string
}

// wishFor returns the desired object for local, which is nil if it does not exist. An
// object that was reflected from another cluster is not reflected further.
func (k Kind[L, R]) wishFor(local L, s Scope) (wish[R], error) {
	var none L
	if local == none || k.foreign(local, s) {
		return wish[R]{}, nil
	}
	chosen := k.Chosen
	if chosen == nil {
		chosen = ByAnnotations[L]
	}
	yes, warning := chosen(local, s)
	w := wish[R]{message: warning}
	if warning != "" {
		w.reason = offloadingv1beta1.ReasonFailedReflection
	}
	if !yes {
		return w, nil
	}
	want, err := k.Forge(local, s)
	var refused *forge.Refused
	if errors.As(err, &refused) {
		return wish[R]{reason: refused.Reason, message: refused.Message}, nil
	}
	if err != nil {
		return wish[R]{}, fmt.Errorf("forging the object for the provider: %w", err)
	}
	w.want = want
	return w, nil
}

func (k Kind[L, R]) foreign(local L, s Scope) bool {
	if k.Foreign != nil {
		return k.Foreign(local, s)
	}
	return forge.Foreign(local, s.OriginClusterID)
}

// ByAnnotations is the default of Kind.Chosen: the policy and the reflection
// annotations decide. It returns the warning BothAnnotations if both annotations are set.
func ByAnnotations[L Object](local L, s Scope) (bool, string) {
	if only := local.GetAnnotations()[offloadingv1beta1.ReflectOnlyToAnnotation]; only != "" && only != s.DestinationClusterID {
		return false, ""
	}
	yes, conflict := forge.Reflects(s.Policy, local.GetAnnotations())
	if conflict {
		return yes, BothAnnotations
	}
	return yes, ""
}

// BothAnnotations is the warning for an object that has both reflection annotations.
const BothAnnotations = "not reflected: the annotations " + offloadingv1beta1.SkipReflectionAnnotation + " and " +
	offloadingv1beta1.AllowReflectionAnnotation + " are both set, and the first one wins; remove one of them"

// verb is an action on the object in the provider.
type verb string

const (
	nothing  verb = "nothing"
	create   verb = "create"
	update   verb = "update"
	replace  verb = "replace"
	withdraw verb = "withdraw"
	// wait: the object is being deleted, and the watch will report the end of the
	// deletion.
	wait verb = "wait"
)

// plan returns the action that brings have, the reflected object in the provider, to
// want. Both are nil if there is none. For an update it also returns the merged object.
func (k Kind[L, R]) plan(have, want R) (verb, R) {
	var none R
	switch {
	case have == none && want == none:
		return nothing, none
	case have == none:
		return create, none
	case have.GetDeletionTimestamp() != nil:
		return wait, none
	case want == none:
		return withdraw, none
	case k.Replaces != nil && k.Replaces(have, want):
		return replace, none
	}
	merged := k.Merge(have, want)
	if equality.Semantic.DeepEqual(have, merged) {
		return nothing, none
	}
	return update, merged
}

// apply executes the plan for one object.
func (r *kindLoop[L, R]) apply(ctx context.Context, v view[L, R], w wish[R]) error {
	var none R
	if v.have != none && v.stores.remote.WasDeleted(v.have.GetUID()) {
		// The watch will report the end of the deletion and enqueue the key. If no watch
		// has ever reported the object, the record of the deletion expires instead.
		return loop.After(forgotten)
	}
	do, merged := r.plan(v.have, w.want)
	if do != create && do != update { // create and update record the event themselves
		r.tell(v, w.reason, w.message, false)
	}
	switch do {
	case create:
		return r.create(ctx, v, w)
	case update:
		return r.update(ctx, v, w, merged)
	case replace:
		return r.remake(ctx, v, w)
	case withdraw:
		return r.withdraw(ctx, v)
	case nothing:
		if v.have == none { // and none is wanted
			r.forgetSent(v, create, update, replace)
		}
	}
	return nil
}

func (k Kind[L, R]) reflector(e *Engine, setting Setting) reflector {
	r := &kindLoop[L, R]{Kind: k, engine: e, setting: setting, log: e.cfg.Log.With(zap.String("resource", k.Resource))}
	r.loop = loop.New(loop.Config{Name: LoopName(k.Resource), Sync: r.sync, Log: e.cfg.Log, Observer: e.cfg.Observer})
	return r
}

// LoopName returns the name of the loop of a kind in metrics and logs.
func LoopName(resource string) string { return "reflect-" + resource }

func (r *kindLoop[L, R]) hasEndpoints() bool { return r.HasEndpoints }

func (r *kindLoop[L, R]) run(ctx context.Context) error { return r.loop.Run(ctx, r.setting.Workers) }

func (r *kindLoop[L, R]) open(s *space) (func() bool, error) {
	local, remote := r.Local(s.home), r.Remote(s.there)
	if err := local.GetIndexer().AddIndexers(r.Indexers); err != nil {
		return nil, fmt.Errorf("indexing for %s: %w", r.loop.Name(), err)
	}
	clients := r.engine.cfg.Remote
	st := &stores[R]{
		space: s, local: local.GetStore(), changes: &changes{last: map[string]int{}}, told: map[string]note{}, sent: map[asked]sent{},
		remote: store.New(r.Resource, remote, r.engine.cfg.Clock, func(namespace string) store.API[R] { return r.Writer(clients, namespace) }),
	}
	changed := func(name string) {
		st.changes.add(name)
		r.add(s.local, name)
	}
	// An update enqueues its key once, because the name and the affected keys of an object are
	// constant. With two calls an idle worker could sync the object twice.
	sources := []loop.Source{loop.On(local, store.Handler[L]{
		Set: func(_, o L) { changed(o.GetName()) },
		Gone: func(o L, missed bool) {
			if !missed {
				st.left.Begin(o.GetName(), r.engine.cfg.Clock.Now())
			}
			changed(o.GetName())
		},
	}), st.remote.On(store.Each(func(o R) { changed(r.localName(o.GetName(), s.scope.ObjectOptions)) }))}
	for _, related := range r.Related {
		sources = append(sources, loop.On(related.Informer(s.home), store.Each(func(obj any) {
			for _, key := range related.Keys(obj, local.GetIndexer()) {
				if _, name, err := cache.SplitMetaNamespaceKey(key); err == nil {
					r.add(s.local, name)
				}
			}
		})))
	}
	var err error
	if st.synced, err = loop.Register(sources...); err != nil {
		return nil, fmt.Errorf("watching for %s: %w", r.loop.Name(), err)
	}
	s.stores[r.Resource] = st
	return st.synced, nil
}

func (r *kindLoop[L, R]) add(namespace, name string) {
	r.loop.Add(loop.Key{Namespace: namespace, Name: name})
}

func (r *kindLoop[L, R]) enqueue(namespace string) {
	for local := range r.engine.spaces.Each(namespace) {
		st := r.storesOf(local)
		if st == nil {
			continue
		}
		for _, obj := range st.local.List() {
			if o, ok := obj.(L); ok {
				r.add(local, o.GetName())
			}
		}
		for _, o := range st.remote.List() { // objects without a local object have no other trigger
			r.add(local, r.localName(o.GetName(), st.space.scope.ObjectOptions))
		}
	}
}

func (r *kindLoop[L, R]) storesOf(namespace string) *stores[R] {
	s := r.engine.spaces.Get(namespace)
	if s == nil {
		return nil
	}
	st, _ := s.stores[r.Resource].(*stores[R]) // nil if its handlers could not be registered
	return st
}

func (k Kind[L, R]) sweep(ctx context.Context, c Clients, namespace string, opts metav1.ListOptions) (found int, err error) {
	list, err := k.List(ctx, c, namespace, opts)
	if err != nil {
		return 0, fmt.Errorf("listing what is left of %s: %w", k.Resource, err)
	}
	all, err := store.Items[metav1.Object](list)
	errs := []error{err}
	for _, obj := range all {
		if obj.GetDeletionTimestamp() == nil {
			found++
			errs = append(errs, store.Delete(ctx, "what is left of "+k.Resource, k.Writer(c, namespace), obj))
		}
	}
	return found, errors.Join(errs...)
}

// tell records a warning event about the local object if its message is new, and the namespace was
// not closed since the view was taken. An empty message resets the memory of the last one.
func (r *kindLoop[L, R]) tell(v view[L, R], reason, message string, blocked bool) {
	var none L
	open := r.storesOf(v.key.Namespace) == v.stores
	v.stores.mu.Lock()
	told := v.stores.told
	news := told[v.key.Name].text != message && open
	if message == "" {
		delete(told, v.key.Name)
	} else {
		told[v.key.Name] = note{reason, message, blocked}
	}
	v.stores.mu.Unlock()
	if news && message != "" && v.local != none {
		r.engine.cfg.Recorder.Event(v.local, corev1.EventTypeWarning, reason, message)
	}
}

func (r *kindLoop[L, R]) refusals() (out []offloadingv1beta1.RefusedObject) {
	for namespace := range r.engine.spaces.Each(everywhere) {
		st := r.storesOf(namespace)
		if st == nil {
			continue
		}
		st.mu.Lock()
		for name, n := range st.told {
			if n.reason == offloadingv1beta1.ReasonFailedReflection {
				out = append(out, offloadingv1beta1.RefusedObject{Kind: r.Resource, Namespace: namespace, Name: name, Cause: n.text})
			}
		}
		st.mu.Unlock()
	}
	return out
}

func (r *kindLoop[L, R]) blocked(v view[L, R]) bool {
	v.stores.mu.Lock()
	defer v.stores.mu.Unlock()
	return v.stores.told[v.key.Name].blocked
}

// MergePatch returns the JSON merge patch (RFC 7396) from have to merged, or nil if they
// are equal. The patch contains the UID, so that it fails for a newer object of the same
// name. It has no resource version, so that concurrent changes of other fields do not
// conflict.
func MergePatch[R Object](have, merged R) ([]byte, error) {
	before, err := json.Marshal(have)
	if err != nil {
		return nil, fmt.Errorf("encoding the object as it is: %w", err)
	}
	after, err := json.Marshal(merged)
	if err != nil {
		return nil, fmt.Errorf("encoding the object as wanted: %w", err)
	}
	diff, err := jsonmergepatch.CreateThreeWayJSONMergePatch(before, after, before)
	if err != nil {
		return nil, fmt.Errorf("comparing the object as it is and as wanted: %w", err)
	}
	patch := store.Patch{}
	if err := json.Unmarshal(diff, &patch); err != nil {
		return nil, fmt.Errorf("reading the difference: %w", err)
	}
	if len(patch) == 0 {
		return nil, nil
	}
	return store.EncodePatch(patch, have)
}
