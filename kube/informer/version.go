package informer

import (
	"strconv"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// OlderVersion reports whether resource version a is older than b of the same API server. Those
// that are no numbers are not compared: it is false.
func OlderVersion(a, b string) bool {
	x, err1 := strconv.ParseUint(a, 10, 64)
	y, err2 := strconv.ParseUint(b, 10, 64)
	return err1 == nil && err2 == nil && x < y
}

// Head follows the resource version of one object that is written all the time, and so
// notices that the API server's state went back, as it does when its etcd is restored from
// a backup: resource versions grow with every write. A restore that moves them forward
// cannot be noticed so. Its methods are safe for concurrent use.
type Head struct {
	clock clock.PassiveClock

	mu   sync.Mutex
	last string
	lost time.Time
}

// NewHead returns a Head that has seen nothing.
func NewHead(c clock.PassiveClock) *Head { return &Head{clock: c} }

// Saw is told the resource version of the object with each answer, in their order.
func (h *Head) Saw(version string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if OlderVersion(version, h.last) {
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
