package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/e2e/lab"
)

// mode is what is done to a role at one of its writes.
type mode string

const (
	killBefore mode = "before" // killed, the write does not arrive
	killAfter  mode = "after"  // the write arrives and is answered, killed
	killLost   mode = "lost"   // the write arrives, killed, the answer does not arrive

	// Paused until another replica leads; then it goes on.
	pauseBefore mode = "paused before" // the write arrives when the other leads
	pauseAfter  mode = "paused after"  // the write arrives and is answered at once
)

func kills() []mode  { return []mode{killBefore, killAfter, killLost} }
func pauses() []mode { return []mode{pauseBefore, pauseAfter} }

// linger is how long a role has to read an answer before it is killed. What it sends in
// that time does not arrive.
const linger = 20 * time.Millisecond

// point is a place in a life: the n-th write, counted from 1, of a kind by a role.
type point struct {
	life, role, what string
	n                int
}

func (p point) String() string { return fmt.Sprintf("%s: %s: %s #%d", p.life, p.role, p.what, p.n) }

// plot is the attack on one life: it notes the writes, and strikes at one of them.
type plot struct {
	life string
	// namespaces whose writes belong to the life; everywhere: so do those of no namespace
	// of a life, by these roles.
	namespaces []string
	everywhere []string
	// at is where to strike, if anywhere, and do what to do there.
	at *point
	do func(role string) lab.Fate

	mu     sync.Mutex
	counts map[point]int
	met    []point
	struck bool
}

// note counts a write, and returns its fate.
func (p *plot) note(role, what string) lab.Fate {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.counts == nil {
		p.counts = map[point]int{}
	}
	here := point{life: p.life, role: role, what: what}
	p.counts[here]++
	here.n = p.counts[here]
	p.met = append(p.met, here)
	if p.at == nil || p.struck || *p.at != here {
		return lab.Fate{}
	}
	p.struck = true
	return p.do(role)
}

func (p *plot) points() (met []point, struck bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.met), p.struck
}

// theatre knows the plots that are being played and gives each write its fate.
type theatre struct {
	roles *roles

	mu    sync.Mutex
	plots map[*plot]bool
}

func newTheatre(w *world) *theatre {
	t := &theatre{roles: w.roles, plots: map[*plot]bool{}}
	for _, c := range []*lab.Cluster{w.rome.Cluster, w.milan.Cluster} {
		c.Proxied().Intercept(func(r lab.Request) lab.Fate { return t.decide(c.Name, r) })
	}
	return t
}

func (t *theatre) open(p *plot) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.plots[p] = true
}

func (t *theatre) close(p *plot) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.plots, p)
}

func (t *theatre) decide(cluster string, r lab.Request) lab.Fate {
	name := roleOf(cluster, r)
	role := t.roles.byName[name]
	switch {
	case role == nil, strings.HasSuffix(r.Resource, "reviews"): // questions, not writes
		return lab.Fate{}
	case role.doomed.Load():
		return lab.Fate{Unsent: true}
	}
	if p := t.find(name, r); p != nil {
		return p.note(name, what(cluster, r))
	}
	return lab.Fate{}
}

func (t *theatre) find(role string, r lab.Request) *plot {
	t.mu.Lock()
	defer t.mu.Unlock()
	var everywhere *plot
	for p := range maps.Keys(t.plots) {
		if slices.Contains(p.namespaces, r.Namespace) || (r.Namespace == "" && slices.Contains(p.namespaces, r.Name)) {
			return p
		}
		if slices.Contains(p.everywhere, role) {
			everywhere = p
		}
	}
	if strings.HasPrefix(r.Namespace, prefix) {
		return nil
	}
	return everywhere
}

// strike is the fate of the write at which a role is killed, or paused.
func (t *theatre) strike(ctx context.Context, m mode) func(role string) lab.Fate {
	return func(name string) lab.Fate {
		role := t.roles.byName[name]
		switch m {
		case pauseBefore:
			return lab.Fate{Before: func() { role.pause(ctx) }}
		case pauseAfter:
			return lab.Fate{After: func() { role.pause(ctx) }}
		case killBefore:
			return lab.Fate{Before: role.kill, Unsent: true}
		case killLost:
			return lab.Fate{After: role.kill, Unanswered: true}
		default:
			return lab.Fate{After: func() {
				role.doomed.Store(true)
				<-time.After(linger)
				role.kill()
			}}
		}
	}
}

// what tells writes of different meaning apart.
func what(cluster string, r lab.Request) string {
	resource := r.Resource
	if r.Subresource != "" {
		resource += "/" + r.Subresource
	}
	out := fmt.Sprintf("%s %s in %s", r.Verb, resource, cluster)
	if detail := detail(resource, r); detail != "" {
		out += " (" + detail + ")"
	}
	return out
}

func detail(resource string, r lab.Request) string {
	switch {
	case resource == "pods/status":
		return podStatusDetail(r.Body)
	case resource == "shadowpods/status":
		return shadowStatusDetail(r.Body)
	case resource == "pods" && r.Verb == "patch" && strings.Contains(string(r.Body), `"finalizers"`):
		return "finalizer"
	case resource == "pods" && r.Verb == "patch":
		return "spec"
	case resource == "leases":
		return r.Name
	}
	return ""
}

func podStatusDetail(body []byte) string {
	var patch struct {
		Status struct {
			Phase             corev1.PodPhase
			ContainerStatuses []corev1.ContainerStatus
		}
	}
	if json.Unmarshal(body, &patch) != nil {
		return ""
	}
	if patch.Status.Phase != "" {
		return string(patch.Status.Phase)
	}
	if len(patch.Status.ContainerStatuses) == 0 {
		return "conditions"
	}
	return "containers"
}

func shadowStatusDetail(body []byte) string {
	var shadow offloadingv1beta1.ShadowPod
	if json.Unmarshal(body, &shadow) != nil {
		return ""
	}
	switch {
	case shadow.Status.Phase != "":
		return string(shadow.Status.Phase)
	case len(shadow.Status.Conditions) > 0:
		return "refused"
	case shadow.Status.Replaced != "":
		return "replaced"
	}
	return "condition removed"
}
