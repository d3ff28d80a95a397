package cmd

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"sync/atomic"
	"time"

	"github.com/spf13/pflag"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/liqod/liqod/api/generated/clientset/versioned"
	"github.com/liqod/liqod/kube/client"
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
}

// patience is the default timeout of a request.
const patience = 30 * time.Second

func (c *commands) newConnection() *connection {
	return &connection{version: c.version, limit: patience, warnings: os.Stderr}
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

// clients has the clients of the selected cluster.
type clients struct {
	kube kubernetes.Interface
	liqo versioned.Interface
	// server is the URL of its API server. ca has the authorities of its certificate as PEM;
	// it is empty if those of this machine apply.
	server string
	ca     []byte
	// now is the time by the cluster's clock, as far as it has told.
	now func() time.Time
}

func (c *connection) clients() (*clients, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = c.kubeconfig
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &c.overrides).ClientConfig()
	if clientcmd.IsEmptyConfig(err) {
		return nil, unknown(errors.New("no cluster is known: name a kubeconfig with --kubeconfig or KUBECONFIG"))
	}
	if err != nil {
		return nil, unknown(fmt.Errorf("reading the kubeconfig: %w", err))
	}
	config.QPS, config.Timeout = -1, c.limit
	config.UserAgent = client.UserAgent("liqod", c.version, "command")
	config.WarningHandler = rest.NewWarningWriter(c.warnings, rest.WarningWriterOptions{Deduplicate: true})
	if err := rest.LoadTLSFiles(config); err != nil {
		return nil, unknown(fmt.Errorf("reading the certificates of the kubeconfig: %w", err))
	}
	if config, err = client.Distrust(config, client.Foreign{Name: config.Host}); err != nil {
		return nil, unknown(err)
	}
	seen := &clusterClock{}
	config.Wrap(seen.watch)
	out := &clients{now: seen.now, server: config.Host, ca: config.CAData}
	if out.kube, err = kubernetes.NewForConfig(client.Core(config)); err != nil {
		return nil, unknown(fmt.Errorf("making a client: %w", err))
	}
	if out.liqo, err = versioned.NewForConfig(config); err != nil {
		return nil, unknown(fmt.Errorf("making a client of liqod's kinds: %w", err))
	}
	return out, nil
}

// clusterClock is the clock of an API server, from the dates of its answers. The age of a
// Lease is computed with it, because the clock of this machine may differ.
type clusterClock struct{ ahead atomic.Int64 }

func (c *clusterClock) now() time.Time { return time.Now().Add(time.Duration(c.ahead.Load())) }

func (c *clusterClock) watch(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		answer, err := next.RoundTrip(request)
		if err == nil {
			if date, err := http.ParseTime(answer.Header.Get("Date")); err == nil {
				c.ahead.Store(int64(time.Until(date)))
			}
		}
		return answer, err
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }

// explain adds a solution to an error.
func explain(err error) error {
	var away *url.Error
	switch {
	case err == nil:
		return nil
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("the API server does not accept the credentials; see `kubectl config view`, --context and --kubeconfig: %w", err)
	case noSuchKind(err):
		return fmt.Errorf("liqod is not installed in this cluster, or it is not the one that you mean (--context): its kinds are missing: %w", err)
	case errors.As(err, &away):
		return fmt.Errorf("the API server does not answer; is it the one that you mean (--context, --kubeconfig)? %w", err)
	}
	return err
}

// noSuchKind reports whether the API server does not serve the kind. A missing object is
// another error.
func noSuchKind(err error) bool {
	return apierrors.IsNotFound(err) && apierrors.IsUnexpectedServerError(err)
}
