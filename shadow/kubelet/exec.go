package kubelet

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	clientremotecommand "k8s.io/client-go/tools/remotecommand"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	"k8s.io/streaming/pkg/httpstream"
)

const (
	// A session on which nothing moves is ended as late as a kubelet does.
	sessionIdle     = 4 * time.Hour
	sessionCreation = remotecommand.DefaultStreamCreationTimeout
)

// session carries one exec or attach to the provider.
type session struct {
	config *rest.Config
	url    *url.URL
	opts   *remotecommand.Options
}

func (s *Server) exec(w http.ResponseWriter, r *http.Request) {
	command := r.URL.Query()["command"]
	if len(command) == 0 {
		s.fail(w, r, badRequest("command is missing: give it once for the program and once for each of its arguments"))
		return
	}
	t, c, err := s.session(r, "exec", func(container string, opts *remotecommand.Options) runtime.Object {
		return &corev1.PodExecOptions{Container: container, Command: command, Stdin: opts.Stdin, Stdout: opts.Stdout, Stderr: opts.Stderr, TTY: opts.TTY}
	})
	if err != nil {
		s.fail(w, r, err)
		return
	}
	w, r, end := tied(w, r)
	defer end()
	remotecommand.ServeExec(w, r, c, t.pod, "", t.container, command, c.opts,
		sessionIdle, sessionCreation, remotecommand.SupportedStreamingProtocols)
}

func (s *Server) attach(w http.ResponseWriter, r *http.Request) {
	t, c, err := s.session(r, "attach", func(container string, opts *remotecommand.Options) runtime.Object {
		return &corev1.PodAttachOptions{Container: container, Stdin: opts.Stdin, Stdout: opts.Stdout, Stderr: opts.Stderr, TTY: opts.TTY}
	})
	if err != nil {
		s.fail(w, r, err)
		return
	}
	w, r, end := tied(w, r)
	defer end()
	remotecommand.ServeAttach(w, r, c, t.pod, "", t.container, c.opts,
		sessionIdle, sessionCreation, remotecommand.SupportedStreamingProtocols)
}

// session returns the session that a request asks for, and where it leads. params returns the parameters of the subresource.
func (s *Server) session(r *http.Request, subresource string, params func(container string, opts *remotecommand.Options) runtime.Object) (target, *session, error) {
	opts, err := remotecommand.NewOptions(r)
	if err != nil {
		return target{}, nil, badRequest("no stream is asked for: set at least one of input, output and error to 1")
	}
	t, err := s.target(r)
	if err != nil {
		return t, nil, err
	}
	request := t.client.Post().Namespace(t.namespace).Resource("pods").Name(t.pod).SubResource(subresource).
		VersionedParams(params(t.container, opts), scheme.ParameterCodec)
	return t, &session{t.config, request.URL(), opts}, nil
}

// ExecInContainer runs the command. The names are in the session's URL already.
func (c *session) ExecInContainer(ctx context.Context, _, _, _ string, _ []string, in io.Reader, out, errOut io.WriteCloser,
	_ bool, resize <-chan remotecommand.TerminalSize, _ time.Duration) error {
	return c.stream(ctx, in, out, errOut, resize)
}

// AttachContainer attaches. The names are in the session's URL already.
func (c *session) AttachContainer(ctx context.Context, _, _, _ string, in io.Reader, out, errOut io.WriteCloser,
	_ bool, resize <-chan remotecommand.TerminalSize) error {
	return c.stream(ctx, in, out, errOut, resize)
}

// stream copies until the command or the caller ends. Its error is returned as it is:
// the server reads the exit code from it.
func (c *session) stream(ctx context.Context, in io.Reader, out, errOut io.Writer, resize <-chan remotecommand.TerminalSize) error {
	executor, err := c.executor()
	if err != nil {
		return err
	}
	// Streams that were not asked for may be there all the same, and lead nowhere.
	opts := clientremotecommand.StreamOptions{Tty: c.opts.TTY}
	if c.opts.Stdin {
		opts.Stdin = in
	}
	if c.opts.Stdout {
		opts.Stdout = out
	}
	if c.opts.Stderr && !c.opts.TTY {
		opts.Stderr = errOut
	}
	if c.opts.TTY && resize != nil {
		opts.TerminalSizeQueue = sizes{ctx.Done(), resize}
	}
	return executor.StreamWithContext(ctx, opts)
}

// executor prefers WebSocket and falls back to SPDY where something on the way does
// not carry it.
func (c *session) executor() (clientremotecommand.Executor, error) {
	ws, err := clientremotecommand.NewWebSocketExecutor(c.config, http.MethodGet, c.url.String())
	if err != nil {
		return nil, fmt.Errorf("preparing the session: %w", err)
	}
	spdy, err := clientremotecommand.NewSPDYExecutor(c.config, http.MethodPost, c.url)
	if err != nil {
		return nil, fmt.Errorf("preparing the session: %w", err)
	}
	return clientremotecommand.NewFallbackExecutor(ws, spdy, notCarried)
}

func notCarried(err error) bool {
	return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
}

// sizes passes the caller's terminal size on until done is closed.
type sizes struct {
	done   <-chan struct{}
	resize <-chan remotecommand.TerminalSize
}

// Next waits for the next size; nil says that there will be none.
func (q sizes) Next() *clientremotecommand.TerminalSize {
	select {
	case size, ok := <-q.resize:
		if !ok {
			return nil
		}
		return &clientremotecommand.TerminalSize{Width: size.Width, Height: size.Height}
	case <-q.done:
		return nil
	}
}
