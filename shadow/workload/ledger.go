package workload

import (
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/informer"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/shadow/rules"
)

// ledger knows what each consumer's pods count, those included that no cache has yet, and
// who waits for room. To decide that a pod may be created and to count it is one step under
// its lock; so at no time can more be under way than there is room for. What it is not sure
// of it counts. Its methods are safe for concurrent use; those that make room return the
// keys of those whose turn has come.
type ledger struct {
	clock    clock.PassiveClock
	patience time.Duration
	lost     func() time.Time // when the cluster's state was last seen to have gone back
	// again reports whether another pod is to take the place of one that has ended.
	again func(*corev1.Pod) bool

	mu       sync.Mutex
	accounts map[string]*account // by the consumer's id
	pods     map[types.UID]*counted
	quotas   floor
	listed   floor
	// leading: nothing is reserved, and nobody waits, before.
	leading bool
	// settled says that pods of the leader before have been counted, the last one too.
	settled bool
	// needed is sent to when somebody waits for that.
	needed chan struct{}
}

// floor is the resource version of a consistent list: what caches tell of older objects
// that the list has not is over.
type floor struct {
	version string
	at      time.Time
}

// account is that of one consumer.
type account struct {
	quotas map[string]*offloadingv1beta1.Quota // by name
	bound  rules.Bound
	// used is the sum of what pods and reserved count.
	used     corev1.ResourceList
	reserved map[loop.Key]*reservation
	waiting  []*waiter // the oldest first
}

// counted is a pod, and what it counts.
type counted struct {
	consumer string
	version  string
	requests corev1.ResourceList
	// growth is by how much it may be larger already: of a resize that is under way.
	growth corev1.ResourceList
}

// reservation is room for a pod that no cache has yet. At most one pod can have its name.
type reservation struct {
	shadow     types.UID
	generation int64
	need       corev1.ResourceList
	// foreseen says that need is what the API server is expected to make of the pod, tried
	// that it was asked.
	foreseen, tried bool
	// sent is when the pod was asked for; zero: not yet. Until it is seen, or was refused,
	// it may exist.
	sent time.Time
	// kept is room that a lost pod has left to its successor.
	kept bool
}

func newLedger(c clock.PassiveClock, patience time.Duration, lost func() time.Time, again func(*corev1.Pod) bool) *ledger {
	if lost == nil {
		lost = func() time.Time { return time.Time{} }
	}
	return &ledger{
		clock: c, patience: patience, lost: lost, again: again, accounts: map[string]*account{}, pods: map[types.UID]*counted{}, needed: make(chan struct{}, 1),
	}
}

func (l *ledger) account(consumer string) *account {
	a := l.accounts[consumer]
	if a == nil {
		a = &account{quotas: map[string]*offloadingv1beta1.Quota{}, used: corev1.ResourceList{}, reserved: map[loop.Key]*reservation{}}
		l.accounts[consumer] = a
	}
	return a
}

// over reports whether an object of that version is known to be over by a list, or older
// than one that is known. After the cluster's state has gone back nothing is sure.
func (l *ledger) over(version, than string, at time.Time) bool {
	return than != "" && !l.lost().After(at) && (version == than || informer.OlderVersion(version, than))
}

// seen counts a pod as it is, as a cache or an answer tells.
func (l *ledger) seen(pod *corev1.Pod) []loop.Key {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.count(pod)
}

func (l *ledger) count(pod *corev1.Pod) []loop.Key {
	have := l.pods[pod.UID]
	switch {
	case have == nil && l.over(pod.ResourceVersion, l.listed.version, l.listed.at):
		return nil
	case have != nil && pod.ResourceVersion != have.version && l.over(pod.ResourceVersion, have.version, l.listed.at):
		return nil
	}
	next := &counted{consumer: pod.Labels[offloadingv1beta1.OriginLabel], version: pod.ResourceVersion}
	if !rules.Ended(pod) || l.again(pod) {
		next.requests = rules.Requests(pod)
	}
	a := l.account(next.consumer)
	key := loop.Key{Namespace: pod.Namespace, Name: pod.Name}
	if have != nil {
		if !next.ended() {
			next.growth = have.growth
		}
		l.drop(have)
	} else if r := a.reserved[key]; r != nil && !r.sent.IsZero() && isOwner(pod, r.shadow) {
		a.release(key)
	}
	l.pods[pod.UID] = next
	rules.AddResources(a.used, next.charge())
	return l.drain(a)
}

// charge is what a pod counts now.
func (c *counted) charge() corev1.ResourceList {
	if len(c.growth) == 0 {
		return c.requests
	}
	sum := maps.Clone(c.requests)
	rules.AddResources(sum, c.growth)
	return sum
}

// ended reports whether the pod counts nothing any more: what runs counts as a pod at least.
func (c *counted) ended() bool { return len(c.requests) == 0 }

func (l *ledger) drop(c *counted) { rules.SubResources(l.account(c.consumer).used, c.charge()) }

// gone takes a pod out. If keep, its room is kept for the pod that is to replace it.
func (l *ledger) gone(pod *corev1.Pod, keep bool) []loop.Key {
	l.mu.Lock()
	defer l.mu.Unlock()
	have := l.pods[pod.UID]
	if have == nil {
		return nil
	}
	delete(l.pods, pod.UID)
	l.drop(have)
	a := l.account(have.consumer)
	key := loop.Key{Namespace: pod.Namespace, Name: pod.Name}
	if owner := metav1.GetControllerOf(pod); keep && l.leading && owner != nil && a.reserved[key] == nil && len(have.requests) > 0 {
		a.reserve(key, &reservation{shadow: owner.UID, need: have.requests, kept: true})
	}
	return l.drain(a)
}

func (a *account) reserve(key loop.Key, r *reservation) {
	a.release(key)
	a.reserved[key] = r
	rules.AddResources(a.used, r.need)
}

func (a *account) release(key loop.Key) {
	if r := a.reserved[key]; r != nil {
		rules.SubResources(a.used, r.need)
		delete(a.reserved, key)
	}
}

// send notes that the pod is about to be asked for. It returns what it is foreseen to
// count, nil if that was not looked at closely.
func (l *ledger) send(consumer string, key loop.Key) corev1.ResourceList {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.account(consumer).reserved[key]
	if r == nil {
		return nil
	}
	r.sent, r.kept = l.clock.Now(), false
	if !r.foreseen {
		return nil
	}
	return r.need
}

// refused gives the room back of a pod that for certain was not made.
func (l *ledger) refused(consumer string, key loop.Key) []loop.Key {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.account(consumer)
	a.release(key)
	return l.drain(a)
}

// created counts the pod that an answer shows, unless a cache has shown it first. It
// reports whether it has turned out larger than was foreseen, and whether what its
// consumer's pods count is beyond the bound now.
func (l *ledger) created(pod *corev1.Pod, foreseen corev1.ResourceList) (larger, beyond bool, woken []loop.Key) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.account(pod.Labels[offloadingv1beta1.OriginLabel])
	key := loop.Key{Namespace: pod.Namespace, Name: pod.Name}
	need := rules.Requests(pod)
	if r := a.reserved[key]; r != nil && !r.sent.IsZero() {
		next := *r
		next.need, next.tried = need, true
		a.reserve(key, &next)
		woken = l.drain(a)
	}
	if foreseen == nil {
		return false, false, woken
	}
	more := rules.MoreResources(need, foreseen)
	return len(more) > 0, a.bound.Beyond(a.used, more), woken
}

// idle gives back what is held for a key that asks for no pod at present. If one was asked
// for that has not been seen, it may exist nevertheless: then it returns when.
func (l *ledger) idle(key loop.Key) (sent time.Time, woken []loop.Key) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, a := range l.accounts {
		removed := a.forget(key)
		if r := a.reserved[key]; r != nil && !r.sent.IsZero() {
			sent = r.sent
		} else if r != nil {
			a.release(key)
			removed = true
		}
		if removed {
			woken = append(woken, l.drain(a)...)
		}
	}
	return sent, woken
}

// absent gives back the room of a pod that was asked for and is known not to exist.
func (l *ledger) absent(key loop.Key) (woken []loop.Key) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, a := range l.accounts {
		if a.reserved[key] != nil {
			a.release(key)
			woken = append(woken, l.drain(a)...)
		}
	}
	return woken
}

// resized ends a resize: the answer shows the pod as it is now; nil: it was refused.
func (l *ledger) resized(uid types.UID, answer *corev1.Pod) []loop.Key {
	l.mu.Lock()
	defer l.mu.Unlock()
	have := l.pods[uid]
	if have == nil {
		return nil
	}
	l.drop(have)
	have.growth = nil
	a := l.account(have.consumer)
	rules.AddResources(a.used, have.charge())
	if answer == nil {
		return l.drain(a)
	}
	return append(l.count(answer), l.drain(a)...)
}

// quotaSeen takes a Quota of a consumer over.
func (l *ledger) quotaSeen(consumer string, q *offloadingv1beta1.Quota) []loop.Key {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.account(consumer)
	have := a.quotas[q.Name]
	switch {
	case have == nil && l.over(q.ResourceVersion, l.quotas.version, l.quotas.at):
		return nil
	case have != nil && have.UID == q.UID && l.over(q.ResourceVersion, have.ResourceVersion, l.quotas.at):
		return nil
	}
	a.quotas[q.Name] = q
	return l.rebound(a)
}

func (l *ledger) quotaGone(consumer string, q *offloadingv1beta1.Quota) []loop.Key {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.account(consumer)
	if have := a.quotas[q.Name]; have == nil || have.UID != q.UID {
		return nil
	}
	delete(a.quotas, q.Name)
	return l.rebound(a)
}

// rebound works the bound out anew. Who still waits may do so for another reason now.
func (l *ledger) rebound(a *account) []loop.Key {
	a.bound = rules.SumQuotas(slices.Collect(maps.Values(a.quotas)))
	return append(l.drain(a), a.keys()...)
}

func (l *ledger) bounded(consumer string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.account(consumer).bound.Quotas > 0
}

// place has a pod that is about to be created run where the consumer's may.
func (l *ledger) place(consumer string, spec *corev1.PodSpec) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.account(consumer).bound.Place(spec)
}

// Account is what is known of one consumer.
type Account struct {
	// Consumer is its cluster id.
	Consumer string
	// Used is what its pods count, those under way included.
	Used corev1.ResourceList
	// Limit is what its Quotas allow, those that are cordoned left out; without Quotas it
	// is empty.
	Limit corev1.ResourceList
	// Waiting is the number of its ShadowPods that wait.
	Waiting int
}

func (l *ledger) report() []Account {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.leading {
		return nil
	}
	out := make([]Account, 0, len(l.accounts))
	for _, consumer := range slices.Sorted(maps.Keys(l.accounts)) {
		a := l.accounts[consumer]
		out = append(out, Account{Consumer: consumer, Used: maps.Clone(a.used), Limit: maps.Clone(a.bound.Resources), Waiting: len(a.waiting)})
	}
	return out
}

func isOwner(pod *corev1.Pod, shadow types.UID) bool {
	owner := metav1.GetControllerOf(pod)
	return owner != nil && owner.UID == shadow
}
