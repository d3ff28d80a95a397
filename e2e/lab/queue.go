package lab

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

const (
	// placePrefix begins the names of the files of those that wait, and newPlacePrefix
	// that of a file that is not locked yet.
	placePrefix    = "wait-"
	newPlacePrefix = "new-"
)

// place is a place in a queue, first come, first served, which all processes share that use
// its folder. It is a locked file: the place of a process that died counts no longer.
type place struct {
	path string
	lock *os.File
}

// joinQueue takes the last place.
func joinQueue(dir string) (*place, error) {
	file, err := os.CreateTemp(dir, newPlacePrefix)
	if err != nil {
		return nil, fmt.Errorf("queueing for seats: %w", err)
	}
	err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX)
	// The name has the time of arrival. The file gets it after the lock, since the others
	// remove places without one.
	p := &place{lock: file, path: filepath.Join(dir, fmt.Sprintf("%s%019d-%s",
		placePrefix, time.Now().UnixNano(), strings.TrimPrefix(filepath.Base(file.Name()), newPlacePrefix)))}
	if err = errors.Join(err, os.Rename(file.Name(), p.path)); err != nil {
		return nil, fmt.Errorf("queueing for seats: %w", errors.Join(err, file.Close()))
	}
	return p, nil
}

// first says whether nobody is before the place. It removes places of dead processes.
func (p *place) first() (bool, error) {
	// Glob sorts.
	paths, err := filepath.Glob(filepath.Join(filepath.Dir(p.path), placePrefix+"*"))
	if err != nil {
		return false, fmt.Errorf("looking at the queue for seats: %w", err)
	}
	for _, path := range paths {
		if path >= p.path {
			break
		}
		if waits, err := removeDead(path); waits || err != nil {
			return false, err
		}
	}
	return true, nil
}

// removeDead removes a place unless a process holds it.
func removeDead(path string) (held bool, err error) {
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("looking at the queue for seats: %w", err)
	}
	defer file.Close()
	err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return true, nil
	}
	if err == nil {
		err = os.Remove(path)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("removing the place of a process that died: %w", err)
	}
	return false, nil
}

// leave gives the place up.
func (p *place) leave() error {
	err := os.Remove(p.path)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return errors.Join(err, p.lock.Close())
}
