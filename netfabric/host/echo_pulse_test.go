package host

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/liqod/liqod/health"
	"github.com/liqod/liqod/reasons"
)

var testTiming = EchoTiming{Interval: 200 * time.Millisecond, Silence: time.Second, Patience: 10 * time.Second, Answers: 3}

// rhythm drives a pulse, one character a tick: what comes between the tick and the next.
//
//	. an answer           x nothing              b bytes of the tunnel, counted by the next tick
//	r a request           d a request of a gateway that hears nothing
//	s a stall of 0.9 s    P a pause of 12 s
type rhythm struct {
	pulse
	now time.Time
	rx  uint64
}

func newRhythm() *rhythm {
	now := time.Unix(1e9, 0)
	return &rhythm{pulse: newPulse(testTiming, now), now: now}
}

func (r *rhythm) beat(event rune) {
	gap := map[rune]time.Duration{'s': 900 * time.Millisecond, 'P': 12 * time.Second}[event]
	r.now = r.now.Add(max(gap, testTiming.Interval))
	if r.tick(r.now) {
		r.received(r.rx)
	}
	r.judge(r.now)
	sequence, _ := r.asked.next()
	in, at := Probe{Sequence: sequence, Hears: event == 'r', APIServer: health.Up}, r.now.Add(time.Millisecond)
	switch event {
	case '.':
		r.answered(in, time.Millisecond, at)
	case 'r', 'd':
		r.requested(in, at)
	case 'b':
		r.rx += 100
	}
	r.judge(at)
}

func TestPulse(t *testing.T) {
	t.Parallel()
	many := strings.Repeat
	for name, tc := range map[string]struct {
		events, want string // the verdict after each: ? unknown, U up, D down
		reason       string // after the last
	}{
		"one answer is enough at first":             {".", "U", reasons.ProbesAnswered},
		"a request alone is not":                    {"rrr", "???", reasons.ProbesNotAnswered},
		"unknown for a while":                       {many("x", 50), many("?", 50), reasons.ProbesNotAnswered},
		"but not for ever":                          {many("x", 51), many("?", 50) + "D", reasons.ProbesNotAnswered},
		"down after a second of nothing":            {".xxxxxx", "UUUUUUD", reasons.TunnelSilent},
		"four lost ones are no second":              {".xxxx.xxxx.", many("U", 11), reasons.ProbesAnswered},
		"requests are life":                         {"." + many("r", 30), many("U", 31), reasons.ProbesAnswered},
		"one request in a second is enough":         {".xxxxrxxxxrxxxxr", many("U", 16), reasons.ProbesAnswered},
		"bytes are life":                            {"." + many("b", 30), many("U", 31), reasons.ProbesAnswered},
		"a keepalive is life for a second":          {".xxxbxxxxx", many("U", 10), reasons.ProbesAnswered},
		"and no longer":                             {".xxxbxxxxxx", many("U", 10) + "D", reasons.TunnelSilent},
		"bytes of long ago are none":                {".b.x.b.xxxxxx", many("U", 12) + "D", reasons.TunnelSilent},
		"three answers turn it up again":            {".xxxxxx...", "UUUUUUDDDU", reasons.ProbesAnswered},
		"with losses between":                       {".xxxxxx.xx.xxx.", "UUUUUUDDDDDDDDU", reasons.ProbesAnswered},
		"a second between two begins anew":          {".xxxxxx..xxxxxx...", "UUUUUUD" + many("D", 10) + "U", reasons.ProbesAnswered},
		"requests turn nothing up":                  {".xxxxxx" + many("r", 20), "UUUUUUD" + many("D", 20), reasons.TunnelSilent},
		"bytes turn nothing up":                     {".xxxxxx" + many("b", 20), "UUUUUUD" + many("D", 20), reasons.TunnelSilent},
		"one way: the other side hears nothing":     {".dddddd", "UUUUUUD", reasons.TunnelOneWay},
		"one way, after it heard us":                {".rrrrrrd", "UUUUUUUD", reasons.TunnelOneWay},
		"one way, and bytes come":                   {".dbbbbb", "UUUUUUD", reasons.TunnelOneWay},
		"it hears again":                            {".drrrrrr", "UUUUUUUU", reasons.ProbesAnswered},
		"an answer proves that it hears":            {".dddd.xx", "UUUUUUUU", reasons.ProbesAnswered},
		"a short stall costs no verdict":            {".s.s.s", "UUUUUU", reasons.ProbesAnswered},
		"a stall within silence counts two beats":   {".xxs", "UUUU", reasons.ProbesAnswered},
		"a stall after longer silence ends it":      {".xxxxs", "UUUUUD", reasons.TunnelSilent},
		"a pause makes it unknown":                  {".P", "U?", reasons.ProcessPaused},
		"also what was down":                        {".xxxxxxP", "UUUUUUD?", reasons.ProcessPaused},
		"one answer after a pause":                  {".Px.", "U??U", reasons.ProbesAnswered},
		"no answer after a pause":                   {".P" + many("x", 50), "U?" + many("?", 49) + "D", reasons.ProbesNotAnswered},
		"bytes and requests after a pause are none": {".Pbbbbrrrr", "U?????????", reasons.ProcessPaused},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRhythm()
			var got strings.Builder
			for _, event := range tc.events {
				before, since := r.verdict, r.since
				r.beat(event)
				require.Equal(t, before == r.verdict, since.Equal(r.since))
				got.WriteByte("?UD"[r.verdict])
			}
			require.Equal(t, tc.want, got.String())
			require.Equal(t, tc.reason, r.reason)
		})
	}
}

// A second is one from the probe itself, not from the tick before it.
func TestPulseCountsFromTheProbe(t *testing.T) {
	t.Parallel()
	r := newRhythm()
	r.beat('x')
	sequence, _ := r.asked.next()
	require.True(t, r.answered(Probe{Sequence: sequence}, 0, r.now.Add(199*time.Millisecond)))
	for range 5 {
		r.beat('x')
	}
	require.Equal(t, health.Up, r.verdict, "0.801 s")
	r.beat('x')
	require.Equal(t, health.Down, r.verdict, "1.001 s")
}

func TestAnswersFromBeforeAPause(t *testing.T) {
	t.Parallel()
	r := newRhythm()
	r.beat('.')
	before, _ := r.asked.next()
	woken := r.now.Add(time.Minute)
	require.False(t, r.answered(Probe{Sequence: before}, time.Minute, woken), "no tick has come yet")
	require.Equal(t, health.Unknown, r.verdict)
	require.Equal(t, r.now.Add(time.Second), r.since, "from then on it was not up any more")
	after, _ := r.asked.next()
	require.True(t, r.answered(Probe{Sequence: after}, time.Millisecond, woken))
	require.Equal(t, health.Up, r.verdict)
	require.False(t, r.answered(Probe{Sequence: after}, time.Millisecond, woken), "once")
}

func TestPulseHears(t *testing.T) {
	t.Parallel()
	for events, want := range map[string]bool{
		"": false, "x": false, ".": true, "r": true, "d": true, ".xxxxx": true, ".xxxxxx": false, "rxxxxxx": false, ".P": false, "." + strings.Repeat("b", 20): true,
	} {
		r := newRhythm()
		for _, event := range events {
			r.beat(event)
		}
		require.Equal(t, want, r.hears(), events)
	}
}

// The verdict of the other side on its API server expires with the tunnel, and after three
// seconds without a probe.
func TestPeerServer(t *testing.T) {
	t.Parallel()
	many := strings.Repeat
	for events, want := range map[string]health.Verdict{
		"": health.Unknown, "r": health.Unknown, ".": health.Up, ".xxxxx": health.Up, ".xxxxxx": health.Unknown, ".xxxxxx..": health.Unknown,
		"." + many("b", 15): health.Up, "." + many("b", 16): health.Unknown, "." + many("b", 16) + "r": health.Up, ".P": health.Unknown,
	} {
		r := newRhythm()
		for _, event := range events {
			r.beat(event)
		}
		require.Equal(t, want, r.peerServer(), events)
	}
}

func TestPulseRTT(t *testing.T) {
	t.Parallel()
	r := newRhythm()
	answer := func(rtt time.Duration) time.Duration {
		sequence, _ := r.asked.next()
		require.True(t, r.answered(Probe{Sequence: sequence}, rtt, r.now))
		return r.rtt
	}
	require.Equal(t, 8*time.Millisecond, answer(8*time.Millisecond), "the first one as it is")
	require.Equal(t, 9*time.Millisecond, answer(16*time.Millisecond))
	require.Equal(t, 8*time.Millisecond, answer(time.Millisecond))
}

func TestWindowOfRequests(t *testing.T) {
	t.Parallel()
	var w window
	for _, step := range []struct {
		sequence uint64
		want     bool
	}{
		{5, true}, {5, false}, {4, true}, {4, false}, {68, true}, {5, false}, {6, true},
		{69, true}, {5, false}, {6, false}, {1000, true}, {69, false}, {937, true}, {936, false}, {999, true},
		{math.MaxUint64, true}, {1000, false}, {0, false},
	} {
		require.Equal(t, step.want, w.admit(step.sequence), step.sequence)
	}
}

func TestWindowOfAnswers(t *testing.T) {
	t.Parallel()
	var w window
	w.settle()
	require.False(t, w.mark(0), "nothing was asked")
	lost := 0
	for i := range 100 {
		sequence, gone := w.next()
		require.Equal(t, uint64(i+1), sequence)
		if gone {
			lost++
		}
		if sequence%2 == 0 {
			require.True(t, w.mark(sequence))
		}
	}
	require.Equal(t, 18, lost, "odd ones from 1 to 36 have left the window")
	require.False(t, w.mark(101), "not asked yet")
	require.True(t, w.mark(99))
	w.settle()
	require.False(t, w.mark(97), "asked before all was settled")
}
