package loop

import "time"

const (
	// FirstRepair is how long the third write of one and the same waits.
	FirstRepair = time.Second
	// LastRepair is how long any waits at most.
	LastRepair = time.Minute
)

// RepairDelay spaces the writes of one and the same, which others undo: it returns how long
// the next waits, by how long the last had to wait and how long ago the one before it was.
// The second write is due at once, the third after FirstRepair, and each later one twice as
// late as the one before, LastRepair at most; peace for twice as long begins anew. It is
// pure.
func RepairDelay(last, ago time.Duration) time.Duration {
	if ago > 2*LastRepair {
		return 0
	}
	return min(max(2*last, FirstRepair), LastRepair)
}
