package client

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/pager"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/transport/spdy"

	"github.com/liqod/liqod/kube/kubetest"
)

// most is the growth of the heap that a test allows: decoding holds a body several times.
const most = 512 << 20

// hostile is a client of a hostile API server, and what it has refused.
type hostile struct {
	config *rest.Config
	kube   kubernetes.Interface
	sent   atomic.Int64

	mu      sync.Mutex
	refused []string
}

func (h *hostile) reasons() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]string(nil), h.refused...)
}

// counting counts the bytes that the server has sent.
type counting struct {
	http.ResponseWriter

	n *atomic.Int64
}

func (c counting) Write(p []byte) (int, error) {
	n, err := c.ResponseWriter.Write(p)
	c.n.Add(int64(n))
	return n, err
}

func (c counting) Unwrap() http.ResponseWriter { return c.ResponseWriter }

// newHostile starts a server over TLS that answers with handler. With way, the client's
// credentials can be renewed.
func newHostile(t *testing.T, way bool, handler http.HandlerFunc, own ...int64) *hostile {
	t.Helper()
	h := &hostile{}
	var ownBytes func() int64
	if len(own) > 0 {
		ownBytes = func() int64 { return own[0] }
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		handler(counting{w, &h.sent}, r)
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	t.Cleanup(server.CloseClientConnections)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	cfg := &rest.Config{Host: server.URL, BearerToken: "secret", TLSClientConfig: rest.TLSClientConfig{CAData: ca}}
	if way {
		cfg = NewWay(cfg).Config()
	}
	cfg, err := Distrust(cfg, Foreign{Name: "milan", Own: ownBytes, Refused: func(r *Refusal) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.refused = append(h.refused, r.Reason)
	}})
	require.NoError(t, err)
	h.config = Harden(cfg, Settings{Log: zap.NewNop()})
	h.kube, err = kubernetes.NewForConfig(h.config)
	require.NoError(t, err)
	return h
}

// pours answers with a status, a header, begin, and then with bytes until the client goes away.
func pours(code int, key, value, begin string) http.HandlerFunc {
	megabyte := bytes.Repeat([]byte("a"), 1<<20)
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set(key, value)
		w.WriteHeader(code)
		_, err := io.WriteString(w, begin)
		for err == nil {
			_, err = w.Write(megabyte)
		}
	}
}

func bomb(t *testing.T, size int) []byte {
	t.Helper()
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	chunk := bytes.Repeat([]byte("a"), 1<<20)
	for range size >> 20 {
		_, err := z.Write(chunk)
		require.NoError(t, err)
	}
	require.NoError(t, z.Close())
	return out.Bytes()
}

// heapGrowth runs f and returns by how much the heap was larger at most meanwhile.
func heapGrowth(f func()) int64 {
	var before, now runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	stop, done, growth := make(chan struct{}), make(chan struct{}), int64(0)
	go func() {
		defer close(done)
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			runtime.ReadMemStats(&now)
			growth = max(growth, int64(now.HeapAlloc)-int64(before.HeapAlloc))
			select {
			case <-tick.C:
			case <-stop:
				return
			}
		}
	}()
	f()
	close(stop)
	<-done
	return growth
}

func TestAHostileServerSendsTooMuch(t *testing.T) {
	megabyte := bytes.Repeat([]byte("a"), 1<<20)
	gzipped := bomb(t, 128<<20)
	get := func(ctx context.Context, kube kubernetes.Interface) error {
		_, err := kube.CoreV1().ConfigMaps("twin").Get(ctx, "it", metav1.GetOptions{})
		return err
	}
	list := func(ctx context.Context, kube kubernetes.Interface) error {
		_, err := kube.CoreV1().ConfigMaps("twin").List(ctx, metav1.ListOptions{})
		return err
	}
	for name, tc := range map[string]struct {
		answer http.HandlerFunc
		ask    func(context.Context, kubernetes.Interface) error
		reason string
		says   string
		sent   int64
	}{
		"an object without end": {
			answer: pours(http.StatusOK, "Content-Type", "application/json", `{"kind":"ConfigMap","apiVersion":"v1","data":{"x":"`),
			ask:    get, reason: RefusedSize, says: "API server of milan: GET /api/v1/namespaces/twin/configmaps/it: a response of more than 8388608 bytes is not accepted", sent: longestObject,
		},
		"a list without end": {
			answer: pours(http.StatusOK, "Content-Type", "text/plain", ""), ask: list, reason: RefusedSize, says: "a response of more than 33554432 bytes", sent: longestBody,
		},
		"a length that is too large": {
			answer: pours(http.StatusOK, "Content-Length", fmt.Sprint(1<<40), ""), ask: list, reason: RefusedSize, says: "a response of more than 33554432 bytes",
		},
		"a bomb": {
			answer: func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Encoding", "gzip")
				_, _ = w.Write(gzipped)
			},
			ask: list, reason: RefusedCompressed, says: "compressed data, which was not asked for",
		},
		"an error without end": {
			answer: pours(http.StatusForbidden, "Content-Type", "text/plain", ""), ask: get, reason: RefusedSize, says: "a response of more than 262144 bytes", sent: longestError,
		},
		"an upgrade that fails at length": {
			answer: pours(http.StatusBadRequest, "Content-Type", "text/plain", ""),
			ask: func(ctx context.Context, kube kubernetes.Interface) error {
				return kube.CoreV1().RESTClient().Post().Namespace("twin").Resource("pods").Name("it").SubResource("exec").Do(ctx).Error()
			},
			reason: RefusedSize, says: "a response of more than 262144 bytes",
		},
		"a list in pages without end": {
			answer: func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				_, _ = io.WriteString(w, `{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"continue":"more"},"items":[{"data":{"x":"`)
				for range 16 {
					_, _ = w.Write(megabyte)
				}
				_, _ = io.WriteString(w, `"}}]}`)
			},
			ask: func(ctx context.Context, kube kubernetes.Interface) error {
				p := pager.New(pager.SimplePageFunc(func(o metav1.ListOptions) (apiruntime.Object, error) {
					return kube.CoreV1().ConfigMaps("twin").List(ctx, o)
				}))
				_, _, err := p.ListWithAlloc(ctx, metav1.ListOptions{})
				return err
			},
			reason: RefusedList, says: "a list of more than 134217728 bytes in all its pages", sent: longestList,
		},
	} {
		for _, way := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, way %t", name, way), func(t *testing.T) {
				h := newHostile(t, way, tc.answer)
				var err error
				grown := heapGrowth(func() { err = tc.ask(t.Context(), h.kube) })
				require.ErrorContains(t, err, tc.says)
				require.Contains(t, h.reasons(), tc.reason)
				t.Logf("the heap grew by %d MiB", grown>>20)
				require.Less(t, grown, int64(most))
				// What is on its way in buffers was sent, too.
				require.Less(t, h.sent.Load(), tc.sent+48<<20)
			})
		}
	}
}

func TestAHostileServerSendsTheClientElsewhere(t *testing.T) {
	t.Parallel()
	var visited atomic.Bool
	other := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { visited.Store(true) }))
	t.Cleanup(other.Close)
	for _, code := range []int{http.StatusMovedPermanently, http.StatusFound, http.StatusTemporaryRedirect, http.StatusPermanentRedirect} {
		for _, way := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d, way %t", code, way), func(t *testing.T) {
				t.Parallel()
				h := newHostile(t, way, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, other.URL+"/secret", code) })
				_, err := h.kube.CoreV1().Pods("twin").Get(t.Context(), "it", metav1.GetOptions{})
				require.ErrorContains(t, err, fmt.Sprintf("API server of milan: GET /api/v1/namespaces/twin/pods/it is answered with a redirect (status %d), which is not followed", code))
				var refusal *Refusal
				require.True(t, errors.As(err, &refusal))
				require.Equal(t, RefusedRedirect, refusal.Reason)
				_, err = h.kube.CoreV1().Pods("twin").GetLogs("it", &corev1.PodLogOptions{}).Stream(t.Context())
				require.ErrorContains(t, err, "not followed")
			})
		}
	}
	t.Run("sessions", func(t *testing.T) {
		t.Parallel()
		h := newHostile(t, false, func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, other.URL+r.URL.Path, http.StatusTemporaryRedirect)
		})
		target := h.kube.CoreV1().RESTClient().Post().Namespace("twin").Resource("pods").Name("it").SubResource("exec").URL()
		ws, err := remotecommand.NewWebSocketExecutor(h.config, http.MethodGet, target.String())
		require.NoError(t, err)
		require.Error(t, ws.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdout: io.Discard}))
		old, err := remotecommand.NewSPDYExecutor(h.config, http.MethodPost, target)
		require.NoError(t, err)
		require.ErrorContains(t, old.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdout: io.Discard}), "not followed")
	})
	t.Cleanup(func() { require.False(t, visited.Load(), "the other server was asked") })
}

func TestTheHostIsPinned(t *testing.T) {
	t.Parallel()
	var visited atomic.Bool
	other := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { visited.Store(true) }))
	t.Cleanup(other.Close)
	for _, way := range []bool{false, true} {
		h := newHostile(t, way, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })
		client, err := rest.HTTPClientFor(h.config)
		require.NoError(t, err)
		for _, where := range []string{other.URL, strings.Replace(h.config.Host, "https:", "http:", 1)} {
			_, err = client.Get(where + "/api/v1/pods")
			require.ErrorContains(t, err, "API server of milan: a request to")
		}
		resp, err := client.Get(h.config.Host + "/readyz")
		require.NoError(t, err)
		require.NoError(t, resp.Body.Close())
	}
	h := newHostile(t, false, func(http.ResponseWriter, *http.Request) {})
	target, err := url.Parse(other.URL + "/api/v1/namespaces/twin/pods/it/exec?command=id&stdout=true")
	require.NoError(t, err)
	ws, err := remotecommand.NewWebSocketExecutor(h.config, http.MethodGet, target.String())
	require.NoError(t, err)
	require.ErrorContains(t, ws.StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdout: io.Discard}), "a request to")
	transport, upgrader, err := spdy.RoundTripperFor(h.config)
	require.NoError(t, err)
	_, _, err = spdy.NewDialer(upgrader, &http.Client{Transport: transport}, http.MethodPost, target).Dial("v4.channel.k8s.io")
	require.ErrorContains(t, err, "a request to")
	require.False(t, visited.Load())
}

// A watch has a limit for an event, and for all that it sends until the next list.
func TestAHostileServerFloodsAWatch(t *testing.T) {
	large := strings.Repeat("a", 1<<20)
	event := func(kind string, i int, data string) string {
		return fmt.Sprintf(`{"type":%q,"object":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"c%d","namespace":"twin","resourceVersion":"%d"},"data":{"x":"%s"}}}`+"\n", kind, i, i+2, data)
	}
	for name, tc := range map[string]struct {
		part   func(i int) string // of what is sent without end
		reason string
	}{
		"an event without end": {func(i int) string {
			if i == 0 {
				return `{"type":"ADDED","object":{"kind":"ConfigMap","apiVersion":"v1","data":{"x":"`
			}
			return large
		}, RefusedSize},
		"blanks without end":        {func(int) string { return strings.Repeat("\n", 1<<20) }, RefusedSize},
		"objects without end":       {func(i int) string { return event("ADDED", i, large[:256<<10]) }, RefusedWatch},
		"small objects without end": {func(i int) string { return event("MODIFIED", i, "") }, RefusedWatch},
	} {
		t.Run(name, func(t *testing.T) {
			var lists atomic.Int64
			h := newHostile(t, true, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				switch query := r.URL.Query(); {
				case query.Get("sendInitialEvents") != "":
					http.Error(w, "no", http.StatusBadRequest) // as a server without this form of a list
				case query.Get("watch") == "":
					if query.Get("limit") != headLimit { // it is the informer's
						lists.Add(1)
					}
					_, _ = io.WriteString(w, `{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[]}`)
				default:
					var err error
					for i := 0; err == nil; i++ {
						_, err = io.WriteString(w, tc.part(i))
					}
				}
			})
			factory := informers.NewSharedInformerFactoryWithOptions(h.kube, 0, informers.WithNamespace("twin"))
			factory.Core().V1().ConfigMaps().Informer()
			grown := heapGrowth(func() {
				stop := make(chan struct{})
				factory.Start(stop)
				require.Eventually(t, func() bool { return lists.Load() >= 2 }, 2*time.Minute, 50*time.Millisecond, "it lists again after each flood")
				close(stop)
				factory.Shutdown()
			})
			require.Contains(t, h.reasons(), tc.reason)
			t.Logf("the heap grew by %d MiB", grown>>20)
			require.Less(t, grown, int64(2*most))
		})
	}
}

// The server sends a byte now and then, so that it is never silent.
func TestAHostileServerIsSlow(t *testing.T) {
	t.Parallel()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for r.Context().Err() == nil {
			if _, err := w.Write([]byte(" ")); err != nil {
				return
			}
			_ = http.NewResponseController(w).Flush()
			<-tick.C
		}
	}))
	t.Cleanup(server.Close)
	rt := &deadline{wrapped: wrapped{server.Client().Transport}, limit: 3 * time.Second} // a busy machine connects in that time
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/api/v1/pods", http.NoBody)
	require.NoError(t, err)
	resp, err := rt.RoundTrip(req)
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	_, err = io.ReadAll(resp.Body)
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

func TestAHostileServerTellsTheClientToWait(t *testing.T) {
	t.Parallel()
	asked := make(chan struct{}, 100)
	h := newHostile(t, true, func(w http.ResponseWriter, _ *http.Request) {
		asked <- struct{}{}
		w.Header().Set("Retry-After", "1000000")
		w.Header().Set("Warning", `299 - "look here"`)
		w.WriteHeader(http.StatusTooManyRequests)
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = h.kube.CoreV1().Pods("twin").Get(ctx, "it", metav1.GetOptions{})
	}()
	for range 2 {
		select {
		case <-asked:
		case <-time.After(2 * time.Minute):
			t.Fatal("the client waits as long as it was told")
		}
	}
	cancel()
	<-done
}

// What an honest server sends is not changed.
func TestAnHonestServerIsNotDisturbed(t *testing.T) {
	t.Parallel()
	const text = "line\n"
	h := newHostile(t, true, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/log"):
			for range 40 << 20 / (len(text) << 10) { // more than a response may have
				_, _ = io.WriteString(w, strings.Repeat(text, 1<<10))
			}
		case strings.HasSuffix(r.URL.Path, "/pods/none"):
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`)
		default:
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"kind":"PodList","apiVersion":"v1","metadata":{"continue":"more"},"items":[{"metadata":{"name":"it"}}]}`)
		}
	})
	_, err := h.kube.CoreV1().Pods("twin").Get(t.Context(), "none", metav1.GetOptions{})
	require.True(t, apierrors.IsNotFound(err), "%v", err)
	for range 20 { // each first page begins a new list
		list := kubetest.List(t, h.kube.CoreV1().Pods("twin"))
		require.Len(t, list.Items, 1)
		kubetest.List(t, h.kube.CoreV1().Pods("twin"), metav1.ListOptions{Continue: list.Continue})
	}
	logs, err := h.kube.CoreV1().Pods("twin").GetLogs("it", &corev1.PodLogOptions{}).Stream(t.Context())
	require.NoError(t, err)
	n, err := io.Copy(io.Discard, logs)
	require.NoError(t, err)
	require.Greater(t, n, int64(longestBody))
	require.NoError(t, logs.Close())
	require.Empty(t, h.reasons())
}

// What this cluster's own objects need does not count against the server that has copies of them.
func TestOwnObjectsDoNotCount(t *testing.T) {
	object := fmt.Sprintf(`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"c","namespace":"twin"},"data":{"x":"%s"}}`, strings.Repeat("a", 1<<20))
	list := func(n int, more string) string {
		return `{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"continue":"` + more + `"},"items":[` + strings.TrimSuffix(strings.Repeat(object+",", n), ",") + `]}`
	}
	handler := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch query := r.URL.Query(); {
		case query.Get("watch") != "":
			for range 140 {
				_, _ = io.WriteString(w, `{"type":"ADDED","object":`+object+"}\n")
			}
		case query.Get("limit") != "":
			_, _ = io.WriteString(w, list(30, "more"))
		default:
			_, _ = io.WriteString(w, list(40, ""))
		}
	}
	reads := map[string]func(*hostile) error{
		RefusedSize: func(h *hostile) error {
			_, err := h.kube.CoreV1().ConfigMaps("twin").List(t.Context(), metav1.ListOptions{})
			return err
		},
		RefusedList: func(h *hostile) error {
			for _, more := range []string{"", "1", "2", "3", "4", "5"} {
				if _, err := h.kube.CoreV1().ConfigMaps("twin").List(t.Context(), metav1.ListOptions{Limit: 30, Continue: more}); err != nil {
					return err
				}
			}
			return nil
		},
		RefusedWatch: func(h *hostile) error {
			w, err := h.kube.CoreV1().ConfigMaps("twin").Watch(t.Context(), metav1.ListOptions{})
			if err != nil {
				return err
			}
			n := 0
			for event := range w.ResultChan() {
				if event.Type == watch.Added {
					n++
				}
			}
			if n < 140 {
				return fmt.Errorf("%d of 140 events", n)
			}
			return nil
		},
	}
	for reason, read := range reads {
		t.Run(reason, func(t *testing.T) {
			h := newHostile(t, false, handler, 1<<20)
			require.Error(t, read(h))
			require.Equal(t, []string{reason}, h.reasons(), "an own object of 1 MiB is not enough")
			h = newHostile(t, false, handler, 12<<20)
			require.NoError(t, read(h))
			require.Empty(t, h.reasons())
		})
	}
}

func TestEvents(t *testing.T) {
	t.Parallel()
	frame := func(size int) []byte {
		return append(binary.BigEndian.AppendUint32(nil, uint32(size)), bytes.Repeat([]byte("x"), size)...)
	}
	for name, tc := range map[string]struct {
		contentType    string
		data           []byte
		longest, ended int64
	}{
		"two values":         {"application/json", []byte(`{"a":1}` + "\n" + `{"b":[1,2,{}]}`), 15, 2},
		"braces in a string": {"application/json", []byte(`{"a":"}\"}{"}`), 13, 1},
		"half a value":       {"application/json", []byte(`{"a":{"b":`), 10, 0},
		"lines in a value":   {"application/json", []byte("{\n\n\n"), 4, 0},
		"messages":           {"application/vnd.kubernetes.protobuf;stream=watch", append(frame(3), frame(0)...), 7, 2},
		"half a message":     {"application/vnd.kubernetes.protobuf;stream=watch", frame(9)[:8], 8, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			longest, ended := newEvents(tc.contentType).scan(tc.data)
			require.Equal(t, []int64{tc.longest, tc.ended}, []int64{longest, ended})
			byByte, longest, ended := newEvents(tc.contentType), int64(0), int64(0)
			for i := range tc.data {
				l, n := byByte.scan(tc.data[i : i+1])
				longest, ended = max(longest, l), ended+n
			}
			require.Equal(t, []int64{tc.longest, tc.ended}, []int64{longest, ended})
		})
	}
}
