package kernel

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/liqod/liqod/netfabric/plan"
)

// silence is how long a session may go without a handshake before its peer counts as lost,
// and is sought at the planned endpoint again: Reject-After-Time of the WireGuard paper.
const silence = 3 * time.Minute

// parked is the public key of a peer that is given prefixes to be removed with them: no
// kernel before 6.16 can take one prefix from a peer without taking all.
const parked = "bGlxb2QgcGFya3MgYSBwcmVmaXggdG8gZHJvcCBpdC4="

// Mode says who encrypts.
type Mode string

// The modes. A device in the process ends with it, one of the kernel stays.
const (
	InKernel  Mode = "kernel"
	InProcess Mode = "process"
)

// Peer is what the tunnel device tells of a peer.
type Peer struct {
	Key       string         // public, as in plan.Tunnel
	Endpoint  netip.AddrPort // not valid: never heard of it
	Handshake time.Time      // of the latest; zero: none yet
	Received  uint64         // bytes
	Sent      uint64         // bytes
	keepalive time.Duration
}

// status is what a tunnel device tells of itself.
type status struct {
	key     Key
	port    uint16
	mark    uint32
	peers   []Peer
	allowed []plan.Allowed
}

// change is what a tunnel device is told. Nil pointers change nothing.
type change struct {
	key   *Key
	port  *uint16
	mark  *uint32
	peers []peerChange
}

// peerChange changes one peer, which is created if there is none. Allowed prefixes are taken
// from the peers that have them.
type peerChange struct {
	key       string
	remove    bool
	endpoint  netip.AddrPort // not valid: as it is
	keepalive *time.Duration
	allowed   []netip.Prefix
}

func (c change) empty() bool {
	return c.key == nil && c.port == nil && c.mark == nil && len(c.peers) == 0
}

// wireguard is a tunnel device.
type wireguard interface {
	read() (status, error)
	set(change) error
	up() error // before its link is; nothing if it is up
}

// Tunnel tells who encrypts for the tunnel device, and of its peers, sorted by key. The
// error is fs.ErrNotExist if there is no such device.
func (k *Kernel) Tunnel() (Mode, []Peer, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	device, mode, closer, err := k.device(plan.TunnelDevice)
	if err != nil {
		return "", nil, err
	}
	defer closer()
	have, err := device.read()
	if err != nil {
		return "", nil, fmt.Errorf("reading device %s: %w", plan.TunnelDevice, err)
	}
	slices.SortFunc(have.peers, func(a, b Peer) int { return strings.Compare(a.Key, b.Key) })
	return mode, have.peers, nil
}

// Redial forgets the session with a peer of want and seeks it at its planned endpoint at
// once, with a new handshake. Packets to the peer wait for that.
func (k *Kernel) Redial(want plan.Device, key string) error {
	i := slices.IndexFunc(want.Peers, func(t plan.Tunnel) bool { return t.Key == key })
	if i < 0 {
		return fmt.Errorf("device %s has no peer %s", want.Name, key)
	}
	again := peerChange{key: key, endpoint: want.Peers[i].Endpoint, keepalive: &want.Peers[i].Keepalive}
	for _, a := range want.Allowed {
		if a.Key == key {
			again.allowed = append(again.allowed, a.Prefix)
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	device, _, closer, err := k.device(want.Name)
	if err != nil {
		return err
	}
	defer closer()
	return k.write("peer", func() error {
		return device.set(change{peers: []peerChange{{key: key, remove: true}, again}})
	})
}

// device opens the tunnel device of that name.
func (k *Kernel) device(name string) (wireguard, Mode, func(), error) {
	if k.process != nil {
		return k.process, InProcess, func() {}, nil
	}
	c, err := k.openControl(name)
	if err != nil {
		return nil, "", nil, fmt.Errorf("opening device %s: %w", name, err)
	}
	return c, InKernel, c.close, nil
}

// createTunnel creates a WireGuard device: in the kernel, or in this process if the kernel
// knows no such thing. Other errors do not mean that.
func (s *session) createTunnel(want plan.Link) error {
	s.endProcess()
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU = want.Name, want.MTU
	err := s.write("link", func() error { return s.nl.LinkAdd(&netlink.Wireguard{LinkAttrs: attrs}) })
	if !errors.Is(err, unix.EOPNOTSUPP) {
		return err
	}
	if s.cfg.Namespace > 0 {
		return errors.New("the kernel has no WireGuard, and wireguard-go needs a process in the network namespace")
	}
	return s.write("link", func() error { return s.startProcess(want) })
}

// setDevice makes the tunnel device have what want says, and sets it up.
func (s *session) setDevice(want plan.Device) (deletion func() error, err error) {
	if want.Name == "" {
		return nil, nil
	}
	l, ok := s.links[want.Name]
	if !ok || s.foreign(l) {
		return nil, fmt.Errorf("there is no device %s", want.Name)
	}
	if s.cfg.Key == (Key{}) {
		return nil, fmt.Errorf("device %s needs a private key", want.Name)
	}
	device, _, closer, err := s.device(want.Name)
	if err != nil {
		return nil, err
	}
	have, err := device.read()
	if err != nil {
		closer()
		return nil, fmt.Errorf("reading device %s: %w", want.Name, err)
	}
	up, down := delta(want, have, s.cfg.Key, time.Now())
	err = s.setPeers(device, want.Name, up)
	if err == nil {
		err = s.raiseTunnel(device, l)
	}
	return func() error {
		defer closer()
		return s.setPeers(device, want.Name, down)
	}, err
}

// raiseTunnel has the device listen, and sets its link up.
func (s *session) raiseTunnel(device wireguard, l netlink.Link) error {
	if err := device.up(); err != nil {
		return fmt.Errorf("opening the port of device %s: %w", l.Attrs().Name, err)
	}
	return s.raise(l)
}

func (s *session) setPeers(device wireguard, name string, c change) error {
	if c.empty() {
		return nil
	}
	if err := s.write("peer", func() error { return device.set(c) }); err != nil {
		return fmt.Errorf("setting device %s: %w", name, err)
	}
	return nil
}

// delta says what have lacks of want, and what it has beyond it. Peers are never replaced as
// a whole: a session lives on while anything beside it changes.
func delta(want plan.Device, have status, key Key, now time.Time) (up, down change) {
	if have.key != key {
		up.key = &key
	}
	if have.port != want.Port {
		up.port = &want.Port
	}
	if have.mark != want.Mark {
		up.mark = &want.Mark
	}
	known, wanted := map[string]Peer{}, map[string]bool{}
	for _, p := range have.peers {
		known[p.Key] = p
	}
	add, del := plan.Diff(want.Allowed, have.allowed)
	for _, w := range want.Peers {
		wanted[w.Key] = true
		c, differs := peerDelta(w, known, now)
		for _, a := range add {
			if a.Key == w.Key {
				c.allowed = append(c.allowed, a.Prefix)
			}
		}
		if differs || len(c.allowed) > 0 {
			up.peers = append(up.peers, c)
		}
	}
	down.peers = removals(want, del, wanted)
	for _, p := range have.peers {
		if !wanted[p.Key] {
			down.peers = append(down.peers, peerChange{key: p.Key, remove: true})
		}
	}
	return up, down
}

// peerDelta says what is to be changed at a peer, but for its prefixes. Only a peer that is
// new or has been silent is told its endpoint: another may have been heard from elsewhere.
func peerDelta(want plan.Tunnel, known map[string]Peer, now time.Time) (c peerChange, differs bool) {
	have, ok := known[want.Key]
	c.key = want.Key
	if !ok || have.keepalive != want.Keepalive {
		c.keepalive = &want.Keepalive
	}
	lost := now.Sub(have.Handshake) > silence && have.Endpoint != want.Endpoint
	if want.Endpoint.IsValid() && (!ok || lost) {
		c.endpoint = want.Endpoint
	}
	return c, !ok || c.keepalive != nil || c.endpoint.IsValid()
}

// removals takes prefixes from peers that stay. Those that now are another peer's have been
// taken from them by that.
func removals(want plan.Device, old []plan.Allowed, stay map[string]bool) []peerChange {
	moved := map[netip.Prefix]bool{}
	for _, a := range want.Allowed {
		moved[a.Prefix] = true
	}
	var out []netip.Prefix
	for _, a := range old {
		if stay[a.Key] && !moved[a.Prefix] {
			out = append(out, a.Prefix)
		}
	}
	if len(out) == 0 {
		return nil
	}
	return []peerChange{{key: parked, allowed: out}, {key: parked, remove: true}}
}
