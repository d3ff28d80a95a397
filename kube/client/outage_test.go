package client

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

const serverEnv = "KUBE_CLIENT_TEST_SERVER"

// podServer is the part of an API server that a reflector needs. It serves one pod over
// HTTP/2. The resource version of the pod is the current time in milliseconds.
func podServer(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	pod := func() string {
		version := time.Now().UnixMilli()
		return fmt.Sprintf(`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p","namespace":"n","uid":"u","resourceVersion":"%d"}}`, version)
	}
	if r.URL.Query().Get("watch") == "" {
		_, _ = fmt.Fprintf(w, `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"%d"},"items":[%s]}`, time.Now().UnixMilli(), pod())
		return
	}
	_, _ = fmt.Fprintf(w, `{"type":"ADDED","object":%s}`+"\n", pod())
	if r.URL.Query().Get("sendInitialEvents") == "true" {
		_, _ = fmt.Fprintf(w, `{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"%d","annotations":{"k8s.io/initial-events-end":"true"}}}}`+"\n", time.Now().UnixMilli())
	}
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for {
		w.(http.Flusher).Flush()
		select {
		case <-r.Context().Done():
			return
		case <-ticker.C:
			_, _ = fmt.Fprintf(w, `{"type":"MODIFIED","object":%s}`+"\n", pod())
		}
	}
}

// TestServerProcess runs the server in a process of its own, which another test can
// pause.
func TestServerProcess(t *testing.T) {
	address := os.Getenv(serverEnv)
	if address == "" {
		return // not a test
	}
	listener, err := net.Listen("tcp", address)
	require.NoError(t, err)
	server := httptest.NewUnstartedServer(http.HandlerFunc(podServer))
	server.Listener, server.EnableHTTP2 = listener, true
	server.StartTLS()
	_, _ = io.Copy(io.Discard, os.Stdin) // ends with the process that started us
}

func startServer(t *testing.T, address string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestServerProcess$")
	cmd.Env = append(os.Environ(), serverEnv+"="+address)
	_, err := cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd
}

// TestInformerCatchesUp runs in real time, because it tests the interplay of the
// transport, the kernel and the reflector.
func TestInformerCatchesUp(t *testing.T) {
	for name, tc := range map[string]struct {
		away, back func(*testing.T, *exec.Cmd, string)
	}{
		"stopped": {
			func(_ *testing.T, cmd *exec.Cmd, _ string) { _ = cmd.Process.Kill(); _ = cmd.Wait() },
			func(t *testing.T, _ *exec.Cmd, address string) { startServer(t, address) },
		},
		"paused": {
			func(t *testing.T, cmd *exec.Cmd, _ string) { require.NoError(t, cmd.Process.Signal(syscall.SIGSTOP)) },
			func(t *testing.T, cmd *exec.Cmd, _ string) { require.NoError(t, cmd.Process.Signal(syscall.SIGCONT)) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			address := listener.Addr().String()
			require.NoError(t, listener.Close())
			cmd := startServer(t, address)
			seen := watchPod(t, address)
			fresh := func(since time.Time) func() bool {
				return func() bool { return seen.Load() > since.UnixMilli() }
			}
			require.Eventually(t, fresh(time.Now()), time.Minute, 50*time.Millisecond)

			tc.away(t, cmd, address)
			gone := time.Now()
			require.Never(t, fresh(gone.Add(time.Second)), outage(t), 50*time.Millisecond)
			tc.back(t, cmd, address)
			back := time.Now()
			require.Eventually(t, fresh(back), time.Minute, 20*time.Millisecond)
			t.Logf("caught up %s after an outage of %s", time.Since(back), back.Sub(gone))
		})
	}
}

// outage returns how long the server is paused: by default long enough for the HTTP/2
// pings to fail. The environment can set a longer time.
func outage(t *testing.T) time.Duration {
	t.Helper()
	asked := os.Getenv("KUBE_CLIENT_TEST_OUTAGE")
	if asked == "" {
		return 4 * time.Second
	}
	d, err := time.ParseDuration(asked)
	require.NoError(t, err)
	return d
}

// watchPod runs an informer and returns the resource version of the pod in its cache,
// which is a time in milliseconds.
func watchPod(t *testing.T, address string) *atomic.Int64 {
	t.Helper()
	require.NoError(t, SetHTTP2Pings())
	cfg := Harden(&rest.Config{Host: "https://" + address, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}, Settings{Log: zap.NewNop()})
	clients, err := kubernetes.NewForConfig(Core(cfg))
	require.NoError(t, err)
	factory := informers.NewSharedInformerFactoryWithOptions(clients, 0, informers.WithTransform(StripManagedFields))
	seen := &atomic.Int64{}
	note := func(obj any) {
		var version int64
		_, _ = fmt.Sscan(obj.(*corev1.Pod).ResourceVersion, &version)
		seen.Store(version)
	}
	_, err = factory.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: note, UpdateFunc: func(_, obj any) { note(obj) },
	})
	require.NoError(t, err)
	stop := make(chan struct{})
	factory.Start(stop)
	t.Cleanup(func() {
		close(stop)
		factory.Shutdown()
	})
	return seen
}
