package workload

import (
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/informer"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/shadow/rules"
)

// ledger tracks the resources that each consumer's pods use, including pods that no cache
// shows yet, and the asks that wait for room. The check for room and the reservation are
// one step under its lock, so the total of all creations in flight never exceeds the bound.
// A pod that may or may not exist counts. The methods are safe for concurrent use. Methods
// that free room return the keys of the waiting asks that got it; the caller queues them.
type ledger struct {
	clock    clock.PassiveClock
	patience time.Duration
	lost     func() time.Time // see Config.HomeLost
	// again reports whether a terminated pod is going to be replaced. Its room is kept
	// then.
	again func(*corev1.Pod) bool

	mu       sync.Mutex
	accounts map[string]*account // by cluster id of the consumer
	pods     map[types.UID]*counted
	quotas   floor
	listed   floor
	// leading is true during a term. Outside of a term, the ledger keeps no room for lost
	// pods and reports no accounts.
	leading bool
	// settled: the pods of the previous leader, including its last creation, have been
	// counted.
	settled bool
	// needed receives a value when an ask has to wait for settled.
	needed chan struct{}
}

// floor is the resource version of a consistent list and its time. A cached object that is
// older than the list and missing from it has been deleted.
type floor struct {
	version string
	at      time.Time
}

// account is the state of one consumer.
type account struct {
	quotas map[string]*offloadingv1beta1.Quota // by name
	bound  rules.Bound
	// used is the sum of the charges of pods and reserved.
	used     corev1.ResourceList
	reserved map[loop.Key]*reservation
	waiting  []*waiter // oldest first
}

// counted is a pod and its charge.
type counted struct {
	consumer string
	version  string
	requests corev1.ResourceList
	// growth is what a resize in flight may already have added.
	growth corev1.ResourceList
}

// reservation is room for a pod that no cache shows yet. There is at most one per key, as
// pod names are unique.
type reservation struct {
	shadow     types.UID
	generation int64
	need       corev1.ResourceList
	// foreseen: need is a prediction of what the API server makes of the pod. tried: need
	// is the result of a dry run.
	foreseen, tried bool
	// sent is when the creation was sent; zero: not yet. From then on the pod may exist,
	// until it is seen or its creation is refused.
	sent time.Time
	// kept: the room of a lost pod, kept for its replacement.
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

// over reports whether an object at resource version version is outdated, given that
// resource version than was seen at the time at. It returns false if the cluster's state
// has gone back since, as resource versions then prove nothing.
func (l *ledger) over(version, than string, at time.Time) bool {
	return than != "" && !l.lost().After(at) && (version == than || informer.OlderVersion(version, than))
}

// seen counts a pod that a cache or an answer shows.
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

// charge returns the resources that the pod counts for.
func (c *counted) charge() corev1.ResourceList {
	if len(c.growth) == 0 {
		return c.requests
	}
	sum := maps.Clone(c.requests)
	rules.AddResources(sum, c.growth)
	return sum
}

// ended reports whether the pod has no charge. The charge of a running pod is never empty,
// as it includes the resource "pods".
func (c *counted) ended() bool { return len(c.requests) == 0 }

func (l *ledger) drop(c *counted) { rules.SubResources(l.account(c.consumer).used, c.charge()) }

// gone removes a deleted pod. With keep, its room is reserved for its replacement.
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
	if shadow := shadowOf(pod); keep && l.leading && shadow != "" && a.reserved[key] == nil && len(have.requests) > 0 {
		a.reserve(key, &reservation{shadow: shadow, need: have.requests, kept: true})
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

// send records that a creation is about to be sent. It returns the predicted charge of the
// pod, or nil if no prediction was made.
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

// refused releases the room of a pod that was certainly not created.
func (l *ledger) refused(consumer string, key loop.Key) []loop.Key {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.account(consumer)
	a.release(key)
	return l.drain(a)
}

// created counts the pod in the answer of a creation, unless a cache has shown it first.
// larger: the pod exceeds the prediction. beyond: its consumer now exceeds the bound by
// that.
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

// idle releases what is held for a key that needs no pod at present, except the room of a
// creation that was sent: its pod may exist. sent is the time of that creation, or zero.
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

// absent releases the room of a creation whose pod is known not to exist.
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

// resized ends a resize. answer is the resized pod, or nil if the resize was refused.
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

// quotaSeen records a Quota of a consumer, unless it is outdated.
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

// rebound computes the bound of an account again. It returns the keys of all waiting asks,
// as their reason to wait may have changed.
func (l *ledger) rebound(a *account) []loop.Key {
	a.bound = rules.SumQuotas(slices.Collect(maps.Values(a.quotas)))
	return append(l.drain(a), a.keys()...)
}

func (l *ledger) bounded(consumer string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.account(consumer).bound.Quotas > 0
}

// place adds the node constraints of the consumer's Quotas to a pod spec that is about to
// be created.
func (l *ledger) place(consumer string, spec *corev1.PodSpec) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.account(consumer).bound.Place(spec)
}

// Account is the usage of one consumer.
type Account struct {
	// Consumer is its cluster id.
	Consumer string
	// Used is the sum of the requests of its pods, including creations and resizes in
	// flight.
	Used corev1.ResourceList
	// Limit is the sum of what its Quotas allow, without cordoned Quotas. It is empty
	// without Quotas.
	Limit corev1.ResourceList
	// Waiting is the number of its ShadowPods that wait for room.
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
	return shadow != "" && shadowOf(pod) == shadow
}
