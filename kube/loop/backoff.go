package loop

import "time"

// Backoff is a delay that doubles from First to Longest. The caller keeps the last delay.
type Backoff struct{ First, Longest time.Duration }

// Next returns the delay that follows last; zero: none yet.
func (b Backoff) Next(last time.Duration) time.Duration {
	return min(max(2*last, b.First), b.Longest)
}
