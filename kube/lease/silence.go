package lease

import (
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
)

// Holder returns the holder of a Lease; "" if it has none.
func Holder(l *coordinationv1.Lease) string {
	if l.Spec.HolderIdentity == nil {
		return ""
	}
	return *l.Spec.HolderIdentity
}

// Duration returns how long after a renewal a Lease expires; otherwise, if it has no duration.
func Duration(l *coordinationv1.Lease, otherwise time.Duration) time.Duration {
	if s := l.Spec.LeaseDurationSeconds; s != nil && *s > 0 {
		return time.Duration(*s) * time.Second
	}
	return otherwise
}

// Silence is the time since the last renewal of a Lease, measured from the moment at which
// this process saw that renewal: the clocks of hosts differ. The zero value has seen none.
type Silence struct {
	renewal string
	since   time.Time
}

// See records a Lease at the time now. A Lease with the renewal that was seen before changes
// nothing.
func (s *Silence) See(l *coordinationv1.Lease, now time.Time) {
	if s.Broken(l) {
		s.renewal, s.since = renewal(l), now
	}
}

// Broken reports whether a Lease has another renewal than the one that was seen.
func (s Silence) Broken(l *coordinationv1.Lease) bool {
	return s.since.IsZero() || s.renewal != renewal(l)
}

// Left returns the time until a Lease of this duration expires.
func (s Silence) Left(now time.Time, duration time.Duration) time.Duration {
	return duration - now.Sub(s.since)
}

// renewal identifies the last renewal of a Lease.
func renewal(l *coordinationv1.Lease) string {
	text := string(l.UID) + " " + Holder(l)
	if l.Spec.RenewTime != nil {
		text += " " + l.Spec.RenewTime.UTC().Format(time.RFC3339Nano)
	}
	return text
}
