package lab

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	markVariable = "CLUSTERLAB_RUN"
	lockFile     = "lock"
	undoFile     = "undo"
	runPrefix    = "run-"
)

// run is the part of a lab that the next lab can find again: a directory, locked as
// long as its owner lives; a mark in the environment of every process, theirs
// included that those start; and a list of commands that undo the rest.
type run struct {
	id, dir string
	lock    *os.File
	mu      sync.Mutex
}

func newRun(root string) (*run, error) {
	unlock, err := lockRoot(root)
	if err != nil {
		return nil, err
	}
	defer unlock()
	random := make([]byte, 3)
	if _, err := rand.Read(random); err != nil {
		return nil, fmt.Errorf("choosing a name for the run: %w", err)
	}
	id := hex.EncodeToString(random)
	dir := filepath.Join(root, runPrefix+id)
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, fmt.Errorf("making the directory of the run: %w", err)
	}
	lock, err := tryLock(filepath.Join(dir, lockFile))
	if err != nil {
		return nil, fmt.Errorf("locking the directory of the run: %w", err)
	}
	return &run{id: id, dir: dir, lock: lock}, nil
}

func (r *run) mark() string { return markVariable + "=" + r.dir }

func (r *run) undo(argv []string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	line, err := json.Marshal(argv)
	if err != nil {
		return fmt.Errorf("writing down an undo command: %w", err)
	}
	file, err := os.OpenFile(filepath.Join(r.dir, undoFile), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("writing down an undo command: %w", err)
	}
	_, err = file.Write(append(line, '\n'))
	return errors.Join(err, file.Close())
}

func (r *run) remove() error {
	defer r.lock.Close()
	if err := clearRun(r.dir); err != nil {
		return err
	}
	// A lab that begins opens the lock of each run, and would create it anew in the directory.
	unlock, err := lockRoot(filepath.Dir(r.dir))
	if err != nil {
		return err
	}
	defer unlock()
	return removeDir(r.dir)
}

// sweep removes the runs under root whose owner is gone.
func sweep(root string, log func(string, ...any)) error {
	unlock, err := lockRoot(root)
	if err != nil {
		return err
	}
	defer unlock()
	runs, err := filepath.Glob(filepath.Join(root, runPrefix+"*"))
	if err != nil {
		return fmt.Errorf("looking for earlier runs: %w", err)
	}
	for _, dir := range runs {
		lock, err := tryLock(filepath.Join(dir, lockFile))
		if errors.Is(err, syscall.EWOULDBLOCK) {
			continue
		}
		if err != nil {
			return fmt.Errorf("looking at the earlier run %s: %w", dir, err)
		}
		log("removing what the crashed run %s left behind", dir)
		err = removeRun(dir)
		lock.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

func lockRoot(root string) (unlock func(), err error) {
	if err := os.MkdirAll(root, 0o755); err != nil {
		return nil, fmt.Errorf("making the directory of the labs: %w", err)
	}
	if err := checkOwner(root); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(filepath.Join(root, lockFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the lock of the labs: %w", err)
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX); err != nil {
		return nil, errors.Join(fmt.Errorf("taking the lock of the labs: %w", err), file.Close())
	}
	return func() { file.Close() }, nil
}

// checkOwner refuses a directory that somebody else has put into a shared place.
func checkOwner(root string) error {
	info, err := os.Lstat(root)
	if err != nil {
		return fmt.Errorf("looking at the directory of the labs: %w", err)
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	return Wrong(nil, !ok || !info.IsDir() || int(stat.Uid) != os.Getuid(), "%s is not a directory of this user: remove it, or choose another", root)
}

// tryLock locks a file until it is closed, or fails with EWOULDBLOCK.
func tryLock(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

func removeRun(dir string) error {
	if err := clearRun(dir); err != nil {
		return err
	}
	return removeDir(dir)
}

// clearRun ends all of a run that is outside of its directory.
func clearRun(dir string) error {
	if err := killMarked(dir); err != nil {
		return err
	}
	if err := runUndo(filepath.Join(dir, undoFile)); err != nil {
		return err
	}
	return unmountBelow(dir)
}

func removeDir(dir string) error {
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("removing the directory of the run: %w", err)
	}
	return nil
}

// killMarked kills every process that carries the mark of the run, until none is
// left in several looks in a row: one look does not see the mark of a process that
// executes a program just then, nor a process that is born during it.
func killMarked(dir string) error {
	const looks = 3
	deadline := time.Now().Add(30 * time.Second)
	none := 0
	for pause := time.Millisecond; none < looks; pause = min(2*pause, 100*time.Millisecond) {
		left, err := marked(dir)
		if err != nil {
			return err
		}
		switch {
		case len(left) == 0:
			none++
		case time.Now().After(deadline):
			return fmt.Errorf("processes %v of run %s do not end after SIGKILL", left, dir)
		default:
			none = 0
		}
		for _, pid := range left {
			killIfMarked(pid, dir)
		}
		<-time.After(pause)
	}
	return nil
}

// marked finds the processes that carry the mark of the run. It misses one that
// executes a program just then: the kernel shows no environment of it.
func marked(dir string) ([]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("listing the processes: %w", err)
	}
	var found []int
	for _, entry := range entries {
		if pid, err := strconv.Atoi(entry.Name()); err == nil && pid != os.Getpid() && carriesMark(pid, dir) {
			found = append(found, pid)
		}
	}
	return found, nil
}

func carriesMark(pid int, dir string) bool {
	environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil {
		return false
	}
	want := []byte(markVariable + "=" + dir)
	for variable := range bytes.SplitSeq(environ, []byte{0}) {
		if bytes.Equal(variable, want) {
			return true
		}
	}
	return false
}

// killIfMarked opens the process before it looks again, so that a reused number
// never hits a stranger.
func killIfMarked(pid int, dir string) {
	process, err := os.FindProcess(pid)
	if err != nil {
		return
	}
	if carriesMark(pid, dir) {
		_ = process.Kill()
	}
	_ = process.Release()
}

func runUndo(path string) error {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading the undo commands: %w", err)
	}
	var commands [][]string
	for scanner := bufio.NewScanner(bytes.NewReader(data)); scanner.Scan(); {
		var argv []string
		if json.Unmarshal(scanner.Bytes(), &argv) == nil && len(argv) > 0 {
			commands = append(commands, argv)
		}
	}
	for i := len(commands) - 1; i >= 0; i-- {
		_ = exec.Command(commands[i][0], commands[i][1:]...).Run()
	}
	return nil
}

// unmountBelow keeps the removal of a run from reaching through a mount.
func unmountBelow(dir string) error {
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return fmt.Errorf("listing the mounts: %w", err)
	}
	lines := strings.Split(string(data), "\n")
	for i := len(lines) - 1; i >= 0; i-- {
		fields := strings.Fields(lines[i])
		if len(fields) < 5 || !strings.HasPrefix(fields[4], dir+"/") {
			continue
		}
		if err := syscall.Unmount(fields[4], syscall.MNT_DETACH); err != nil {
			return fmt.Errorf("unmounting %s: %w", fields[4], err)
		}
	}
	return nil
}
