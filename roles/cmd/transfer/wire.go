//go:build linux

package transfer

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// Kinds of frames. Above are those of the source, below those of the target.
const (
	kindTotal  = 'T' // what is to be copied, as JSON
	kindBatch  = 'B' // metadata of files of the current folder, as JSON
	kindData   = 'D' // the next block of a file
	kindHole   = 'H' // the next block of a file is of zeros
	kindSame   = 'S' // the target has the next block of a file
	kindEnd    = 'E' // the file is complete
	kindListed = 'N' // the current folder has no further files
	kindEnter  = 'd' // name of the folder that becomes the current one
	kindLeave  = 'u' // metadata of the current folder, which is complete
	kindVerify = 'V' // of the source: everything was sent; of the target: its checksum
	kindAgain  = 'A' // the checksums differ: everything is compared

	kindWanted = 'W' // files of the batch that the target wants, as JSON
	kindHash   = 'h' // checksum of the next block that the target has

	kindDone  = 'O' // of both: the checksums are equal
	kindError = 'X' // of both: the reason why the copy fails
)

// mostBytes bounds a frame.
const mostBytes = block

// wanted is a file of a batch that the target wants.
type wanted struct {
	Index int
	// Blocks are those that the target has of the file. It sends a checksum of each.
	Blocks int64
}

// errBroken is the end of a connection. A new one resumes the copy.
var errBroken = errors.New("the connection broke")

// refusal is an error of the other end, after which a new connection is of no use.
type refusal struct{ text string }

func (r refusal) Error() string { return "the other end: " + r.text }

// wire sends and receives frames. Sending is safe for concurrent use.
type wire struct {
	conn net.Conn
	in   *bufio.Reader

	mu  sync.Mutex
	out *bufio.Writer
}

func newWire(conn net.Conn) *wire {
	return &wire{conn: conn, in: bufio.NewReaderSize(conn, 1<<16), out: bufio.NewWriterSize(conn, 1<<16)}
}

// send sends a frame, at once if flush is set, else with a later one.
func (w *wire) send(kind byte, payload []byte, flush bool) error {
	if len(payload) > mostBytes {
		return fmt.Errorf("metadata of %d bytes for one file: at most %d are copied", len(payload), mostBytes)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	head := [5]byte{kind}
	binary.BigEndian.PutUint32(head[1:], uint32(len(payload)))
	_, err := w.out.Write(head[:])
	if err == nil {
		_, err = w.out.Write(payload)
	}
	if err == nil && flush {
		err = w.out.Flush()
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errBroken, err)
	}
	return nil
}

// sendJSON sends a value at once.
func (w *wire) sendJSON(kind byte, value any) error {
	payload, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("encoding a frame: %w", err)
	}
	return w.send(kind, payload, true)
}

// receive returns the next frame. Its error is errBroken or a refusal.
func (w *wire) receive() (kind byte, payload []byte, err error) {
	var head [5]byte
	if _, err := io.ReadFull(w.in, head[:]); err != nil {
		return 0, nil, fmt.Errorf("%w: %w", errBroken, err)
	}
	n := binary.BigEndian.Uint32(head[1:])
	if n > mostBytes {
		return 0, nil, refusal{fmt.Sprintf("a frame of %d bytes", n)}
	}
	payload = make([]byte, n)
	if _, err := io.ReadFull(w.in, payload); err != nil {
		return 0, nil, fmt.Errorf("%w: %w", errBroken, err)
	}
	if head[0] == kindError {
		return 0, nil, refusal{string(payload)}
	}
	return head[0], payload, nil
}

// fail sends an error, unless it is of the connection or of the other end, and closes the connection.
// Meanwhile it reads what the other end still sends, without which that would not see the error.
// before is called first, while the connection is open.
func (w *wire) fail(err error, before func()) {
	defer func() { _ = w.conn.Close() }()
	if errors.Is(err, errBroken) || errors.As(err, &refusal{}) {
		_ = w.conn.Close()
		before()
		return
	}
	_ = w.conn.SetDeadline(time.Now().Add(patience))
	var draining sync.WaitGroup
	draining.Go(func() { _, _ = io.Copy(io.Discard, w.in) })
	before()
	_ = w.send(kindError, []byte(err.Error()), true)
	draining.Wait()
}

// decode decodes the JSON of a frame of the other end.
func decode[T any](payload []byte) (out T, err error) {
	if err := json.Unmarshal(payload, &out); err != nil {
		return out, refusal{fmt.Sprintf("a frame that is no JSON: %v", err)}
	}
	return out, nil
}

func unexpected(kind byte) error { return refusal{fmt.Sprintf("an unexpected frame of kind %q", kind)} }
