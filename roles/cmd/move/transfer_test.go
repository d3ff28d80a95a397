//go:build linux

package move

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// must returns the result of a call that does not fail.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// volume makes a folder with files of each type.
func volume(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	write := func(name string, data []byte, mode os.FileMode) {
		name = filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o750))
		require.NoError(t, os.WriteFile(name, data, 0o600))
		require.NoError(t, os.Chmod(name, mode))
	}
	write("empty", nil, 0o644)
	write("small", []byte("small"), 0o640)
	write("db/base/1/large", noise(2*block+block/2), 0o600)
	write("db/base/1/exact", noise(2*block), 0o600)
	write("db/tool", []byte("#!"), 0o755|os.ModeSetuid)
	write("no utf-8 \xff\n", []byte("x"), 0o444)
	for i := range 50 {
		write(fmt.Sprintf("many/%d", i), []byte{byte(i)}, 0o644)
	}
	sparse := must(os.Create(filepath.Join(dir, "sparse")))
	_, err := sparse.WriteAt([]byte("island"), 5*block+7)
	require.NoError(t, err)
	require.NoError(t, errors.Join(sparse.Truncate(40*block), sparse.Close()))
	require.NoError(t, os.Symlink("../outside/of/it", filepath.Join(dir, "db/dangling")))
	require.NoError(t, os.Link(filepath.Join(dir, "small"), filepath.Join(dir, "db/again")))
	require.NoError(t, os.Link(filepath.Join(dir, "small"), filepath.Join(dir, "zz")))
	require.NoError(t, unix.Mkfifo(filepath.Join(dir, "pipe"), 0o620))
	require.NoError(t, unix.Mknod(filepath.Join(dir, "socket"), unix.S_IFSOCK|0o660, 0))
	if os.Getuid() == 0 {
		require.NoError(t, unix.Mknod(filepath.Join(dir, "whiteout"), unix.S_IFCHR, 0))
	}
	require.NoError(t, os.Mkdir(filepath.Join(dir, "nothing"), 0o700|os.ModeSticky))
	require.NoError(t, os.Mkdir(filepath.Join(dir, lostAndFound), 0o700))
	if err := unix.Setxattr(filepath.Join(dir, "small"), "user.colour", []byte("blue"), 0); err != nil {
		t.Log("without extended attributes: ", err)
	}
	if os.Getuid() == 0 {
		require.NoError(t, os.Lchown(filepath.Join(dir, "db/dangling"), 70, 71))
		require.NoError(t, os.Chown(filepath.Join(dir, "db"), 70, 71))
	}
	old := time.Unix(1_000_000_000, 123)
	for _, name := range []string{"small", "db/base", "db"} {
		require.NoError(t, os.Chtimes(filepath.Join(dir, name), old, old))
	}
	return dir
}

func noise(n int) []byte {
	out := make([]byte, n)
	source := rand.NewChaCha8([32]byte{1})
	_, _ = source.Read(out)
	return out
}

// cut is a connection that breaks after some bytes of each direction.
type cut struct {
	net.Conn
	left, sent *atomic.Int64
}

func (c cut) Write(p []byte) (int, error) {
	c.sent.Add(int64(len(p)))
	if left := c.left.Add(-int64(len(p))); left < 0 {
		n, _ := c.Conn.Write(p[:max(0, left+int64(len(p)))])
		_ = c.Conn.Close()
		return n, io.ErrClosedPipe
	}
	return c.Conn.Write(p)
}

// both runs both ends of a copy, as change has changed them, over a connection that breaks after some bytes. It returns
// the checksum and the error of each end, and the bytes that the source has sent.
func both(t *testing.T, from, to string, most int64, change func(source, target *end)) (sums [2]string, failed [2]error, sent int64) {
	t.Helper()
	a, b := net.Pipe()
	var left, bytes, other atomic.Int64
	left.Store(most)
	reader := must(os.Open(from))
	writer := must(os.Open(to))
	defer func() { require.NoError(t, errors.Join(reader.Close(), writer.Close())) }()
	s := &end{wire: newWire(cut{a, &left, &bytes}), root: reader, progress: &Progress{}}
	d := &end{wire: newWire(cut{b, &left, &other}), root: writer, progress: &Progress{}}
	change(s, d)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		sums[1], failed[1] = d.receive(t.Context())
		_ = b.Close()
	}()
	sums[0], failed[0] = s.send(t.Context())
	<-ended
	return sums, failed, bytes.Load()
}

// copied copies one folder to another over a connection that breaks after some bytes. It returns the
// bytes that the source has sent.
func copied(t *testing.T, from, to string, most int64) (sent int64, err error) {
	t.Helper()
	sums, failed, sent := both(t, from, to, most, func(*end, *end) {})
	if failed[1] == nil {
		require.Equal(t, digestOf(t, from), sums[1])
		require.Equal(t, sums[1], digestOf(t, to))
	}
	if failed[0] == nil {
		require.Equal(t, digestOf(t, to), sums[0])
	}
	return sent, errors.Join(failed[0], failed[1])
}

func digestOf(t *testing.T, dir string) string {
	t.Helper()
	root := must(os.Open(dir))
	defer func() { require.NoError(t, root.Close()) }()
	sum := must(digest(t.Context(), root, false, &Progress{}))
	return sum
}

const whole = int64(1) << 40

// TestCopy: files of each type arrive as they are, and what was there before goes.
func TestCopy(t *testing.T) {
	t.Parallel()
	from, to := volume(t), t.TempDir()
	for name, make := range map[string]func(string) error{
		"small":        func(p string) error { return os.MkdirAll(filepath.Join(p, "a", "folder"), 0o700) },
		"db":           func(p string) error { return os.WriteFile(p, []byte("a file"), 0o600) },
		"old/and/gone": func(p string) error { return os.MkdirAll(p, 0o700) },
		"empty":        func(p string) error { return os.Symlink("/etc/passwd", p) },
		"sparse":       func(p string) error { return os.WriteFile(p, noise(3*block), 0o600) },
		"zz/zz": func(p string) error {
			return errors.Join(os.MkdirAll(p, 0o700), os.WriteFile(filepath.Join(p, "zz"), noise(3*block), 0o600))
		}, // as if it was the begin of a copy
		"lost+found/#1": func(p string) error { return os.MkdirAll(p, 0o700) },
	} {
		require.NoError(t, make(filepath.Join(to, name)), name)
	}
	_, err := copied(t, from, to, whole)
	if errors.Is(err, errBroken) { // nothing is left of them
		_, err = copied(t, from, to, whole)
	}
	require.NoError(t, err)
	var a, b unix.Stat_t
	require.NoError(t, unix.Stat(filepath.Join(to, "small"), &a))
	require.NoError(t, unix.Stat(filepath.Join(to, "db/again"), &b))
	require.Equal(t, a.Ino, b.Ino)
	require.EqualValues(t, 3, a.Nlink)
	require.NoError(t, unix.Stat(filepath.Join(to, "sparse"), &a))
	require.EqualValues(t, 40*block, a.Size)
	require.Less(t, a.Blocks*512, int64(3*block), "holes stay holes")
	info := must(os.Lstat(filepath.Join(to, "db/tool")))
	require.Equal(t, 0o755|os.ModeSetuid, info.Mode())
	info = must(os.Lstat(filepath.Join(to, "db")))
	require.Equal(t, time.Unix(1_000_000_000, 123), info.ModTime())
}

// TestBrokenAnywhere breaks the connection after any number of bytes. The next copy is whole.
func TestBrokenAnywhere(t *testing.T) {
	t.Parallel()
	from := volume(t)
	all := must(copied(t, from, t.TempDir(), whole))
	points := []int64{0, 1, 4, 5, 6, all - 6, all - 1, all}
	for i := range int64(60) {
		points = append(points, all*i/60+i*7)
	}
	to := t.TempDir()
	for _, n := range points {
		if n%2 == 0 {
			to = t.TempDir() // else what the cuts before have left
		}
		if _, err := copied(t, from, to, n); err != nil {
			require.ErrorIs(t, err, errBroken)
		}
	}
	_, err := copied(t, from, to, whole)
	require.NoError(t, err)
}

// TestResumeSendsTheRest: of a large file that has arrived for a part, only the rest is sent; of files
// that are complete nothing.
func TestResumeSendsTheRest(t *testing.T) {
	t.Parallel()
	from, to := t.TempDir(), t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(from, "large"), noise(8*block), 0o600))
	_, err := copied(t, from, to, 6*block+block/2)
	require.ErrorIs(t, err, errBroken)
	sent := must(copied(t, from, to, whole))
	require.Less(t, sent, int64(3*block))
	sent = must(copied(t, from, to, whole))
	require.Less(t, sent, int64(block+block/2), "the last block, and metadata")
}

// TestVerifyFindsOtherContent: content that differs under the same size and time, as after a power
// failure, is found by the checksum, and copied again.
func TestVerifyFindsOtherContent(t *testing.T) {
	t.Parallel()
	from, to := volume(t), t.TempDir()
	_, err := copied(t, from, to, whole)
	require.NoError(t, err)
	name := filepath.Join(to, "db/base/1/large")
	info := must(os.Stat(name))
	file := must(os.OpenFile(name, os.O_WRONLY, 0))
	_, err = file.WriteAt(make([]byte, 100), block+50)
	require.NoError(t, errors.Join(err, file.Close()))
	require.NoError(t, os.Chtimes(name, info.ModTime(), info.ModTime()))
	_, err = copied(t, from, to, whole)
	require.NoError(t, err)
}

// entryOf is an entry of an archive.
type entryOf struct {
	tar.Header
	data string
}

// TestHostileSource: an archive writes nothing outside of the volume, and ends the copy.
func TestHostileSource(t *testing.T) {
	t.Parallel()
	at := func(offset, length string) map[string]string {
		return map[string]string{offsetRecord: offset, lengthRecord: length}
	}
	file := func(name string) entryOf {
		return entryOf{tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: 1, PAXRecords: at("0", "1")}, "x"}
	}
	block := func(offset, length, data string) entryOf {
		return entryOf{tar.Header{Typeflag: tar.TypeReg, Name: "f", Mode: 0o644, Size: int64(len(data)), PAXRecords: at(offset, length)}, data}
	}
	other := func(kind byte, name, link string) entryOf {
		return entryOf{Header: tar.Header{Typeflag: kind, Name: name, Linkname: link, Mode: 0o755}}
	}
	for name, entries := range map[string][]entryOf{
		"a file above":                   {file("../outside/x")},
		"the folder above":               {other(tar.TypeDir, "..", "")},
		"a file in the folder above":     {file("a/../../outside/x")},
		"an absolute path":               {file("/etc/x")},
		"no name":                        {file("")},
		"the root as a file":             {file(".")},
		"writes through a link":          {other(tar.TypeSymlink, "l", "../outside"), file("l/x"), other('7', "x", "")},
		"makes a folder of a link":       {other(tar.TypeSymlink, "l", "../outside"), other(tar.TypeDir, "l/x", ""), other('7', "x", "")},
		"links to a file above":          {other(tar.TypeLink, "h", "../outside/secret")},
		"links to a file through a link": {other(tar.TypeSymlink, "l", "../outside"), other(tar.TypeLink, "m", "l/secret")},
		"a file in a file":               {file("f"), file("f/x")},
		"goes on behind a link":          {other(tar.TypeSymlink, "f", "../outside/secret"), block("1048576", "1", "x")},
		"an unknown type":                {other('7', "x", "")},
		"a global header":                {entryOf{Header: tar.Header{Typeflag: tar.TypeXGlobalHeader, Name: "x", PAXRecords: map[string]string{"path": "y"}}}},
		"a device":                       {entryOf{Header: tar.Header{Typeflag: tar.TypeBlock, Name: "x", Devmajor: 8}}},
		"more data than a block":         {block("0", "1", strings.Repeat("x", 100))},
		"a block that is too large":      {block("0", "2000000", "")},
		"less than no bytes":             {block("0", "-1", "")},
		"before the file":                {block("-1048576", "1", "x")},
		"behind all files":               {block("9223372036854775807", "1", "x")},
		"no place in the file":           {block("", "", "x")},
		"marks a link":                   {other(tar.TypeSymlink, "l", "../outside"), other(tar.TypeDir, "l", ""), other('7', "x", "")},
		"deep":                           {file(strings.Repeat("d/", mostDepth+1) + "x")},
		"an error":                       {entryOf{Header: tar.Header{Typeflag: tar.TypeReg, PAXRecords: map[string]string{errorRecord: "no disk"}}}},
		"the same name, as a link":       {other(tar.TypeSymlink, "f", "../outside/secret"), entryOf{tar.Header{Typeflag: tar.TypeReg, Name: "f", Mode: 0o644, Size: 3, PAXRecords: at("0", "3")}, "new"}, other('7', "x", "")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var archive bytes.Buffer
			out := tar.NewWriter(&archive)
			for _, e := range entries {
				e.Format = tar.FormatPAX
				require.NoError(t, out.WriteHeader(&e.Header))
				_, err := io.WriteString(out, e.data)
				require.NoError(t, err)
			}
			require.NoError(t, out.Close())
			hostile(t, archive.Bytes())
		})
	}
	for name, text := range map[string]string{"no archive": strings.Repeat("x", 1024), "a sparse file": sparse} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			hostile(t, []byte(text))
		})
	}
	t.Run("a message without end", func(t *testing.T) {
		t.Parallel()
		w := newWire(nil)
		w.in.Reset(strings.NewReader(strings.Repeat("x", 2*mostMessage)))
		_, err := w.hear()
		require.ErrorAs(t, err, &refusal{})
	})
}

// sparse is the header of a file of which the archive has no byte, in the format of GNU.
var sparse = func() string {
	h := make([]byte, 512)
	copy(h, "f")
	copy(h[100:], "0000644\x000000000\x000000000\x0000000000000\x0000000000000\x00        S")
	copy(h[257:], "ustar  \x00")
	copy(h[483:], "77777777777\x00")
	sum := 0
	for _, b := range h {
		sum += int(b)
	}
	copy(h[148:], fmt.Sprintf("%06o\x00 ", sum))
	return string(h) + strings.Repeat("\x00", 1024)
}()

// hostile unpacks an archive, which is refused.
func hostile(t *testing.T, archive []byte) {
	t.Helper()
	above := t.TempDir()
	to, outside := filepath.Join(above, "volume"), filepath.Join(above, "outside")
	require.NoError(t, errors.Join(os.Mkdir(to, 0o700), os.Mkdir(outside, 0o700), os.WriteFile(filepath.Join(outside, "secret"), []byte("s"), 0o600)))
	before := digestOf(t, outside)
	root := must(os.Open(to))
	defer func() { require.NoError(t, root.Close()) }()
	err := unpack(bytes.NewReader(archive), root, false, &Progress{})
	require.Error(t, err)
	require.NotErrorIs(t, err, errBroken)
	require.Equal(t, before, digestOf(t, outside))
	entries := must(os.ReadDir(above))
	require.Len(t, entries, 2)
}

// TestPlain: what gives rights to whoever runs a file stays where it is, whatever the other end sends.
func TestPlain(t *testing.T) {
	t.Parallel()
	for _, honest := range []bool{true, false} {
		from, to := t.TempDir(), t.TempDir()
		name := filepath.Join(from, "tool")
		require.NoError(t, errors.Join(os.WriteFile(name, []byte("#!"), 0o600), os.Chmod(name, 0o755|os.ModeSetuid|os.ModeSetgid), os.Chmod(from, 0o770|os.ModeSetgid)))
		if os.Getuid() == 0 {
			require.NoError(t, unix.Setxattr(name, capability, []byte("\x01\x00\x00\x02\x00\x20\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"), 0))
		}
		_, failed, _ := both(t, from, to, whole, func(source, target *end) { source.plain, target.plain = honest, true })
		if honest {
			require.NoError(t, errors.Join(failed[0], failed[1]))
		} else {
			require.Error(t, failed[1])
		}
		info := must(os.Stat(filepath.Join(to, "tool")))
		require.Equal(t, os.FileMode(0o755), info.Mode())
		have := must(attributes(filepath.Join(to, "tool")))
		require.NotContains(t, have, capability)
		info = must(os.Stat(to))
		require.Equal(t, os.ModeDir|os.ModeSetgid|0o770, info.Mode(), "a folder gives no rights by it")
	}
}

// TestManyNames: names that would fill the memory end the copy with an error.
func TestManyNames(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for i := range 10 {
		require.NoError(t, os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), nil, 0o600))
	}
	root := must(os.Open(dir))
	defer func() { require.NoError(t, root.Close()) }()
	_, size, err := names(root, true, 330)
	require.NoError(t, err)
	require.Equal(t, 330, size)
	_, _, err = names(root, true, 329)
	require.ErrorContains(t, err, "more names than have room in 329 bytes")
	for name, w := range map[string]*walker{"more than 16777216 files": {files: mostFiles - 9}, "more names than have room": {held: mostNames - 329}} {
		w.visit = func(*os.File, string, *tar.Header, int64) error { return nil }
		require.ErrorContains(t, w.folder(t.Context(), root, "", 0), name)
	}
	u := &unpacker{root: root, folder: root, files: mostFiles}
	var archive bytes.Buffer
	out := tar.NewWriter(&archive)
	require.NoError(t, errors.Join(out.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: "x"}), out.Close()))
	require.ErrorContains(t, u.unpack(&archive, &Progress{}), "it sends more than 16777216 files")
}

// TestErrorOfTheTarget: the source reports why the target cannot go on, though it is sending.
func TestErrorOfTheTarget(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 && os.Getenv("CI") != "true" {
		t.Skip("SKIPPED: this test needs root, to mount a file system")
	}
	from, to := volume(t), t.TempDir()
	require.NoError(t, unix.Mount("tmpfs", to, "tmpfs", 0, "size=2m"))
	t.Cleanup(func() { require.NoError(t, unix.Unmount(to, unix.MNT_DETACH)) })
	_, err := copied(t, from, to, whole)
	require.ErrorContains(t, err, "the other end: ")
	require.ErrorContains(t, err, "no space left on device")
}

// TestDevices: no end makes a device of its node for the other one.
func TestDevices(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 && os.Getenv("CI") != "true" {
		t.Skip("SKIPPED: this test needs root, to make device files")
	}
	for name, kind := range map[string]uint32{"character": unix.S_IFCHR, "block": unix.S_IFBLK} {
		from, to := t.TempDir(), t.TempDir()
		require.NoError(t, unix.Mknod(filepath.Join(from, "device"), kind|0o666, int(unix.Mkdev(1, 3))))
		_, err := copied(t, from, to, whole)
		require.ErrorContains(t, err, "the other end: device: device files are not copied", name)
		require.NoFileExists(t, filepath.Join(to, "device"))
	}
}

// lines collects the lines of a copy.
type lines struct{ last atomic.Value }

func (l *lines) Write(p []byte) (int, error) {
	l.last.Store(string(p))
	return len(p), nil
}

func (l *lines) state(t *testing.T) (out State) {
	t.Helper()
	text, _ := l.last.Load().(string)
	require.NoError(t, json.Unmarshal([]byte(text), &out))
	return out
}

// ends are the keys and addresses of a copy.
type ends struct {
	certificates, keys, peers map[string][]byte
	addresses                 map[string]string
}

// newEnds makes a key for each name; one of its parts is the name.
func newEnds(t *testing.T, relay ...string) *ends {
	t.Helper()
	e := &ends{certificates: map[string][]byte{}, keys: map[string][]byte{}, addresses: map[string]string{}}
	for _, part := range append([]string{Sender, Receiver}, relay...) {
		parts := []string{part}
		if len(relay) > 0 && part == relay[0] {
			parts = []string{Sender, Receiver}
		}
		var err error
		e.certificates[part], e.keys[part], err = NewKey(time.Now(), parts...)
		require.NoError(t, err)
		free := must(net.Listen("tcp", "127.0.0.1:0"))
		e.addresses[part] = free.Addr().String()
		require.NoError(t, free.Close())
	}
	e.peers = e.certificates
	return e
}

// options returns those of an end, which accepts peers with these keys by the parts of their names.
func (e *ends) options(t *testing.T, name, folder string, peers map[string]string) Options {
	t.Helper()
	o := Options{Folder: folder, Send: name == Sender, Keys: t.TempDir(), Out: &lines{}, Every: time.Millisecond}
	e.give(t, o, name)
	for part, peer := range peers {
		require.NoError(t, os.WriteFile(filepath.Join(o.Keys, part+".crt"), e.certificates[peer], 0o600))
	}
	return o
}

// give gives an end the key of a name.
func (e *ends) give(t *testing.T, o Options, name string) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(o.Keys, "tls.crt"), e.certificates[name], 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(o.Keys, "tls.key"), e.keys[name], 0o600))
}

// TestEnds: the ends find each other in any order, and accept nobody else: no stranger, none who has the key
// of this end, and no second one while one is connected.
func TestEnds(t *testing.T) {
	t.Parallel()
	for _, listens := range []string{Sender, Receiver} {
		t.Run(listens+" listens", func(t *testing.T) {
			t.Parallel()
			e := newEnds(t, "stranger")
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			dials, folders := Receiver, map[string]string{Sender: volume(t), Receiver: t.TempDir()}
			if listens == Receiver {
				dials = Sender
			}
			before := digestOf(t, folders[Sender])
			serves := e.options(t, listens, folders[listens], map[string]string{dials: dials})
			serves.Listen = e.addresses[listens]
			ended := make(chan error, 1)
			serving, stop := context.WithCancel(ctx)
			defer stop()
			go func() { ended <- Copy(serving, serves) }()
			// Who has a key of its own, or that of the end that listens, has not that of the other end.
			for _, thief := range []string{"stranger", listens} {
				stolen := e.options(t, dials, t.TempDir(), map[string]string{listens: listens})
				e.give(t, stolen, thief)
				stolen.Connect = []string{e.addresses[listens]}
				short, give := context.WithCancel(ctx)
				tried := make(chan error, 1)
				go func() { tried <- Copy(short, stolen) }()
				require.Eventually(t, func() bool { text, _ := stolen.Out.(*lines).last.Load().(string); return strings.Contains(text, "tls") }, time.Minute, time.Millisecond)
				give()
				require.ErrorIs(t, <-tried, context.Canceled)
			}
			own := e.options(t, dials, folders[dials], map[string]string{listens: listens})
			own.Connect = []string{e.addresses[listens]}
			held := must(connect(ctx, own, e.addresses[listens], listens))
			_, err := connect(ctx, own, e.addresses[listens], listens)
			require.ErrorContains(t, err, "serves another connection")
			require.NoError(t, held.Close())
			for range 2 { // the end that listens goes on
				own.Out = &lines{}
				require.NoError(t, Copy(ctx, own))
				s := own.Out.(*lines).state(t)
				require.Equal(t, Done, s.Phase)
				require.Equal(t, before, s.Checksum)
				require.Equal(t, before, digestOf(t, folders[Sender]))
				require.Equal(t, before, digestOf(t, folders[Receiver]))
			}
			stop()
			require.ErrorIs(t, <-ended, context.Canceled)
		})
	}
}

// TestParts: an end that is accepted as the one part is not accepted as the other one.
func TestParts(t *testing.T) {
	t.Parallel()
	e := newEnds(t)
	o := e.options(t, Sender, "", map[string]string{Receiver: Sender})
	secure := must(configuration(o, Receiver))
	block, _ := pem.Decode(e.certificates[Sender])
	certificate := must(x509.ParseCertificate(block.Bytes))
	require.ErrorContains(t, secure.VerifyConnection(tls.ConnectionState{PeerCertificates: []*x509.Certificate{certificate}}), "not receiver")
	_, err := configuration(o, Sender)
	require.EqualError(t, err, "there is no certificate of the sender")
}

// TestRelay: both ends listen, and what connects them is killed again and again. When it ends, both have said the
// same checksum, and the files are whole.
func TestRelay(t *testing.T) {
	t.Parallel()
	from, to, e := volume(t), t.TempDir(), newEnds(t, "relay")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	results := make(chan error, 2)
	for part, folder := range map[string]string{Sender: from, Receiver: to} {
		o := e.options(t, part, folder, map[string]string{Sender: "relay", Receiver: "relay"})
		o.Listen = e.addresses[part]
		go func() { results <- Copy(ctx, o) }()
	}
	relay := e.options(t, "relay", "", map[string]string{Sender: Sender, Receiver: Receiver})
	relay.Connect = []string{e.addresses[Sender], e.addresses[Receiver]}
	for patience := time.Millisecond; ; patience += time.Millisecond {
		short, stop := context.WithTimeout(ctx, patience)
		relay.Out = &lines{}
		err := Copy(short, relay)
		stop()
		if err == nil {
			break
		}
		require.ErrorIs(t, err, context.DeadlineExceeded)
	}
	require.Equal(t, digestOf(t, from), relay.Out.(*lines).state(t).Checksum)
	require.Equal(t, digestOf(t, from), digestOf(t, to))
	cancel()
	require.ErrorIs(t, <-results, context.Canceled)
	require.ErrorIs(t, <-results, context.Canceled)
}

// TestRelayChecksBoth: one end alone ends no copy, whatever it says; and the other end learns of an error.
func TestRelayChecksBoth(t *testing.T) {
	t.Parallel()
	archive := func(w *wire) error { return errors.Join(tar.NewWriter(w.out).Close(), w.out.Flush()) }
	for name, tc := range map[string]struct {
		there message // of the receiver
		want  string
	}{
		"the same": {there: message{Sum: "a"}},
		"another":  {there: message{Sum: "b"}, want: "the connection broke"},
		"none":     {want: "the connection broke"},
		"an error": {there: message{Error: "no space"}, want: "the other end: no space"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, fromRelay := net.Pipe()
			b, toRelay := net.Pipe()
			sends, receives, told := newWire(a), newWire(b), make(chan error, 2)
			go func() {
				defer a.Close()
				_, err := sends.hear()
				err = errors.Join(err, sends.say(message{}), archive(sends))
				if err == nil {
					_, err = sends.hear()
				}
				if err == nil {
					err = sends.say(message{Sum: "a"})
				}
				told <- err
			}()
			go func() {
				defer b.Close()
				err := receives.say(message{})
				_, heard := receives.hear()
				err = errors.Join(err, heard, read(receives.in, func(*tar.Header, io.Reader) error { return nil }), receives.say(tc.there))
				if err == nil && tc.there.Error == "" {
					_, err = receives.hear()
				}
				told <- err
			}()
			sum, err := pass(t.Context(), newWire(fromRelay), newWire(toRelay), &Progress{})
			_ = errors.Join(fromRelay.Close(), toRelay.Close())
			err = errors.Join(err, <-told, <-told)
			if tc.want == "" {
				require.NoError(t, err)
				require.Equal(t, "a", sum)
				return
			}
			require.ErrorContains(t, err, tc.want)
		})
	}
}
