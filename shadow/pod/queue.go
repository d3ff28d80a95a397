package pod

import (
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/shadow/rules"
)

// ask is a request for room for the pod of a ShadowPod.
type ask struct {
	consumer   string
	key        loop.Key
	shadow     types.UID
	generation int64
	// created is the creation time of the ShadowPod. Older asks come first.
	created time.Time
	// need is the amount beyond the pod's current charge; total is the whole charge.
	need, total corev1.ResourceList
	// resize: the pod already runs. A waiting resize never holds other asks back.
	resize bool
	// kept: the room was kept from a lost pod of the same ShadowPod, so other asks do not
	// compete for it.
	kept bool
	// foreseen: need is a prediction of what the API server makes of the pod. tried: need
	// is the result of a dry run.
	foreseen, tried bool
	// undeclared names, per level of enforcement, the required declarations that the pod
	// lacks.
	undeclared map[offloadingv1beta1.LimitsEnforcement]string
	// nodes is the pod's own node selector. A resize does not use it.
	nodes map[string]string
}

// verdict is the answer to an ask.
type verdict struct {
	// reason is a condition reason, and message its text. Both are empty if the room is
	// reserved.
	reason, message string
	// parked: the ledger is not settled yet. The key is woken when it is.
	parked bool
	// tried: the reserved room was measured by a dry run.
	tried bool
}

// admit reserves room for w, or queues it.
func (l *ledger) admit(w ask) (verdict, []loop.Key) {
	a := l.account(w.consumer)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.inherit(&w)
	var sent time.Time
	if r := a.reserved[w.key]; r != nil {
		if r.holdsFor(&w) {
			l.forget(a, w.key)
			r.tried = r.tried || w.tried
			return verdict{tried: r.tried}, l.drain(a)
		}
		w.kept = r.kept && r.shadow == w.shadow && len(rules.MoreResources(w.need, r.need)) == 0
		// The ask is judged as if its reservation were free. A pod whose creation was sent
		// may exist, so the ask needs at least the room reserved for it.
		if sent = r.sent; !sent.IsZero() {
			w.need = rules.MaxResources(r.need, w.need)
		}
		l.release(a, w.key)
	}
	v := verdict{tried: w.tried}
	switch {
	case a.bound.Quotas == 0:
	case !l.settled.Load():
		v = verdict{parked: true}
		l.ask()
	default:
		if found := l.judge(a, &w); found.reason != "" {
			v = found
		}
	}
	if v.parked || v.reason != "" {
		l.enqueue(a, w)
		return v, l.drain(a)
	}
	l.forget(a, w.key)
	l.reserve(a, w.key, w.reservation())
	a.reserved[w.key].sent = sent
	return v, l.drain(a)
}

// inherit copies the result of an earlier dry run from the waiting ask of the same key.
func (a *account) inherit(w *ask) {
	have := a.creates.asks[w.key]
	if have == nil || w.tried {
		return
	}
	if have.tried && have.shadow == w.shadow && have.generation == w.generation {
		w.need, w.total, w.undeclared, w.tried = have.need, have.total, have.undeclared, true
	}
}

// holdsFor reports whether the reservation suffices for w as it is.
func (r *reservation) holdsFor(w *ask) bool {
	same := r.shadow == w.shadow && r.generation == w.generation
	return !r.kept && same && (r.tried || len(rules.MoreResources(w.need, r.need)) == 0)
}

func (w *ask) reservation() *reservation {
	return &reservation{shadow: w.shadow, generation: w.generation, need: w.need, foreseen: w.foreseen, tried: w.tried}
}

// grow counts a resize before it is sent, or queues it. resume then wakes the resizes that
// waited behind it.
func (l *ledger) grow(pod *corev1.Pod, w ask) verdict {
	a := l.accountOf(pod)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.pods[pod.UID] == nil {
		l.count(a, pod) // its event is on its way
	}
	have := a.pods[pod.UID]
	if have == nil || have.ended() {
		return verdict{parked: true} // the pod has ended
	}
	before := have.growth
	rules.SubResources(a.used, before)
	// An earlier resize whose answer was lost may have been applied, so its growth still
	// counts.
	w.need = rules.MaxResources(before, rules.MoreResources(w.total, have.requests))
	v := verdict{}
	switch {
	case a.bound.Quotas == 0:
	case !l.settled.Load():
		v.parked = true
		l.ask()
	default:
		v = l.judge(a, &w)
	}
	if v == (verdict{}) {
		have.growth = w.need
		l.forget(a, w.key)
	} else {
		l.enqueue(a, w)
	}
	rules.AddResources(a.used, have.growth)
	return v
}

// ask requests the list of pods that settles the ledger.
func (l *ledger) ask() {
	select {
	case l.needed <- struct{}{}:
	default:
	}
}

// judge reports whether there is room for w. The caller has subtracted the room that w
// holds itself.
func (l *ledger) judge(a *account, w *ask) verdict {
	if v := a.alone(w); v.reason != "" || len(w.need) == 0 {
		return v
	}
	if short := a.bound.Short(a.used, w.need); len(short) > 0 {
		return noRoom(w, "its quota has no room left ("+a.bound.Tell(short, w.total)+")")
	}
	if first := a.creates.first(w.key); first != nil && !w.kept && older(&first.ask, w) && l.holds(first) {
		return noRoom(w, "other pods have waited longer for room in its quota")
	}
	return verdict{}
}

func noRoom(w *ask, why string) verdict {
	return verdict{reason: offloadingv1beta1.ReasonQuotaExceeded, message: fmt.Sprintf("the pod of cluster %s waits: %s", w.consumer, why)}
}

// reason checks what no other pod can change: the declarations, the nodes, cordoned Quotas,
// and the size of the pod against the whole bound.
func (a *account) reason(w *ask) string {
	switch {
	case w.undeclared[a.bound.Enforcement] != "":
		return offloadingv1beta1.ReasonQuotaUndeclared
	case !w.resize && a.bound.Misplaced(w.nodes) != "":
		return offloadingv1beta1.ReasonQuotaNodeSelector
	case len(w.need) == 0:
		return ""
	case a.bound.Cordoned:
		return offloadingv1beta1.ReasonQuotaCordoned
	case len(tooLarge(a.bound, w)) > 0:
		return offloadingv1beta1.ReasonQuotaTooSmall
	}
	return ""
}

// alone is reason with its text.
func (a *account) alone(w *ask) verdict {
	v := verdict{reason: a.reason(w)}
	switch v.reason {
	case offloadingv1beta1.ReasonQuotaUndeclared:
		v.message = fmt.Sprintf("the quota of cluster %s %s (%s): %s",
			w.consumer, rules.WordsUndeclared, a.bound.Enforcement, w.undeclared[a.bound.Enforcement])
	case offloadingv1beta1.ReasonQuotaNodeSelector:
		v.message = fmt.Sprintf("the pod of cluster %s selects nodes that the cluster may not use: %s", w.consumer, a.bound.Misplaced(w.nodes))
	case offloadingv1beta1.ReasonQuotaCordoned:
		v.message = fmt.Sprintf("the quota of cluster %s is cordoned: no new pod starts", w.consumer)
	case offloadingv1beta1.ReasonQuotaTooSmall:
		v.message = fmt.Sprintf("%s of cluster %s (%s)", rules.WordsTooSmall, w.consumer, a.bound.Tell(tooLarge(a.bound, w), w.total))
	}
	return v
}

// tooLarge returns the requested resources of which w alone exceeds the bound.
func tooLarge(b rules.Bound, w *ask) []corev1.ResourceName {
	return slices.DeleteFunc(b.Short(nil, w.total), func(name corev1.ResourceName) bool {
		_, asked := w.need[name]
		return !asked
	})
}

// holds reports whether w keeps younger asks from overtaking it. It does once it is older
// than the patience, if it lacks nothing but room.
func (l *ledger) holds(w *waiter) bool {
	return !w.resize && w.reason == "" && l.clock.Since(w.created) >= l.patience
}

// enqueue inserts w by age, and replaces an earlier ask of its key.
func (l *ledger) enqueue(a *account, w ask) {
	next := &waiter{ask: w, reason: a.reason(&w)}
	in, other := &a.creates, &a.grows
	if w.resize {
		in, other = other, in
	}
	for _, had := range []*waiter{in.take(w.key), other.take(w.key)} {
		a.freed = a.freed || had != nil && l.holds(had) && !l.holds(next)
	}
	in.put(next)
	l.keys.add(w.key, a)
}

// forget removes the waiting ask of key.
func (l *ledger) forget(a *account, key loop.Key) {
	for _, in := range []*line{&a.creates, &a.grows} {
		if had := in.take(key); had != nil {
			a.freed = a.freed || had.resize || l.holds(had)
			l.forgetKey(a, key)
		}
	}
}

// waiting returns the keys of all asks that wait.
func (a *account) waiting() []loop.Key {
	return slices.AppendSeq(slices.Collect(maps.Keys(a.creates.asks)), maps.Keys(a.grows.asks))
}

// glance is how many asks a pass looks at before it lets its consumer's other work go on.
const glance = 64

// turnKey returns the key that continues a pass for a consumer. No ShadowPod has it, as it
// has no namespace.
func turnKey(consumer string) loop.Key { return loop.Key{Name: consumer} }

// resume continues the pass of a consumer.
func (l *ledger) resume(consumer string) []loop.Key {
	a := l.account(consumer)
	a.mu.Lock()
	defer a.mu.Unlock()
	return l.drain(a)
}

// drain reserves free room for waiting asks, oldest first, and returns their keys. A resize
// gets no reservation here; it stays in the queue, and its key is returned for another
// sync. An ask with the same need as an older one that waits is not looked at. After glance
// asks the last key is that of the consumer's turn.
func (l *ledger) drain(a *account) []loop.Key {
	if !l.settled.Load() {
		return nil
	}
	if a.freed {
		a.freed, a.creates.from, a.grows.from = false, &ask{}, &ask{}
	}
	if a.creates.from == nil && a.grows.from == nil {
		return nil
	}
	turn, held := l.pass(a, &a.creates, nil)
	more, _ := l.pass(a, &a.grows, held)
	turn = append(turn, more...)
	if a.freed || a.creates.from != nil || a.grows.from != nil {
		turn = append(turn, turnKey(a.consumer))
	}
	return turn
}

// pass looks at the next asks of a line, up to the first one that is not older than before.
// held is the ask that no younger one may overtake.
func (l *ledger) pass(a *account, in *line, before *ask) (turn []loop.Key, held *ask) {
	if in.from == nil {
		return nil, nil
	}
	i := in.place(in.from)
	in.from = nil
	for looked := 0; i < len(in.order); looked++ {
		w := in.order[i].oldest()
		if looked == glance {
			in.from = &w.ask
			break
		}
		if before != nil && !older(&w.ask, before) {
			break
		}
		switch fits := len(a.bound.Short(a.used, w.need)) == 0; {
		case fits && w.resize:
			turn = append(turn, w.key)
			i++
		case fits:
			turn = append(turn, w.key)
			in.take(w.key)
			l.reserve(a, w.key, w.reservation())
		case l.holds(w):
			return turn, &w.ask
		default:
			i++
		}
	}
	return turn, nil
}
