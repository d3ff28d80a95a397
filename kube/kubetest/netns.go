//go:build linux

package kubetest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// Netns is a network namespace. Nothing of it is left when its test ends.
type Netns struct {
	// FD is open until then.
	FD int
}

// NewNetns makes a network namespace with lo up.
func NewNetns(t *testing.T) *Netns {
	t.Helper()
	s := &Netns{}
	RequireRights(t, onThread(func() (err error) {
		if err = unix.Unshare(unix.CLONE_NEWNET); err == nil {
			s.FD, err = unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		}
		return err
	}))
	t.Cleanup(func() { _ = unix.Close(s.FD) })
	s.Sh(t, "ip link set lo up")
	return s
}

// RequireRights fails a test for an error. It skips the test if the error is for a lack of rights,
// unless CI=true.
func RequireRights(t *testing.T, err error) {
	t.Helper()
	if os.Getenv("CI") != "true" && (errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES)) {
		t.Skipf("SKIPPED: this test needs root, or more rights: %v", err)
	}
	require.NoError(t, err)
}

func onThread(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		done <- f()
	}()
	return <-done
}

// Do runs f on a thread in the namespace, with its own view of /proc/sys/net. The sockets that f
// opens and the processes that it starts stay in the namespace.
func (s *Netns) Do(f func() error) error {
	return onThread(func() error {
		if err := unix.Setns(s.FD, unix.CLONE_NEWNET); err != nil {
			return err
		}
		return f()
	})
}

// Try runs a script in the namespace, and returns its output.
func (s *Netns) Try(t *testing.T, script string) (string, error) {
	var out []byte
	err := s.Do(func() (err error) {
		out, err = exec.CommandContext(t.Context(), "sh", "-ec", script).CombinedOutput()
		return err
	})
	return string(out), err
}

// Sh is Try for a script that has to succeed.
func (s *Netns) Sh(t *testing.T, script string) string {
	t.Helper()
	out, err := s.Try(t, script)
	require.NoError(t, err, "%s: %s", script, out)
	return out
}

// Cable connects two namespaces with a pair of devices.
func Cable(t *testing.T, a *Netns, nameA string, b *Netns, nameB string) {
	t.Helper()
	a.Sh(t, fmt.Sprintf("ip link add %[1]s type veth peer name %[2]s netns /proc/%[3]d/fd/%[4]d; ip link set %[1]s up", nameA, nameB, os.Getpid(), b.FD))
	b.Sh(t, fmt.Sprintf("ip link set %s up", nameB))
}
