//go:build linux

package kernel

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/liqod/liqod/netfabric/plan"
)

// settle is the delay from a change to the call, which collects further changes.
const settle = 100 * time.Millisecond

// Watch calls changed after a change of one of our devices, addresses, neighbours, routes or
// rules, or of our nftables table, including changes by Apply. Changes within 100 ms cause
// one call, and calls do not overlap. changed should only enqueue a call of Apply, which
// repairs the host. Watch blocks until ctx ends; then the error is nil.
func (k *Kernel) Watch(ctx context.Context, changed func()) error {
	route, filter, err := k.subscribe()
	if err != nil {
		return err
	}
	links, err := k.indexes()
	if err != nil {
		route.Close()
		filter.Close()
		return err
	}

	poke := make(chan struct{}, 1)
	errs := make(chan error, 2)
	var readers sync.WaitGroup
	readers.Go(func() { errs <- listen(route, (&ours{links}).touches, poke) })
	readers.Go(func() { errs <- listen(filter, inTable, poke) })
	defer readers.Wait()
	defer route.Close()
	defer filter.Close()
	return tell(ctx, poke, errs, changed)
}

// subscribe opens a socket for changes of the network, and one for changes of nftables.
func (k *Kernel) subscribe() (route, filter *nl.NetlinkSocket, err error) {
	route, err = nl.SubscribeAt(k.namespace(), netns.None(), unix.NETLINK_ROUTE,
		unix.RTNLGRP_LINK, unix.RTNLGRP_NEIGH,
		unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV4_RULE,
		unix.RTNLGRP_IPV6_IFADDR, unix.RTNLGRP_IPV6_ROUTE, unix.RTNLGRP_IPV6_RULE)
	if err != nil {
		return nil, nil, fmt.Errorf("subscribing to changes of the network: %w", err)
	}
	filter, err = nl.SubscribeAt(k.namespace(), netns.None(), unix.NETLINK_NETFILTER, unix.NFNLGRP_NFTABLES)
	if err != nil {
		route.Close()
		return nil, nil, fmt.Errorf("subscribing to changes of nftables: %w", err)
	}
	return route, filter, nil
}

// indexes returns the interface indexes of our links.
func (k *Kernel) indexes() (map[int32]bool, error) {
	out := map[int32]bool{}
	err := k.reading(func(s *session) error {
		for _, l := range s.links {
			out[int32(l.Attrs().Index)] = true
		}
		return nil
	})
	return out, err
}

// tell calls changed after each poke and a delay.
func tell(ctx context.Context, poke <-chan struct{}, errs <-chan error, changed func()) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-errs:
			return err
		case <-poke:
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(settle):
		}
		select {
		case <-poke:
		default:
		}
		changed()
	}
}

// listen pokes for each message about our objects, until the socket is closed. It also pokes
// after an overflow of the socket, which loses messages.
func listen(socket *nl.NetlinkSocket, ours func(syscall.NetlinkMessage) bool, poke chan<- struct{}) error {
	for {
		messages, _, err := socket.Receive()
		if errors.Is(err, os.ErrClosed) {
			return nil
		}
		hit := errors.Is(err, unix.ENOBUFS)
		if err != nil && !hit {
			return fmt.Errorf("receiving changes of the network: %w", err)
		}
		for _, m := range messages {
			hit = ours(m) || hit
		}
		if hit {
			select {
			case poke <- struct{}{}:
			default:
			}
		}
	}
}

// ours selects the messages about our objects: the objects of pods on a node change often.
type ours struct {
	links map[int32]bool // by index: ours
}

func (o *ours) touches(m syscall.NetlinkMessage) bool {
	switch m.Header.Type {
	case unix.RTM_NEWLINK, unix.RTM_DELLINK:
		return o.link(m.Data)
	case unix.RTM_NEWADDR, unix.RTM_DELADDR: // the kernel itself creates those of scope link
		return len(m.Data) >= unix.SizeofIfAddrmsg && m.Data[3] != unix.RT_SCOPE_LINK && o.index(m.Data)
	case unix.RTM_NEWNEIGH, unix.RTM_DELNEIGH: // and multicast neighbours, in the state NOARP
		return len(m.Data) >= unix.SizeofNdMsg && binary.NativeEndian.Uint16(m.Data[8:]) != unix.NUD_NOARP && o.index(m.Data)
	case unix.RTM_NEWROUTE, unix.RTM_DELROUTE:
		return len(m.Data) >= unix.SizeofRtMsg && nl.DeserializeRtMsg(m.Data).Protocol == plan.RouteProtocol &&
			slices.Contains(tables(), number(m.Data, unix.RTA_TABLE))
	case unix.RTM_NEWRULE, unix.RTM_DELRULE:
		protocol, _ := attribute(m.Data, unix.SizeofRtMsg, nl.FRA_PROTOCOL)
		return len(protocol) == 1 && ourRule(number(m.Data, nl.FRA_PRIORITY), protocol[0])
	}
	return false
}

// index reports whether a message about an address or neighbour is about one of our links.
func (o *ours) index(data []byte) bool { return o.links[int32(binary.NativeEndian.Uint32(data[4:]))] }

func (o *ours) link(data []byte) bool {
	if len(data) < unix.SizeofIfInfomsg {
		return false
	}
	name, _ := attribute(data, unix.SizeofIfInfomsg, unix.IFLA_IFNAME)
	if !strings.HasPrefix(string(name), plan.DevicePrefix) {
		return false
	}
	o.links[nl.DeserializeIfInfomsg(data).Index] = true
	return true
}

// inTable reports whether a message of nftables is about our table. Its name is the first
// attribute of all such messages.
func inTable(m syscall.NetlinkMessage) bool {
	name, ok := attribute(m.Data, nl.SizeofNfgenmsg, unix.NFTA_TABLE_NAME)
	return ok && m.Data[0] == unix.NFPROTO_INET && strings.TrimRight(string(name), "\x00") == plan.TableName
}

// number returns a numeric attribute of a route or rule.
func number(data []byte, kind uint16) int {
	value, ok := attribute(data, unix.SizeofRtMsg, kind)
	if !ok || len(value) != 4 {
		return 0
	}
	return int(binary.NativeEndian.Uint32(value))
}

func attribute(data []byte, header int, kind uint16) ([]byte, bool) {
	if len(data) < header {
		return nil, false
	}
	attrs, err := nl.ParseRouteAttr(data[header:])
	if err != nil {
		return nil, false
	}
	for _, a := range attrs {
		if a.Attr.Type&^(unix.NLA_F_NESTED|unix.NLA_F_NET_BYTEORDER) == kind {
			return a.Value, true
		}
	}
	return nil, false
}
