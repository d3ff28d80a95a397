package lab

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// taken are the seats that a lab got.
type taken struct {
	name  string
	seats *seats
	err   error
}

// waiting counts the places in the queue.
func waiting(t *testing.T, root string) int {
	t.Helper()
	places, err := filepath.Glob(filepath.Join(root, "seats", placePrefix+"*"))
	require.NoError(t, err)
	return len(places)
}

func queued(t *testing.T, root string, n int) {
	t.Helper()
	require.Eventually(t, func() bool { return waiting(t, root) == n }, time.Minute, 5*time.Millisecond, "%d labs wait for seats", n)
}

func TestSeatsGoToTheFirst(t *testing.T) {
	t.Setenv(seatsVariable, "2")
	root := t.TempDir()
	all, err := takeSeats(t.Context(), root, 2)
	require.NoError(t, err)
	order := make(chan taken)
	labs := []struct {
		name    string
		n, gets int
	}{
		{"first", 2, 2},
		{"more clusters than there are seats", 5, 2},
		{"one cluster", 1, 1},
		{"last", 2, 2},
	}
	for i, lab := range labs {
		go func() {
			s, err := takeSeats(t.Context(), root, lab.n)
			order <- taken{lab.name, s, err}
		}()
		queued(t, root, i+1)
	}
	for _, want := range labs {
		all.close()
		select {
		case got := <-order:
			require.NoError(t, got.err)
			require.Equal(t, want.name, got.name)
			require.Len(t, got.seats.locks, want.gets)
			all = got.seats
		case <-time.After(time.Minute):
			require.Fail(t, "nobody got seats", want.name)
		}
	}
	all.close()
	require.Zero(t, waiting(t, root))
}

func TestSeatsOfTheDead(t *testing.T) {
	t.Setenv(seatsVariable, "1")
	root := t.TempDir()
	dir := filepath.Join(root, "seats")
	require.NoError(t, os.MkdirAll(dir, 0o755))
	dead, err := joinQueue(dir)
	require.NoError(t, err)
	require.NoError(t, dead.lock.Close()) // as the kernel does when a process dies
	require.Equal(t, 1, waiting(t, root))

	s, err := takeSeats(t.Context(), root, 1)
	require.NoError(t, err)
	defer s.close()
	require.Zero(t, waiting(t, root), "the place of the dead is removed")

	ctx, cancel := context.WithCancelCause(t.Context())
	failed := make(chan error)
	go func() {
		_, err := takeSeats(ctx, root, 1)
		failed <- err
	}()
	queued(t, root, 1)
	cancel(fmt.Errorf("the test is over"))
	require.ErrorContains(t, <-failed, "the test is over")
	require.Zero(t, waiting(t, root), "one that gave up does not wait")
}

func TestSeatsOfNoCluster(t *testing.T) {
	t.Setenv(seatsVariable, "1")
	root := t.TempDir()
	s, err := takeSeats(t.Context(), root, 1)
	require.NoError(t, err)
	defer s.close()
	none, err := takeSeats(t.Context(), root, 0)
	require.NoError(t, err, "a lab that starts no clusters does not wait")
	none.close()
}
