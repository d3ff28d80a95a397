package client

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
)

// longestRequest is the maximum duration of a whole request, as a multiple of the limit
// of silence. It is long enough for a large list over a slow line, and it ends a request
// whose server sends single bytes without end.
const longestRequest = 6

// deadline cancels a request if the server sends nothing for limit, before or within the
// response. Watches and streams are exempt.
type deadline struct {
	wrapped

	limit time.Duration
}

// RoundTrip implements http.RoundTripper.
func (d *deadline) RoundTrip(req *http.Request) (*http.Response, error) {
	if isWatch(req) || isStream(req) {
		return d.next.RoundTrip(req)
	}
	ctx, cancel := context.WithCancel(req.Context())
	w := &watchdog{limit: d.limit, last: time.Now().Add(longestRequest * d.limit), host: req.URL.Host, cancel: cancel}
	w.timer = time.AfterFunc(d.limit, w.bark)
	resp, err := d.next.RoundTrip(req.WithContext(ctx))
	if err != nil {
		w.stop()
		return nil, w.explain(err)
	}
	w.feed()
	resp.Body = &watchedBody{ReadCloser: resp.Body, watchdog: w}
	return resp, nil
}

// watchdog cancels a request unless feed is called before the timer expires.
type watchdog struct {
	limit  time.Duration
	last   time.Time
	host   string
	cancel context.CancelFunc
	timer  *time.Timer

	mu     sync.Mutex
	barked bool
}

func (w *watchdog) bark() {
	w.mu.Lock()
	w.barked = true
	w.mu.Unlock()
	w.cancel()
}

func (w *watchdog) feed() {
	if w.timer.Stop() {
		w.timer.Reset(min(w.limit, time.Until(w.last)))
	}
}

func (w *watchdog) stop() {
	w.timer.Stop()
	w.cancel()
}

func (w *watchdog) explain(err error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.barked {
		return err
	}
	return &timeoutError{host: w.host, limit: w.limit}
}

type watchedBody struct {
	io.ReadCloser

	watchdog *watchdog
}

// Read implements io.Reader.
func (b *watchedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	switch err {
	case nil:
		b.watchdog.feed()
	case io.EOF:
		b.watchdog.stop()
	default:
		err = b.watchdog.explain(err)
	}
	return n, err
}

// Close implements io.Closer.
func (b *watchedBody) Close() error {
	defer b.watchdog.stop()
	return b.ReadCloser.Close()
}

// timeoutError implements net.Error and unwraps to context.DeadlineExceeded.
type timeoutError struct {
	host  string
	limit time.Duration
}

// Error implements error.
func (e *timeoutError) Error() string {
	return fmt.Sprintf("API server %s was silent for %s", e.host, e.limit)
}

// Timeout implements net.Error.
func (e *timeoutError) Timeout() bool { return true }

// Temporary implements net.Error.
func (e *timeoutError) Temporary() bool { return true }

// Unwrap returns context.DeadlineExceeded.
func (e *timeoutError) Unwrap() error { return context.DeadlineExceeded }
