package main

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// runTar packs files to standard output, or unpacks standard input: as much of tar as
// kubectl cp needs.
func runTar(args []string) error {
	args = slices.DeleteFunc(slices.Clone(args), func(a string) bool { return strings.HasPrefix(a, "--") })
	if len(args) < 2 || args[1] != "-" {
		return errors.New("tar: cf - FILE and xmf - [-C DIR] are accepted")
	}
	mode := strings.TrimPrefix(args[0], "-")
	if strings.HasPrefix(mode, "c") && len(args) == 3 {
		return pack(args[2])
	}
	dir := "."
	if len(args) == 4 && args[2] == "-C" {
		dir = args[3]
	}
	return unpack(dir)
}

func pack(path string) error {
	out := tar.NewWriter(os.Stdout)
	err := filepath.WalkDir(path, func(name string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return packOne(out, name)
	})
	return errors.Join(err, out.Close())
}

func packOne(out *tar.Writer, name string) error {
	info, err := os.Stat(name)
	if err != nil {
		return err
	}
	header, err := tar.FileInfoHeader(info, "")
	if err != nil {
		return err
	}
	header.Name = strings.TrimPrefix(name, "/")
	if err := out.WriteHeader(header); err != nil || info.IsDir() {
		return err
	}
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = io.Copy(out, file)
	return err
}

func unpack(dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	in := tar.NewReader(os.Stdin)
	for {
		header, err := in.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if err := unpackOne(root, header, in); err != nil {
			return fmt.Errorf("%s: %w", header.Name, err)
		}
	}
}

func unpackOne(root *os.Root, header *tar.Header, in io.Reader) error {
	name := filepath.Clean(strings.TrimPrefix(header.Name, "/"))
	if header.Typeflag == tar.TypeDir {
		return root.MkdirAll(name, 0o755)
	}
	if err := root.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	file, err := root.Create(name)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, in)
	return errors.Join(err, file.Close())
}
