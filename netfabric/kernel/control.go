//go:build linux

package kernel

import (
	"fmt"
	"net"

	"golang.zx2c4.com/wireguard/wgctrl"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"github.com/liqod/liqod/netfabric/plan"
)

// control is a tunnel device of the kernel.
type control struct {
	client *wgctrl.Client
	name   string
}

func (k *Kernel) openControl(name string) (*control, error) {
	c := &control{name: name}
	err := k.inside(func() (err error) {
		c.client, err = wgctrl.New()
		return err
	})
	return c, err
}

func (c *control) close() { _ = c.client.Close() }

func (c *control) read() (status, error) {
	d, err := c.client.Device(c.name)
	if err != nil {
		return status{}, err
	}
	out := status{key: Key(d.PrivateKey), port: uint16(d.ListenPort), mark: uint32(d.FirewallMark)}
	for _, p := range d.Peers {
		peer := Peer{
			Key:       p.PublicKey.String(),
			Received:  uint64(p.ReceiveBytes),
			Sent:      uint64(p.TransmitBytes),
			keepalive: p.PersistentKeepaliveInterval,
		}
		if p.LastHandshakeTime.Unix() > 0 {
			peer.Handshake = p.LastHandshakeTime
		}
		if p.Endpoint != nil {
			peer.Endpoint = unmapped(p.Endpoint.AddrPort())
		}
		out.peers = append(out.peers, peer)
		for _, n := range p.AllowedIPs {
			out.allowed = append(out.allowed, plan.Allowed{Key: peer.Key, Prefix: prefixOf(&n)})
		}
	}
	return out, nil
}

func (c *control) set(ch change) error {
	config, err := ch.config()
	if err != nil {
		return err
	}
	return c.client.ConfigureDevice(c.name, config)
}

// up does nothing: the kernel opens the port when the link is set up.
func (c *control) up() error { return nil }

// config converts the change for wgctrl.
func (c change) config() (out wgtypes.Config, err error) {
	if c.key != nil {
		key := wgtypes.Key(*c.key)
		out.PrivateKey = &key
	}
	if c.port != nil {
		port := int(*c.port)
		out.ListenPort = &port
	}
	if c.mark != nil {
		mark := int(*c.mark)
		out.FirewallMark = &mark
	}
	for _, p := range c.peers {
		key, err := wgtypes.ParseKey(p.key)
		if err != nil {
			return wgtypes.Config{}, fmt.Errorf("parsing the public key %q: %w", p.key, err)
		}
		one := wgtypes.PeerConfig{PublicKey: key, Remove: p.remove, PersistentKeepaliveInterval: p.keepalive}
		if p.endpoint.IsValid() {
			one.Endpoint = net.UDPAddrFromAddrPort(p.endpoint)
		}
		for _, a := range p.allowed {
			one.AllowedIPs = append(one.AllowedIPs, *ipNet(a))
		}
		out.Peers = append(out.Peers, one)
	}
	return out, nil
}
