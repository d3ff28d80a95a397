package roles

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/liqod/liqod/kube/serve"
	"github.com/liqod/liqod/peering/auth"
	page "github.com/liqod/liqod/roles/cmd/dashboard"
	"github.com/liqod/liqod/shadow/kubelet"
)

const (
	flood     = 10_000 // connections
	flooder   = "127.0.0.2"
	bystander = "127.0.0.3"
)

// servers are the servers of all roles. Each is a role of the test binary, which serves it at
// webhook.address, with limits as in the role that has it.
func servers() []Role {
	return []Role{
		{Name: "webhook-server", Build: buildServer(func(env Env, source *serve.Certificate) func(context.Context) error {
			allow := func(context.Context, *admissionv1.AdmissionRequest) serve.Decision { return serve.Allow() }
			return webhookServer(env, source, map[string]serve.Rule{mutatePodPath: allow}, func() {})
		})},
		{Name: "authentication-server", Build: buildServer(func(env Env, source *serve.Certificate) func(context.Context) error {
			cfg := env.Config.Authentication
			endpoint := auth.New(auth.Config{
				PerMinute: cfg.RequestsPerMinute, PerAddress: cfg.RequestsPerAddress, Connections: cfg.Connections, ConnectionsPerAddress: cfg.ConnectionsPerAddress,
				Closed: func() {}, Clock: env.Clock, Log: env.Log,
			})
			return func(ctx context.Context) error {
				return endpoint.Serve(ctx, env.Config.Webhook.Address, source.GetCertificate)
			}
		})},
		{Name: "kubelet-server", Build: buildServer(func(env Env, source *serve.Certificate) func(context.Context) error {
			server, err := kubelet.New(kubelet.Config{
				NodeName: "milan", Address: env.Config.Webhook.Address, GetCertificate: source.GetCertificate, Kube: fake.NewClientset(),
				Remote: func() (*rest.Config, error) { return nil, errors.New("no provider") }, Closed: func() {}, Clock: env.Clock, Log: env.Log,
			})
			if err != nil {
				return func(context.Context) error { return err }
			}
			return server.Run
		})},
		{Name: "dashboard-server", Build: buildServer(func(env Env, _ *serve.Certificate) func(context.Context) error {
			return func(ctx context.Context) error {
				port := netip.MustParseAddrPort(env.Config.Webhook.Address).Port()
				server, err := page.Listen(ctx, page.Config{Port: port, Every: time.Hour, Timeout: time.Minute})
				if err != nil {
					return err
				}
				return server.Run(ctx)
			}
		})},
	}
}

func buildServer(run func(Env, *serve.Certificate) func(context.Context) error) func(context.Context, Env) (Parts, error) {
	return func(_ context.Context, env Env) (Parts, error) {
		data, _, err := serve.EnsureCertificates(nil, []string{"localhost"}, time.Now())
		if err != nil {
			return Parts{}, err
		}
		source := &serve.Certificate{}
		if err := source.Set(data); err != nil {
			return Parts{}, err
		}
		return Parts{Actors: []Actor{{Name: "server", Run: run(env, source)}}}, nil
	}
}

// TestFloodsOfConnections: a pod that opens thousands of connections to a server, and lets it
// wait in each way that there is, takes neither its memory nor the turn of others. Then as many
// addresses as there are places do the same.
func TestFloodsOfConnections(t *testing.T) {
	if testing.Short() {
		t.Skip("opens tens of thousands of connections: not with -short")
	}
	var files syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files))
	require.Greater(t, files.Max, uint64(flood+1000), "open files that the machine allows (ulimit -Hn)")
	for name, tc := range map[string]struct {
		secure  bool
		path    string
		status  int // of the answer
		headers int // bytes
		most    int // connections that the server may hold
		limit   string
	}{
		// The least of the limits of all roles, which all have this server.
		"idle":                  {false, "/livez", 200, 8 << 10, 128, "webhook.resources.limits.memory"},
		"webhook-server":        {true, "/", 404, 16 << 10, webhookConnections, "webhook.resources.limits.memory"},
		"authentication-server": {true, "/", 404, 16 << 10, 1024, "controllerManager.resources.limits.memory"},
		"kubelet-server":        {true, "/healthz", 401, 128 << 10, 1024, "virtualKubelet.resources.memoryLimit"},
		"dashboard-server":      {false, "/", 200, 16 << 10, 128, "webhook.resources.limits.memory"},
	} {
		t.Run(name, func(t *testing.T) {
			address := unusedAddress(t)
			args := []string{"--role=" + name, "--webhook.address=" + address}
			if name == "idle" {
				args = append(args, "--server.address="+address)
			}
			d := start(t, args...)
			drained := make(chan struct{})
			go func() { defer close(drained); _, _ = io.Copy(io.Discard, d.stderr) }()
			t.Cleanup(func() { _ = d.Process.Kill(); <-drained; _ = d.Wait() })
			c := flooded{address: address, secure: tc.secure, headers: tc.headers, hello: clientHello(t)}
			require.Eventually(t, func() bool { return c.ask(t.Context(), tc.path) == tc.status }, time.Minute, 10*time.Millisecond)
			idle, files := d.memory(t, "VmRSS"), d.files(t)

			asked, slowest := c.whileAsked(t, tc.path, tc.status, 1, func() { c.open(t, flood, func(int) string { return flooder }) })
			held, memory := d.files(t)-files, d.memory(t, "VmRSS")-idle
			t.Logf("one address: %d connections held, %d KiB more memory, %d KiB each; another address: %d answers, the slowest after %s",
				held, memory>>10, memory/int64(max(held, 1))>>10, asked, slowest.Round(time.Millisecond))
			require.LessOrEqual(t, held, tc.most+10)

			// Each of the addresses is as heavy as the one that asks: a connection that waits while as
			// many others come as there are places gives way, too, and its client tries again.
			asked, slowest = c.whileAsked(t, tc.path, tc.status, 100, func() {
				c.open(t, 3*tc.most, func(i int) string { return fmt.Sprintf("127.1.%d.%d", i/200%10, 1+i%200) })
			})
			held, peak := d.files(t)-files, d.memory(t, "VmHWM")
			t.Logf("many addresses: %d connections held, %d KiB more memory at most, %d KiB in all; another address: %d answers, the slowest after %s",
				held, (peak-idle)>>10, peak>>10, asked, slowest.Round(time.Millisecond))
			require.LessOrEqual(t, held, tc.most+10)
			require.Less(t, peak, chartQuantity(t, tc.limit))
			require.Less(t, peak-idle, chartQuantity(t, tc.limit)/2, "the role needs the rest")
			c.close()
		})
	}
}

// flooded is a server and the connections to it.
type flooded struct {
	address string
	secure  bool
	headers int    // size that the server accepts
	hello   []byte // first message of a client of TLS

	mu  sync.Mutex
	all []net.Conn
}

// open opens connections, several at a time. Each has another state in which the server waits:
// five of eight have sent nothing, the others half a handshake, half a request, or nearly the
// longest one. The server may have closed it before.
func (c *flooded) open(t *testing.T, n int, from func(int) string) {
	t.Helper()
	next := make(chan int)
	var workers sync.WaitGroup
	for range 32 {
		workers.Go(func() {
			for i := range next {
				c.stall(t.Context(), i%8, from(i))
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	workers.Wait()
}

func (c *flooded) stall(ctx context.Context, kind int, from string) {
	conn, err := dialFrom(ctx, from, c.address)
	if err != nil {
		return
	}
	c.mu.Lock()
	c.all = append(c.all, conn)
	c.mu.Unlock()
	var send []byte
	switch kind {
	case 0:
		send = c.hello
	case 1:
		send = []byte("GET / HTTP/1.1\r\nHost: x\r\n")
	case 2:
		send = []byte("GET / HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("a", c.headers-100))
	default:
		return
	}
	if c.secure && kind > 0 {
		secure := tls.Client(conn, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // a test
		if secure.HandshakeContext(ctx) != nil {
			return
		}
		conn = secure
	}
	_, _ = conn.Write(send)
}

func (c *flooded) close() {
	for _, conn := range c.all {
		_ = conn.Close()
	}
}

// whileAsked calls do, and meanwhile sends requests from another address, each on a connection
// of its own. All of them have to be answered, after as many tries at most.
func (c *flooded) whileAsked(t *testing.T, path string, status, tries int, do func()) (asked int, slowest time.Duration) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); do() }()
	for last := false; !last; {
		select {
		case <-done:
			last = true // once more, as all connections are there
		default:
		}
		began := time.Now()
		answer := 0
		for i := 0; i < tries && answer == 0; i++ {
			answer = c.ask(t.Context(), path)
		}
		require.Equal(t, status, answer)
		slowest = max(slowest, time.Since(began))
		asked++
	}
	return asked, slowest
}

// ask sends a request from another address than all connections. It returns the status of the
// answer, or 0.
func (c *flooded) ask(ctx context.Context, path string) int {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	conn, err := dialFrom(ctx, bystander, c.address)
	if err != nil {
		return 0
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	if c.secure {
		conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // a test
	}
	if _, err := io.WriteString(conn, "GET "+path+" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"); err != nil {
		return 0
	}
	answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0
	}
	_ = answer.Body.Close()
	return answer.StatusCode
}

func dialFrom(ctx context.Context, from, to string) (net.Conn, error) {
	return (&net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(from), 0))}).DialContext(ctx, "tcp", to)
}

// clientHello returns the first message of a client of TLS.
func clientHello(t *testing.T) []byte {
	t.Helper()
	ours, theirs := net.Pipe()
	go func() { _ = tls.Client(theirs, &tls.Config{InsecureSkipVerify: true}).HandshakeContext(t.Context()) }() //nolint:gosec // a test
	hello := make([]byte, 16<<10)
	n, err := ours.Read(hello)
	require.NoError(t, errors.Join(err, ours.Close(), theirs.Close()))
	return hello[:n]
}

// unusedAddress returns an address of the loopback interface at which nothing listens.
func unusedAddress(t *testing.T) string {
	t.Helper()
	listener := must((&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0"))
	require.NoError(t, listener.Close())
	return listener.Addr().String()
}

// memory returns a line of the process' memory, in bytes.
func (d *daemon) memory(t *testing.T, name string) int64 {
	t.Helper()
	data := must(os.ReadFile(filepath.Join("/proc", strconv.Itoa(d.Process.Pid), "status")))
	_, rest, found := strings.Cut(string(data), name+":")
	require.True(t, found)
	n := must(strconv.ParseInt(strings.Fields(rest)[0], 10, 64))
	return n << 10
}

// files returns the number of the process' open files.
func (d *daemon) files(t *testing.T) int {
	t.Helper()
	all := must(os.ReadDir(filepath.Join("/proc", strconv.Itoa(d.Process.Pid), "fd")))
	return len(all)
}

// chartQuantity returns a quantity of memory in the values of the chart, in bytes.
func chartQuantity(t *testing.T, path string) int64 {
	t.Helper()
	data := must(os.ReadFile("../charts/liqod/values.yaml"))
	var value any
	require.NoError(t, yaml.Unmarshal(data, &value))
	for _, key := range strings.Split(path, ".") {
		value = value.(map[string]any)[key]
	}
	quantity := must(resource.ParseQuantity(value.(string)))
	return quantity.Value()
}
