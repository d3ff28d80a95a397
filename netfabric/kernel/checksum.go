//go:build linux

package kernel

import (
	"encoding/binary"

	"golang.zx2c4.com/wireguard/tun"
)

// tunnelLink corrects packets that wireguard-go reads from the kernel. It completes the
// checksums that the kernel leaves to a device, and writes 0 where a UDP checksum over IPv6
// must be 0xffff (RFC 8200, section 8.1): one packet of 65536, which every receiver drops.
// It can go when the function gsoNoneChecksum of wireguard-go does that.
type tunnelLink struct{ tun.Device }

// Read reads packets as tun.Device does.
func (l tunnelLink) Read(bufs [][]byte, sizes []int, offset int) (n int, err error) {
	n, err = l.Device.Read(bufs, sizes, offset)
	for i := range n {
		correct(bufs[i][offset : offset+sizes[i]])
	}
	return n, err
}

// correct writes the checksum of a UDP packet over IPv6 that has 0, if 0 is what it adds up
// to. Other packets without a checksum are tunnels of the application's own (RFC 6935).
func correct(packet []byte) {
	const header, udp, checksum = 40, 17, 46
	if len(packet) < header+8 || packet[0]>>4 != 6 || packet[6] != udp || packet[checksum]|packet[checksum+1] != 0 {
		return
	}
	total := uint32(udp) + uint32(len(packet)-header)
	for rest := packet[8:]; len(rest) > 0; { // from the addresses on
		if len(rest) == 1 {
			rest = []byte{rest[0], 0}
		}
		total += uint32(binary.BigEndian.Uint16(rest))
		rest = rest[2:]
	}
	for total > 0xffff {
		total = total&0xffff + total>>16
	}
	if total == 0xffff {
		packet[checksum], packet[checksum+1] = 0xff, 0xff
	}
}
