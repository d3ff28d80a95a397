package kernel

import (
	"fmt"
	"net/netip"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/liqod/liqod/netfabric/plan"
)

// traffic counts packets that were sent and answers that came.
type traffic struct {
	stop    chan struct{}
	wait    sync.WaitGroup
	sent    atomic.Int32
	failure atomic.Pointer[error] // the first
}

// run asks again and again, with a pause before each time, until the end.
func (tr *traffic) run(kind string, pause time.Duration, ask func() error) {
	tr.wait.Go(func() {
		for {
			select {
			case <-tr.stop:
				return
			case <-time.After(pause):
			}
			tr.sent.Add(1)
			if err := ask(); err != nil {
				err = fmt.Errorf("a packet of %s after %d: %w", kind, tr.sent.Load(), err)
				tr.failure.CompareAndSwap(nil, &err)
				return
			}
		}
	})
}

// betweenFlows is the pause before a new flow: a peer with up to eight ranges may begin 125 in a second from each.
const betweenFlows = 10 * time.Millisecond

// begin begins a flow that goes on, and one new flow after the other.
func begin(t *testing.T, from *space, to netip.Addr) *traffic {
	t.Helper()
	tr := &traffic{stop: make(chan struct{})}
	established, err := dial(from, "udp", to, 10*time.Minute)
	require.NoError(t, err)
	t.Cleanup(func() { _ = established.Close() })
	tr.run("the flow that goes on", 2*time.Millisecond, func() error {
		if err := established.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
			return err
		}
		_, err := ask(established)
		return err
	})
	tr.run("a new flow", betweenFlows, func() error {
		_, err := udp(from, to, 5*time.Second)
		return err
	})
	return tr
}

// end returns the first failure.
func (tr *traffic) end(t *testing.T) error {
	t.Helper()
	close(tr.stop)
	tr.wait.Wait()
	t.Logf("%d packets", tr.sent.Load())
	if err := tr.failure.Load(); err != nil {
		return *err
	}
	return nil
}

// more adds other peers, nodes, gateways and addresses to what is planned; which of them
// depends on n.
func more(in plan.Input, n int) plan.Input {
	for i := range 3 {
		if n>>i&1 == 0 {
			continue
		}
		in.Peers = append(in.Peers[:len(in.Peers):len(in.Peers)], plan.Peer{
			ID:     fmt.Sprintf("other-%d", i),
			Theirs: plan.Ranges{Pods: prefixes(fmt.Sprintf("10.%d.0.0/16", 20+i), fmt.Sprintf("fd00:a%d::/56", i))},
			Ours: plan.Maps{
				{Own: in.Pods[0], View: prefix(fmt.Sprintf("10.%d.0.0/16", 100+10*i+n%3))},
				{Own: in.Pods[1], View: prefix(fmt.Sprintf("fd00:c%d::/56", i))},
			},
			Gateways: []plan.Remote{{Number: 1, Key: publicKey(i)}},
			Use:      n % 2,
		})
		in.Nodes = append(in.Nodes[:len(in.Nodes):len(in.Nodes)], plan.Host{
			Name: fmt.Sprintf("more-%d", i), Addrs: addrs(fmt.Sprintf("192.168.0.%d", 50+i)),
			Pods: prefixes(fmt.Sprintf("10.244.%d.0/24", 50+i)),
		})
		in.Gateways = append(in.Gateways[:len(in.Gateways):len(in.Gateways)], plan.Replica{
			Name: fmt.Sprintf("more-%d", i), Number: 2 + i, Addrs: addrs(fmt.Sprintf("192.168.0.%d", 60+i)),
		})
		in.IPs = append(in.IPs[:len(in.IPs):len(in.IPs)], plan.IP{
			External: addr(fmt.Sprintf("10.70.0.%d", 20+i)), Real: addr(fmt.Sprintf("172.16.5.%d", n%2)),
		})
	}
	return in
}

// What changes for others costs established and new flows no packet. LAB_LONG=1 does so a
// thousand times.
func TestNetnsChangesOfOthers(t *testing.T) {
	t.Parallel()
	_, rome, milan := twins(t)
	rounds := 40
	if os.Getenv("LAB_LONG") != "" {
		rounds = 1000
	}
	s4, s6 := milan.podAddrs(1)
	to4, to6 := begin(t, rome.pods[0], moved(s4, milanSeen.pods4)), begin(t, rome.pods[1], moved(s6, milanSeen.pods6))
	c4, _ := rome.podAddrs(1)
	back := begin(t, milan.pods[0], moved(c4, romeSeen.pods4))
	base := rome.in
	for n := range rounds {
		rome.in = more(base, n)
		rome.apply(t)
	}
	for name, tr := range map[string]*traffic{"IPv4": to4, "IPv6": to6, "back": back} {
		if err := tr.end(t); err != nil {
			t.Errorf("%s: %v\nDropped in rome:\n%s\nDropped in milan:\n%s", name, err, rome.dropped(t), milan.dropped(t))
		}
	}
}

// dropped returns the rules of all hosts that have dropped packets.
func (c *city) dropped(t *testing.T) string {
	t.Helper()
	var out []string
	for _, s := range append([]*space{c.gateway.space}, c.nodes...) {
		for line := range strings.Lines(s.run(t, "nft", "list", "ruleset")) {
			if strings.Contains(line, "counter") && !strings.Contains(line, "packets 0 ") {
				out = append(out, strings.TrimSpace(line))
			}
		}
	}
	return strings.Join(out, "\n")
}

// A flow whose translation changes goes on under the new address, at once.
func TestNetnsAChangedRange(t *testing.T) {
	t.Parallel()
	_, rome, milan := twins(t)
	s4, _ := milan.podAddrs(0)
	c4, _ := rome.podAddrs(0)
	established, err := dial(rome.pods[0], "udp", moved(s4, milanSeen.pods4), time.Minute)
	require.NoError(t, err)
	defer established.Close()
	got, err := ask(established)
	require.NoError(t, err)
	require.Equal(t, moved(c4, romeSeen.pods4), got)

	later := romeSeen
	later.pods4 = prefix("10.180.0.0/16")
	meet(rome, milan, later, milanSeen)
	milan.apply(t)
	rome.apply(t)
	got, err = ask(established)
	require.NoError(t, err)
	require.Equal(t, moved(c4, later.pods4), got)
}

// A peer that is dialled again makes a new session at once, and gets its packets.
func TestNetnsRedial(t *testing.T) {
	t.Parallel()
	_, rome, milan := twins(t)
	s4, _ := milan.podAddrs(0)
	flow, err := dial(rome.pods[0], "udp", moved(s4, milanSeen.pods4), time.Minute)
	require.NoError(t, err)
	defer flow.Close()
	_, err = ask(flow)
	require.NoError(t, err)
	want := rome.state(t, "gw", plan.Gateway)
	before, theirs := rome.gateway.apply(t, want), milan.gateway.key.Public()
	require.Len(t, before, 1)
	require.NotZero(t, before[theirs].Received)
	require.NotZero(t, before[theirs].Sent)
	require.Equal(t, milan.public, before[theirs].Endpoint.Addr())
	rome.gateway.ask(t, request{State: want, Redial: theirs})
	require.Eventually(t, func() bool {
		return rome.gateway.apply(t, want)[theirs].Handshake.After(before[theirs].Handshake)
	}, time.Minute, 10*time.Millisecond)
	// A packet that was on its way when the session ended may be lost, not those after it.
	_, err = ask(flow)
	require.NoError(t, err)

	heard := milan.gateway.apply(t, milan.state(t, "gw", plan.Gateway))
	require.Equal(t, rome.public, heard[rome.gateway.key.Public()].Endpoint.Addr(), "a peer that waits to be dialled learns the address")
}
