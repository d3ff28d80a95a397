// Package ipam chooses ranges and single addresses that do not overlap. It is pure: the
// caller keeps the Record of what has been given, and stores each new one before it uses
// what it was given. Equal inputs give equal answers.
package ipam

import (
	"fmt"
	"net/netip"
	"slices"
)

// Allocation is what one owner has. A single address is a range of one.
type Allocation struct {
	// Owner is unique among the allocations of a Record.
	Owner string
	// For is what the owner asked for, Given what it has. Both have the same size.
	For, Given netip.Prefix
}

// Record is what has been given, in the order of the ranges, without overlaps. The zero
// value is empty. A Record never changes: methods return another one.
type Record struct{ list []Allocation }

// NewRecord returns the Record of the allocations, in any order. Its error names the first
// one that is not valid, or that shares an owner or an address with another.
func NewRecord(allocations []Allocation) (Record, error) {
	list := slices.Clone(allocations)
	owners := make(map[string]bool, len(list))
	for _, a := range list {
		if err := a.check(); err != nil {
			return Record{}, err
		}
		if owners[a.Owner] {
			return Record{}, fmt.Errorf("%s has two allocations, one of them %s", a.Owner, text(a.Given))
		}
		owners[a.Owner] = true
	}
	slices.SortFunc(list, func(a, b Allocation) int { return a.Given.Compare(b.Given) })
	for i := 1; i < len(list); i++ {
		if a, b := list[i-1], list[i]; a.Given.Overlaps(b.Given) {
			return Record{}, fmt.Errorf("%s and %s overlap: %s has one, %s the other", text(a.Given), text(b.Given), a.Owner, b.Owner)
		}
	}
	return Record{list}, nil
}

func (a Allocation) check() error {
	switch {
	case a.Owner == "":
		return fmt.Errorf("%s has no owner", text(a.Given))
	case !wellFormed(a.Given):
		return fmt.Errorf("%s has %q, which is not a range without host bits", a.Owner, a.Given)
	case !wellFormed(a.For) || !sameSize(a.For, a.Given):
		return fmt.Errorf("%s has %s for %q, which is not a range of that size", a.Owner, text(a.Given), a.For)
	}
	return nil
}

// wellFormed reports whether p can be given at all: it has no host bits, and is not every
// address of a family.
func wellFormed(p netip.Prefix) bool {
	return p.IsValid() && p.Bits() > 0 && p == p.Masked() && !p.Addr().Is4In6()
}

func sameSize(a, b netip.Prefix) bool {
	return a.Bits() == b.Bits() && a.Addr().BitLen() == b.Addr().BitLen()
}

// text is how people write a range, or a single address.
func text(p netip.Prefix) string {
	if p.IsSingleIP() {
		return p.Addr().String()
	}
	return p.String()
}

// Allocations returns what has been given, in the order of the ranges. It is the caller's.
func (r Record) Allocations() []Allocation { return slices.Clone(r.list) }

// Len is the number of allocations.
func (r Record) Len() int { return len(r.list) }

// Of returns what an owner has.
func (r Record) Of(owner string) (Allocation, bool) {
	i := r.index(owner)
	if i < 0 {
		return Allocation{}, false
	}
	return r.list[i], true
}

func (r Record) index(owner string) int {
	return slices.IndexFunc(r.list, func(a Allocation) bool { return a.Owner == owner })
}

// Without returns the Record without what an owner has, and whether it had anything.
func (r Record) Without(owner string) (Record, bool) {
	i := r.index(owner)
	if i < 0 {
		return r, false
	}
	return Record{slices.Delete(slices.Clone(r.list), i, i+1)}, true
}

// With returns the Record with one more allocation, which was given before the Record was
// kept. Its error says why it does not fit.
func (r Record) With(a Allocation) (Record, error) {
	if err := a.check(); err != nil {
		return r, err
	}
	if have, ok := r.Of(a.Owner); ok {
		return r, fmt.Errorf("%s has %s already", a.Owner, text(have.Given))
	}
	if i := slices.IndexFunc(r.list, func(b Allocation) bool { return b.Given.Overlaps(a.Given) }); i >= 0 {
		return r, fmt.Errorf("%s overlaps %s, which %s has", text(a.Given), text(r.list[i].Given), r.list[i].Owner)
	}
	i, _ := slices.BinarySearchFunc(r.list, a.Given, func(b Allocation, p netip.Prefix) int { return b.Given.Compare(p) })
	return Record{slices.Insert(slices.Clone(r.list), i, a)}, nil
}
