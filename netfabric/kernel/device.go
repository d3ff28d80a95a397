//go:build linux

package kernel

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"github.com/liqod/liqod/netfabric/plan"
)

// silence is the age of the latest handshake from which on a peer is lost, and gets its
// planned endpoint again: Reject-After-Time of the WireGuard paper.
const silence = 3 * time.Minute

// parked is the public key of a peer that takes prefixes from others and is removed with
// them in the same change. Kernels before 6.16 cannot remove a single prefix, and replacing
// all prefixes of a peer loses its packets for a moment.
const parked = "liqod parks a prefix to drop it."

// wireguard is a tunnel device.
type wireguard interface {
	read() (*wgtypes.Device, error)
	set(wgtypes.Config) error
	up() error // opens the port, before the link is set up
}

// Tunnel returns the mode of the tunnel device and the status of its peers, by public key.
// Without a device the error is fs.ErrNotExist.
func (k *Kernel) Tunnel() (Mode, map[string]Peer, error) {
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
	peers := map[string]Peer{}
	for _, p := range have.Peers {
		peers[p.PublicKey.String()] = tunnelPeer(p)
	}
	return mode, peers, nil
}

func tunnelPeer(p wgtypes.Peer) Peer {
	out := Peer{Received: uint64(p.ReceiveBytes), Sent: uint64(p.TransmitBytes)}
	if p.LastHandshakeTime.Unix() > 0 {
		out.Handshake = p.LastHandshakeTime
	}
	if p.Endpoint != nil {
		at := p.Endpoint.AddrPort()
		out.Endpoint = netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
	}
	return out
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
	again, _, err := peerDelta(want.Peers[i], nil, want.Allowed, time.Now())
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	device, _, closer, err := k.device(want.Name)
	if err != nil {
		return err
	}
	defer closer()
	return k.write("peer", func() error {
		return device.set(wgtypes.Config{Peers: []wgtypes.PeerConfig{{PublicKey: again.PublicKey, Remove: true}, again}})
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
	up, down, err := delta(want, have, s.cfg.Key, time.Now())
	if err == nil {
		err = s.setPeers(device, want.Name, up)
	}
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

func (s *session) setPeers(device wireguard, name string, c wgtypes.Config) error {
	if c.PrivateKey == nil && c.ListenPort == nil && c.FirewallMark == nil && len(c.Peers) == 0 {
		return nil
	}
	if err := s.write("peer", func() error { return device.set(c) }); err != nil {
		return fmt.Errorf("setting device %s: %w", name, err)
	}
	return nil
}

// delta compares want with have: up adds and changes, down deletes. It never replaces all
// peers, so that the sessions of the others go on.
func delta(want plan.Device, have *wgtypes.Device, key Key, now time.Time) (up, down wgtypes.Config, err error) {
	if have.PrivateKey != wgtypes.Key(key) {
		up.PrivateKey = new(wgtypes.Key(key))
	}
	if have.ListenPort != int(want.Port) {
		up.ListenPort = new(int(want.Port))
	}
	if have.FirewallMark != int(want.Mark) {
		up.FirewallMark = new(int(want.Mark))
	}
	known, wanted := map[string]wgtypes.Peer{}, map[string]bool{}
	var allowed []plan.Allowed
	for _, p := range have.Peers {
		known[p.PublicKey.String()] = p
		for _, n := range p.AllowedIPs {
			allowed = append(allowed, plan.Allowed{Key: p.PublicKey.String(), Prefix: prefixOf(&n)})
		}
	}
	add, del := plan.Diff(want.Allowed, allowed)
	for _, w := range want.Peers {
		wanted[w.Key] = true
		c, differs, err := peerDelta(w, known, add, now)
		if err != nil {
			return up, down, err
		}
		if differs {
			up.Peers = append(up.Peers, c)
		}
	}
	down.Peers = removals(want, del, wanted)
	for _, p := range have.Peers {
		if !wanted[p.PublicKey.String()] {
			down.Peers = append(down.Peers, wgtypes.PeerConfig{PublicKey: p.PublicKey, Remove: true})
		}
	}
	return up, down, nil
}

// peerDelta compares a peer, to which its prefixes of add move from other peers. It sets the endpoint
// of a new peer and of a lost one only: WireGuard follows a peer that moves.
func peerDelta(want plan.Tunnel, known map[string]wgtypes.Peer, add []plan.Allowed, now time.Time) (c wgtypes.PeerConfig, differs bool, err error) {
	if c.PublicKey, err = wgtypes.ParseKey(want.Key); err != nil {
		return c, false, fmt.Errorf("parsing the public key %q: %w", want.Key, err)
	}
	raw, ok := known[want.Key]
	if !ok || raw.PersistentKeepaliveInterval != want.Keepalive {
		c.PersistentKeepaliveInterval = &want.Keepalive
	}
	have := tunnelPeer(raw)
	lost := now.Sub(have.Handshake) > silence && have.Endpoint != want.Endpoint
	if want.Endpoint.IsValid() && (!ok || lost) {
		c.Endpoint = net.UDPAddrFromAddrPort(want.Endpoint)
	}
	for _, a := range add {
		if a.Key == want.Key {
			c.AllowedIPs = append(c.AllowedIPs, *ipNet(a.Prefix))
		}
	}
	return c, !ok || c.PersistentKeepaliveInterval != nil || c.Endpoint != nil || len(c.AllowedIPs) > 0, nil
}

// removals removes prefixes from peers that stay. A prefix that another peer has now has
// already moved.
func removals(want plan.Device, old []plan.Allowed, stay map[string]bool) []wgtypes.PeerConfig {
	moved := map[netip.Prefix]bool{}
	for _, a := range want.Allowed {
		moved[a.Prefix] = true
	}
	take := wgtypes.PeerConfig{PublicKey: wgtypes.Key([]byte(parked))}
	for _, a := range old {
		if stay[a.Key] && !moved[a.Prefix] {
			take.AllowedIPs = append(take.AllowedIPs, *ipNet(a.Prefix))
		}
	}
	if len(take.AllowedIPs) == 0 {
		return nil
	}
	return []wgtypes.PeerConfig{take, {PublicKey: take.PublicKey, Remove: true}}
}
