//go:build linux

package kernel

import (
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/liqod/liqod/netfabric/plan"
)

// Registers. A key or value of two addresses lies in two of them, which hold 4 or 16 bytes.
const (
	reg       = unix.NFT_REG_1
	second6   = unix.NFT_REG_2
	first4    = unix.NFT_REG32_00 // the first four bytes of reg
	second4   = unix.NFT_REG32_01 // the four bytes after it
	icmp6Csum = 40 + 2            // offset of the checksum from the beginning of the IPv6 header
)

func newChain(t *nftables.Table, c plan.Chain) *nftables.Chain {
	hooks := map[plan.Hook]*nftables.ChainHook{
		plan.HookPrerouting:  nftables.ChainHookPrerouting,
		plan.HookInput:       nftables.ChainHookInput,
		plan.HookForward:     nftables.ChainHookForward,
		plan.HookOutput:      nftables.ChainHookOutput,
		plan.HookPostrouting: nftables.ChainHookPostrouting,
	}
	if c.Hook == "" {
		return &nftables.Chain{Table: t, Name: c.Name}
	}
	out := &nftables.Chain{
		Table:    t,
		Name:     c.Name,
		Type:     nftables.ChainTypeFilter,
		Hooknum:  hooks[c.Hook],
		Priority: nftables.ChainPriorityRef(nftables.ChainPriority(c.Priority)),
	}
	if c.NAT {
		out.Type = nftables.ChainTypeNAT
	}
	return out
}

// render converts a rule: its conditions, then its action.
func render(m plan.Match) ([]expr.Any, error) {
	out := conditions(m)
	for i, l := range []plan.Lookup{m.Set, m.Map} {
		if l.Name == "" {
			continue
		}
		key, err := loadKey(l.Key, m.Family)
		if err != nil {
			return nil, err
		}
		lookup := &expr.Lookup{SourceRegister: reg, SetName: l.Name, Invert: l.Not}
		if i > 0 {
			lookup.DestRegister, lookup.IsDestRegSet = reg, true
		}
		out = append(append(out, key...), lookup)
	}
	do, err := action(m)
	return append(out, do...), err
}

// conditions begins with those that cost the kernel least and that most packets fail: it copies and
// pads the name of a device for each comparison.
func conditions(m plan.Match) (out []expr.Any) {
	when := func(is bool, condition ...expr.Any) {
		if is {
			out = append(out, condition...)
		}
	}
	when(m.Family != 0, meta(expr.MetaKeyNFPROTO, byte(familyOf(m.Family)))...)
	when(m.Proto != "", meta(expr.MetaKeyL4PROTO, protocol(m))...)
	when(m.Port != 0, payload(reg, 2, 2), equalTo(binary.BigEndian.AppendUint16(nil, m.Port)...))
	when(m.From != 0, payload(reg, 0, 2), equalTo(binary.BigEndian.AppendUint16(nil, m.From)...))
	when(m.SYN, synOnly()...)
	when(m.CT != "", tracked(m.CT)...)
	when(m.In != "", named(expr.MetaKeyIIFNAME, m.In)...)
	when(m.Out != "", named(expr.MetaKeyOIFNAME, m.Out)...)
	// The kernel compares byte by byte, which is right for numbers of one byte.
	local, last := binaryutil.NativeEndian.PutUint32(unix.RTN_LOCAL), binaryutil.NativeEndian.PutUint32(unix.RTN_MULTICAST)
	when(m.Local, addressType(), equalTo(local...))
	when(m.Stays, addressType(), &expr.Range{Op: expr.CmpOpEq, Register: reg, FromData: local, ToData: last})
	return out
}

// addressType loads the type of the route to the destination.
func addressType() expr.Any {
	return &expr.Fib{Register: reg, FlagDADDR: true, ResultADDRTYPE: true}
}

func protocol(m plan.Match) byte {
	switch {
	case m.Proto == "tcp":
		return unix.IPPROTO_TCP
	case m.Proto == "udp":
		return unix.IPPROTO_UDP
	case m.Family == plan.V6:
		return unix.IPPROTO_ICMPV6
	}
	return unix.IPPROTO_ICMP
}

// named compares the name of a device: all 16 bytes, or for a pattern its beginning.
func named(key expr.MetaKey, pattern string) []expr.Any {
	op := expr.CmpOpEq
	name, not := strings.CutPrefix(pattern, "!")
	if not {
		op = expr.CmpOpNeq
	}
	data := make([]byte, unix.IFNAMSIZ)
	copy(data, name)
	if start, ok := strings.CutSuffix(name, "*"); ok {
		data = []byte(start)
	}
	return []expr.Any{&expr.Meta{Key: key, Register: reg}, &expr.Cmp{Op: op, Register: reg, Data: data}}
}

func meta(key expr.MetaKey, value byte) []expr.Any {
	return []expr.Any{&expr.Meta{Key: key, Register: reg}, equalTo(value)}
}

// equalTo compares with what the expression before it has loaded.
func equalTo(value ...byte) expr.Any { return &expr.Cmp{Register: reg, Data: value} }

// payload loads a part of the header of the transport protocol.
func payload(to, offset, size uint32) expr.Any {
	return &expr.Payload{DestRegister: to, Base: expr.PayloadBaseTransportHeader, Offset: offset, Len: size}
}

// masked keeps the bits of mask of what the expression before it has loaded.
func masked(mask ...byte) expr.Any {
	return &expr.Bitwise{SourceRegister: reg, DestRegister: reg, Len: uint32(len(mask)), Mask: mask, Xor: make([]byte, len(mask))}
}

// synOnly matches SYN and SYN-ACK packets of TCP.
func synOnly() []expr.Any {
	const flags, syn, rst = 13, 0x02, 0x04
	return []expr.Any{payload(reg, flags, 1), masked(syn | rst), equalTo(syn)}
}

func tracked(c plan.CT) []expr.Any {
	if c == plan.Answer {
		const reply = 1
		return []expr.Any{&expr.Ct{Key: expr.CtKeyDIRECTION, Register: reg}, equalTo(reply)}
	}
	bits := map[plan.CT]uint32{
		plan.Known:   expr.CtStateBitESTABLISHED | expr.CtStateBitRELATED,
		plan.New:     expr.CtStateBitNEW,
		plan.Related: expr.CtStateBitRELATED,
		plan.Invalid: expr.CtStateBitINVALID,
	}
	key, bit, op := expr.CtKeySTATE, bits[c], expr.CmpOpNeq
	switch c {
	case plan.First: // not confirmed
		key, bit, op = expr.CtKeySTATUS, 1<<3, expr.CmpOpEq
	case plan.Redirected:
		key, bit = expr.CtKeySTATUS, 1<<5
	}
	return []expr.Any{&expr.Ct{Key: key, Register: reg}, masked(binaryutil.NativeEndian.PutUint32(bit)...), &expr.Cmp{Op: op, Register: reg, Data: make([]byte, 4)}}
}

// addresses returns the offsets and the size of the addresses in the IP header of a family.
func addresses(f plan.Family) (src, dst, size uint32) {
	if f == plan.V6 {
		return 8, 24, 16
	}
	return 12, 16, 4
}

// loadKey loads the key of a lookup into reg, and the parts behind the first into the
// registers that follow.
func loadKey(key plan.Key, f plan.Family) ([]expr.Any, error) {
	src, dst, size := addresses(f)
	offsets, ok := map[plan.Key][]uint32{
		plan.Src: {src}, plan.Dst: {dst}, plan.SrcDst: {src, dst}, plan.DstSrc: {dst, src}, plan.SrcDstService: {src, dst},
		plan.SrcInner: {src},
	}[key]
	if !ok || f == 0 {
		return nil, fmt.Errorf("a lookup needs a family and a key of package plan, not %q", key)
	}
	_, next := registers(f)
	var out []expr.Any
	for i, offset := range offsets {
		to := uint32(reg)
		if i > 0 {
			to = next
		}
		out = append(out, &expr.Payload{DestRegister: to, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: size})
	}
	switch key {
	case plan.SrcInner: // behind the 8 bytes of ICMP
		out = append(out, payload(next, 8+dst, size))
	case plan.SrcDstService:
		proto := plan.Per[uint32](f, unix.NFT_REG32_02, unix.NFT_REG32_08)
		out = append(out, &expr.Meta{Key: expr.MetaKeyL4PROTO, Register: proto}, payload(proto+1, 2, 2))
	}
	return out, nil
}

// registers returns the registers of the two addresses of a key, or of a value.
func registers(f plan.Family) (first, second uint32) {
	if f == plan.V6 {
		return reg, second6
	}
	return first4, second4
}

// action converts the action of m. The result of a lookup in m.Map is in reg.
func action(m plan.Match) ([]expr.Any, error) {
	first, second := registers(m.Family)
	nat := &expr.NAT{Family: uint32(familyOf(m.Family)), RegAddrMin: first}
	switch m.Do {
	case plan.Accept:
		return []expr.Any{&expr.Verdict{Kind: expr.VerdictAccept}}, nil
	case plan.Drop:
		return []expr.Any{&expr.Counter{}, &expr.Verdict{Kind: expr.VerdictDrop}}, nil
	case plan.Count:
		return nil, nil
	case plan.Goto:
		return []expr.Any{&expr.Verdict{Kind: expr.VerdictGoto, Chain: m.To}}, nil
	case plan.NoTrack:
		return []expr.Any{&expr.Notrack{}}, nil
	case plan.Masquerade:
		return []expr.Any{&expr.Masq{}}, nil
	case plan.ClampMSS:
		return clamp(), nil
	case plan.SetSrc:
		return setSource(m)
	case plan.SNAT, plan.SNATPrefix:
		nat.Type = expr.NATTypeSourceNAT
	case plan.DNAT, plan.DNATPrefix:
		nat.Type = expr.NATTypeDestNAT
	default:
		return nil, fmt.Errorf("there is no action %q", m.Do)
	}
	if m.Do == plan.SNATPrefix || m.Do == plan.DNATPrefix {
		nat.RegAddrMax, nat.Prefix = second, true
	}
	return []expr.Any{nat}, nil
}

// clamp lowers the segment size of a TCP packet to the MTU of the route.
func clamp() []expr.Any {
	const maxseg, offset = 2, 2
	return []expr.Any{
		&expr.Rt{Register: reg, Key: expr.RtTCPMSS},
		&expr.Byteorder{SourceRegister: reg, DestRegister: reg, Op: expr.ByteorderHton, Len: 2, Size: 2},
		&expr.Exthdr{SourceRegister: reg, Type: maxseg, Offset: offset, Len: 2, Op: expr.ExthdrOpTcpopt},
	}
}

// setSource writes the source address of an ICMP packet and corrects the checksum that
// covers it: for IPv4 the one of the header, for IPv6 the one of ICMPv6, whose header follows
// directly. The library cannot ask the kernel to find the checksum of an IPv6 packet.
func setSource(m plan.Match) ([]expr.Any, error) {
	if m.Proto != "icmp" {
		return nil, fmt.Errorf("%q is for ICMP only", plan.SetSrc)
	}
	src, _, size := addresses(m.Family)
	out := &expr.Payload{
		OperationType:  expr.PayloadWrite,
		SourceRegister: reg,
		Base:           expr.PayloadBaseNetworkHeader,
		Offset:         src,
		Len:            size,
		CsumType:       expr.CsumTypeInet,
		CsumOffset:     plan.Per[uint32](m.Family, 10, icmp6Csum),
	}
	return []expr.Any{out}, nil
}
