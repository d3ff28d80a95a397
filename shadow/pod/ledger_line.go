package pod

import (
	"cmp"
	"slices"

	"github.com/liqod/liqod/kube/loop"
)

// glance is how many waiting asks are looked at in one go.
const glance = 64

// enqueue keeps w, and forgets an earlier ask of its key. inLine: it lacks nothing but room.
func (l *Ledger) enqueue(a *account, w *ask, inLine bool) {
	l.forget(w.key)
	w.account, w.spec = a, nil
	l.asks[w.key] = w
	if inLine {
		i, _ := slices.BinarySearchFunc(a.line, w, order)
		a.line = slices.Insert(a.line, i, w)
	}
}

// forget removes the waiting ask of key, and returns its account.
func (l *Ledger) forget(key loop.Key) *account {
	w := l.asks[key]
	if w == nil {
		return nil
	}
	a := w.account
	delete(l.asks, key)
	if i, found := slices.BinarySearchFunc(a.line, w, order); found && a.line[i] == w {
		a.line = slices.Delete(a.line, i, i+1)
		a.freed = a.freed || l.holds(w)
	}
	return a
}

// order compares two asks by age.
func order(a, b *ask) int {
	return cmp.Or(a.created.Compare(b.created), cmp.Compare(a.key.Namespace, b.key.Namespace), cmp.Compare(a.key.Name, b.key.Name))
}

// holds reports whether w keeps younger asks from overtaking it. It does once it is older
// than the patience.
func (l *Ledger) holds(w *ask) bool {
	return !w.resize && l.cfg.Clock.Since(w.created) >= l.cfg.Patience
}

// drain gives what was freed to the oldest asks. The loop goes on with the others.
func (l *Ledger) drain(a *account) {
	if !a.freed || !l.settled {
		return
	}
	a.freed = false
	if l.pass(a, nil) != nil {
		l.loop.Add(loop.Key{Name: a.consumer})
	}
}

// pass reserves free room for the next asks of a line, beginning with from, nil for the
// oldest, and wakes their keys. It ends at an ask that no younger one may overtake. A resize
// gets no reservation: it stays, and is woken for another attempt. After glance asks pass
// returns the one to continue with.
func (l *Ledger) pass(a *account, from *ask) *ask {
	if !l.settled || len(a.line) == 0 {
		return nil
	}
	i, bound := 0, l.bound(a.consumer)
	if from != nil {
		i, _ = slices.BinarySearchFunc(a.line, from, order)
	}
	for looked := 0; i < len(a.line); looked++ {
		w := a.line[i]
		if looked == glance {
			return w
		}
		fits := len(bound.Short(a.used, w.need)) == 0
		switch {
		case fits && w.resize:
			l.wake(w.key)
			i++
		case fits:
			l.forget(w.key)
			l.take(a, w)
			l.wake(w.key)
		case l.holds(w):
			return nil
		default:
			i++
		}
	}
	return nil
}
