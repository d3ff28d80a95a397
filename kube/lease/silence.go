package lease

import (
	"context"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
)

// clocksApart bounds by how much the clocks of a cluster's API servers differ.
const clocksApart = 10 * time.Second

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

// Recall is See for a process that waits for a Lease. The first time it counts the time before, too: a
// process that replaces one of a lost node has not seen the last renewal. The clocks of hosts have no
// part in it. An API server notes the time of each write in the Lease, and a write that it does not
// store says what the time is now. With an error nothing is counted.
func (s *Silence) Recall(ctx context.Context, leases coordinationv1client.LeaseInterface, l *coordinationv1.Lease, now time.Time) {
	first, last := s.since.IsZero(), written(l)
	s.See(l, now)
	if !first || last.IsZero() || Holder(l) == "" {
		return
	}
	try := l.DeepCopy()
	try.Spec.RenewTime = &metav1.MicroTime{Time: now}
	if try, err := leases.Update(ctx, try, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}}); err == nil {
		s.since = s.since.Add(min(0, clocksApart-written(try).Sub(last)))
	}
}

// written returns when an API server has written a Lease last, by its clock; zero: it is not known.
func written(l *coordinationv1.Lease) (out time.Time) {
	for _, f := range l.ManagedFields {
		if f.Time != nil && f.Time.After(out) {
			out = f.Time.Time
		}
	}
	return out
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
