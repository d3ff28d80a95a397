package main

import (
	"archive/tar"
	"compress/gzip"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"
)

// writeChart writes the chart in dir as Helm packages it, with the version, and with the
// image of that digest. Equal input gives equal bytes.
func writeChart(w io.Writer, dir, version, digest string) error {
	changes := map[string][][2]string{
		"Chart.yaml":  {{"\nversion: ", "\nversion: " + version + "\n"}, {"\nappVersion: ", "\nappVersion: " + version + "\n"}},
		"values.yaml": {{"\n  digest: \"\"", "\n  digest: " + digest + " # of the image of this release for all architectures; with another image: \"\"\n"}},
	}
	zipped := gzip.NewWriter(w)
	archive := tar.NewWriter(zipped)
	err := filepath.WalkDir(dir, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, file)
		if err != nil {
			return fmt.Errorf("naming a file of the chart: %w", err)
		}
		data, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("reading a file of the chart: %w", err)
		}
		for _, change := range changes[name] {
			if data, err = replaceLine(data, change[0], change[1]); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
		header := &tar.Header{Name: path.Join("liqod", filepath.ToSlash(name)), Mode: 0o644, Size: int64(len(data)), ModTime: time.Unix(0, 0), Typeflag: tar.TypeReg}
		if err := archive.WriteHeader(header); err != nil {
			return fmt.Errorf("writing the header of %s: %w", name, err)
		}
		if _, err := archive.Write(data); err != nil {
			return fmt.Errorf("writing %s: %w", name, err)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("packaging the chart: %w", err)
	}
	if err := archive.Close(); err != nil {
		return fmt.Errorf("packaging the chart: %w", err)
	}
	return zipped.Close()
}

// replaceLine replaces the only line that begins with what is given, line ends included. It
// keeps the comments and the order of the file, which YAML libraries lose.
func replaceLine(data []byte, begin, line string) ([]byte, error) {
	text := string(data)
	if n := strings.Count(text, begin); n != 1 {
		return nil, fmt.Errorf("%d lines begin with %q, instead of 1", n, strings.TrimSpace(begin))
	}
	before, rest, _ := strings.Cut(text, begin)
	_, after, _ := strings.Cut(rest, "\n")
	return []byte(before + line + after), nil
}
