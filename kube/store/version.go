package store

import (
	"strconv"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// OlderVersion reports whether resource version a is older than b. Both must be of the same
// API server. The result is false if one of them is not a number.
func OlderVersion(a, b string) bool {
	x, err1 := strconv.ParseUint(a, 10, 64)
	y, err2 := strconv.ParseUint(b, 10, 64)
	return err1 == nil && err2 == nil && x < y
}

// Head detects that the state of an API server went back, as after the restore of an etcd
// backup. It compares the resource versions of one object that is written regularly, such
// as a Lease: they grow with every write. A Head does not detect a restore that raises the
// resource versions. Its methods are safe for concurrent use.
type Head struct {
	clock clock.PassiveClock

	mu   sync.Mutex
	last string
	lost time.Time
}

// NewHead returns a Head without a resource version.
func NewHead(c clock.PassiveClock) *Head { return &Head{clock: c} }

// Saw records the resource version of the object. Callers pass the version of each answer,
// in the order of the answers.
func (h *Head) Saw(version string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if OlderVersion(version, h.last) {
		h.lost = h.clock.Now()
	}
	h.last = version
}

// WentBack records that something else has shown that the state went back.
func (h *Head) WentBack() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lost = h.clock.Now()
}

// Lost returns the time of the last Saw with a lower version than before, or of the last
// WentBack. The zero time means that there was none.
func (h *Head) Lost() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.lost
}
