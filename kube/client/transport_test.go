package client

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/liqod/liqod/kube/kubetest"
)

// roundTrip is a server in the form of a function. It needs no network, so that tests can
// use a fake clock.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

func answer(code int, body io.Reader) *http.Response {
	return &http.Response{StatusCode: code, Header: http.Header{}, Body: io.NopCloser(body)}
}

func request(t *testing.T, method, path string) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, "https://host"+path, nil)
	require.NoError(t, err)
	return req
}

const (
	watchPath = "/api/v1/pods?watch=true"
	listPath  = "/api/v1/pods?resourceVersion=0"
	getPath   = "/api/v1/namespaces/n/pods/p"
)

func silent(req *http.Request) (*http.Response, error) {
	<-req.Context().Done()
	return nil, req.Context().Err()
}

func TestDeadlineOfASilentServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := &deadline{wrapped: wrapped{roundTrip(silent)}, limit: requestDeadline}
		start := time.Now()
		_, err := rt.RoundTrip(request(t, "GET", getPath))
		require.Equal(t, requestDeadline, time.Since(start))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.EqualError(t, err, "API server host was silent for 10s")
		var netErr net.Error
		require.ErrorAs(t, err, &netErr)
		require.True(t, netErr.Timeout())
	})
}

func TestDeadlineSparesStreamsAndTheCallersOwnEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := &deadline{wrapped: wrapped{roundTrip(silent)}, limit: requestDeadline}
		for _, path := range []string{watchPath, getPath + "/log?follow=true", getPath + "/exec"} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			start := time.Now()
			_, err := rt.RoundTrip(request(t, "GET", path).WithContext(ctx))
			require.Equal(t, time.Hour, time.Since(start), path)
			require.Equal(t, context.DeadlineExceeded, err)
			cancel()
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := rt.RoundTrip(request(t, "GET", getPath).WithContext(ctx))
		require.Equal(t, context.Canceled, err)
	})
}

// drip is a response body with one byte per period. After its last byte it blocks until
// ctx is done, like a server that stops sending.
type drip struct {
	ctx    context.Context
	period time.Duration
	bytes  int
}

func (d *drip) Read(p []byte) (int, error) {
	if d.bytes == 0 {
		<-d.ctx.Done()
		return 0, d.ctx.Err()
	}
	select {
	case <-time.After(d.period):
	case <-d.ctx.Done():
		return 0, d.ctx.Err()
	}
	d.bytes--
	return copy(p, "x"), nil
}

func TestDeadlineCoversTheBody(t *testing.T) {
	for name, tc := range map[string]struct {
		period time.Duration
		bytes  int
		want   time.Duration
	}{
		"a body that stops":        {time.Second, 3, 13 * time.Second},
		"a body that is too slow":  {11 * time.Second, 3, 10 * time.Second},
		"a body that feeds crumbs": {9 * time.Second, 1000, 60 * time.Second},
		"a good answer":            {},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rt := &deadline{limit: requestDeadline, wrapped: wrapped{roundTrip(func(req *http.Request) (*http.Response, error) {
					if tc.want == 0 {
						return answer(200, strings.NewReader("hello")), nil
					}
					return answer(200, &drip{ctx: req.Context(), period: tc.period, bytes: tc.bytes}), nil
				})}}
				start := time.Now()
				resp, err := rt.RoundTrip(request(t, "GET", getPath))
				require.NoError(t, err)
				got, err := io.ReadAll(resp.Body)
				if tc.want == 0 {
					require.NoError(t, err)
					require.Equal(t, "hello", string(got))
				} else {
					require.ErrorIs(t, err, context.DeadlineExceeded)
				}
				require.Equal(t, tc.want, time.Since(start))
				require.NoError(t, resp.Body.Close())
			})
		})
	}
}

func TestPatienceOutlastsAnOutage(t *testing.T) {
	const outage = 10 * time.Minute
	for name, away := range map[string]func() (*http.Response, error){
		"refused":    func() (*http.Response, error) { return nil, errors.New("connection refused") },
		"failing":    func() (*http.Response, error) { return answer(500, strings.NewReader("x")), nil },
		"overloaded": func() (*http.Response, error) { return answer(429, strings.NewReader("x")), nil },
	} {
		for _, path := range []string{watchPath, listPath} {
			t.Run(name+" "+path, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					start, attempts := time.Now(), 0
					rt := patient(roundTrip(func(*http.Request) (*http.Response, error) {
						attempts++
						if time.Since(start) < outage {
							return away()
						}
						return answer(200, strings.NewReader("ok")), nil
					}))
					resp, err := rt.RoundTrip(request(t, "GET", path))
					require.NoError(t, err)
					require.Equal(t, 200, resp.StatusCode)
					require.Less(t, time.Since(start)-outage, 2*time.Second)
					require.InDelta(t, 600, attempts, 150)
				})
			})
		}
	}
}

func patient(next http.RoundTripper) *patience {
	return &patience{wrapped: wrapped{next}, log: zap.NewNop()}
}

func TestPatienceHasLimits(t *testing.T) {
	for name, tc := range map[string]struct {
		method, path string
		code         int
	}{
		"a live read":          {"GET", getPath, 500},
		"a live list":          {"GET", "/api/v1/pods", 503},
		"a write":              {"POST", listPath, 500},
		"a refusal":            {"GET", watchPath, 403},
		"a version too old":    {"GET", watchPath, 410},
		"a watch that started": {"GET", watchPath, 200},
	} {
		t.Run(name, func(t *testing.T) {
			calls := 0
			rt := patient(roundTrip(func(*http.Request) (*http.Response, error) {
				calls++
				return answer(tc.code, strings.NewReader("")), nil
			}))
			resp, err := rt.RoundTrip(request(t, tc.method, tc.path))
			require.NoError(t, err)
			require.Equal(t, tc.code, resp.StatusCode)
			require.Equal(t, 1, calls)
		})
	}
}

// TestPatienceDoesAsTheServerAsks: for as long as its caller waits.
func TestPatienceDoesAsTheServerAsks(t *testing.T) {
	for asked, want := range map[string]time.Duration{"3": 3 * time.Second, "3600": longestRetryAfter, "away": 90 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			calls := 0
			rt := patient(roundTrip(func(*http.Request) (*http.Response, error) {
				if asked == "away" {
					return nil, errors.New("away")
				}
				calls++
				if calls > 1 {
					return answer(200, strings.NewReader("")), nil
				}
				resp := answer(429, strings.NewReader(""))
				resp.Header.Set("Retry-After", asked)
				return resp, nil
			}))
			ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
			defer cancel()
			start := time.Now()
			_, err := rt.RoundTrip(request(t, "GET", watchPath).WithContext(ctx))
			require.Equal(t, asked == "away", err != nil, err)
			require.LessOrEqual(t, time.Since(start), want)
			if err == nil {
				require.Equal(t, want, time.Since(start))
			}
		})
	}
}

type gate struct{ err error }

func (g *gate) Allow() error { return g.err }

func TestGateRefusesWritesOnly(t *testing.T) {
	var sent int
	closed := errors.New("closed")
	g := &gate{err: closed}
	rt := &gated{gate: g, wrapped: wrapped{roundTrip(func(*http.Request) (*http.Response, error) {
		sent++
		return answer(200, strings.NewReader("")), nil
	})}}
	for _, method := range []string{"POST", "PUT", "PATCH", "DELETE"} {
		_, err := rt.RoundTrip(request(t, method, getPath))
		require.ErrorIs(t, err, closed)
	}
	require.Zero(t, sent)
	_, err := rt.RoundTrip(request(t, "GET", getPath))
	require.NoError(t, err)
	_, err = rt.RoundTrip(request(t, "POST", getPath+"/exec"))
	require.NoError(t, err)
	g.err = nil
	_, err = rt.RoundTrip(request(t, "POST", getPath))
	require.NoError(t, err)
	require.Equal(t, 3, sent)
}

func TestWritesInFlightAreCapped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var now, most atomic.Int32
		rt := &capped{slots: newSlots(3), wrapped: wrapped{roundTrip(func(req *http.Request) (*http.Response, error) {
			if req.Method != "GET" {
				most.Store(max(most.Load(), now.Add(1)))
				defer now.Add(-1)
			}
			time.Sleep(time.Second) // fake time
			return answer(200, strings.NewReader("")), nil
		})}}
		start := time.Now()
		var wg sync.WaitGroup
		for range 12 {
			wg.Go(func() { _, _ = rt.RoundTrip(request(t, "POST", getPath)) })
			wg.Go(func() { _, _ = rt.RoundTrip(request(t, "GET", getPath)) })
		}
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := rt.RoundTrip(request(t, "POST", getPath).WithContext(ctx))
		require.ErrorIs(t, err, context.Canceled)
		wg.Wait()
		require.Equal(t, int32(3), most.Load())
		require.Equal(t, 4*time.Second, time.Since(start))
	})
}

type counts struct {
	mu   sync.Mutex
	seen map[string]int
}

func (c *counts) Request(verb, code string, _ time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen[verb+" "+code]++
}

func TestObserverSeesAttempts(t *testing.T) {
	c := &counts{seen: map[string]int{}}
	for _, err := range []error{nil, errors.New("x"), &timeoutError{}, fmt.Errorf("x: %w", context.Canceled)} {
		rt := &observed{observer: c, wrapped: wrapped{roundTrip(func(*http.Request) (*http.Response, error) {
			if err != nil {
				return nil, err
			}
			return answer(201, strings.NewReader("")), nil
		})}}
		_, _ = rt.RoundTrip(request(t, "POST", "/api/v1/namespaces/n/pods"))
	}
	require.Equal(t, map[string]int{"create 201": 1, "create error": 1, "create timeout": 1, "create canceled": 1}, c.seen)
}

// TestHardenedClient sends requests through client-go and TLS to a server whose first
// answers are failures.
func TestHardenedClient(t *testing.T) {
	var failures atomic.Int32
	failures.Store(1)
	agents := make(chan string, 100)
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		agents <- r.UserAgent() + " " + r.Header.Get("Accept")
		if r.URL.Query().Get("watch") != "" && failures.Add(-1) >= 0 {
			http.Error(w, "starting", http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Query().Get("watch") != "" {
			_, _ = io.WriteString(w, `{"type":"ADDED","object":{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p"}}}`+"\n")
			return
		}
		_, _ = io.WriteString(w, `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p"}}`)
	}))
	t.Cleanup(server.Close)
	c := &counts{seen: map[string]int{}}
	base := &rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
	g := &gate{err: errors.New("not leading")}
	hard := Harden(base, Settings{UserAgent: UserAgent("prog", "v1", "worker"), Observer: c, Gate: g, MaxWrites: 2, Log: zap.NewNop()})
	require.Nil(t, base.WrapTransport)
	clients, err := kubernetes.NewForConfig(Core(hard))
	require.NoError(t, err)
	pods := clients.CoreV1().Pods("n")

	w, err := pods.Watch(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Equal(t, "p", (<-w.ResultChan()).Object.(*corev1.Pod).Name)
	w.Stop()
	kubetest.Get(t, pods, "p")
	_, err = pods.Create(t.Context(), &corev1.Pod{}, metav1.CreateOptions{})
	require.ErrorIs(t, err, g.err)
	g.err = nil
	kubetest.Create(t, pods, &corev1.Pod{})
	require.Equal(t, map[string]int{"watch 503": 1, "watch 200": 1, "get 200": 1, "create 200": 1}, c.seen)
	require.Equal(t, "prog/v1 worker application/vnd.kubernetes.protobuf,application/json", <-agents)
}

func TestFirstByteIsBounded(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	conn, err := (&dialer{firstByte: 20 * time.Millisecond}).dial(t.Context(), "tcp", listener.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	other, err := listener.Accept()
	require.NoError(t, err)
	t.Cleanup(func() { _ = other.Close() })

	// Nothing comes.
	_, err = conn.Read(make([]byte, 1))
	var netErr net.Error
	require.ErrorAs(t, err, &netErr)
	require.True(t, netErr.Timeout())
	// The first byte lifts the deadline.
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(time.Minute)))
	_, err = other.Write([]byte("ab"))
	require.NoError(t, err)
	_, err = conn.Read(make([]byte, 1))
	require.NoError(t, err)
	require.True(t, conn.(*greeted).heard.Load())

	require.NoError(t, listener.Close())
	_, err = (&dialer{}).dial(t.Context(), "tcp", listener.Addr().String())
	require.Error(t, err, "nobody listens")
}

func TestHTTP2PingsLeaveTheUsersChoice(t *testing.T) {
	t.Setenv("HTTP2_PING_TIMEOUT_SECONDS", "7")
	t.Setenv("HTTP2_READ_IDLE_TIMEOUT_SECONDS", "")
	require.NoError(t, SetHTTP2Pings())
	require.Equal(t, "7", os.Getenv("HTTP2_PING_TIMEOUT_SECONDS"))
	require.Equal(t, "4", os.Getenv("HTTP2_READ_IDLE_TIMEOUT_SECONDS"))
}

func TestStripManagedFields(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "m"}}}}
	got, err := StripManagedFields(pod)
	require.NoError(t, err)
	require.Equal(t, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}}, got)
	got, err = StripManagedFields("no object")
	require.NoError(t, err)
	require.Equal(t, "no object", got)
}

func TestLifeOf(t *testing.T) {
	t.Parallel()
	from, until := time.Unix(1_700_000_000, 0), time.Unix(1_700_086_400, 0)
	certificate, _ := credentials(t, "peer", 1, from, until)
	token := func(claims string) string {
		return "e30." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".c2ln"
	}
	for name, tc := range map[string]struct {
		cfg rest.Config
		ok  bool
	}{
		"a certificate":          {rest.Config{TLSClientConfig: rest.TLSClientConfig{CertData: certificate}}, true},
		"a token":                {rest.Config{BearerToken: token(`{"iat":1700000000,"exp":1700086400}`)}, true},
		"a token without an end": {rest.Config{BearerToken: token(`{"iat":1700000000}`)}, false},
		"a negative end":         {rest.Config{BearerToken: token(`{"exp":-1}`)}, false},
		"an end that is a word":  {rest.Config{BearerToken: token(`{"exp":"never"}`)}, false},
		"an end beyond integers": {rest.Config{BearerToken: token(`{"exp":1e400}`)}, false},
		"no JSON":                {rest.Config{BearerToken: token(`{`)}, false},
		"no base64":              {rest.Config{BearerToken: "a.!.c"}, false},
		"an opaque token":        {rest.Config{BearerToken: "secret"}, false},
		"no certificate":         {rest.Config{TLSClientConfig: rest.TLSClientConfig{CertData: []byte("x")}}, false},
		"nothing":                {rest.Config{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			have := LifeOf(&tc.cfg)
			if !tc.ok {
				require.Equal(t, Life{}, have)
				return
			}
			require.True(t, from.Equal(have.From) && until.Equal(have.Until), "%v", have)
		})
	}
}

func TestRequestKinds(t *testing.T) {
	for path, tc := range map[string]struct {
		method                          string
		verb                            string
		watch, stream, write, informers bool
	}{
		"/api/v1/pods?watch=true":                                            {method: "GET", verb: "watch", watch: true, informers: true},
		"/api/v1/namespaces/n/pods?resourceVersion=0":                        {method: "GET", verb: "list", informers: true},
		"/api/v1/namespaces/n/pods":                                          {method: "GET", verb: "list"},
		"/api/v1/namespaces/n/pods/p?resourceVersion=0":                      {method: "GET", verb: "get"},
		"/apis/core.liqo.io/v1beta1/foreignclusters/f":                       {method: "GET", verb: "get"},
		"/apis/core.liqo.io/v1beta1/foreignclusters":                         {method: "GET", verb: "list"},
		"/prefix/c-1/apis/apps/v1/namespaces/n/deployments/d/status":         {method: "PUT", verb: "update", write: true},
		"/api/v1/namespaces/n":                                               {method: "DELETE", verb: "delete", write: true},
		"/api/v1/namespaces/n/finalize":                                      {method: "PUT", verb: "update", write: true},
		"/api/v1/namespaces/n/pods/p/log":                                    {method: "GET", verb: "connect", stream: true},
		"/api/v1/namespaces/n/pods/p/exec":                                   {method: "POST", verb: "connect", stream: true},
		"/api/v1/namespaces/n/pods/p/portforward":                            {method: "GET", verb: "connect", stream: true},
		"/api/v1/nodes/n/proxy/stats/summary":                                {method: "GET", verb: "connect", stream: true},
		"/api/v1/namespaces/pods/configmaps/exec":                            {method: "PUT", verb: "update", write: true},
		"/api/v1/namespaces/n/configmaps/log":                                {method: "GET", verb: "get"},
		"/apis/x.io/v1/namespaces/n/pods/p/exec":                             {method: "POST", verb: "create", write: true},
		"/api/v1/namespaces/n/pods/p/status":                                 {method: "PATCH", verb: "patch", write: true},
		"/api/v1/pods?watch=1&sendInitialEvents=true&allowWatchBookmarks=on": {method: "GET", verb: "watch", watch: true, informers: true},
		"/version": {method: "GET", verb: "list"},
		"/api":     {method: "GET", verb: "list"},
		"/":        {method: "GET", verb: "list"},
	} {
		t.Run(tc.method+" "+path, func(t *testing.T) {
			req, err := http.NewRequestWithContext(t.Context(), tc.method, "https://host"+path, nil)
			require.NoError(t, err)
			require.Equal(t, tc.verb, verbOf(req))
			require.Equal(t, tc.watch, isWatch(req), "watch")
			require.Equal(t, tc.stream, isStream(req), "stream")
			require.Equal(t, tc.write, isWrite(req), "write")
			require.Equal(t, tc.informers, isInformers(req), "informers")
		})
	}
}
