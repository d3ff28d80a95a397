package exchange

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	ipamclient "github.com/liqod/liqod/api/generated/clientset/versioned/typed/ipam/v1alpha1"
	ipamv1alpha1 "github.com/liqod/liqod/api/ipam/v1alpha1"
	"github.com/liqod/liqod/kube/apply"
	"github.com/liqod/liqod/netfabric/ipam"
)

// changeAttempts is how often a change is tried at once while others write the pool.
const changeAttempts = 5

// unreadableError says that the content of an AddressPool makes no sense.
type unreadableError struct {
	pool string
	err  error
}

// Error implements error.
func (e *unreadableError) Error() string {
	return fmt.Sprintf("AddressPool %s cannot be read: %v: correct its spec.allocations; what claims have stands in their status", e.pool, e.err)
}

// Unwrap returns the cause.
func (e *unreadableError) Unwrap() error { return e.err }

// pool reads and writes one AddressPool. Its methods are safe for concurrent use.
type pool struct {
	name  string
	space spaceNow
	// inside: what is given lies in the pools of space.
	inside bool
	client ipamclient.AddressPoolInterface
	store  cache.Store
	// claims returns all claims as the API server has them.
	claims func(context.Context) ([]claim, error)
	clock  clock.PassiveClock
	log    *zap.Logger

	// changing makes changes of this process wait for each other, instead of conflict.
	changing sync.Mutex

	mu sync.Mutex
	// written is what this process wrote last: the cache has it a moment later.
	written *ipamv1alpha1.AddressPool
	// read is the record of the object readOf.
	readOf  *ipamv1alpha1.AddressPool
	read    ipam.Record
	readErr error
}

func (p *pool) finalizer() string {
	if p.name == ipamv1alpha1.PoolIPs {
		return ipamv1alpha1.IPFinalizer
	}
	return ipamv1alpha1.NetworkFinalizer
}

// cached returns the AddressPool as the cache has it, or nil.
func (p *pool) cached() *ipamv1alpha1.AddressPool {
	obj, ok, err := p.store.GetByKey(p.name)
	if err != nil || !ok {
		return nil
	}
	have, _ := obj.(*ipamv1alpha1.AddressPool)
	return have
}

// newest returns the newest AddressPool that is known without a request, or nil.
func (p *pool) newest() *ipamv1alpha1.AddressPool {
	cached := p.cached()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.written != nil && (cached == nil || cached.UID == p.written.UID && cached.Generation < p.written.Generation) {
		return p.written
	}
	return cached
}

// record returns the Record of an AddressPool; the last one is remembered.
func (p *pool) record(have *ipamv1alpha1.AddressPool) (ipam.Record, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.readOf != have {
		p.readOf = have
		p.read, p.readErr = p.decode(have.Spec.Allocations)
	}
	return p.read, p.readErr
}

// decode returns the Record of allocations, or an unreadableError.
func (p *pool) decode(list []ipamv1alpha1.Allocation) (ipam.Record, error) {
	out := make([]ipam.Allocation, 0, len(list))
	for _, a := range list {
		given, err := netip.ParsePrefix(a.CIDR)
		if err != nil {
			return ipam.Record{}, &unreadableError{p.name, fmt.Errorf("cidr of %s/%s: %w", a.Namespace, a.Name, err)}
		}
		asked, err := netip.ParsePrefix(a.For)
		if err != nil {
			return ipam.Record{}, &unreadableError{p.name, fmt.Errorf("for of %s/%s: %w", a.Namespace, a.Name, err)}
		}
		out = append(out, ipam.Allocation{Owner: a.UID, Group: peerOf(a.Namespace), For: asked, Given: given})
	}
	record, err := ipam.NewRecord(out)
	if err != nil {
		return ipam.Record{}, &unreadableError{p.name, err}
	}
	return record, nil
}

// take returns what a claim has, or gets, once that is recorded. With an *ipam.Error it
// returns what the claim has nevertheless, if anything.
func (p *pool) take(ctx context.Context, space *ipam.Space, c claim) (netip.Prefix, error) {
	live := false
	if have := p.newest(); have != nil {
		record, err := p.record(have)
		if a, ok := record.Of(c.uid); ok && err == nil && a.For == c.request.For {
			if a.Given == c.given {
				return a.Given, p.check(space, a)
			}
			// The status does not have it yet: it may be from a pool that somebody has deleted.
			live = true
		}
	}
	var given ipam.Allocation
	err := p.change(ctx, live, func(list []ipamv1alpha1.Allocation) ([]ipamv1alpha1.Allocation, error) {
		record, err := p.decode(list)
		if err != nil {
			return nil, err
		}
		a, next, err := p.answer(space, record, c)
		if err != nil {
			return nil, err
		}
		given = a
		if next.Len() == record.Len() {
			return list, nil
		}
		return insert(list, next, a, c), nil
	})
	if err != nil {
		return netip.Prefix{}, err
	}
	return given.Given, p.check(space, given)
}

// insert returns the list with what a claim has in addition, at its place in the record.
func insert(list []ipamv1alpha1.Allocation, record ipam.Record, a ipam.Allocation, c claim) []ipamv1alpha1.Allocation {
	at := min(slices.Index(record.Allocations(), a), len(list)) // people may have put the list out of order
	return slices.Insert(slices.Clone(list), at, ipamv1alpha1.Allocation{
		CIDR: a.Given.String(), For: a.For.String(), Namespace: c.key.Namespace, Name: c.key.Name, UID: c.uid,
	})
}

// answer gives a claim what its status says, if the record does not know the claim and
// that is free; else what the space gives.
func (p *pool) answer(space *ipam.Space, record ipam.Record, c claim) (ipam.Allocation, ipam.Record, error) {
	if _, known := record.Of(c.uid); !known {
		if a, next, ok := p.adopt(space, record, c); ok {
			return a, next, nil
		}
	}
	return space.Take(record, c.request)
}

// adopt records what the status of a claim says, if that can be.
func (p *pool) adopt(space *ipam.Space, record ipam.Record, c claim) (ipam.Allocation, ipam.Record, bool) {
	a := ipam.Allocation{Owner: c.uid, Group: c.request.Group, For: c.request.For, Given: c.given}
	if !c.given.IsValid() || space != nil && p.check(space, a) != nil {
		return a, record, false
	}
	next, err := record.With(a)
	return a, next, err == nil
}

// check returns an *ipam.Error if what was given may not be used any more.
func (p *pool) check(space *ipam.Space, a ipam.Allocation) error {
	if err := space.Check(a); err != nil {
		return err
	}
	if _, ok := space.Pool(a.Given); p.inside && !ok {
		return &ipam.Error{Reason: ipam.Overlaps, Message: fmt.Sprintf(
			"%s was given, but is in no range of %s now: delete the claim and create another", a.Given.Addr(), settingExternal)}
	}
	return nil
}

// release takes back what claims have.
func (p *pool) release(ctx context.Context, uids ...string) error {
	// Live: a cache that does not know an allocation proves nothing.
	return p.change(ctx, true, func(list []ipamv1alpha1.Allocation) ([]ipamv1alpha1.Allocation, error) {
		return slices.DeleteFunc(slices.Clone(list), func(a ipamv1alpha1.Allocation) bool { return slices.Contains(uids, a.UID) }), nil
	})
}

// restore makes the AddressPool where there is none although claims have something.
func (p *pool) restore(ctx context.Context) error {
	return p.change(ctx, true, func(list []ipamv1alpha1.Allocation) ([]ipamv1alpha1.Allocation, error) { return list, nil })
}

// change writes what edit makes of the allocations, if that is another list, with the
// resource version of what edit was given. Unless that writes, what edit made of the cache
// proves nothing: it is given what the API server has; with live, at once.
func (p *pool) change(ctx context.Context, live bool, edit func([]ipamv1alpha1.Allocation) ([]ipamv1alpha1.Allocation, error)) error {
	p.changing.Lock()
	defer p.changing.Unlock()
	have := p.newest()
	if live {
		have = nil
	}
	var conflict error
	for range changeAttempts {
		fresh := have == nil
		if fresh {
			var err error
			if have, err = p.load(ctx); err != nil {
				return err
			}
		}
		want, err := edit(have.Spec.Allocations)
		switch {
		case err != nil && fresh:
			return err
		case err != nil:
			have = nil
			continue
		case isStored(have, want) && fresh:
			return nil
		case isStored(have, want):
			have = nil
			continue
		}
		if conflict = p.write(ctx, have, want); !lost(conflict) {
			return conflict
		}
		have = nil
	}
	return conflict
}

// isStored reports whether nothing has to be written: that there is no pool says as much as
// an empty one.
func isStored(have *ipamv1alpha1.AddressPool, want []ipamv1alpha1.Allocation) bool {
	if have.UID == "" {
		return len(want) == 0
	}
	return slices.Equal(have.Spec.Allocations, want)
}

// lost reports whether somebody else wrote the pool first.
func lost(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err)
}

// load returns the AddressPool as the API server has it. Where there is none, because none
// was needed yet or somebody has deleted it, it is made of the claims; it is not stored, and
// has no UID.
func (p *pool) load(ctx context.Context) (*ipamv1alpha1.AddressPool, error) {
	have, err := p.client.Get(ctx, p.name, metav1.GetOptions{})
	if err == nil {
		return have, nil
	}
	if !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("reading AddressPool %s: %w", p.name, err)
	}
	all, err := p.claims(ctx)
	if err != nil {
		return nil, fmt.Errorf("restoring AddressPool %s: %w", p.name, err)
	}
	return p.fromClaims(all), nil
}

// fromClaims returns an AddressPool with what the status of each claim says that it has.
func (p *pool) fromClaims(all []claim) *ipamv1alpha1.AddressPool {
	slices.SortFunc(all, func(a, b claim) int {
		x, y := a.object.GetCreationTimestamp(), b.object.GetCreationTimestamp()
		return cmp.Or(cmp.Compare(a.rank(), b.rank()), x.Compare(y.Time), cmp.Compare(a.uid, b.uid))
	})
	space, err := p.space()
	if err != nil {
		space = nil // claims keep what they have until that can be judged
	}
	var record ipam.Record
	made := &ipamv1alpha1.AddressPool{ObjectMeta: metav1.ObjectMeta{Name: p.name}}
	for _, c := range all {
		if !c.mayHave() {
			continue
		}
		if a, next, ok := p.adopt(space, record, c); ok {
			record = next
			made.Spec.Allocations = insert(made.Spec.Allocations, record, a, c)
		}
	}
	return made
}

func (p *pool) write(ctx context.Context, have *ipamv1alpha1.AddressPool, want []ipamv1alpha1.Allocation) error {
	next := have.DeepCopy()
	next.Spec.Allocations = want
	var stored *ipamv1alpha1.AddressPool
	var err error
	if have.UID == "" {
		stored, err = p.client.Create(ctx, next, metav1.CreateOptions{})
	} else {
		stored, err = p.client.Update(ctx, next, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("recording in AddressPool %s: %w", p.name, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.written = stored
	return nil
}

// report writes the status of the AddressPool, if it says something else.
func (p *pool) report(ctx context.Context, have *ipamv1alpha1.AddressPool) error {
	condition := metav1.Condition{
		Type: ipamv1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: ipamv1alpha1.ReasonAvailable,
		ObservedGeneration: have.Generation, LastTransitionTime: metav1.NewTime(p.clock.Now()),
	}
	if reason, message := p.trouble(have); reason != "" {
		condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, reason, message
	}
	next := have.DeepCopy()
	next.Status.ObservedGeneration, next.Status.Allocated = have.Generation, int32(len(have.Spec.Allocations))
	apply.SetCondition(&next.Status.Conditions, condition)
	if equality.Semantic.DeepEqual(next.Status, have.Status) {
		return nil
	}
	if _, err := p.client.UpdateStatus(ctx, next, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("writing the status of AddressPool %s: %w", p.name, err)
	}
	return nil
}

// trouble returns why the AddressPool is not well, or nothing.
func (p *pool) trouble(have *ipamv1alpha1.AddressPool) (reason, message string) {
	record, err := p.record(have)
	if err != nil {
		return ipamv1alpha1.ReasonInvalid, err.Error()
	}
	space, err := p.space()
	if err != nil {
		return ipamv1alpha1.ReasonRangesUnknown, err.Error()
	}
	for _, a := range record.Allocations() {
		if err := p.check(space, a); err != nil {
			return ipamv1alpha1.ReasonOverlaps, err.Error()
		}
	}
	return "", ""
}
