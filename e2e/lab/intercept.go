package lab

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/kubernetes/scheme"
)

// Request is what the front sees of a request before it is forwarded.
type Request struct {
	// Verb is that of Kubernetes: create, update, patch, delete, deletecollection, watch.
	Verb string
	// Group, Resource and Subresource say what it is about.
	Group, Resource, Subresource string
	// Namespace and Name of the object; the name of one that is created, too.
	Namespace, Name string
	// User is that of the client's certificate, or of the service account whose token it
	// carries; "" without either.
	User string
	// UserAgent of the client.
	UserAgent string
	// Body as it was sent; empty for a watch.
	Body []byte
}

// Fate is what becomes of a write. The zero value lets it pass.
type Fate struct {
	// Before is called while the request is held: it is forwarded when Before has returned.
	Before func()
	// Unsent has the request aborted, without an answer, instead of forwarded.
	Unsent bool
	// After is called when the API server has answered: while the answer is held if it is to
	// be lost, and else, concurrently, when it is on its way.
	After func()
	// Unanswered has the answer thrown away and the request aborted.
	Unanswered bool
}

func (f Fate) passes() bool {
	return f.Before == nil && f.After == nil && !f.Unsent && !f.Unanswered
}

// Intercept has decide called, concurrently, for each write from now on; nil ends that.
// A client that goes away while its write is held takes it back, unless the fate has it
// unanswered: then the write is done.
func (f *Front) Intercept(decide func(Request) Fate) { f.decide.Store(&decide) }

// Answer has choose called, concurrently, for each request from now on, except for upgrades.
// The handler that it returns answers instead of the API server, without the body of the
// request in Request; with nil the request is passed on. A nil choose ends that.
func (f *Front) Answer(choose func(Request) http.Handler) { f.choose.Store(&choose) }

// other is the handler that answers a request instead of the API server, nil for none.
func (f *Front) other(request *http.Request) http.Handler {
	choose := f.choose.Load()
	if choose == nil || *choose == nil || request.Header.Get("Upgrade") != "" {
		return nil
	}
	return (*choose)(describe(request, nil))
}

// HoldWatches lets nothing through on the watches that match, new ones included, until
// the returned function is called; what they would have told follows then. All else
// passes. Only one hold is in force.
func (f *Front) HoldWatches(match func(Request) bool) (release func()) {
	h := &hold{match: match, over: make(chan struct{})}
	f.hold.Store(h)
	return func() {
		if f.hold.CompareAndSwap(h, nil) {
			close(h.over)
		}
	}
}

type hold struct {
	match func(Request) bool
	over  chan struct{}
}

// isWrite leaves out what becomes another protocol: exec, attach and port-forward.
func isWrite(request *http.Request) bool {
	methods := []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete}
	return request.Header.Get("Upgrade") == "" && slices.Contains(methods, request.Method)
}

// intercept forwards a write, or not, as decide says.
func (f *Front) intercept(w http.ResponseWriter, request *http.Request, decide func(Request) Fate) {
	body, err := io.ReadAll(request.Body)
	if err != nil {
		panic(http.ErrAbortHandler) // the client went away
	}
	request.Body = io.NopCloser(bytes.NewReader(body))
	fate := decide(describe(request, body))
	if fate.passes() {
		f.proxy.ServeHTTP(w, request)
		return
	}
	request = request.WithContext(context.WithoutCancel(request.Context()))
	if fate.Before != nil {
		fate.Before()
	}
	if fate.Unsent {
		panic(http.ErrAbortHandler)
	}
	if fate.Unanswered {
		f.proxy.ServeHTTP(nowhere{}, request)
		if fate.After != nil {
			fate.After()
		}
		panic(http.ErrAbortHandler)
	}
	f.proxy.ServeHTTP(w, request)
	if fate.After != nil {
		// An answer is complete when its handler has returned.
		go fate.After()
	}
}

// watch forwards a watch through the holds to come.
func (f *Front) watch(w http.ResponseWriter, request *http.Request) {
	f.proxy.ServeHTTP(&heldWriter{ResponseWriter: w, front: f, about: describe(request, nil), gone: request.Context().Done()}, request)
}

func isWatch(request *http.Request) bool {
	watch := request.URL.Query().Get("watch")
	return request.Method == http.MethodGet && (watch == "true" || watch == "1")
}

// heldWriter writes what is not held.
type heldWriter struct {
	http.ResponseWriter

	front *Front
	about Request
	gone  <-chan struct{}
}

var errClientGone = errors.New("the client of a held watch is gone")

// Write waits for the end of a hold of this watch.
func (w *heldWriter) Write(b []byte) (int, error) {
	if h := w.front.hold.Load(); h != nil && h.match(w.about) {
		select {
		case <-h.over:
		case <-w.gone:
			return 0, errClientGone
		}
	}
	return w.ResponseWriter.Write(b)
}

// Unwrap is for http.ResponseController.
func (w *heldWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// nowhere throws an answer away.
type nowhere struct{}

// Header implements http.ResponseWriter.
func (nowhere) Header() http.Header { return http.Header{} }

// Write implements http.ResponseWriter.
func (nowhere) Write(b []byte) (int, error) { return len(b), nil }

// WriteHeader implements http.ResponseWriter.
func (nowhere) WriteHeader(int) {}

// describe tells what a request is about. What cannot be read stays empty.
func describe(request *http.Request, body []byte) Request {
	out := Request{User: tokenUser(request.Header.Get("Authorization")), UserAgent: request.UserAgent(), Body: body}
	if certificate := certificateOf(request); certificate != nil {
		out.User = certificate.Subject.CommonName
	}
	info, err := requestInfo().NewRequestInfo(request)
	if err != nil {
		return out
	}
	out.Verb, out.Group, out.Resource, out.Subresource = info.Verb, info.APIGroup, info.Resource, info.Subresource
	out.Namespace, out.Name = info.Namespace, info.Name
	if out.Name == "" && info.Verb == "create" {
		out.Name = createdName(body)
	}
	return out
}

func requestInfo() *apirequest.RequestInfoFactory {
	return &apirequest.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}
}

func createdName(body []byte) string {
	if obj, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil); err == nil {
		if accessor, err := meta.Accessor(obj); err == nil {
			return accessor.GetName()
		}
	}
	var partial metav1.PartialObjectMetadata
	if json.Unmarshal(body, &partial) != nil {
		return ""
	}
	return partial.Name
}

// tokenUser reads the subject of a token, which the API server will verify.
func tokenUser(authorization string) string {
	parts := strings.Split(strings.TrimPrefix(authorization, "Bearer "), ".")
	if len(parts) != 3 {
		return ""
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return ""
	}
	var claims struct {
		Subject string `json:"sub"`
	}
	if json.Unmarshal(payload, &claims) != nil {
		return ""
	}
	return claims.Subject
}
