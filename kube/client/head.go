package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/liqod/liqod/kube/store"
)

// An API server whose etcd was restored from a backup accepts a watch from a resource version that
// it has not reached yet, and sends nothing until it has reached it. The informer would lack all
// changes until then, and keep objects that do not exist. So the resource version of the server is
// read after each watch of an informer has begun. Resource versions of one resource are comparable
// (Kubernetes 1.35, KEP-5504). If they are no numbers, nothing follows from them.

const (
	// headLife is how long a resource version is used for further watches. Nobody restores etcd
	// and starts an API server in that time.
	headLife = time.Second
	// longestVersion is the number of digits of the highest resource version.
	longestVersion = 20
	// headLimit is the limit of the list that is read for its resource version.
	headLimit = "1"
	// lossPeriod is the time after a loss in which no other one ends all watches: a server of
	// another organisation chooses its answers. A watch that proves a loss is always ended itself.
	lossPeriod = time.Minute
)

var errWentBack = errors.New("the state of the API server went back")

// heads are the resource versions of one API server. They are shared by all clients of a
// configuration.
type heads struct {
	log  *zap.Logger
	lose func()

	mu   sync.Mutex
	read map[string]*head // by resource
	// losses counts how often the state of the server went back.
	losses int
	lost   time.Time // the last of them
	// listed is the value of losses before the last list of an informer, by what it lists. It is
	// empty until the first loss.
	listed map[string]int
	// open are the watches of informers.
	open map[*headedBody]struct{}
}

// head is the resource version of one resource at the time began.
type head struct {
	turn    chan struct{} // has an element while the resource version is being read
	version string
	began   time.Time
}

func newHeads(log *zap.Logger, lose func()) *heads {
	if lose == nil {
		lose = func() {}
	}
	return &heads{log: log, lose: lose, read: map[string]*head{}, listed: map[string]int{}, open: map[*headedBody]struct{}{}}
}

// headed lets informers list again after the state of their API server went back. It ends their
// watches, and answers the next ones with the error of a resource version that is too old, until
// they have listed.
type headed struct {
	wrapped

	heads *heads
}

// RoundTrip implements http.RoundTripper.
func (h *headed) RoundTrip(req *http.Request) (*http.Response, error) {
	query := req.URL.Query()
	of, lists := subject(req.URL.Path, query), query.Get("sendInitialEvents") == "true"
	switch {
	case !isInformers(req):
		return h.next.RoundTrip(req)
	case !isWatch(req):
		h.heads.lists(of)
		return h.next.RoundTrip(req)
	case query.Get("allowWatchBookmarks") != "true": // every informer accepts them
		return h.next.RoundTrip(req)
	}
	if lists {
		h.heads.lists(of)
	}
	losses, old := h.heads.begin(of)
	if old {
		return expired(req)
	}
	ctx, cancel := context.WithCancelCause(req.Context())
	resp, err := h.next.RoundTrip(req.WithContext(ctx))
	if err != nil {
		cancel(err)
		return nil, err
	}
	body := &headedBody{ReadCloser: resp.Body, heads: h.heads, end: cancel, ended: func() error { return context.Cause(ctx) }}
	h.heads.opened(body, losses)
	resp.Body = body
	if from := query.Get("resourceVersion"); resp.StatusCode == http.StatusOK && !lists && from != "" && from != "0" {
		current, err := h.current(req, from)
		switch {
		case err != nil:
			_ = body.Close()
			return nil, fmt.Errorf("reading the resource version of the API server: %w", err)
		case store.OlderVersion(current, from):
			_ = body.Close()
			h.heads.wentBack(req, losses, from, current)
			return expired(req)
		}
	}
	return resp, nil
}

// expired is the response of an API server to a watch from a resource version that it has no more.
func expired(req *http.Request) (*http.Response, error) {
	status := apierrors.NewResourceExpired(errWentBack.Error()).Status()
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	data, err := json.Marshal(status)
	if err != nil {
		return nil, fmt.Errorf("encoding the end of a watch: %w", err)
	}
	return &http.Response{
		Status: "410 Gone", StatusCode: http.StatusGone, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(data)), ContentLength: int64(len(data)), Request: req,
	}, nil
}

// current returns the resource version of what a watch shows, read after the call, or a moment
// before it if that suffices for the watch. It is empty if the server does not let it be read.
// Watches that begin together share a request.
func (h *headed) current(req *http.Request, from string) (string, error) {
	called, have := time.Now(), h.heads.of(req)
	select {
	case have.turn <- struct{}{}:
		defer func() { <-have.turn }()
	case <-req.Context().Done():
		return "", req.Context().Err()
	}
	if have.version != "" && (!have.began.Before(called) || called.Sub(have.began) < headLife && !store.OlderVersion(have.version, from)) {
		return have.version, nil
	}
	began := time.Now()
	version, err := h.readVersion(req)
	if err == nil && version != "" {
		have.version, have.began = version, began
	}
	return version, err
}

// readVersion reads one object of a list: the answer has the resource version of the whole list.
func (h *headed) readVersion(req *http.Request) (string, error) {
	query := url.Values{"limit": {headLimit}}
	if fields := req.URL.Query().Get("fieldSelector"); strings.Contains(fields, metav1.ObjectNameField+"=") {
		query.Set("fieldSelector", fields) // the right to list may be that of one name
	}
	ask := req.Clone(req.Context())
	ask.URL.RawQuery = query.Encode()
	ask.Header.Set("Accept", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1")
	resp, err := h.next.RoundTrip(ask)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	switch {
	case isAway(resp.StatusCode):
		drain(resp.Body)
		return "", fmt.Errorf("the API server answers with status %d", resp.StatusCode)
	case resp.StatusCode != http.StatusOK:
		drain(resp.Body)
		return "", nil
	}
	var list metav1.PartialObjectMetadataList
	_ = json.NewDecoder(io.LimitReader(resp.Body, longestObject)).Decode(&list) // what is no list has no resource version
	if len(list.ResourceVersion) > longestVersion {
		return "", nil
	}
	return list.ResourceVersion, nil
}

// of returns what is known of the resource of a request.
func (h *heads) of(req *http.Request) *head {
	h.mu.Lock()
	defer h.mu.Unlock()
	name := resourceOf(req.URL.Path)
	if h.read[name] == nil {
		h.read[name] = &head{turn: make(chan struct{}, 1)}
	}
	return h.read[name]
}

// lists records that an informer lists.
func (h *heads) lists(of string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.losses == 0 {
		return
	}
	if len(h.listed) >= mostTallies {
		clear(h.listed) // informers list once more
	}
	h.listed[of] = h.losses
}

// begin returns the number of losses, and whether an informer has to list before it watches.
func (h *heads) begin(of string) (losses int, old bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.losses, h.listed[of] < h.losses
}

// opened records a watch that has begun at that number of losses.
func (h *heads) opened(body *headedBody, losses int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.open[body] = struct{}{}
	if h.losses > losses {
		body.end(errWentBack)
	}
}

func (h *heads) closed(body *headedBody) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.open, body)
}

// wentBack ends all watches of the server, unless that was done after the watch began that shows
// it: all watches show the same loss.
func (h *heads) wentBack(req *http.Request, losses int, from, current string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.losses > losses || h.losses > 0 && time.Since(h.lost) < lossPeriod {
		return
	}
	h.lose()
	h.losses++
	h.lost = time.Now()
	clear(h.listed)
	for body := range h.open {
		body.end(errWentBack)
	}
	h.log.Warn("the state of an API server went back, as after the restore of a backup; all that is watched there is listed again",
		zap.String("host", req.URL.Host), zap.String("path", req.URL.Path), zap.String("watched", from), zap.String("current", current))
}

// headedBody is the body of a watch that may be ended.
type headedBody struct {
	io.ReadCloser

	heads *heads
	end   context.CancelCauseFunc
	ended func() error
}

// Read implements io.Reader. A watch that was ended ends as one whose time is over.
func (b *headedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && errors.Is(b.ended(), errWentBack) {
		err = io.EOF
	}
	return n, err
}

// Close implements io.Closer.
func (b *headedBody) Close() error {
	b.heads.closed(b)
	defer b.end(context.Canceled)
	return b.ReadCloser.Close()
}
