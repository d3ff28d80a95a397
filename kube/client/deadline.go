package client

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/liqod/liqod/kube/loop"
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

const (
	retryPeriod = time.Second
	// longestRetryAfter caps the Retry-After header of a response.
	longestRetryAfter = 5 * time.Second
	drainLimit        = 64 << 10
)

// patience repeats the list and watch requests of informers while the server is
// unreachable. The back-off of client-go's reflector grows to half a minute and more,
// which delays recovery after an outage.
type patience struct {
	wrapped

	log *zap.Logger
}

// RoundTrip implements http.RoundTripper.
func (p *patience) RoundTrip(req *http.Request) (*http.Response, error) {
	if !isInformers(req) {
		return p.next.RoundTrip(req)
	}
	for {
		resp, err := p.next.RoundTrip(req)
		if err == nil && (!isAway(resp.StatusCode) || fromTheFuture(resp)) || req.Context().Err() != nil {
			return resp, err
		}
		wait := retryPeriod/2 + rand.N(retryPeriod)
		if err != nil {
			p.log.Debug("API server away; informer waits", zap.String("host", req.URL.Host), zap.String("path", req.URL.Path), zap.Error(err))
		} else {
			p.log.Debug("API server refuses; informer waits", zap.String("host", req.URL.Host), zap.String("path", req.URL.Path), zap.Int("code", resp.StatusCode))
			wait = max(wait, retryAfter(resp))
			drain(resp.Body)
		}
		if err := loop.Pause(req.Context(), wait); err != nil {
			return nil, err
		}
	}
}

// isInformers reports whether the request is a watch or an informer's list. An informer
// lists with a resource version; a live list has none.
func isInformers(req *http.Request) bool {
	if req.Method != http.MethodGet {
		return false
	}
	return isWatch(req) || req.URL.Query().Get("resourceVersion") != "" && targetOf(req.URL.Path).name == ""
}

func isAway(code int) bool {
	return code == http.StatusTooManyRequests || code >= http.StatusInternalServerError
}

// fromTheFuture reports whether the server rejects a resource version that it has not
// reached, because its etcd was restored from a backup. The informer must receive this
// error to start again with a new list. The body of the response stays readable.
func fromTheFuture(resp *http.Response) bool {
	if resp.StatusCode != http.StatusGatewayTimeout {
		return false
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, drainLimit))
	resp.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(body), resp.Body), resp.Body}
	return err == nil && bytes.Contains(body, []byte(metav1.CauseTypeResourceVersionTooLarge))
}

func retryAfter(resp *http.Response) time.Duration {
	seconds, err := strconv.Atoi(resp.Header.Get("Retry-After"))
	if err != nil || seconds < 0 {
		return 0
	}
	return min(time.Duration(seconds)*time.Second, longestRetryAfter)
}

// drain reads the rest of the body, so that the connection can be reused.
func drain(body io.ReadCloser) {
	_, _ = io.CopyN(io.Discard, body, drainLimit)
	_ = body.Close()
}

// target is the resource that the path of a request names.
type target struct {
	core                        bool
	resource, name, subresource string
}

// targetOf parses /api/v1/… and /apis/<group>/<version>/…, with any prefix before them.
// For any other path it returns the zero target.
func targetOf(path string) target {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	at := slices.IndexFunc(parts, func(s string) bool { return s == "api" || s == "apis" })
	if at < 0 {
		return target{}
	}
	t := target{core: parts[at] == "api"}
	skip := at + 3
	if t.core {
		skip = at + 2
	}
	if len(parts) <= skip {
		return target{}
	}
	rest := parts[skip:]
	if rest[0] == "namespaces" && len(rest) > 2 && !slices.Contains([]string{"status", "finalize"}, rest[2]) {
		rest = rest[2:]
	}
	for i, field := range []*string{&t.resource, &t.name, &t.subresource} {
		if i < len(rest) {
			*field = rest[i]
		}
	}
	return t
}

// resourceOf returns the path of a resource in all namespaces.
func resourceOf(path string) string {
	if before, _, found := strings.Cut(path, "/namespaces/"); found {
		return before + "/" + targetOf(path).resource
	}
	return path
}

func isWatch(req *http.Request) bool {
	switch req.URL.Query().Get("watch") {
	case "true", "1":
		return req.Method == http.MethodGet
	}
	return false
}

// isStream reports whether the connection stays open as long as the user wants: logs,
// proxies and upgraded connections.
func isStream(req *http.Request) bool {
	if req.Header.Get("Upgrade") != "" || isUpgrade(req) {
		return true
	}
	t := targetOf(req.URL.Path)
	return t.core && (t.subresource == "proxy" || t.resource == "pods" && t.subresource == "log")
}

// isUpgrade checks the path, because an inner round tripper adds the Upgrade header
// later.
func isUpgrade(req *http.Request) bool {
	t := targetOf(req.URL.Path)
	return t.core && t.resource == "pods" && slices.Contains([]string{"exec", "attach", "portforward"}, t.subresource)
}

// isWrite reports whether the request changes objects. Upgraded connections do not count.
func isWrite(req *http.Request) bool {
	switch req.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return false
	}
	return !isUpgrade(req)
}

// verbOf returns the verb that the API server's metrics use for the request. It does not
// distinguish deletecollection from delete.
func verbOf(req *http.Request) string {
	switch req.Method {
	case http.MethodGet:
		switch {
		case isWatch(req):
			return "watch"
		case isStream(req):
			return "connect"
		case targetOf(req.URL.Path).name == "":
			return "list"
		}
		return "get"
	case http.MethodPost:
		if isUpgrade(req) {
			return "connect"
		}
		return "create"
	case http.MethodPut:
		return "update"
	}
	return strings.ToLower(req.Method)
}
