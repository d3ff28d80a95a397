//go:build !linux

package lease

import "time"

// sinceBoot returns 0: roles run on Linux only.
func sinceBoot() time.Duration { return 0 }
