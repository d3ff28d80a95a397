package quota

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	offloadingv1beta1listers "github.com/liqod/liqod/api/generated/listers/offloading/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/shadow/rules"
)

// Ledger decides on the room of all consumers. Its methods are safe for concurrent use. A
// pod that may or may not exist counts. What frees room gives it to the oldest ShadowPods
// that wait, and wakes them.
type Ledger struct {
	cfg Config
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
func (l *Ledger) Reserve(shadow *offloadingv1beta1.ShadowPod, pod *corev1.Pod) (Verdict, error) {
	consumer := pod.Labels[offloadingv1beta1.OriginLabel]
	bound, sized := l.bound(consumer), pod
	if bound.Quotas > 0 {
		ranges, err := l.cfg.LimitRanges.Lister().LimitRanges(pod.Namespace).List(labels.Everything())
		if err != nil {
			return Verdict{}, fmt.Errorf("looking up LimitRanges of namespace %s: %w", pod.Namespace, err)
		}
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
	return v, nil
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
	w, again := newAsk(shadow, want.Labels[offloadingv1beta1.OriginLabel], rules.Resized(pod, want)), l.cfg.Again(pod)
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
	if v := w.alone(bound); !v.OK() {
		return v
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

// alone checks what no other pod can change: the declarations, the nodes, cordoned Quotas,
// and the size of the pod against the whole bound.
func (w *ask) alone(bound rules.Bound) Verdict {
	undeclared, misplaced := rules.Undeclared(w.spec, bound.Enforcement), bound.Misplaced(w.spec.NodeSelector)
	// What w needs nothing of is not looked at.
	large := slices.DeleteFunc(bound.Short(nil, w.total), func(name corev1.ResourceName) bool { _, needed := w.need[name]; return !needed })
	switch {
	case undeclared != "":
		return Verdict{Reason: offloadingv1beta1.ReasonQuotaUndeclared, Message: fmt.Sprintf(
			"the quota of cluster %s %s (%s): %s", w.consumer, rules.WordsUndeclared, bound.Enforcement, undeclared)}
	case !w.resize && misplaced != "":
		return Verdict{Reason: offloadingv1beta1.ReasonQuotaNodeSelector, Message: fmt.Sprintf(
			"the pod of cluster %s selects nodes that the cluster may not use: %s", w.consumer, misplaced)}
	case len(w.need) > 0 && bound.Cordoned:
		return Verdict{Reason: offloadingv1beta1.ReasonQuotaCordoned, Message: fmt.Sprintf("the quota of cluster %s is cordoned: no new pod starts", w.consumer)}
	case len(large) > 0:
		return Verdict{Reason: offloadingv1beta1.ReasonQuotaTooSmall, Message: fmt.Sprintf(
			"%s of cluster %s (%s)", rules.WordsTooSmall, w.consumer, bound.Tell(large, w.total))}
	}
	return Verdict{}
}

// Consumer returns the cluster id of the consumer that a Quota applies to, taken from the
// name of its tenant namespace. A Quota in any other namespace applies to no consumer.
func Consumer(q *offloadingv1beta1.Quota) (string, bool) {
	return strings.CutPrefix(q.Namespace, corev1beta1.TenantNamespacePrefix)
}

// bound returns what the Quotas of a consumer allow together.
func (l *Ledger) bound(consumer string) rules.Bound {
	quotas, err := l.quotas.Quotas(corev1beta1.TenantNamespace(consumer)).List(labels.Everything())
	if err != nil {
		return rules.Bound{} // a lister fails only for an invalid selector
	}
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
