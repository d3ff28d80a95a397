package kernel

import (
	"bytes"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"

	"github.com/liqod/liqod/netfabric/plan"
)

func newSet(t *nftables.Table, s plan.Set) *nftables.Set {
	one := nftables.TypeIPAddr
	if s.Family == plan.V6 {
		one = nftables.TypeIP6Addr
	}
	out := &nftables.Set{Table: t, Name: s.Name, Interval: true, KeyType: one, KeyByteOrder: binaryutil.BigEndian}
	if s.Keys == 2 {
		out.KeyType, out.Concatenation = pairs(s.Family), true
	}
	switch s.Value {
	case plan.Address:
		out.IsMap, out.DataType = true, one
	case plan.Prefix: // a range: two addresses of which the type names one
		out.IsMap, out.DataType = true, one
		out.DataType.Bytes *= 2
	}
	return out
}

// pairs returns the type of two addresses.
func pairs(f plan.Family) nftables.SetDatatype {
	one := nftables.TypeIPAddr
	if f == plan.V6 {
		one = nftables.TypeIP6Addr
	}
	pair, _ := nftables.ConcatSetType(one, one) // an error is for more than five
	return pair
}

// encode converts an element as nft does. With two keys the element has a first and a last
// key. With one key an element with the flag IntervalEnd follows, at the address after the
// last; after the last address of all there is none.
func encode(e plan.Element, value plan.Value) []nftables.SetElement {
	first, end := e.A.Addr().AsSlice(), last(e.A)
	var val []byte
	switch value {
	case plan.Address:
		val = e.Value.Addr().AsSlice()
	case plan.Prefix:
		val = append(e.Value.Addr().AsSlice(), last(e.Value).AsSlice()...)
	}
	if e.B.IsValid() {
		first = append(first, e.B.Addr().AsSlice()...)
		return []nftables.SetElement{{Key: first, KeyEnd: append(end.AsSlice(), last(e.B).AsSlice()...), Val: val}}
	}
	out := []nftables.SetElement{{Key: first, Val: val}}
	if next := end.Next(); next.IsValid() {
		out = append(out, nftables.SetElement{Key: next.AsSlice(), IntervalEnd: true})
	}
	return out
}

// readSet reads the elements of a set, and reports whether a plan can have all of them.
func (s *session) readSet(set *nftables.Set) (out []plan.Element, ok bool) {
	raw, err := s.nft.GetSetElements(set)
	if err != nil {
		return nil, false
	}
	if !set.Concatenation {
		raw = closed(raw)
	}
	ok = true
	for _, r := range raw {
		e, fits := decode(r, set)
		if fits {
			out = append(out, e)
		}
		ok = ok && fits
	}
	return out, ok
}

// closed sets the last key of elements of one key, and drops the elements that end them.
func closed(raw []nftables.SetElement) (out []nftables.SetElement) {
	var ends [][]byte
	for _, r := range raw {
		if r.IntervalEnd {
			ends = append(ends, r.Key)
		} else {
			out = append(out, r)
		}
	}
	slices.SortFunc(ends, bytes.Compare)
	for i, r := range out {
		at, found := slices.BinarySearchFunc(ends, r.Key, bytes.Compare)
		if found {
			at++ // the end of the preceding element
		}
		if at < len(ends) {
			next, _ := netip.AddrFromSlice(ends[at])
			out[i].KeyEnd = next.Prev().AsSlice()
		} else {
			out[i].KeyEnd = bytes.Repeat([]byte{0xff}, len(r.Key))
		}
	}
	return out
}

// decode reverses encode.
func decode(r nftables.SetElement, set *nftables.Set) (e plan.Element, ok bool) {
	size := len(r.Key)
	if set.Concatenation {
		size /= 2
	}
	if len(r.KeyEnd) != len(r.Key) || size != 4 && size != 16 {
		return e, false
	}
	e.Set = set.Name
	if e.A, ok = between(r.Key[:size], r.KeyEnd[:size]); !ok {
		return e, false
	}
	if set.Concatenation {
		if e.B, ok = between(r.Key[size:], r.KeyEnd[size:]); !ok {
			return e, false
		}
	}
	switch {
	case !set.IsMap:
		return e, true
	case len(r.Val) == size:
		e.Value, ok = between(r.Val, r.Val)
	case len(r.Val) == 2*size:
		e.Value, ok = between(r.Val[:size], r.Val[size:])
	default:
		ok = false
	}
	return e, ok
}

// between returns the prefix from first to end, if they are the ends of one.
func between(first, end []byte) (netip.Prefix, bool) {
	a, _ := netip.AddrFromSlice(first)
	z, _ := netip.AddrFromSlice(end)
	for bits := a.BitLen(); bits >= 0; bits-- {
		p := netip.PrefixFrom(a, bits)
		if p.Contains(z) {
			return p, p.Masked() == p && last(p) == z
		}
	}
	return netip.Prefix{}, false
}

// last returns the last address of p.
func last(p netip.Prefix) netip.Addr {
	bytes := p.Addr().AsSlice()
	for i := range bytes {
		bytes[i] |= byte(0xff >> min(8, max(0, p.Bits()-8*i)))
	}
	a, _ := netip.AddrFromSlice(bytes)
	return a
}
