package pod

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	offloadingv1beta1listers "github.com/liqod/liqod/api/generated/listers/offloading/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/shadow/rules"
)

// Ledger decides on the room of all consumers. Its methods are safe for concurrent use. A
// pod that may or may not exist counts. What frees room gives it to the oldest ShadowPods
// that wait, and wakes them.
type Ledger struct {
	cfg   LedgerConfig
	again func(*corev1.Pod) bool
	wake  func(loop.Key)
	// loop has one key per consumer. It gives free room to those that wait.
	loop   *loop.Loop
	quotas offloadingv1beta1listers.QuotaLister

	mu       sync.Mutex // guards all below; it is held for few steps at a time
	accounts map[string]*account
	claims   map[loop.Key]*claim
	asks     map[loop.Key]*ask
	// began is when the term began; zero: this process does not lead.
	began time.Time
	// settled: the pods of the previous leader, including its last creation, are counted.
	settled bool
}

// account is the state of one consumer.
type account struct {
	consumer string // its cluster id
	// used is the sum of the charges of its claims.
	used corev1.ResourceList
	// line has its ShadowPods that wait and lack nothing but room, oldest first.
	line []*ask
	// freed: since the line was last looked at, an ask in it may have got room.
	freed bool
}

// Verdict is the answer to a ShadowPod that needs room.
type Verdict struct {
	// Reason is the reason of the condition Enforced, and Message its text. Both are empty if
	// the room is reserved, or not decided yet.
	Reason, Message string
	// Later: the Ledger does not decide before it has counted the pods of the previous leader.
	// It wakes the key then.
	Later bool
	// predicted is the size of the pod that was reserved; nil: its consumer has no Quota.
	predicted corev1.ResourceList
}

// OK reports whether the room is reserved.
func (v Verdict) OK() bool { return v.Reason == "" && !v.Later }

// ask is a ShadowPod that needs room.
type ask struct {
	consumer   string
	account    *account // while it waits
	key        loop.Key
	shadow     types.UID
	generation int64
	// created is the creation time of the ShadowPod. Older asks come first.
	created time.Time
	// total is the size of the pod; need is what it lacks of that.
	need, total corev1.ResourceList
	// resize: the pod already runs. A waiting resize never holds other asks back.
	resize bool
	// spec is the pod's; nil while the ask waits.
	spec *corev1.PodSpec
}

func newAsk(shadow *offloadingv1beta1.ShadowPod, consumer string, sized *corev1.Pod) *ask {
	return &ask{
		consumer: consumer, key: loop.Key{Namespace: shadow.Namespace, Name: shadow.Name},
		shadow: shadow.UID, generation: shadow.Generation, created: shadow.CreationTimestamp.Time,
		total: rules.Requests(sized), spec: &sized.Spec,
	}
}

// Reserve reserves room for the pod of shadow, and adds the node constraints of the
// consumer's Quotas to it. Without room the ShadowPod waits, and is woken when it has got
// room. A second call for the same ShadowPod reserves nothing more.
func (l *Ledger) Reserve(shadow *offloadingv1beta1.ShadowPod, pod *corev1.Pod) Verdict {
	consumer := pod.Labels[offloadingv1beta1.OriginLabel]
	bound, sized := l.bound(consumer), pod
	if bound.Quotas > 0 {
		ranges := store.Listed(l.cfg.LimitRanges.Lister().LimitRanges(pod.Namespace).List(labels.Everything()))
		sized = rules.Predict(pod, ranges, l.overhead(pod))
	}
	w := newAsk(shadow, consumer, sized)
	l.mu.Lock()
	defer l.mu.Unlock()
	bound = l.bound(consumer)
	v := l.admit(w, bound)
	if v.OK() {
		bound.Place(&pod.Spec)
	}
	return v
}

// overhead returns the pod overhead of the pod's RuntimeClass.
func (l *Ledger) overhead(pod *corev1.Pod) corev1.ResourceList {
	if pod.Spec.RuntimeClassName == nil {
		return nil
	}
	class, err := l.cfg.RuntimeClasses.Lister().Get(*pod.Spec.RuntimeClassName)
	if err != nil || class.Overhead == nil {
		return nil // the API server rejects a pod with an unknown class
	}
	return class.Overhead.PodFixed
}

// Grow reserves room for a resize of pod to the resources of want. Without room the
// ShadowPod waits, and is woken for another attempt. Later: the pod has ended, or the Ledger
// does not decide yet.
func (l *Ledger) Grow(shadow *offloadingv1beta1.ShadowPod, pod, want *corev1.Pod) Verdict {
	w, again := newAsk(shadow, want.Labels[offloadingv1beta1.OriginLabel], rules.Resized(pod, want)), l.again(pod)
	w.resize = true
	l.mu.Lock()
	defer l.mu.Unlock()
	if c := l.claims[w.key]; c == nil || c.pod != pod.UID {
		l.count(pod, again, false) // its event is on its way
	}
	if c := l.claims[w.key]; c.pod != pod.UID || len(c.requests) == 0 {
		return Verdict{Later: true}
	}
	return l.admit(w, l.bound(w.consumer))
}

// admit reserves room for w, or queues it. It decides as if what is reserved for w already
// were free.
func (l *Ledger) admit(w *ask, bound rules.Bound) Verdict {
	a, have := l.account(w.consumer), claim{}
	if c := l.claims[w.key]; c != nil {
		a, have = c.account, *c
	}
	if have.shadow == w.shadow && have.generation == w.generation && len(have.least) > 0 {
		w.total = rules.MaxResources(w.total, have.least)
	}
	w.need = rules.MoreResources(w.total, have.requests)
	// What was given to this ShadowPod before, or left to it by a lost pod, is not competed for.
	given := have.shadow == w.shadow && len(have.extra) > 0 && len(rules.MoreResources(w.need, have.extra)) == 0
	if w.resize || !have.sent.IsZero() { // done perhaps, and its answer was lost
		w.need = rules.MaxResources(have.extra, w.need)
	}
	used := maps.Clone(a.used)
	rules.SubResources(used, have.extra)
	v := l.judge(a, w, bound, used, given && !w.resize)
	switch {
	case v.OK():
		l.forget(w.key)
		l.take(a, w)
		if bound.Quotas > 0 {
			v.predicted = w.total
		}
	default:
		l.enqueue(a, w, v.Later || v.Reason == offloadingv1beta1.ReasonQuotaExceeded)
		if !w.resize && have.sent.IsZero() {
			l.change(a, w.key, func(c *claim) { c.extra = nil })
		}
	}
	l.drain(a)
	return v
}

// take turns an ask into a claim.
func (l *Ledger) take(a *account, w *ask) {
	l.change(a, w.key, func(c *claim) {
		c.extra, c.resize = w.need, w.resize
		if !w.resize {
			c.shadow, c.generation = w.shadow, w.generation
		}
	})
}

// judge reports whether there is room for w beside used. given: no other ask competes for
// the room of w.
func (l *Ledger) judge(a *account, w *ask, bound rules.Bound, used corev1.ResourceList, given bool) Verdict {
	switch {
	case bound.Quotas == 0:
		return Verdict{}
	case !l.settled:
		l.loop.Add(loop.Key{Name: a.consumer})
		return Verdict{Later: true}
	}
	if w.resize {
		bound.Nodes = nil // the pod stays on its node
	}
	if reason, message := bound.Alone(w.consumer, w.spec, w.total, w.need); reason != "" {
		return Verdict{Reason: reason, Message: message}
	}
	if short := bound.Short(used, w.need); len(short) > 0 {
		return w.noRoom("its quota has no room left (" + bound.Tell(short, w.total) + ")")
	}
	first := slices.IndexFunc(a.line, func(o *ask) bool { return !o.resize && o.key != w.key })
	if !given && first >= 0 && order(a.line[first], w) < 0 && l.holds(a.line[first]) {
		return w.noRoom("other pods have waited longer for room in its quota")
	}
	return Verdict{}
}

func (w *ask) noRoom(why string) Verdict {
	return Verdict{Reason: offloadingv1beta1.ReasonQuotaExceeded, Message: fmt.Sprintf("the pod of cluster %s waits: %s", w.consumer, why)}
}

// bound returns what the Quotas of a consumer allow together.
func (l *Ledger) bound(consumer string) rules.Bound {
	quotas := store.Listed(l.quotas.Quotas(corev1beta1.TenantNamespace(consumer)).List(labels.Everything()))
	return rules.SumQuotas(quotas)
}

// account returns the account of a consumer.
func (l *Ledger) account(consumer string) *account {
	a := l.accounts[consumer]
	if a == nil {
		a = &account{consumer: consumer, used: corev1.ResourceList{}}
		l.accounts[consumer] = a
	}
	return a
}

// claim is the room that one pod name takes: that of the pod that exists under the name, and
// what is reserved beyond it. At most one pod of a name exists at a time.
type claim struct {
	account *account

	// pod is the UID of the pod that exists; empty: none is known. version is its newest
	// resource version, read at the time at.
	pod      types.UID
	version  string
	at       time.Time
	requests corev1.ResourceList // empty: the pod has ended

	// extra is reserved for a pod to be created, for the successor of a lost pod, or, with
	// resize, for what a resize in flight may already have added to the pod.
	extra  corev1.ResourceList
	resize bool
	// shadow and generation are the ShadowPod whose new pod extra is for.
	shadow     types.UID
	generation int64
	// sent is when the creation was sent; zero: not sent, or shown by the cache since. Its
	// pod may exist.
	sent time.Time
	// least is the size of a pod of the ShadowPod that was larger than predicted and was
	// deleted before it ran.
	least corev1.ResourceList
}

// charge returns the resources that the claim counts for.
func (c *claim) charge() corev1.ResourceList {
	sum := corev1.ResourceList{}
	maps.Copy(sum, c.requests)
	rules.AddResources(sum, c.extra)
	return sum
}

func keyOf(pod *corev1.Pod) loop.Key { return loop.Key{Namespace: pod.Namespace, Name: pod.Name} }

// change changes the claim of key in one step with the sum of its account, and drops a claim
// that holds nothing. It creates the claim in account a if there is none, and returns the
// account of the claim.
func (l *Ledger) change(a *account, key loop.Key, act func(*claim)) *account {
	c := l.claims[key]
	if c == nil {
		c = &claim{account: a}
		l.claims[key] = c
	}
	before := c.charge()
	act(c)
	if c.pod == "" && len(c.extra) == 0 && len(c.least) == 0 {
		delete(l.claims, key)
	}
	if after := c.charge(); !equality.Semantic.DeepEqual(before, after) {
		rules.SubResources(c.account.used, before)
		rules.AddResources(c.account.used, after)
		c.account.freed = c.account.freed || len(rules.MoreResources(before, after)) > 0
	}
	return c.account
}

// update changes the claim of key if there is one, and gives away what that frees.
func (l *Ledger) update(key loop.Key, act func(*claim)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c := l.claims[key]; c != nil {
		l.drain(l.change(c.account, key, act))
	}
}

// Seen counts a pod that the cache of pods shows, in its newest state.
func (l *Ledger) Seen(pod *corev1.Pod) {
	again := l.again(pod)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.count(pod, again, true)
}

// count counts a pod unless a newer state of its name is counted. A pod that has been counted
// stays in its account, whatever its labels become. cached: the cache shows it.
func (l *Ledger) count(pod *corev1.Pod, again, cached bool) {
	key := keyOf(pod)
	if c := l.claims[key]; c != nil && c.pod != "" && store.OlderVersion(pod.ResourceVersion, c.version) && !l.wentBack(c.at) {
		return
	}
	ended := offloadingv1beta1.Ended(pod.Status.Phase) && !again
	a := l.change(l.account(pod.Labels[offloadingv1beta1.OriginLabel]), key, func(c *claim) {
		created := !c.resize && !c.sent.IsZero() && types.UID(pod.Annotations[offloadingv1beta1.ShadowPodUIDAnnotation]) == c.shadow
		if created || c.resize && (ended || c.pod != pod.UID) {
			c.extra, c.resize = nil, false
		}
		if created && cached {
			c.sent = time.Time{}
		}
		c.pod, c.version, c.at, c.requests = pod.UID, pod.ResourceVersion, l.cfg.Clock.Now(), nil
		if !ended {
			c.requests = rules.Requests(pod)
		}
	})
	l.drain(a)
}

// wentBack reports whether the state of the cluster has gone back since. Resource versions
// prove nothing then.
func (l *Ledger) wentBack(since time.Time) bool {
	return l.cfg.HomeLost != nil && l.cfg.HomeLost().After(since)
}

// Gone stops counting a deleted pod. Its room is kept for the ShadowPod with the UID
// successor, unless that is empty.
func (l *Ledger) Gone(pod *corev1.Pod, successor types.UID) {
	l.update(keyOf(pod), func(c *claim) {
		if c.pod != pod.UID {
			return
		}
		switch {
		case !c.resize && len(c.extra) > 0:
			c.extra = c.charge() // it was what the next pod needs beyond this one
		case successor != "" && !l.began.IsZero():
			c.shadow, c.generation, c.extra, c.sent = successor, 0, c.requests, time.Time{}
		default:
			c.extra, c.sent = nil, time.Time{}
		}
		c.pod, c.requests, c.resize = "", nil, false
	})
}

// Sent records that the creation of the pod is about to be sent.
func (l *Ledger) Sent(key loop.Key) { l.update(key, func(c *claim) { c.sent = l.cfg.Clock.Now() }) }

// Created counts the pod in the answer of a creation, unless the cache has shown it first.
// v is the answer of Reserve. Created reports whether the pod is larger than predicted, so
// that its consumer now exceeds its Quotas.
func (l *Ledger) Created(pod *corev1.Pod, v Verdict) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.claims[keyOf(pod)]
	if c != nil && !c.sent.IsZero() {
		l.count(pod, false, false)
	}
	if c == nil || v.predicted == nil {
		return false
	}
	return l.bound(c.account.consumer).Beyond(c.account.used, rules.MoreResources(rules.Requests(pod), v.predicted))
}

// TakenBack records that a new pod was deleted before it ran. The next Reserve for its
// ShadowPod asks for the size of this pod.
func (l *Ledger) TakenBack(pod *corev1.Pod) {
	l.update(keyOf(pod), func(c *claim) {
		c.pod, c.requests, c.extra, c.sent, c.least = "", nil, nil, time.Time{}, rules.Requests(pod)
	})
}

// Absent releases the room of a creation whose pod does not exist.
func (l *Ledger) Absent(key loop.Key) {
	l.update(key, func(c *claim) { c.extra, c.sent = nil, time.Time{} })
}

// Idle releases what is held for a ShadowPod that needs no new pod at present, except the
// room of a creation that was sent and that no cache has shown: its pod may exist. It returns
// the time of that creation, or zero.
func (l *Ledger) Idle(key loop.Key) (sent time.Time) {
	l.mu.Lock()
	a := l.forget(key)
	if a != nil {
		l.drain(a)
	}
	l.mu.Unlock()
	l.update(key, func(c *claim) {
		if sent = c.sent; sent.IsZero() && !c.resize {
			c.extra, c.least = nil, nil
		}
	})
	return sent
}

// Resized ends a resize of pod. answer is the resized pod, or nil if the resize was refused.
func (l *Ledger) Resized(pod, answer *corev1.Pod) {
	l.update(keyOf(pod), func(c *claim) {
		if c.pod == pod.UID && c.resize {
			c.extra, c.resize = nil, false
		}
	})
	if answer != nil {
		l.Seen(answer)
	}
}
