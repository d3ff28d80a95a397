package kubelet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apiserver/pkg/util/proxy"
	"k8s.io/client-go/rest"
	clientportforward "k8s.io/client-go/tools/portforward"
	clientremotecommand "k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/client-go/util/exec"
	"k8s.io/cri-streaming/pkg/streaming/portforward"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
)

// program is what runs in the provider's container.
type program func(ctx context.Context, command []string, in io.Reader, out, errOut io.WriteCloser, resize <-chan remotecommand.TerminalSize) error

func (p program) ExecInContainer(ctx context.Context, _, _, _ string, command []string, in io.Reader, out, errOut io.WriteCloser,
	_ bool, resize <-chan remotecommand.TerminalSize, _ time.Duration) error {
	return p(ctx, command, in, out, errOut, resize)
}

func (p program) AttachContainer(ctx context.Context, _, _, _ string, in io.Reader, out, errOut io.WriteCloser,
	_ bool, resize <-chan remotecommand.TerminalSize) error {
	return p(ctx, nil, in, out, errOut, resize)
}

// provider is an API server that runs p for exec and attach. With webSocket it speaks
// that as a real one does; without it only SPDY gets through.
func provider(t *testing.T, webSocket bool, p program) http.Handler {
	t.Helper()
	// The node behind it speaks SPDY only.
	run := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		opts := optionsOf(r)
		w, r, end := tied(w, r)
		defer end()
		if strings.HasSuffix(r.URL.Path, "/attach") {
			remotecommand.ServeAttach(w, r, p, "", "", "", opts, time.Minute, time.Minute, remotecommand.SupportedStreamingProtocols)
			return
		}
		remotecommand.ServeExec(w, r, p, "", "", "", r.URL.Query()["command"], opts, time.Minute, time.Minute, remotecommand.SupportedStreamingProtocols)
	})
	node := httptest.NewServer(run)
	t.Cleanup(node.Close)
	base, err := url.Parse(node.URL)
	require.NoError(t, err)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasPrefix(r.URL.Path, "/api/v1/namespaces/shop-twin/pods/web/") || r.URL.Query().Get("container") != "app" {
			http.Error(w, "wrong target "+r.URL.String(), http.StatusNotFound)
			return
		}
		location := *r.URL
		location.Scheme, location.Host = base.Scheme, base.Host
		if r.Method == http.MethodGet {
			if !webSocket {
				http.Error(w, "no WebSocket here", http.StatusBadGateway)
				return
			}
			opts := optionsOf(r)
			proxy.NewStreamTranslatorHandler(&location, nil, 0, proxy.Options{
				Stdin: opts.Stdin, Stdout: opts.Stdout, Stderr: opts.Stderr, Tty: opts.TTY}).ServeHTTP(w, r)
			return
		}
		run(w, r)
	})
}

func optionsOf(r *http.Request) *remotecommand.Options {
	on := func(name string) bool { return r.URL.Query().Get(name) == "true" }
	return &remotecommand.Options{Stdin: on("stdin"), Stdout: on("stdout"), Stderr: on("stderr"), TTY: on("tty")}
}

// caller is the home API server's side of a session.
func (r *rig) caller(t *testing.T, webSocket bool, path string) clientremotecommand.Executor {
	t.Helper()
	config := &rest.Config{Host: r.url, BearerToken: "good", TLSClientConfig: rest.TLSClientConfig{CAData: []byte(r.ca.pem)}}
	target, err := url.Parse(r.url + path)
	require.NoError(t, err)
	var executor clientremotecommand.Executor
	if webSocket {
		executor, err = clientremotecommand.NewWebSocketExecutorForProtocols(config, "GET", target.String(), "v4.channel.k8s.io")
	} else {
		executor, err = clientremotecommand.NewSPDYExecutor(config, "POST", target)
	}
	require.NoError(t, err)
	return executor
}

func TestExecEndToEnd(t *testing.T) {
	shout := program(func(_ context.Context, command []string, in io.Reader, out, errOut io.WriteCloser, _ <-chan remotecommand.TerminalSize) error {
		fmt.Fprintf(out, "%q ", command)
		if in != nil {
			typed := make([]byte, 5)
			if _, err := io.ReadFull(in, typed); err != nil {
				return err
			}
			fmt.Fprint(out, strings.ToUpper(string(typed)))
		}
		if errOut != nil {
			fmt.Fprint(errOut, "warning")
		}
		return exec.CodeExitError{Err: errors.New("command failed"), Code: 3}
	})
	for name, tc := range map[string]struct{ callerWS, providerWS bool }{
		"SPDY, then WebSocket":      {false, true},
		"SPDY both ways":            {false, false},
		"WebSocket both ways":       {true, true},
		"WebSocket, then only SPDY": {true, false},
	} {
		t.Run(name, func(t *testing.T) {
			rig := newRig(t, provider(t, tc.providerWS, shout))
			var out, errOut bytes.Buffer
			err := rig.caller(t, tc.callerWS, "/exec/shop/web/uid-1/app?command=sh&command=-c&input=1&output=1&error=1").
				StreamWithContext(t.Context(), clientremotecommand.StreamOptions{Stdin: strings.NewReader("hello"), Stdout: &out, Stderr: &errOut})
			var exit exec.CodeExitError
			require.ErrorAs(t, err, &exit)
			require.Equal(t, 3, exit.Code)
			require.Equal(t, `["sh" "-c"] HELLO`, out.String())
			require.Equal(t, "warning", errOut.String())

			out.Reset()
			require.ErrorAs(t, rig.caller(t, tc.callerWS, "/exec/shop/web/app?command=true&output=1").
				StreamWithContext(t.Context(), clientremotecommand.StreamOptions{Stdout: &out}), &exit)
			require.Equal(t, `["true"] `, out.String(), "without stdin")
		})
	}
}

type oneSize struct{ sent bool }

func (s *oneSize) Next() *clientremotecommand.TerminalSize {
	if s.sent {
		return nil
	}
	s.sent = true
	return &clientremotecommand.TerminalSize{Width: 120, Height: 40}
}

func TestTerminalAndAttach(t *testing.T) {
	terminal := program(func(_ context.Context, _ []string, _ io.Reader, out, errOut io.WriteCloser, resize <-chan remotecommand.TerminalSize) error {
		size := <-resize
		_, err := fmt.Fprintf(out, "%dx%d %v", size.Width, size.Height, errOut == nil)
		return err
	})
	for name, path := range map[string]string{
		"exec":   "/exec/shop/web/app?command=sh&output=1&tty=1&input=1",
		"attach": "/attach/shop/web/app?output=1&tty=1&input=1",
	} {
		t.Run(name, func(t *testing.T) {
			rig := newRig(t, provider(t, true, terminal))
			stdin, _ := io.Pipe()
			var out bytes.Buffer
			require.NoError(t, rig.caller(t, false, path).StreamWithContext(t.Context(),
				clientremotecommand.StreamOptions{Stdin: stdin, Stdout: &out, Tty: true, TerminalSizeQueue: &oneSize{}}))
			require.Equal(t, "120x40 true", out.String())
		})
	}
}

// TestSessionsThatEnd: a session ends with its caller, whose command does not run on, and with the server.
func TestSessionsThatEnd(t *testing.T) {
	for name, tc := range map[string]struct{ webSocket, stops bool }{
		"SPDY, the caller goes": {}, "WebSocket, the caller goes": {webSocket: true}, "the server stops": {stops: true},
	} {
		t.Run(name, func(t *testing.T) {
			started, ended := make(chan struct{}), make(chan struct{})
			rig := newRig(t, provider(t, tc.stops, func(ctx context.Context, _ []string, _ io.Reader, _, _ io.WriteCloser, _ <-chan remotecommand.TerminalSize) error {
				close(started)
				<-ctx.Done()
				close(ended)
				return ctx.Err()
			}))
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			over := make(chan error, 1)
			go func() {
				over <- rig.caller(t, tc.webSocket, "/exec/shop/web/app?command=sleep&output=1").
					StreamWithContext(ctx, clientremotecommand.StreamOptions{Stdout: io.Discard})
			}()
			<-started
			if tc.stops {
				require.NoError(t, rig.stop())
				require.Error(t, <-over)
				return
			}
			cancel()
			require.ErrorIs(t, <-over, context.Canceled)
			select {
			case <-ended:
			case <-time.After(time.Minute):
				t.Fatal("the command runs on after its caller has gone")
			}
		})
	}
}

func TestSessionRequestsThatFail(t *testing.T) {
	rig := newRig(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { t.Errorf("the provider was asked %s", r.URL) }))
	for name, tc := range map[string]struct {
		path string
		want int
		says string
	}{
		"no command":        {"/exec/shop/web/app?output=1", 400, "command is missing"},
		"no stream":         {"/exec/shop/web/app?command=ls", 400, "input, output and error"},
		"unknown pod":       {"/exec/shop/other/app?command=ls&output=1", 404, "not on node milan"},
		"unknown container": {"/exec/shop/web/other?command=ls&output=1", 404, "no container"},
		"another pod's UID": {"/exec/shop/web/uid-2/app?command=ls&output=1", 404, "another pod of that name"},
		"attach no stream":  {"/attach/shop/web/app", 400, "input, output and error"},
		"forward other UID": {"/portForward/shop/web/uid-2", 404, "another pod of that name"},
		"no upgrade":        {"/exec/shop/web/app?command=ls&output=1", 400, "upgrade"},
	} {
		t.Run(name, func(t *testing.T) {
			code, body := rig.do(t, "POST", tc.path, "good", nil)
			require.Equal(t, tc.want, code, body)
			require.Contains(t, strings.ToLower(body), strings.ToLower(tc.says))
		})
	}
	code, body := rig.do(t, "GET", "/portForward/shop/web?port=0", "good", upgrade)
	require.Equal(t, 400, code, body)
	require.Contains(t, body, "65535")
}

// echo answers each connection with what it reads, in capitals.
type echo struct{}

func (echo) PortForward(_ context.Context, _, _ string, port int32, stream io.ReadWriteCloser) error {
	if port != 8080 {
		return fmt.Errorf("port %d is closed", port)
	}
	typed := make([]byte, 5)
	if _, err := io.ReadFull(stream, typed); err != nil {
		return err
	}
	_, err := stream.Write(bytes.ToUpper(typed))
	return err
}

// forwards is an API server that leads to echo. With tunnel it speaks WebSocket as a real one does.
func forwards(tunnel bool) http.Handler {
	serve := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		portforward.ServePortForward(w, r, echo{}, "", "", &portforward.V4Options{}, time.Minute, time.Minute, portforward.SupportedProtocols)
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method != http.MethodGet:
			serve(w, r)
		case tunnel:
			proxy.NewTunnelingHandler(serve).ServeHTTP(w, r)
		default:
			http.Error(w, "no WebSocket here", http.StatusBadGateway)
		}
	})
}

func TestPortForwardEndToEnd(t *testing.T) {
	for name, tunnel := range map[string]bool{"SPDY": false, "tunnelled in WebSocket": true} {
		t.Run(name, func(t *testing.T) {
			rig := newRig(t, forwards(tunnel))
			require.Equal(t, "HELLO", rig.forward(t, "8080"))
		})
	}
}

// TestPortForwardRefused: what the provider says of a port that is closed is heard, though
// it ends the connection with the same breath.
func TestPortForwardRefused(t *testing.T) {
	rig := newRig(t, forwards(false))
	upgrader, client, target := rig.forwarding(t)
	conn, _, err := spdy.NewDialer(upgrader, client, http.MethodPost, target).Dial(portforward.ProtocolV1Name)
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	for i := range 50 {
		headers := http.Header{}
		headers.Set(portforward.PortHeader, "9")
		headers.Set(portforward.PortForwardRequestIDHeader, strconv.Itoa(i))
		headers.Set(portforward.StreamType, portforward.StreamTypeError)
		said, err := conn.CreateStream(headers)
		require.NoError(t, err)
		headers.Set(portforward.StreamType, portforward.StreamTypeData)
		if _, err = conn.CreateStream(headers); err != nil {
			require.ErrorContains(t, err, "Stream reset", "the end may overtake the reply to the stream")
		}
		message, err := io.ReadAll(said)
		require.NoError(t, err)
		require.Contains(t, string(message), "port 9 is closed")
	}
}

// forwarding is what connects to the pod's port-forward over SPDY.
func (r *rig) forwarding(t *testing.T) (spdy.Upgrader, *http.Client, *url.URL) {
	t.Helper()
	config := &rest.Config{Host: r.url, BearerToken: "good", TLSClientConfig: rest.TLSClientConfig{CAData: []byte(r.ca.pem)}}
	transport, upgrader, err := spdy.RoundTripperFor(config)
	require.NoError(t, err)
	target, err := url.Parse(r.url + "/portForward/shop/web")
	require.NoError(t, err)
	return upgrader, &http.Client{Transport: transport}, target
}

// forward sends hello to a port of the pod and returns the answer.
func (r *rig) forward(t *testing.T, port string) string {
	t.Helper()
	stop, ready := make(chan struct{}), make(chan struct{})
	upgrader, client, target := r.forwarding(t)
	forwarder, err := clientportforward.New(spdy.NewDialer(upgrader, client, http.MethodPost, target), []string{"0:" + port}, stop, ready, io.Discard, io.Discard)
	require.NoError(t, err)
	over := make(chan error, 1)
	go func() { over <- forwarder.ForwardPorts() }()
	<-ready
	ports, err := forwarder.GetPorts()
	require.NoError(t, err)
	answer := dialAndSay(t, ports[0].Local)
	close(stop)
	require.NoError(t, <-over)
	return answer
}
