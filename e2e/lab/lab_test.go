package lab

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const testClusters = 2

func within(t *testing.T, patience time.Duration, what string, cond func(context.Context) error) {
	t.Helper()
	begin := time.Now()
	require.NoError(t, Within(t.Context(), max(patience, time.Minute), cond), what)
	t.Logf("%s: %s", what, time.Since(begin).Round(time.Millisecond))
}

func TestLabUnexpectedExit(t *testing.T) {
	exited := make(chan *Process, 1)
	l, err := New(t.Context(), Options{Dir: t.TempDir(), Kubelab: os.Args[0], Exited: func(p *Process) { exited <- p }})
	require.NoError(t, err)
	defer l.Close()
	_, err = l.Process(ProcessOptions{Name: "short", Path: "sh", Args: []string{"-c", "echo bye; exit 3"}})
	require.NoError(t, err)
	p := <-exited
	require.Equal(t, 3, p.ExitCode())
	require.Equal(t, "bye\n", p.Tail(100))
	var exit *exec.ExitError
	require.ErrorAs(t, p.Err(), &exit)

	p, err = l.Process(ProcessOptions{Name: "stubborn", Path: "sh", Args: []string{"-c", "trap '' TERM; echo up; while :; do sleep 1; done"}})
	require.NoError(t, err)
	within(t, 10*time.Second, "trap set", func(context.Context) error {
		return Wrong(nil, p.Tail(10) == "", "silence")
	})
	require.ErrorContains(t, p.Stop(t.Context(), 50*time.Millisecond), "did not end")
	require.False(t, p.Running())
	require.NoError(t, l.Close())
	_, err = l.Process(ProcessOptions{Name: "late", Path: "true"})
	require.ErrorIs(t, err, ErrClosed)
	require.Empty(t, exited, "a stopped process is no unexpected exit")
}

const crashVariable = "LAB_TEST_CRASH_DIR"

// TestLabCrashHelper is no test: it is the lab that TestLabCrash kills.
func TestLabCrashHelper(t *testing.T) {
	dir := os.Getenv(crashVariable)
	if dir == "" {
		return
	}
	l, err := New(t.Context(), Options{Dir: dir, Kubelab: os.Args[0]})
	require.NoError(t, err)
	require.NoError(t, l.Undo("touch", dir+"/undone"))
	child, err := l.Process(ProcessOptions{Name: "child", Path: "sleep", Args: []string{"1000"}})
	require.NoError(t, err)
	// A grandchild in a session of its own does not die with its parents.
	grand, err := l.Process(ProcessOptions{Name: "grand", Path: "setsid", Args: []string{"--fork", "sleep", "1000"}, MayExit: true})
	require.NoError(t, err)
	<-grand.Exited()
	fmt.Println("pid", child.PID, l.Dir())
	select {}
}

func TestLabCrash(t *testing.T) {
	dir := t.TempDir()
	cmd := exec.Command(os.Args[0], "-test.run=^TestLabCrashHelper$")
	cmd.Env = append(os.Environ(), crashVariable+"="+dir)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	var child int
	var run string
	scanner := bufio.NewScanner(out)
	for child == 0 && scanner.Scan() {
		_, _ = fmt.Sscanf(scanner.Text(), "pid %d %s", &child, &run)
	}
	require.NotZero(t, child)
	within(t, 10*time.Second, "the child and the grandchild live", func(context.Context) error {
		alive, err := marked(run)
		return Wrong(err, len(alive) != 2, "these live: %v", alive)
	})

	t.Run("a living lab is left alone", func(t *testing.T) {
		l, err := New(t.Context(), Options{Dir: dir, Kubelab: os.Args[0]})
		require.NoError(t, err)
		require.NoError(t, l.Close())
		require.DirExists(t, run)
	})
	require.NoError(t, cmd.Process.Kill())
	require.Error(t, cmd.Wait())
	within(t, 10*time.Second, "the child dies with its lab", func(context.Context) error {
		return Wrong(nil, carriesMark(child, run), "it lives")
	})
	l, err := New(t.Context(), Options{Dir: dir, Kubelab: os.Args[0]})
	require.NoError(t, err)
	require.NoDirExists(t, run)
	require.FileExists(t, dir+"/undone")
	left, err := marked(run)
	require.NoError(t, err)
	require.Empty(t, left)
	require.NoError(t, l.Close())
}

// TestRunsEndWhileOthersBegin: a lab that begins looks at the runs of others, and keeps none from
// removing its directory.
func TestRunsEndWhileOthersBegin(t *testing.T) {
	root, ended := t.TempDir(), make(chan struct{})
	var sweeping sync.WaitGroup
	sweeping.Go(func() {
		for {
			select {
			case <-ended:
				return
			default:
				if err := sweep(root, func(string, ...any) {}); err != nil {
					t.Error(err)
					return
				}
			}
		}
	})
	for range 30 {
		r, err := newRun(root)
		require.NoError(t, err)
		for i := range 300 {
			require.NoError(t, os.WriteFile(filepath.Join(r.dir, fmt.Sprint(i)), nil, 0o600))
		}
		require.NoError(t, r.remove())
	}
	close(ended)
	sweeping.Wait()
}
