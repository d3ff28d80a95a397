package dashboard

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/liqod/liqod/roles/cmd/report"
)

// must returns the result of a call that does not fail.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// still is a source that always answers the same.
type still struct {
	snapshot report.Snapshot
	events   map[string][]corev1.Event
	metrics  string
	err      error
}

func (s *still) Observe(context.Context) (*report.Snapshot, error) {
	if s.err != nil {
		return nil, s.err
	}
	out := s.snapshot
	return &out, nil
}

func (s *still) Events(_ context.Context, namespace string) ([]corev1.Event, bool, error) {
	if s.events == nil {
		return nil, false, errors.New("events is forbidden")
	}
	return s.events[namespace], len(s.events[namespace]) > 2, nil
}

func (s *still) Metrics(context.Context, *corev1.Pod) ([]byte, error) {
	return []byte(s.metrics), s.err
}

// served runs a server until the test ends.
func served(t *testing.T, source Source) (server *Server, base, token string) {
	t.Helper()
	server = must(Listen(t.Context(), Config{Source: source, Every: time.Second, Timeout: time.Minute}))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-ended)
	})
	base, token, found := strings.Cut(server.URL(), "/#token=")
	require.True(t, found)
	return server, base, token
}

func ask(t *testing.T, method, url, host string, header http.Header) *http.Response {
	t.Helper()
	request := must(http.NewRequestWithContext(t.Context(), method, url, http.NoBody))
	request.Host = host
	for key, values := range header {
		request.Header[key] = values
	}
	answer := must((&http.Transport{DisableKeepAlives: true}).RoundTrip(request))
	t.Cleanup(func() { _ = answer.Body.Close() })
	return answer
}

func bearer(token string) http.Header { return http.Header{"Authorization": {"Bearer " + token}} }

// A site that a browser visits can name this server, by its own name (DNS rebinding) or by the
// address, and learns nothing.
func TestStrangersAreRefused(t *testing.T) {
	_, base, token := served(t, &still{})
	own := strings.TrimPrefix(base, "http://")
	for name, tc := range map[string]struct {
		method, path, host string
		header             http.Header
		want               int
	}{
		"the page":                       {"GET", "/", own, nil, 200},
		"by the name of the machine":     {"GET", "/", "localhost:9099", nil, 200},
		"through a tunnel":               {"GET", "/", "127.0.0.1:8080", nil, 200},
		"without a port":                 {"GET", "/", "localhost", nil, 200},
		"its script":                     {"GET", "/page.js", own, nil, 200},
		"its style":                      {"GET", "/page.css", own, nil, 200},
		"another name":                   {"GET", "/", "evil.example", nil, 403},
		"another name and the port":      {"GET", "/state", "evil.example:9099", bearer(token), 403},
		"a name that begins the same":    {"GET", "/", "localhost.evil.example", nil, 403},
		"a name that ends the same":      {"GET", "/", "evil-localhost", nil, 403},
		"an address of the network":      {"GET", "/", "192.168.1.7:9099", nil, 403},
		"every address":                  {"GET", "/", "0.0.0.0:9099", nil, 403},
		"no token":                       {"GET", "/state", own, nil, 401},
		"a wrong token":                  {"GET", "/state", own, bearer(token[1:] + "A"), 401},
		"a part of the token":            {"GET", "/state", own, bearer(token[:len(token)-1]), 401},
		"an empty token":                 {"GET", "/state", own, bearer(""), 401},
		"the token as a password":        {"GET", "/state", own, http.Header{"Authorization": {"Basic " + token}}, 401},
		"the token in the address":       {"GET", "/state?token=" + token, own, nil, 401},
		"the token in a cookie":          {"GET", "/state", own, http.Header{"Cookie": {"token=" + token}}, 401},
		"another site asks beforehand":   {"OPTIONS", "/state", own, http.Header{"Origin": {"https://evil.example"}, "Access-Control-Request-Headers": {"authorization"}}, 405},
		"writing":                        {"POST", "/state", own, bearer(token), 405},
		"deleting":                       {"DELETE", "/", own, bearer(token), 405},
		"a file that is not of the page": {"GET", "/server.go", own, nil, 404},
		"a path out of the page":         {"GET", "/../server.go", own, nil, 404},
		"the folder":                     {"GET", "/page/index.html", own, nil, 404},
	} {
		t.Run(name, func(t *testing.T) {
			answer := ask(t, tc.method, base+tc.path, tc.host, tc.header)
			require.Equal(t, tc.want, answer.StatusCode)
			for key := range answer.Header {
				require.False(t, strings.HasPrefix(key, "Access-Control-"), key)
			}
			require.Empty(t, answer.Cookies())
			require.Contains(t, answer.Header.Get("Content-Security-Policy"), "default-src 'none'")
			require.Contains(t, answer.Header.Get("Content-Security-Policy"), "frame-ancestors 'none'")
			require.NotContains(t, answer.Header.Get("Content-Security-Policy"), "unsafe")
			require.Equal(t, "nosniff", answer.Header.Get("X-Content-Type-Options"))
			require.Equal(t, "no-store", answer.Header.Get("Cache-Control"))
			body := must(io.ReadAll(answer.Body))
			require.NotContains(t, string(body), token)
		})
	}
}

// Only this machine reaches the port, and no two runs have the same token.
func TestListen(t *testing.T) {
	server := must(Listen(t.Context(), Config{}))
	t.Cleanup(func() { _ = server.Close() })
	require.Regexp(t, `^http://127\.0\.0\.1:\d+/#token=[A-Z2-7]{26,}$`, server.URL())
	other := must(Listen(t.Context(), Config{}))
	t.Cleanup(func() { _ = other.Close() })
	require.NotEqual(t, server.token, other.token)
}

// The page loads nothing from elsewhere, and its script makes no markup of texts.
func TestThePageIsSelfContained(t *testing.T) {
	for path := range files {
		data, err := page.ReadFile("page/" + path)
		require.NoError(t, err, path)
		text := strings.ReplaceAll(string(data), "http://www.w3.org/2000/svg", "")
		for _, no := range []string{"http:", "https:", "//cdn", "@import", "innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "style=", "onclick"} {
			require.NotContains(t, text, no, path)
		}
	}
}

func TestState(t *testing.T) {
	_, base, token := served(t, &still{snapshot: report.Snapshot{ClusterID: "rome"}})
	for range 2 {
		answer := ask(t, http.MethodGet, base+"/state", "localhost", bearer(token))
		require.Equal(t, http.StatusOK, answer.StatusCode)
		require.Equal(t, "application/json", answer.Header.Get("Content-Type"))
		var state struct {
			Cluster string
			Every   float64
		}
		require.NoError(t, json.NewDecoder(answer.Body).Decode(&state))
		require.Equal(t, "rome", state.Cluster)
		require.InDelta(t, 1, state.Every, 0)
	}
}

// The cluster may take longer to answer than a browser may.
func TestASlowCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Server{feed: &feed{Config: Config{Source: &counted{slow: 2 * slowest}, Timeout: time.Hour}}, token: "t"}
		w := &patient{ResponseRecorder: httptest.NewRecorder()}
		r := httptest.NewRequest(http.MethodGet, "/state", http.NoBody)
		r.Header = bearer("t")
		s.serve(w, r)
		require.WithinDuration(t, time.Now().Add(slowest), w.deadline, 0)
		require.Contains(t, w.Body.String(), `"trouble":""`)
	})
}

// patient notes until when an answer may be written.
type patient struct {
	*httptest.ResponseRecorder
	deadline time.Time
}

func (p *patient) SetWriteDeadline(at time.Time) error {
	p.deadline = at
	return nil
}
