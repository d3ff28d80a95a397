package workload

import (
	"cmp"
	"fmt"
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

// waiter is an ask that waits for room.
type waiter struct{ ask }

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
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.account(w.consumer)
	a.inherit(&w)
	var sent time.Time
	if r := a.reserved[w.key]; r != nil {
		if r.holdsFor(&w) {
			a.forget(w.key)
			r.tried = r.tried || w.tried
			return verdict{tried: r.tried}, nil
		}
		w.kept = r.kept && r.shadow == w.shadow && len(rules.MoreResources(w.need, r.need)) == 0
		// The ask is judged as if its reservation were free. A pod whose creation was sent
		// may exist, so the ask needs at least the room reserved for it.
		if sent = r.sent; !sent.IsZero() {
			w.need = rules.MaxResources(r.need, w.need)
		}
		a.release(w.key)
	}
	v := verdict{tried: w.tried}
	switch {
	case a.bound.Quotas == 0:
	case !l.settled:
		v = verdict{parked: true}
		l.ask()
	default:
		if found := l.judge(a, &w); found.reason != "" {
			v = found
		}
	}
	if v.parked || v.reason != "" {
		a.enqueue(w)
		return v, l.drain(a)
	}
	a.forget(w.key)
	a.reserve(w.key, w.reservation())
	a.reserved[w.key].sent = sent
	return v, nil
}

// inherit copies the result of an earlier dry run from the waiting ask of the same key.
func (a *account) inherit(w *ask) {
	i := slices.IndexFunc(a.waiting, func(have *waiter) bool { return have.key == w.key })
	if i < 0 || w.tried {
		return
	}
	if have := a.waiting[i]; have.tried && have.shadow == w.shadow && have.generation == w.generation {
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

// grow counts a resize before it is sent, or queues it.
func (l *ledger) grow(pod *corev1.Pod, w ask) verdict {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.pods[pod.UID] == nil {
		l.count(pod) // its event is on its way
	}
	have := l.pods[pod.UID]
	if have == nil || have.ended() {
		return verdict{parked: true} // the pod has ended
	}
	a := l.account(have.consumer)
	before := have.growth
	rules.SubResources(a.used, before)
	// An earlier resize whose answer was lost may have been applied, so its growth still
	// counts.
	w.need = rules.MaxResources(before, rules.MoreResources(w.total, have.requests))
	v := verdict{}
	switch {
	case a.bound.Quotas == 0:
	case !l.settled:
		v.parked = true
		l.ask()
	default:
		v = l.judge(a, &w)
	}
	if v == (verdict{}) {
		have.growth = w.need
		a.forget(w.key)
	} else {
		a.enqueue(w)
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
	for _, other := range a.waiting {
		if w.kept || !older(&other.ask, w) {
			break
		}
		if other.key != w.key && l.holds(a, &other.ask) {
			return noRoom(w, "other pods have waited longer for room in its quota")
		}
	}
	return verdict{}
}

func noRoom(w *ask, why string) verdict {
	return verdict{reason: offloadingv1beta1.ReasonQuotaExceeded, message: fmt.Sprintf("the pod of cluster %s waits: %s", w.consumer, why)}
}

// alone checks what no other pod can change: the declarations, the nodes, cordoned Quotas,
// and the size of the pod against the whole bound.
func (a *account) alone(w *ask) verdict {
	if text := w.undeclared[a.bound.Enforcement]; text != "" {
		return verdict{reason: offloadingv1beta1.ReasonQuotaUndeclared, message: fmt.Sprintf(
			"the quota of cluster %s requires declared CPU and memory (%s): %s", w.consumer, a.bound.Enforcement, text)}
	}
	if text := a.bound.Misplaced(w.nodes); text != "" && !w.resize {
		return verdict{reason: offloadingv1beta1.ReasonQuotaNodeSelector, message: fmt.Sprintf(
			"the pod of cluster %s selects nodes that the cluster may not use: %s", w.consumer, text)}
	}
	if len(w.need) == 0 {
		return verdict{}
	}
	if a.bound.Cordoned {
		return verdict{reason: offloadingv1beta1.ReasonQuotaCordoned, message: fmt.Sprintf("the quota of cluster %s is cordoned: no new pod starts", w.consumer)}
	}
	if short := tooLarge(a.bound, w); len(short) > 0 {
		return verdict{reason: offloadingv1beta1.ReasonQuotaTooSmall, message: fmt.Sprintf(
			"the pod alone is larger than the quota of cluster %s (%s)", w.consumer, a.bound.Tell(short, w.total))}
	}
	return verdict{}
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
func (l *ledger) holds(a *account, w *ask) bool {
	return !w.resize && l.clock.Since(w.created) >= l.patience && a.alone(w).reason == ""
}

func older(a, b *ask) bool { return order(a, b) < 0 }

func order(a, b *ask) int {
	return cmp.Or(a.created.Compare(b.created), cmp.Compare(a.key.Namespace, b.key.Namespace), cmp.Compare(a.key.Name, b.key.Name))
}

// enqueue inserts w by age, and replaces an earlier ask of its key.
func (a *account) enqueue(w ask) {
	a.forget(w.key)
	i, _ := slices.BinarySearchFunc(a.waiting, &w, func(have *waiter, w *ask) int { return order(&have.ask, w) })
	a.waiting = slices.Insert(a.waiting, i, &waiter{w})
}

// forget removes the waiting ask of key. It reports whether there was one.
func (a *account) forget(key loop.Key) bool {
	n := len(a.waiting)
	a.waiting = slices.DeleteFunc(a.waiting, func(w *waiter) bool { return w.key == key })
	return len(a.waiting) < n
}

func (a *account) keys() []loop.Key {
	keys := make([]loop.Key, 0, len(a.waiting))
	for _, w := range a.waiting {
		keys = append(keys, w.key)
	}
	return keys
}

// drain reserves free room for waiting asks, oldest first, and returns their keys. A resize
// gets no reservation here; it stays in the queue, and its key is returned for another
// sync.
func (l *ledger) drain(a *account) []loop.Key {
	if len(a.waiting) == 0 || !l.settled {
		return nil
	}
	var turn []loop.Key
	rest := a.waiting[:0:0]
	held := false
	for _, w := range a.waiting {
		fits := !held && a.alone(&w.ask).reason == "" && len(a.bound.Short(a.used, w.need)) == 0
		switch {
		case fits && w.resize:
			rest, turn = append(rest, w), append(turn, w.key)
		case fits:
			a.reserve(w.key, w.reservation())
			turn = append(turn, w.key)
		default:
			rest = append(rest, w)
			held = held || l.holds(a, &w.ask)
		}
	}
	a.waiting = rest
	return turn
}
