//go:build linux

package kernel

import (
	"bytes"
	"net"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"golang.org/x/sys/unix"

	"github.com/liqod/liqod/netfabric/plan"
)

func newSet(t *nftables.Table, s plan.Set) *nftables.Set {
	one := plan.Per(s.Family, nftables.TypeIPAddr, nftables.TypeIP6Addr)
	out := &nftables.Set{Table: t, Name: s.Name, Interval: true, KeyType: one, KeyByteOrder: binaryutil.BigEndian}
	if s.Keys > 1 {
		out.KeyType, out.Concatenation = keyType(one, s.Keys), true
	}
	switch s.Value {
	case plan.Counter:
		out.Counter = true
	case plan.Address:
		out.IsMap, out.DataType = true, one
	case plan.Prefix: // a range: two addresses of which the type names one
		out.IsMap, out.DataType = true, one
		out.DataType.Bytes *= 2
	}
	return out
}

// keyType returns the type of two addresses, and of a protocol and a port with four parts.
func keyType(one nftables.SetDatatype, parts int) nftables.SetDatatype {
	all := []nftables.SetDatatype{one, one, nftables.TypeInetProto, nftables.TypeInetService}
	out, _ := nftables.ConcatSetType(all[:parts]...) // an error is for more than five
	return out
}

// encode converts an element as nft does. With two keys the element has a first and a last
// key. With one key an element with the flag IntervalEnd follows, at the address after the
// last; after the last address of all there is none.
func encode(e plan.Element, value plan.Value) []nftables.SetElement {
	first, end := e.A.Addr().AsSlice(), plan.Last(e.A)
	var val []byte
	switch value {
	case plan.Address:
		val = e.Value.Addr().AsSlice()
	case plan.Prefix:
		val = append(e.Value.Addr().AsSlice(), plan.Last(e.Value).AsSlice()...)
	}
	if e.B.IsValid() {
		service := encodeService(e.Service)
		return []nftables.SetElement{{
			Key:    slices.Concat(first, e.B.Addr().AsSlice(), service),
			KeyEnd: slices.Concat(end.AsSlice(), plan.Last(e.B).AsSlice(), service),
			Val:    val,
		}}
	}
	out := []nftables.SetElement{{Key: first, Val: val}}
	if next := end.Next(); next.IsValid() {
		out = append(out, nftables.SetElement{Key: next.AsSlice(), IntervalEnd: true})
	}
	return out
}

// serviceSize is the size of a protocol and a port in a key. Each part begins at a multiple
// of four bytes.
const serviceSize = 8

// protocols are the numbers of the protocols of plan.Service.
var protocols = map[string]byte{"tcp": unix.IPPROTO_TCP, "udp": unix.IPPROTO_UDP}

func encodeService(s plan.Service) []byte {
	if s == (plan.Service{}) {
		return nil
	}
	return append([]byte{protocols[s.Proto], 0, 0, 0}, byte(s.Port>>8), byte(s.Port), 0, 0)
}

// decodeService reverses encodeService.
func decodeService(key []byte) (plan.Service, bool) {
	for name := range protocols {
		s := plan.Service{Proto: name, Port: uint16(key[4])<<8 | uint16(key[5])}
		if s.Port != 0 && bytes.Equal(encodeService(s), key) {
			return s, true
		}
	}
	return plan.Service{}, false
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
	e.Set = set.Name
	size, parts := layout(len(r.Key), set.Concatenation)
	if len(r.KeyEnd) != len(r.Key) || parts == 0 {
		return e, false
	}
	if e.A, ok = between(r.Key[:size], r.KeyEnd[:size]); !ok {
		return e, false
	}
	if parts > 1 {
		if e.B, ok = between(r.Key[size:2*size], r.KeyEnd[size:2*size]); !ok {
			return e, false
		}
	}
	if parts > 2 {
		service := r.Key[2*size:]
		if e.Service, ok = decodeService(service); !ok || !bytes.Equal(service, r.KeyEnd[2*size:]) {
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

// layout returns the size of an address in a key, and the number of parts of the key; zero
// parts for a key that no plan has.
func layout(length int, concatenation bool) (size, parts int) {
	for _, size := range []int{net.IPv4len, net.IPv6len} {
		switch {
		case !concatenation && length == size:
			return size, 1
		case concatenation && length == 2*size:
			return size, 2
		case concatenation && length == 2*size+serviceSize:
			return size, 4
		}
	}
	return 0, 0
}

// between returns the prefix from first to end, if they are the ends of one.
func between(first, end []byte) (netip.Prefix, bool) {
	a, _ := netip.AddrFromSlice(first)
	z, _ := netip.AddrFromSlice(end)
	for bits := a.BitLen(); bits >= 0; bits-- {
		p := netip.PrefixFrom(a, bits)
		if p.Contains(z) {
			return p, p.Masked() == p && plan.Last(p) == z
		}
	}
	return netip.Prefix{}, false
}
