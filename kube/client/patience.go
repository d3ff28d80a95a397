package client

import (
	"bytes"
	"context"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	retryPeriod = time.Second
	// A server that asks for more patience than this gets no more.
	longestRetryAfter = 5 * time.Second
	drainLimit        = 64 << 10
)

// patience repeats informers' reads while the server is away. client-go would wait
// between attempts up to half a minute and more: too long after an outage.
type patience struct {
	wrapped

	log *zap.Logger
}

func newPatience(next http.RoundTripper, log *zap.Logger) *patience {
	if log == nil {
		log = zap.NewNop()
	}
	return &patience{wrapped: wrapped{next}, log: log}
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
		if err := sleep(req.Context(), wait); err != nil {
			return nil, err
		}
	}
}

// isInformers tells an informer's reads from others: it watches, and lists from a
// resource version. A live read has none.
func isInformers(req *http.Request) bool {
	if req.Method != http.MethodGet {
		return false
	}
	return isWatch(req) || req.URL.Query().Get("resourceVersion") != "" && targetOf(req.URL.Path).name == ""
}

func isAway(code int) bool {
	return code == http.StatusTooManyRequests || code >= http.StatusInternalServerError
}

// fromTheFuture reports whether the server refuses a resource version that it has not
// reached: its etcd was restored. The informer must hear it, to begin anew.
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

// drain lets the connection be used again.
func drain(body io.ReadCloser) {
	_, _ = io.CopyN(io.Discard, body, drainLimit)
	_ = body.Close()
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
