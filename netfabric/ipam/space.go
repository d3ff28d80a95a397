package ipam

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	ipamv1alpha1 "github.com/liqod/liqod/api/ipam/v1alpha1"
	"github.com/liqod/liqod/netfabric/plan"
)

// Config has the ranges of a Space.
type Config struct {
	// Pools are the ranges to allocate from if the requested range is not used. Their order
	// is the order of preference.
	Pools []netip.Prefix
	// Setting is the name of the setting with the pools, for messages.
	Setting string
	// Keep are the ranges in which a request gets exactly the requested range, if that is
	// free. A requested range elsewhere is replaced by one of the pools.
	Keep []netip.Prefix
	// Reserved are ranges that no allocation may overlap.
	Reserved []ipamv1alpha1.NamedRange
	// Refused are ranges that no requested range may overlap.
	Refused []ipamv1alpha1.NamedRange
	// Most is the maximum number of allocations. 0 means no limit.
	Most int
}

// Space allocates ranges. It is immutable, and safe for concurrent use.
type Space struct {
	cfg Config
	// reserved is sorted by range.
	reserved []ipamv1alpha1.NamedRange
}

// Request is a request for a range.
type Request struct {
	// Owner is the owner of the range. An owner has one range.
	Owner string
	// Group is who the owner belongs to, such as a peer. An owner with a Group gets at most a
	// quarter of a pool. The owners of one Group together get an eighth of it, or a half of what
	// others leave, whichever is more. Both limits do not hold for Exact and for owners without a Group.
	Group string
	// For is the requested range.
	For netip.Prefix
	// Exact accepts only For itself, even outside Keep.
	Exact bool
	// Pooled accepts only a range of the Pools. It does not hold for Exact.
	Pooled bool
}

// Reason is the kind of an Error.
type Reason string

// Reasons of an Error.
const (
	// Invalid means that the request can never succeed.
	Invalid Reason = "Invalid"
	// Overlaps means that the range overlaps a reserved range or another allocation.
	Overlaps Reason = "Overlaps"
	// Exhausted means that no range of that size is free.
	Exhausted Reason = "Exhausted"
)

// Error is the reason for which a request failed, with the remedy.
type Error struct {
	Reason  Reason
	Message string
}

// Error implements error.
func (e *Error) Error() string { return e.Message }

func refuse(reason Reason, format string, args ...any) *Error {
	return &Error{reason, fmt.Sprintf(format, args...)}
}

// New returns a Space. Its error names the range that is not valid.
func New(cfg Config) (*Space, error) {
	for _, list := range [][]netip.Prefix{cfg.Pools, cfg.Keep, prefixes(cfg.Reserved), prefixes(cfg.Refused)} {
		for _, p := range list {
			if !WellFormed(p) {
				return nil, fmt.Errorf("%q is not a range without host bits", p)
			}
		}
	}
	special := ipamv1alpha1.SpecialRanges()
	s := &Space{cfg: cfg, reserved: slices.Concat(cfg.Reserved, special, ipamv1alpha1.MetadataServices())}
	s.cfg.Pools, s.cfg.Keep = slices.Clone(cfg.Pools), slices.Clone(cfg.Keep)
	s.cfg.Refused = slices.Concat(cfg.Refused, special)
	slices.SortStableFunc(s.reserved, func(a, b ipamv1alpha1.NamedRange) int { return a.Prefix.Compare(b.Prefix) })
	return s, nil
}

func prefixes(ranges []ipamv1alpha1.NamedRange) []netip.Prefix {
	out := make([]netip.Prefix, len(ranges))
	for i, r := range ranges {
		out[i] = r.Prefix
	}
	return out
}

// Take returns the allocation for a request, and the Record with it. If the owner has an
// allocation, Take returns that one. Otherwise it allocates the requested range if that is
// free and lies in Keep, and else the first free range of that size in the pools. Its error
// is an *Error. With an error it returns the Record unchanged.
func (s *Space) Take(r Record, req Request) (Allocation, Record, error) {
	if err := s.valid(req); err != nil {
		return Allocation{}, r, err
	}
	if have, ok := r.Of(req.Owner); ok {
		if have.For != req.For {
			return Allocation{}, r, refuse(Invalid, "%s was given for %s, and %s is asked for now: delete the claim and create another", plan.Short(have.Given), plan.Short(have.For), plan.Short(req.For))
		}
		return have, r, nil
	}
	given, err := s.choose(r, req)
	if err != nil {
		return Allocation{}, r, err
	}
	a := Allocation{Owner: req.Owner, Group: req.Group, For: req.For, Given: given}
	next, conflict := r.With(a)
	if conflict != nil {
		return Allocation{}, r, refuse(Overlaps, "%v", conflict)
	}
	return a, next, nil
}

func (s *Space) valid(req Request) error {
	if req.Owner == "" {
		return refuse(Invalid, "a request for %s has no owner", plan.Short(req.For))
	}
	if !WellFormed(req.For) {
		return refuse(Invalid, "%q is not accepted: a range without host bits is, as 10.42.0.0/16", req.For)
	}
	for _, no := range s.cfg.Refused {
		if no.Prefix.Overlaps(req.For) {
			return refuse(Invalid, "%s is not accepted: it has addresses of %s, %s", plan.Short(req.For), plan.Short(no.Prefix), no.Name)
		}
	}
	return nil
}

// choose returns a free range for a request.
func (s *Space) choose(r Record, req Request) (netip.Prefix, error) {
	if s.cfg.Most > 0 && r.Len() >= s.cfg.Most {
		return netip.Prefix{}, refuse(Exhausted, "%d allocations exist, as many as are kept: delete claims that are not needed", r.Len())
	}
	obstacle := s.obstacle(r, req.For)
	if obstacle == "" && (req.Exact || !req.Pooled && plan.Within(req.For, s.cfg.Keep) && s.fair(r, req.Group, req.For)) {
		return req.For, nil
	}
	if req.Exact {
		return netip.Prefix{}, refuse(Overlaps, "%s is not free, and no other range is accepted: it overlaps %s", plan.Short(req.For), obstacle)
	}
	taken, free := s.taken(r), false
	for _, pool := range s.cfg.Pools {
		p, ok := firstFree(pool, req.For, taken)
		if ok && s.fair(r, req.Group, p) {
			return p, nil
		}
		free = free || ok
	}
	if largest, ok := s.largest(req.For); req.Group != "" && ok && largest > req.For.Bits() {
		return netip.Prefix{}, refuse(Exhausted, "%s is too large: a claim gets at most a quarter of a range of %s, so ranges of size /%d and smaller are accepted: add a larger range to %s",
			plan.Short(req.For), s.cfg.Setting, largest, s.cfg.Setting)
	}
	if free {
		return netip.Prefix{}, refuse(Exhausted, "nothing more is given to %s, for %s: its claims get at most a half of what others leave of each range of %s: add a range to %s, or delete claims of %s that are not needed",
			req.Group, plan.Short(req.For), s.cfg.Setting, s.cfg.Setting, req.Group)
	}
	return netip.Prefix{}, s.exhausted(req.For)
}

// whole is the number of parts that share counts a pool in.
const whole = 1 << 32

// share returns how many parts of a pool lie in p. A smaller range counts as one part.
func share(pool, p netip.Prefix) uint64 {
	if !pool.Overlaps(p) {
		return 0
	}
	return max(1, uint64(whole)>>max(0, p.Bits()-pool.Bits()))
}

// fair reports whether an owner of group may get p beside what the group has.
func (s *Space) fair(r Record, group string, p netip.Prefix) bool {
	if group == "" {
		return true
	}
	for _, pool := range s.cfg.Pools {
		part := share(pool, p)
		if part == 0 {
			continue
		}
		sum, left := part, uint64(whole)
		for _, a := range r.list {
			if a.Group == group {
				sum += share(pool, a.Given)
			} else {
				left -= min(left, share(pool, a.Given))
			}
		}
		if part > whole/4 || sum > max(whole/8, left/2) {
			return false
		}
	}
	return true
}

// largest returns the length of the largest range of the family of p that an owner with a
// Group gets. It is false where there is no pool of that family.
func (s *Space) largest(p netip.Prefix) (bits int, ok bool) {
	for _, pool := range s.cfg.Pools {
		if pool.Addr().BitLen() == p.Addr().BitLen() && (!ok || pool.Bits()+2 < bits) {
			bits, ok = pool.Bits()+2, true
		}
	}
	return min(bits, p.Addr().BitLen()), ok
}

// obstacle describes a reserved or allocated range that p overlaps. It returns "" if there
// is none.
func (s *Space) obstacle(r Record, p netip.Prefix) string {
	for _, no := range s.reserved {
		if no.Prefix.Overlaps(p) {
			return fmt.Sprintf("%s, %s", plan.Short(no.Prefix), no.Name)
		}
	}
	for _, a := range r.list {
		if a.Given.Overlaps(p) {
			return fmt.Sprintf("%s, which another claim has for %s", plan.Short(a.Given), plan.Short(a.For))
		}
	}
	return ""
}

// taken returns the reserved and the allocated ranges, sorted.
func (s *Space) taken(r Record) []netip.Prefix {
	out := prefixes(s.reserved)
	for _, a := range r.list {
		out = append(out, a.Given)
	}
	slices.SortFunc(out, netip.Prefix.Compare)
	return out
}

// firstFree returns the first range in pool that has the size of size and overlaps no range
// of taken. taken must be sorted.
func firstFree(pool, size netip.Prefix, taken []netip.Prefix) (netip.Prefix, bool) {
	if pool.Addr().BitLen() != size.Addr().BitLen() || pool.Bits() > size.Bits() {
		return netip.Prefix{}, false
	}
	at := netip.PrefixFrom(pool.Addr(), size.Bits())
	for _, t := range taken {
		if !t.Overlaps(at) {
			if t.Addr().Compare(at.Addr()) > 0 {
				break
			}
			continue
		}
		end := plan.Last(at)
		if t.Bits() < at.Bits() {
			end = plan.Last(t)
		}
		next := end.Next()
		if !next.IsValid() || !pool.Contains(next) {
			return netip.Prefix{}, false
		}
		at = netip.PrefixFrom(next, size.Bits())
	}
	return at, true
}

func (s *Space) exhausted(size netip.Prefix) error {
	var pools []string
	for _, p := range s.cfg.Pools {
		if p.Addr().BitLen() == size.Addr().BitLen() {
			pools = append(pools, p.String())
		}
	}
	family := "IPv4"
	if size.Addr().Is6() {
		family = "IPv6"
	}
	what := fmt.Sprintf("no range of size /%d is", size.Bits())
	if size.IsSingleIP() {
		what = "no address is"
	}
	if len(pools) == 0 {
		return refuse(Exhausted, "%s free for %s: %s has no %s range; add one", what, plan.Short(size), s.cfg.Setting, family)
	}
	need := ""
	if !size.IsSingleIP() {
		need = "; N clusters that all offload namespaces to each other need Nx(N-1) ranges in each of them"
	}
	return refuse(Exhausted, "%s free for %s in %s: add a range to %s, or delete claims that are not needed%s", what, plan.Short(size), strings.Join(pools, ", "), s.cfg.Setting, need)
}

// Check returns an *Error if an earlier allocation overlaps a range that is reserved now, and
// must not be used any longer.
func (s *Space) Check(a Allocation) error {
	for _, no := range s.reserved {
		if no.Prefix.Overlaps(a.Given) {
			return refuse(Overlaps, "%s was given, but overlaps %s, %s, now: delete the claim and create another", plan.Short(a.Given), plan.Short(no.Prefix), no.Name)
		}
	}
	return nil
}

// Pool returns the pool that contains a range.
func (s *Space) Pool(p netip.Prefix) (netip.Prefix, bool) {
	i := slices.IndexFunc(s.cfg.Pools, func(pool netip.Prefix) bool { return plan.Within(p, []netip.Prefix{pool}) })
	if i < 0 {
		return netip.Prefix{}, false
	}
	return s.cfg.Pools[i], true
}
