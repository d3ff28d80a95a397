package discovery

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap/zaptest"
	"k8s.io/utils/clock"

	"github.com/liqod/liqod/kube/kubetest"
)

// hosts returns network namespaces on a common network.
func hosts(t *testing.T, n int) (all []*kubetest.Netns) {
	t.Helper()
	hub := kubetest.NewNetns(t)
	hub.Sh(t, "ip link add bridge type bridge mcast_snooping 0; ip link set bridge up")
	for i := range n {
		host, port := kubetest.NewNetns(t), fmt.Sprintf("port%d", i)
		kubetest.Cable(t, hub, port, host, "lan")
		hub.Sh(t, fmt.Sprintf("ip link set %s master bridge", port))
		host.Sh(t, fmt.Sprintf("ip addr add 10.99.0.%d/24 dev lan", i+1))
		all = append(all, host)
	}
	return all
}

// looker is a Multicast in a network namespace, and the answers that it has found.
type looker struct {
	stop func()

	mu      sync.Mutex
	known   []Record
	ignored map[string]int
	whole   bool
}

func look(t *testing.T, host *kubetest.Netns, own *Record) *looker {
	t.Helper()
	l := &looker{ignored: map[string]int{}}
	m := Multicast{Interfaces: []string{"lan"}, Own: own, Clock: clock.RealClock{}, Log: zaptest.NewLogger(t), Found: func(a Answer) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.known, l.whole = a.Clusters, !a.Partial
		for reason, n := range a.Ignored {
			l.ignored[reason] += n
		}
	}}
	l.stop = kubetest.Run(t, func(ctx context.Context) error {
		return host.Do(func() error { return m.Run(ctx) })
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
		second.stop()
		watcher.eventually(t, "who had it first keeps the id", "milan", "rome")
		for _, r := range watcher.known {
			require.NotEqual(t, "https://other.example", r.URL)
		}
	})
	t.Run("hostile packets", func(t *testing.T) {
		require.NoError(t, hosts[3].Do(func() error { return shout(t) }))
		require.Eventually(t, func() bool {
			watcher.mu.Lock()
			defer watcher.mu.Unlock()
			return watcher.ignored[IgnoredMalformed] > 0
		}, time.Minute, 10*time.Millisecond, "they are counted")
		require.Equal(t, []string{"milan", "rome"}, watcher.ids())
	})
	milan.stop()
	watcher.eventually(t, "milan has said goodbye", "rome")
	rome.eventually(t, "and to rome", []string(nil)...)
	require.Eventually(t, func() bool {
		watcher.mu.Lock()
		defer watcher.mu.Unlock()
		return watcher.whole
	}, time.Minute, 10*time.Millisecond, "after a while the answer is whole")
}

// shout sends garbage, and an announcement from a wrong port.
func shout(t *testing.T) error {
	evil, err := newNetwork(record("evil", "https://evil.example")).announce(false).Pack()
	for _, c := range []struct {
		from string
		data []byte
	}{{":0", evil}, {":5353", []byte("\xff\xff\x84\x00\xff\xff\xff\xff")}, {":5353", truncated(evil)}} {
		conn, errListen := new(net.ListenConfig).ListenPacket(t.Context(), "udp4", "10.99.0.4"+c.from)
		if errListen != nil {
			return errListen
		}
		_, errWrite := conn.WriteTo(c.data, groups()["udp4"])
		err = errors.Join(err, errWrite, conn.Close())
	}
	return err
}

func truncated(data []byte) []byte { return data[:len(data)-5] }
