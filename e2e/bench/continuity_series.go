package main

import (
	"slices"
	"sync"
	"time"
)

// series is what one observer saw: when a thing turned well or unwell. Its methods may be
// called concurrently.
type series struct {
	mu      sync.Mutex
	changes []turn // well and unwell in turns
}

// turn is a change to well or to unwell.
type turn struct {
	at   time.Time
	well bool
}

// note adds what was seen at a time; only a change counts.
func (s *series) note(at time.Time, well bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.changes); n == 0 || s.changes[n-1].well != well {
		s.changes = append(s.changes, turn{at, well})
	}
}

// turned is the first change to well, or to unwell, that was seen at a time or later.
func (s *series) turned(since time.Time, well bool) (time.Time, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.changes, func(t turn) bool { return t.well == well && !t.at.Before(since) })
	if i < 0 {
		return time.Time{}, false
	}
	return s.changes[i].at, true
}

// wellSince is since when it has been well; false: it is not.
func (s *series) wellSince() (time.Time, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.changes); n > 0 && s.changes[n-1].well {
		return s.changes[n-1].at, true
	}
	return time.Time{}, false
}

// The ends of a wait.
const (
	came  = "came"
	never = "never"
	none  = "none" // nothing came, and nothing was to come
)

// delay is how long something took. Seconds is of what came.
type delay struct {
	State   string  `json:"state"`
	Seconds float64 `json:"seconds,omitempty"`
}

// delayOf is the time from the beginning to an end; without one it is never if the end was
// expected.
func delayOf(begin, end time.Time, found, expected bool) delay {
	switch {
	case found:
		return delay{came, end.Sub(begin).Seconds()}
	case expected:
		return delay{State: never}
	}
	return delay{State: none}
}

// latency is what several delays of the same come to.
type latency struct {
	// Median and Worst are of the delays that are not none; never is worse than all others.
	Median delay `json:"median"`
	Worst  delay `json:"worst"`
	Never  int   `json:"never"`
	Of     int   `json:"of"` // delays that are not none
}

func newLatency(delays []delay) (l latency) {
	counted := slices.DeleteFunc(slices.Clone(delays), func(d delay) bool { return d.State == none })
	l.Of = len(counted)
	if l.Of == 0 {
		l.Median, l.Worst = delay{State: none}, delay{State: none}
		return l
	}
	var seconds []float64
	for _, d := range counted {
		if d.State == never {
			l.Never++
			continue
		}
		seconds = append(seconds, d.Seconds)
	}
	slices.Sort(seconds)
	// Of an even number the upper one of both in the middle: never has no mean.
	l.Median, l.Worst = nth(seconds, l.Of/2), nth(seconds, l.Of-1)
	return l
}

// nth is the n-th of sorted seconds; after the last one comes never.
func nth(seconds []float64, n int) delay {
	if n >= len(seconds) {
		return delay{State: never}
	}
	return delay{came, seconds[n]}
}
