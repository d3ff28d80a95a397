package kernel

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"
	"golang.org/x/sys/unix"

	"github.com/liqod/liqod/kube/kubetest"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"github.com/liqod/liqod/netfabric/plan"
)

// space is a network namespace with a connection to its kernel.
type space struct {
	*kubetest.Netns
	nl *netlink.Handle
}

func newSpace(t *testing.T) *space {
	t.Helper()
	ns := kubetest.NewNetns(t)
	handle, err := netlink.NewHandleAt(netns.NsHandle(ns.FD))
	require.NoError(t, err)
	t.Cleanup(handle.Close)
	return &space{ns, handle}
}

// do is Do for a function without an error.
func (s *space) do(f func()) {
	if err := s.Do(func() error { f(); return nil }); err != nil {
		panic(err)
	}
}

// run runs a command in the namespace, and returns what it prints.
func (s *space) run(t *testing.T, name string, args ...string) string {
	t.Helper()
	var out []byte
	var err error
	s.do(func() { out, err = exec.CommandContext(t.Context(), name, args...).CombinedOutput() })
	require.NoError(t, err, "%s %v: %s", name, args, out)
	return string(out)
}

// address is a CIDR on a device.
func (s *space) address(t *testing.T, device string, cidrs ...string) {
	t.Helper()
	l, err := s.nl.LinkByName(device)
	require.NoError(t, err)
	for _, c := range cidrs {
		p := netip.MustParsePrefix(c)
		a := &netlink.Addr{IPNet: &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}}
		if p.Addr().Is6() {
			a.Flags = unix.IFA_F_NODAD
		}
		require.NoError(t, s.nl.AddrAdd(l, a))
	}
	require.NoError(t, s.nl.LinkSetUp(l))
}

// own is the environment variable that names the test that has a process of its own.
const own = "LIQOD_TEST_PROCESS"

// alone runs the test again in a process and a network namespace of its own, and reports
// whether this is that process: the threads of wireguard-go live where their process does.
func alone(t *testing.T) bool {
	t.Helper()
	if os.Getenv(own) == t.Name() {
		return true
	}
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v", "-test.count=1")
	cmd.Env = append(os.Environ(), own+"="+t.Name())
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET}
	out, err := cmd.CombinedOutput()
	if !errors.As(err, new(*exec.ExitError)) {
		kubetest.RequireRights(t, err)
	}
	t.Logf("in a process of its own:\n%s", out)
	require.NoError(t, err)
	require.Contains(t, string(out), "--- PASS: "+t.Name(), "the test has not run")
	return false
}

// here is the namespace of the process.
func here(t *testing.T) *space {
	t.Helper()
	ns, err := netns.Get()
	require.NoError(t, err)
	handle, err := netlink.NewHandle()
	require.NoError(t, err)
	lo, err := handle.LinkByName("lo")
	require.NoError(t, err)
	require.NoError(t, handle.LinkSetUp(lo))
	t.Cleanup(handle.Close)
	return &space{&kubetest.Netns{FD: int(ns)}, handle}
}

// counter counts writes.
type counter map[string]int

func (c counter) wrote(kind string) { c[kind]++ }

func (c counter) total() (n int) {
	for _, v := range c {
		n += v
	}
	return n
}

// kernelAt is a Kernel for the namespace with a counter of its writes. In the namespace of
// the process fd is 0.
func kernelAt(t *testing.T, fd int) (*Kernel, counter) {
	t.Helper()
	key, err := GenerateKey()
	require.NoError(t, err)
	c := counter{}
	return New(Config{Namespace: fd, Key: key, Log: zaptest.NewLogger(t, zaptest.Level(zap.WarnLevel)), Wrote: c.wrote}), c
}

// applied applies a state and checks that it is reached, and that doing so again neither
// writes nor changes anything.
func applied(t *testing.T, k *Kernel, c counter, want plan.State) {
	t.Helper()
	require.NoError(t, k.Apply(t.Context(), want))
	require.Equal(t, sorted(want), sorted(reached(t, k, want)))
	before := c.total()
	changes := overhear(t, k)
	require.NoError(t, k.Apply(t.Context(), want))
	require.Equal(t, before, c.total(), "the second time writes: %v", c)
	require.Empty(t, changes(), "the second time changes something")
}

// overhear listens to what the kernel tells of changes of ours, and returns what returns it.
func overhear(t *testing.T, k *Kernel) (changes func() []string) {
	t.Helper()
	links, err := k.indexes()
	require.NoError(t, err)
	route, filter, err := k.subscribe()
	require.NoError(t, err)
	heard := func(socket *nl.NetlinkSocket, ours func(syscall.NetlinkMessage) bool) (out []string) {
		defer socket.Close()
		require.NoError(t, socket.SetReceiveTimeout(&unix.Timeval{Usec: 1000}))
		for {
			messages, _, err := socket.Receive()
			if errors.Is(err, unix.EAGAIN) {
				return out
			}
			require.NoError(t, err)
			for _, m := range messages {
				// The kernel announces IPv6 addresses again, in its own time, after a device went up.
				if ours(m) && m.Header.Type != unix.RTM_NEWADDR {
					out = append(out, fmt.Sprintf("%d %x", m.Header.Type, m.Data))
				}
			}
		}
	}
	return func() []string {
		return append(heard(route, (&ours{links}).touches), heard(filter, inTable)...)
	}
}

// reached is the state of the host, with the kernel settings and endpoints of want: those
// are not for the host to say.
func reached(t *testing.T, k *Kernel, want plan.State) (out plan.State) {
	t.Helper()
	s, err := k.open()
	require.NoError(t, err)
	defer s.close()
	require.NoError(t, s.readLinks())
	out.Sysctls = want.Sysctls
	for _, l := range s.links {
		one := readLink(l)
		if one.Kind == plan.WireGuard {
			one.MAC = plan.MAC{}
		}
		require.NotZero(t, l.Attrs().Flags&net.FlagUp, "%s is down", one.Name)
		out.Links = append(out.Links, one)
	}
	out.Addrs = all(t, s.addrs())
	out.Neighs = all(t, s.neighs())
	out.FDB = all(t, s.fdb())
	out.Rules = all(t, s.rules())
	out.Routes = all(t, s.routes())
	out.Device = tunnelReached(t, s, want)
	have, err := s.readTable(want.Table)
	require.NoError(t, err)
	if have.exists {
		require.True(t, have.intact, "the fixed part of the table differs")
		out.Table = want.Table
		out.Table.Elements = have.elements
	}
	return out
}

func tunnelReached(t *testing.T, s *session, want plan.State) (out plan.Device) {
	if _, ok := s.links[plan.TunnelDevice]; !ok {
		return out
	}
	device, _, closer, err := s.device(plan.TunnelDevice)
	require.NoError(t, err)
	defer closer()
	have, err := device.read()
	require.NoError(t, err)
	require.Equal(t, s.cfg.Key, Key(have.PrivateKey))
	out = plan.Device{Name: plan.TunnelDevice, Port: uint16(have.ListenPort), Mark: uint32(have.FirewallMark), Allowed: allowedOf(have)}
	for _, p := range have.Peers {
		one := plan.Tunnel{Key: p.PublicKey.String(), Keepalive: p.PersistentKeepaliveInterval}
		i := slices.IndexFunc(want.Device.Peers, func(t plan.Tunnel) bool { return t.Key == one.Key })
		if i >= 0 {
			one.Endpoint = want.Device.Peers[i].Endpoint
			require.Equal(t, one.Endpoint.IsValid(), p.Endpoint != nil)
		}
		out.Peers = append(out.Peers, one)
	}
	return out
}

func allowedOf(d *wgtypes.Device) (out []plan.Allowed) {
	for _, p := range d.Peers {
		for _, n := range p.AllowedIPs {
			out = append(out, plan.Allowed{Key: p.PublicKey.String(), Prefix: prefixOf(&n)})
		}
	}
	return out
}

func all[T comparable, R any](t *testing.T, k kind[T, R]) (out []T) {
	t.Helper()
	found, err := k.list()
	require.NoError(t, err)
	for _, r := range found {
		one, ok := k.read(r)
		require.True(t, ok, "%s %+v", k.name, r)
		out = append(out, one)
	}
	return out
}

// sorted brings the slices of a state into one order, and makes empty ones nil.
func sorted(s plan.State) plan.State {
	s.Links = ordered(s.Links)
	s.Addrs = ordered(s.Addrs)
	s.Neighs = ordered(s.Neighs)
	s.FDB = ordered(s.FDB)
	s.Device.Peers = ordered(s.Device.Peers)
	s.Device.Allowed = ordered(s.Device.Allowed)
	s.Table.Elements = ordered(s.Table.Elements)
	s.Rules = ordered(s.Rules)
	s.Routes = ordered(s.Routes)
	return s
}

func ordered[T any](list []T) []T {
	if len(list) == 0 {
		return nil
	}
	list = slices.Clone(list)
	slices.SortFunc(list, func(a, b T) int { return strings.Compare(text(a), text(b)) })
	return list
}
