package lab

import (
	"context"
	"fmt"
	"time"
)

const (
	defaultPatience = 2 * time.Minute
	longestPause    = 250 * time.Millisecond
)

// Within is Eventually, for patience at most.
func Within(ctx context.Context, patience time.Duration, cond func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return Eventually(ctx, cond)
}

// Eventually calls cond until it returns nil. Its error says what cond still missed
// when ctx ended; a ctx without a deadline has one of two minutes.
func Eventually(ctx context.Context, cond func(context.Context) error) error {
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, defaultPatience)
		defer cancel()
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	missing := fmt.Errorf("never looked")
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, longestPause) {
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting (%w); last seen: %w", context.Cause(ctx), missing)
		case <-timer.C:
		}
		err := cond(ctx)
		if err == nil {
			return nil
		}
		// The cut-off look of the last moment says less than the one before.
		if ctx.Err() == nil {
			missing = err
		}
		timer.Reset(pause)
	}
}
