package exchange

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	ipamclient "github.com/liqod/liqod/api/generated/clientset/versioned/typed/ipam/v1alpha1"
	ipamv1alpha1 "github.com/liqod/liqod/api/ipam/v1alpha1"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/netfabric/ipam"
)

// changeAttempts is how often a change is tried at once while others write the pool.
const changeAttempts = 5

// pool reads and writes one AddressPool. Its methods are safe for concurrent use.
type pool struct {
	name  string
	space spaceNow
	// inside: what is given lies in the pools of space.
	inside bool
	// store has the AddressPools, and what this process wrote last: the cache has it a moment later.
	store  *store.Store[*ipamv1alpha1.AddressPool]
	client ipamclient.AddressPoolInterface
	// claims returns all claims as the API server has them.
	claims func(context.Context) ([]claim, error)
	clock  clock.PassiveClock
	log    *zap.Logger

	// changing makes changes of this process wait for each other, instead of conflict.
	changing sync.Mutex

	mu sync.Mutex
	// read is the record of the object readOf.
	readOf  *ipamv1alpha1.AddressPool
	read    ipam.Record
	readErr error
}

// key is that of the AddressPool.
func (p *pool) key() loop.Key { return loop.Key{Name: p.name} }

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

// decode returns the Record of allocations. It returns an undecidedError if they are not valid.
func (p *pool) decode(list []ipamv1alpha1.Allocation) (ipam.Record, error) {
	unreadable := func(err error) error {
		return &undecidedError{ipamv1alpha1.ReasonPoolInvalid, fmt.Sprintf(
			"AddressPool %s cannot be read: %v: correct its spec.allocations; what claims have stands in their status", p.name, err)}
	}
	out := make([]ipam.Allocation, 0, len(list))
	for _, a := range list {
		given, err := netip.ParsePrefix(a.CIDR)
		if err != nil {
			return ipam.Record{}, unreadable(fmt.Errorf("cidr of %s/%s: %w", a.Namespace, a.Name, err))
		}
		asked, err := netip.ParsePrefix(a.For)
		if err != nil {
			return ipam.Record{}, unreadable(fmt.Errorf("for of %s/%s: %w", a.Namespace, a.Name, err))
		}
		out = append(out, ipam.Allocation{Owner: a.UID, Group: corev1beta1.PeerOfNamespace(a.Namespace), For: asked, Given: given})
	}
	record, err := ipam.NewRecord(out)
	if err != nil {
		return ipam.Record{}, unreadable(err)
	}
	return record, nil
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
	have := p.store.Get(p.key())
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
		if err == nil && !isStored(have, want) {
			if conflict = p.write(ctx, have, want); !lost(conflict) {
				return conflict
			}
		} else if fresh {
			return err
		}
		have = nil
	}
	return conflict
}

// isStored reports whether no write is needed: a missing pool is the same as an empty one.
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
	have, err := p.store.Live(ctx, p.key())
	if err != nil || have != nil {
		return have, err
	}
	all, err := p.claims(ctx)
	if err != nil {
		return nil, fmt.Errorf("restoring AddressPool %s: %w", p.name, err)
	}
	return p.fromClaims(all), nil
}

// fromClaims returns an AddressPool with the allocation in the status of each claim.
func (p *pool) fromClaims(all []claim) *ipamv1alpha1.AddressPool {
	slices.SortFunc(all, func(a, b claim) int {
		x, y := a.object.GetCreationTimestamp(), b.object.GetCreationTimestamp()
		return cmp.Or(cmp.Compare(a.rank(), b.rank()), x.Compare(y.Time), cmp.Compare(a.uid, b.uid))
	})
	space, err := p.space("")
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
	if have.UID == "" {
		have = nil
	}
	_, err := p.store.Note(store.Write(ctx, "AddressPool", p.client, "", have, next))
	return err
}

// report writes the status of the AddressPool if it differs.
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
	store.SetCondition(&next.Status.Conditions, condition)
	return store.WriteStatus(ctx, "AddressPool", p.client, "", have, next)
}

// trouble returns why the AddressPool is not well, or nothing.
func (p *pool) trouble(have *ipamv1alpha1.AddressPool) (reason, message string) {
	record, err := p.record(have)
	if err != nil {
		return ipamv1alpha1.ReasonInvalid, err.Error()
	}
	space, err := p.space("")
	if err != nil {
		return ipamv1alpha1.ReasonRangesUnknown, err.Error()
	}
	for _, a := range record.Allocations() {
		if err := p.usable(space, a); err != nil {
			return ipamv1alpha1.ReasonOverlaps, err.Error()
		}
	}
	return "", ""
}

// syncPool releases the allocations of claims that are gone, and writes the status of the pool.
func (a *Allocator) syncPool(ctx context.Context, key loop.Key) error {
	for _, c := range []*claims{a.networks, a.ips} {
		if c.pool.name == key.Name {
			return c.tidy(ctx)
		}
	}
	return nil
}

// tidy releases the allocations of claims that are gone, and writes the status of the pool. It
// restores a pool that was deleted.
func (c *claims) tidy(ctx context.Context) error {
	have := c.pool.store.Cached(c.pool.key())
	if have == nil {
		if len(c.where(func(have claim) bool { return have.given.IsValid() })) == 0 {
			return nil // the first one makes it
		}
		return c.pool.restore(ctx)
	}
	orphans, err := c.orphans(ctx, have)
	if err != nil {
		return err
	}
	if len(orphans) > 0 {
		c.pool.log.Info("claims that are gone had allocations", zap.String("pool", c.pool.name), zap.Strings("orphans", orphans))
		return c.pool.release(ctx, orphans...)
	}
	return store.IgnoreNotFound(c.pool.report(ctx, have))
}

// orphans returns the UIDs of claims in the pool that are gone: neither the cache nor the API
// server has them.
func (c *claims) orphans(ctx context.Context, p *ipamv1alpha1.AddressPool) (uids []string, err error) {
	for _, a := range p.Spec.Allocations {
		key := loop.Key{Namespace: a.Namespace, Name: a.Name}
		have, ok := c.cached(key)
		if !ok || have.uid != a.UID || !have.mayHave() {
			if have, ok, err = c.confirm(ctx, key); err != nil {
				return nil, err
			}
		}
		if !ok || have.uid != a.UID || !have.mayHave() {
			uids = append(uids, a.UID)
		}
	}
	return uids, nil
}

// confirm returns a claim as the API server has it. An entry that was written by hand may
// have no name: nothing is of that name.
func (c *claims) confirm(ctx context.Context, key loop.Key) (claim, bool, error) {
	if key.Namespace == "" || key.Name == "" {
		return claim{}, false, nil
	}
	return c.kind.get(ctx, key)
}
