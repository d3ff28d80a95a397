package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"time"
)

const (
	// seatsVariable names the variable with the number of seats.
	seatsVariable = "LAB_SEATS"
	// seatsOfCore is the number of seats for each core where the variable is not set:
	// clusters wait more than they compute.
	seatsOfCore = 4
	seatPoll    = 100 * time.Millisecond
)

// seats bound how many clusters run at a time on this machine, among all processes whose
// labs share a directory. A seat is a locked file, so that the kernel gives it back when
// its process dies.
type seats struct {
	dir   string
	locks []*os.File
}

// seatCount is the number of seats on this machine.
func seatCount() (int, error) {
	text := os.Getenv(seatsVariable)
	if text == "" {
		return max(seatsOfCore*runtime.GOMAXPROCS(0), 2), nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("%s is %q: the number of clusters that may run at a time, at least 1, is accepted", seatsVariable, text)
	}
	return n, nil
}

// takeSeats waits for n seats; a lab that wants more than there are takes all. Labs get
// them in the order in which they ask: the one that waits holds the queue.
func takeSeats(ctx context.Context, root string, n int) (*seats, error) {
	count, err := seatCount()
	if err != nil {
		return nil, err
	}
	s := &seats{dir: filepath.Join(root, "seats")}
	if err := os.MkdirAll(s.dir, 0o755); err != nil {
		return nil, fmt.Errorf("making the directory of the seats: %w", err)
	}
	queue, err := lockWhen(ctx, filepath.Join(s.dir, lockFile))
	if err != nil {
		return nil, err
	}
	defer queue.Close()
	for i := 0; len(s.locks) < min(n, count); i = (i + 1) % count {
		if err := s.try(ctx, i, i == count-1); err != nil {
			s.close()
			return nil, err
		}
	}
	return s, nil
}

// try takes a seat if it is free; after the last one it waits a little.
func (s *seats) try(ctx context.Context, i int, last bool) error {
	lock, err := tryLock(filepath.Join(s.dir, strconv.Itoa(i)))
	switch {
	case err == nil:
		s.locks = append(s.locks, lock)
	case !errors.Is(err, syscall.EWOULDBLOCK):
		return fmt.Errorf("taking a seat: %w", err)
	}
	if !last {
		return nil
	}
	return pause(ctx, seatPoll)
}

// lockWhen locks a file as soon as nobody else has it.
func lockWhen(ctx context.Context, path string) (*os.File, error) {
	for {
		lock, err := tryLock(path)
		if err == nil {
			return lock, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("locking %s: %w", path, err)
		}
		if err := pause(ctx, seatPoll); err != nil {
			return nil, err
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

func (s *seats) close() {
	for _, lock := range s.locks {
		lock.Close()
	}
	s.locks = nil
}
