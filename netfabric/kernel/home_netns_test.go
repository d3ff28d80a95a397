package kernel

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/liqod/liqod/netfabric/plan"
)

// proxy has the nodes of a city answer for a Service as kube-proxy does: connections to it go to an endpoint.
func proxy(t *testing.T, c *city, service, endpoint netip.Addr) {
	t.Helper()
	family := map[bool]string{true: "ip", false: "ip6"}[service.Is4()]
	for _, n := range c.nodes {
		for _, hook := range []string{"prerouting", "output"} {
			n.run(t, "nft", fmt.Sprintf("add table inet proxy; add chain inet proxy %[1]s { type nat hook %[1]s priority -100; }; add rule inet proxy %[1]s %[2]s daddr %[3]s dnat %[2]s to %[4]s",
				hook, family, service, endpoint))
		}
	}
}

// In two clusters with equal ranges, of Services too, a pod of milan that lives in rome reaches the Services
// and pods of rome by their own numbers. The same numbers mean milan's to another pod of milan.
func TestNetnsPodsThatLiveAtHome(t *testing.T) {
	t.Parallel()
	_, rome, milan := twins(t)
	lives4, lives6 := milan.podAddrs(0)
	other4, other6 := milan.podAddrs(1)
	end4, end6 := rome.podAddrs(1)
	services := []netip.Prefix{prefix("10.96.0.0/16"), prefix("fd00:96::/112")}
	there := []netip.Prefix{prefix("10.210.0.0/16"), prefix("fd00:cc::/112")}
	dns4, dns6 := addr("10.96.0.10"), addr("fd00:96::10")
	away4, away6 := addr("10.96.0.11"), addr("fd00:96::11")
	proxy(t, rome, dns4, end4)
	proxy(t, rome, dns6, end6)
	proxy(t, rome, away4, moved(other4, milanSeen.pods4))
	proxy(t, rome, away6, moved(other6, milanSeen.pods6))
	proxy(t, milan, dns4, lives4)
	proxy(t, milan, dns6, lives6)

	toMilan, toRome := &rome.in.Peers[0], &milan.in.Peers[0]
	rome.in.Services, toRome.Theirs.Services = services, there
	for i := range services {
		toMilan.Ours = append(toMilan.Ours, plan.Map{Own: services[i], View: there[i]})
		toRome.Meant = append(toRome.Meant, plan.Map{Own: services[i], View: there[i]})
	}
	toMilan.Served = whole(moved(lives4, milanSeen.pods4), moved(lives6, milanSeen.pods6))
	toRome.Home = whole(lives4, lives6)
	for i, own := range []netip.Prefix{rome.in.Pods[0], rome.in.Pods[1]} {
		toRome.Meant = append(toRome.Meant,
			plan.Map{Own: own, View: []netip.Prefix{romeSeen.pods4, romeSeen.pods6}[i]},
			plan.Map{Own: []netip.Prefix{milanSeen.pods4, milanSeen.pods6}[i], View: milan.in.Pods[i]})
	}
	rome.apply(t)
	milan.apply(t)

	gateway := func(i int) netip.Addr {
		return moved(plan.GatewayAddr(rome.in.External[i]), []netip.Prefix{romeSeen.ext4, romeSeen.ext6}[i])
	}
	for name, tc := range map[string]struct {
		from *space
		to   netip.Addr
		seen netip.Addr
	}{
		"a Service of rome":                     {milan.pods[0], dns4, nodeAddrs(0)[0]},
		"by IPv6":                               {milan.pods[0], dns6, nodeAddrs(0)[1]},
		"that number from another pod":          {milan.pods[1], dns4, moved(other4, milanSeen.pods4)},
		"by IPv6, from another pod":             {milan.pods[1], dns6, moved(other6, milanSeen.pods6)},
		"a Service with an endpoint in milan":   {milan.pods[0], away4, gateway(0)},
		"by IPv6, with an endpoint in milan":    {milan.pods[0], away6, gateway(1)},
		"a pod of rome":                         {milan.pods[0], end4, moved(lives4, milanSeen.pods4)},
		"a pod of rome by IPv6":                 {milan.pods[0], end6, moved(lives6, milanSeen.pods6)},
		"rome's view of a pod of milan":         {milan.pods[0], moved(other4, milanSeen.pods4), lives4},
		"a caller of rome":                      {rome.pods[1], moved(lives4, milanSeen.pods4), end4},
		"a caller of rome by IPv6":              {rome.pods[1], moved(lives6, milanSeen.pods6), end6},
		"a caller of milan":                     {milan.pods[1], lives4, moved(other4, milanSeen.pods4)},
		"a caller with a number of the node":    {rome.pods[0], moved(lives4, milanSeen.pods4), moved(lives4, romeSeen.pods4)},
		"its node, as a kubelet that probes it": {milan.nodes[0], lives4, addr("10.200.1.1")},
	} {
		got, err := udp(tc.from, tc.to, 10*time.Second)
		require.NoError(t, err, name)
		require.Equal(t, tc.seen, got, name)
		got, err = tcp(tc.from, tc.to)
		require.NoError(t, err, name)
		require.Equal(t, tc.seen, got, name)
	}

	known, err := dial(milan.pods[0], "udp", dns4, 10*time.Second)
	require.NoError(t, err)
	defer known.Close()
	_, err = ask(known)
	require.NoError(t, err)
	_, err = udp(milan.pods[1], addr("10.210.0.10"), time.Second)
	require.Error(t, err, "another pod does not reach a Service of rome by its view")
	require.Positive(t, rome.gateway.ask(t, request{State: rome.state(t, "gw", plan.Gateway)}).Counters[plan.DropToPod])
	rome.apply(t)
	_, err = ask(known)
	require.NoError(t, err, "a known connection goes on")
	toMilan.Served = nil
	rome.apply(t)
	_, err = udp(milan.pods[0], dns4, time.Second)
	require.Error(t, err, "the pod is gone")

	// The second pod of rome is a vkubelet, which answers a node port.
	toMilan.Reach, toMilan.Ports = nil, []netip.AddrPort{netip.AddrPortFrom(end4, echoPort), netip.AddrPortFrom(end6, echoPort)}
	rome.apply(t)
	dropped := func() uint64 {
		all, err := rome.kernels[1].Counters(t.Context())
		require.NoError(t, err)
		return all[plan.DropToPod]
	}
	before := dropped()
	for _, to := range []netip.Addr{end4, end6} {
		_, err = tcp(milan.pods[0], to)
		require.NoError(t, err, "the node port")
		_, err = udp(milan.pods[0], to, time.Second)
		require.Error(t, err, "that port by UDP")
	}
	require.GreaterOrEqual(t, dropped(), before+2)
	toMilan.Ports = []netip.AddrPort{netip.AddrPortFrom(end4, echoPort+1)}
	rome.apply(t)
	before = dropped()
	_, err = dial(milan.pods[0], "tcp", end4, time.Second)
	require.Error(t, err, "another node port is answered now")
	require.Greater(t, dropped(), before)
}
