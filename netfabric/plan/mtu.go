package plan

// What a packet grows by, in bytes. A packet is in one of the two at a time, since a gateway
// unpacks it before it packs it again; so they do not add up.
const (
	overlayOverhead4 = 50 // Ethernet 14, VXLAN 8, UDP 8, IPv4 20
	overlayOverhead6 = 70 // with IPv6 40
	tunnelOverhead   = 80 // WireGuard 32, UDP 8, IPv6 40; IPv4 needs 20 less

	MinMTU4 = 576  // of a device, in bytes
	MinMTU6 = 1280 // RFC 8200, section 5
	MaxMTU  = 65535
)

// OverlayMTU is the MTU of OverlayDevice on an underlay of that MTU, in bytes, if its outer
// packets are of family f.
func OverlayMTU(underlay int, f Family) int {
	return underlay - Per(f, overlayOverhead4, overlayOverhead6)
}

// TunnelMTU is the MTU of TunnelDevice, in bytes. It does for outer packets of either
// family, because an endpoint may change from one to the other.
func TunnelMTU(underlay int) int { return underlay - tunnelOverhead }

// PathMTU is the largest packet, in bytes, that passes the whole way to a peer. peer is the
// PathMTU that the peer announces for its side of the way; 0 is not known.
func PathMTU(underlay int, f Family, peer int) int {
	own := min(OverlayMTU(underlay, f), TunnelMTU(underlay))
	if peer == 0 {
		return own
	}
	return min(own, peer)
}

// SmallerMTU returns the smaller of two MTUs. 0 means that an MTU is not known.
func SmallerMTU[T int | int32](a, b T) T {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}
