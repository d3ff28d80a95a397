package loop

import "time"

const (
	// FirstRepair is the delay before the third identical write. The second one is not
	// delayed.
	FirstRepair = time.Second
	// LastRepair is the longest delay between two identical writes.
	LastRepair = time.Minute
)

// RepairDelay is the back-off for a write that another client keeps reverting. It returns
// how long the next identical write must wait after the one just sent. last is the delay
// that the write just sent had to wait, and ago is the time between it and the identical
// write before. The delay starts at FirstRepair, doubles with each write up to
// LastRepair, and is zero again if ago is longer than twice LastRepair. RepairDelay is a
// pure function.
func RepairDelay(last, ago time.Duration) time.Duration {
	if ago > 2*LastRepair {
		return 0
	}
	return Backoff{FirstRepair, LastRepair}.Next(last)
}
