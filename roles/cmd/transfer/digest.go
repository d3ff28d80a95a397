//go:build linux

package transfer

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"
	"os"
	"path"

	"golang.org/x/sys/unix"
)

// digester computes the checksum of names, metadata and content of files.
type digester struct {
	sum hash.Hash
	// first has the paths of files that have several.
	first map[[2]uint64]string
	// forget drops files from the memory of the machine before they are read.
	forget bool
	// read is called with the number of bytes that were read.
	read func(bytes int64)
}

// digest returns the checksum of all files below root.
func digest(ctx context.Context, root *os.File, forget bool, read func(bytes int64)) (string, error) {
	d := &digester{sum: sha256.New(), first: map[[2]uint64]string{}, forget: forget, read: read}
	if err := d.folder(ctx, root, "", 0); err != nil {
		return "", err
	}
	return hex.EncodeToString(d.sum.Sum(nil)), nil
}

func (d *digester) folder(ctx context.Context, folder *os.File, at string, depth int) error {
	if depth > mostDepth {
		return fmt.Errorf("%s: more than %d folders within each other", at, mostDepth)
	}
	own, err := look(folder, ".")
	if err != nil {
		return err
	}
	own.Name = []byte(at)
	if err := d.add(own); err != nil {
		return err
	}
	all, err := names(folder, depth == 0)
	if err != nil {
		return err
	}
	for _, name := range all {
		if err := d.file(ctx, folder, path.Join(at, name), name, depth); err != nil {
			return fmt.Errorf("%s: %w", path.Join(at, name), err)
		}
	}
	return nil
}

func (d *digester) file(ctx context.Context, folder *os.File, at, name string, depth int) error {
	e, err := look(folder, name)
	if err != nil {
		return err
	}
	if e.is(unix.S_IFDIR) {
		below, err := open(folder, name, unix.O_DIRECTORY)
		if err != nil {
			return err
		}
		defer func() { _ = below.Close() }()
		return d.folder(ctx, below, at, depth+1)
	}
	e.Name = []byte(at)
	if earlier, known := d.first[e.inode]; known {
		e.First = []byte(earlier)
	} else if e.Links > 1 {
		d.first[e.inode] = at
	}
	if err := d.add(e); err != nil || !e.is(unix.S_IFREG) || e.First != nil {
		return err
	}
	return d.content(ctx, folder, e, name)
}

// add adds metadata. Links to a folder count the folders below it, on some file systems.
func (d *digester) add(e *entry) error {
	if e.is(unix.S_IFDIR) {
		e.Links = 0
	}
	return json.NewEncoder(d.sum).Encode(e)
}

// content adds the content of a file. Blocks of zeros count the same whether they are holes or not.
func (d *digester) content(ctx context.Context, folder *os.File, e *entry, name string) error {
	file, err := open(folder, name, unix.O_RDONLY)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	if d.forget {
		_ = unix.Fadvise(int(file.Fd()), 0, 0, unix.FADV_DONTNEED) // a hint
	}
	return eachBlock(file, e.Size, func(data []byte, n int64) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		sum := sha256.Sum256(data)
		d.sum.Write(sum[:])
		d.read(n)
		return nil
	})
}
