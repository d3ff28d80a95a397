//go:build linux

package transfer

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"time"

	"golang.org/x/sys/unix"
)

// mostBatch bounds the metadata of one batch in bytes. One file more fits into a frame.
const mostBatch = block / 2

// source sends the files below a folder to a target.
type source struct {
	*wire
	root     *os.File
	progress *Progress

	// frames are those of the target, and failed is why there are no more.
	frames chan frame
	failed error
	first  map[[2]uint64]string
}

type frame struct {
	kind    byte
	payload []byte
}

// run sends all files until both checksums are equal. It returns the checksum.
func (s *source) run(ctx context.Context) (string, error) {
	s.frames = make(chan frame, 8)
	go func() {
		defer close(s.frames)
		for {
			kind, payload, err := s.receive()
			if err != nil {
				s.failed = err
				_ = s.conn.Close() // so that sending ends, too
				return
			}
			select {
			case s.frames <- frame{kind, payload}:
			case <-ctx.Done():
				s.failed = ctx.Err()
				return
			}
		}
	}()
	sum, err := s.rounds(ctx)
	if err != nil && !errors.Is(err, errBroken) {
		_ = s.conn.SetDeadline(time.Now().Add(patience))
		_ = s.send(kindError, []byte(err.Error()), true)
	} else {
		_ = s.conn.Close()
	}
	for range s.frames { // until its goroutine has ended
		continue
	}
	if err != nil && errors.As(s.failed, &refusal{}) {
		err = s.failed // the target's error is the cause of ours
	}
	return sum, err
}

func (s *source) rounds(ctx context.Context) (string, error) {
	total, err := s.measure(ctx, s.root, 0, map[[2]uint64]bool{})
	if err != nil {
		return "", err
	}
	s.progress.expect(total)
	if err := s.sendJSON(kindTotal, total); err != nil {
		return "", err
	}
	for again := false; ; again = true {
		s.first = map[[2]uint64]string{}
		s.progress.begin(Copying)
		if err := s.folder(ctx, s.root, "", 0); err != nil {
			return "", err
		}
		if err := s.send(kindVerify, nil, true); err != nil {
			return "", err
		}
		s.progress.begin(Verifying)
		have, err := digest(ctx, s.root, false, s.progress.add)
		if err != nil {
			return "", err
		}
		there, err := s.next(kindVerify)
		switch {
		case err != nil:
			return "", err
		case string(there) == have:
			if err := s.send(kindDone, nil, true); err != nil {
				return "", err
			}
			_, err := s.next(kindDone)
			return have, err
		case again:
			return "", fmt.Errorf("the checksums differ after everything was compared: %s here, %s there; something changes one of the volumes", have, there)
		}
		if err := s.send(kindAgain, nil, true); err != nil {
			return "", err
		}
	}
}

// measure returns what is to be copied of a folder. seen has the files with several names.
func (s *source) measure(ctx context.Context, folder *os.File, depth int, seen map[[2]uint64]bool) (total Amount, err error) {
	all, err := names(folder, depth == 0)
	if err != nil || depth > mostDepth || ctx.Err() != nil {
		return total, errors.Join(err, ctx.Err())
	}
	for _, name := range all {
		var st unix.Stat_t
		if err := unix.Fstatat(int(folder.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return total, &os.PathError{Op: "stat", Path: name, Err: err}
		}
		total.Files++
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFREG:
			inode := [2]uint64{uint64(st.Dev), st.Ino}
			if !seen[inode] {
				total.Bytes += st.Size
			}
			if st.Nlink > 1 {
				seen[inode] = true
			}
		case unix.S_IFDIR:
			sub, err := open(folder, name, unix.O_DIRECTORY)
			if err != nil {
				return total, err
			}
			below, err := s.measure(ctx, sub, depth+1, seen)
			_ = sub.Close()
			if err != nil {
				return total, err
			}
			total.Files, total.Bytes = total.Files+below.Files, total.Bytes+below.Bytes
		}
	}
	return total, nil
}

// next returns the payload of the target's next frame.
func (s *source) next(kind byte) ([]byte, error) {
	f, more := <-s.frames
	switch {
	case !more:
		return nil, s.failed
	case f.kind != kind:
		return nil, unexpected(f.kind)
	}
	return f.payload, nil
}

// folder sends the files of a folder, then those of the folders in it, then its own metadata.
func (s *source) folder(ctx context.Context, folder *os.File, at string, depth int) error {
	if depth > mostDepth {
		return fmt.Errorf("%s: more than %d folders within each other", at, mostDepth)
	}
	all, err := names(folder, depth == 0)
	if err != nil {
		return err
	}
	var below []string
	for len(all) > 0 {
		batch, n, err := s.batch(folder, at, all)
		if err != nil {
			return err
		}
		all = all[n:]
		if err := s.files(ctx, folder, at, batch); err != nil {
			return err
		}
		for _, e := range batch {
			if e.is(unix.S_IFDIR) {
				below = append(below, string(e.Name))
			}
		}
	}
	if err := s.send(kindListed, nil, true); err != nil {
		return err
	}
	for _, name := range below {
		if err := s.send(kindEnter, []byte(name), false); err != nil {
			return err
		}
		sub, err := open(folder, name, unix.O_DIRECTORY)
		if err != nil {
			return err
		}
		err = s.folder(ctx, sub, path.Join(at, name), depth+1)
		_ = sub.Close()
		if err != nil {
			return err
		}
	}
	own, err := look(folder, ".")
	if err != nil {
		return err
	}
	return s.sendJSON(kindLeave, own)
}

// batch returns the metadata of the first files of a list, and their number.
func (s *source) batch(folder *os.File, at string, all []string) (batch []*entry, n int, err error) {
	for size := 0; n < len(all) && size < mostBatch; n++ {
		e, err := look(folder, all[n])
		if err != nil {
			return nil, 0, err
		}
		if !e.is(unix.S_IFDIR) && e.Links > 1 {
			if earlier, known := s.first[e.inode]; known {
				e.First = []byte(earlier)
			} else {
				s.first[e.inode] = path.Join(at, all[n])
			}
		}
		text, err := json.Marshal(e)
		if err != nil {
			return nil, 0, fmt.Errorf("encoding the metadata of %s: %w", all[n], err)
		}
		if len(text) > mostBatch-2 {
			return nil, 0, fmt.Errorf("%s: the extended attributes are too large to be copied", path.Join(at, all[n]))
		}
		size += len(text) + 1
		batch = append(batch, e)
	}
	return batch, n, nil
}

// files sends a batch, and the content of those of its files that the target wants.
func (s *source) files(ctx context.Context, folder *os.File, at string, batch []*entry) error {
	if err := s.sendJSON(kindBatch, batch); err != nil {
		return err
	}
	answer, err := s.next(kindWanted)
	if err != nil {
		return err
	}
	list, err := decode[[]wanted](answer)
	if err != nil {
		return err
	}
	wants := map[int]bool{}
	for _, w := range list {
		wants[w.Index] = true
		if w.Index < 0 || w.Index >= len(batch) || !batch[w.Index].is(unix.S_IFREG) {
			return refusal{"it wants a file that is not in the batch"}
		}
		if err := s.content(ctx, folder, batch[w.Index], w.Blocks); err != nil {
			return fmt.Errorf("%s: %w", path.Join(at, string(batch[w.Index].Name)), err)
		}
	}
	for i, e := range batch {
		if !wants[i] && e.First == nil {
			s.progress.add(e.Size)
		}
	}
	s.progress.files.Add(int64(len(batch)))
	return nil
}

// content sends a file, of which the target has some blocks.
func (s *source) content(ctx context.Context, folder *os.File, e *entry, has int64) error {
	file, err := open(folder, string(e.Name), unix.O_RDONLY)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	err = eachBlock(file, e.Size, func(data []byte, n int64) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		s.progress.add(n)
		same := false
		if has > 0 {
			has--
			theirs, err := s.next(kindHash)
			if err != nil {
				return err
			}
			own := sha256.Sum256(data)
			same = bytes.Equal(theirs, own[:])
		}
		switch {
		case same:
			return s.send(kindSame, nil, false)
		case data == nil:
			return s.send(kindHole, nil, false)
		}
		return s.send(kindData, data, false)
	})
	if err != nil {
		return err
	}
	return s.send(kindEnd, nil, true)
}
