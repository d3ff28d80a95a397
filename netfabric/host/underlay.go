package host

import (
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/liqod/liqod/netfabric/plan"
)

// outside are addresses that only a default route leads to (RFC 5737, RFC 3849). Nothing is
// sent to them: connecting a UDP socket only looks the route up.
var outside = []string{"192.0.2.1:9", "[2001:db8::1]:9"}

// DefaultAddresses are the source addresses of packets that leave this host by its default
// routes, at most one of each family.
func DefaultAddresses() (out []netip.Addr) {
	for _, to := range outside {
		conn, err := net.Dial("udp", to)
		if err != nil {
			continue
		}
		if local, err := netip.ParseAddrPort(conn.LocalAddr().String()); err == nil && usable(local.Addr()) {
			out = append(out, local.Addr().Unmap())
		}
		_ = conn.Close()
	}
	return out
}

func usable(a netip.Addr) bool { return a.IsGlobalUnicast() && a.Zone() == "" }

// UnderlayMTU is the smallest MTU of the devices that hold the addresses.
func UnderlayMTU(addrs []netip.Addr) (int, error) {
	devices, err := net.Interfaces()
	if err != nil {
		return 0, fmt.Errorf("listing the network devices: %w", err)
	}
	mtu := 0
	for _, d := range devices {
		have, err := d.Addrs()
		if err != nil {
			continue // it is gone
		}
		holds := slices.ContainsFunc(have, func(a net.Addr) bool {
			p, err := netip.ParsePrefix(a.String())
			return err == nil && slices.Contains(addrs, p.Addr().Unmap())
		})
		if holds {
			mtu = plan.SmallerMTU(mtu, d.MTU)
		}
	}
	if mtu == 0 {
		return 0, fmt.Errorf("no network device has one of the addresses %s, so its MTU is not known", addrs)
	}
	return mtu, nil
}
