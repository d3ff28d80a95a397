package lab

import (
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestDNSAddress(t *testing.T) {
	got, err := dnsAddress("10.96.0.0/16")
	require.NoError(t, err)
	require.Equal(t, "10.96.0.10", got)
	_, err = dnsAddress("10.96.0.0/30")
	require.ErrorContains(t, err, "too small")
}

func TestPlanV1(t *testing.T) {
	mine := "9:name=systemd:/\n8:name=other:/\n4:memory:/a/b\n2:cpu,cpuacct:/docker/x\n0::/\n"
	mounts := "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n" +
		"32 31 0:29 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd\n" +
		"33 31 0:30 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n" +
		"34 31 0:31 /docker/x /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n" +
		"35 31 0:32 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
	got, err := planV1("n", []byte(mine), []byte(mounts))
	require.NoError(t, err)
	require.Equal(t, []string{"/sys/fs/cgroup/systemd/n", "/sys/fs/cgroup/memory/a/b/n", "/sys/fs/cgroup/cpu,cpuacct/n"}, got.dirs)
	require.Equal(t, []string{"none,name=systemd", "memory", "cpu,cpuacct"}, got.v1)
	_, err = planV1("n", []byte(mine), nil)
	require.ErrorContains(t, err, "no cgroup hierarchy")
}

func TestFreePrefix(t *testing.T) {
	got, err := freePrefix("abc")
	require.NoError(t, err)
	require.True(t, netip.MustParsePrefix("172.31.0.0/16").Overlaps(got))
	require.Equal(t, 24, got.Bits())
}

func TestLabFullNetwork(t *testing.T) {
	for name, row := range map[string]struct {
		isolated bool
		turin    string // the range of the third machine's cluster
		want     bool   // whether the first machine has a route there
	}{
		"routed":   {turin: "10.3.0.0/16", want: true},
		"overlaps": {turin: "10.1.0.0/16"},
		"isolated": {turin: "10.3.0.0/16", isolated: true},
	} {
		t.Run(name, func(t *testing.T) {
			f := newTestFull(t, FullOptions{Network: NetworkOptions{Isolated: row.isolated}})
			turin := netip.MustParsePrefix(row.turin)
			rome := netip.MustParsePrefix("10.1.0.0/16")
			var machines []*Machine
			for _, each := range []struct {
				name, cluster string
				all, pods     netip.Prefix
			}{
				{"rome-1", "rome", rome, netip.MustParsePrefix("10.1.0.0/24")},
				{"rome-2", "rome", rome, netip.MustParsePrefix("10.1.1.0/24")},
				{"turin-1", "turin", turin, netip.PrefixFrom(turin.Addr(), 24)},
			} {
				m, err := f.Network().AddMachine(t.Context(), each.name)
				require.NoError(t, err)
				require.NoError(t, f.Network().announce(t.Context(), m, each.cluster, []string{each.all.String()}, []string{each.pods.String()}))
				require.NoError(t, f.Network().announce(t.Context(), m, each.cluster, []string{each.all.String()}, []string{each.pods.String()}), "twice is as once")
				machines = append(machines, m)
			}
			routes, err := command(t.Context(), "", "ip", "-n", machines[0].Netns, "route")
			require.NoError(t, err)
			require.Contains(t, routes, "10.1.1.0/24 via "+machines[1].Address)
			require.Equal(t, row.want, strings.Contains(routes, "via "+machines[2].Address), routes)
			rules, err := command(t.Context(), "", "ip", "netns", "exec", machines[0].Netns, "nft", "list", "table", "ip", "labmasq")
			require.NoError(t, err)
			require.Equal(t, 1, strings.Count(rules, "masquerade"))
			require.Equal(t, row.want, strings.Contains(rules, row.turin) && row.turin != "10.1.0.0/16", rules)
			_, err = net.DialTimeout("tcp", machines[2].Address+":1", 5*time.Second)
			require.ErrorIs(t, err, syscall.ECONNREFUSED, "this process reaches the machines")
			_, err = f.Network().AddMachine(t.Context(), "rome-1")
			require.ErrorContains(t, err, "exists already")
		})
	}
}

func TestRaiseInotify(t *testing.T) {
	for have, want := range map[string]string{"128\n": "1024", "1024\n": "1024\n", "8192\n": "8192\n"} {
		file := filepath.Join(t.TempDir(), "limit")
		require.NoError(t, os.WriteFile(file, []byte(have), 0o600))
		require.NoError(t, raiseInotify(file, t.Logf))
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Equal(t, want, string(data))
	}
	require.Error(t, raiseInotify(filepath.Join(t.TempDir(), "none"), t.Logf))
}
