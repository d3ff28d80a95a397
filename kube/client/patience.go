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
