//go:build linux

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

// silence is the age of the latest handshake from which on a peer is lost, and gets its
// planned endpoint again: Reject-After-Time of the WireGuard paper.
const silence = 3 * time.Minute

// parked is the public key of a peer that takes prefixes from others and is removed with
// them in the same change. Kernels before 6.16 cannot remove a single prefix, and replacing
// all prefixes of a peer loses its packets for a moment.
const parked = "bGlxb2QgcGFya3MgYSBwcmVmaXggdG8gZHJvcCBpdC4="

// status is the configuration of a tunnel device as it is, with its peers.
type status struct {
	key     Key
	port    uint16
	mark    uint32
	peers   []Peer
	allowed []plan.Allowed
}

// change is a change of a tunnel device. Nil pointers change nothing.
type change struct {
	key   *Key
	port  *uint16
	mark  *uint32
	peers []peerChange
}

// peerChange changes or creates one peer. The allowed prefixes move to it from other peers.
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
	up() error // opens the port, before the link is set up
}

// Tunnel returns the mode of the tunnel device and the status of its peers, sorted by key.
// Without a device the error is fs.ErrNotExist.
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

// Redial drops the session with a peer of want, sets the planned endpoint and starts a
// handshake at once. New packets to the peer wait for the handshake; a packet on its way may
// be lost. It is for a peer whose probes fail: a handshake cannot be forced otherwise within
// 5 s of the previous one.
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

// device opens the tunnel device of that name. The caller calls the returned function after
// use.
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

// createTunnel creates a WireGuard device, in this process if the kernel does not support
// that kind of device. Other errors, such as EPERM, do not mean that it is unsupported.
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

// setDevice brings the tunnel device to want, and sets it up.
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

// raiseTunnel opens the port of the device, and sets its link up.
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

// delta compares want with have: up adds and changes, down deletes. It never replaces all
// peers, so that the sessions of the others go on.
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

// peerDelta compares a peer, without its prefixes. It sets the endpoint of a new peer and of
// a lost one only: WireGuard follows a peer that moves.
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

// removals removes prefixes from peers that stay. A prefix that another peer has now has
// already moved.
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
