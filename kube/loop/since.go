package loop

import (
	"sync"
	"time"
)

// Since remembers since when something has been so, for each key. The zero value is ready to use.
// Its methods are safe for concurrent use. Its times are not persisted.
type Since[K comparable] struct {
	mu    sync.Mutex
	times map[K]time.Time
}

// Begin returns the time of the first call for key since End.
func (s *Since[K]) Begin(key K, now time.Time) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.times == nil {
		s.times = map[K]time.Time{}
	}
	if _, begun := s.times[key]; !begun {
		s.times[key] = now
	}
	return s.times[key]
}

// Begun returns the time of Begin. The zero time means that it was not called.
func (s *Since[K]) Begun(key K) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.times[key]
}

// End drops the time of key, and reports whether there was one.
func (s *Since[K]) End(key K) (begun bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, begun = s.times[key]
	delete(s.times, key)
	return begun
}

// Len returns the number of keys that have begun.
func (s *Since[K]) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.times)
}
