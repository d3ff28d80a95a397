package host

import (
	"context"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationinformers "k8s.io/client-go/informers/coordination/v1"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	networkingv1beta1 "github.com/liqod/liqod/api/networking/v1beta1"
	"github.com/liqod/liqod/kube/lease"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/netfabric/plan"
)

// forgetAfter is how long ago a gateway must have given back its number, while another is
// alive, before peers learn that it is gone.
const forgetAfter = 5 * time.Minute

// LeaseGateways reads the announcements of this cluster's gateways from their Leases. It
// implements Gateways, and is safe for concurrent use.
type LeaseGateways struct {
	leases cache.SharedIndexInformer
	synced cache.InformerSynced
	log    *zap.Logger
	clock  clock.WithTicker

	listeners loop.Listeners[struct{}]

	mu      sync.Mutex
	known   map[string]*announced // by name of the Lease
	refused map[string]string     // what was logged of a Lease
}

// announced is the content of a Lease, and the state of its gateway.
type announced struct {
	Announcement
	silence  lease.Silence
	duration time.Duration
	doubted  time.Time // when a live read first showed no later renewal; zero: none has
	held     bool      // the Lease names it as its holder
}

// NewLeaseGateways registers with the informer, which sees the Leases of liqod's own
// namespace, and starts nothing.
func NewLeaseGateways(leases coordinationinformers.LeaseInformer, clk clock.WithTicker, log *zap.Logger) *LeaseGateways {
	l := &LeaseGateways{leases: leases.Informer(), log: log, clock: clk, known: map[string]*announced{}, refused: map[string]string{}}
	// A deleted Lease counts as not renewed: its gateway creates it again, or Judge reports it
	// dead. An informer that has stopped, which takes no handler, never counts as synced.
	l.synced, _ = loop.Register(loop.On(l.leases, store.Handler[*coordinationv1.Lease]{Set: func(_, have *coordinationv1.Lease) { l.saw(have) }}))
	return l
}

// HasSynced reports whether the first list has been read.
func (l *LeaseGateways) HasSynced() bool { return l.synced() }

// Subscribe implements Gateways.
func (l *LeaseGateways) Subscribe(f func()) { l.listeners.Subscribe(func(struct{}) { f() }) }

// Gateways implements Gateways.
func (l *LeaseGateways) Gateways() (out []networkingv1beta1.Gateway, known bool) {
	if !l.synced() {
		return nil, false
	}
	for _, a := range l.List() {
		out = append(out, a.Gateway)
	}
	return out, len(out) > 0
}

// Alive implements Gateways.
func (l *LeaseGateways) Alive() bool {
	return !l.synced() || slices.ContainsFunc(l.List(), func(a Announcement) bool { return a.Alive })
}

// MTU implements Gateways.
func (l *LeaseGateways) MTU() (smallest int32) {
	for _, a := range l.List() {
		if a.MTU != 0 {
			smallest = plan.SmallerMTU(smallest, int32(plan.TunnelMTU(a.MTU)))
		}
	}
	return smallest
}

// List returns what gateways announce, or have announced last, by number. A gateway that has
// given back its number stays for a while, and for as long as no other is alive: it may come
// back, and with it the sessions of its peers. One that holds its number and does not renew it
// stays until another has the number: it may have lost its API server alone, and carry packets.
func (l *LeaseGateways) List() (out []Announcement) {
	l.mu.Lock()
	defer l.mu.Unlock()
	alive := false
	for _, a := range l.known {
		alive = alive || a.Alive
	}
	for _, a := range l.known {
		if a.held || !alive || l.clock.Since(a.Since) < forgetAfter {
			out = append(out, a.Announcement)
		}
	}
	return byNumber(out)
}

// saw takes a Lease as it is now.
func (l *LeaseGateways) saw(have *coordinationv1.Lease) {
	if have.Labels[GatewayKey] == "true" && l.update(have) {
		l.notify()
	}
}

// update reports whether something changed but the time of the renewal.
func (l *LeaseGateways) update(have *coordinationv1.Lease) (changed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before, now := l.known[have.Name], l.clock.Now()
	a, err := readAnnouncement(have)
	if err != nil {
		l.refuse(have, err)
		return before != nil && before.unreadable(have, now)
	}
	delete(l.refused, have.Name)
	next := &announced{Announcement: a, duration: lease.Duration(have, 0)}
	next.silence.See(have, now)
	next.held = lease.Holder(have) == a.Name
	next.Alive, next.Since = next.held, now
	if before != nil && before.Name == a.Name {
		if !before.silence.Broken(have) { // only another renewal is a sign of life
			next.Alive, next.silence, next.doubted = next.Alive && before.Alive, before.silence, before.doubted
		}
		if before.Alive == next.Alive && before.held == next.held {
			next.Since = before.Since
		}
	}
	l.known[have.Name] = next
	return before == nil || before.Alive != next.Alive || !before.same(a)
}

// refuse logs once why a Lease cannot be read. A gateway that has only just taken its Lease has
// no annotation there yet.
func (l *LeaseGateways) refuse(have *coordinationv1.Lease, err error) {
	if have.Annotations[GatewayKey] == "" || l.refused[have.Name] == err.Error() {
		return
	}
	l.refused[have.Name] = err.Error()
	l.log.Warn("an announcement of a gateway cannot be read; the last good one counts", zap.String("lease", have.Name), zap.Error(err))
}

// unreadable handles a Lease whose Announcement cannot be read. The last good one stays, and the
// holder of the Lease still shows whether the gateway lives. It reports whether that has
// changed.
func (a *announced) unreadable(have *coordinationv1.Lease, now time.Time) (changed bool) {
	if lease.Holder(have) == a.Name {
		if a.Alive && a.silence.Broken(have) {
			a.silence.See(have, now)
			a.doubted = time.Time{}
		}
		return false
	}
	changed = a.held
	if changed {
		a.Alive, a.held, a.Since = false, false, now
	}
	return changed
}

// same reports whether two Announcements are equal.
func (a Announcement) same(b Announcement) bool {
	return a.Name == b.Name && a.Number == b.Number && slices.Equal(a.Keys(), b.Keys()) && slices.Equal(a.Waits, b.Waits) && slices.Equal(a.Proofs, b.Proofs) && a.WireGuard == b.WireGuard && a.MTU == b.MTU && a.NodeName == b.NodeName &&
		slices.Equal(a.Endpoints, b.Endpoints) && slices.Equal(a.Addresses, b.Addresses)
}

func (l *LeaseGateways) notify() { l.listeners.Tell(struct{}{}) }

// Judge detects dead gateways until ctx is done: those that do not renew their Lease while the
// API server answers. Without it, all count as alive. leases has those of liqod's own namespace.
func (l *LeaseGateways) Judge(ctx context.Context, leases coordinationv1client.LeaseInterface, every time.Duration) error {
	if !cache.WaitForCacheSync(ctx.Done(), l.synced) {
		return nil
	}
	l.notify() // until now it was not known that there are no others
	listed := 0
	for range loop.Ticks(ctx, l.clock, every, nil) {
		for _, name := range l.overdue() {
			l.confirm(ctx, leases, name, 2*every)
		}
		before := listed
		if listed = len(l.List()); listed < before { // one is forgotten
			l.notify()
		}
	}
	return nil
}

// overdue are the Leases that seem to have expired.
func (l *LeaseGateways) overdue() (names []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for name, a := range l.known {
		if a.Alive && a.silence.Left(l.clock.Now(), a.duration) < 0 {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// confirm reads a Lease live: while the API server is away, a gateway that is alive seems
// silent. One read is not enough: a gateway gets a grace period to renew when the API server is
// back. A failed read restarts the grace period.
func (l *LeaseGateways) confirm(ctx context.Context, leases coordinationv1client.LeaseInterface, name string, while time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, confirmTimeout)
	defer cancel()
	have, err := store.OrNil(leases.Get(ctx, name, metav1.GetOptions{}))
	dead, later := l.doubt(name, have, err, while)
	switch {
	case dead:
		l.log.Warn("a gateway is silent", zap.String("lease", name))
		l.notify()
	case later:
		l.saw(have)
	}
}

// doubt handles a live read of a Lease, nil if it is deleted. dead: its gateway is dead. later:
// the Lease has a renewal that the watch has not delivered.
func (l *LeaseGateways) doubt(name string, have *coordinationv1.Lease, err error, while time.Duration) (dead, later bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.known[name]
	switch {
	case a == nil || !a.Alive: // the watch was faster
		return false, false
	case err != nil:
		a.doubted = time.Time{}
		return false, false
	case have != nil && a.silence.Broken(have):
		return false, true
	}
	now := l.clock.Now()
	if a.doubted.IsZero() {
		a.doubted = now
	}
	if now.Sub(a.doubted) < while {
		return false, false
	}
	a.Alive, a.held, a.Since = false, have != nil, now
	return true, false
}

const confirmTimeout = 2 * time.Second
