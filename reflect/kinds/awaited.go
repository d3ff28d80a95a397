package kinds

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

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

// awaited has the pods that wait for copies of what they name, by their UIDs. It is safe for
// concurrent use.
type awaited struct {
	clock clock.PassiveClock
	wake  func(pods ...loop.Key)
	// token returns the name of the first of the tokens that the provider lacks, or "". behind is
	// PodsConfig.Behind.
	token  func(namespace string, all []forge.Token) string
	behind func(ctx context.Context, namespace, remote string, all []forge.Named, existed time.Time) (forge.Named, bool, error)

	mu   sync.Mutex
	pods map[types.UID]awaiting
}

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
func (a *awaited) missing(ctx context.Context, namespace string, there *offloadingv1beta1.ShadowPod, carried []forge.Token, bound time.Time) (forge.Named, bool, error) {
	if name := a.token(namespace, carried); name != "" {
		return forge.Named{Kind: "Secret", Name: name}, true, nil
	}
	spec := &there.Spec.Pod
	all := slices.DeleteFunc(forge.NamedBy(spec), func(n forge.Named) bool {
		return slices.ContainsFunc(carried, func(t forge.Token) bool { return t.Name == n.Name })
	})
	if spec.EnableServiceLinks == nil || *spec.EnableServiceLinks {
		all = append(all, forge.Named{Kind: "Service"})
	}
	return a.behind(ctx, namespace, there.Namespace, all, bound)
}

// note records what a pod waits for, and returns how long it has waited so far.
func (a *awaited) note(pod loop.Key, uid types.UID, missing forge.Named) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	w, begun := a.pods[uid]
	if !begun {
		w = awaiting{pod: pod, since: a.clock.Now()}
	}
	w.kind, w.name = strings.ToLower(missing.Kind), missing.Name
	a.pods[uid] = w
	return a.clock.Since(w.since)
}

// settled enqueues the pods that wait for the copy of an object.
func (a *awaited) settled(namespace, kind, name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, w := range a.pods {
		if w.pod.Namespace == namespace && w.kind == kind && w.name == name {
			a.wake(w.pod)
		}
	}
}

func (a *awaited) forget(uid types.UID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.pods, uid)
}
