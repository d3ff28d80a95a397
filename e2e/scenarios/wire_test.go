package scenarios

import (
	"io"
	"net"
	"sync"
	"testing"
)

// wire leads to an address as a line does: what passes is not looked at, and when it is cut
// nobody is told.
type wire struct {
	to       string
	listener net.Listener

	mu      sync.Mutex
	passing *sync.Cond
	cut     bool
	closed  bool
	conns   []net.Conn
}

// newWire leads to an address until the end of the test.
func newWire(t *testing.T, to string) *wire {
	t.Helper()
	listener := must(net.Listen("tcp", "127.0.0.1:0"))(t)
	w := &wire{to: to, listener: listener}
	w.passing = sync.NewCond(&w.mu)
	go w.serve()
	t.Cleanup(w.close)
	return w
}

// url is where the wire begins.
func (w *wire) url() string { return "https://" + w.listener.Addr().String() }

// set cuts the wire, or mends it: then what was kept back arrives.
func (w *wire) set(cut bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut = cut
	w.passing.Broadcast()
}

func (w *wire) close() {
	_ = w.listener.Close()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	for _, c := range w.conns {
		_ = c.Close()
	}
	w.passing.Broadcast()
}

// wait returns when something may pass.
func (w *wire) wait() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.cut && !w.closed {
		w.passing.Wait()
	}
	return !w.closed
}

func (w *wire) hold(c net.Conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.conns = append(w.conns, c)
}

func (w *wire) serve() {
	for {
		near, err := w.listener.Accept()
		if err != nil {
			return
		}
		w.hold(near)
		go func() {
			defer near.Close()
			if !w.wait() {
				return
			}
			far, err := net.Dial("tcp", w.to)
			if err != nil {
				return
			}
			w.hold(far)
			defer far.Close()
			done := make(chan struct{})
			go func() {
				defer close(done)
				w.copy(far, near)
				_ = far.Close()
			}()
			w.copy(near, far)
			_ = near.Close()
			<-done
		}()
	}
}

func (w *wire) copy(to io.Writer, from io.Reader) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			if !w.wait() {
				return
			}
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
