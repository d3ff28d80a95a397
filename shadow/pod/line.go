package pod

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/liqod/liqod/kube/loop"
)

// waiter is an ask that waits for room.
type waiter struct {
	ask
	// reason is why the ask waits independently of other pods; empty: it lacks only room.
	reason string
	lane   *lane // nil if reason is set
}

// lane is the asks of equal need in a line, oldest first. If the oldest does not fit, none
// does.
type lane struct {
	need  string
	waits []*waiter
}

func (n *lane) oldest() *waiter { return n.waits[0] }

// line is the waiting asks of one consumer, either for new pods or for resizes.
type line struct {
	asks  map[loop.Key]*waiter
	lanes map[string]*lane // by need
	order []*lane          // by their oldest asks
	// from is the oldest ask that the current pass has not looked at; nil: no pass is under
	// way.
	from *ask
}

func newLine() line { return line{asks: map[loop.Key]*waiter{}, lanes: map[string]*lane{}} }

// put inserts w by age. There is no ask of its key in the line.
func (l *line) put(w *waiter) {
	l.asks[w.key] = w
	if w.reason != "" {
		return
	}
	name := needOf(w.need)
	n := l.lanes[name]
	if n == nil {
		n = &lane{need: name}
		l.lanes[name] = n
	} else {
		l.unlist(n)
	}
	i, _ := slices.BinarySearchFunc(n.waits, w, byAge)
	n.waits = slices.Insert(n.waits, i, w)
	w.lane = n
	l.list(n)
}

// take removes the ask of key. It returns nil if there is none.
func (l *line) take(key loop.Key) *waiter {
	w := l.asks[key]
	if w == nil {
		return nil
	}
	delete(l.asks, key)
	n := w.lane
	if n == nil {
		return w
	}
	l.unlist(n)
	i, _ := slices.BinarySearchFunc(n.waits, w, byAge)
	n.waits = slices.Delete(n.waits, i, i+1)
	w.lane = nil
	if len(n.waits) == 0 {
		delete(l.lanes, n.need)
		return w
	}
	l.list(n)
	return w
}

func (l *line) list(n *lane) { l.order = slices.Insert(l.order, l.place(&n.oldest().ask), n) }

func (l *line) unlist(n *lane) {
	i := l.place(&n.oldest().ask)
	l.order = slices.Delete(l.order, i, i+1)
}

// place returns the index of the first lane without asks older than w.
func (l *line) place(w *ask) int {
	i, _ := slices.BinarySearchFunc(l.order, w, func(n *lane, w *ask) int { return order(&n.oldest().ask, w) })
	return i
}

// first returns the oldest ask that lacks only room, other than the one of key. It returns
// nil if there is none.
func (l *line) first(key loop.Key) (oldest *waiter) {
	for _, n := range l.order[:min(len(l.order), 2)] {
		for _, w := range n.waits[:min(len(n.waits), 2)] {
			if w.key != key && (oldest == nil || byAge(w, oldest) < 0) {
				oldest = w
			}
		}
	}
	return oldest
}

func byAge(a, b *waiter) int { return order(&a.ask, &b.ask) }

func older(a, b *ask) bool { return order(a, b) < 0 }

func order(a, b *ask) int {
	return cmp.Or(a.created.Compare(b.created), cmp.Compare(a.key.Namespace, b.key.Namespace), cmp.Compare(a.key.Name, b.key.Name))
}

// needOf returns need as text.
func needOf(need corev1.ResourceList) string {
	var out strings.Builder
	for _, name := range slices.Sorted(maps.Keys(need)) {
		quantity := need[name]
		out.WriteString(string(name) + "=" + quantity.String() + " ")
	}
	return out.String()
}

// index finds the accounts that hold something by a key. Its lock is held for one access
// only, also by callers that hold the lock of an account.
type index[K comparable] struct {
	mu sync.Mutex
	at map[K][]*account
}

func newIndex[K comparable]() *index[K] { return &index[K]{at: map[K][]*account{}} }

func (x *index[K]) of(key K) []*account {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.Clone(x.at[key])
}

func (x *index[K]) add(key K, a *account) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !slices.Contains(x.at[key], a) {
		x.at[key] = append(x.at[key], a)
	}
}

func (x *index[K]) remove(key K, a *account) {
	x.mu.Lock()
	defer x.mu.Unlock()
	rest := slices.DeleteFunc(x.at[key], func(have *account) bool { return have == a })
	if x.at[key] = rest; len(rest) == 0 {
		delete(x.at, key)
	}
}
