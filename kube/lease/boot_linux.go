package lease

import (
	"time"

	"golang.org/x/sys/unix"
)

// sinceBoot returns the time since the boot, in which the machine was suspended included. It is 0
// if the kernel does not know it.
func sinceBoot() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		return 0
	}
	return time.Duration(t.Nano())
}
