package client

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"sync/atomic"

	"k8s.io/client-go/rest"
)

// Limits in bytes of what an API server of another organisation may send. An object is
// held in memory several times, and decoded it is larger than in transit.
const (
	// longestBody is the limit of a response that is no stream, for example of a page of a
	// list.
	longestBody = 32 << 20
	// longestObject is the limit of a response about one object, and of one event of a
	// watch. API servers accept objects of at most 3 MiB.
	longestObject = 8 << 20
	// longestError is the limit of an error response. Its text is logged.
	longestError = 256 << 10
	// longestList is the limit of all pages of a list after the first.
	longestList = 128 << 20
	// longestWatch is the limit of all that a watch sends between two lists. Then the
	// informer lists again, which drops what it holds without reason.
	longestWatch = 128 << 20
	// smallestPage and smallestEvent are added to the size of each page of a list and of each
	// event of a watch. They limit the number of them.
	smallestPage  = 16 << 10
	smallestEvent = 1 << 10
	// ownCopies is the number of bytes that lists and watches may have in addition, for each
	// byte of this cluster's own objects: a ShadowPod and a pod for each pod, as JSON, with the
	// managed fields of the pod.
	ownCopies = 4
)

// Reasons of a Refusal.
const (
	// RefusedHost means a request to another host than that of the configuration.
	RefusedHost = "host"
	// RefusedRedirect means a response that leads to another URL.
	RefusedRedirect = "redirect"
	// RefusedCompressed means a compressed response, which was not asked for.
	RefusedCompressed = "compressed"
	// RefusedSize means a response or an event of a watch that is too large.
	RefusedSize = "size"
	// RefusedList means a list with too many pages.
	RefusedList = "list"
	// RefusedWatch means a watch that has sent too much since the last list.
	RefusedWatch = "watch"
)

// Foreign describes an API server of another organisation.
type Foreign struct {
	// Name identifies the peer in errors.
	Name string
	// Own returns the size in bytes of this cluster's own objects that the API server has copies
	// of, which do not count against it; nil: none. It is called from many goroutines, when a list
	// or a watch reaches its limit.
	Own func() int64
	// Refused is called for each refused request or response; it may be nil. It is called
	// from many goroutines.
	Refused func(*Refusal)
}

// Refusal is the error of a request or a response that was refused.
type Refusal struct {
	// Peer is the name of the peer. Reason is one of the constants, for metrics.
	Peer, Reason string
	detail       string
}

// Error implements error.
func (r *Refusal) Error() string { return fmt.Sprintf("API server of %s: %s", r.Peer, r.detail) }

// Distrust returns a copy of cfg for an API server of another organisation. Its requests
// go to the host of cfg only, and to no URL that a response leads to. They do not ask for
// compression. Responses have limits of size, except for the content of streams (logs,
// upgraded connections, proxies). Warnings are dropped, unless cfg has a handler for them.
// Pass the result to Harden, which limits the time.
func Distrust(cfg *rest.Config, f Foreign) (*rest.Config, error) {
	base, _, err := rest.DefaultServerUrlFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("the URL of the API server of %s: %w", f.Name, err)
	}
	out := rest.CopyConfig(cfg)
	out.DisableCompression = true
	if out.WarningHandler == nil && out.WarningHandlerWithContext == nil {
		out.WarningHandler = rest.NoWarnings{} // by default they are logged
	}
	known := &tallies{lists: map[string]*tally{}, watches: map[string]*tally{}}
	out.Wrap(func(rt http.RoundTripper) http.RoundTripper {
		return &distrusted{wrapped: wrapped{rt}, foreign: f, host: base.Host, scheme: base.Scheme, known: known}
	})
	return out, nil
}

// distrusted refuses requests to other hosts, and responses that are too large or lead
// elsewhere.
type distrusted struct {
	wrapped

	foreign      Foreign
	host, scheme string
	known        *tallies
}

// RoundTrip implements http.RoundTripper.
func (d *distrusted) RoundTrip(req *http.Request) (*http.Response, error) {
	if !d.isPinned(req.URL) {
		closeBody(req)
		return nil, d.refuse(RefusedHost, "a request to %.256q is not sent: only %s is accepted", req.URL.Host, d.host)
	}
	counted := d.known.begin(req)
	resp, err := d.next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	if err := d.checkHead(req, resp); err != nil {
		_ = resp.Body.Close()
		return nil, err
	}
	// client-go sleeps as long as it is told.
	if after := retryAfter(resp); after > 0 {
		resp.Header.Set("Retry-After", strconv.Itoa(int(after.Seconds())))
	} else {
		resp.Header.Del("Retry-After")
	}
	return d.bound(req, resp, counted)
}

// isPinned reports whether u leads to the host of the configuration. A WebSocket has a
// scheme of its own.
func (d *distrusted) isPinned(u *url.URL) bool {
	scheme := u.Scheme
	switch scheme {
	case "wss":
		scheme = "https"
	case "ws":
		scheme = "http"
	}
	return u.Host == d.host && scheme == d.scheme
}

func (d *distrusted) checkHead(req *http.Request, resp *http.Response) error {
	switch {
	case resp.StatusCode >= http.StatusMultipleChoices && resp.StatusCode < http.StatusBadRequest && resp.StatusCode != http.StatusNotModified:
		return d.refuse(RefusedRedirect, "%s %s is answered with a redirect (status %d), which is not followed", req.Method, req.URL.Path, resp.StatusCode)
	case resp.Uncompressed || resp.Header.Get("Content-Encoding") != "":
		return d.refuse(RefusedCompressed, "%s %s is answered with compressed data, which was not asked for", req.Method, req.URL.Path)
	}
	return nil
}

// bound limits the body of a response.
func (d *distrusted) bound(req *http.Request, resp *http.Response, counted *tally) (*http.Response, error) {
	limit := sizeLimit(req, resp.StatusCode)
	switch {
	case limit == 0:
		return resp, nil
	}
	b := &boundedBody{ReadCloser: resp.Body, by: d, req: req, limit: limit}
	resp.Body = b
	switch {
	case !isWatch(req) && !b.within(resp.ContentLength, limit):
		_ = b.Close()
		return nil, d.refuseSize(req, "response", limit)
	case counted == nil || resp.StatusCode != http.StatusOK:
	case isWatch(req):
		// A watch is refused while it is read. An error here would be taken for an outage,
		// after which an informer goes on where it was, and does not list.
		b.counted, b.reason, b.most = counted, RefusedWatch, longestWatch
		b.events = newEvents(resp.Header.Get("Content-Type"))
	default:
		b.counted, b.reason, b.most = counted, RefusedList, longestList
		if err := b.charge(smallestPage); err != nil {
			_ = b.Close()
			return nil, err
		}
	}
	return resp, nil
}

// sizeLimit returns the limit of a response; 0 means that there is none. For a watch it
// is the limit of an event.
func sizeLimit(req *http.Request, status int) int64 {
	switch {
	case status >= http.StatusBadRequest:
		return longestError
	case isStream(req) && (status == http.StatusSwitchingProtocols || !isUpgrade(req)):
		return 0
	case isStream(req):
		return longestError // client-go reads it whole, as the reason why the upgrade failed
	case isWatch(req), targetOf(req.URL.Path).name != "":
		return longestObject
	}
	return longestBody
}

func (d *distrusted) refuseSize(req *http.Request, what string, limit int64) error {
	return d.refuse(RefusedSize, "%s %s: a %s of more than %d bytes is not accepted", req.Method, req.URL.Path, what, limit)
}

func (d *distrusted) refuse(reason, format string, args ...any) error {
	r := &Refusal{Peer: d.foreign.Name, Reason: reason, detail: fmt.Sprintf(format, args...)}
	if d.foreign.Refused != nil {
		d.foreign.Refused(r)
	}
	return r
}

// boundedBody is the body of a response with limits.
type boundedBody struct {
	io.ReadCloser

	by    *distrusted
	req   *http.Request
	limit int64
	read  int64
	err   error

	// counted sums up what belongs together: the pages of a list, or a watch and those that
	// continue it; nil if nothing does. most is the limit of that, and reason that of its
	// refusal.
	counted *tally
	reason  string
	most    int64
	// own is what this cluster's own objects add to the limits of lists and watches.
	own int64
	// events finds the ends of the events of a watch; nil for another response.
	events *events
}

// Read implements io.Reader.
func (b *boundedBody) Read(p []byte) (int, error) {
	if b.err != nil {
		return 0, b.err
	}
	n, err := b.ReadCloser.Read(p)
	if b.err = b.count(p[:n]); b.err != nil {
		return 0, b.err
	}
	if err != nil && !errors.Is(err, io.EOF) {
		b.err = err
	}
	return n, err
}

func (b *boundedBody) count(data []byte) error {
	size := int64(len(data))
	if b.events == nil {
		if b.read += size; !b.within(b.read, b.limit) {
			return b.by.refuseSize(b.req, "response", b.limit)
		}
		return b.charge(size)
	}
	longest, ended := b.events.scan(data)
	if longest > b.limit {
		return b.by.refuseSize(b.req, "watch event", b.limit)
	}
	return b.charge(size + ended*smallestEvent)
}

// within reports whether n bytes are within a limit. The limits of lists and watches grow by the
// size of this cluster's own objects. That size is read when n exceeds the limit.
func (b *boundedBody) within(n, limit int64) bool {
	if n > limit+b.own && limit >= longestBody && b.by.foreign.Own != nil {
		b.own = ownCopies * b.by.foreign.Own()
	}
	return n <= limit+b.own
}

// charge adds n bytes to what belongs together.
func (b *boundedBody) charge(n int64) error {
	switch {
	case b.counted == nil || b.within(b.counted.add(n), b.most):
		return nil
	case b.reason == RefusedWatch:
		return b.by.refuse(b.reason, "GET %s: a watch of more than %d bytes since the last list is not accepted; the list is read again", b.req.URL.Path, b.most)
	}
	return b.by.refuse(b.reason, "GET %s: a list of more than %d bytes in all its pages is not accepted", b.req.URL.Path, b.most)
}

// mostTallies limits the memory of tallies. Only the paths and selectors of this
// process's own requests make one.
const mostTallies = 4096

// tallies sum up the sizes of responses that belong together, by the URL of what is
// listed or watched.
type tallies struct {
	mu    sync.Mutex
	lists map[string]*tally
	// watches has what the watches of an informer have sent since its last list.
	watches map[string]*tally
}

// tally is a number of bytes.
type tally struct{ bytes atomic.Int64 }

func (t *tally) add(n int64) int64 { return t.bytes.Add(n) }

// begin returns the tally that the response to req belongs to. It returns nil for the
// first page of a list, and for a request that is neither an informer's list nor a watch.
func (t *tallies) begin(req *http.Request) *tally {
	if req.Method != http.MethodGet || isStream(req) || targetOf(req.URL.Path).name != "" && !isWatch(req) {
		return nil
	}
	query := req.URL.Query()
	of := subject(req.URL.Path, query)
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case isWatch(req):
		if query.Get("sendInitialEvents") == "true" { // a list in the form of a watch
			delete(t.watches, of)
		}
		return take(t.watches, of)
	case query.Get("continue") != "":
		return take(t.lists, of)
	case query.Get("limit") == headLimit: // no informer's
		return nil
	}
	delete(t.lists, of)
	delete(t.watches, of)
	return nil
}

func take(m map[string]*tally, of string) *tally {
	if m[of] == nil {
		if len(m) >= mostTallies {
			clear(m)
		}
		m[of] = &tally{}
	}
	return m[of]
}

// subject returns what a request lists or watches.
func subject(path string, query url.Values) string {
	return url.Values{
		"path": {path}, "labelSelector": query["labelSelector"], "fieldSelector": query["fieldSelector"],
	}.Encode()
}
