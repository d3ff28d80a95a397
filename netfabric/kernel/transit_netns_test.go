package kernel

import (
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/liqod/liqod/netfabric/plan"
)

// spokes are three cities of equal ranges: milan and paris meet through rome alone. Both see the
// pods of the other under 10.210.0.0/16 and fd00:cc::/56. Two pods reach each other, by both families.
func spokes(t *testing.T) (rome, milan, paris *city) {
	t.Helper()
	internet, rome, milan := twins(t)
	paris = &city{name: "paris", pod: 244, external: 70, public: addr("192.0.2.6")}
	paris.build(t, internet)
	romeThere, parisHere := seen("10.200.0.0/16", "10.201.0.0/16", "fd00:aa::/56", "fd00:ab::/64"), seen("10.220.0.0/16", "10.221.0.0/16", "fd00:dd::/56", "fd00:de::/64")
	toParis := rome.peer(paris, romeThere, parisHere, netip.AddrPortFrom(paris.public, plan.TunnelPort))
	paris.in.Peers = []plan.Peer{paris.peer(rome, parisHere, romeThere, netip.AddrPort{})}
	behind := seen("10.210.0.0/16", "10.211.0.0/16", "fd00:cc::/56", "fd00:cd::/64")
	toParis.Ours = append(toParis.Ours, plan.Map{Own: milanSeen.pods4, View: behind.pods4}, plan.Map{Own: milanSeen.pods6, View: behind.pods6})
	toMilan := &rome.in.Peers[0]
	toMilan.Ours = append(toMilan.Ours, plan.Map{Own: parisHere.pods4, View: behind.pods4}, plan.Map{Own: parisHere.pods6, View: behind.pods6})
	for _, spoke := range []*city{milan, paris} {
		spoke.in.Peers[0].Theirs.Transit = []netip.Prefix{behind.pods4, behind.pods6}
	}
	pod4, pod6 := milan.podAddrs(0)
	toParis.Through = whole(moved(pod4, milanSeen.pods4), moved(pod6, milanSeen.pods6))
	toMilan.Through = whole(moved(pod4, parisHere.pods4), moved(pod6, parisHere.pods6))
	rome.in.Peers = append(rome.in.Peers, toParis)
	for _, c := range []*city{milan, paris, rome} {
		c.apply(t)
	}
	for _, p := range paris.pods {
		echo(t, p)
	}
	return rome, milan, paris
}

// Pods of two cities that are peers of a third one alone reach each other through it, all three with
// equal ranges; only the pods that are shared, until they are no longer.
func TestNetnsThroughAHub(t *testing.T) {
	t.Parallel()
	rome, milan, paris := spokes(t)
	pod4, pod6 := milan.podAddrs(0)
	other4, other6 := milan.podAddrs(1)
	behind4, behind6 := prefix("10.210.0.0/16"), prefix("fd00:cc::/56")
	for _, c := range []*city{milan, paris} {
		for _, to := range []netip.Addr{moved(pod4, behind4), moved(pod6, behind6)} {
			view := behind4
			if to.Is6() {
				view = behind6
			}
			for i, pod := range c.pods[:2] {
				v4, v6 := c.podAddrs(i)
				self := v4
				if to.Is6() {
					self = v6
				}
				require.Eventually(t, func() bool {
					got, err := udp(pod, to, time.Second)
					return err == nil && got == moved(self, view)
				}, time.Minute, 50*time.Millisecond, "pod %d of %s to %s", i, c.name, to)
				got, err := tcp(pod, to)
				require.NoError(t, err)
				require.Equal(t, moved(self, view), got)
			}
		}
		// A process of a node has no address in the third city: it comes from the hub's gateway.
		got, err := udp(c.nodes[1], moved(pod4, behind4), time.Minute)
		require.NoError(t, err, c.name)
		require.Equal(t, addr("10.201.0.1"), got)
	}
	for _, to := range []netip.Addr{moved(other4, behind4), moved(other6, behind6)} {
		_, err := udp(paris.pods[0], to, time.Second)
		require.Error(t, err, "a pod that is not shared")
	}
	counters := rome.gateway.ask(t, request{State: rome.state(t, "gw", plan.Gateway)}).Counters
	require.Positive(t, counters[plan.DropToPod])

	known, err := dial(paris.pods[0], "udp", moved(pod4, behind4), time.Second)
	require.NoError(t, err)
	defer known.Close()
	_, err = ask(known)
	require.NoError(t, err)
	rome.in.Peers[1].Through = nil
	rome.apply(t)
	_, err = ask(known)
	require.Error(t, err, "a connection to a pod that is no longer shared")
	got, err := udp(milan.pods[0], moved(pod4, behind4), time.Minute)
	require.NoError(t, err, "the pod itself still opens connections")
	require.Equal(t, moved(pod4, behind4), got)
}
