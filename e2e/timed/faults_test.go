package timed

import (
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

	// The API server that the write is sent to stands still for a while, and goes on.
	pauseServer mode = "API server paused"
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

// plot is the attack on one life: it notes the writes, and strikes at some of them.
type plot struct {
	life string
	// namespaces whose writes belong to the life; everywhere: so do those of no namespace
	// of a life, by these roles.
	namespaces []string
	everywhere []string
	// ignores are writes that are none of the life; nil: all are.
	ignores func(lab.Request) bool
	// at is where to strike, and what to do there.
	at map[point]strike

	mu     sync.Mutex
	counts map[point]int
	met    []point
}

// strike is what is done to a role, or to a cluster, at one of its writes.
type strike func(role, cluster string) lab.Fate

// note counts a write to a cluster, and returns its fate.
func (p *plot) note(role, cluster, what string) lab.Fate {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.counts == nil {
		p.counts = map[point]int{}
	}
	here := point{life: p.life, role: role, what: what}
	p.counts[here]++
	here.n = p.counts[here]
	p.met = append(p.met, here)
	if do := p.at[here]; do != nil {
		return do(role, cluster)
	}
	return lab.Fate{}
}

// points are the writes that were met: each is once.
func (p *plot) points() []point {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.met)
}

// theatre knows the plots that are being played and gives each write its fate.
type theatre struct {
	roles    *roles
	clusters map[string]*lab.Cluster

	mu    sync.Mutex
	plots map[*plot]bool
}

func newTheatre(w *world) *theatre {
	t := &theatre{roles: w.roles, clusters: map[string]*lab.Cluster{"rome": w.rome.Cluster, "milan": w.milan.Cluster}, plots: map[*plot]bool{}}
	for _, c := range t.clusters {
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
	if p := t.find(name, r); p != nil && (p.ignores == nil || !p.ignores(r)) {
		return p.note(name, cluster, what(cluster, r))
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

// strike is the fate of the write at which a role is killed or paused, or an API server is.
func (t *theatre) strike(m mode) strike {
	return func(name, cluster string) lab.Fate {
		role := t.roles.byName[name]
		switch m {
		case pauseServer:
			return lab.Fate{Before: func() { t.pauseServer(cluster) }}
		case pauseBefore:
			return lab.Fate{Before: role.pause}
		case pauseAfter:
			return lab.Fate{After: role.pause}
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

// standstill is how long an API server is paused: longer than the leases of the roles.
const standstill = 10 * time.Second

// pauseServer lets an API server stand still. It returns at once.
func (t *theatre) pauseServer(cluster string) {
	c := t.clusters[cluster]
	c.PauseAPIServer()
	time.AfterFunc(standstill, c.ResumeAPIServer)
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
	case resource == "leases", r.Group == "rbac.authorization.k8s.io":
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
