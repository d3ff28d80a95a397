package plan

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// reaching is a world in which milan reaches some pods of rome.
func reaching(t *testing.T, ips []IP, reach ...string) *world {
	t.Helper()
	return romeAndMilan(t, func(rome, _ *Input) {
		rome.Peers[0].Reach, rome.IPs = prefixes(reach...), ips
	})
}

// A peer opens connections to the pods that are shared with it, and to no others.
func TestAPeerReachesWhatIsShared(t *testing.T) {
	t.Parallel()
	const pod, pod6, of = "10.244.1.10/32", "fd00:10:244:1::10/128", "10.244.2.20"
	udp := func(src, dst string) Packet {
		p := tcp(src, dst)
		p.Proto, p.SYN = "udp", false
		return p
	}
	named := func(peer string, ports ...Service) []IP {
		return []IP{{External: addr("10.70.0.30"), Real: addr("10.244.1.10"), Peer: peer, Ports: ports}}
	}
	for name, tc := range map[string]struct {
		reach  []string
		ips    []IP
		packet Packet
		passes bool
	}{
		"a pod":                              {[]string{pod}, nil, tcp(of, "10.200.1.10"), true},
		"by UDP":                             {[]string{pod}, nil, udp(of, "10.200.1.10"), true},
		"by IPv6":                            {[]string{pod6}, nil, tcp("fd00:10:244:2::20", "fd00:ba:0:1::10"), true},
		"from a node of the peer":            {[]string{pod}, nil, local(tcp("192.168.0.22", "10.200.1.10")), true},
		"all pods":                           {[]string{"10.244.0.0/16"}, nil, tcp(of, "10.200.1.77"), true},
		"nothing":                            {nil, nil, tcp(of, "10.200.1.10"), false},
		"another pod of the node":            {[]string{pod}, nil, tcp(of, "10.200.1.11"), false},
		"another family":                     {[]string{pod}, nil, tcp("fd00:10:244:2::20", "fd00:ba:0:1::10"), false},
		"an address without a pod":           {[]string{pod}, nil, tcp(of, "10.200.1.0"), false},
		"an IP, by its address":              {nil, named(""), tcp(of, "10.71.0.30"), true},
		"an IP, by the address of the pod":   {nil, named(""), tcp(of, "10.200.1.10"), true},
		"an IP for this peer, at its port":   {nil, named("milan", Service{"tcp", 80}), tcp(of, "10.71.0.30"), true},
		"an IP of another pod of the node":   {nil, named(""), tcp(of, "10.200.1.11"), false},
		"an IP of another peer":              {nil, named("paris"), tcp(of, "10.200.1.10"), false},
		"an IP of another peer, at its port": {nil, named("paris", Service{"tcp", 80}), tcp(of, "10.200.1.10"), false},
		"a pod that an IP names, too":        {[]string{pod}, named("paris", Service{"tcp", 443}), tcp(of, "10.200.1.10"), true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := reaching(t, tc.ips, tc.reach...)
			if !tc.passes {
				w.drops("milan milan-2", tc.packet, "rome rome-1", "prerouting reach_in: ", DropToPod)
				return
			}
			at, got, _ := w.follow("milan milan-2", tc.packet)
			require.Equal(t, "rome rome-1", at, "%v", got)
			require.Equal(t, Handed, got.Verdict, "%v", got)
		})
	}
}

// What a pod opens to a peer is answered, whatever the peer reaches.
func TestAnswersReachPodsThatAreNotShared(t *testing.T) {
	t.Parallel()
	for name, p := range map[string]Packet{
		"a pod":       tcp("10.244.1.10", "10.200.2.20"),
		"by IPv6":     tcp("fd00:10:244:1::10", "fd00:aa:0:2::20"),
		"the node":    local(tcp("192.168.0.11", "10.200.2.20")),
		"another pod": tcp("10.244.1.99", "10.200.2.20"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := reaching(t, nil)
			at, got, _ := w.follow("rome rome-1", p)
			require.Equal(t, Handed, got.Verdict, "%v", got)
			w.answered("rome rome-1", p, at, got)
		})
	}
}

// A connection that a peer has opened ends when its pod is no longer shared.
func TestWhatIsNoLongerSharedIsClosed(t *testing.T) {
	t.Parallel()
	w := reaching(t, nil, "10.244.1.10/32")
	first := tcp("10.244.2.20", "10.200.1.10")
	at, got, _ := w.follow("milan milan-2", first)
	require.Equal(t, Handed, got.Verdict, "%v", got)
	w.answered("milan milan-2", first, at, got)

	after := reaching(t, nil)
	after.flows = w.flows
	after.drops("milan milan-2", later(first), "rome rome-1", DropToPod)
}

// A connection to a pod in a third cluster ends when the hub no longer shares the pod.
func TestWhatIsNoLongerSharedBehindIsClosed(t *testing.T) {
	t.Parallel()
	w := three(t)
	first := tcp("10.1.1.5", "10.204.2.20")
	at, got, _ := w.follow("paris paris-1", first)
	require.Equal(t, Handed, got.Verdict, "%v", got)
	w.answered("paris paris-1", first, at, got)
	closed := three(t, func(rome *Input) { rome.Peers[1].Through = nil })
	closed.flows = w.flows
	closed.drops("paris paris-1", later(first), "rome gw-a", DropToPod)
}
