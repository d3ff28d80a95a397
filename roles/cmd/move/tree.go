//go:build linux

package move

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// block is the unit in bytes of the content of files. Each one is an entry of the archive, unless it is
	// of zeros.
	block = 1 << 20
	// mostDepth bounds the folders within each other, mostFiles all files, and mostNames the memory in bytes
	// for names of files.
	mostDepth = 1000
	mostFiles = 1 << 24
	mostNames = 64 << 20
	// lostAndFound is the folder that file systems make at their root. An empty one is not copied.
	lostAndFound = "lost+found"
	// capability is the extended attribute that gives rights to whoever runs a file.
	capability = "security.capability"
)

// Records of entries: the place of a block in its file and its length, or the error that ends the archive.
const (
	offsetRecord    = "LIQOD.offset"
	lengthRecord    = "LIQOD.length"
	errorRecord     = "LIQOD.error"
	attributeRecord = "SCHILY.xattr."
)

// typeSocket is the type of a socket, which other archives lack.
const typeSocket = 'Z'

// entryTypes are the types of entries, by those of files.
var entryTypes = map[uint32]byte{
	unix.S_IFREG: tar.TypeReg, unix.S_IFDIR: tar.TypeDir, unix.S_IFLNK: tar.TypeSymlink, unix.S_IFIFO: tar.TypeFifo,
	unix.S_IFCHR: tar.TypeChar, unix.S_IFBLK: tar.TypeBlock, unix.S_IFSOCK: typeSocket,
}

// walker visits all files below a folder: in each folder by name, and the folder itself after them.
type walker struct {
	plain bool
	visit func(folder *os.File, name string, h *tar.Header, size int64) error
	// links are the paths of files that have several.
	links map[[2]uint64]string
	// held is the memory for names, in bytes.
	held, files int
}

func walk(ctx context.Context, root *os.File, plain bool, visit func(folder *os.File, name string, h *tar.Header, size int64) error) error {
	w := &walker{plain: plain, visit: visit, links: map[[2]uint64]string{}}
	return w.folder(ctx, root, "", 0)
}

func (w *walker) folder(ctx context.Context, folder *os.File, at string, depth int) error {
	if depth > mostDepth {
		return fmt.Errorf("%s: more than %d folders within each other", at, mostDepth)
	}
	all, size, err := names(folder, depth == 0, mostNames-w.held)
	if err != nil {
		return fmt.Errorf("%s: %w", path.Join("/", at), err)
	}
	w.held += size
	for _, name := range all {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := w.file(ctx, folder, name, path.Join(at, name), depth); err != nil {
			return err
		}
	}
	w.held -= size
	h, st, err := look(folder, ".", w.plain)
	if err != nil {
		return err
	}
	h.Name = path.Join(".", at)
	return w.visit(folder, ".", h, st.Size)
}

func (w *walker) file(ctx context.Context, folder *os.File, name, at string, depth int) error {
	if w.files++; w.files > mostFiles {
		return fmt.Errorf("more than %d files: that many are not copied", mostFiles)
	}
	h, st, err := look(folder, name, w.plain)
	if err != nil {
		return fmt.Errorf("%s: %w", at, err)
	}
	if h.Typeflag == tar.TypeDir {
		below, err := open(folder, name, unix.O_DIRECTORY)
		if err != nil {
			return err
		}
		defer func() { _ = below.Close() }()
		return w.folder(ctx, below, at, depth+1)
	}
	h.Name = at
	inode := [2]uint64{uint64(st.Dev), st.Ino}
	if first, known := w.links[inode]; known {
		h.Typeflag, h.Linkname, h.PAXRecords = tar.TypeLink, first, nil
	} else if st.Nlink > 1 {
		if w.held += len(at) + 64; w.held > mostNames {
			return fmt.Errorf("%s: too many files have several names", at)
		}
		w.links[inode] = at
	}
	if err := w.visit(folder, name, h, st.Size); err != nil {
		return fmt.Errorf("%s: %w", at, err)
	}
	return nil
}

// measure returns what there is to be copied.
func measure(ctx context.Context, root *os.File) (total Amount, err error) {
	err = walk(ctx, root, false, func(_ *os.File, _ string, h *tar.Header, size int64) error {
		total.Files++
		if h.Typeflag == tar.TypeReg {
			total.Bytes += size
		}
		return nil
	})
	return total, err
}

// write writes an archive of all files from a position on. If it cannot, the archive ends with the error.
func write(ctx context.Context, to io.Writer, root *os.File, from position, plain bool, p *Progress) error {
	out, begin := tar.NewWriter(to), string(from.Path)
	err := walk(ctx, root, plain, func(folder *os.File, name string, h *tar.Header, size int64) error {
		p.add(1, 0)
		has, order := int64(0), compare(h.Name, begin)
		switch {
		case order < 0 && (h.Typeflag != tar.TypeDir || h.Name != "." && !strings.HasPrefix(begin, h.Name+"/")):
			if h.Typeflag == tar.TypeReg {
				p.add(0, size)
			}
			return nil // it has arrived, and a folder with all in it
		case h.Typeflag != tar.TypeReg:
			return out.WriteHeader(h)
		case order == 0:
			has = max(0, min(from.Offset, size-1)) / block * block
		}
		return content(ctx, out, folder, name, h, has, size, p)
	})
	if own(err) {
		_ = out.WriteHeader(&tar.Header{Format: tar.FormatPAX, Typeflag: tar.TypeReg, PAXRecords: map[string]string{errorRecord: err.Error()}})
	}
	return errors.Join(err, out.Close())
}

// compare compares paths by the order of a walk, but for a folder and what is in it.
func compare(a, b string) int { return slices.Compare(strings.Split(a, "/"), strings.Split(b, "/")) }

// content writes the blocks of a file from an offset on.
func content(ctx context.Context, out *tar.Writer, folder *os.File, name string, h *tar.Header, from, size int64, p *Progress) error {
	file, err := open(folder, name, unix.O_RDONLY)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	_ = unix.Fadvise(int(file.Fd()), 0, 0, unix.FADV_DONTNEED) // a hint, so that it is read from the disk
	seen := int64(0)
	return eachBlock(file, from, size, func(at int64, data []byte, n int64) error {
		h.PAXRecords[offsetRecord], h.PAXRecords[lengthRecord] = strconv.FormatInt(at, 10), strconv.FormatInt(n, 10)
		h.Size = int64(len(data))
		err := out.WriteHeader(h)
		if err == nil {
			_, err = out.Write(data)
		}
		p.add(0, at+n-seen)
		seen = at + n
		return cmp.Or(err, ctx.Err())
	})
}

// digest returns the checksum of the archive of all files, which it reads from the disk.
func digest(ctx context.Context, root *os.File, plain bool, p *Progress) (string, error) {
	sum := sha256.New()
	err := write(ctx, sum, root, position{}, plain, p)
	return hex.EncodeToString(sum.Sum(nil)), err
}

// look returns the metadata of a file of a folder, and of the folder itself for the name ".".
func look(folder *os.File, name string, plain bool) (*tar.Header, *unix.Stat_t, error) {
	fd, st := int(folder.Fd()), &unix.Stat_t{}
	if err := unix.Fstatat(fd, name, st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return nil, nil, &os.PathError{Op: "stat", Path: name, Err: err}
	}
	h := &tar.Header{
		Format: tar.FormatPAX, Typeflag: entryTypes[st.Mode&unix.S_IFMT], Mode: int64(st.Mode & 0o7777), Uid: int(st.Uid), Gid: int(st.Gid),
		ModTime: time.Unix(st.Mtim.Unix()), PAXRecords: map[string]string{},
	}
	switch h.Typeflag {
	case tar.TypeReg:
		if plain {
			h.Mode &^= unix.S_ISUID | unix.S_ISGID
		}
	case tar.TypeChar, tar.TypeBlock:
		h.Devmajor, h.Devminor = int64(unix.Major(uint64(st.Rdev))), int64(unix.Minor(uint64(st.Rdev)))
	case tar.TypeSymlink:
		target := make([]byte, unix.PathMax)
		n, err := unix.Readlinkat(fd, name, target)
		if err != nil {
			return nil, nil, &os.PathError{Op: "readlink", Path: name, Err: err}
		}
		h.Linkname = string(target[:n])
	}
	have, err := attributes(within(folder, name))
	for key, value := range have {
		if key != capability || !plain {
			h.PAXRecords[attributeRecord+key] = value
		}
	}
	return h, st, err
}

// within returns a path of a file in an open folder, for calls that know no folders.
func within(folder *os.File, name string) string {
	return fmt.Sprintf("/proc/self/fd/%d/%s", folder.Fd(), name)
}

// attributes returns the extended attributes of a file, but those that belong to its machine.
func attributes(path string) (map[string]string, error) {
	list := make([]byte, 1<<16) // the most that Linux has
	n, err := unix.Llistxattr(path, list)
	if errors.Is(err, unix.ENOTSUP) || n == 0 && err == nil {
		return nil, nil
	}
	if err != nil {
		return nil, &os.PathError{Op: "listxattr", Path: path, Err: err}
	}
	out, value := map[string]string{}, make([]byte, 1<<16)
	for _, key := range strings.Split(strings.TrimSuffix(string(list[:n]), "\x00"), "\x00") {
		if key == "security.selinux" || strings.HasPrefix(key, "trusted.") {
			continue
		}
		n, err := unix.Lgetxattr(path, key, value)
		if err != nil {
			return nil, &os.PathError{Op: "getxattr " + key, Path: path, Err: err}
		}
		out[key] = string(value[:n])
	}
	return out, nil
}

// names returns the sorted names in a folder, and the memory that they take. At the root, an empty
// lost+found is left out.
func names(folder *os.File, root bool, most int) (all []string, size int, err error) {
	again, err := open(folder, ".", unix.O_DIRECTORY)
	if err != nil {
		return nil, 0, err
	}
	defer func() { _ = again.Close() }()
	for {
		some, err := again.Readdirnames(1000)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, 0, err
		}
		for _, name := range some {
			size += len(name) + 32
		}
		if size > most {
			return nil, 0, fmt.Errorf("more names than have room in %d bytes: such a folder is not copied", most)
		}
		all = append(all, some...)
	}
	slices.Sort(all)
	if i, found := slices.BinarySearch(all, lostAndFound); found && root {
		below, err := open(folder, lostAndFound, unix.O_DIRECTORY)
		if err != nil {
			return all, size, nil // it is no folder
		}
		defer func() { _ = below.Close() }()
		if some, err := below.Readdirnames(1); len(some) == 0 && errors.Is(err, io.EOF) {
			all = slices.Delete(all, i, i+1)
		}
	}
	return all, size, nil
}

// open opens a file of a folder, and follows no symbolic link.
func open(folder *os.File, name string, flags int) (*os.File, error) {
	fd, err := unix.Openat(int(folder.Fd()), name, flags|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	return os.NewFile(uintptr(fd), name), nil
}

// eachBlock calls see for each block of a file from an offset on, with its size. Blocks of zeros have no
// data, and all but the first and the last of them are left out. data is valid until see returns.
func eachBlock(file *os.File, from, size int64, see func(at int64, data []byte, bytes int64) error) error {
	buffer, zeros := make([]byte, min(block, size)), make([]byte, min(block, size))
	for at := from; ; at += block {
		n := min(block, size-at)
		found, err := unix.Seek(int(file.Fd()), at, unix.SEEK_DATA)
		switch {
		case errors.Is(err, unix.ENXIO):
			found = math.MaxInt64
		case err != nil:
			found = at // this file system has no holes
		}
		data := buffer[:n]
		if found < at+n {
			if _, err := file.ReadAt(data, at); err != nil {
				return fmt.Errorf("reading at %d: %w", at, err)
			}
		}
		if found >= at+n || bytes.Equal(data, zeros[:n]) {
			data = nil
		}
		if last := at+n >= size; data != nil || at == from || last {
			if err := see(at, data, n); err != nil || last {
				return err
			}
		} else if found > at+n { // to the next data, or to the last block
			at = min(found, size-1)/block*block - block
		}
	}
}
