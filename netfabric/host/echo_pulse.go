package host

import (
	"time"

	"github.com/liqod/liqod/health"
	"github.com/liqod/liqod/reasons"
)

// EchoTiming says how often a tunnel is probed, and how soon it counts as dead or alive. Its
// limits are those of the settings.
type EchoTiming struct {
	// Interval is the time between two requests.
	Interval time.Duration
	// Silence is how long nothing may come through a tunnel that is Up. At least four
	// Intervals: probes share the queue of the tunnel, so a busy one loses some.
	Silence time.Duration
	// Patience is how long the verdict of a new tunnel stays Unknown without an answer, at
	// least Silence. A handshake of WireGuard that is lost is repeated after 5 s.
	Patience time.Duration
	// Answers turn a tunnel from Down to Up, without a Silence between two of them. At least 1.
	Answers int
}

// pulse judges one tunnel by the packets that come out of it. Its time passes only from tick
// to tick, by at most two Intervals each: after a short stall of the process the waiting
// packets are read before the silence ends. A pulse is plain data, and a copy is independent.
// It is not safe for concurrent use.
type pulse struct {
	timing  EchoTiming
	verdict health.Verdict
	reason  string
	since   time.Time // of verdict
	asked   window    // requests of this process

	ticked time.Time     // zero: not yet
	paused time.Duration // how long the process stood still when reason is ReasonPaused
	waited time.Duration // for an answer, since the start or the last pause
	quiet  struct {
		answer time.Duration // since the last answer
		probe  time.Duration // since the last probe of any kind
		all    time.Duration // since the last sign of life of any kind
	}
	deaf    bool         // by its last request, the other side receives nothing
	row     int          // answers without a Silence between them
	down    health.Dwell // turns from Up to Down
	rtt     time.Duration
	server  health.Verdict // of the other side on its own API server, as far as servers lets it pass
	servers health.Dwell
	bytes   uint64 // received until the tick before
	counted bool   // bytes is of the tick before
}

func newPulse(timing EchoTiming, now time.Time) pulse {
	p := pulse{timing: timing, since: now, reason: reasons.ProbesNotAnswered}
	p.forget()
	return p
}

// forget drops every sign of life so far.
func (p *pulse) forget() {
	p.asked.settle()
	p.quiet.answer, p.quiet.probe, p.quiet.all = p.timing.Silence, p.timing.Silence, p.timing.Silence
	p.waited, p.row, p.rtt, p.server, p.servers, p.counted, p.deaf = 0, 0, 0, health.Unknown, health.Dwell{}, false, false
}

// resume comes first on every event. After a pause of the process the verdict is Unknown, and
// answers to earlier requests, which may have waited in the socket, no longer count.
func (p *pulse) resume(now time.Time) {
	gap := now.Sub(p.ticked)
	if p.ticked.IsZero() || gap <= p.timing.Silence {
		return
	}
	p.forget()
	p.turn(health.Unknown, reasons.ProcessPaused, p.ticked.Add(p.timing.Silence))
	p.ticked, p.paused = now, gap
}

// passed is the part of the time since the last tick that counts.
func (p *pulse) passed(now time.Time) time.Duration {
	return min(now.Sub(p.ticked), 2*p.timing.Interval)
}

// tick lets time pass. It reports whether the caller has to call received.
func (p *pulse) tick(now time.Time) (count bool) {
	p.resume(now)
	if !p.ticked.IsZero() {
		gap := p.passed(now)
		p.waited += gap
		p.quiet.answer += gap
		p.quiet.probe += gap
		p.quiet.all += gap
	}
	p.ticked = now
	if p.quiet.answer >= p.timing.Silence {
		p.row = 0
	}
	count = p.verdict == health.Up && p.quiet.all >= p.timing.Silence/2
	p.counted = p.counted && count
	return count
}

// received takes the number of bytes that have come through the tunnel so far. An increase
// since the tick before is a sign of life.
func (p *pulse) received(bytes uint64) {
	if p.counted && bytes > p.bytes {
		p.quiet.all = 0
	}
	p.bytes, p.counted = bytes, true
}

// answered takes the first answer to one of the last 64 requests. It reports false for any
// other answer.
func (p *pulse) answered(in Probe, rtt time.Duration, now time.Time) bool {
	p.resume(now)
	if !p.asked.mark(in.Sequence) {
		return false
	}
	p.heard(in, now)
	p.deaf = false
	p.quiet.answer = p.quiet.all
	p.row++
	if p.rtt == 0 {
		p.rtt = rtt
	}
	p.rtt += (rtt - p.rtt) / 8
	if p.verdict == health.Unknown || p.verdict == health.Down && p.row >= p.timing.Answers && p.down.Wait(now) == 0 {
		p.turn(health.Up, reasons.ProbesAnswered, now)
	}
	return true
}

// requested takes a request of the other side.
func (p *pulse) requested(in Probe, now time.Time) {
	p.resume(now)
	p.heard(in, now)
	p.deaf = !in.Hears
}

// heard starts the silence at the time now. The next tick adds the whole gap since the last
// one, so the part of it before now is subtracted here.
func (p *pulse) heard(in Probe, now time.Time) {
	if p.ticked.IsZero() {
		p.ticked = now
	}
	p.server, _ = p.servers.Pass(in.APIServer, now)
	p.quiet.all = -p.passed(now)
	p.quiet.probe = p.quiet.all
}

// judge turns the verdict from Up or Unknown to Down. A tunnel that works in one direction
// only is Down on both sides: while the other side receives nothing, only its answers count.
func (p *pulse) judge(now time.Time) {
	silence, reason := p.quiet.all, reasons.TunnelSilent
	if p.deaf {
		silence, reason = p.quiet.answer, reasons.TunnelOneWay
	}
	switch {
	case p.verdict == health.Up && silence >= p.timing.Silence:
		p.down.Worse(now)
		p.turn(health.Down, reason, now)
	case p.verdict == health.Unknown && p.waited >= p.timing.Patience:
		p.turn(health.Down, reasons.ProbesNotAnswered, now)
	}
}

func (p *pulse) turn(verdict health.Verdict, reason string, now time.Time) {
	if p.verdict != verdict {
		p.verdict, p.since = verdict, now
	}
	p.reason, p.row = reason, 0
}

// answers reports whether the other side answers, be it while the verdict waits to be Up again. Any
// tunnel is better than none.
func (p *pulse) answers() bool {
	return p.verdict == health.Up || p.verdict == health.Down && !p.deaf && p.row >= p.timing.Answers
}

// hears reports whether anything has come through the tunnel of late. Own requests carry it.
func (p *pulse) hears() bool { return p.quiet.all < p.timing.Silence }

// peerServer is the verdict of the other side on its own API server. It is Unknown while the
// tunnel is not Up, and after three Silences without a probe.
func (p *pulse) peerServer() health.Verdict {
	if p.verdict != health.Up || p.quiet.probe >= 3*p.timing.Silence {
		return health.Unknown
	}
	return p.server
}

// window remembers the last 64 sequence numbers: bit i of seen is set when top-i was seen.
type window struct {
	top, seen uint64
}

// next moves the window up by one. lost: the number that leaves the window was not seen.
func (w *window) next() (sequence uint64, lost bool) {
	lost = w.seen>>63 == 0
	w.top++
	w.seen <<= 1
	return w.top, lost
}

// fresh reports whether admit would take a number. It changes nothing.
func (w window) fresh(sequence uint64) bool { return w.admit(sequence) }

// mark reports whether a number within the window is seen for the first time.
func (w *window) mark(sequence uint64) bool {
	age := w.top - sequence
	if sequence > w.top || age > 63 || w.seen>>age&1 == 1 {
		return false
	}
	w.seen |= 1 << age
	return true
}

// admit is mark for numbers of another process: a larger one moves the window.
func (w *window) admit(sequence uint64) bool {
	if sequence > w.top {
		w.seen <<= sequence - w.top
		w.top = sequence
	}
	return w.mark(sequence)
}

// settle marks every number so far.
func (w *window) settle() { w.seen = ^uint64(0) }
