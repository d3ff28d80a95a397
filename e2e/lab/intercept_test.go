package lab

import (
	"encoding/base64"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"
)

// journal is an API server that notes what reaches it.
type journal struct {
	mu   sync.Mutex
	seen []string
}

// ServeHTTP implements http.Handler.
func (j *journal) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	body, _ := io.ReadAll(request.Body)
	j.mu.Lock()
	defer j.mu.Unlock()
	j.seen = append(j.seen, request.Method+" "+string(body))
	_, _ = io.WriteString(w, "done")
}

func (j *journal) all() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return append([]string(nil), j.seen...)
}

func TestLabFrontFates(t *testing.T) {
	for name, c := range map[string]struct {
		fate           Fate
		sent, answered bool
	}{
		"passes":     {sent: true, answered: true},
		"unsent":     {fate: Fate{Unsent: true}},
		"answered":   {fate: Fate{After: func() {}}, sent: true, answered: true},
		"unanswered": {fate: Fate{Unanswered: true}, sent: true},
	} {
		t.Run(name, func(t *testing.T) {
			server := &journal{}
			front, config := newTestFront(t, server.ServeHTTP)
			client := &http.Client{Transport: &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}}
			after := make(chan []string, 1)
			front.Intercept(func(Request) Fate {
				fate := c.fate
				fate.Before = func() { require.Empty(t, server.all()) }
				if fate.After != nil || fate.Unanswered {
					fate.After = func() { after <- server.all() }
				}
				return fate
			})
			request, err := http.NewRequestWithContext(t.Context(), http.MethodPut, front.URL+"/api/v1/namespaces/a/pods/b", strings.NewReader("text"))
			require.NoError(t, err)
			response, err := client.Do(request)
			require.Equal(t, c.answered, err == nil, "%v", err)
			if err == nil {
				_, err = io.Copy(io.Discard, response.Body)
				require.NoError(t, err)
				require.NoError(t, response.Body.Close())
			}
			if c.sent {
				require.Equal(t, []string{"PUT text"}, server.all())
			} else {
				require.Empty(t, server.all())
			}
			if c.fate.After != nil || c.fate.Unanswered {
				require.Equal(t, []string{"PUT text"}, <-after)
			}
		})
	}
}

func TestLabFrontDescribesWrites(t *testing.T) {
	token := "e30." + base64.RawURLEncoding.EncodeToString([]byte(`{"sub":"system:serviceaccount:a:b"}`)) + ".x"
	pod := &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{Name: "web"}}
	binary, err := runtime.Encode(protobuf.NewSerializer(scheme.Scheme, scheme.Scheme), pod)
	require.NoError(t, err)
	for name, c := range map[string]struct {
		method, path, body string
		want               Request
	}{
		"a pod in protobuf": {
			http.MethodPost, "/api/v1/namespaces/shop/pods", string(binary),
			Request{Verb: "create", Resource: "pods", Namespace: "shop", Name: "web"},
		},
		"an own kind": {
			http.MethodPost, "/apis/offloading.liqo.io/v1beta1/namespaces/shop/shadowpods", `{"kind":"ShadowPod","metadata":{"name":"web"}}`,
			Request{Verb: "create", Group: "offloading.liqo.io", Resource: "shadowpods", Namespace: "shop", Name: "web"},
		},
		"a subresource": {
			http.MethodPatch, "/api/v1/namespaces/shop/pods/web/status", `{}`,
			Request{Verb: "patch", Resource: "pods", Subresource: "status", Namespace: "shop", Name: "web"},
		},
		"cluster scope": {
			http.MethodDelete, "/api/v1/nodes/one", "",
			Request{Verb: "delete", Resource: "nodes", Name: "one"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			front, config := newTestFront(t, (&journal{}).ServeHTTP)
			var got Request
			front.Intercept(func(r Request) Fate {
				got = r
				return Fate{}
			})
			request, err := http.NewRequestWithContext(t.Context(), c.method, front.URL+c.path, strings.NewReader(c.body))
			require.NoError(t, err)
			request.Header.Set("Authorization", "Bearer "+token)
			request.Header.Set("User-Agent", "test")
			response, err := (&http.Client{Transport: &http.Transport{TLSClientConfig: config}}).Do(request)
			require.NoError(t, err)
			require.NoError(t, response.Body.Close())
			want := c.want
			want.User, want.UserAgent, want.Body = "system:serviceaccount:a:b", "test", []byte(c.body)
			require.Equal(t, want, got)
		})
	}
}

func TestLabFrontHoldsWatches(t *testing.T) {
	more := make(chan string)
	front, config := newTestFront(t, func(w http.ResponseWriter, request *http.Request) {
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		for {
			select {
			case text := <-more:
				_, _ = io.WriteString(w, text)
				_ = http.NewResponseController(w).Flush()
			case <-request.Context().Done():
				return
			}
		}
	})
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: config}}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, front.URL+"/api/v1/pods?watch=true", nil)
	require.NoError(t, err)
	response, err := client.Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	texts := make(chan string)
	go func() {
		buffer := make([]byte, 10)
		for {
			n, err := response.Body.Read(buffer)
			if err != nil {
				close(texts)
				return
			}
			texts <- string(buffer[:n])
		}
	}()
	more <- "one"
	require.Equal(t, "one", <-texts)
	release := front.HoldWatches(func(r Request) bool { return r.Resource == "pods" })
	more <- "two"
	select {
	case text := <-texts:
		require.Fail(t, "not held", text)
	case <-time.After(200 * time.Millisecond):
	}
	release()
	require.Equal(t, "two", <-texts)
	release() // once more does nothing
}

func TestLabFrontAnswersItself(t *testing.T) {
	server := &journal{}
	front, config := newTestFront(t, server.ServeHTTP)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}}
	get := func(path string) string {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, front.URL+path, nil)
		require.NoError(t, err)
		response, err := client.Do(request)
		require.NoError(t, err)
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		return string(body)
	}
	front.Answer(func(r Request) http.Handler {
		if r.Resource != "pods" {
			return nil
		}
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, r.Verb+" "+r.Namespace) })
	})
	require.Equal(t, "list a", get("/api/v1/namespaces/a/pods"))
	require.Equal(t, "watch a", get("/api/v1/namespaces/a/pods?watch=true"))
	require.Equal(t, "done", get("/api/v1/namespaces/a/services"))
	require.Len(t, server.all(), 1)
	front.Answer(nil)
	require.Equal(t, "done", get("/api/v1/namespaces/a/pods"))
}
