package discovery

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/miekg/dns"
	"go.uber.org/zap"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"
	"k8s.io/utils/clock"

	"github.com/liqod/liqod/kube/loop"
)

const (
	multicastPort = 5353
	maxPacket     = 9000 // bytes (RFC 6762, section 17)
	onLink        = 255  // IP TTL and hop limit of sent packets
	// settling is how long after the start of a session a cluster that has not answered
	// counts as gone. Four queries are sent in that time.
	settling    = 10 * time.Second
	slowest     = time.Minute            // the longest time between two queries
	probeEvery  = 250 * time.Millisecond // interval of the three probes before the name is taken (RFC 6762, section 8.1)
	answerEvery = time.Second            // minimum time between two responses (RFC 6762, section 6)
	retry       = 30 * time.Second       // delay after the sockets have failed
	tellEvery   = 250 * time.Millisecond // minimum time after which packets are evaluated again
	// waiting is how many packets wait in the process; more wait in the sockets. The names in a
	// packet may be compressed, so that it takes a hundred times its size.
	waiting = 4
)

// Multicast finds clusters on local networks by multicast DNS, and announces this cluster
// there.
type Multicast struct {
	// Interfaces are the names of the network interfaces.
	Interfaces []string
	// Own is the record to announce; nil: none.
	Own *Record
	// Found is called with the known clusters each time that they change.
	Found func(Answer)
	Clock clock.WithTicker
	Log   *zap.Logger
}

// Run runs until ctx is done, and then sends a goodbye. It retries while the interfaces
// cannot be used.
func (m Multicast) Run(ctx context.Context) error {
	told := ""
	for ctx.Err() == nil {
		err := m.session(ctx)
		if err != nil && err.Error() != told {
			m.Log.Warn("looking for clusters on the local network failed; trying again", zap.Strings("interfaces", m.Interfaces), zap.Error(err))
			told = err.Error()
		}
		if err != nil {
			_ = loop.Sleep(ctx, m.Clock, retry) // the loop's condition looks at ctx
		}
	}
	return nil
}

// session uses one set of sockets until ctx is done or the interfaces have changed.
func (m Multicast) session(ctx context.Context) error {
	links, err := m.links()
	if err != nil {
		return err
	}
	s, err := open(links)
	if err != nil {
		return err
	}
	packets := make(chan *dns.Msg, waiting)
	var readers sync.WaitGroup
	defer readers.Wait()
	defer s.closeAll()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	malformed := make(chan struct{}, 64)
	for _, each := range s {
		readers.Go(func() { each.read(ctx, packets, malformed) })
	}
	now := m.Clock.Now()
	t := &talk{Multicast: m, sockets: s, network: newNetwork(m.Own), began: now, nextAsk: now, nextClaim: now, gap: time.Second}
	return t.run(ctx, packets, malformed, links)
}

// card is a network interface with the networks of its addresses.
type card struct {
	net.Interface
	networks []netip.Prefix
}

func (l card) equal(o card) bool { return l.Index == o.Index && slices.Equal(l.networks, o.networks) }

func (m Multicast) links() (links []card, err error) {
	for _, name := range m.Interfaces {
		have, err := net.InterfaceByName(name)
		if err != nil {
			return nil, fmt.Errorf("network interface %s: %w", name, err)
		}
		if have.Flags&net.FlagUp == 0 || have.Flags&net.FlagMulticast == 0 {
			return nil, fmt.Errorf("network interface %s is down, or cannot multicast", name)
		}
		addresses, err := have.Addrs()
		if err != nil {
			return nil, fmt.Errorf("addresses of network interface %s: %w", name, err)
		}
		l := card{Interface: *have}
		for _, a := range addresses {
			if prefix, err := netip.ParsePrefix(a.String()); err == nil {
				l.networks = append(l.networks, prefix.Masked())
			}
		}
		links = append(links, l)
	}
	return links, nil
}

// talk is the state of a session: when to query, to claim the name and to respond.
type talk struct {
	Multicast
	sockets sockets
	network *network

	began, nextAsk, nextClaim time.Time
	gap                       time.Duration
	claims                    int // probes sent; after the third, the name is taken
	announced                 int
	spoke                     time.Time
	told                      []Record
	heard                     bool // packets have come that are not evaluated yet
	nextTell                  time.Time
	settled                   bool
	warned                    time.Time
}

func (t *talk) run(ctx context.Context, packets <-chan *dns.Msg, malformed <-chan struct{}, links []card) error {
	for {
		now := t.Clock.Now()
		if err := t.due(now, links); err != nil {
			return err
		}
		if !t.heard || !now.Before(t.nextTell) {
			t.tell(now)
			t.heard, t.nextTell = false, now.Add(tellEvery)
		}
		timer := t.Clock.NewTimer(t.wait(now))
		select {
		case <-ctx.Done():
			timer.Stop()
			if t.announced > 0 {
				t.sockets.send(t.network.announce(true))
			}
			return nil
		case <-malformed:
			t.network.ignored[IgnoredMalformed]++
			t.heard = true
		case msg := <-packets:
			t.hear(t.Clock.Now(), msg)
			t.heard = true
		case <-timer.C():
		}
		timer.Stop()
	}
}

// due sends the packets that are due.
func (t *talk) due(now time.Time, links []card) error {
	if !now.Before(t.nextAsk) {
		if t.gap >= slowest {
			have, err := t.links()
			if err != nil {
				return err
			}
			if !slices.EqualFunc(have, links, card.equal) {
				return errors.New("the network interfaces have changed")
			}
		}
		t.sockets.send(t.network.question(now))
		t.nextAsk = now.Add(t.gap)
		t.gap = min(2*t.gap, slowest)
	}
	if t.Own == nil || now.Before(t.nextClaim) {
		return nil
	}
	switch {
	case t.contested(now):
		t.claims, t.announced, t.nextClaim = 0, 0, now.Add(claimAgain)
	case t.claims < 3:
		t.sockets.send(t.network.probe())
		t.claims, t.nextClaim = t.claims+1, now.Add(probeEvery)
	case t.announced < 2:
		t.sockets.send(t.network.announce(false))
		t.announced, t.nextClaim = t.announced+1, now.Add(time.Second)
	default:
		t.nextClaim = now.Add(slowest)
	}
	return nil
}

// contested reports whether another cluster has the name that this cluster is about to
// take. A cluster that has already announced the name keeps it, and only logs the conflict.
func (t *talk) contested(now time.Time) bool {
	if t.network.contested.IsZero() || now.Sub(t.network.contested) > claimAgain {
		return false
	}
	if now.Sub(t.warned) > time.Hour {
		t.Log.Error("another cluster announces the id of this one on the local network: one of them needs another id",
			zap.String("clusterID", t.Own.ClusterID))
		t.warned = now
	}
	return t.announced == 0
}

func (t *talk) hear(now time.Time, m *dns.Msg) {
	if m.Response {
		t.network.take(now, m)
		return
	}
	t.network.claimed(now, m)
	gap := answerEvery
	if len(m.Ns) > 0 { // a probe needs an early answer
		gap = probeEvery / 2
	}
	if t.announced == 0 || now.Sub(t.spoke) < gap {
		return
	}
	if answer := t.network.respond(m); answer != nil {
		t.spoke = now
		t.sockets.send(answer)
	}
}

// tell calls Found if the known clusters have changed.
func (t *talk) tell(now time.Time) {
	a := t.network.answer(now)
	settled := now.Sub(t.began) >= settling
	if slices.Equal(a.Clusters, t.told) && len(a.Ignored) == 0 && settled == t.settled {
		return
	}
	t.told, t.settled = a.Clusters, settled
	a.Partial = !settled
	t.Found(a)
}

func (t *talk) wait(now time.Time) time.Duration {
	d := min(t.nextAsk.Sub(now), t.network.next(now))
	if t.heard {
		d = min(d, t.nextTell.Sub(now))
	}
	if t.Own != nil {
		d = min(d, t.nextClaim.Sub(now))
	}
	if !t.settled {
		d = min(d, t.began.Add(settling).Sub(now))
	}
	return max(d, time.Millisecond)
}

// sockets are the sockets of one session, one for each interface and IP version. Where a host
// lacks one of the versions, its sockets are missing.
type sockets []socket

type socket struct {
	*net.UDPConn
	on    card
	group *net.UDPAddr
}

func groups() map[string]*net.UDPAddr {
	return map[string]*net.UDPAddr{
		"udp4": {IP: net.IPv4(224, 0, 0, 251), Port: multicastPort}, "udp6": {IP: net.ParseIP("ff02::fb"), Port: multicastPort},
	}
}

// open joins the multicast groups on the interfaces. Other processes on the host (avahi,
// systemd-resolved) may use the same port. It succeeds if one of IPv4 and IPv6 works on each
// interface.
func open(links []card) (s sockets, err error) {
	for _, l := range links {
		var errs []error
		for version, group := range groups() {
			conn, err := net.ListenMulticastUDP(version, &l.Interface, group)
			if err == nil {
				s = append(s, socket{conn, l, group})
				err = adjust(conn, version)
			}
			if err != nil {
				errs = append(errs, err)
			}
		}
		if len(errs) == len(groups()) {
			s.closeAll()
			return nil, errors.Join(errs...)
		}
	}
	return s, nil
}

// adjust makes a socket receive packets of its own interface alone, and send them also to other
// processes of the host, with the TTL by which receivers recognise their own link (RFC 6762,
// section 11).
func adjust(conn *net.UDPConn, version string) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	level, all := unix.IPPROTO_IP, 49 // IP_MULTICAST_ALL of linux/in.h: package unix has it only where it compiles for Linux
	if version == "udp6" {
		level, all = unix.IPPROTO_IPV6, 29 // IPV6_MULTICAST_ALL of linux/in6.h
	}
	var refused error
	err = raw.Control(func(fd uintptr) { refused = unix.SetsockoptInt(int(fd), level, all, 0) })
	err = errors.Join(err, refused)
	if version == "udp6" {
		six := ipv6.NewPacketConn(conn)
		return errors.Join(err, six.SetMulticastHopLimit(onLink), six.SetMulticastLoopback(true))
	}
	four := ipv4.NewPacketConn(conn)
	return errors.Join(err, four.SetMulticastTTL(onLink), four.SetMulticastLoopback(true))
}

func (s sockets) closeAll() {
	for _, each := range s {
		_ = each.Close()
	}
}

// send sends a message on every interface. Errors are ignored, because later messages
// repeat the content.
func (s sockets) send(m *dns.Msg) {
	data, err := m.Pack()
	if err != nil {
		return
	}
	for _, each := range s {
		_, _ = each.WriteToUDP(data, each.group)
	}
}

// read forwards the messages from hosts on the interface's own networks, until the socket is
// closed.
func (s socket) read(ctx context.Context, packets chan<- *dns.Msg, malformed chan<- struct{}) {
	buffer := make([]byte, maxPacket)
	for {
		n, from, err := s.ReadFromUDPAddrPort(buffer)
		if err != nil {
			return
		}
		if !s.on.neighbour(from) {
			continue
		}
		m := new(dns.Msg)
		if m.Unpack(buffer[:n]) != nil {
			select {
			case malformed <- struct{}{}:
			default: // the counter need not be exact
			}
			continue
		}
		select {
		case packets <- m:
		case <-ctx.Done():
			return
		}
	}
}

// neighbour reports whether the sender of a packet is on a network of the interface (RFC 6762,
// section 11). Other packets are dropped.
func (l card) neighbour(from netip.AddrPort) bool {
	source := from.Addr().Unmap().WithZone("")
	return from.Port() == multicastPort && (source.IsLinkLocalUnicast() ||
		slices.ContainsFunc(l.networks, func(p netip.Prefix) bool { return p.Contains(source) }))
}
