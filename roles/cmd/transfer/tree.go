//go:build linux

package transfer

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// block is the unit in bytes in which the content of files is compared and sent.
const block = 1 << 20

// mostDepth bounds the folders within each other.
const mostDepth = 1000

// lostAndFound is the folder that file systems make at their root. An empty one is not copied.
const lostAndFound = "lost+found"

// entry is the metadata of a file of any type. Names and targets of links may be any bytes.
type entry struct {
	Name []byte
	// Mode has type and permissions, as stat has them.
	Mode, UID, GID uint32
	Links          uint64 `json:",omitempty"`
	Size, Modified int64  // bytes of a regular file; nanoseconds since 1970
	Device         uint64 `json:",omitempty"`
	Link           []byte `json:",omitempty"`
	// First is the path of an earlier file that is the same one, from the root.
	First      []byte            `json:",omitempty"`
	Attributes map[string][]byte `json:",omitempty"`

	inode [2]uint64
}

func (e *entry) is(kind uint32) bool { return e.Mode&unix.S_IFMT == kind }

// same reports whether two files agree in all but their content, by which a file that was copied
// before is recognised.
func (e *entry) same(o *entry) bool {
	return e.Mode == o.Mode && e.UID == o.UID && e.GID == o.GID && e.Size == o.Size && e.Modified == o.Modified && e.Device == o.Device &&
		bytes.Equal(e.Link, o.Link) && maps.EqualFunc(e.Attributes, o.Attributes, bytes.Equal)
}

// proper returns an error for a name that does not name a file in its folder.
func proper(name []byte) error {
	if len(name) == 0 || len(name) > 255 || string(name) == "." || string(name) == ".." || bytes.ContainsAny(name, "/\x00") {
		return fmt.Errorf("%q is no name of a file", name)
	}
	return nil
}

// look returns the metadata of a file of a folder, and of the folder itself for the name ".".
func look(folder *os.File, name string) (*entry, error) {
	fd := int(folder.Fd())
	var st unix.Stat_t
	if err := unix.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return nil, &os.PathError{Op: "stat", Path: name, Err: err}
	}
	e := &entry{Name: []byte(name), Mode: st.Mode, UID: st.Uid, GID: st.Gid, Modified: st.Mtim.Nano(), Links: uint64(st.Nlink), inode: [2]uint64{uint64(st.Dev), st.Ino}}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		e.Size = st.Size
	case unix.S_IFCHR, unix.S_IFBLK:
		e.Device = uint64(st.Rdev)
	case unix.S_IFLNK:
		target := make([]byte, unix.PathMax)
		n, err := unix.Readlinkat(fd, name, target)
		if err != nil {
			return nil, &os.PathError{Op: "readlink", Path: name, Err: err}
		}
		e.Link = target[:n]
	}
	var err error
	e.Attributes, err = attributes(within(folder, name))
	return e, err
}

// within returns a path of a file in an open folder, for calls that know no folders.
func within(folder *os.File, name string) string {
	return fmt.Sprintf("/proc/self/fd/%d/%s", folder.Fd(), name)
}

// attributes returns the extended attributes of a file, but those that belong to its machine.
func attributes(path string) (map[string][]byte, error) {
	list := make([]byte, 1<<16) // the most that Linux has
	n, err := unix.Llistxattr(path, list)
	if errors.Is(err, unix.ENOTSUP) || n == 0 && err == nil {
		return nil, nil
	}
	if err != nil {
		return nil, &os.PathError{Op: "listxattr", Path: path, Err: err}
	}
	var out map[string][]byte
	for _, key := range strings.Split(strings.TrimSuffix(string(list[:n]), "\x00"), "\x00") {
		if key == "security.selinux" || strings.HasPrefix(key, "trusted.") {
			continue
		}
		value := make([]byte, 1<<16)
		n, err := unix.Lgetxattr(path, key, value)
		if err != nil {
			return nil, &os.PathError{Op: "getxattr " + key, Path: path, Err: err}
		}
		if out == nil {
			out = map[string][]byte{}
		}
		out[key] = value[:n:n]
	}
	return out, nil
}

// names returns the sorted names in a folder. At the root, an empty lost+found is left out.
func names(folder *os.File, root bool) ([]string, error) {
	again, err := open(folder, ".", unix.O_DIRECTORY)
	if err != nil {
		return nil, err
	}
	defer func() { _ = again.Close() }()
	all, err := again.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	slices.Sort(all)
	if i, found := slices.BinarySearch(all, lostAndFound); found && root {
		below, err := open(folder, lostAndFound, unix.O_DIRECTORY)
		if err != nil {
			return all, nil // it is no folder
		}
		defer func() { _ = below.Close() }()
		if some, err := below.Readdirnames(1); len(some) == 0 && errors.Is(err, io.EOF) {
			all = slices.Delete(all, i, i+1)
		}
	}
	return all, nil
}

// open opens a file of a folder, and follows no symbolic link.
func open(folder *os.File, name string, flags int) (*os.File, error) {
	fd, err := unix.Openat(int(folder.Fd()), name, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	return os.NewFile(uintptr(fd), name), nil
}

// eachBlock calls see for each block of a file, with its size. data is nil for a block of zeros, and
// valid until see returns. It does not read the holes of the file.
func eachBlock(file *os.File, size int64, see func(data []byte, bytes int64) error) error {
	buffer, zeros := make([]byte, min(block, size)), make([]byte, min(block, size))
	next := int64(0) // data begins here at the earliest
	for at := int64(0); at < size; at += block {
		n := min(block, size-at)
		if next <= at {
			found, err := unix.Seek(int(file.Fd()), at, unix.SEEK_DATA)
			switch {
			case errors.Is(err, unix.ENXIO):
				found = size
			case err != nil:
				found = at // this file system has no holes
			}
			next = found
		}
		if next >= at+n {
			if err := see(nil, n); err != nil {
				return err
			}
			continue
		}
		data := buffer[:n]
		if _, err := file.ReadAt(data, at); err != nil {
			return fmt.Errorf("reading at %d: %w", at, err)
		}
		if bytes.Equal(data, zeros[:n]) {
			data = nil
		}
		if err := see(data, n); err != nil {
			return err
		}
	}
	return nil
}
