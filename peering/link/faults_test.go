package link

import (
	"context"
	"encoding/pem"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/health"
	"github.com/liqod/liqod/kube/client"
	"github.com/liqod/liqod/kube/store"
)

// serverEnv and brokenEnv are an address, and a file. While the file exists the server
// answers 500.
const (
	serverEnv = "PEERING_LINK_TEST_SERVER"
	brokenEnv = "PEERING_LINK_TEST_BROKEN"
)

// TestServerProcess is an API server that answers /readyz, in a process of its own.
func TestServerProcess(t *testing.T) {
	address := os.Getenv(serverEnv)
	if address == "" {
		return // not a test
	}
	listener, err := net.Listen("tcp", address)
	require.NoError(t, err)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if _, err := os.Stat(os.Getenv(brokenEnv)); err == nil {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		_, _ = io.WriteString(w, "ok")
	}))
	server.Listener, server.EnableHTTP2 = listener, true
	server.StartTLS()
	_, _ = io.Copy(io.Discard, os.Stdin) // ends with the process that started it
}

// failing is an API server, and the way to it.
type failing struct {
	t       *testing.T
	address string
	broken  string
	cmd     *exec.Cmd
	way     *relay // a prober comes this way
}

func newFailing(t *testing.T) *failing {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	f := &failing{t: t, address: listener.Addr().String(), broken: t.TempDir() + "/broken"}
	require.NoError(t, listener.Close())
	f.start()
	f.way = newRelay(t, f.address)
	return f
}

func (f *failing) start() {
	f.cmd = exec.Command(os.Args[0], "-test.run=^TestServerProcess$")
	f.cmd.Env = append(os.Environ(), serverEnv+"="+f.address, brokenEnv+"="+f.broken)
	_, err := f.cmd.StdinPipe()
	require.NoError(f.t, err)
	require.NoError(f.t, f.cmd.Start())
	cmd := f.cmd
	f.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
}

func (f *failing) kill() {
	require.NoError(f.t, f.cmd.Process.Kill())
	_ = f.cmd.Wait()
}

func (f *failing) signal(s os.Signal) { require.NoError(f.t, f.cmd.Process.Signal(s)) }

// ready returns the check that probes of a peer make, with credentials of a kubeconfig.
func (f *failing) ready(address string) func(context.Context) error {
	clients, err := Connector(client.Settings{Log: zap.NewNop()}, func(id string) client.Foreign { return client.Foreign{Name: id} })("milan", kubeconfigFor(f.t, address))
	require.NoError(f.t, err)
	return clients.Ready
}

// TestProbesSeeFaults: whatever keeps an API server from answering turns the verdict, and
// its end turns it back, by the same clients. It runs in real time with real sockets.
func TestProbesSeeFaults(t *testing.T) {
	t.Parallel()
	require.NoError(t, client.SetHTTP2Pings())
	for name, tc := range map[string]struct {
		direct     bool
		away, back func(*failing)
	}{
		"killed, connections are refused": {true, (*failing).kill, (*failing).start},
		"paused":                          {true, func(f *failing) { f.signal(syscall.SIGSTOP) }, func(f *failing) { f.signal(syscall.SIGCONT) }},
		"packets are dropped":             {false, func(f *failing) { f.way.hold(true, true) }, func(f *failing) { f.way.hold(false, false) }},
		"packets to it are dropped":       {false, func(f *failing) { f.way.hold(true, false) }, func(f *failing) { f.way.hold(false, false) }},
		"packets from it are dropped":     {false, func(f *failing) { f.way.hold(false, true) }, func(f *failing) { f.way.hold(false, false) }},
		"it answers 500":                  {true, func(f *failing) { require.NoError(f.t, os.WriteFile(f.broken, nil, 0o600)) }, func(f *failing) { require.NoError(f.t, os.Remove(f.broken)) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFailing(t)
			address := f.way.address
			if tc.direct {
				address = f.address
			}
			p := health.NewProber(health.Window{Size: 5, Failures: 3, Successes: 2})
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan struct{})
			var changed atomic.Int64 // when, in Unix milliseconds
			go func() {
				defer close(done)
				p.Run(ctx, 100*time.Millisecond, time.Second, f.ready(address), func(health.State) { changed.Store(time.Now().UnixMilli()) })
			}()
			becomes := func(want health.Verdict) {
				t.Helper()
				begin := time.Now()
				require.Eventually(t, func() bool { return p.State().Verdict == want }, time.Minute, 5*time.Millisecond)
				t.Logf("%s after %s: %s", want, time.UnixMilli(changed.Load()).Sub(begin).Round(time.Millisecond), p.State().Reason)
			}
			becomes(health.Up)
			tc.away(f)
			becomes(health.Down)
			tc.back(f)
			becomes(health.Up)
			cancel()
			<-done
		})
	}
}

// relay forwards TCP connections. What it holds it forwards later, as the retransmissions of
// TCP do.
type relay struct {
	t        *testing.T
	address  string
	upstream string

	mu       sync.Mutex
	released *sync.Cond
	there    bool // what goes to the server is held; likewise from it
	here     bool
	ended    bool
	conns    []net.Conn
}

func newRelay(t *testing.T, upstream string) *relay {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	r := &relay{t: t, address: listener.Addr().String(), upstream: upstream}
	r.released = sync.NewCond(&r.mu)
	var running sync.WaitGroup
	running.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			running.Go(func() { r.serve(conn) })
		}
	})
	t.Cleanup(func() {
		require.NoError(t, listener.Close())
		r.mu.Lock()
		r.ended = true
		for _, c := range r.conns {
			_ = c.Close()
		}
		r.released.Broadcast()
		r.mu.Unlock()
		running.Wait()
	})
	return r
}

// hold says which direction is held.
func (r *relay) hold(there, here bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.there, r.here = there, here
	r.released.Broadcast()
}

func (r *relay) passes(held *bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for *held && !r.ended {
		r.released.Wait()
	}
}

// keep has a connection closed at the end.
func (r *relay) keep(c net.Conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.conns = append(r.conns, c)
	if r.ended {
		_ = c.Close()
	}
}

func (r *relay) serve(conn net.Conn) {
	defer conn.Close()
	r.keep(conn)
	r.passes(&r.there)
	server, err := net.Dial("tcp", r.upstream)
	if err != nil {
		return
	}
	defer server.Close()
	r.keep(server)
	var copying sync.WaitGroup
	copying.Go(func() { r.forward(server, conn, &r.there) })
	copying.Go(func() { r.forward(conn, server, &r.here) })
	copying.Wait()
}

func (r *relay) forward(to, from net.Conn, held *bool) {
	defer to.Close()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		r.passes(held)
		if n > 0 {
			if _, err := to.Write(buffer[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// kubeconfigFor returns a kubeconfig for one of the servers of httptest, which all have the
// same certificate.
func kubeconfigFor(t *testing.T, address string) []byte {
	t.Helper()
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	kubeconfig, err := clientcmd.Write(clientcmdapi.Config{
		CurrentContext: "c", Contexts: map[string]*clientcmdapi.Context{"c": {Cluster: "c", AuthInfo: "c"}}, AuthInfos: map[string]*clientcmdapi.AuthInfo{"c": {Token: "t"}},
		Clusters: map[string]*clientcmdapi.Cluster{"c": {Server: "https://" + address, CertificateAuthorityData: ca}},
	})
	require.NoError(t, err)
	return kubeconfig
}

var errStandby = errors.New("another replica leads")

type closedGate struct{}

func (closedGate) Allow() error { return errStandby }

// TestStandbyWritesHeartbeatsOnly: a replica that does not lead renews heartbeat Leases, so
// that a take-over misses none, and writes nothing else.
func TestStandbyWritesHeartbeatsOnly(t *testing.T) {
	t.Parallel()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"`+r.Method+`"}}`)
	}))
	t.Cleanup(server.Close)
	clients, err := Connector(client.Settings{Gate: closedGate{}, Log: zap.NewNop()}, func(id string) client.Foreign { return client.Foreign{Name: id} })("milan", kubeconfigFor(t, server.Listener.Addr().String()))
	require.NoError(t, err)
	now := metav1.NowMicro()
	require.NoError(t, patchLease(t.Context(), clients.Beats, "liqo-tenant-rome", corev1beta1.HeartbeatLease, store.Patch{"renewTime": &now}))
	require.ErrorIs(t, patchLease(t.Context(), clients.Kube, "liqo-tenant-rome", corev1beta1.HeartbeatLease, store.Patch{"renewTime": &now}), errStandby)
	_, err = clients.Kube.CoordinationV1().Leases("liqo-tenant-rome").Create(t.Context(), &coordinationv1.Lease{}, metav1.CreateOptions{})
	require.ErrorIs(t, err, errStandby)
}
