package kubelet

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"
	clientremotecommand "k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/util/exec"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
)

// follow opens the log of the pod's container.
func (r *rig) follow(ctx context.Context, options string) (io.ReadCloser, error) {
	request, err := http.NewRequestWithContext(ctx, "GET", r.url+"/containerLogs/shop/web/app?"+options, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer good")
	response, err := r.client.Do(request)
	if err == nil && response.StatusCode != http.StatusOK {
		err = errors.New(response.Status)
	}
	if err != nil {
		return nil, err
	}
	return response.Body, nil
}

// overTLS serves as a real API server does, with HTTP/2 for those that want it.
func overTLS(t *testing.T, handler http.Handler) func(*Config) {
	t.Helper()
	server := httptest.NewUnstartedServer(handler)
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	remote := &rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
	return func(c *Config) { c.Remote = func() (*rest.Config, error) { return remote, nil } }
}

// TestReadersThatStallHoldTheWriterUp: what is not read stays with the writer, but for what
// sockets hold; nothing of it is in this process. While one log is read, the writers of the others
// have the time to write as much.
func TestReadersThatStallHoldTheWriterUp(t *testing.T) {
	const logs = 8
	var written atomic.Int64
	chunk := []byte(strings.Repeat(strings.Repeat("x", 1023)+"\n", 64))
	endless := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for {
			n, err := w.Write(chunk)
			written.Add(int64(n))
			if err != nil {
				return
			}
		}
	})
	rig := newRigOf(t, http.NotFoundHandler(), overTLS(t, endless))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	var readers []*bufio.Reader
	for range logs {
		body, err := rig.follow(ctx, "follow=true")
		require.NoError(t, err)
		defer func() { _ = body.Close() }()
		readers = append(readers, bufio.NewReaderSize(body, 4096))
	}
	const lines = 32 << 10 // of 1 KiB
	read := func(log *bufio.Reader) {
		for range lines {
			line, err := log.ReadString('\n')
			require.NoError(t, err)
			require.Len(t, line, 1024)
		}
	}
	read(readers[0])
	unread := written.Load() - lines<<10
	runtime.GC()
	runtime.ReadMemStats(&after)
	heap := int64(after.HeapAlloc) - int64(before.HeapAlloc)
	t.Logf("each writer stalls after %d KiB; %d KiB of heap each, both ends and the server between included", unread/logs>>10, heap/logs>>10)
	require.Less(t, heap/logs, int64(1<<20))
	require.Less(t, unread/logs, int64(lines<<10), "the writers stall")
	read(readers[1]) // one that stalled goes on where it stopped
}

// TestHundredsOfStreams holds many at once, and looks at what is left of them.
func TestHundredsOfStreams(t *testing.T) {
	const logs, execs = 150, 50
	var running atomic.Int64
	release := make(chan struct{})
	echo := program(func(ctx context.Context, _ []string, in io.Reader, out, _ io.WriteCloser, _ <-chan remotecommand.TerminalSize) error {
		running.Add(1)
		defer running.Add(-1)
		if _, err := io.CopyN(out, in, 5); err != nil {
			return err
		}
		select {
		case <-release:
		case <-ctx.Done():
		}
		return exec.CodeExitError{Err: errors.New("command failed"), Code: 3}
	})
	sessions := provider(t, true, echo)
	rig := newRigOf(t, http.NotFoundHandler(), overTLS(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/log") {
			sessions.ServeHTTP(w, r)
			return
		}
		running.Add(1)
		defer running.Add(-1)
		fmt.Fprintln(w, "one")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})))
	rig.do(t, "GET", "/healthz", "good", nil)
	idle := runtime.NumGoroutine()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	begin := time.Now()
	var all errgroup.Group
	for range logs {
		all.Go(func() error { return rig.readOne(ctx) })
	}
	for i := range execs {
		executor := rig.caller(t, i%2 == 0, "/exec/shop/web/app?command=cat&input=1&output=1")
		all.Go(func() error { return sayHello(t.Context(), executor) })
	}
	require.Eventually(t, func() bool { return running.Load() == logs+execs }, 3*time.Minute, 10*time.Millisecond)
	var memory runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&memory)
	t.Logf("%d streams open after %s: %d goroutines, %d MiB of heap, callers and provider included", logs+execs,
		time.Since(begin).Round(time.Millisecond), runtime.NumGoroutine()-idle, memory.HeapAlloc>>20)
	close(release)
	require.Eventually(t, func() bool { return running.Load() == logs }, time.Minute, 10*time.Millisecond, "the commands end")
	cancel()
	require.NoError(t, all.Wait())
	rig.client.CloseIdleConnections()
	require.Eventually(t, func() bool { return runtime.NumGoroutine() <= idle+10 }, time.Minute, 50*time.Millisecond, "something is left running")
}

// readOne follows the log, whose first line is "one", until ctx ends.
func (r *rig) readOne(ctx context.Context) error {
	body, err := r.follow(ctx, "follow=true")
	if err != nil {
		return err
	}
	defer func() { _ = body.Close() }()
	line, err := bufio.NewReader(body).ReadString('\n')
	if err != nil || line != "one\n" {
		return fmt.Errorf("line %q: %v", line, err)
	}
	<-ctx.Done()
	return nil
}

// sayHello runs a command with input and checks its output and exit code.
func sayHello(ctx context.Context, executor clientremotecommand.Executor) error {
	var out strings.Builder
	err := executor.StreamWithContext(ctx, clientremotecommand.StreamOptions{Stdin: strings.NewReader("hello"), Stdout: &out})
	var exit exec.CodeExitError
	if !errors.As(err, &exit) || exit.Code != 3 || out.String() != "hello" {
		return fmt.Errorf("output %q, end %v", out.String(), err)
	}
	return nil
}
