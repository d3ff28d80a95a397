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
	seatsOfCore = 3
	seatPoll    = 200 * time.Millisecond
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

// takeSeats waits for n seats; a lab that wants more than there are takes all. Labs get seats
// in the order in which they come: the first in the queue waits until as many seats as it
// wants are free at once, and nobody overtakes a lab of many clusters.
func takeSeats(ctx context.Context, root string, n int) (s *seats, err error) {
	count, err := seatCount()
	if err != nil {
		return nil, err
	}
	s = &seats{dir: filepath.Join(root, "seats")}
	if n == 0 {
		return s, nil
	}
	if err := os.MkdirAll(s.dir, 0o755); err != nil {
		return nil, fmt.Errorf("making the directory of the seats: %w", err)
	}
	p, err := joinQueue(s.dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.leave()) }()
	for {
		first, err := p.first()
		if err != nil {
			return nil, err
		}
		if first {
			if all, err := s.take(min(n, count), count); all || err != nil {
				return s, err
			}
		}
		if err := pause(ctx, seatPoll); err != nil {
			return nil, err
		}
	}
}

// take takes n of count seats, or none.
func (s *seats) take(n, count int) (all bool, err error) {
	for i := 0; i < count && len(s.locks) < n; i++ {
		lock, err := tryLock(filepath.Join(s.dir, strconv.Itoa(i)))
		switch {
		case err == nil:
			s.locks = append(s.locks, lock)
		case !errors.Is(err, syscall.EWOULDBLOCK):
			s.close()
			return false, fmt.Errorf("taking a seat: %w", err)
		}
	}
	if len(s.locks) < n {
		s.close()
		return false, nil
	}
	return true, nil
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
