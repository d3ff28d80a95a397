package host

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	networkingv1beta1 "github.com/liqod/liqod/api/networking/v1beta1"
	"github.com/liqod/liqod/kube/kubetest"
	"github.com/liqod/liqod/netfabric/plan"
)

var all = flag.Bool("all", false, "ten kills and moves of gateways and 100 random kills, and limits of time are kept: for a quiet machine")

// Limits of the time without a packet: of a gateway that is killed, and of one that ends by itself.
const (
	killedLimit = 2 * time.Second
	movedLimit  = 200 * time.Millisecond
)

// city is a town with two gateways, whose agent is a process too.
type city struct {
	*town
	gateways   [2]*actor
	route      *actor
	leases     [2]*coordinationv1.Lease
	connection *networkingv1beta1.Connection // to the other city
}

func newCity(t *testing.T, id string, public [2]string, internet *kubetest.Netns) *city {
	t.Helper()
	c := &city{town: newTown(t, id, public[0], internet)}
	c.Replaced, c.Endpoint = true, public[0]+":51840"
	c.Timing = EchoTiming{Interval: 200 * time.Millisecond, Silence: 1500 * time.Millisecond, Patience: 10 * time.Second, Answers: 3} // the defaults
	second, agent := c.actor, c.actor
	second.at, second.Keys, second.Number, second.Address, second.Endpoint = kubetest.NewNetns(t), t.TempDir(), 2, "192.168.0.14", public[1]+":51840"
	kubetest.Cable(t, c.node, "eth1", second.at, "eth0")
	c.node.Sh(t, "ip route add 192.168.0.14 dev eth1 src "+nodeAddress)
	second.at.Sh(t, "ip addr add 192.168.0.14/24 dev eth0")
	lead(t, internet, "to-"+id+"-2", second.at, public[1])
	agent.at, agent.Agent = c.node, true
	c.gateways, c.route = [2]*actor{&c.actor, &second}, &agent
	c.listens(t)
	return c
}

// kept returns the Leases of the gateways.
func (c *city) kept() (out []coordinationv1.Lease) {
	for _, l := range c.leases {
		if l != nil {
			out = append(out, *l)
		}
	}
	return out
}

// actors are the processes of the city.
func (c *city) actors() []*actor { return []*actor{c.gateways[0], c.gateways[1], c.route} }

// start starts one of them with what its API server has.
func (c *city) start(t *testing.T, a *actor) {
	t.Helper()
	a.Leases, a.Connections = c.kept(), nil
	if c.connection != nil {
		a.Connections = []networkingv1beta1.Connection{*c.connection}
	}
	a.up(t)
}

// name says which process of its city it is.
func (w *actor) name() string {
	if w.Agent {
		return "the agent of " + w.ClusterID
	}
	return fmt.Sprintf("gateway %d of %s", w.Number, w.ClusterID)
}

// country is two cities that reach each other, and what their API servers do.
type country [2]*city

func newCountry(t *testing.T) country {
	t.Helper()
	internet := kubetest.NewNetns(t)
	internet.Sh(t, "echo 1 > /proc/sys/net/ipv4/ip_forward")
	w := country{
		newCity(t, "rome", [2]string{"203.0.113.2", "203.0.113.6"}, internet),
		newCity(t, "milan", [2]string{"198.51.100.2", "198.51.100.6"}, internet),
	}
	for _, c := range w {
		for _, a := range c.actors() {
			c.start(t, a)
		}
	}
	w.await(t, "all use the preferred gateways at first", w.settled)
	w.rest(t, hold+time.Second) // until then no gateway reports that it serves, and none is left for another
	return w
}

// pass writes the Leases that gateways have changed to the other processes of their city, and the
// Connections that follow from them to the other city. It returns the answers of the gateways.
func (w country) pass(t *testing.T) (tells [2][]told) {
	t.Helper()
	for i, c := range w {
		for n, a := range c.gateways {
			if a.process == nil {
				continue
			}
			tell := a.ask(t)
			tells[i] = append(tells[i], tell)
			if tell.Lease == nil || tell.Lease.Annotations[GatewayKey] == "" || c.leases[n] != nil && c.leases[n].Spec.RenewTime.Equal(tell.Lease.Spec.RenewTime) {
				continue
			}
			c.leases[n] = tell.Lease
			for _, other := range c.actors() {
				if other != a && other.process != nil {
					other.give(t, order{Lease: tell.Lease})
				}
			}
			w[1-i].meets(t, c)
		}
	}
	return tells
}

// meets gives a city the Connection to the other one, when its gateways have changed.
func (c *city) meets(t *testing.T, other *city) {
	t.Helper()
	var gateways []networkingv1beta1.Gateway
	for _, l := range other.kept() {
		a, err := readAnnouncement(&l)
		require.NoError(t, err)
		gateways = append(gateways, a.Gateway)
	}
	next := connectionTo(other.ClusterID, corev1beta1.TrustOrganisation, "10.200.0.0/16", "10.201.0.0/16", gateways...)
	if c.connection != nil && fmt.Sprint(c.connection.Spec.Gateways) == fmt.Sprint(gateways) {
		return
	}
	c.connection = next
	for _, a := range c.actors() {
		if a.process != nil {
			a.give(t, order{Connection: next})
		}
	}
}

// await calls ok, which calls pass, until it returns true.
func (w country) await(t *testing.T, what string, ok func(*testing.T) bool) {
	t.Helper()
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for until := time.Now().Add(patience); !ok(t); <-ticker.C {
		require.True(t, time.Now().Before(until), "%s, and have not for %s", what, patience)
	}
}

// rest calls pass for a time.
func (w country) rest(t *testing.T, d time.Duration) {
	t.Helper()
	end := time.Now().Add(d)
	w.await(t, "time passes", func(t *testing.T) bool { w.pass(t); return time.Now().After(end) })
}

// preferred returns which gateway is used while all is well, 0 or 1.
func (w country) preferred(i int) int {
	both := []plan.Candidate{{Number: 1}, {Number: 2}}
	plan.Prefer(w[i].ClusterID, w[1-i].ClusterID, both)
	return both[0].Number - 1
}

// used returns which gateway the node of a city uses; -1: none.
func (c *city) used(t *testing.T) int {
	t.Helper()
	routes, _ := c.node.Try(t, "ip route show table 6171")
	return slices.IndexFunc(c.gateways[:], func(a *actor) bool { return strings.Contains(routes, "10.200.0.0/16 via "+a.Address+" ") })
}

// whole reports whether all processes work, and each gateway reaches one of the peer.
func (w country) whole(t *testing.T) bool {
	t.Helper()
	ok := true
	for i, tells := range w.pass(t) {
		ok = ok && len(tells) == 2 && w[i].connection != nil && len(w[i].connection.Spec.Gateways) == 2 && w[i].route.process != nil && w[i].route.ask(t).Ready == ""
		for _, tell := range tells {
			ok = ok && tell.Ready == "" && isConnected(tell) && len(tell.Connections[0].Status.Gateways) > 0
		}
	}
	return ok
}

// settled reports whether all use the preferred gateways.
func (w country) settled(t *testing.T) bool {
	t.Helper()
	if !w.whole(t) {
		return false
	}
	for i, tells := range w.pass(t) {
		for _, tell := range tells {
			for _, s := range tell.Connections[0].Status.Gateways {
				if s.PeerGateway != gatewayOf(w[1-i].ClusterID, w.preferred(1-i)+1) {
					return false
				}
			}
		}
		if w[i].used(t) != w.preferred(i) {
			return false
		}
	}
	return true
}

// end ends a process.
func (w country) end(t *testing.T, a *actor, with os.Signal) {
	t.Helper()
	a.down(t, with)
	a.process = nil
}

// talk is a connection of TCP from the pod of a city to that of the other one, which stays open.
type talk struct{ conn net.Conn }

func (c *city) talk(t *testing.T) talk {
	t.Helper()
	var conn net.Conn
	require.NoError(t, c.pod.Do(func() (err error) {
		conn, err = net.DialTimeout("tcp4", "10.200.1.10:7779", patience)
		return err
	}))
	t.Cleanup(func() { _ = conn.Close() })
	return talk{conn}
}

func (k talk) says(t *testing.T) {
	t.Helper()
	_, err := k.conn.Write([]byte("?"))
	require.NoError(t, err, "the connection is open")
}

// goesOn sends and receives for a while.
func (k talk) goesOn(t *testing.T) {
	t.Helper()
	for range 10 {
		k.says(t)
		k.hears(t)
	}
}

// hears waits for the answer to one says.
func (k talk) hears(t *testing.T) {
	t.Helper()
	require.NoError(t, k.conn.SetReadDeadline(time.Now().Add(patience)))
	_, err := k.conn.Read(make([]byte, 1))
	require.NoError(t, err, "the connection goes on")
}

// listens has the pod send back what comes over connections of TCP.
func (w *town) listens(t *testing.T) {
	t.Helper()
	var listener net.Listener
	require.NoError(t, w.pod.Do(func() (err error) {
		listener, err = net.Listen("tcp4", "0.0.0.0:7779")
		return err
	}))
	var open sync.WaitGroup
	t.Cleanup(func() { _ = listener.Close(); open.Wait() })
	open.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			open.Go(func() {
				defer conn.Close()
				// What closes it there may not arrive: the gateways end too.
				defer context.AfterFunc(t.Context(), func() { _ = conn.Close() })()
				buffer := make([]byte, 100)
				for n, err := conn.Read(buffer); err == nil; n, err = conn.Read(buffer) {
					_, _ = conn.Write(buffer[:n])
				}
			})
		}
	})
}

// swap ends the gateway in use of one of the cities, waits until the other one carries the packets of
// k, and starts it again.
func (w country) swap(t *testing.T, i int, with os.Signal, k talk) *actor {
	t.Helper()
	k.goesOn(t)
	other := 1 - w.preferred(i)
	gateway := w[i].gateways[1-other]
	w.end(t, gateway, with)
	k.says(t)
	w.await(t, "the node uses the other gateway", func(t *testing.T) bool { w.pass(t); return w[i].used(t) == other })
	k.hears(t)
	k.goesOn(t)
	w[i].start(t, gateway)
	return gateway
}

// gap swaps the gateway in use of one of the cities, and returns the longest time without a packet
// until all use it again.
func (w country) gap(t *testing.T, i int, with os.Signal) time.Duration {
	t.Helper()
	k, s := w[i].talk(t), w[0].stream(t)
	w.rest(t, 300*time.Millisecond)
	gateway := w.swap(t, i, with, k)
	w.await(t, "all use the preferred gateways again", w.settled)
	k.goesOn(t) // by the gateway that has not seen what passed meanwhile
	w.rest(t, 300*time.Millisecond)
	s.end()
	lost, sent, hole := s.lost()
	t.Logf("%s %s: %d of %d packets lost, longest hole %s", gateway.name(), with, lost, sent, hole)
	return hole
}

// worst logs the median and the worst of gaps, and returns the worst.
func worst(t *testing.T, what string, gaps ...time.Duration) time.Duration {
	t.Helper()
	slices.Sort(gaps)
	load, err := os.ReadFile("/proc/loadavg")
	t.Logf("%s: longest hole of each of %d: median %s, worst %s; load %.14s (%v)", what, len(gaps), gaps[len(gaps)/2], gaps[len(gaps)-1], load, err)
	return gaps[len(gaps)-1]
}

// A pod sends a packet each millisecond while gateways in use are killed, end by themselves, and while
// gateways and agents of both clusters are killed at random. Another gateway carries the packets on,
// connections stay open, and all use the preferred gateways in the end. With -all the times without a
// packet have limits. The sample has none, and waits for the preferred gateways once: a gateway is preferred again only after its tunnel has been up for hold.
func TestNetnsGaps(t *testing.T) {
	t.Parallel()
	w, kills := newCountry(t), 2
	var killed, moved []time.Duration
	if *all {
		kills = 100
		for i := range 10 {
			killed = append(killed, w.gap(t, i%2, syscall.SIGKILL))
		}
		for i := range 10 {
			moved = append(moved, w.gap(t, i%2, syscall.SIGTERM))
		}
	}
	k, s := w[1].talk(t), w[0].stream(t)
	if !*all {
		w.swap(t, 1, syscall.SIGKILL, k)
		w.await(t, "all processes work again", w.whole)
		w.swap(t, 0, syscall.SIGTERM, w[0].talk(t))
		w.await(t, "all processes work again", w.whole)
	}
	actors := append(w[0].actors(), w[1].actors()...)
	for range kills {
		n := rand.IntN(len(actors))
		w.end(t, actors[n], syscall.SIGKILL)
		w.rest(t, rand.N(3*time.Second))
		w[n/3].start(t, actors[n])
		w.await(t, "all processes work again", w.whole)
		k.goesOn(t)
		w.rest(t, rand.N(2*time.Second))
		if *all {
			_, _, hole := s.lost()
			t.Logf("kill of %s: longest hole so far %s", actors[n].name(), hole)
		}
	}
	w.await(t, "all use the preferred gateways in the end", w.settled)
	k.goesOn(t) // by gateways that have not seen all of the connection
	s.end()
	if *all {
		_, _, hole := s.lost()
		worst(t, fmt.Sprintf("%d random kills of gateways and agents", kills), hole)
		require.LessOrEqual(t, worst(t, "gateways killed", killed...), killedLimit)
		require.LessOrEqual(t, worst(t, "gateways ended", moved...), movedLimit)
		require.LessOrEqual(t, hole, killedLimit)
	}
}
