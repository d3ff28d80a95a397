package host

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	networkingv1beta1 "github.com/liqod/liqod/api/networking/v1beta1"
	"github.com/liqod/liqod/kube/kubetest"
)

// followed is the longest time until packets pass again after an address has moved.
const followed = 10 * time.Second

// names has the gateway of a town resolve names to these addresses, in the form of a hosts file.
func (w *town) names(t *testing.T, text string) {
	t.Helper()
	path := filepath.Join(w.Keys, "names")
	require.NoError(t, os.WriteFile(path+".next", []byte(text), 0o600))
	require.NoError(t, os.Rename(path+".next", path))
}

// readdress replaces the address of the gateway of a town on the internet, and its router's.
func (w *town) readdress(t *testing.T, internet *kubetest.Netns, address, router string) {
	t.Helper()
	internet.Sh(t, "ip addr flush dev to-"+w.ClusterID+"; ip addr add "+router+"/30 dev to-"+w.ClusterID)
	w.gateway.Sh(t, "ip addr flush dev wan; ip addr add "+address+"/30 dev wan; ip route replace default via "+router)
}

// One side is behind NAT and dials the other one, at whichever of its addresses answers; and
// each address that moves is followed.
func TestNetnsAddressesThatMove(t *testing.T) {
	t.Parallel()
	internet := kubetest.NewNetns(t)
	internet.Sh(t, `echo 1 > /proc/sys/net/ipv4/ip_forward; ip route add blackhole 192.0.2.0/24
nft 'table ip nat {
	chain out { type nat hook postrouting priority 100; oifname "to-milan" meta l4proto udp masquerade to :20000-60000 fully-random; masquerade; }
	chain in { type filter hook forward priority 0; iifname "to-milan" ct state new drop; }
}'`)
	rome, milan := newTown(t, "rome", "203.0.113.2", internet), newTown(t, "milan", "198.51.100.2", internet)
	for _, w := range []*town{rome, milan} {
		w.up(t)
		w.runNode(t)
	}
	fromRome, fromMilan := rome.announced(t), milan.announced(t)
	toMilan := func(addresses ...string) {
		fromMilan.Endpoints = nil
		for _, a := range addresses {
			fromMilan.Endpoints = append(fromMilan.Endpoints, networkingv1beta1.Endpoint{Address: a, Port: 51840})
		}
		rome.meet(t, "milan", corev1beta1.TrustOrganisation, fromMilan, "10.200.0.0/16", "10.201.0.0/16")
	}
	milan.meet(t, "rome", corev1beta1.TrustOrganisation, fromRome, "10.200.0.0/16", "10.201.0.0/16")

	for _, move := range []struct {
		name string
		do   func()
	}{
		{"the last of four endpoints answers", func() {
			rome.names(t, "192.0.2.8 gw.milan.example")
			toMilan("192.0.2.7", "198.51.100.1", "gw.milan.example", "198.51.100.2")
		}},
		// What is masqueraded for a link is forgotten with the link. The next port is another one.
		{"the NAT forgets the tunnel", func() { internet.Sh(t, "ip link set to-milan down; ip link set to-milan up") }},
		{"the side that dials has another address", func() { rome.readdress(t, internet, "203.0.113.6", "203.0.113.5") }},
		{"the endpoint moves, and the Connection with it", func() {
			milan.readdress(t, internet, "198.51.100.6", "198.51.100.5")
			toMilan("198.51.100.6")
		}},
		{"the endpoint moves, and the Connection once the tunnel is down", func() {
			milan.readdress(t, internet, "198.51.100.2", "198.51.100.1")
			rome.eventually(t, "the peer is silent", func(o told) bool { return !isConnected(o) })
			toMilan("198.51.100.6", "198.51.100.2")
		}},
		{"an endpoint with a name", func() {
			rome.names(t, "198.51.100.2 gw.milan.example")
			toMilan("gw.milan.example")
		}},
		{"the endpoint moves, and its name once the tunnel is down", func() {
			milan.readdress(t, internet, "198.51.100.6", "198.51.100.5")
			rome.eventually(t, "the peer is silent", func(o told) bool { return !isConnected(o) })
			rome.names(t, "198.51.100.6 gw.milan.example")
		}},
	} {
		move.do()
		since := time.Now()
		rome.reaches(t, move.name)
		milan.reaches(t, move.name)
		took := time.Since(since)
		t.Logf("%s: packets pass after %s", move.name, took.Round(time.Millisecond))
		require.Less(t, took, followed, move.name)
		rome.eventually(t, "the peer answers probes", isConnected)
		milan.eventually(t, "the peer answers probes", isConnected)
	}
	require.True(t, strings.HasSuffix(rome.ask(t).Connections[0].Status.Gateways[0].Endpoint, ":51840"))
}
