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
	seatPoll    = 200 * time.Millisecond
	// seatsSettle is how long a lab lets others queue before it takes seats: tests that start
	// together shall go in the order of the queue.
	seatsSettle = time.Second
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

// takeSeats waits for n seats; a lab that wants more than there are takes all. Of the labs
// that wait, the one that lasts longest gets seats first: it holds the queue until it has
// them all, so that a lab of many clusters is not overtaken for ever.
func takeSeats(ctx context.Context, root string, n int, takes time.Duration) (*seats, error) {
	count, err := seatCount()
	if err != nil {
		return nil, err
	}
	s := &seats{dir: filepath.Join(root, "seats")}
	if n == 0 {
		return s, nil
	}
	if err := os.MkdirAll(s.dir, 0o755); err != nil {
		return nil, fmt.Errorf("making the directory of the seats: %w", err)
	}
	queue, err := s.queue(ctx, takes)
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

// queue waits until nobody that waits for seats lasts longer, and nobody takes seats. Until
// its answer is closed, nobody else takes any.
func (s *seats) queue(ctx context.Context, takes time.Duration) (queue *os.File, err error) {
	p, err := joinQueue(s.dir, takes)
	if err != nil {
		return nil, err
	}
	defer func() {
		if left := p.leave(); left != nil && err == nil {
			err = errors.Join(fmt.Errorf("leaving the queue for seats: %w", left), queue.Close())
		}
	}()
	for wait := seatsSettle; ; wait = seatPoll {
		if err := pause(ctx, wait); err != nil {
			return nil, err
		}
		first, err := p.first()
		if err != nil {
			return nil, err
		}
		if !first {
			continue
		}
		queue, err := tryLock(filepath.Join(s.dir, lockFile))
		if err == nil || !errors.Is(err, syscall.EWOULDBLOCK) {
			return queue, err
		}
	}
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
