//go:build linux

package move

import (
	"archive/tar"
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// message is a line of JSON. The receiver says from where on it wants the archive, the sender how much
// there is in all, and then sends the archive. At last each end says its checksum, the receiver first. If
// they differ, all begins once more.
type message struct {
	position
	Total Amount
	Sum   string `json:",omitempty"`
	// Error is why the copy fails.
	Error string `json:",omitempty"`
}

// position is a place in an archive: a file, and the bytes of it that the receiver has.
type position struct {
	Path   []byte `json:",omitempty"`
	Offset int64  `json:",omitempty"`
}

// mostMessage bounds a message in bytes.
const mostMessage = 1 << 16

// errBroken is the end of a connection. A new one resumes the copy.
var errBroken = errors.New("the connection broke")

// refusal is an error of the other end, after which a new connection is of no use.
type refusal struct{ text string }

func (r refusal) Error() string { return "the other end: " + r.text }

// fragile is a connection whose errors are errBroken.
type fragile struct{ net.Conn }

func (f fragile) Read(p []byte) (int, error) {
	n, err := f.Conn.Read(p)
	return n, broken(err)
}

func (f fragile) Write(p []byte) (int, error) {
	n, err := f.Conn.Write(p)
	return n, broken(err)
}

func broken(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", errBroken, err)
}

// wire is one end of a connection.
type wire struct {
	conn net.Conn
	in   *bufio.Reader
	out  *bufio.Writer
	// heard are the messages after attend, and failed is why there are no more.
	heard  chan message
	failed error
}

func newWire(conn net.Conn) *wire {
	conn = fragile{conn}
	return &wire{conn: conn, in: bufio.NewReaderSize(conn, mostMessage), out: bufio.NewWriterSize(conn, mostMessage)}
}

// say sends a message.
func (w *wire) say(m message) error {
	text, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("encoding a message: %w", err)
	}
	_, _ = w.out.Write(append(text, '\n')) // Flush returns its error
	return w.out.Flush()
}

// hear returns the next message. Its error is errBroken or a refusal.
func (w *wire) hear() (m message, err error) {
	line, err := w.in.ReadSlice('\n')
	switch {
	case errors.Is(err, errBroken):
		return m, err
	case err != nil || json.Unmarshal(line, &m) != nil:
		return m, refusal{"it sends what is no message"}
	case m.Error != "":
		return m, refusal{m.Error}
	}
	return m, nil
}

// attend hears all messages from now on, also while this end sends. An error closes the connection, which ends
// the sending. It returns at once.
func (w *wire) attend(ctx context.Context) {
	w.heard = make(chan message)
	go func() {
		defer close(w.heard)
		for {
			m, err := w.hear()
			if err != nil {
				w.failed = err
				_ = w.conn.Close()
				return
			}
			select {
			case w.heard <- m:
			case <-ctx.Done():
				w.failed = ctx.Err()
				return
			}
		}
	}()
}

// next returns the next message after attend.
func (w *wire) next() (message, error) {
	m, more := <-w.heard
	if !more {
		return m, w.failed
	}
	return m, nil
}

// leave ends what attend began, and returns the cause of an error: what the other end said.
func (w *wire) leave(err error) error {
	_ = w.conn.Close()
	for range w.heard { // until its goroutine has ended
		continue
	}
	if err != nil && errors.As(w.failed, &refusal{}) {
		return w.failed
	}
	return err
}

// fail says an error. Meanwhile it reads what the other end still sends, without which that would not see
// the error.
func (w *wire) fail(text string) {
	_ = w.conn.SetDeadline(time.Now().Add(patience))
	var draining sync.WaitGroup
	draining.Go(func() { _, _ = io.Copy(io.Discard, w.in) })
	_ = w.say(message{Error: text})
	draining.Wait()
}

// own reports whether an error is of this end, and not of the connection, of the other end or of ctx.
func own(err error) bool {
	return err != nil && !errors.Is(err, errBroken) && !errors.Is(err, context.Canceled) && !errors.As(err, &refusal{})
}

// end is one end of a copy, with the files below a folder.
type end struct {
	*wire
	root     *os.File
	plain    bool
	progress *Progress
}

// send sends until both checksums are equal. It returns the checksum.
func (e *end) send(ctx context.Context) (sum string, err error) {
	e.attend(ctx)
	total, err := measure(ctx, e.root)
	e.progress.expect(total)
	for round, done := 0, false; err == nil && !done; round++ {
		sum, done, err = e.sendRound(ctx, total, round > 0)
	}
	if own(err) {
		_ = e.say(message{Error: err.Error()})
	}
	return sum, e.leave(err)
}

func (e *end) sendRound(ctx context.Context, total Amount, last bool) (sum string, done bool, err error) {
	from, err := e.next()
	if err != nil {
		return "", false, err
	}
	e.progress.begin(Copying, "")
	if err := e.say(message{Total: total}); err != nil {
		return "", false, err
	}
	if err := write(ctx, e.out, e.root, from.position, e.plain, e.progress); err != nil {
		return "", false, err
	}
	if err := e.out.Flush(); err != nil {
		return "", false, err
	}
	if sum, err = e.digest(ctx); err != nil {
		return "", false, err
	}
	there, err := e.next()
	if err == nil {
		err = e.say(message{Sum: sum})
	}
	return equal(sum, there, last, err)
}

// digest returns the checksum of all files.
func (e *end) digest(ctx context.Context) (string, error) {
	e.progress.begin(Verifying, "")
	return digest(ctx, e.root, e.plain, e.progress)
}

// equal ends a round: are both checksums the same? Those of the last round have to be.
func equal(here string, there message, last bool, err error) (sum string, done bool, failed error) {
	if err == nil && there.Sum != here && last {
		err = fmt.Errorf("the checksums differ after everything was copied twice: %s here, %s there; something changes one of the volumes", here, there.Sum)
	}
	return here, err == nil && there.Sum == here, err
}

// receive writes until both checksums are equal. It returns the checksum.
func (e *end) receive(ctx context.Context) (sum string, err error) {
	for round := 0; err == nil; round++ {
		var done bool
		if sum, done, err = e.receiveRound(ctx, round > 0); done {
			return sum, nil
		}
		if err == nil {
			err = wipe(e.root)
		}
	}
	if own(err) {
		e.fail(err.Error())
	}
	return "", err
}

func (e *end) receiveRound(ctx context.Context, last bool) (sum string, done bool, err error) {
	from, err := reached(e.root)
	if err != nil {
		return "", false, err
	}
	e.progress.begin(Copying, "")
	if err := e.say(message{position: from}); err != nil {
		return "", false, err
	}
	first, err := e.hear()
	if err != nil {
		return "", false, err
	}
	e.progress.expect(first.Total)
	err = unpack(e.in, e.root, e.plain, e.progress)
	if own(err) && len(from.Path) > 0 && !errors.Is(err, unix.ENOSPC) && !errors.Is(err, unix.EDQUOT) {
		// What was there before is of other files.
		err = cmp.Or(wipe(e.root), broken(err))
	}
	if err != nil {
		return "", false, err
	}
	if err := unix.Syncfs(int(e.root.Fd())); err != nil {
		return "", false, fmt.Errorf("writing to the disk: %w", err)
	}
	if sum, err = e.digest(ctx); err != nil {
		return "", false, err
	}
	if err := e.say(message{Sum: sum}); err != nil {
		return "", false, err
	}
	there, err := e.hear()
	return equal(sum, there, last, err)
}

// pass passes on what two ends send, until both have said the same checksum, which it returns.
func pass(ctx context.Context, from, to *wire, p *Progress) (sum string, err error) {
	to.attend(ctx)
	for done := false; err == nil && !done; {
		sum, done, err = passRound(from, to, p)
	}
	err = to.leave(err)
	var why refusal
	if errors.As(to.failed, &why) {
		from.fail(why.text)
	}
	return sum, err
}

func passRound(from, to *wire, p *Progress) (sum string, done bool, err error) {
	relay := func(hear func() (message, error), to *wire) (m message) {
		if err == nil {
			if m, err = hear(); err == nil {
				err = to.say(m)
			}
		}
		return m
	}
	relay(to.next, from)
	p.begin(Copying, "")
	p.expect(relay(from.hear, to).Total)
	if err == nil {
		err = read(io.TeeReader(from.in, to.out), func(h *tar.Header, _ io.Reader) error {
			p.add(1, h.Size)
			return nil
		})
	}
	if err == nil {
		err = to.out.Flush()
	}
	p.begin(Verifying, "")
	there := relay(to.next, from).Sum
	here := relay(from.hear, to).Sum
	return here, err == nil && here == there && here != "", err
}
