package engine

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/reflect/forge"
)

// refusedPatience is how long a copy that the provider refuses counts as behind. A new namespace
// refuses everything until its API servers have seen the rights in it.
const refusedPatience = 2 * time.Second

// changes has the objects of one kind and namespace that have changed, in either cluster, since
// their copies were as they have to be. It is safe for concurrent use.
type changes struct {
	mu    sync.Mutex
	count int
	// last has the number of the last change, and refused the time since when the provider
	// refuses the copy, both by the name of the object.
	last    map[string]int
	refused loop.Since[string]
}

func (c *changes) add(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.count++
	c.last[name] = c.count
}

// of returns the number of the last change of an object, or 0.
func (c *changes) of(name string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last[name]
}

func (c *changes) names() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(maps.Keys(c.last))
}

// settle records that a copy is as it has to be after the change with that number, and reports
// whether that is news.
func (c *changes) settle(name string, change int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if change == 0 || c.last[name] != change {
		return false
	}
	delete(c.last, name)
	c.refused.End(name)
	return true
}

// settle notes the outcome of a sync that began after the change with that number. A copy that
// the provider does not take, because it refuses it or a foreign object has the name, stays as
// it is, and nothing waits for it.
func (r *kindLoop[L, R]) settle(v view[L, R], change int, err error) {
	var none R
	now := r.engine.cfg.Clock.Now()
	switch {
	case err == nil && (v.have == none || v.have.GetDeletionTimestamp() == nil && !v.stores.remote.WasDeleted(v.have.GetUID())):
	case err != nil && r.blocked(v):
	case loop.IsRefusal(err) && now.Sub(v.stores.changes.refused.Begin(v.key.Name, now)) >= refusedPatience:
	default:
		return
	}
	if v.stores.changes.settle(v.key.Name, change) {
		r.engine.cfg.Settled(v.key.Namespace, r.Resource, v.key.Name)
	}
}

// Behind returns the first of the named objects whose copy in the provider is missing, or not as
// this cluster has the object, and false if there is none. A name of "" stands for all objects of
// the kind that existed at a time. It is "" in the answer while the objects of the kind are not
// known yet. Objects that are not reflected are never behind. Config.Settled is called with
// the namespace, lower-case kind and name of the answer when that is over. A read confirms that
// an optional object does not exist.
func (e *Engine) Behind(ctx context.Context, namespace string, named []forge.Named, existed time.Time) (forge.Named, bool, error) {
	return e.first(named, func(r reflector, n forge.Named) (string, bool, error) { return r.behind(ctx, namespace, n, existed) })
}

// BehindLive is Behind for an Engine that does not run, because another process reflects. It
// lists the named objects in both clusters.
func (e *Engine) BehindLive(ctx context.Context, namespace, remote string, named []forge.Named, existed time.Time) (forge.Named, bool, error) {
	s := e.newSpace(namespace, remote)
	return e.first(named, func(r reflector, n forge.Named) (string, bool, error) { return r.behindLive(ctx, s, n, existed) })
}

// Refused returns the objects that the provider does not have, or not as this cluster has them, because it refuses
// them, or another object has the name.
func (e *Engine) Refused() (out []offloadingv1beta1.RefusedObject) {
	for _, r := range e.reflectors {
		out = append(out, r.refusals()...)
	}
	return out
}

func (e *Engine) first(named []forge.Named, behind func(reflector, forge.Named) (string, bool, error)) (forge.Named, bool, error) {
	for _, n := range named {
		for _, r := range e.reflectors {
			if r.resource() != strings.ToLower(n.Kind) {
				continue
			}
			if name, is, err := behind(r, n); is || err != nil {
				return forge.Named{Kind: n.Kind, Name: name}, is, err
			}
		}
	}
	return forge.Named{}, false, nil
}

func (r *kindLoop[L, R]) behind(ctx context.Context, namespace string, n forge.Named, existed time.Time) (string, bool, error) {
	st := r.storesOf(namespace)
	if st == nil || !st.synced() {
		return "", true, nil
	}
	var none L
	if n.Name == "" {
		for _, name := range st.changes.names() {
			if local := store.Cached[L](st.local, loop.Key{Namespace: namespace, Name: name}); local != none && !after(local, existed) {
				return name, true, nil
			}
		}
		return "", false, nil
	}
	if st.changes.of(n.Name) > 0 {
		return n.Name, true, nil
	}
	if !n.Optional || store.Cached[L](st.local, loop.Key{Namespace: namespace, Name: n.Name}) != none {
		return "", false, nil
	}
	local, err := store.Live(ctx, r.Resource, r.Reader(r.engine.cfg.Home, namespace), n.Name)
	return n.Name, local != none, err
}

// after reports whether an object was created after a time.
func after(obj metav1.Object, existed time.Time) bool {
	created := obj.GetCreationTimestamp()
	return created.After(existed)
}

func (r *kindLoop[L, R]) behindLive(ctx context.Context, s *space, n forge.Named, existed time.Time) (string, bool, error) {
	scope, ok := r.engine.scope(s, r.setting.Policy)
	if !ok {
		return "", false, nil // the VirtualNodes are being deleted
	}
	there := n.Name
	if n.Name != "" {
		there = r.remoteName(n.Name, scope.ObjectOptions)
	}
	here, err := listed[L](ctx, r.List, r.engine.cfg.Home, s.local, n.Name)
	if err != nil {
		return "", false, err
	}
	copies, err := listed[R](ctx, r.List, r.engine.cfg.Remote, s.remote, there)
	if err != nil {
		return "", false, err
	}
	var none R
	for _, name := range slices.Sorted(maps.Keys(here)) {
		local := here[name]
		w, err := r.wishFor(local, scope)
		if err != nil || w.want == none || n.Name == "" && after(local, existed) {
			continue
		}
		have := copies[w.want.GetName()]
		if do, _ := r.plan(have, w.want); do != nothing && (have == none || r.engine.cfg.Reflected(have)) {
			return name, true, nil
		}
	}
	return "", false, nil
}

// listed reads the objects of a namespace, or the one of a name, by their names.
func listed[T Object](ctx context.Context, read func(context.Context, Clients, string, metav1.ListOptions) (runtime.Object, error),
	c Clients, namespace, name string) (map[string]T, error) {
	opts := metav1.ListOptions{}
	if name != "" {
		opts.FieldSelector = metav1.ObjectNameField + "=" + name
	}
	list, err := read(ctx, c, namespace, opts)
	if err != nil {
		return nil, fmt.Errorf("looking for the copies of what a pod names: %w", err)
	}
	out := map[string]T{}
	all, err := store.Items[T](list)
	for _, o := range all {
		if name == "" || o.GetName() == name {
			out[o.GetName()] = o
		}
	}
	return out, err
}
