package host

import (
	"net"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"k8s.io/utils/clock"

	"github.com/liqod/liqod/netfabric/plan"
)

// nodeSocket hands packets from one side to the other.
type nodeSocket struct {
	from netip.AddrPort
	sent func(packet []byte, to netip.AddrPort)
	in   chan nodePacketIn
}

type nodePacketIn struct {
	packet []byte
	from   netip.AddrPort
}

func (s *nodeSocket) ReadFromUDPAddrPort(b []byte) (int, netip.AddrPort, error) {
	d, ok := <-s.in
	if !ok {
		return 0, netip.AddrPort{}, net.ErrClosed
	}
	return copy(b, d.packet), d.from, nil
}

func (s *nodeSocket) WriteToUDPAddrPort(b []byte, to netip.AddrPort) (int, error) {
	s.sent(append([]byte{}, b...), to)
	return len(b), nil
}

func (s *nodeSocket) SetReadDeadline(time.Time) error { return nil }

func (s *nodeSocket) Close() error {
	close(s.in)
	return nil
}

// A node hears within a moment that a gateway does not serve a peer, and after the silence
// that it is dead. Only nodes get answers, and only own gateways are believed.
func TestNodeProbes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		node := netip.MustParseAddrPort("192.0.2.11:40000")
		in := plan.Input{External: []netip.Prefix{netip.MustParsePrefix("10.70.0.0/16")}, Gateways: []plan.Replica{{Name: "a", Number: 1}, {Name: "b", Number: 2}}}
		at := func(number int) netip.AddrPort {
			return netip.AddrPortFrom(plan.ReplicaAddr(in.External[0], number), plan.ProbePort)
		}
		answers, dead := map[netip.AddrPort]*NodeAnswers{}, map[int]bool{}
		here := &nodeSocket{from: node, in: make(chan nodePacketIn, 100)}
		backs := map[int]*nodeSocket{}
		for number := 1; number <= 2; number++ {
			answers[at(number)] = NewNodeAnswers(clock.RealClock{})
			backs[number] = &nodeSocket{sent: func(packet []byte, to netip.AddrPort) {
				if to == node && !dead[number] {
					here.in <- nodePacketIn{packet, at(number)}
				}
			}}
		}
		number := func(to netip.AddrPort) int {
			if to == at(1) {
				return 1
			}
			return 2
		}
		here.sent = func(packet []byte, to netip.AddrPort) {
			if isNodeProbe(packet) && !dead[number(to)] {
				answers[to].take(backs[number(to)], packet, node)
			}
		}
		changes := make(chan struct{}, 100)
		p := NewNodeProbes(func() (ProbeSocket, error) { return here, nil }, clock.RealClock{}, zap.NewNop(), func() { changes <- struct{}{} })
		go p.Run(t.Context())
		see := func(number int, peer string) plan.Candidate {
			synctest.Wait()
			c, _ := p.judge(number, peer)
			return c
		}
		time.Sleep(time.Second)
		_, heard := p.judge(1, "milan")
		require.False(t, heard, "there is no choice yet")

		p.follow(in)
		time.Sleep(time.Second)
		_, heard = p.judge(1, "milan")
		require.False(t, heard, "it is no node")
		for _, a := range answers {
			a.follow([]plan.Host{{Addrs: []netip.Addr{node.Addr()}}})
		}
		time.Sleep(nodeProbeEvery)
		require.Equal(t, plan.Candidate{Number: 1, Alive: true}, see(1, "milan"), "a gateway that has just begun serves nobody")
		answers[at(1)].set(backs[1], false, nil)
		require.Equal(t, plan.Candidate{Number: 1, Alive: true, Serves: true}, see(1, "milan"), "it is heard at once")
		answers[at(1)].set(backs[1], false, []uint64{HashCluster("milan").short()})
		require.Equal(t, plan.Candidate{Number: 1, Alive: true}, see(1, "milan"))
		require.Equal(t, plan.Candidate{Number: 1, Alive: true, Serves: true}, see(1, "oslo"))
		answers[at(1)].set(backs[1], false, []uint64{HashCluster("milan").short(), 1, HashCluster("milan").short()})
		require.Equal(t, plan.Candidate{Number: 1}, see(1, "milan"), "no tunnel leads there")
		_, heard = p.judge(1, "milan")
		require.True(t, heard)
		many := slices.Repeat([]uint64{HashCluster("milan").short()}, 2)
		for n := range uint64(mostAway - 1) {
			many = append(many, n)
		}
		answers[at(1)].set(backs[1], false, many)
		require.Equal(t, plan.Candidate{Number: 1, Alive: true}, see(1, "milan"), "too many to list twice")
		require.Equal(t, plan.Candidate{Number: 1, Alive: true, Serves: true}, see(1, "oslo"))
		answers[at(1)].set(backs[1], false, append(many, mostAway))
		require.Equal(t, plan.Candidate{Number: 1, Alive: true}, see(1, "oslo"), "too many to list")
		answers[at(1)].set(backs[1], false, nil)
		answers[at(1)].set(backs[1], true, nil)
		require.Equal(t, plan.Candidate{Number: 1, Alive: true}, see(1, "oslo"), "it ends")
		answers[at(1)].set(backs[1], false, nil)

		dead[1] = true
		time.Sleep(nodeProbeSilence - nodeProbeEvery)
		require.True(t, see(1, "milan").Alive)
		time.Sleep(2 * nodeProbeEvery)
		require.Equal(t, plan.Candidate{Number: 1}, see(1, "milan"))
		require.True(t, see(2, "milan").Alive)
		dead[1] = false
		time.Sleep(nodeProbeEvery)
		require.Equal(t, plan.Candidate{Number: 1, Alive: true, Serves: true}, see(1, "milan"))
		require.NotEmpty(t, changes)

		answers[at(2)].set(backs[2], false, nil)
		for name, packet := range map[string][]byte{
			"empty":              {},
			"a request":          append(nodePacket(nodeRequest, p.nonce), flagAway, 0, 0),
			"for another node":   append(nodePacket(nodeAnswer, p.nonce+1), flagAway, 0, 0),
			"cut":                nodePacket(nodeAnswer, p.nonce),
			"fewer than it says": append(nodePacket(nodeAnswer, p.nonce), flagAway, 0, 1),
			"more than accepted": append(nodePacket(nodeAnswer, p.nonce), flagAway, 0xff, 0xff),
		} {
			p.take(packet, at(2))
			require.True(t, see(2, "milan").Serves, name)
		}
		good := append(nodePacket(nodeAnswer, p.nonce), flagAway, 0, 0)
		p.take(good, netip.AddrPortFrom(at(2).Addr(), 1))
		p.take(good, netip.MustParseAddrPort("192.0.2.99:6092"))
		require.True(t, see(2, "milan").Serves, "from elsewhere")
		p.take(good, at(2))
		require.False(t, see(2, "milan").Serves)

		in.Gateways = in.Gateways[:1]
		p.follow(in)
		_, heard = p.judge(1, "milan")
		require.False(t, heard, "one gateway is no choice")
	})
}
