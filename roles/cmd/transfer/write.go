//go:build linux

package transfer

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// mark gives a file the metadata of an entry.
func mark(folder *os.File, name string, e *entry) error {
	fd, link := int(folder.Fd()), e.is(unix.S_IFLNK)
	if err := unix.Fchownat(fd, name, int(e.UID), int(e.GID), unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return &os.PathError{Op: "chown", Path: name, Err: err}
	}
	if !link { // after the owner, whose change takes bits away
		if err := unix.Fchmodat(fd, name, e.Mode&0o7777, 0); err != nil {
			return &os.PathError{Op: "chmod", Path: name, Err: err}
		}
	}
	if err := setAttributes(within(folder, name), e.Attributes); err != nil {
		return err
	}
	at := unix.NsecToTimespec(e.Modified)
	if err := unix.UtimesNanoAt(fd, name, []unix.Timespec{at, at}, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return &os.PathError{Op: "utimes", Path: name, Err: err}
	}
	return nil
}

// setAttributes gives a file these extended attributes and no others.
func setAttributes(file string, want map[string][]byte) error {
	have, err := attributes(file)
	if err != nil {
		return err
	}
	for key := range have {
		if _, keep := want[key]; !keep {
			if err := unix.Lremovexattr(file, key); err != nil {
				return fmt.Errorf("removing the extended attribute %s: %w", key, err)
			}
		}
	}
	for key, value := range want {
		if old, set := have[key]; set && string(old) == string(value) {
			continue
		}
		if err := unix.Lsetxattr(file, key, value, 0); err != nil {
			return fmt.Errorf("writing the extended attribute %s, which the file system may not have: %w", key, err)
		}
	}
	return nil
}

// remove removes a file or a folder with all below it. It follows no symbolic link.
func remove(folder *os.File, name string) error {
	fd := int(folder.Fd())
	err := unix.Unlinkat(fd, name, 0)
	if err == nil || errors.Is(err, unix.ENOENT) {
		return nil
	}
	if !errors.Is(err, unix.EISDIR) {
		return &os.PathError{Op: "remove", Path: name, Err: err}
	}
	below, err := open(folder, name, unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer func() { _ = below.Close() }()
	all, err := names(below, false)
	if err != nil {
		return err
	}
	for _, each := range all {
		if err := remove(below, each); err != nil {
			return err
		}
	}
	if err := unix.Unlinkat(fd, name, unix.AT_REMOVEDIR); err != nil {
		return &os.PathError{Op: "remove", Path: name, Err: err}
	}
	return nil
}

// clear makes a part of a file zeros. n may be negative: there is nothing then.
func clear(file *os.File, at, n int64) error {
	if n <= 0 {
		return nil
	}
	err := unix.Fallocate(int(file.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, at, n)
	if !errors.Is(err, unix.ENOTSUP) {
		return err
	}
	_, err = file.WriteAt(make([]byte, n), at)
	return err
}
