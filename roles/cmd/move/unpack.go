//go:build linux

package move

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// reached returns the position of the last file of a walk, from which a copy goes on. What is before it has
// arrived: files arrive in the order of a walk.
func reached(root *os.File) (position, error) {
	at, folder := "", root
	for {
		all, _, err := names(folder, folder == root, mostNames)
		if err != nil || len(all) == 0 {
			return position{Path: []byte(at)}, err
		}
		name := all[len(all)-1]
		if at = path.Join(at, name); len(at) > mostMessage/2 {
			return position{}, nil // all is sent again
		}
		h, st, err := look(folder, name, false)
		if err != nil || h.Typeflag != tar.TypeDir {
			return position{[]byte(at), st.Size / block * block}, err
		}
		if folder, err = open(folder, name, unix.O_DIRECTORY); err != nil {
			return position{}, err
		}
		defer func() { _ = folder.Close() }()
	}
}

// wipe removes all files below a folder.
func wipe(root *os.File) error {
	all, _, err := names(root, true, mostNames)
	if err != nil {
		return err
	}
	for _, name := range all {
		if err := remove(root, name); err != nil {
			return err
		}
	}
	return nil
}

// remove removes a file, or a folder with all below it. It follows no symbolic link.
func remove(folder *os.File, name string) error {
	err := unix.Unlinkat(int(folder.Fd()), name, 0)
	if err == nil || errors.Is(err, unix.ENOENT) {
		return nil
	}
	in, err := os.OpenRoot(within(folder, "."))
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	return in.RemoveAll(name)
}

// read reads an archive to its end. Its error is errBroken, a refusal, or that of see.
func read(in io.Reader, see func(*tar.Header, io.Reader) error) error {
	for archive := tar.NewReader(in); ; {
		h, err := archive.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case errors.Is(err, errBroken):
			return err
		case err != nil:
			return refusal{"it sends what is no archive: " + err.Error()}
		case h.PAXRecords[errorRecord] != "":
			return refusal{h.PAXRecords[errorRecord]}
		}
		if err := see(h, archive); err != nil {
			return err
		}
	}
}

// unpacker writes the files of an archive.
type unpacker struct {
	root  *os.File
	plain bool
	// folder is that of the last file, at is its path, and last that of the file.
	folder   *os.File
	at, last string
	// end is that of the last block, and files the number of files.
	end    int64
	files  int
	buffer []byte
}

// unpack writes the files of an archive below a folder.
func unpack(in io.Reader, root *os.File, plain bool, p *Progress) error {
	u := &unpacker{root: root, plain: plain, folder: root, buffer: make([]byte, block)}
	defer u.enterRoot()
	return u.unpack(in, p)
}

func (u *unpacker) unpack(in io.Reader, p *Progress) error {
	return read(in, func(h *tar.Header, data io.Reader) error {
		if h.Name != u.last {
			u.last, u.end = h.Name, 0
			if u.files++; u.files > mostFiles {
				return refusal{fmt.Sprintf("it sends more than %d files", mostFiles)}
			}
			p.add(1, 0)
		}
		before := u.end
		err := u.entry(h, data)
		p.add(0, u.end-before)
		if own(err) {
			return fmt.Errorf("%s: %w", h.Name, err)
		}
		return err
	})
}

// proper returns a refusal for a name that does not name a file in its folder.
func proper(name string) error {
	if name == "" || len(name) > 255 || name == "." || name == ".." || strings.ContainsAny(name, "/\x00") {
		return refusal{fmt.Sprintf("%q is no name of a file", name)}
	}
	return nil
}

func (u *unpacker) enterRoot() {
	if u.folder != u.root {
		_ = u.folder.Close()
	}
	u.folder, u.at = u.root, ""
}

// folderOf makes and opens a folder in another one.
func folderOf(folder *os.File, name string) (*os.File, error) {
	if err := unix.Mkdirat(int(folder.Fd()), name, 0o700); err != nil && !errors.Is(err, unix.EEXIST) {
		return nil, &os.PathError{Op: "mkdir", Path: name, Err: err}
	}
	return open(folder, name, unix.O_DIRECTORY)
}

// enter makes and opens the folder of a path, which it returns with the name of the file in it.
func (u *unpacker) enter(at string) (name string, err error) {
	dir, name := path.Split(at)
	if err := proper(name); err != nil || dir == u.at {
		return name, err
	}
	parts := strings.Split(strings.TrimSuffix(dir, "/"), "/")
	u.enterRoot()
	if dir == "" {
		return name, nil
	}
	if len(parts) > mostDepth {
		return "", refusal{fmt.Sprintf("it sends more than %d folders within each other", mostDepth)}
	}
	for _, part := range parts {
		if err := proper(part); err != nil {
			return "", err
		}
		below, err := folderOf(u.folder, part)
		if err != nil {
			return "", err
		}
		u.enterRoot()
		u.folder = below
	}
	u.at = dir
	return name, nil
}

// entry makes a file of any type, and writes a block of its content.
func (u *unpacker) entry(h *tar.Header, data io.Reader) error {
	if h.Name == "." && h.Typeflag == tar.TypeDir {
		u.enterRoot()
		return mark(u.root, ".", h, u.plain)
	}
	name, err := u.enter(h.Name)
	if err != nil {
		return err
	}
	if h.Typeflag != tar.TypeReg && h.Typeflag != tar.TypeDir {
		if err := remove(u.folder, name); err != nil {
			return err
		}
	}
	fd := int(u.folder.Fd())
	switch h.Typeflag {
	case tar.TypeReg:
		err = u.content(name, h, data)
	case tar.TypeDir:
		below, err := folderOf(u.folder, name)
		if err != nil {
			return err
		}
		defer func() { _ = below.Close() }()
		return mark(below, ".", h, u.plain)
	case tar.TypeLink:
		return u.link(name, h.Linkname)
	case tar.TypeSymlink:
		err = unix.Symlinkat(h.Linkname, fd, name)
	case tar.TypeFifo:
		err = unix.Mknodat(fd, name, unix.S_IFIFO|0o600, 0)
	case typeSocket:
		err = unix.Mknodat(fd, name, unix.S_IFSOCK|0o600, 0)
	case tar.TypeChar, tar.TypeBlock:
		if h.Typeflag == tar.TypeBlock || h.Devmajor != 0 || h.Devminor != 0 { // 0/0 is a whiteout of overlayfs
			// It would be a device of the node, chosen by the cluster that the files come from.
			return errors.New("device files are not copied: delete it, or copy the data by other means")
		}
		err = unix.Mknodat(fd, name, unix.S_IFCHR|0o600, 0)
	default:
		return refusal{fmt.Sprintf("a file of the unknown type %q", h.Typeflag)}
	}
	if err != nil {
		return fmt.Errorf("making it: %w", err)
	}
	return mark(u.folder, name, h, u.plain)
}

// link makes a further name of a file.
func (u *unpacker) link(name, first string) error {
	to, err := open(u.folder, ".", unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer func() { _ = to.Close() }()
	earlier, err := u.enter(first)
	if err != nil {
		return err
	}
	if err := unix.Linkat(int(u.folder.Fd()), earlier, int(to.Fd()), name, 0); err != nil {
		return &os.LinkError{Op: "link", Old: first, New: name, Err: err}
	}
	return nil
}

// content writes a block of a file, which then ends with the block.
func (u *unpacker) content(name string, h *tar.Header, data io.Reader) error {
	at, err := strconv.ParseInt(h.PAXRecords[offsetRecord], 10, 64)
	n, also := strconv.ParseInt(h.PAXRecords[lengthRecord], 10, 64)
	if err != nil || also != nil || at < 0 || n < 0 || n > block || at > 1<<62 || h.Size != 0 && h.Size != n {
		return refusal{fmt.Sprintf("a block of %q bytes at %q", h.PAXRecords[lengthRecord], h.PAXRecords[offsetRecord])}
	}
	flags := unix.O_RDWR
	if at == 0 { // there may be a file of another type, or with other names
		flags |= unix.O_CREAT | unix.O_EXCL
		if err := remove(u.folder, name); err != nil {
			return err
		}
	}
	file, err := open(u.folder, name, flags)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	buffer := u.buffer[:h.Size]
	if _, err := io.ReadFull(data, buffer); err != nil {
		return broken(err)
	}
	if err := file.Truncate(at); err != nil { // so that what is not written is of zeros
		return err
	}
	if _, err := file.WriteAt(buffer, at); err != nil {
		return err
	}
	u.end = at + n
	return file.Truncate(u.end)
}

// mark gives a file the metadata of an entry. It is no symbolic link, unless the entry is one.
func mark(folder *os.File, name string, h *tar.Header, plain bool) error {
	fd, mode, file := int(folder.Fd()), uint32(h.Mode)&0o7777, within(folder, name)
	if plain && h.Typeflag == tar.TypeReg {
		mode &^= unix.S_ISUID | unix.S_ISGID
	}
	if err := unix.Fchownat(fd, name, h.Uid, h.Gid, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return &os.PathError{Op: "chown", Path: name, Err: err}
	}
	if h.Typeflag != tar.TypeSymlink { // after the owner, whose change takes bits away
		if err := unix.Fchmodat(fd, name, mode, 0); err != nil {
			return &os.PathError{Op: "chmod", Path: name, Err: err}
		}
	}
	have, err := attributes(file)
	if err != nil {
		return err
	}
	for key := range have {
		if _, keep := h.PAXRecords[attributeRecord+key]; !keep {
			if err := unix.Lremovexattr(file, key); err != nil {
				return fmt.Errorf("removing the extended attribute %s: %w", key, err)
			}
		}
	}
	for record, value := range h.PAXRecords {
		key, is := strings.CutPrefix(record, attributeRecord)
		if old, set := have[key]; !is || set && old == value || plain && key == capability {
			continue
		}
		if err := unix.Lsetxattr(file, key, []byte(value), 0); err != nil {
			return fmt.Errorf("writing the extended attribute %s, which the file system may not have: %w", key, err)
		}
	}
	at := unix.NsecToTimespec(h.ModTime.UnixNano())
	if err := unix.UtimesNanoAt(fd, name, []unix.Timespec{at, at}, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return &os.PathError{Op: "utimes", Path: name, Err: err}
	}
	return nil
}
