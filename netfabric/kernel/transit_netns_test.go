package kernel

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/liqod/liqod/netfabric/plan"
)

// spokes are three cities of equal ranges: milan and paris meet through rome alone. Both see the
// pods of the other under 10.210.0.0/16 and fd00:cc::/56. Two pods reach each other, by both families.
func spokes(t *testing.T) (internet *space, rome, milan, paris *city) {
	t.Helper()
	rome, milan, paris = &city{name: "rome", pod: 244, external: 70}, &city{name: "milan", pod: 244, external: 70}, &city{name: "paris", pod: 244, external: 70}
	internet = newLab(t, rome, milan, romeSeen, milanSeen)
	paris.public = addr("192.0.2.6")
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
	return internet, rome, milan, paris
}

// Pods of two cities that are peers of a third one alone reach each other through it, all three with
// equal ranges; only the pods that are shared, until they are no longer.
func TestNetnsThroughAHub(t *testing.T) {
	t.Parallel()
	_, rome, milan, paris := spokes(t)
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

// leads has a hub give a spoke the pods of another one, which the hub sees as from, under a view, and
// lets it to the first of them.
func leads(hub, spoke *city, from, view views) {
	for i, p := range hub.in.Peers {
		if p.ID != spoke.name {
			continue
		}
		p.Ours = append(slices.Clip(p.Ours), plan.Map{Own: from.pods4, View: view.pods4}, plan.Map{Own: from.pods6, View: view.pods6})
		pod4, pod6 := spoke.podAddrs(0) // all have the same
		p.Through = append(slices.Clip(p.Through), whole(moved(pod4, from.pods4), moved(pod6, from.pods6))...)
		hub.in.Peers[i] = p
	}
	spoke.in.Peers[0].Theirs.Transit = append(slices.Clip(spoke.in.Peers[0].Theirs.Transit), view.pods4, view.pods6)
}

// answers waits until the first pod of a city gets an answer from an address.
func answers(t *testing.T, from *city, to netip.Addr) (as netip.Addr) {
	t.Helper()
	require.Eventually(t, func() (ok bool) {
		var err error
		as, err = udp(from.pods[0], to, time.Second)
		return err == nil
	}, time.Minute, 50*time.Millisecond, "%s to %s", from.name, to)
	return as
}

// A fourth city comes and goes, and two spokes become peers of each other and part: that costs the packets
// of the three, between a spoke and the hub and between the spokes through the hub, none of them.
func TestNetnsAFourthCity(t *testing.T) {
	t.Parallel()
	internet, rome, milan, paris := spokes(t)
	pod4, _ := milan.podAddrs(0)
	other4, _ := milan.podAddrs(1)
	behind := prefix("10.210.0.0/16")
	var flows []*traffic
	for from, to := range map[*city]netip.Addr{paris: moved(pod4, behind), milan: moved(pod4, behind), rome: moved(pod4, milanSeen.pods4)} {
		answers(t, from, to)
		flows = append(flows, begin(t, from.pods[0], to))
	}

	oslo := &city{name: "oslo", pod: 244, external: 70, public: addr("192.0.2.10")}
	oslo.build(t, internet)
	romeThere, osloHere := seen("10.200.0.0/16", "10.201.0.0/16", "fd00:aa::/56", "fd00:ab::/64"), seen("10.230.0.0/16", "10.231.0.0/16", "fd00:ea::/56", "fd00:eb::/64")
	parisHere := seen("10.220.0.0/16", "10.221.0.0/16", "fd00:dd::/56", "fd00:de::/64")
	first, second := views{pods4: behind, pods6: prefix("fd00:cc::/56")}, views{pods4: prefix("10.212.0.0/16"), pods6: prefix("fd00:ce::/56")}
	alone := map[*city][]plan.Peer{}
	for _, c := range []*city{rome, milan, paris} {
		alone[c] = slices.Clone(c.in.Peers)
	}
	part := func() {
		for c, peers := range alone {
			c.in.Peers = slices.Clone(peers)
			c.apply(t)
		}
	}
	for range 3 {
		oslo.in.Peers = []plan.Peer{oslo.peer(rome, osloHere, romeThere, netip.AddrPort{})}
		rome.in.Peers = append(rome.in.Peers, rome.peer(oslo, romeThere, osloHere, netip.AddrPortFrom(oslo.public, plan.TunnelPort)))
		leads(rome, milan, osloHere, second)
		leads(rome, paris, osloHere, second)
		leads(rome, oslo, milanSeen, first)
		leads(rome, oslo, parisHere, second)
		for _, c := range []*city{oslo, milan, paris, rome} {
			c.apply(t)
		}
		require.Equal(t, moved(pod4, second.pods4), answers(t, oslo, moved(pod4, first.pods4)), "as milan sees oslo")
		require.Equal(t, moved(pod4, second.pods4), answers(t, oslo, moved(pod4, second.pods4)), "as paris sees oslo")
		part()
		_, err := udp(oslo.pods[0], moved(pod4, first.pods4), time.Second)
		require.Error(t, err, "oslo is gone")

		near := seen("10.240.0.0/16", "10.241.0.0/16", "fd00:f0::/56", "fd00:f1::/64")
		toParis, toMilan := milan.peer(paris, near, near, netip.AddrPort{}), paris.peer(milan, near, near, netip.AddrPortFrom(milan.public, plan.TunnelPort))
		toParis.Reach = whole(pod4)
		milan.in.Peers, paris.in.Peers = append(milan.in.Peers, toParis), append(paris.in.Peers, toMilan)
		milan.apply(t)
		paris.apply(t)
		require.Equal(t, moved(pod4, near.pods4), answers(t, paris, moved(pod4, near.pods4)), "by their own tunnel")
		_, err = udp(paris.pods[0], moved(other4, near.pods4), time.Second)
		require.Error(t, err, "a pod that is not shared")
		require.Equal(t, moved(pod4, behind), answers(t, paris, moved(pod4, behind)), "the hub stays")
		part()
	}
	for _, flow := range flows {
		require.NoError(t, flow.end(t))
	}
}
