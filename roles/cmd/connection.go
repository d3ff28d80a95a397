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

// connection says which cluster is meant, by the flags that kubectl has for it.
type connection struct {
	version    string
	kubeconfig string
	overrides  clientcmd.ConfigOverrides
	// limit is how long a request may take.
	limit time.Duration
	// warnings is where those of the API server are told.
	warnings io.Writer
}

// patience is how long a request may take where nothing else is said.
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

// clients reach the cluster that is meant.
type clients struct {
	kube kubernetes.Interface
	liqo versioned.Interface
	// server is the URL of its API server, and ca the certificate that it is believed by,
	// as PEM; empty where the machine's own are.
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

// clusterClock is the clock of an API server, from the dates of its answers. The ages of
// Leases are judged by it: this machine's clock may be another.
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

// explain adds to an error what to do about it.
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

// noSuchKind says that the API server does not know the kind, which is not to say that it
// lacks an object.
func noSuchKind(err error) bool {
	return apierrors.IsNotFound(err) && apierrors.IsUnexpectedServerError(err)
}
