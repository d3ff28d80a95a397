package exchange

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	ipaminformers "github.com/liqod/liqod/api/generated/informers/externalversions/ipam/v1alpha1"
	ipamv1alpha1 "github.com/liqod/liqod/api/ipam/v1alpha1"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/netfabric/check"
	"github.com/liqod/liqod/netfabric/ipam"
)

// Names of settings, for messages.
const (
	settingPools    = "ipam.pools"
	settingExternal = "networking.externalCIDRs"
)

// Reserved finds the ranges that no Network gets: those of this cluster's pods, Services and
// nodes, and others that its nodes reach. It is safe for concurrent use.
type Reserved interface {
	// HasSynced returns true when Reserved can be called.
	HasSynced() bool
	// Reserved returns the ranges, or the reason why they are unknown: then nothing is given.
	Reserved() ([]ipamv1alpha1.NamedRange, error)
	// Subscribe makes f be called when the ranges may have changed. It is called before
	// anything runs. f returns at once.
	Subscribe(f func())
}

// AllocateConfig configures an Allocator.
type AllocateConfig struct {
	Base // Keep may follow the trust in a peer, which ForeignClusters have

	// Pools are the ranges for Networks that cannot get the range of their spec.cidr, in this
	// order.
	Pools []netip.Prefix
	// Keep returns the ranges in which a Network of a peer gets the range of its spec.cidr if that
	// is free; the peer chooses the spec.cidr. Of Networks in other namespaces the peer is empty.
	Keep func(peer string) []netip.Prefix
	// External are the ranges that the addresses of IPs are taken from. They are given to no
	// Network.
	External []netip.Prefix
	// Reserved finds the ranges that no Network gets.
	Reserved Reserved

	// The informers are of this cluster and of all namespaces.
	Networks     ipaminformers.NetworkInformer
	IPs          ipaminformers.IPInformer
	AddressPools ipaminformers.AddressPoolInformer
}

// Allocator gives ranges to Networks and addresses to IPs. Each allocation is recorded in an
// AddressPool first, with the resource version of the decision, and then in the status of the
// claim. So several Allocators at once, with caches of any age, give nothing twice, and one that
// is killed at any point loses nothing.
type Allocator struct {
	networks, ips *claims
	pools         *loop.Loop
}

// NewAllocator registers with the informers and starts nothing. Its error names a range
// that is not valid.
func NewAllocator(cfg AllocateConfig) (*Allocator, error) {
	networks, ips, err := spaces(cfg)
	if err != nil {
		return nil, err
	}
	a := &Allocator{}
	client := cfg.Client.IPAMV1alpha1()
	a.networks = newClaims(cfg, networkKind(client), cfg.Networks.Informer(), &pool{name: ipamv1alpha1.PoolNetworks, space: networks})
	a.networks.Watch(loop.From(cfg.ForeignClusters.Informer(), a.networks.refusedTo))
	a.ips = newClaims(cfg, ipKind(client), cfg.IPs.Informer(), &pool{name: ipamv1alpha1.PoolIPs, space: ips, inside: true})
	a.pools = loop.New(loop.Config{Name: "addresspool", Sync: a.syncPool, Log: cfg.Log, Observer: cfg.Observer},
		loop.From(cfg.AddressPools.Informer(), loop.Self),
		loop.From(cfg.Networks.Informer(), loop.Constant(loop.Key{Name: ipamv1alpha1.PoolNetworks})),
		loop.From(cfg.IPs.Informer(), loop.Constant(loop.Key{Name: ipamv1alpha1.PoolIPs})),
	)
	a.pools.Await(cfg.Reserved.HasSynced)
	cfg.Reserved.Subscribe(a.wakeNetworks)
	return a, nil
}

// wakeNetworks has all Networks judged again: one may get a range now, or have one that
// overlaps a range of this cluster.
func (a *Allocator) wakeNetworks() {
	a.networks.Wake(a.networks.where(func(claim) bool { return true })...)
	a.pools.Wake(loop.Key{Name: ipamv1alpha1.PoolNetworks})
}

// spaceNow returns the Space at this moment for the claims of a peer, or the reason why there is
// none.
type spaceNow func(peer string) (*ipam.Space, error)

// spaces returns what Networks get, and what IPs get.
func spaces(cfg AllocateConfig) (networks, ips spaceNow, err error) {
	external, err := ipam.External(cfg.External, settingExternal)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", settingExternal, err)
	}
	external.Most = ipamv1alpha1.MaxAllocations
	networkConfig := ipam.Config{
		Pools: cfg.Pools, Setting: settingPools, Most: ipamv1alpha1.MaxAllocations,
		Reserved: check.Named("an external range of this cluster", cfg.External),
	}
	if _, err := ipam.New(networkConfig); err != nil {
		return nil, nil, fmt.Errorf("reading the ranges for Networks: %w", err)
	}
	forIPs, err := ipam.New(external)
	if err != nil {
		return nil, nil, fmt.Errorf("reading the ranges for IPs: %w", err)
	}
	networks = func(peer string) (*ipam.Space, error) {
		reserved, err := cfg.Reserved.Reserved()
		if err != nil {
			return nil, &undecidedError{ipamv1alpha1.ReasonRangesUnknown, "nothing is given before the ranges of this cluster are known: " + store.OneLine(err)}
		}
		now := networkConfig
		now.Reserved, now.Keep = slices.Concat(reserved, networkConfig.Reserved), cfg.Keep(peer)
		return ipam.New(now)
	}
	return networks, func(string) (*ipam.Space, error) { return forIPs, nil }, nil
}

// undecidedError means that nothing can be given now, and what a claim has is not in doubt.
type undecidedError struct{ reason, message string }

// Error implements error.
func (e *undecidedError) Error() string { return e.message }

// Run works until ctx is done. It may be called again.
func (a *Allocator) Run(ctx context.Context, workers int) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return a.networks.Run(ctx, workers) })
	group.Go(func() error { return a.ips.Run(ctx, workers) })
	group.Go(func() error { return a.pools.Run(ctx, 1) })
	return group.Wait()
}

// claim is a Network or an IP.
type claim struct {
	object  metav1.Object
	key     loop.Key
	uid     string
	request ipam.Request
	// given is the allocation in its status. The zero value: none.
	given netip.Prefix
	// ready is the condition in its status.
	ready bool
	// deleted: it is being deleted. held: our finalizer keeps it.
	deleted, held bool
}

// mayHave reports whether a claim may have something.
func (c claim) mayHave() bool { return !c.deleted || c.held }

// rank is lower for a claim whose status counts more. A range of a claim that is being deleted
// may have been released already, and given to another.
func (c claim) rank() int {
	if c.deleted {
		return 1
	}
	return 0
}

// outcome is the desired status of a claim.
type outcome struct {
	// given is what it has, and pool where that is from. The zero values: nothing.
	given, pool netip.Prefix
	condition   metav1.Condition
}

// claims is the loop of one kind of claims.
type claims struct {
	*loop.Loop
	kind     kind
	informer cache.SharedIndexInformer
	pool     *pool
	clock    clock.PassiveClock
}

func newClaims(cfg AllocateConfig, k kind, informer cache.SharedIndexInformer, p *pool) *claims {
	c := &claims{kind: k, informer: informer, pool: p, clock: cfg.Clock}
	p.client = cfg.Client.IPAMV1alpha1().AddressPools()
	p.store = store.New("AddressPool", cfg.AddressPools.Informer(), cfg.Clock, func(string) store.API[*ipamv1alpha1.AddressPool] { return p.client })
	p.claims, p.clock, p.log = k.list, cfg.Clock, cfg.Log
	c.Loop = loop.New(loop.Config{Name: p.name, Sync: c.sync, Log: cfg.Log, Observer: cfg.Observer}, loop.From(informer, loop.Self), loop.From(cfg.AddressPools.Informer(), c.waiting))
	c.Await(cfg.Reserved.HasSynced)
	return c
}

// waiting returns the claims that a change of their pool may concern: those that are not
// ready, and those that the pool does not know.
func (c *claims) waiting(p *ipamv1alpha1.AddressPool) []loop.Key {
	if p.Name != c.pool.name {
		return nil
	}
	known := make(map[string]bool, len(p.Spec.Allocations))
	for _, a := range p.Spec.Allocations {
		known[a.UID] = true
	}
	return c.where(func(have claim) bool { return !have.ready || !known[have.uid] })
}

// refusedTo returns the claims of a peer that are not ready, by its ForeignCluster.
func (c *claims) refusedTo(fc *corev1beta1.ForeignCluster) []loop.Key {
	return c.where(func(have claim) bool { return !have.ready && have.request.Group == fc.Name })
}

// where returns the keys of the claims that are selected, as the cache has them.
func (c *claims) where(is func(claim) bool) (keys []loop.Key) {
	for _, obj := range c.informer.GetStore().List() {
		if have, ok := c.kind.claim(obj); ok && is(have) {
			keys = append(keys, have.key)
		}
	}
	return keys
}

// cached returns a claim as the cache has it.
func (c *claims) cached(key loop.Key) (claim, bool) {
	obj, _, _ := c.informer.GetStore().GetByKey(key.String()) // an error means an invalid key, which cannot occur
	return c.kind.claim(obj)
}

func (c *claims) sync(ctx context.Context, key loop.Key) error {
	have, ok := c.cached(key)
	switch {
	case !ok:
		return nil // the pool's key sees to what it had
	case have.deleted:
		return c.end(ctx, have)
	}
	// Before anything is given: a deletion waits until it is free again.
	have, err := c.kind.hold(ctx, have, true)
	if err != nil {
		return store.IgnoreNotFound(err)
	}
	want, err := c.answer(ctx, have)
	if err != nil || want == nil {
		return err
	}
	return store.IgnoreNotFound(c.kind.report(ctx, have, *want))
}

// answer returns the desired status of a claim, or nil if the status stays.
func (c *claims) answer(ctx context.Context, have claim) (*outcome, error) {
	var given netip.Prefix
	space, err := c.pool.space(have.request.Group)
	if err == nil {
		given, err = c.pool.take(ctx, space, have)
	}
	want := &outcome{given: given, condition: metav1.Condition{
		Type: ipamv1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: ipamv1alpha1.ReasonAllocated,
		ObservedGeneration: have.object.GetGeneration(), LastTransitionTime: metav1.NewTime(c.clock.Now()),
	}}
	refused := func(reason, message string) {
		want.condition.Status, want.condition.Reason, want.condition.Message = metav1.ConditionFalse, reason, message
	}
	var problem *ipam.Error
	var undecided *undecidedError
	switch {
	case errors.As(err, &problem):
		refused(string(problem.Reason), problem.Message)
	case errors.As(err, &undecided) && have.ready:
		return nil, nil
	case errors.As(err, &undecided):
		want.given = have.given
		refused(undecided.reason, undecided.message)
	case err != nil:
		return nil, err
	}
	if space != nil {
		want.pool, _ = space.Pool(want.given)
	}
	return want, nil
}

// take returns the allocation of a claim, or makes one and records it. With an *ipam.Error it
// returns the present allocation too, if there is one.
func (p *pool) take(ctx context.Context, space *ipam.Space, c claim) (netip.Prefix, error) {
	live := false
	if have := p.store.Get(p.key()); have != nil {
		record, err := p.record(have)
		if a, ok := record.Of(c.uid); ok && err == nil && a.For == c.request.For {
			if a.Given == c.given {
				return a.Given, p.usable(space, a)
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
	return given.Given, p.usable(space, given)
}

// insert returns the list with what a claim has in addition, at its place in the record.
func insert(list []ipamv1alpha1.Allocation, record ipam.Record, a ipam.Allocation, c claim) []ipamv1alpha1.Allocation {
	at := min(slices.Index(record.Allocations(), a), len(list)) // people may have put the list out of order
	return slices.Insert(slices.Clone(list), at, ipamv1alpha1.Allocation{
		CIDR: a.Given.String(), For: a.For.String(), Namespace: c.key.Namespace, Name: c.key.Name, UID: c.uid,
	})
}

// answer returns the allocation of a claim that the record lacks: the one in its status, if
// that is free, or else one from the space.
func (p *pool) answer(space *ipam.Space, record ipam.Record, c claim) (ipam.Allocation, ipam.Record, error) {
	if _, known := record.Of(c.uid); !known {
		if a, next, ok := p.adopt(space, record, c); ok {
			return a, next, nil
		}
	}
	return space.Take(record, c.request)
}

// adopt records the allocation in the status of a claim, if that is possible.
func (p *pool) adopt(space *ipam.Space, record ipam.Record, c claim) (ipam.Allocation, ipam.Record, bool) {
	a := ipam.Allocation{Owner: c.uid, Group: c.request.Group, For: c.request.For, Given: c.given}
	if !c.given.IsValid() || space != nil && p.usable(space, a) != nil {
		return a, record, false
	}
	next, err := record.With(a)
	return a, next, err == nil
}

// usable returns an *ipam.Error if an allocation may not be used any more.
func (p *pool) usable(space *ipam.Space, a ipam.Allocation) error {
	if err := space.Check(a); err != nil {
		return err
	}
	if _, ok := space.Pool(a.Given); p.inside && !ok {
		return &ipam.Error{Reason: ipam.Overlaps, Message: fmt.Sprintf(
			"%s was given, but is in no range of %s now: delete the claim and create another", a.Given.Addr(), settingExternal)}
	}
	return nil
}

// end takes back what a claim has, and then lets it go.
func (c *claims) end(ctx context.Context, have claim) error {
	if !have.held {
		return nil // the pool's key sees to what it had
	}
	if err := c.pool.release(ctx, have.uid); err != nil {
		return err
	}
	_, err := c.kind.hold(ctx, have, false)
	return store.IgnoreNotFound(err)
}
