package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// ErrUnsafeKubeconfig is returned for a kubeconfig from an untrusted author that would
// make this process run commands, read local files, or talk to a server without verifying
// its certificate.
var ErrUnsafeKubeconfig = errors.New("unsafe kubeconfig")

// Options select the kubeconfig of this process's own cluster.
type Options struct {
	// Kubeconfig is the path of a kubeconfig file. It has the highest precedence.
	Kubeconfig string
	// Context is a context in the kubeconfig; empty means its current context.
	Context string
	// Getenv is os.Getenv, except in tests. The variable KUBECONFIG has the second highest
	// precedence. The credentials that Kubernetes mounts into a pod have the lowest.
	Getenv func(string) string
}

// Load returns the client configuration of this process's own cluster. It reads files and
// opens no connection.
func Load(o Options) (*rest.Config, error) {
	rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: o.Kubeconfig}
	source := o.Kubeconfig
	if source == "" {
		source = o.Getenv(clientcmd.RecommendedConfigPathEnvVar)
		if source == "" {
			return inCluster()
		}
		rules.Precedence = filepath.SplitList(source)
	}
	overrides := &clientcmd.ConfigOverrides{CurrentContext: o.Context}
	cfg, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("loading kubeconfig %s: %w", source, err)
	}
	return cfg, nil
}

func inCluster() (*rest.Config, error) {
	cfg, err := rest.InClusterConfig()
	if errors.Is(err, rest.ErrNotInCluster) {
		return nil, errors.New("no kubeconfig given, KUBECONFIG is not set, and this process does not run in a pod: " +
			"name a kubeconfig file or run in a cluster")
	}
	if err != nil {
		return nil, fmt.Errorf("loading the pod's own credentials: %w", err)
	}
	return cfg, nil
}

// FromKubeconfig returns the client configuration for the current context of a kubeconfig
// from an untrusted author. Credentials must be inline, and the server must have an https
// URL and a verified certificate. Otherwise the error wraps ErrUnsafeKubeconfig.
func FromKubeconfig(data []byte) (*rest.Config, error) {
	raw, err := clientcmd.Load(data)
	if err != nil {
		return nil, fmt.Errorf("decoding the kubeconfig: %w", err)
	}
	if err := safe(raw); err != nil {
		return nil, err
	}
	cfg, err := clientcmd.NewNonInteractiveClientConfig(*raw, "", &clientcmd.ConfigOverrides{}, nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	return cfg, nil
}

func safe(raw *clientcmdapi.Config) error {
	current, ok := raw.Contexts[raw.CurrentContext]
	if !ok {
		return fmt.Errorf("kubeconfig has no current context %q", raw.CurrentContext)
	}
	cluster, ok := raw.Clusters[current.Cluster]
	if !ok {
		return fmt.Errorf("kubeconfig has no cluster %q, which context %q names", current.Cluster, raw.CurrentContext)
	}
	user, ok := raw.AuthInfos[current.AuthInfo]
	if !ok {
		return fmt.Errorf("kubeconfig has no user %q, which context %q names", current.AuthInfo, raw.CurrentContext)
	}
	return errors.Join(safeCluster(current.Cluster, cluster), safeUser(current.AuthInfo, user))
}

func safeCluster(name string, c *clientcmdapi.Cluster) error {
	server, err := url.Parse(c.Server)
	switch {
	case err != nil || server.Scheme != "https" || server.Host == "":
		return unsafef("cluster %q has server %q; accepted is https://host[:port]", name, c.Server)
	case c.InsecureSkipTLSVerify:
		return unsafef("cluster %q skips the verification of its server; give certificate-authority-data instead", name)
	case c.CertificateAuthority != "":
		return unsafef("cluster %q refers to the file of a certificate authority; accepted is certificate-authority-data", name)
	}
	return nil
}

func safeUser(name string, u *clientcmdapi.AuthInfo) error {
	switch {
	case u.Exec != nil:
		return unsafef("user %q runs a command (exec); accepted are token or client-certificate-data", name)
	case u.AuthProvider != nil:
		return unsafef("user %q has an auth-provider; accepted are token or client-certificate-data", name)
	case u.TokenFile != "":
		return unsafef("user %q refers to the file of a token; accepted is token", name)
	case u.ClientCertificate != "":
		return unsafef("user %q refers to the file of a certificate; accepted is client-certificate-data", name)
	case u.ClientKey != "":
		return unsafef("user %q refers to the file of a key; accepted is client-key-data", name)
	}
	return nil
}

func unsafef(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrUnsafeKubeconfig}, args...)...)
}

// StripManagedFields is a transform function for informers. It removes the managed fields
// of obj in place: liqod does not read them, and they are often half of the size of an
// object. A value that is not an object is returned unchanged.
func StripManagedFields(obj any) (any, error) {
	if m, err := meta.Accessor(obj); err == nil && m.GetManagedFields() != nil {
		m.SetManagedFields(nil)
	}
	return obj, nil
}

const (
	dialTimeout = 3 * time.Second
	// The kernel of a paused server still accepts connections. Only the first byte
	// received, which over TLS answers the ClientHello, shows that the server process is
	// running.
	firstByteTimeout = 5 * time.Second
	keepAlive        = 15 * time.Second
)

// dialer opens connections with a bound on the time to connect and on the time until the
// first byte from the server. It requires TLS, because only then does the server answer
// before a request is sent. client-go has no setting for the timeout of a TLS handshake.
type dialer struct{ firstByte time.Duration }

func (d *dialer) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{Timeout: dialTimeout, KeepAlive: keepAlive}).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	if err := conn.SetReadDeadline(time.Now().Add(d.firstByte)); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return &greeted{Conn: conn}, nil
}

// greeted removes the read deadline when the first byte arrives.
type greeted struct {
	net.Conn

	heard atomic.Bool
}

// Read implements net.Conn.
func (c *greeted) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 && c.heard.CompareAndSwap(false, true) {
		if unset := c.Conn.SetReadDeadline(time.Time{}); err == nil {
			err = unset
		}
	}
	return n, err
}
