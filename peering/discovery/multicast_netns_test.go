package discovery

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap/zaptest"
	"golang.org/x/sys/unix"
	"k8s.io/utils/clock"
)

// hosts returns network namespaces on a common network.
func hosts(t *testing.T, n int) []string {
	t.Helper()
	run := func(args ...string) error {
		out, err := exec.CommandContext(t.Context(), "ip", args...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("ip %v: %w: %s", args, err, out)
		}
		return nil
	}
	if err := run("netns", "list"); err != nil || os.Getuid() != 0 {
		text := fmt.Sprintf("NOT TESTED: multicast needs network namespaces: root, and ip (%v)", err)
		if os.Getenv("CI") == "true" {
			t.Fatal(text)
		}
		t.Skip(text)
	}
	hub := fmt.Sprintf("liqod-d%d", os.Getpid())
	require.NoError(t, run("netns", "add", hub))
	t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", hub).Run() })
	require.NoError(t, run("-n", hub, "link", "add", "bridge", "type", "bridge", "mcast_snooping", "0"))
	require.NoError(t, run("-n", hub, "link", "set", "bridge", "up"))
	var names []string
	for i := range n {
		name, port := fmt.Sprintf("%s-%d", hub, i), fmt.Sprintf("port%d", i)
		require.NoError(t, run("netns", "add", name))
		t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", name).Run() })
		require.NoError(t, run("-n", hub, "link", "add", port, "type", "veth", "peer", "name", "lan", "netns", name))
		require.NoError(t, run("-n", hub, "link", "set", port, "master", "bridge", "up"))
		require.NoError(t, run("-n", name, "addr", "add", fmt.Sprintf("10.99.0.%d/24", i+1), "dev", "lan"))
		require.NoError(t, run("-n", name, "link", "set", "lo", "up"))
		require.NoError(t, run("-n", name, "link", "set", "lan", "up"))
		names = append(names, name)
	}
	return names
}

// in runs f on its own thread in a network namespace. The thread ends with f.
func in(t *testing.T, namespace string, f func()) (done chan struct{}) {
	t.Helper()
	done = make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		fd, err := unix.Open("/run/netns/"+namespace, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err == nil {
			err = unix.Setns(fd, unix.CLONE_NEWNET)
			_ = unix.Close(fd)
		}
		if err != nil {
			t.Errorf("entering network namespace %s: %v", namespace, err)
			return
		}
		f()
	}()
	return done
}

// looker is a Multicast in a network namespace, and the answers that it has found.
type looker struct {
	cancel context.CancelFunc
	done   chan struct{}

	mu      sync.Mutex
	known   []Record
	ignored map[string]int
	whole   bool
}

func look(t *testing.T, namespace string, own *Record) *looker {
	t.Helper()
	l := &looker{ignored: map[string]int{}}
	ctx, cancel := context.WithCancel(t.Context())
	l.cancel = cancel
	m := Multicast{Interfaces: []string{"lan"}, Own: own, Clock: clock.RealClock{}, Log: zaptest.NewLogger(t), Found: func(a Answer) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.known, l.whole = a.Clusters, !a.Partial
		for reason, n := range a.Ignored {
			l.ignored[reason] += n
		}
	}}
	l.done = in(t, namespace, func() { _ = m.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		<-l.done
	})
	return l
}

func (l *looker) ids() (ids []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.known {
		ids = append(ids, r.ClusterID)
	}
	return ids
}

func (l *looker) eventually(t *testing.T, what string, ids ...string) {
	t.Helper()
	begin := time.Now()
	require.Eventually(t, func() bool { return slices.Equal(l.ids(), ids) }, time.Minute, 10*time.Millisecond, what)
	t.Logf("%s: %s", what, time.Since(begin).Round(time.Millisecond))
}

// TestNetnsMulticast: clusters on one network find each other, and disappear after a
// goodbye.
func TestNetnsMulticast(t *testing.T) {
	hosts := hosts(t, 4)
	rome, milan := look(t, hosts[0], record("rome", "https://10.99.0.1:8443")), look(t, hosts[1], record("milan", "https://milan.example"))
	rome.eventually(t, "rome finds milan", "milan")
	milan.eventually(t, "milan finds rome", "rome")
	watcher := look(t, hosts[2], nil)
	watcher.eventually(t, "who comes later, and announces nothing, finds both", "milan", "rome")

	t.Run("two of one id", func(t *testing.T) {
		second := look(t, hosts[3], record("milan", "https://other.example"))
		require.Eventually(t, func() bool {
			milan.mu.Lock()
			second.mu.Lock()
			defer milan.mu.Unlock()
			defer second.mu.Unlock()
			return milan.ignored[IgnoredDuplicate] > 0 && second.ignored[IgnoredDuplicate] > 0
		}, time.Minute, 10*time.Millisecond, "both hear of each other")
		second.cancel()
		<-second.done
		watcher.eventually(t, "who had it first keeps the id", "milan", "rome")
		for _, r := range watcher.known {
			require.NotEqual(t, "https://other.example", r.URL)
		}
	})
	t.Run("hostile packets", func(t *testing.T) {
		<-in(t, hosts[3], func() { shout(t) })
		require.Eventually(t, func() bool {
			watcher.mu.Lock()
			defer watcher.mu.Unlock()
			return watcher.ignored[IgnoredMalformed] > 0
		}, time.Minute, 10*time.Millisecond, "they are counted")
		require.Equal(t, []string{"milan", "rome"}, watcher.ids())
	})
	milan.cancel()
	<-milan.done
	watcher.eventually(t, "milan has said goodbye", "rome")
	rome.eventually(t, "and to rome", []string(nil)...)
	require.Eventually(t, func() bool {
		watcher.mu.Lock()
		defer watcher.mu.Unlock()
		return watcher.whole
	}, time.Minute, 10*time.Millisecond, "after a while the answer is whole")
}

// shout sends garbage, and an announcement from a wrong port.
func shout(t *testing.T) {
	evil, err := newNetwork(record("evil", "https://evil.example")).announce(false).Pack()
	if err != nil {
		t.Error(err)
		return
	}
	for _, c := range []struct {
		from string
		data []byte
	}{{":0", evil}, {":5353", []byte("\xff\xff\x84\x00\xff\xff\xff\xff")}, {":5353", truncated(evil)}} {
		config := net.ListenConfig{}
		conn, err := config.ListenPacket(t.Context(), "udp4", "10.99.0.4"+c.from)
		if err != nil {
			t.Error(err)
			return
		}
		if _, err := conn.WriteTo(c.data, groups()["udp4"]); err != nil {
			t.Error(err)
		}
		_ = conn.Close()
	}
}

func truncated(data []byte) []byte { return data[:len(data)-5] }
