package image

import (
	"archive/tar"
	"fmt"
	"io"
	"os"
	"time"
)

func writeLayer(w io.Writer, files []File) error {
	tw := tar.NewWriter(w)
	for _, f := range files {
		if err := writeFile(tw, f); err != nil {
			return err
		}
	}
	return tw.Close()
}

// copyLayer writes a layer that is a tar already.
func copyLayer(w io.Writer, path string) error {
	in, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("opening the layer: %w", err)
	}
	defer in.Close()
	if _, err := io.Copy(w, in); err != nil {
		return fmt.Errorf("copying the layer %s: %w", path, err)
	}
	return nil
}

func writeFile(tw *tar.Writer, f File) error {
	hdr := &tar.Header{Name: f.Path, Mode: f.Mode, Typeflag: tar.TypeReg}
	switch {
	case f.Dir:
		hdr.Name, hdr.Typeflag = f.Path+"/", tar.TypeDir
	case f.Link != "":
		hdr.Linkname, hdr.Typeflag = f.Link, tar.TypeSymlink
	case f.Source != "":
		return copyFile(tw, hdr, f.Source)
	default:
		hdr.Size = int64(len(f.Data))
	}
	if err := writeHeader(tw, hdr); err != nil {
		return err
	}
	if len(f.Data) == 0 {
		return nil
	}
	if _, err := tw.Write(f.Data); err != nil {
		return fmt.Errorf("writing %s: %w", f.Path, err)
	}
	return nil
}

func copyFile(tw *tar.Writer, hdr *tar.Header, source string) error {
	in, err := os.Open(source)
	if err != nil {
		return fmt.Errorf("opening the source of %s: %w", hdr.Name, err)
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return fmt.Errorf("reading the size of %s: %w", source, err)
	}
	hdr.Size = info.Size()
	if err := writeHeader(tw, hdr); err != nil {
		return err
	}
	if _, err := io.Copy(tw, in); err != nil {
		return fmt.Errorf("copying %s: %w", source, err)
	}
	return nil
}

// writeHeader fixes what would differ from run to run: the times and the owner.
func writeHeader(tw *tar.Writer, hdr *tar.Header) error {
	hdr.ModTime = time.Unix(0, 0)
	hdr.Format = tar.FormatUSTAR
	if err := tw.WriteHeader(hdr); err != nil {
		return fmt.Errorf("writing the header of %s: %w", hdr.Name, err)
	}
	return nil
}
