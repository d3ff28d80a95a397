// Package ipam allocates ranges and single addresses that do not overlap. It is pure and
// deterministic. The caller keeps the Record of all allocations, and must store the new
// Record before it uses a new allocation.
package ipam

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/liqod/liqod/netfabric/plan"
)

// Allocation is the range of one owner. A single address is a range with one address.
type Allocation struct {
	// Owner is unique among the allocations of a Record.
	Owner string
	// Group is the Group of the request.
	Group string
	// For is the requested range, and Given the allocated one. Both have the same size.
	For, Given netip.Prefix
}

// Record has all allocations, sorted by range. They do not overlap. The zero value is empty.
// A Record is immutable: methods return a new one.
type Record struct{ list []Allocation }

// NewRecord returns the Record of the allocations, which may be in any order. Its error
// names the first allocation that is not valid, or has the owner or an address of another.
func NewRecord(allocations []Allocation) (Record, error) {
	list := slices.Clone(allocations)
	owners := make(map[string]bool, len(list))
	for _, a := range list {
		if err := a.check(); err != nil {
			return Record{}, err
		}
		if owners[a.Owner] {
			return Record{}, fmt.Errorf("%s has two allocations, one of them %s", a.Owner, plan.Short(a.Given))
		}
		owners[a.Owner] = true
	}
	slices.SortFunc(list, func(a, b Allocation) int { return a.Given.Compare(b.Given) })
	for i := 1; i < len(list); i++ {
		if a, b := list[i-1], list[i]; a.Given.Overlaps(b.Given) {
			return Record{}, fmt.Errorf("%s and %s overlap: %s has one, %s the other", plan.Short(a.Given), plan.Short(b.Given), a.Owner, b.Owner)
		}
	}
	return Record{list}, nil
}

func (a Allocation) check() error {
	switch {
	case a.Owner == "":
		return fmt.Errorf("%s has no owner", plan.Short(a.Given))
	case !WellFormed(a.Given):
		return fmt.Errorf("%s has %q, which is not a range without host bits", a.Owner, a.Given)
	case !WellFormed(a.For) || !sameSize(a.For, a.Given):
		return fmt.Errorf("%s has %s for %q, which is not a range of that size", a.Owner, plan.Short(a.Given), a.For)
	}
	return nil
}

// WellFormed reports whether p can be allocated: it has no host bits, and is not the range
// of all addresses of a family.
func WellFormed(p netip.Prefix) bool {
	return p.IsValid() && p.Bits() > 0 && p == p.Masked() && !p.Addr().Is4In6()
}

func sameSize(a, b netip.Prefix) bool {
	return a.Bits() == b.Bits() && a.Addr().BitLen() == b.Addr().BitLen()
}

// Allocations returns the allocations, sorted by range. The caller may change the slice.
func (r Record) Allocations() []Allocation { return slices.Clone(r.list) }

// Len returns the number of allocations.
func (r Record) Len() int { return len(r.list) }

// Of returns the allocation of an owner.
func (r Record) Of(owner string) (Allocation, bool) {
	i := slices.IndexFunc(r.list, func(a Allocation) bool { return a.Owner == owner })
	if i < 0 {
		return Allocation{}, false
	}
	return r.list[i], true
}

// With returns the Record with one more allocation. Its error says why the allocation does
// not fit.
func (r Record) With(a Allocation) (Record, error) {
	if err := a.check(); err != nil {
		return r, err
	}
	if have, ok := r.Of(a.Owner); ok {
		return r, fmt.Errorf("%s has %s already", a.Owner, plan.Short(have.Given))
	}
	if i := slices.IndexFunc(r.list, func(b Allocation) bool { return b.Given.Overlaps(a.Given) }); i >= 0 {
		return r, fmt.Errorf("%s overlaps %s, which %s has", plan.Short(a.Given), plan.Short(r.list[i].Given), r.list[i].Owner)
	}
	i, _ := slices.BinarySearchFunc(r.list, a.Given, func(b Allocation, p netip.Prefix) int { return b.Given.Compare(p) })
	return Record{slices.Insert(slices.Clone(r.list), i, a)}, nil
}
