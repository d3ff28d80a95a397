package kubetest

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// Run runs a loop until the test ends or stop is called. It fails the test if the loop returns an
// error.
func Run(t testing.TB, loop func(context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- loop(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(t, <-done)
	})
	t.Cleanup(stop)
	return stop
}
