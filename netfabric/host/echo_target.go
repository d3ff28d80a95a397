package host

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"time"

	"golang.org/x/time/rate"

	"github.com/liqod/liqod/health"
	"github.com/liqod/liqod/reasons"
)

// Answers to one gateway in a second. Requests of a run without an answer of its own may be
// recordings: they get few.
const (
	answersToKnown   = 50
	answersToUnknown = 5
)

// Echo reports a new round trip time by itself when it has doubled or halved since the last
// report, at most once in rttEvery. Times below rttFloor count as rttFloor.
const (
	rttEvery = time.Minute
	rttFloor = 5 * time.Millisecond
)

// target is one gateway to probe.
type target struct {
	peer     EchoPeer
	keys     ProbeKeys
	sender   ClusterHash // of the peer
	pulse    pulse
	run      uint64 // random: requests are counted anew for each target
	theirs   uint64 // run at the peer, by its last answer
	requests window // of that run
	known    *rate.Limiter
	unknown  *rate.Limiter
	away     bool   // by its last probe
	accepts  uint64 // by its last request

	refused    error        // by the kernel, of the last request
	dropped    ProbeGarbage // why the last packet was dropped; empty: it was not
	reported   EchoState
	reportedAt time.Time
}

func newTarget(cfg EchoConfig, p EchoPeer) (*target, error) {
	if p.Address != p.Address.Unmap() || !p.Address.IsValid() {
		return nil, fmt.Errorf("the address is %s: accepted is an IPv4 or IPv6 address", p.Address)
	}
	keys, err := cfg.Keys(p.Key)
	if err != nil {
		return nil, err
	}
	var run [8]byte
	_, _ = rand.Read(run[:]) // never fails, since Go 1.24
	now := cfg.Clock.Now()
	t := &target{
		peer: p, keys: keys, run: binary.BigEndian.Uint64(run[:]), sender: HashCluster(p.Cluster), pulse: newPulse(cfg.Timing, now),
		known: rate.NewLimiter(answersToKnown, answersToKnown), unknown: rate.NewLimiter(answersToUnknown, answersToUnknown),
	}
	t.reported, t.reportedAt = t.state(now), now
	return t, nil
}

// rekeyed returns t, which goes on with other keys of the two gateways.
func (t *target) rekeyed(cfg EchoConfig, p EchoPeer) (*target, error) {
	next := *t
	next.peer = p
	if p.Key == t.peer.Key && p.Own == t.peer.Own {
		return &next, nil
	}
	var err error
	next.keys, err = cfg.Keys(p.Key)
	return &next, err
}

// read decodes a packet that came from the address of t.
func (t *target) read(packet []byte) (Probe, ProbeGarbage) {
	in, garbage := DecodeProbe(t.keys.Receive, packet)
	if garbage == "" && in.Sender != t.sender {
		return Probe{}, GarbageSender
	}
	return in, garbage
}

// changed reports whether the state s differs from the reported one, and turn whether another gateway may be
// better by it: also where the verdict is as it was reported, but was another one in between. After a pause of
// the process the next answer has two Intervals to arrive: then nothing is to be reported.
func (t *target) changed(s EchoState, now time.Time) (changed, turn bool) {
	have := t.reported
	if p := t.pulse; s.Reason == reasons.ProcessPaused {
		p.resume(now)
		if p.waited <= 2*p.timing.Interval {
			return false, false
		}
	}
	turn = s.Verdict != have.Verdict || s.Since != have.Since || s.Away != have.Away
	if s.Verdict != have.Verdict || s.APIServer != have.APIServer || s.Away != have.Away || s.Reason != have.Reason {
		return true, turn
	}
	return now.Sub(t.reportedAt) >= rttEvery && doubled(have.RTT, s.RTT), turn
}

// doubled reports whether a round trip time has doubled or halved.
func doubled(before, now time.Duration) bool {
	a, b := max(before, rttFloor), max(now, rttFloor)
	return a >= 2*b || b >= 2*a
}

// state returns the state at the time now. It changes nothing.
func (t *target) state(now time.Time) EchoState {
	p := t.pulse
	p.resume(now)
	s := EchoState{Verdict: p.verdict, Answers: p.answers(), Since: p.since, APIServer: p.peerServer(), Away: t.away, Accepts: t.accepts, Reason: p.reason}
	switch {
	case p.verdict == health.Up:
		s.RTT = p.rtt
	case t.refused != nil:
		s.Reason = reasons.ProbesNotSent
	case p.verdict == health.Down && t.dropped == GarbageMAC:
		s.Reason = reasons.KeyDiffers
	}
	s.Message = t.explainState(s.Reason, p)
	return s
}

func (t *target) explainState(reason string, p pulse) (text string) {
	switch reason {
	case reasons.ProbesAnswered:
		return fmt.Sprintf("%s answers probes", t.peer)
	case reasons.ProbesNotAnswered:
		text = fmt.Sprintf("%s has not answered a probe since this gateway began to send them", t.peer)
	case reasons.KeyDiffers:
		text = fmt.Sprintf("%s sends what was made with another key than the one that it announces", t.peer)
	case reasons.ProcessPaused:
		text = fmt.Sprintf("this gateway stood still for %s, and has had no answer from %s since", p.paused.Round(time.Second), t.peer)
	case reasons.TunnelSilent:
		text = fmt.Sprintf("nothing comes from %s", t.peer)
	case reasons.TunnelOneWay:
		text = fmt.Sprintf("%s reports that it receives nothing from this gateway, and does not answer", t.peer)
	case reasons.ProbesNotSent:
		text = fmt.Sprintf("sending a probe to %s: %v", t.peer, t.refused)
	}
	if t.dropped != "" {
		text += "; the last packet from there was dropped: " + string(t.dropped)
	}
	return text
}
