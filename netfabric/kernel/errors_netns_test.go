package kernel

import (
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/device"
	"golang.zx2c4.com/wireguard/ipc"
	"golang.zx2c4.com/wireguard/tun"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"github.com/liqod/liqod/netfabric/plan"
)

// A table that the kernel does not take leaves the old one in place, and nothing is routed
// that it would have guarded.
func TestNetnsATableThatIsRefused(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	s.address(t, "lo", "192.168.0.10/32", "fd00:1::10/128")
	k, c := kernelAt(t, s.FD)
	good, err := plan.Node(fixed())
	require.NoError(t, err)
	without := good
	without.Routes = nil
	applied(t, k, c, without)
	before := s.run(t, "nft", "list", "table", "inet", plan.TableName)

	bad := good
	bad.Table.Chains = append(bad.Table.Chains[:len(bad.Table.Chains):len(bad.Table.Chains)], plan.Chain{
		Name: "bad", Hook: plan.HookForward,
		Rules: []plan.Match{{Family: plan.V4, Set: plan.Lookup{Name: "missing", Key: plan.Src}, Do: plan.Drop}},
	})
	err = k.Apply(t.Context(), bad)
	require.ErrorIs(t, err, unix.ENOENT)
	require.Equal(t, 1, strings.Count(err.Error(), "no such file"), "%v", err)
	require.Contains(t, err.Error(), "setting table liqod: ")
	require.Equal(t, before, s.run(t, "nft", "list", "table", "inet", plan.TableName))
	require.NotContains(t, s.run(t, "ip", "route", "show", "table", "all"), "table 6171")

	bad.Table.Chains[len(bad.Table.Chains)-1].Rules[0] = plan.Match{Do: "vanish"}
	require.ErrorContains(t, k.Apply(t.Context(), bad), `rendering rule 1 of chain bad: there is no action "vanish"`)
	bad.Table = good.Table
	bad.Table.Elements = append(bad.Table.Elements[:len(bad.Table.Elements):len(bad.Table.Elements)], plan.Element{Set: "missing", A: prefix("10.0.0.0/8")})
	require.ErrorContains(t, k.Apply(t.Context(), bad), "there is no set missing")
	require.Equal(t, before, s.run(t, "nft", "list", "table", "inet", plan.TableName))
	applied(t, k, c, good)
}

// Many peers are many elements: of one transaction, and of messages that hold only so much.
func TestNetnsManyElements(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	k, c := kernelAt(t, s.FD)
	want := plan.State{Table: plan.Table{Name: plan.TableName, Sets: everySet(), Chains: everyRule()}}
	for i := range 3000 {
		net4, net6 := fmt.Sprintf("10.%d.%d.0/24", i/256, i%256), fmt.Sprintf("fd00:%x::/32", i)
		want.Table.Elements = append(want.Table.Elements,
			plan.Element{Set: "one4", A: prefix(net4)},
			plan.Element{Set: "pair6", A: prefix(net6), B: prefix("fd01::/16"), Value: prefix("fd02::/16")})
	}
	applied(t, k, c, want)
	want.Table.Elements = want.Table.Elements[:len(want.Table.Elements)-20]
	applied(t, k, c, want)
	require.Equal(t, counter{"table": 1, "element": 1}, c)
	want.Table.Elements = want.Table.Elements[:len(want.Table.Elements)/2]
	applied(t, k, c, want)
	require.Equal(t, counter{"table": 2, "element": 1}, c, "so many are not deleted one by one")
}

func TestNetnsKernelSettings(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	k, c := kernelAt(t, s.FD)
	want := plan.State{Sysctls: []plan.Sysctl{{Name: "net/ipv4/ip_forward", Value: "1"}, {Name: "net/ipv6/conf/all/forwarding", Value: "1"}}}
	applied(t, k, c, want)
	require.Equal(t, 2, c["sysctl"])
	require.Equal(t, "1\n1\n", s.run(t, "cat", "/proc/sys/net/ipv4/ip_forward", "/proc/sys/net/ipv6/conf/all/forwarding"))

	want.Sysctls = append(want.Sysctls, plan.Sysctl{Name: "net/ipv4/no_such_thing", Value: "1"}, plan.Sysctl{Name: "net/ipv4/ip_forward", Value: "a lot"})
	err := k.Apply(t.Context(), want)
	require.ErrorContains(t, err, "/proc/sys/net/ipv4/no_such_thing")
	require.ErrorContains(t, err, "setting net/ipv4/ip_forward from 1 to a lot: ")
}

func TestNetnsDevicesThatFail(t *testing.T) {
	t.Parallel()
	if !alone(t) {
		return
	}
	s := here(t)
	k, c := kernelAt(t, 0)
	_, _, err := k.Tunnel()
	require.ErrorIs(t, err, os.ErrNotExist)
	want, err := plan.Gateway(fixed())
	require.NoError(t, err)

	// The port is taken, and then free.
	taken, err := net.ListenPacket("udp", fmt.Sprintf(":%d", plan.TunnelPort))
	require.NoError(t, err)
	for range 2 {
		require.ErrorIs(t, k.Apply(t.Context(), want), unix.EADDRINUSE)
	}
	require.NoError(t, taken.Close())
	applied(t, k, c, want)

	require.ErrorContains(t, k.Redial(want.Device, publicKey(9)), "device liqod-wg has no peer "+publicKey(9))
	require.NoError(t, k.Redial(want.Device, publicKey(1)))
	require.Equal(t, sorted(want), sorted(reached(t, k, want)))

	// A second process finds the device, and does not take it.
	other, _ := kernelAt(t, 0)
	require.ErrorContains(t, other.Apply(t.Context(), want), "another process holds it")
	require.NotEmpty(t, s.run(t, "ip", "link", "show", plan.TunnelDevice))

	keyless := New(Config{Log: k.cfg.Log})
	require.NoError(t, k.Apply(t.Context(), plan.State{}))
	require.ErrorContains(t, keyless.Apply(t.Context(), want), "device liqod-wg needs a private key")
}

func TestNetnsTunnelInANamespaceOfAnother(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	k, _ := kernelAt(t, s.FD)
	want, err := plan.Gateway(fixed())
	require.NoError(t, err)
	if err = k.Apply(t.Context(), want); err != nil { // else the kernel has WireGuard
		require.ErrorContains(t, err, "wireguard-go needs a process in the network namespace")
	}
}

// The client of the kernel's WireGuard speaks to a process in the same words.
func TestNetnsControl(t *testing.T) {
	t.Parallel()
	if !alone(t) {
		return
	}
	here(t)
	name := fmt.Sprintf("wgt%d", os.Getpid()%1_000_000) // its socket has the same path in all namespaces
	file, err := ipc.UAPIOpen(name)
	require.NoError(t, err)
	socket, err := ipc.UAPIListen(name, file)
	require.NoError(t, err)
	defer socket.Close()
	link, err := tun.CreateTUN(name, 1400)
	require.NoError(t, err)
	d := device.NewDevice(link, conn.NewDefaultBind(), device.NewLogger(device.LogLevelSilent, ""))
	defer d.Close()
	go func() {
		for {
			c, err := socket.Accept()
			if err != nil {
				return
			}
			go d.IpcHandle(c)
		}
	}()

	k, _ := kernelAt(t, 0)
	c, err := k.openControl(name)
	require.NoError(t, err)
	defer c.close()
	p := &process{name: name, device: d}
	for _, peers := range []int{2, 3, 1, 0} {
		want := plan.Device{Port: 5000 + uint16(peers), Mark: uint32(peers)}
		for _, key := range keys[:peers] {
			want.Peers = append(want.Peers, plan.Tunnel{Key: key, Keepalive: time.Duration(peers) * time.Second})
			want.Allowed = append(want.Allowed, plan.Allowed{Key: key, Prefix: prefix(fmt.Sprintf("10.%d.0.0/16", len(want.Allowed)+peers))})
		}
		have, err := c.read()
		require.NoError(t, err)
		up, down, err := delta(want, have, k.cfg.Key, time.Now())
		require.NoError(t, err)
		require.NoError(t, c.set(up))
		require.NoError(t, c.up())
		require.NoError(t, c.set(down))

		have, err = c.read()
		require.NoError(t, err)
		again, err := p.read()
		require.NoError(t, err)
		require.Equal(t, again.PrivateKey, have.PrivateKey)
		require.Equal(t, again.ListenPort, have.ListenPort)
		require.Equal(t, again.FirewallMark, have.FirewallMark)
		require.ElementsMatch(t, peerSettings(again), peerSettings(have))
		require.ElementsMatch(t, allowedOf(again), allowedOf(have))
		require.ElementsMatch(t, want.Allowed, allowedOf(have))
		up, down, err = delta(want, have, k.cfg.Key, time.Now())
		require.NoError(t, err)
		require.Zero(t, up)
		require.Zero(t, down)
	}
}

// peerSettings are the peers of a device, without their prefixes.
func peerSettings(d *wgtypes.Device) (out []plan.Tunnel) {
	for _, p := range d.Peers {
		out = append(out, plan.Tunnel{Key: p.PublicKey.String(), Endpoint: tunnelPeer(p).Endpoint, Keepalive: p.PersistentKeepaliveInterval})
	}
	return out
}
