package client

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"
)

// Observer receives the result of every attempt of a request, for metrics. Its method is
// called from many goroutines.
type Observer interface {
	// Request reports that an attempt of verb (get, list, watch, create, update, patch,
	// delete, connect) ended after d. code is the HTTP status, "timeout", "canceled" or
	// "error". The body of the response may not have arrived yet.
	Request(verb, code string, d time.Duration)
}

type observed struct {
	wrapped

	observer Observer
}

// RoundTrip implements http.RoundTripper.
func (o *observed) RoundTrip(req *http.Request) (*http.Response, error) {
	start := time.Now()
	resp, err := o.next.RoundTrip(req)
	o.observer.Request(verbOf(req), codeOf(resp, err), time.Since(start))
	return resp, err
}

func codeOf(resp *http.Response, err error) string {
	switch {
	case err == nil:
		return strconv.Itoa(resp.StatusCode)
	case errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	case errors.Is(err, context.Canceled):
		return "canceled"
	}
	return "error"
}
