package link

import (
	"time"

	"github.com/liqod/liqod/health"
)

const (
	// missedBeats is how many renewals in a row a peer misses before it counts as down.
	missedBeats = 3
	// returnBeats is how many renewals in a row, none of them missedBeats after the other,
	// turn it up again.
	returnBeats = 2
)

// beat is what was seen of one heartbeat Lease. Its clock is this process's own: what the
// peer has written into the Lease is not looked at, as clocks differ and peers lie.
type beat struct {
	version string    // resource version of the Lease
	since   time.Time // the silence of the peer counts from here
	verdict health.Verdict
	returns int // renewals in a row since the verdict is Down
}

// seen takes the version of the Lease that was read at now. It reports whether the verdict
// changed. The first renewal is enough for a peer that was not judged yet.
func (b *beat) seen(version string, now time.Time, interval time.Duration) (changed bool) {
	if version == b.version {
		return false
	}
	late := now.Sub(b.since) >= missedBeats*interval
	b.version, b.since = version, now
	switch {
	case b.verdict == health.Up:
		return false
	case b.verdict == health.Down && late:
		b.returns = 1
		return false
	case b.verdict == health.Down && b.returns+1 < returnBeats:
		b.returns++
		return false
	}
	b.verdict, b.returns = health.Up, 0
	return true
}

// unread says that the Lease could not be read at now: a peer could not have renewed it
// either, so its silence counts anew.
func (b *beat) unread(now time.Time) { b.since = now }

// silent says that the Lease was read at now, and had not changed. It reports whether the
// verdict changed.
func (b *beat) silent(now time.Time, interval time.Duration) (changed bool) {
	if b.verdict == health.Down || now.Sub(b.since) < missedBeats*interval {
		return false
	}
	b.verdict, b.returns = health.Down, 0
	return true
}

// due returns when the Lease is to be read, as the watch may be behind. It returns false
// while that is not needed. Reads begin early enough to see a short outage of this cluster's
// own API server, in which no peer can renew.
func (b *beat) due(interval time.Duration) (time.Time, bool) {
	return b.since.Add(interval * 3 / 2), b.verdict != health.Down
}
