//go:build linux

package kernel

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"go.uber.org/zap"
	"golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/device"
	"golang.zx2c4.com/wireguard/tun"

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

func (p *process) read() (status, error) {
	text, err := p.device.IpcGet()
	if err != nil {
		return status{}, err
	}
	return parseStatus(text)
}

func (p *process) set(c change) error {
	text, err := c.text()
	if err != nil {
		return err
	}
	return p.device.IpcSet(text)
}

func (p *process) up() error { return p.device.Up() }

// text converts the change to the configuration protocol of wireguard-go.
func (c change) text() (string, error) {
	var b strings.Builder
	if c.key != nil {
		fmt.Fprintf(&b, "private_key=%s\n", hex.EncodeToString(c.key[:]))
	}
	if c.port != nil {
		fmt.Fprintf(&b, "listen_port=%d\n", *c.port)
	}
	if c.mark != nil {
		fmt.Fprintf(&b, "fwmark=%d\n", *c.mark)
	}
	for _, p := range c.peers {
		key, err := base64.StdEncoding.DecodeString(p.key)
		if err != nil {
			return "", fmt.Errorf("parsing the public key %q: %w", p.key, err)
		}
		fmt.Fprintf(&b, "public_key=%s\n", hex.EncodeToString(key))
		if p.remove {
			b.WriteString("remove=true\n")
		}
		if p.endpoint.IsValid() {
			fmt.Fprintf(&b, "endpoint=%s\n", p.endpoint)
		}
		if p.keepalive != nil {
			fmt.Fprintf(&b, "persistent_keepalive_interval=%d\n", int(p.keepalive.Seconds()))
		}
		for _, a := range p.allowed {
			fmt.Fprintf(&b, "allowed_ip=%s\n", a)
		}
	}
	return b.String(), nil
}

// parseStatus parses the status of a device in that protocol.
func parseStatus(text string) (out status, err error) {
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		if name == "public_key" {
			key, err := hex.DecodeString(value)
			if err != nil {
				return status{}, fmt.Errorf("parsing %s: %w", name, err)
			}
			out.peers = append(out.peers, Peer{Key: base64.StdEncoding.EncodeToString(key)})
			continue
		}
		if len(out.peers) == 0 {
			err = out.parse(name, value)
		} else {
			err = out.parsePeer(&out.peers[len(out.peers)-1], name, value)
		}
		if err != nil {
			return status{}, fmt.Errorf("parsing %s: %w", name, err)
		}
	}
	return out, nil
}

func (s *status) parse(name, value string) error {
	switch name {
	case "private_key":
		_, err := hex.Decode(s.key[:], []byte(value))
		return err
	case "listen_port":
		n, err := strconv.ParseUint(value, 10, 16)
		s.port = uint16(n)
		return err
	case "fwmark":
		n, err := strconv.ParseUint(value, 10, 32)
		s.mark = uint32(n)
		return err
	}
	return nil
}

func (s *status) parsePeer(p *Peer, name, value string) (err error) {
	var n int64
	switch name {
	case "endpoint":
		p.Endpoint, err = netip.ParseAddrPort(value)
		p.Endpoint = unmapped(p.Endpoint)
	case "allowed_ip":
		var prefix netip.Prefix
		prefix, err = netip.ParsePrefix(value)
		s.allowed = append(s.allowed, plan.Allowed{Key: p.Key, Prefix: prefix})
	case "last_handshake_time_sec":
		n, err = strconv.ParseInt(value, 10, 64)
		if n > 0 {
			p.Handshake = time.Unix(n, 0)
		}
	case "last_handshake_time_nsec":
		n, err = strconv.ParseInt(value, 10, 64)
		if !p.Handshake.IsZero() {
			p.Handshake = p.Handshake.Add(time.Duration(n))
		}
	case "persistent_keepalive_interval":
		n, err = strconv.ParseInt(value, 10, 32)
		p.keepalive = time.Duration(n) * time.Second
	case "rx_bytes":
		p.Received, err = strconv.ParseUint(value, 10, 64)
	case "tx_bytes":
		p.Sent, err = strconv.ParseUint(value, 10, 64)
	}
	return err
}

func unmapped(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
}
