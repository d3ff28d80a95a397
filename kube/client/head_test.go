package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/liqod/liqod/kube/loop"
)

// history is the part of an API server that informers need, with the revision of an etcd. As
// that, it accepts a watch from a revision that it has not reached, and is silent.
type history struct {
	mu       sync.Mutex
	revision int
	objects  map[string]map[string]int // the revision of each object, by resource and name
	restores int
	lists    int
}

func (h *history) set(resource, name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.revision++
	if h.objects[resource] == nil {
		h.objects[resource] = map[string]int{}
	}
	h.objects[resource][name] = h.revision
}

// restore ends all watches. The state is that of objects, and has been changed up to a revision.
func (h *history) restore(objects map[string]map[string]int, revision int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.objects, h.revision = objects, revision
	h.restores++
}

// since returns the objects of a resource that have changed, the oldest change first.
func (h *history) since(resource string, revision int) (out []string, now, restores int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	names := slices.SortedFunc(maps.Keys(h.objects[resource]), func(a, b string) int { return h.objects[resource][a] - h.objects[resource][b] })
	for _, name := range names {
		if have := h.objects[resource][name]; have > revision {
			out = append(out, fmt.Sprintf(`"metadata":{"namespace":"n","name":%q,"uid":"u","resourceVersion":"%d"}`, name, have))
		}
	}
	return out, h.revision, h.restores
}

// RoundTrip implements http.RoundTripper.
func (h *history) RoundTrip(req *http.Request) (*http.Response, error) {
	query, resource := req.URL.Query(), path.Base(req.URL.Path)
	from, _ := strconv.Atoi(query.Get("resourceVersion"))
	objects, now, restores := h.since(resource, 0)
	starts := query.Get("sendInitialEvents") == "true"
	if from > now && (!isWatch(req) || starts) {
		return jsonAnswer(http.StatusGatewayTimeout, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Timeout","code":504,
			"details":{"causes":[{"reason":"ResourceVersionTooLarge","message":"Too large resource version"}]}}`), nil
	}
	if !isWatch(req) {
		return jsonAnswer(http.StatusOK, fmt.Sprintf(`{"kind":"List","apiVersion":"v1","metadata":{"resourceVersion":"%d"},"items":[{%s}]}`, now, strings.Join(objects, "},{"))), nil
	}
	body, w := io.Pipe()
	send := func(event, object string) {
		kind := map[string]string{"pods": "Pod", "configmaps": "ConfigMap"}[resource]
		_, _ = fmt.Fprintf(w, `{"type":%q,"object":{"kind":%q,"apiVersion":"v1",%s}}`, event, kind, object)
	}
	go func() {
		if starts {
			h.mu.Lock()
			h.lists++
			h.mu.Unlock()
			for _, object := range objects {
				send("ADDED", object)
			}
			send("BOOKMARK", fmt.Sprintf(`"metadata":{"resourceVersion":"%d","annotations":{"k8s.io/initial-events-end":"true"}}`, now))
			from = now
		}
		for loop.Pause(req.Context(), 100*time.Millisecond) == nil {
			changed, now, latest := h.since(resource, from)
			if latest != restores {
				break
			}
			for _, object := range changed {
				send("MODIFIED", object)
			}
			from = max(from, now)
		}
		_ = w.CloseWithError(req.Context().Err())
	}()
	resp := jsonAnswer(http.StatusOK, "")
	resp.Body = body
	return resp, nil
}

func jsonAnswer(code int, body string) *http.Response {
	resp := answer(code, strings.NewReader(body))
	resp.Header.Set("Content-Type", "application/json")
	return resp
}

// informed runs informers of pods and ConfigMaps for as long as the test calls, and returns functions
// that list the names of their objects.
func informed(t *testing.T, server http.RoundTripper, settings Settings, test func(pods, configMaps func() []string)) {
	t.Helper()
	clients, err := kubernetes.NewForConfig(Harden(&rest.Config{Host: "https://host", Transport: server}, settings))
	require.NoError(t, err)
	factory := informers.NewSharedInformerFactory(clients, 0)
	names := func(of cache.Store) func() []string {
		return func() (out []string) {
			for _, key := range of.ListKeys() {
				out = append(out, path.Base(key))
			}
			slices.Sort(out)
			return out
		}
	}
	pods, configMaps := names(factory.Core().V1().Pods().Informer().GetStore()), names(factory.Core().V1().ConfigMaps().Informer().GetStore())
	ctx, cancel := context.WithCancel(t.Context())
	factory.StartWithContext(ctx)
	defer factory.Shutdown()
	defer cancel()
	test(pods, configMaps)
}

// TestInformersListAgainAfterARestore: a cluster is restored from a backup that is older than a pod
// and a ConfigMap, and has been written to by others before the watches begin again: its
// resource version has passed that of the ConfigMap, but not that of the pod.
func TestInformersListAgainAfterARestore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &history{revision: 10, objects: map[string]map[string]int{}}
		server.set("pods", "old")
		backup := map[string]map[string]int{"pods": maps.Clone(server.objects["pods"]), "configmaps": {}}
		server.set("configmaps", "after the backup")
		log, logs := observer.New(zap.WarnLevel)
		losses := 0
		informed(t, server, Settings{Log: zap.New(log), WentBack: func() { losses++ }}, func(pods, configMaps func() []string) {
			time.Sleep(time.Second)
			for range 100 {
				server.set("pods", "late")
			}
			time.Sleep(time.Second)
			require.Equal(t, []string{"late", "old"}, pods())
			require.Equal(t, []string{"after the backup"}, configMaps())

			server.restore(backup, 20)
			time.Sleep(10 * time.Second)
			require.Equal(t, []string{"old"}, pods())
			require.Empty(t, configMaps())
			server.set("pods", "new")
			server.set("configmaps", "new")
			time.Sleep(time.Second)
			require.Equal(t, []string{"new", "old"}, pods())
			require.Equal(t, []string{"new"}, configMaps())
			require.Equal(t, 1, logs.FilterMessageSnippet("went back").Len())
			require.Equal(t, 1, losses)

			lists := server.lists
			server.restore(server.objects, server.revision) // the API server restarts
			time.Sleep(time.Minute)
			require.Equal(t, lists, server.lists, "a restart without a restore lists nothing")
		})
	})
}

// TestHeadIsRead covers what the resource version that is read after a watch has begun leads to.
func TestHeadIsRead(t *testing.T) {
	const informers, list = "/api/v1/namespaces/n/pods?allowWatchBookmarks=true&watch=true&resourceVersion=50", `{"metadata":{"resourceVersion":"%s"}}`
	for name, c := range map[string]struct {
		path, version string
		code          int // of the list
		wantCode      int // of the watch; 0: an error, with which patience tries again
		wantReads     []string
	}{
		"the server is ahead":       {informers, "60", 200, 200, []string{"limit=1"}},
		"nothing has happened":      {informers, "50", 200, 200, []string{"limit=1"}},
		"the server went back":      {informers, "49", 200, 410, []string{"limit=1"}},
		"no numbers":                {informers, "b49", 200, 200, []string{"limit=1"}},
		"no right to list":          {informers, "49", 403, 200, []string{"limit=1"}},
		"the server is away":        {informers, "49", 503, 0, []string{"limit=1"}},
		"it was away before":        {informers, "", 0, 0, nil},
		"the watch is of one name":  {informers + "&fieldSelector=metadata.name%3Da", "60", 200, 200, []string{"fieldSelector=metadata.name%3Da&limit=1"}},
		"other selectors cost more": {informers + "&fieldSelector=spec.nodeName%3Da&labelSelector=b", "60", 200, 200, []string{"limit=1"}},
		"the watch lists":           {informers + "&sendInitialEvents=true", "49", 200, 200, nil},
		"from any version":          {strings.Replace(informers, "=50", "=0", 1), "49", 200, 200, nil},
		"no informer's":             {strings.Replace(informers, "allowWatchBookmarks=true&", "", 1), "49", 200, 200, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var reads []string
			h := &headed{heads: newHeads(zap.NewNop(), nil), wrapped: wrapped{roundTrip(func(req *http.Request) (*http.Response, error) {
				if c.code == 0 {
					return nil, errors.New("status 503")
				}
				if isWatch(req) {
					return jsonAnswer(200, ""), nil
				}
				require.Equal(t, "/api/v1/namespaces/n/pods", req.URL.Path)
				reads = append(reads, req.URL.RawQuery)
				return jsonAnswer(c.code, fmt.Sprintf(list, c.version)), nil
			})}}
			resp, err := h.RoundTrip(request(t, "GET", c.path))
			if c.wantCode == 0 {
				require.ErrorContains(t, err, "status 503")
			} else {
				require.NoError(t, err)
				require.Equal(t, c.wantCode, resp.StatusCode)
				require.NoError(t, resp.Body.Close())
			}
			require.Equal(t, c.wantReads, reads)
			require.Empty(t, h.heads.open)
		})
	}
}

// TestHeadIsShared covers the watches that begin together after an API server was away.
func TestHeadIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reads atomic.Int32
		h := &headed{heads: newHeads(zap.NewNop(), nil), wrapped: wrapped{roundTrip(func(req *http.Request) (*http.Response, error) {
			if !isWatch(req) {
				reads.Add(1)
				time.Sleep(10 * time.Millisecond)
			}
			return jsonAnswer(200, `{"metadata":{"resourceVersion":"49"}}`), nil
		})}}
		begin := func(of, from string, wantCode int) {
			for i := range 100 {
				go func() {
					resp, err := h.RoundTrip(request(t, "GET", fmt.Sprintf("/api/v1/namespaces/n%d/%s?allowWatchBookmarks=true&watch=true&resourceVersion=%s", i, of, from)))
					require.NoError(t, err)
					require.Equal(t, wantCode, resp.StatusCode)
					require.NoError(t, resp.Body.Close())
				}()
			}
			time.Sleep(500 * time.Millisecond)
		}
		begin("pods", "49", 200)
		begin("pods", "48", 200)
		require.Equal(t, int32(1), reads.Load())
		begin("secrets", "50", 410)
		require.LessOrEqual(t, reads.Load(), int32(3))
	})
}

// TestAPeerWithoutAMemory: an API server of another organisation says with each watch that its
// state went back.
func TestAPeerWithoutAMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &history{revision: 10, objects: map[string]map[string]int{}}
		server.set("pods", "p")
		liar := roundTrip(func(req *http.Request) (*http.Response, error) {
			if req.URL.Query().Get("limit") == headLimit {
				return jsonAnswer(200, `{"metadata":{"resourceVersion":"1"}}`), nil
			}
			if isWatch(req) {
				ctx, cancel := context.WithTimeout(req.Context(), time.Second)
				context.AfterFunc(ctx, cancel)
				req = req.WithContext(ctx)
			}
			return server.RoundTrip(req)
		})
		log, logs := observer.New(zap.WarnLevel)
		informed(t, liar, Settings{Log: zap.New(log)}, func(pods, _ func() []string) {
			time.Sleep(time.Hour)
			require.Equal(t, []string{"p"}, pods())
			require.LessOrEqual(t, logs.FilterMessageSnippet("went back").Len(), 60)
			t.Logf("%d lists in an hour", server.lists)
			require.Less(t, server.lists, 3600, "both informers back off")
		})
	})
}
