//go:build linux

package kernel

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/liqod/liqod/netfabric/plan"
)

// setLinks creates and changes links, and leaves the result in s.links. The deletion deletes
// our links that are not in want.
func (s *session) setLinks(want []plan.Link) (deletion func() error, err error) {
	if err := s.readLinks(); err != nil {
		return nil, err
	}
	var old []netlink.Link
	for name, l := range s.links {
		if !slices.ContainsFunc(want, func(w plan.Link) bool { return w.Name == name }) {
			old = append(old, l)
		}
	}
	var errs []error
	changed := false
	for _, w := range want {
		created, err := s.setLink(w)
		if err != nil {
			errs = append(errs, fmt.Errorf("setting device %s: %w", w.Name, err))
		}
		changed = changed || created
	}
	if changed {
		errs = append(errs, s.readLinks())
	}
	return func() error {
		var errs []error
		for _, l := range old {
			errs = append(errs, s.deleteLink(l))
		}
		return errors.Join(errs...)
	}, errors.Join(errs...)
}

func (s *session) readLinks() error {
	all, err := list(s.nl.LinkList)
	if err != nil {
		return fmt.Errorf("listing devices: %w", err)
	}
	s.links = map[string]netlink.Link{}
	for _, l := range all {
		if strings.HasPrefix(l.Attrs().Name, plan.DevicePrefix) {
			s.links[l.Attrs().Name] = l
		}
	}
	return nil
}

// index returns the interface index of one of our links.
func (s *session) index(name string) (int, error) {
	l, ok := s.links[name]
	if !ok {
		return 0, fmt.Errorf("there is no device %s", name)
	}
	return l.Attrs().Index, nil
}

// name returns the name of our link with that index, or an empty string.
func (s *session) name(index int) string {
	for name, l := range s.links {
		if l.Attrs().Index == index {
			return name
		}
	}
	return ""
}

// setLink creates or changes a link, and reports whether it created it.
func (s *session) setLink(want plan.Link) (created bool, err error) {
	l, ok := s.links[want.Name]
	if !ok {
		return true, s.createLink(want)
	}
	if s.foreign(l) {
		return false, fmt.Errorf("another process holds it: end that process, or delete the device with `ip link delete %s`", want.Name)
	}
	if !replaces(want, readLink(l)) {
		return false, s.changeLink(l, want)
	}
	if err := s.deleteLink(l); err != nil {
		return false, err
	}
	return true, s.createLink(want)
}

// replaces reports whether a change from have to want needs a new device.
func replaces(want, have plan.Link) bool {
	want.MTU, have.MTU, want.MAC, have.MAC = 0, 0, plan.MAC{}, plan.MAC{}
	return want != have
}

// changeLink changes the fields that a device can change, and sets a VXLAN device up.
// setDevice sets a WireGuard device up, after it has set key and port.
func (s *session) changeLink(l netlink.Link, want plan.Link) error {
	have := readLink(l)
	var errs []error
	if have.MTU != want.MTU {
		errs = append(errs, s.write("link", func() error { return s.nl.LinkSetMTU(l, want.MTU) }))
	}
	if want.Kind != plan.VXLAN {
		return errors.Join(errs...)
	}
	if have.MAC != want.MAC {
		errs = append(errs, s.write("link", func() error { return s.nl.LinkSetHardwareAddr(l, want.MAC[:]) }))
	}
	return errors.Join(append(errs, s.raise(l))...)
}

// raise sets a device up.
func (s *session) raise(l netlink.Link) error {
	if l.Attrs().Flags&net.FlagUp != 0 {
		return nil
	}
	return s.write("link", func() error { return s.nl.LinkSetUp(l) })
}

func (s *session) createLink(want plan.Link) error {
	if want.Kind == plan.WireGuard {
		return s.createTunnel(want)
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU, attrs.HardwareAddr = want.Name, want.MTU, want.MAC[:]
	l := &netlink.Vxlan{LinkAttrs: attrs, VxlanId: want.ID, Port: int(want.Port), SrcAddr: want.Local.AsSlice()}
	if err := s.write("link", func() error { return s.nl.LinkAdd(l) }); err != nil {
		return err
	}
	return s.raise(l)
}

// deleteLink deletes a device, and ends wireguard-go if it serves the device.
func (s *session) deleteLink(l netlink.Link) error {
	ours := s.inProcess(l)
	err := s.write("link", func() error { return s.nl.LinkDel(l) })
	if ours {
		s.endProcess()
	}
	if err != nil {
		return fmt.Errorf("deleting device %s: %w", l.Attrs().Name, err)
	}
	return nil
}

// readLink converts l. A device that no plan creates gets only its name, so that it differs
// from every planned one.
func readLink(l netlink.Link) plan.Link {
	out := plan.Link{Name: l.Attrs().Name}
	switch l := l.(type) {
	case *netlink.Vxlan:
		if l.Learning || l.FlowBased || l.Group != nil {
			return out
		}
		out.Kind, out.ID, out.Port, out.Local = plan.VXLAN, l.VxlanId, uint16(l.Port), addrOf(l.SrcAddr)
		copy(out.MAC[:], l.HardwareAddr)
	case *netlink.Wireguard, *netlink.Tuntap:
		out.Kind = plan.WireGuard
	}
	out.MTU = l.Attrs().MTU
	return out
}

func (s *session) addrs() kind[plan.Addr, netlink.Addr] {
	return kind[plan.Addr, netlink.Addr]{
		session: s, name: "address",
		list: s.addresses,
		read: func(a netlink.Addr) (plan.Addr, bool) {
			return plan.Addr{Link: s.name(a.LinkIndex), Prefix: prefixOf(a.IPNet)}, true
		},
		id: func(a plan.Addr) plan.Addr { return a },
		set: func(a plan.Addr, _ bool) error {
			l, ok := s.links[a.Link]
			if !ok {
				return fmt.Errorf("there is no device %s", a.Link)
			}
			n := &netlink.Addr{IPNet: ipNet(a.Prefix)}
			if a.Prefix.Addr().Is6() {
				n.Flags = unix.IFA_F_NODAD
			}
			return s.nl.AddrAdd(l, n)
		},
		del: func(a netlink.Addr) error { return s.nl.AddrDel(nil, &a) },
	}
}

// addresses reads the addresses of our links, without the link-local ones, which the kernel
// creates by itself.
func (s *session) addresses() ([]netlink.Addr, error) {
	all, err := s.nl.AddrList(nil, netlink.FAMILY_ALL)
	return slices.DeleteFunc(all, func(a netlink.Addr) bool { return s.name(a.LinkIndex) == "" || a.IP.IsLinkLocalUnicast() }), err
}

func (s *session) neighs() kind[plan.Neigh, netlink.Neigh] {
	return kind[plan.Neigh, netlink.Neigh]{
		session: s, name: "neighbour",
		list: func() ([]netlink.Neigh, error) {
			return s.neighbours(netlink.FAMILY_ALL, func(n netlink.Neigh) bool { return n.State == netlink.NUD_PERMANENT })
		},
		read: func(n netlink.Neigh) (plan.Neigh, bool) {
			return plan.Neigh{Link: s.name(n.LinkIndex), Addr: addrOf(n.IP), MAC: macOf(n.HardwareAddr)}, true
		},
		id: func(n plan.Neigh) plan.Neigh { return plan.Neigh{Link: n.Link, Addr: n.Addr} },
		set: func(n plan.Neigh, _ bool) error {
			index, err := s.index(n.Link)
			if err != nil {
				return err
			}
			return s.nl.NeighSet(&netlink.Neigh{LinkIndex: index, State: netlink.NUD_PERMANENT, IP: n.Addr.AsSlice(), HardwareAddr: n.MAC[:]})
		},
		del: func(n netlink.Neigh) error { return s.nl.NeighDel(&n) },
	}
}

func (s *session) fdb() kind[plan.FDB, netlink.Neigh] {
	return kind[plan.FDB, netlink.Neigh]{
		session: s, name: "forwarding entry",
		list: func() ([]netlink.Neigh, error) {
			return s.neighbours(unix.AF_BRIDGE, func(n netlink.Neigh) bool { return n.Flags&netlink.NTF_SELF != 0 && n.IP != nil })
		},
		read: func(n netlink.Neigh) (plan.FDB, bool) {
			return plan.FDB{Link: s.name(n.LinkIndex), MAC: macOf(n.HardwareAddr), Remote: addrOf(n.IP)}, true
		},
		id: func(f plan.FDB) plan.FDB { return plan.FDB{Link: f.Link, MAC: f.MAC} },
		set: func(f plan.FDB, _ bool) error {
			index, err := s.index(f.Link)
			if err != nil {
				return err
			}
			return s.nl.NeighSet(&netlink.Neigh{
				LinkIndex: index, Family: unix.AF_BRIDGE, Flags: netlink.NTF_SELF,
				State: netlink.NUD_PERMANENT | netlink.NUD_NOARP, IP: f.Remote.AsSlice(), HardwareAddr: f.MAC[:],
			})
		},
		del: func(n netlink.Neigh) error { return s.nl.NeighDel(&n) },
	}
}

// neighbours reads the entries of our links that ours accepts.
func (s *session) neighbours(family int, ours func(netlink.Neigh) bool) ([]netlink.Neigh, error) {
	all, err := s.nl.NeighList(0, family)
	return slices.DeleteFunc(all, func(n netlink.Neigh) bool { return s.name(n.LinkIndex) == "" || !ours(n) }), err
}

func macOf(a net.HardwareAddr) (m plan.MAC) {
	copy(m[:], a)
	return m
}

func addrOf(ip net.IP) netip.Addr {
	a, _ := netip.AddrFromSlice(ip)
	return a.Unmap()
}

func prefixOf(n *net.IPNet) netip.Prefix {
	if n == nil {
		return netip.Prefix{}
	}
	bits, size := n.Mask.Size()
	a := addrOf(n.IP)
	if size != a.BitLen() {
		return netip.Prefix{}
	}
	return netip.PrefixFrom(a, bits)
}

func ipNet(p netip.Prefix) *net.IPNet {
	if !p.IsValid() {
		return nil
	}
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
