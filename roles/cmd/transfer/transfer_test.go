//go:build linux

package transfer

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
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
	sparse, err := os.Create(filepath.Join(dir, "sparse"))
	require.NoError(t, err)
	_, err = sparse.WriteAt([]byte("island"), 5*block+7)
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

// copied copies one folder to another over a connection that breaks after some bytes. It returns the
// bytes that the source has sent.
func copied(t *testing.T, from, to string, most int64) (sent int64, err error) {
	t.Helper()
	a, b := net.Pipe()
	var left, bytes, other atomic.Int64
	left.Store(most)
	reader, err := os.Open(from)
	require.NoError(t, err)
	writer, err := os.Open(to)
	require.NoError(t, err)
	defer func() { require.NoError(t, errors.Join(reader.Close(), writer.Close())) }()
	s := &source{wire: newWire(cut{a, &left, &bytes}), root: reader, progress: &Progress{}}
	d := &target{wire: newWire(cut{b, &left, &other}), root: writer, progress: &Progress{}}
	sums := make(chan string, 1)
	failed := make(chan error, 1)
	go func() {
		sum, err := d.run(t.Context())
		sums <- sum
		failed <- err
	}()
	sum, sending := s.run(t.Context())
	received, receiving := <-sums, <-failed
	if receiving == nil {
		require.Equal(t, digestOf(t, from), received)
	}
	if sending == nil {
		require.Equal(t, received, sum)
	}
	return bytes.Load(), errors.Join(sending, receiving)
}

func digestOf(t *testing.T, dir string) string {
	t.Helper()
	root, err := os.Open(dir)
	require.NoError(t, err)
	defer func() { require.NoError(t, root.Close()) }()
	sum, err := digest(t.Context(), root, false, func(int64) {})
	require.NoError(t, err)
	return sum
}

const whole = int64(1) << 40

// TestCopy: files of each type arrive as they are, and what was there before goes.
func TestCopy(t *testing.T) {
	t.Parallel()
	from, to := volume(t), t.TempDir()
	for name, make := range map[string]func(string) error{
		"small":         func(p string) error { return os.MkdirAll(filepath.Join(p, "a", "folder"), 0o700) },
		"db":            func(p string) error { return os.WriteFile(p, []byte("a file"), 0o600) },
		"old/and/gone":  func(p string) error { return os.MkdirAll(p, 0o700) },
		"empty":         func(p string) error { return os.Symlink("/etc/passwd", p) },
		"sparse":        func(p string) error { return os.WriteFile(p, noise(3*block), 0o600) },
		"lost+found/#1": func(p string) error { return os.MkdirAll(p, 0o700) },
	} {
		require.NoError(t, make(filepath.Join(to, name)), name)
	}
	_, err := copied(t, from, to, whole)
	require.NoError(t, err)
	var a, b unix.Stat_t
	require.NoError(t, unix.Stat(filepath.Join(to, "small"), &a))
	require.NoError(t, unix.Stat(filepath.Join(to, "db/again"), &b))
	require.Equal(t, a.Ino, b.Ino)
	require.EqualValues(t, 3, a.Nlink)
	require.NoError(t, unix.Stat(filepath.Join(to, "sparse"), &a))
	require.EqualValues(t, 40*block, a.Size)
	require.Less(t, a.Blocks*512, int64(3*block), "holes stay holes")
	info, err := os.Lstat(filepath.Join(to, "db/tool"))
	require.NoError(t, err)
	require.Equal(t, 0o755|os.ModeSetuid, info.Mode())
	info, err = os.Lstat(filepath.Join(to, "db"))
	require.NoError(t, err)
	require.Equal(t, time.Unix(1_000_000_000, 123), info.ModTime())
}

// TestBrokenAnywhere breaks the connection after any number of bytes. The next copy is whole.
func TestBrokenAnywhere(t *testing.T) {
	t.Parallel()
	from := volume(t)
	all, err := copied(t, from, t.TempDir(), whole)
	require.NoError(t, err)
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
	_, err = copied(t, from, to, whole)
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
	sent, err := copied(t, from, to, whole)
	require.NoError(t, err)
	require.Less(t, sent, int64(3*block))
	sent, err = copied(t, from, to, whole)
	require.NoError(t, err)
	require.Less(t, sent, int64(2000))
}

// TestVerifyFindsOtherContent: content that differs under the same size and time, as after a power
// failure, is found by the checksum, and copied again.
func TestVerifyFindsOtherContent(t *testing.T) {
	t.Parallel()
	from, to := volume(t), t.TempDir()
	_, err := copied(t, from, to, whole)
	require.NoError(t, err)
	name := filepath.Join(to, "db/base/1/large")
	info, err := os.Stat(name)
	require.NoError(t, err)
	file, err := os.OpenFile(name, os.O_WRONLY, 0)
	require.NoError(t, err)
	_, err = file.WriteAt(make([]byte, 100), block+50)
	require.NoError(t, errors.Join(err, file.Close()))
	require.NoError(t, os.Chtimes(name, info.ModTime(), info.ModTime()))
	sent, err := copied(t, from, to, whole)
	require.NoError(t, err)
	require.Less(t, sent, int64(2*block), "only the block that differs")
}

// TestHostileSource: frames of a source write nothing outside of the volume, and end the copy.
func TestHostileSource(t *testing.T) {
	t.Parallel()
	file := func(name string) *entry { return &entry{Name: []byte(name), Mode: unix.S_IFREG | 0o644, Links: 1} }
	folder := &entry{Name: []byte("f"), Mode: unix.S_IFDIR | 0o755}
	link := &entry{Name: []byte("l"), Mode: unix.S_IFLNK | 0o777, Link: []byte("../outside")}
	hard := func(first string) *entry {
		return &entry{Name: []byte("h"), Mode: unix.S_IFREG | 0o644, Links: 2, First: []byte(first)}
	}
	batch := func(all ...*entry) frame {
		text, err := json.Marshal(all)
		require.NoError(t, err)
		return frame{kindBatch, text}
	}
	for name, frames := range map[string][]frame{
		"a file above":                   {batch(file("../outside/x"))},
		"the folder above":               {batch(file(".."))},
		"an absolute path":               {batch(file("/etc/x"))},
		"no name":                        {batch(file(""))},
		"a name with zero":               {batch(file("a\x00b"))},
		"enters a link":                  {batch(link), {kindListed, nil}, {kindEnter, []byte("l")}, batch(file("x"))},
		"enters the folder above":        {batch(folder), {kindListed, nil}, {kindEnter, []byte("..")}, batch(file("x"))},
		"enters what it has not listed":  {{kindListed, nil}, {kindEnter, []byte("f")}},
		"links to a file above":          {batch(hard("../outside/secret"))},
		"links to a file through a link": {batch(link, hard("l/secret"))},
		"an unknown type":                {batch(&entry{Name: []byte("x"), Mode: 0o170000})},
		"no metadata":                    {batch(nil)},
		"no JSON":                        {{kindBatch, []byte("{")}},
		"data without a file":            {{kindData, []byte("x")}},
		"more data than the file has":    {batch(file("x")), {kindData, []byte("x")}},
		"less than no bytes":             {batch(file("x")), {kindEnd, nil}, batch(&entry{Name: []byte("x"), Mode: unix.S_IFREG | 0o644, Links: 1, Size: -10 * block})},
		"a link in the place of a file":  {batch(file("x"), &entry{Name: []byte("x"), Mode: unix.S_IFLNK | 0o777, Link: []byte("../outside/secret")}), {kindEnd, nil}},
		"leaves twice":                   {{kindListed, nil}, {kindLeave, mustJSON(t, folder)}, {kindLeave, mustJSON(t, folder)}},
		"leaves a file":                  {{kindListed, nil}, {kindLeave, mustJSON(t, file("."))}},
		"done without a checksum":        {{kindDone, nil}},
		"verifies too early":             {{kindVerify, nil}},
		"an unknown frame":               {{'?', nil}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			above := t.TempDir()
			to, outside := filepath.Join(above, "volume"), filepath.Join(above, "outside")
			require.NoError(t, errors.Join(os.Mkdir(to, 0o700), os.Mkdir(outside, 0o700), os.WriteFile(filepath.Join(outside, "secret"), []byte("s"), 0o600)))
			before := digestOf(t, outside)
			root, err := os.Open(to)
			require.NoError(t, err)
			defer func() { require.NoError(t, root.Close()) }()
			a, b := net.Pipe()
			failed := make(chan error, 1)
			go func() {
				_, err := (&target{wire: newWire(b), root: root, progress: &Progress{}}).run(t.Context())
				failed <- err
			}()
			go func() { _, _ = io.Copy(io.Discard, a) }()
			for _, f := range frames {
				head := binary.BigEndian.AppendUint32([]byte{f.kind}, uint32(len(f.payload)))
				if _, err := a.Write(append(head, f.payload...)); err != nil {
					break
				}
			}
			err = <-failed
			_ = a.Close()
			require.Error(t, err)
			require.NotErrorIs(t, err, errBroken)
			require.Equal(t, before, digestOf(t, outside))
			entries, err := os.ReadDir(above)
			require.NoError(t, err)
			require.Len(t, entries, 2)
		})
	}
	t.Run("a frame without end", func(t *testing.T) {
		t.Parallel()
		w := &wire{}
		w.in = newWire(nil).in
		w.in.Reset(bytes.NewReader([]byte{kindBatch, 0xff, 0xff, 0xff, 0xff}))
		_, _, err := w.receive()
		require.ErrorContains(t, err, "a frame of 4294967295 bytes")
	})
}

func mustJSON(t *testing.T, value any) []byte {
	t.Helper()
	out, err := json.Marshal(value)
	require.NoError(t, err)
	return out
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

// TestRun: the sides find each other in any order, accept nobody else, and report the end.
func TestRun(t *testing.T) {
	t.Parallel()
	for _, sends := range []bool{true, false} {
		t.Run(fmt.Sprintf("the side that listens sends %t", sends), func(t *testing.T) {
			t.Parallel()
			from, to := volume(t), t.TempDir()
			folders := map[bool]string{true: from, false: to}
			certificate, key, err := NewKey(time.Now())
			require.NoError(t, err)
			free, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			address := free.Addr().String()
			require.NoError(t, free.Close())
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			ends := map[string]Options{
				"dials":   {Folder: folders[!sends], Send: !sends, Address: address, Certificate: certificate, Key: key, Out: &lines{}, Every: time.Millisecond},
				"listens": {Folder: folders[sends], Send: sends, Address: address, Listen: true, Certificate: certificate, Key: key, Out: &lines{}, Every: time.Millisecond},
			}
			stranger, strangersKey, err := NewKey(time.Now())
			require.NoError(t, err)
			strange, stop := context.WithCancel(ctx)
			out := &lines{}
			o := ends["dials"]
			o.Certificate, o.Key, o.Out, o.Folder = stranger, strangersKey, out, t.TempDir()
			gone := make(chan error, 1)
			go func() { gone <- Run(strange, o) }()

			results := make(chan error, 2)
			go func() { results <- Run(ctx, ends["listens"]) }()
			require.Eventually(t, func() bool { text, _ := out.last.Load().(string); return strings.Contains(text, "tls") }, time.Minute, time.Millisecond)
			stop()
			require.ErrorIs(t, <-gone, context.Canceled)
			go func() { results <- Run(ctx, ends["dials"]) }()
			require.NoError(t, <-results)
			require.NoError(t, <-results)
			for _, o := range ends {
				s := o.Out.(*lines).state(t)
				require.Equal(t, Done, s.Phase)
				require.Equal(t, digestOf(t, from), s.Checksum)
			}
			require.Equal(t, digestOf(t, from), digestOf(t, to))
		})
	}
}

// TestRelay: both ends listen, and what connects them is killed again and again. One of them at least
// ends, and then the files are whole.
func TestRelay(t *testing.T) {
	t.Parallel()
	from, to := volume(t), t.TempDir()
	certificate, key, err := NewKey(time.Now())
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var addresses [2]string
	results := make(chan error, 2)
	for i, folder := range []string{from, to} {
		free, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		addresses[i] = free.Addr().String()
		require.NoError(t, free.Close())
		go func() {
			results <- Run(ctx, Options{Folder: folder, Send: i == 0, Address: addresses[i], Listen: true, Certificate: certificate, Key: key, Out: &lines{}, Every: time.Millisecond})
		}()
	}
	relay := Options{Certificate: certificate, Key: key, Out: &lines{}, Every: time.Millisecond}
	for patience := time.Millisecond; ; patience += time.Millisecond {
		short, stop := context.WithTimeout(ctx, patience)
		require.ErrorIs(t, Relay(short, relay, addresses), context.DeadlineExceeded)
		stop()
		select {
		case err := <-results:
			require.NoError(t, err)
			require.Equal(t, digestOf(t, from), digestOf(t, to))
			cancel()
			<-results
			return
		default:
		}
	}
}
