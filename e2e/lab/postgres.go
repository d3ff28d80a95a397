package lab

import (
	"context"
	"debug/elf"
	_ "embed"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"

	ociimage "github.com/liqod/liqod/hack/image"
)

const (
	// PostgresImage is the name of the image that BuildPostgres writes: a PostgreSQL server whose
	// data is in the folder that PGDATA names, its client psql, and a shell.
	PostgresImage = "lab.local/postgres:1"
	// PostgresUser is the user that the image runs as: PostgreSQL refuses to run as root.
	PostgresUser = 999
)

var (
	//go:embed postgres-download.sh
	postgresDownload string
	//go:embed postgres-serve.sh
	postgresServe []byte
)

// BuildPostgres writes PostgresImage into a folder and returns the path of its archive. The image
// has files of Debian's packages: of those that are installed here, or else of those that it
// downloads, once for a machine, and does not install. It returns an error where packages are
// neither installed nor to be had.
func BuildPostgres(ctx context.Context, dir string) (archive string, err error) {
	root := "/"
	if installed, _ := filepath.Glob("/usr/lib/postgresql/*/bin/postgres"); len(installed) == 0 {
		if root, err = downloadPostgres(ctx); err != nil {
			return "", err
		}
	}
	p := &packaged{root: root, has: map[string]bool{}}
	if err := p.addPostgres(); err != nil {
		return "", fmt.Errorf("collecting the files of PostgreSQL: %w", err)
	}
	return writeImage(filepath.Join(dir, "postgres.tar"), ociimage.Image{
		Name: PostgresImage, Entrypoint: []string{"/bin/serve"}, User: fmt.Sprint(PostgresUser), Files: append(p.files,
			ociimage.File{Path: "/bin/serve", Data: postgresServe, Mode: 0o555},
			ociimage.File{Path: "/tmp", Dir: true, Mode: 0o1777}, ociimage.File{Path: "/usr/share/zoneinfo", Dir: true},
			ociimage.File{Path: "/etc/passwd", Data: fmt.Appendf(nil, "postgres:x:%d:%[1]d:postgres:/:/bin/sh\n", PostgresUser)}),
	})
}

// downloadPostgres returns a folder with the files of the packages and of all that they depend on.
func downloadPostgres(ctx context.Context) (string, error) {
	for _, tool := range []string{"apt-get", "dpkg-deb"} {
		if _, err := exec.LookPath(tool); err != nil {
			return "", fmt.Errorf("PostgreSQL is not installed, and its packages cannot be downloaded: %w", err)
		}
	}
	dir, unlock, err := lockCache(ctx, "postgres", func() {})
	if err != nil {
		return "", fmt.Errorf("downloading PostgreSQL: %w", err)
	}
	defer unlock()
	root := filepath.Join(dir, "root")
	if _, err := os.Stat(root); err == nil {
		return root, nil
	}
	if _, err := command(ctx, "", "sh", "-c", postgresDownload, "sh", dir, "postgresql", "dash", "coreutils"); err != nil {
		return "", fmt.Errorf("downloading PostgreSQL: %w", err)
	}
	return root, nil
}

// packaged collects files of packages for an image.
type packaged struct {
	root  string // the folder that packages are unpacked in
	files []ociimage.File
	has   map[string]bool // paths in the image
}

// addPostgres adds a server, a client, and the programs that a script needs.
func (p *packaged) addPostgres() error {
	servers, err := filepath.Glob(filepath.Join(p.root, "usr/lib/postgresql/*/bin/postgres"))
	if err != nil || len(servers) == 0 {
		return fmt.Errorf("no server below %s (%v)", p.root, err)
	}
	version := filepath.Base(filepath.Dir(filepath.Dir(servers[len(servers)-1])))
	home := path.Join("/usr/lib/postgresql", version)
	for _, name := range []string{"postgres", "initdb", "psql", "pg_isready"} {
		p.files = append(p.files, ociimage.File{Path: "/bin/" + name, Link: path.Join(home, "bin", name)})
		if err := p.add(path.Join(home, "bin", name), filepath.Join(p.root, home, "bin", name)); err != nil {
			return err
		}
	}
	for _, name := range []string{"dash", "mv", "rm", "sleep", "timeout"} {
		if err := p.find(path.Join("/bin", name), "bin", "usr/bin"); err != nil {
			return err
		}
	}
	p.files = append(p.files, ociimage.File{Path: "/bin/sh", Link: "dash"})
	// Those that initdb loads. The others are extensions.
	for _, pattern := range []string{"*_and_*", "euc2004_sjis2004", "plpgsql", "dict_snowball"} {
		if err := p.addAll(path.Join(home, "lib", pattern+".so")); err != nil {
			return err
		}
	}
	return p.addTree(path.Join("/usr/share/postgresql", version), "man")
}

// find adds the first file of that name in folders.
func (p *packaged) find(to string, folders ...string) error {
	for _, folder := range folders {
		from := filepath.Join(p.root, folder, path.Base(to))
		if _, err := os.Stat(from); err == nil {
			return p.add(to, from)
		}
	}
	return fmt.Errorf("%s is in none of %v below %s", path.Base(to), folders, p.root)
}

// add adds a program or library, and the libraries that it needs.
func (p *packaged) add(to, from string) error {
	if p.has[to] {
		return nil
	}
	p.has[to] = true
	p.files = append(p.files, ociimage.File{Path: to, Source: from})
	file, err := elf.Open(from)
	if err != nil {
		return fmt.Errorf("reading %s: %w", from, err)
	}
	defer file.Close()
	libraries, err := file.ImportedLibraries()
	if err != nil {
		return fmt.Errorf("reading the libraries of %s: %w", from, err)
	}
	triplet := map[elf.Machine]string{elf.EM_X86_64: "x86_64-linux-gnu", elf.EM_AARCH64: "aarch64-linux-gnu"}[file.Machine]
	folders := []string{path.Join("lib", triplet), path.Join("usr/lib", triplet)}
	for _, name := range libraries {
		if err := p.find(path.Join("/lib", triplet, name), folders...); err != nil {
			return err
		}
	}
	for _, part := range file.Progs {
		if part.Type != elf.PT_INTERP {
			continue
		}
		loader, err := io.ReadAll(part.Open())
		if err != nil {
			return fmt.Errorf("reading the loader of %s: %w", from, err)
		}
		if err := p.find(strings.TrimRight(string(loader), "\x00"), folders...); err != nil {
			return err
		}
	}
	return nil
}

func (p *packaged) addAll(pattern string) error {
	found, err := filepath.Glob(filepath.Join(p.root, pattern))
	if err != nil || len(found) == 0 {
		return fmt.Errorf("there is no %s below %s (%v)", pattern, p.root, err)
	}
	for _, from := range found {
		if err := p.add(path.Join(path.Dir(pattern), filepath.Base(from)), from); err != nil {
			return err
		}
	}
	return nil
}

// addTree adds the files of a folder. It leaves out links, which lead to files that packages do not
// have, and the folder of that name.
func (p *packaged) addTree(folder, without string) error {
	return filepath.WalkDir(filepath.Join(p.root, folder), func(from string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && entry.Name() == without {
			return fs.SkipDir
		}
		if entry.Type().IsRegular() {
			to, _ := filepath.Rel(p.root, from) // from is below root
			p.files = append(p.files, ociimage.File{Path: "/" + to, Source: from})
		}
		return nil
	})
}
