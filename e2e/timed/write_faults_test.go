package timed

import (
	"cmp"
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

// mode is a kind of fault at a write.
type mode string

const (
	killBefore mode = "before" // the role is killed, the write does not arrive
	killAfter  mode = "after"  // the write arrives and is answered, the role is killed
	killLost   mode = "lost"   // the write arrives, the role is killed, the answer does not arrive

	// The role is paused until another replica leads.
	pauseBefore mode = "paused before" // the write arrives when the other leads
	pauseAfter  mode = "paused after"  // the write arrives and is answered at once

	// The API server that gets the write is paused for a while.
	pauseServer mode = "API server paused"
)

func kills() []mode  { return []mode{killBefore, killAfter, killLost} }
func pauses() []mode { return []mode{pauseBefore, pauseAfter} }

// linger is how long a role has to read an answer before it is killed. Requests that it sends
// in that time do not arrive.
const linger = 20 * time.Millisecond

// write is the n-th write, counted from 1, of a kind by a role in a scenario.
type write struct {
	scenario, role, what string
	n                    int
}

func (w write) String() string {
	return fmt.Sprintf("%s: %s: %s #%d", w.scenario, w.role, w.what, w.n)
}

// writes are the writes that have occurred without a fault.
type writes map[write]bool

func (w writes) sorted() []write {
	return slices.SortedFunc(maps.Keys(w), func(a, b write) int {
		return cmp.Or(cmp.Compare(a.scenario, b.scenario), cmp.Compare(a.role, b.role), cmp.Compare(a.what, b.what), cmp.Compare(a.n, b.n))
	})
}

// recording records the writes of one run of a scenario, and makes faults at some of them.
type recording struct {
	scenario string
	// namespaces whose writes belong to the run. Writes by the roles of outside belong to it,
	// too, if their namespace belongs to no run.
	namespaces []string
	outside    []string
	// ignores are writes that are not recorded; nil: all are recorded.
	ignores func(lab.Request) bool
	// at are the faults.
	at map[write]fault

	mu     sync.Mutex
	counts map[write]int
	writes []write
}

// fault returns what the front of an API server does with the write at which it happens.
type fault func(role, cluster string) lab.Fate

// record records a write to a cluster, and makes the fault that belongs to it.
func (r *recording) record(role, cluster, what string) lab.Fate {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.counts == nil {
		r.counts = map[write]int{}
	}
	w := write{scenario: r.scenario, role: role, what: what}
	r.counts[w]++
	w.n = r.counts[w]
	r.writes = append(r.writes, w)
	if f := r.at[w]; f != nil {
		return f(role, cluster)
	}
	return lab.Fate{}
}

// all are the writes that occurred, each once.
func (r *recording) all() []write {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.writes)
}

// faults intercepts the requests of all roles, and hands each write to the recording that it
// belongs to.
type faults struct {
	roles    roles
	clusters map[string]*lab.Cluster

	mu         sync.Mutex
	recordings map[*recording]bool
}

func newFaults(w *world) *faults {
	f := &faults{roles: w.roles, clusters: map[string]*lab.Cluster{"rome": w.Rome.Cluster, "milan": w.Milan.Cluster}, recordings: map[*recording]bool{}}
	for _, c := range f.clusters {
		c.Proxied().Intercept(func(r lab.Request) lab.Fate { return f.decide(c.Name, r) })
	}
	return f
}

func (f *faults) start(r *recording) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.recordings[r] = true
}

func (f *faults) stop(r *recording) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.recordings, r)
}

func (f *faults) decide(cluster string, request lab.Request) lab.Fate {
	name := roleOf(cluster, request)
	role := f.roles[name]
	switch {
	case role == nil, strings.HasSuffix(request.Resource, "reviews"): // they change nothing
		return lab.Fate{}
	case role.cutOff.Load():
		return lab.Fate{Unsent: true}
	}
	if r := f.find(name, request); r != nil && (r.ignores == nil || !r.ignores(request)) {
		return r.record(name, cluster, what(cluster, request))
	}
	return lab.Fate{}
}

func (f *faults) find(role string, request lab.Request) *recording {
	f.mu.Lock()
	defer f.mu.Unlock()
	var outside *recording
	for r := range maps.Keys(f.recordings) {
		if slices.Contains(r.namespaces, request.Namespace) || (request.Namespace == "" && slices.Contains(r.namespaces, request.Name)) {
			return r
		}
		if slices.Contains(r.outside, role) {
			outside = r
		}
	}
	if strings.HasPrefix(request.Namespace, prefix) {
		return nil
	}
	return outside
}

// fault kills or pauses the role that writes, or pauses the API server that gets the write.
func (f *faults) fault(m mode) fault {
	return func(name, cluster string) lab.Fate {
		role := f.roles[name]
		switch m {
		case pauseServer:
			return lab.Fate{Before: func() { f.pauseServer(cluster) }}
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
				role.cutOff.Store(true)
				<-time.After(linger)
				role.kill()
			}}
		}
	}
}

// serverPause is how long an API server is paused: longer than the leases of the roles.
const serverPause = 10 * time.Second

// pauseServer pauses an API server. It returns at once.
func (f *faults) pauseServer(cluster string) {
	c := f.clusters[cluster]
	c.PauseAPIServer()
	time.AfterFunc(serverPause, c.ResumeAPIServer)
}

// what names a kind of write: its verb and resource, and what it changes.
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
