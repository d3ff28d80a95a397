//go:build linux

package transfer

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// target writes what a source sends below a folder.
type target struct {
	*wire
	root     *os.File
	progress *Progress

	// all has every file compared, not only those whose size or time differ.
	all bool
	// hashing is the goroutine that sends checksums of the current batch.
	hashing sync.WaitGroup
	// open are the folders from the root to the current one.
	open []*current
}

// current is a folder that is being filled.
type current struct {
	folder *os.File
	path   string
	// names are those that the source has in the folder.
	names map[string]bool
	// listed means that names is complete.
	listed bool
}

// run writes files until both checksums are equal. It returns the checksum.
func (t *target) run(ctx context.Context) (string, error) {
	sum, err := t.receiveAll(ctx)
	if err != nil {
		t.fail(err, t.hashing.Wait)
	}
	t.close()
	return sum, err
}

func (t *target) receiveAll(ctx context.Context) (string, error) {
	t.progress.begin(Copying)
	t.open = []*current{{folder: t.root, names: map[string]bool{}}}
	sum := ""
	for {
		kind, payload, err := t.receive()
		if err != nil {
			return "", err
		}
		switch kind {
		case kindVerify:
			if len(t.open) > 0 {
				return "", unexpected(kind)
			}
			if sum, err = t.verify(ctx); err == nil {
				err = t.send(kindVerify, []byte(sum), true)
			}
		case kindTotal:
			total, err := decode[Amount](payload)
			if err != nil {
				return "", err
			}
			t.progress.expect(total)
		case kindAgain:
			t.all = true
			t.progress.begin(Copying)
			t.open = []*current{{folder: t.root, names: map[string]bool{}}}
		case kindDone:
			if sum == "" {
				return "", unexpected(kind)
			}
			return sum, t.send(kindDone, nil, true)
		default:
			err = t.fill(kind, payload)
		}
		if err != nil {
			return "", err
		}
	}
}

func (t *target) close() {
	for _, c := range t.open {
		if c.folder != t.root {
			_ = c.folder.Close()
		}
	}
}

// fill handles a frame about the current folder.
func (t *target) fill(kind byte, payload []byte) error {
	if len(t.open) == 0 {
		return unexpected(kind)
	}
	at := t.open[len(t.open)-1]
	switch {
	case kind == kindBatch && !at.listed:
		batch, err := decode[[]*entry](payload)
		if err != nil {
			return err
		}
		return t.batch(at, batch)
	case kind == kindListed && !at.listed:
		at.listed = true
		return t.prune(at)
	case kind == kindEnter && at.listed:
		if err := proper(payload); err != nil || !at.names[string(payload)] || len(t.open) > mostDepth {
			return refusal{fmt.Sprintf("it enters the folder %q", payload)}
		}
		below, err := open(at.folder, string(payload), unix.O_DIRECTORY)
		if err != nil {
			return err
		}
		t.open = append(t.open, &current{folder: below, path: path.Join(at.path, string(payload)), names: map[string]bool{}})
		return nil
	case kind == kindLeave && at.listed:
		own, err := decode[*entry](payload)
		if err != nil {
			return err
		}
		if own == nil || !own.is(unix.S_IFDIR) {
			return refusal{"a folder that is none"}
		}
		t.open = t.open[:len(t.open)-1]
		err = mark(at.folder, ".", own)
		if len(t.open) > 0 {
			err = errors.Join(err, at.folder.Close())
		}
		return err
	}
	return unexpected(kind)
}

// prune removes the files of a folder that the source does not have.
func (t *target) prune(at *current) error {
	all, err := names(at.folder, len(t.open) == 1)
	if err != nil {
		return err
	}
	for _, name := range all {
		if !at.names[name] {
			if err := remove(at.folder, name); err != nil {
				return err
			}
		}
	}
	return nil
}

// batch makes the files of a batch, and receives the content of those that are not complete.
func (t *target) batch(at *current, batch []*entry) error {
	var list []wanted
	for i, e := range batch {
		if e == nil {
			return refusal{"a file without metadata"}
		}
		if err := proper(e.Name); err != nil {
			return refusal{err.Error()}
		}
		if e.Size < 0 {
			return refusal{fmt.Sprintf("a file of %d bytes", e.Size)}
		}
		at.names[string(e.Name)] = true
		w, err := t.make(at, e)
		if err != nil {
			return fmt.Errorf("%s: %w", path.Join(at.path, string(e.Name)), err)
		}
		if w != nil {
			w.Index = i
			list = append(list, *w)
		}
	}
	if err := t.sendJSON(kindWanted, list); err != nil {
		return err
	}
	t.hashing.Go(func() { t.hashes(at.folder, batch, list) })
	if err := t.contents(at, batch, list); err != nil {
		return err
	}
	t.hashing.Wait()
	t.progress.files.Add(int64(len(batch)))
	return nil
}

// hashes sends the checksums of the blocks that the target has. An error of it ends the connection.
func (t *target) hashes(folder *os.File, batch []*entry, list []wanted) {
	for _, w := range list {
		if w.Blocks == 0 {
			continue
		}
		left := w.Blocks
		err := func() error {
			file, err := open(folder, string(batch[w.Index].Name), unix.O_RDONLY)
			if err != nil {
				return err
			}
			defer func() { _ = file.Close() }()
			return eachBlock(file, w.Blocks*block, func(data []byte, _ int64) error {
				left--
				sum := sha256.Sum256(data)
				return t.send(kindHash, sum[:], true)
			})
		}()
		for ; err != nil && left > 0; left-- { // of a file that cannot be read, everything is sent
			if t.send(kindHash, nil, true) != nil {
				return
			}
		}
	}
}

// make makes a file of any type without its content. It returns what it wants of the content, or nil.
func (t *target) make(at *current, e *entry) (*wanted, error) {
	name, fd := string(e.Name), int(at.folder.Fd())
	have, err := look(at.folder, name)
	if errors.Is(err, unix.ENOENT) {
		err = nil
	}
	if err != nil {
		return nil, err
	}
	if have != nil && (have.Mode&unix.S_IFMT != e.Mode&unix.S_IFMT || have.Links > 1 && e.Links == 1 && !e.is(unix.S_IFDIR) || e.First != nil || e.is(unix.S_IFLNK) && string(have.Link) != string(e.Link)) {
		if err := remove(at.folder, name); err != nil {
			return nil, err
		}
		have = nil
	}
	switch kind := e.Mode & unix.S_IFMT; {
	case e.First != nil:
		return nil, t.link(at, e)
	case have != nil && kind == unix.S_IFREG && !t.all && have.same(e):
		t.progress.add(e.Size)
		return nil, nil
	case kind == unix.S_IFREG && have != nil:
		return &wanted{Blocks: min(have.Size, e.Size) / block}, nil
	case kind == unix.S_IFREG:
		file, err := open(at.folder, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL) // a link of the batch may need it
		if err != nil {
			return nil, err
		}
		return &wanted{}, file.Close()
	case kind == unix.S_IFDIR:
		if have == nil {
			return nil, unix.Mkdirat(fd, name, 0o700)
		}
		return nil, nil // its metadata follows its files
	case have != nil:
	case kind == unix.S_IFLNK:
		err = unix.Symlinkat(string(e.Link), fd, name)
	case kind == unix.S_IFIFO || kind == unix.S_IFSOCK || kind == unix.S_IFCHR && e.Device == 0: // 0/0 is a whiteout of overlayfs
		err = unix.Mknodat(fd, name, kind|0o600, int(e.Device))
	case kind == unix.S_IFCHR || kind == unix.S_IFBLK:
		// It would be a device of the node, chosen by the cluster that the files come from.
		return nil, errors.New("device files are not copied: delete it, or copy the data by other means")
	default:
		return nil, refusal{fmt.Sprintf("a file of an unknown type (mode %o)", e.Mode)}
	}
	if err != nil {
		return nil, err
	}
	return nil, mark(at.folder, name, e)
}

// link makes a further name of a file.
func (t *target) link(at *current, e *entry) error {
	parts := strings.Split(string(e.First), "/")
	folder := t.root
	for i, part := range parts {
		if err := proper([]byte(part)); err != nil {
			return refusal{err.Error()}
		}
		if i == len(parts)-1 {
			break
		}
		below, err := open(folder, part, unix.O_DIRECTORY)
		if err != nil {
			return err
		}
		defer func() { _ = below.Close() }()
		folder = below
	}
	return unix.Linkat(int(folder.Fd()), parts[len(parts)-1], int(at.folder.Fd()), string(e.Name), 0)
}

// contents receives the content of files.
func (t *target) contents(at *current, batch []*entry, list []wanted) error {
	for _, w := range list {
		e := batch[w.Index]
		file, err := open(at.folder, string(e.Name), unix.O_RDWR)
		if err != nil {
			return err
		}
		err = t.content(file, e.Size)
		if err := errors.Join(err, file.Close()); err != nil {
			return fmt.Errorf("%s: %w", path.Join(at.path, string(e.Name)), err)
		}
		if err := mark(at.folder, string(e.Name), e); err != nil {
			return err
		}
	}
	return nil
}

// content writes the blocks of a file.
func (t *target) content(file *os.File, size int64) error {
	info, err := file.Stat()
	if err != nil {
		return err
	}
	for at := int64(0); ; at += block {
		kind, payload, err := t.receive()
		if err != nil {
			return err
		}
		n := min(block, size-at)
		switch {
		case kind == kindEnd && at >= size:
			return file.Truncate(size)
		case at >= size, kind == kindData && int64(len(payload)) != n:
			return unexpected(kind)
		case kind == kindData:
			_, err = file.WriteAt(payload, at)
		case kind == kindHole:
			err = clear(file, at, min(n, info.Size()-at))
		case kind != kindSame:
			return unexpected(kind)
		}
		if err != nil {
			return err
		}
		t.progress.add(n)
	}
}

// verify writes everything to the disk, and returns the checksum of what is read from there.
func (t *target) verify(ctx context.Context) (string, error) {
	if err := unix.Syncfs(int(t.root.Fd())); err != nil {
		return "", fmt.Errorf("writing to the disk: %w", err)
	}
	t.progress.begin(Verifying)
	return digest(ctx, t.root, true, t.progress.add)
}
