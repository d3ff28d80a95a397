// Package revision notices that an API server has forgotten: that its state went back,
// as it does when its etcd is restored from a backup. Resource versions grow with every
// write; one that falls tells. A restore that moves them forward cannot be noticed so.
package revision

import (
	"strconv"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// Before reports whether resource version a is older than b of the same API server. Those
// that are no numbers are not compared: it is false.
func Before(a, b string) bool {
	x, err1 := strconv.ParseUint(a, 10, 64)
	y, err2 := strconv.ParseUint(b, 10, 64)
	return err1 == nil && err2 == nil && x < y
}

// Head follows the resource version of one object that is written all the time. Its
// methods are safe for concurrent use.
type Head struct {
	clock clock.PassiveClock

	mu   sync.Mutex
	last string
	lost time.Time
}

// New returns a Head that has seen nothing.
func New(c clock.PassiveClock) *Head { return &Head{clock: c} }

// Saw is told the resource version of the object with each answer, in their order.
func (h *Head) Saw(version string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if Before(version, h.last) {
		h.lost = h.clock.Now()
	}
	h.last = version
}

// Lost returns when the resource version was last seen to have fallen, zero for never.
func (h *Head) Lost() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.lost
}
