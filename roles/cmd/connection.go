package cmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/liqod/liqod/api/generated/clientset/versioned"
	"github.com/liqod/liqod/kube/client"
	"github.com/liqod/liqod/peering/join"
)

// connection selects a cluster, with the same flags as kubectl.
type connection struct {
	version    string
	kubeconfig string
	overrides  clientcmd.ConfigOverrides
	// limit is the timeout of a request.
	limit time.Duration
	// warnings receives the warnings of the API server.
	warnings io.Writer
	// flags are the names of the flags that select the cluster, for messages.
	flags string
}

// Flags that select this cluster, and the other one.
const (
	localFlags  = "--context, --kubeconfig"
	remoteFlags = "--remote-context, --remote-kubeconfig"
)

// patience is the default timeout of a request.
const patience = 30 * time.Second

func (c *commands) newConnection() *connection {
	return &connection{version: c.build.Version, limit: patience, warnings: os.Stderr, flags: localFlags}
}

func (c *commands) connection(flags *pflag.FlagSet) *connection {
	conn := c.newConnection()
	flags.StringVar(&conn.kubeconfig, "kubeconfig", "", "`file` with the way to the cluster; else KUBECONFIG, else ~/.kube/config")
	o := &conn.overrides
	flags.StringVar(&o.CurrentContext, clientcmd.FlagContext, "", "`name` of the kubeconfig's context; else its current one")
	flags.StringVar(&o.Context.Cluster, clientcmd.FlagClusterName, "", "`name` of the kubeconfig's cluster")
	flags.StringVar(&o.Context.AuthInfo, clientcmd.FlagAuthInfoName, "", "`name` of the kubeconfig's user")
	flags.StringVar(&o.AuthInfo.Impersonate, clientcmd.FlagImpersonate, "", "`user` to act as")
	flags.StringArrayVar(&o.AuthInfo.ImpersonateGroups, clientcmd.FlagImpersonateGroup, nil, "`group` to act as; may be repeated")
	return conn
}

// connected returns what a command runs with the clients of a cluster.
func (c *commands) connected(conn *connection, run func(*cobra.Command, *clients, []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		to, err := c.connect(conn)
		if err != nil {
			return err
		}
		return run(cmd, to, args)
	}
}

// clients has the clients of the selected cluster.
type clients struct {
	kube kubernetes.Interface
	liqo versioned.Interface
	// server is the URL of its API server.
	server string
	// now is the time by the cluster's clock, as far as it has told.
	now func() time.Time
	// exec runs a command in a container. Tests may leave it out.
	exec execution
}

func (c *connection) clients() (*clients, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = c.kubeconfig
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &c.overrides).ClientConfig()
	if err != nil {
		if raw, _ := rules.Load(); raw != nil && len(raw.Contexts) > 0 && c.overrides.CurrentContext != "" && raw.Contexts[c.overrides.CurrentContext] == nil {
			err = fmt.Errorf("%w: there are %s", err, strings.Join(contexts(raw), ", "))
		}
		return nil, unknown(c.unread(err, absent(rules)))
	}
	config.QPS, config.Timeout = -1, c.limit
	config.UserAgent = client.UserAgent("liqod", c.version, "command")
	config.WarningHandler = rest.NewWarningWriter(c.warnings, rest.WarningWriterOptions{Deduplicate: true})
	if err := rest.LoadTLSFiles(config); err != nil {
		return nil, unknown(fmt.Errorf("reading the certificates of the kubeconfig: %w", err))
	}
	streams := rest.CopyConfig(config) // a stream has no timeout and no limit of size
	streams.Timeout = 0
	if config, err = client.Distrust(config, client.Foreign{Name: config.Host}); err != nil {
		return nil, unknown(err)
	}
	seen := &clusterClock{}
	config.Wrap(seen.watch)
	out := &clients{now: seen.now, server: config.Host}
	if out.kube, err = kubernetes.NewForConfig(client.Core(config)); err != nil {
		return nil, unknown(fmt.Errorf("making a client: %w", err))
	}
	out.exec = executor(streams, out.kube)
	if out.liqo, err = versioned.NewForConfig(config); err != nil {
		return nil, unknown(fmt.Errorf("making a client of liqod's kinds: %w", err))
	}
	return out, nil
}

// executor returns a function that runs commands in containers, over WebSocket or, if the
// API server does not know that, SPDY.
func executor(config *rest.Config, kube kubernetes.Interface) execution {
	return func(ctx context.Context, namespace, pod, container string, command []string, out io.Writer) error {
		request := kube.CoreV1().RESTClient().Post().Namespace(namespace).Resource("pods").Name(pod).SubResource("exec").
			VersionedParams(&corev1.PodExecOptions{Container: container, Command: command, Stdout: true, Stderr: true}, scheme.ParameterCodec)
		first, err := remotecommand.NewWebSocketExecutor(config, http.MethodGet, request.URL().String())
		if err != nil {
			return fmt.Errorf("preparing a WebSocket: %w", err)
		}
		second, err := remotecommand.NewSPDYExecutor(config, http.MethodPost, request.URL())
		if err != nil {
			return fmt.Errorf("preparing SPDY: %w", err)
		}
		either, err := remotecommand.NewFallbackExecutor(first, second, func(err error) bool {
			return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
		})
		if err != nil {
			return fmt.Errorf("preparing exec: %w", err)
		}
		complaint := limitedBuffer{left: 1 << 10}
		err = either.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: out, Stderr: &complaint})
		if text := complaint.String(); err != nil && text != "" {
			err = errors.Join(err, errors.New(text))
		}
		return err
	}
}

// errNoCluster says that there is no kubeconfig.
var errNoCluster = errors.New("no cluster is known")

// absent returns the files of --kubeconfig, or else of the variable KUBECONFIG, that do not
// exist. The client library ignores those of the variable.
func absent(rules *clientcmd.ClientConfigLoadingRules) (gone []string) {
	paths := rules.Precedence
	switch {
	case rules.ExplicitPath != "":
		paths = []string{rules.ExplicitPath}
	case os.Getenv(clientcmd.RecommendedConfigPathEnvVar) == "":
		return nil
	}
	for _, file := range paths {
		if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
			gone = append(gone, file)
		}
	}
	return gone
}

// unread explains why a kubeconfig could not be used. absent are the files of it that are
// missing.
func (c *connection) unread(err error, absent []string) error {
	_, flag, _ := strings.Cut(c.flags, ", ")
	switch {
	case len(absent) > 0 && c.kubeconfig != "":
		return fmt.Errorf("%s names %s, which does not exist", flag, c.kubeconfig)
	case len(absent) > 0 && clientcmd.IsEmptyConfig(err):
		return fmt.Errorf("KUBECONFIG names %s, which does not exist: set it to a kubeconfig, or name one with %s", strings.Join(absent, ", "), flag)
	case len(absent) > 0:
		return fmt.Errorf("reading the kubeconfig, without %s of KUBECONFIG, which does not exist: %w", strings.Join(absent, ", "), err)
	case clientcmd.IsEmptyConfig(err):
		return fmt.Errorf("%w: name a kubeconfig with %s or KUBECONFIG", errNoCluster, flag)
	}
	return fmt.Errorf("reading the kubeconfig (%s): %w", c.flags, err)
}

// clusterClock is the clock of an API server, from the dates of its answers. The age of a
// Lease is computed with it, because the clock of this machine may differ.
type clusterClock struct{ lead atomic.Int64 }

func (c *clusterClock) now() time.Time { return time.Now().Add(time.Duration(c.lead.Load())) }

func (c *clusterClock) watch(next http.RoundTripper) http.RoundTripper { return watched{c, next} }

// watched is a transport that shows a clock the dates of the answers.
type watched struct {
	clock *clusterClock
	next  http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (w watched) RoundTrip(request *http.Request) (*http.Response, error) {
	answer, err := w.next.RoundTrip(request)
	if err == nil {
		if date, err := http.ParseTime(answer.Header.Get("Date")); err == nil {
			w.clock.lead.Store(int64(time.Until(date)))
		}
	}
	return answer, err
}

// WrappedRoundTripper returns the transport below. The client library looks for it to cancel
// requests, and warns on the terminal if it does not find it.
func (w watched) WrappedRoundTripper() http.RoundTripper { return w.next }

// explained is an error that has its solution already.
type explained struct{ error }

// Unwrap returns the underlying error.
func (e explained) Unwrap() error { return e.error }

// explain adds a solution to an error of this cluster.
func explain(err error) error { return explainFor(err, localFlags) }

// explainFor adds a solution to an error of the cluster that the given flags select. An
// error that has one already is returned as it is.
func explainFor(err error, flags string) error {
	var done explained
	var away *url.Error
	first, _, _ := strings.Cut(flags, ",")
	switch {
	case err == nil || errors.As(err, &done):
		return err
	case apierrors.IsUnauthorized(err):
		return explained{fmt.Errorf("the API server does not accept the credentials; see `kubectl config view`, %s: %w", flags, err)}
	case noSuchKind(err):
		return explained{fmt.Errorf("liqod is not installed in this cluster, or it is not the one that you mean (%s): its kinds are missing: %w", first, err)}
	case errors.Is(err, join.ErrNotInstalled):
		return explained{fmt.Errorf("%w; or it is not the cluster that you mean (%s)", err, flags)}
	case errors.As(err, &away):
		return explained{fmt.Errorf("the API server does not answer; is it the one that you mean (%s)? %w", flags, err)}
	}
	return err
}

// noSuchKind reports whether the API server does not serve the kind. A missing object is
// another error.
func noSuchKind(err error) bool {
	return apierrors.IsNotFound(err) && apierrors.IsUnexpectedServerError(err)
}
