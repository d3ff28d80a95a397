package kinds

import (
	"context"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/reflect/forge"
)

const (
	// copiesPatience is how long a pod waits at most. Mostly the copies arrive before
	// copiesSilence has passed, also on a busy machine, and nothing is written about the wait.
	copiesPatience = time.Minute
	copiesSilence  = 3 * time.Second
	copiesRetry    = 5 * time.Second
)

// awaiting is the wait of a pod for the copy of an object. kind is in lower case, and name is
// empty for all objects of the kind in the namespace.
type awaiting struct {
	pod        loop.Key
	since      time.Time
	kind, name string
}

// missing returns the first object that a pod of a namespace names and whose copy is not in the
// provider as it has to be. Services count that existed when the pod was bound. Claims do not: the
// scheduler binds a pod after its claims, and a claim is bound after the provider has its copy.
func (p *Pods) missing(ctx context.Context, namespace string, there *offloadingv1beta1.ShadowPod, carried []forge.Token, bound time.Time) (forge.Named, bool, error) {
	if name := p.tokens.missing(namespace, carried); name != "" {
		return forge.Named{Kind: "Secret", Name: name}, true, nil
	}
	spec := &there.Spec.Pod
	all := slices.DeleteFunc(forge.NamedBy(spec), func(n forge.Named) bool {
		return slices.ContainsFunc(carried, func(t forge.Token) bool { return t.Name == n.Name })
	})
	if spec.EnableServiceLinks == nil || *spec.EnableServiceLinks {
		all = append(all, forge.Named{Kind: "Service"})
	}
	return p.cfg.Behind(ctx, namespace, there.Namespace, all, bound)
}

// await records what a pod waits for, and returns how long it has waited so far.
func (p *Pods) await(pod loop.Key, uid types.UID, missing forge.Named) (waited time.Duration) {
	now := p.cfg.Clock.Now()
	p.change(uid, func(r *memo) {
		if r.awaits.since.IsZero() {
			r.awaits.since = now
		}
		r.awaits = awaiting{pod, r.awaits.since, strings.ToLower(missing.Kind), missing.Name}
		waited = now.Sub(r.awaits.since)
	})
	return waited
}

// Settled enqueues the pods that wait for the copy of an object. kind is in lower case, and name
// is empty if the provider's objects of the kind have just become known.
func (p *Pods) Settled(namespace, kind, name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.memos {
		if w := &r.awaits; w.pod.Namespace == namespace && w.kind == kind && w.name == name {
			p.loop.Wake(w.pod)
		}
	}
}
