package pod

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/informer"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/shadow/rules"
)

// ledger tracks the resources that each consumer's pods use, including pods that no cache
// shows yet, and the asks that wait for room. Each consumer has an account with a lock of its
// own. The check for room and the reservation are one step under this lock, so the total of
// all creations in flight never exceeds the bound. A pod that may or may not exist counts.
// The methods are safe for concurrent use. Methods that free room return the keys of the
// waiting asks that got it; the caller queues them.
type ledger struct {
	clock    clock.PassiveClock
	patience time.Duration
	lost     func() time.Time // see Config.HomeLost
	// again reports whether a terminated pod is going to be replaced. Its room is kept
	// then.
	again func(*corev1.Pod) bool

	// quotas and listed change while no account is locked, and are read under the lock of an
	// account.
	quotas, listed atomic.Pointer[floor]
	// leading is true during a term. Outside of a term, the ledger keeps no room for lost
	// pods and reports no accounts.
	leading atomic.Bool
	// settled: the pods of the previous leader, including its last creation, have been
	// counted.
	settled atomic.Bool
	// needed receives a value when an ask has to wait for settled.
	needed chan struct{}

	// pods and keys find the account of a pod, and those with a reservation or a waiting ask
	// of a key.
	pods *index[types.UID]
	keys *index[loop.Key]

	mu       sync.Mutex // guards accounts, and is held for one access only
	accounts map[string]*account
}

// floor is the resource version of a consistent list and its time. A cached object that is
// older than the list and missing from it has been deleted.
type floor struct {
	version string
	at      time.Time
}

// account is the state of one consumer.
type account struct {
	consumer string // its cluster id

	mu     sync.Mutex
	quotas map[string]*offloadingv1beta1.Quota // by name
	bound  rules.Bound
	// used is the sum of the charges of pods and reserved.
	used     corev1.ResourceList
	pods     map[types.UID]*counted
	reserved map[loop.Key]*reservation
	// creates and grows are the waiting asks for new pods and for resizes.
	creates, grows line
	// freed: since the last pass began, an ask that waits may have got room.
	freed bool
}

// counted is a pod and its charge.
type counted struct {
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
	l := &ledger{
		clock: c, patience: patience, lost: lost, again: again, accounts: map[string]*account{}, needed: make(chan struct{}, 1),
		pods: newIndex[types.UID](), keys: newIndex[loop.Key](),
	}
	l.quotas.Store(&floor{})
	l.listed.Store(&floor{})
	return l
}

// account returns the account of a consumer.
func (l *ledger) account(consumer string) *account {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.accounts[consumer]
	if a == nil {
		a = &account{
			consumer: consumer, quotas: map[string]*offloadingv1beta1.Quota{}, used: corev1.ResourceList{}, pods: map[types.UID]*counted{},
			reserved: map[loop.Key]*reservation{}, creates: newLine(), grows: newLine(),
		}
		l.accounts[consumer] = a
	}
	return a
}

// all returns the accounts, sorted by consumer.
func (l *ledger) all() []*account {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := slices.Collect(maps.Values(l.accounts))
	slices.SortFunc(out, func(a, b *account) int { return strings.Compare(a.consumer, b.consumer) })
	return out
}

// accountOf returns the account that a pod counts for. A pod that has been counted stays in
// its account, whatever its labels become.
func (l *ledger) accountOf(pod *corev1.Pod) *account {
	if found := l.pods.of(pod.UID); len(found) > 0 {
		return found[0]
	}
	return l.account(pod.Labels[offloadingv1beta1.OriginLabel])
}

// over reports whether an object at resource version version is outdated, given that
// resource version than was seen at the time at. It returns false if the cluster's state
// has gone back since, as resource versions then prove nothing.
func (l *ledger) over(version, than string, at time.Time) bool {
	return than != "" && !l.lost().After(at) && (version == than || informer.OlderVersion(version, than))
}

// seen counts a pod that a cache or an answer shows.
func (l *ledger) seen(pod *corev1.Pod) []loop.Key {
	a := l.accountOf(pod)
	a.mu.Lock()
	defer a.mu.Unlock()
	l.count(a, pod)
	return l.drain(a)
}

func (l *ledger) count(a *account, pod *corev1.Pod) {
	have, listed := a.pods[pod.UID], l.listed.Load()
	switch {
	case have == nil && l.over(pod.ResourceVersion, listed.version, listed.at):
		return
	case have != nil && pod.ResourceVersion != have.version && l.over(pod.ResourceVersion, have.version, listed.at):
		return
	}
	next := &counted{version: pod.ResourceVersion}
	if !rules.Ended(pod) || l.again(pod) {
		next.requests = rules.Requests(pod)
	}
	var before corev1.ResourceList
	key := loop.Key{Namespace: pod.Namespace, Name: pod.Name}
	if have != nil {
		if !next.ended() {
			next.growth = have.growth
		}
		before = have.charge()
	} else if r := a.reserved[key]; r != nil && !r.sent.IsZero() && isOwner(pod, r.shadow) {
		l.release(a, key)
	}
	a.pods[pod.UID] = next
	l.pods.add(pod.UID, a)
	a.charge(before, next.charge())
}

// charge replaces a part of the sum.
func (a *account) charge(before, after corev1.ResourceList) {
	if equality.Semantic.DeepEqual(before, after) {
		return
	}
	rules.SubResources(a.used, before)
	rules.AddResources(a.used, after)
	a.freed = a.freed || len(rules.MoreResources(before, after)) > 0
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

// gone removes a deleted pod. With keep, its room is reserved for its replacement.
func (l *ledger) gone(pod *corev1.Pod, keep bool) []loop.Key {
	a := l.accountOf(pod)
	a.mu.Lock()
	defer a.mu.Unlock()
	have := a.pods[pod.UID]
	if have == nil {
		return nil
	}
	l.drop(a, pod.UID)
	key := loop.Key{Namespace: pod.Namespace, Name: pod.Name}
	if shadow := shadowOf(pod); keep && l.leading.Load() && shadow != "" && a.reserved[key] == nil && len(have.requests) > 0 {
		l.reserve(a, key, &reservation{shadow: shadow, need: have.requests, kept: true})
	}
	return l.drain(a)
}

// drop removes a pod that is counted.
func (l *ledger) drop(a *account, uid types.UID) {
	a.charge(a.pods[uid].charge(), nil)
	delete(a.pods, uid)
	l.pods.remove(uid, a)
}

func (l *ledger) reserve(a *account, key loop.Key, r *reservation) {
	l.release(a, key)
	a.reserved[key] = r
	a.charge(nil, r.need)
	l.keys.add(key, a)
}

func (l *ledger) release(a *account, key loop.Key) {
	if r := a.reserved[key]; r != nil {
		a.charge(r.need, nil)
		delete(a.reserved, key)
		l.forgetKey(a, key)
	}
}

// forgetKey removes a key from the index if the account has nothing of it any more.
func (l *ledger) forgetKey(a *account, key loop.Key) {
	if a.reserved[key] == nil && a.creates.asks[key] == nil && a.grows.asks[key] == nil {
		l.keys.remove(key, a)
	}
}

// send records that a creation is about to be sent. It returns the predicted charge of the
// pod, or nil if no prediction was made.
func (l *ledger) send(consumer string, key loop.Key) corev1.ResourceList {
	a := l.account(consumer)
	a.mu.Lock()
	defer a.mu.Unlock()
	r := a.reserved[key]
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
	a := l.account(consumer)
	a.mu.Lock()
	defer a.mu.Unlock()
	l.release(a, key)
	return l.drain(a)
}

// created counts the pod in the answer of a creation, unless a cache has shown it first.
// larger: the pod exceeds the prediction. beyond: its consumer now exceeds the bound by
// that.
func (l *ledger) created(pod *corev1.Pod, foreseen corev1.ResourceList) (larger, beyond bool, woken []loop.Key) {
	a := l.account(pod.Labels[offloadingv1beta1.OriginLabel])
	a.mu.Lock()
	defer a.mu.Unlock()
	key := loop.Key{Namespace: pod.Namespace, Name: pod.Name}
	need := rules.Requests(pod)
	if r := a.reserved[key]; r != nil && !r.sent.IsZero() {
		next := *r
		next.need, next.tried = need, true
		l.reserve(a, key, &next)
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
	for _, a := range l.keys.of(key) {
		at, keys := l.idleIn(a, key)
		if !at.IsZero() {
			sent = at
		}
		woken = append(woken, keys...)
	}
	return sent, woken
}

func (l *ledger) idleIn(a *account, key loop.Key) (sent time.Time, woken []loop.Key) {
	a.mu.Lock()
	defer a.mu.Unlock()
	l.forget(a, key)
	if r := a.reserved[key]; r != nil && !r.sent.IsZero() {
		sent = r.sent
	} else {
		l.release(a, key)
	}
	return sent, l.drain(a)
}

// absent releases the room of a creation whose pod is known not to exist.
func (l *ledger) absent(key loop.Key) (woken []loop.Key) {
	for _, a := range l.keys.of(key) {
		a.mu.Lock()
		l.release(a, key)
		woken = append(woken, l.drain(a)...)
		a.mu.Unlock()
	}
	return woken
}

// resized ends a resize. answer is the resized pod, or nil if the resize was refused.
func (l *ledger) resized(uid types.UID, answer *corev1.Pod) []loop.Key {
	found := l.pods.of(uid)
	if len(found) == 0 {
		return nil
	}
	a := found[0]
	a.mu.Lock()
	defer a.mu.Unlock()
	have := a.pods[uid]
	if have == nil {
		return nil
	}
	before := have.charge()
	have.growth = nil
	a.charge(before, have.charge())
	if answer != nil {
		l.count(a, answer)
	}
	return l.drain(a)
}

// quotaSeen records a Quota of a consumer, unless it is outdated.
func (l *ledger) quotaSeen(consumer string, q *offloadingv1beta1.Quota) []loop.Key {
	a := l.account(consumer)
	a.mu.Lock()
	defer a.mu.Unlock()
	have, listed := a.quotas[q.Name], l.quotas.Load()
	switch {
	case have == nil && l.over(q.ResourceVersion, listed.version, listed.at):
		return nil
	case have != nil && have.UID == q.UID && l.over(q.ResourceVersion, have.ResourceVersion, listed.at):
		return nil
	}
	a.quotas[q.Name] = q
	return l.rebound(a)
}

func (l *ledger) quotaGone(consumer string, q *offloadingv1beta1.Quota) []loop.Key {
	a := l.account(consumer)
	a.mu.Lock()
	defer a.mu.Unlock()
	if have := a.quotas[q.Name]; have == nil || have.UID != q.UID {
		return nil
	}
	delete(a.quotas, q.Name)
	return l.rebound(a)
}

// rebound computes the bound of an account again. It returns the keys of the asks that wait
// for another reason now, or have got room.
func (l *ledger) rebound(a *account) []loop.Key {
	a.bound = rules.SumQuotas(slices.Collect(maps.Values(a.quotas)))
	a.freed = true
	var changed []loop.Key
	for _, in := range []*line{&a.creates, &a.grows} {
		for _, w := range slices.Collect(maps.Values(in.asks)) {
			if reason := a.reason(&w.ask); reason != w.reason {
				in.take(w.key)
				w.reason = reason
				in.put(w)
				changed = append(changed, w.key)
			}
		}
	}
	if !l.settled.Load() {
		return a.waiting() // they have told no reason yet
	}
	turn := l.drain(a)
	return append(turn, slices.DeleteFunc(changed, func(key loop.Key) bool { return a.creates.asks[key] == nil && a.grows.asks[key] == nil })...)
}

func (l *ledger) bounded(consumer string) bool {
	a := l.account(consumer)
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.bound.Quotas > 0
}

// place adds the node constraints of the consumer's Quotas to a pod spec that is about to
// be created.
func (l *ledger) place(consumer string, spec *corev1.PodSpec) {
	a := l.account(consumer)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.bound.Place(spec)
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
	if !l.leading.Load() {
		return nil
	}
	out := []Account{}
	for _, a := range l.all() {
		a.mu.Lock()
		out = append(out, Account{
			Consumer: a.consumer, Used: maps.Clone(a.used), Limit: maps.Clone(a.bound.Resources), Waiting: len(a.creates.asks) + len(a.grows.asks),
		})
		a.mu.Unlock()
	}
	return out
}

func isOwner(pod *corev1.Pod, shadow types.UID) bool {
	return shadow != "" && shadowOf(pod) == shadow
}
