package kubelet

import (
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/liqod/liqod/kube/serve"
)

// logs streams a container's log as it comes: nothing is held back.
func (s *Server) logs(w http.ResponseWriter, r *http.Request) {
	opts, err := logOptions(r.URL.Query())
	if err != nil {
		s.fail(w, r, err)
		return
	}
	target, err := s.target(r)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	opts.Container = target.container
	stream, err := target.client.Get().Namespace(target.namespace).Resource("pods").Name(target.pod).SubResource("log").
		VersionedParams(opts, scheme.ParameterCodec).Stream(r.Context())
	if err != nil {
		s.fail(w, r, remoteError(err))
		return
	}
	defer func() { _ = stream.Close() }() // it was only read
	w.Header().Set("Content-Type", "text/plain")
	out := flushing{w, http.NewResponseController(w)}
	if err := errors.Join(serve.Unbounded(w), out.ctl.Flush()); err != nil { // a follower of a silent log learns that it is heard
		return
	}
	if _, err := io.Copy(out, stream); err != nil {
		s.cfg.Log.Debug("log stream broke", zap.String("path", r.URL.Path), zap.Error(err))
		// The reader must not take a cut log for a whole one.
		panic(http.ErrAbortHandler)
	}
}

// flushing sends every chunk at once.
type flushing struct {
	io.Writer
	ctl *http.ResponseController
}

func (f flushing) Write(p []byte) (int, error) {
	n, err := f.Writer.Write(p)
	if err != nil {
		return n, err
	}
	return n, f.ctl.Flush()
}

// logOptions reads the parameters of a log request. Unknown ones are ignored, as a
// kubelet does: a newer API server may send them.
func logOptions(query url.Values) (*corev1.PodLogOptions, error) {
	p := parameters{query: query}
	opts := &corev1.PodLogOptions{
		Follow:       p.flag("follow"),
		Previous:     p.flag("previous"),
		Timestamps:   p.flag("timestamps"),
		TailLines:    p.number("tailLines", 0),
		SinceSeconds: p.number("sinceSeconds", 1),
		LimitBytes:   p.number("limitBytes", 1),
		SinceTime:    p.time("sinceTime"),
		Stream:       p.stream("stream"),
	}
	if p.err == nil && opts.SinceSeconds != nil && opts.SinceTime != nil {
		return nil, badRequest("sinceSeconds and sinceTime exclude each other: give one")
	}
	return opts, p.err
}

// parameters reads a query and keeps the first error.
type parameters struct {
	query url.Values
	err   error
}

func (p *parameters) value(name string) (string, bool) {
	value := p.query.Get(name)
	return value, value != ""
}

func (p *parameters) refuse(name, value, accepted string) {
	if p.err == nil {
		p.err = badRequest("%s=%q is not accepted: it must be %s", name, value, accepted)
	}
}

func (p *parameters) flag(name string) bool {
	value, ok := p.value(name)
	if !ok {
		return false
	}
	on, err := strconv.ParseBool(value)
	if err != nil {
		p.refuse(name, value, "true or false")
	}
	return on
}

func (p *parameters) number(name string, least int64) *int64 {
	value, ok := p.value(name)
	if !ok {
		return nil
	}
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil || n < least {
		p.refuse(name, value, "a whole number of at least "+strconv.FormatInt(least, 10))
		return nil
	}
	return &n
}

func (p *parameters) time(name string) *metav1.Time {
	value, ok := p.value(name)
	if !ok {
		return nil
	}
	t, err := time.Parse(time.RFC3339, value)
	if err != nil {
		p.refuse(name, value, "a time like 2006-01-02T15:04:05Z")
		return nil
	}
	return &metav1.Time{Time: t}
}

// stream returns nil for all streams, which is what older API servers know.
func (p *parameters) stream(name string) *string {
	value, ok := p.value(name)
	switch {
	case !ok || value == corev1.LogStreamAll:
		return nil
	case value != corev1.LogStreamStdout && value != corev1.LogStreamStderr:
		p.refuse(name, value, "All, Stdout or Stderr")
		return nil
	}
	return &value
}
