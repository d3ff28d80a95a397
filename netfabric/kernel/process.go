//go:build linux

package kernel

import (
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"go.uber.org/zap"
	"golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/device"
	"golang.zx2c4.com/wireguard/tun"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"github.com/liqod/liqod/netfabric/plan"
)

// process is a tunnel device that wireguard-go runs in this process. It is configured by
// function calls, not by its socket: the path of the socket is the same in all network
// namespaces.
type process struct {
	name   string
	device *device.Device
	drops  *drops
}

func (k *Kernel) startProcess(want plan.Link) error {
	t, err := tun.CreateTUN(want.Name, want.MTU)
	if err != nil {
		return fmt.Errorf("creating a TUN device: %w", err)
	}
	d := &drops{}
	k.process = &process{name: want.Name, device: device.NewDevice(tunnelLink{t}, conn.NewDefaultBind(), deviceLog(k.cfg.Log, d)), drops: d}
	return nil
}

// endProcess ends the device in this process, if there is one.
func (k *Kernel) endProcess() {
	if k.process != nil {
		k.process.device.Close()
		k.process = nil
	}
}

// inProcess reports whether the device in this process is l.
func (k *Kernel) inProcess(l netlink.Link) bool {
	if _, ok := l.(*netlink.Tuntap); !ok || k.process == nil || k.process.name != l.Attrs().Name {
		return false
	}
	select {
	case <-k.process.device.Wait(): // it ended when its device was deleted; this is another's
		return false
	default:
		return true
	}
}

// foreign reports whether another process has created l.
func (k *Kernel) foreign(l netlink.Link) bool {
	_, ok := l.(*netlink.Tuntap)
	return ok && !k.inProcess(l)
}

// deviceLog logs errors at debug level: wireguard-go reports each failed handshake with a
// peer that has no endpoint, which is normal for a peer that dials. The other messages only
// count.
func deviceLog(log *zap.Logger, d *drops) *device.Logger {
	return &device.Logger{
		Verbosef: d.count,
		Errorf: func(format string, args ...any) {
			log.Debug("wireguard-go reported an error", zap.String("text", fmt.Sprintf(format, args...)))
		},
	}
}

func (p *process) read() (*wgtypes.Device, error) {
	text, err := p.device.IpcGet()
	if err != nil {
		return nil, err
	}
	return parseStatus(text)
}

func (p *process) set(c wgtypes.Config) error { return p.device.IpcSet(configText(c)) }

func (p *process) up() error { return p.device.Up() }

// configText converts a change to the configuration protocol of wireguard-go.
func configText(c wgtypes.Config) string {
	var b strings.Builder
	if c.PrivateKey != nil {
		fmt.Fprintf(&b, "private_key=%x\n", c.PrivateKey[:])
	}
	if c.ListenPort != nil {
		fmt.Fprintf(&b, "listen_port=%d\n", *c.ListenPort)
	}
	if c.FirewallMark != nil {
		fmt.Fprintf(&b, "fwmark=%d\n", *c.FirewallMark)
	}
	for _, p := range c.Peers {
		fmt.Fprintf(&b, "public_key=%x\n", p.PublicKey[:])
		if p.Remove {
			b.WriteString("remove=true\n")
		}
		if p.Endpoint != nil {
			fmt.Fprintf(&b, "endpoint=%s\n", p.Endpoint)
		}
		if p.PersistentKeepaliveInterval != nil {
			fmt.Fprintf(&b, "persistent_keepalive_interval=%d\n", int(p.PersistentKeepaliveInterval.Seconds()))
		}
		for _, a := range p.AllowedIPs {
			fmt.Fprintf(&b, "allowed_ip=%s\n", &a)
		}
	}
	return b.String()
}

// parseStatus parses the status of a device in that protocol.
func parseStatus(text string) (*wgtypes.Device, error) {
	out := &wgtypes.Device{}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		if name == "public_key" {
			out.Peers = append(out.Peers, wgtypes.Peer{})
		}
		var err error
		if n := len(out.Peers); n == 0 {
			err = parseDevice(out, name, value)
		} else {
			err = parsePeer(&out.Peers[n-1], name, value)
		}
		if err != nil {
			return nil, fmt.Errorf("parsing %s: %w", name, err)
		}
	}
	return out, nil
}

func parseDevice(d *wgtypes.Device, name, value string) (err error) {
	switch name {
	case "private_key":
		_, err = hex.Decode(d.PrivateKey[:], []byte(value))
	case "listen_port":
		d.ListenPort, err = strconv.Atoi(value)
	case "fwmark":
		d.FirewallMark, err = strconv.Atoi(value)
	}
	return err
}

func parsePeer(p *wgtypes.Peer, name, value string) (err error) {
	var n int64
	switch name {
	case "public_key":
		_, err = hex.Decode(p.PublicKey[:], []byte(value))
	case "endpoint":
		var at netip.AddrPort
		at, err = netip.ParseAddrPort(value)
		p.Endpoint = net.UDPAddrFromAddrPort(at)
	case "allowed_ip":
		var prefix netip.Prefix
		if prefix, err = netip.ParsePrefix(value); err == nil {
			p.AllowedIPs = append(p.AllowedIPs, *ipNet(prefix))
		}
	case "last_handshake_time_sec":
		n, err = strconv.ParseInt(value, 10, 64)
		p.LastHandshakeTime = time.Unix(n, 0)
	case "last_handshake_time_nsec":
		n, err = strconv.ParseInt(value, 10, 64)
		p.LastHandshakeTime = p.LastHandshakeTime.Add(time.Duration(n))
	case "persistent_keepalive_interval":
		n, err = strconv.ParseInt(value, 10, 32)
		p.PersistentKeepaliveInterval = time.Duration(n) * time.Second
	case "rx_bytes":
		p.ReceiveBytes, err = strconv.ParseInt(value, 10, 64)
	case "tx_bytes":
		p.TransmitBytes, err = strconv.ParseInt(value, 10, 64)
	}
	return err
}
