package lab

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/liqod/liqod/api/generated/clientset/versioned"
)

// ClusterOptions say how a cluster is made. Only Name is required.
type ClusterOptions struct {
	// Name of the cluster: a DNS label, unique in the lab.
	Name string
	// Kubernetes is the minor version of the control plane and of real nodes: 1.32, 1.33, 1.34, 1.35 or 1.37.
	// Default: that of KubernetesVersion. etcd, kubectl and simulated nodes are always the lab's own.
	Kubernetes string
	// PodCIDR is the range of the pods' addresses, or one of each family with a comma between
	// them. IPv6 needs nodes on a Network with IPv6. Default 10.244.0.0/16.
	PodCIDR string
	// ServiceCIDR is the range of the Services' addresses, or one of each family in the order of
	// PodCIDR. Default 10.96.0.0/16.
	ServiceCIDR string
	// SimulatedNodes is the number of nodes that only pretend: NAME-sim-1, ….
	SimulatedNodes int
	// NodeGrace is after how long without a heartbeat a node is no longer Ready.
	// Default 6 s, at least 4 s.
	NodeGrace time.Duration
	// Netns is the network namespace that the control plane runs in. Default: this
	// process's own. It needs root, and the namespace's lo up.
	Netns string
	// Address that the API server listens on, and that nodes and clients reach it
	// at; in Netns it is an address there that this process can reach too. Default 127.0.0.1.
	Address string
	// ExtraAddresses are further addresses, or DNS names, in the serving certificate.
	ExtraAddresses []string
	// ProxyAddress is where the front of the API server listens, in this process's
	// network namespace. Default 127.0.0.1.
	ProxyAddress string
	// Audit writes one line for each request to the file AuditLog names.
	Audit bool
	// ClockAhead is by how much the clock of the control plane and of simulated nodes differs
	// from this machine's, in whole seconds; see CanShiftClocks. Not in another Netns.
	ClockAhead time.Duration
	// EtcdFront has the API server reach etcd through a front that can be made slow: see
	// SlowWrites. Not in another Netns.
	EtcdFront bool
	// APIServerArgs are further arguments of the API server; the last one wins.
	APIServerArgs []string
	// ControllerManagerArgs are further arguments of the controller manager.
	ControllerManagerArgs []string
}

// Cluster is a running Kubernetes cluster. Its methods may be called concurrently.
type Cluster struct {
	// Name of the cluster.
	Name string
	// Dir holds its certificates, kubeconfigs, data and logs.
	Dir string
	// Kubeconfig is the path of the administrator's kubeconfig.
	Kubeconfig string
	// APIServer is the URL of the API server itself, past the front.
	APIServer string
	// CA is the certificate of the cluster's authority, in PEM.
	CA []byte
	// Options are those that the cluster was made with, defaults filled in.
	Options ClusterOptions

	lab       *Lab
	kubelab   string // the binary with the cluster's version of Kubernetes
	authority *Authority
	plane     *controlPlane
	sim       *Process
	front     *Front
	etcdFront *etcdFront
	config    *rest.Config
	client    kubernetes.Interface
	liqod     versioned.Interface
}

// Client is an administrator's client, past the front, without a rate limit.
func (c *Cluster) Client() kubernetes.Interface { return c.client }

// Liqod is an administrator's client of liqod's own kinds, without a rate limit.
func (c *Cluster) Liqod() versioned.Interface { return c.liqod }

// Config is a copy of the administrator's client configuration.
func (c *Cluster) Config() *rest.Config { return rest.CopyConfig(c.config) }

// Authority is the cluster's certificate authority, for certificates of nodes and others.
func (c *Cluster) Authority() *Authority { return c.authority }

// CAFile is the path of the authority's certificate.
func (c *Cluster) CAFile() string { return filepath.Join(c.Dir, "pki", "ca.crt") }

// roots are what certificates of the cluster are verified by.
func (c *Cluster) roots() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(c.CA)
	return pool
}

// AuditLog is the path of the audit log; the file exists if it was asked for.
func (c *Cluster) AuditLog() string { return filepath.Join(c.Dir, "audit.log") }

// Proxied is the front of the API server: the way in that can be made to fail.
func (c *Cluster) Proxied() *Front { return c.front }

// Start makes a cluster and returns when pods can be created in it and its simulated
// nodes are Ready. Several may be started at once.
func (l *Lab) Start(ctx context.Context, opts ClusterOptions) (*Cluster, error) {
	opts.setDefaults()
	if err := opts.validate(); err != nil {
		return nil, err
	}
	c := &Cluster{Name: opts.Name, Dir: filepath.Join(l.run.dir, opts.Name), Options: opts, lab: l}
	if err := l.register(c); err != nil {
		return nil, err
	}
	begin := time.Now()
	if err := c.start(ctx); err != nil {
		return nil, fmt.Errorf("starting cluster %s: %w", c.Name, err)
	}
	l.Logf("cluster %s is up after %s", c.Name, time.Since(begin).Round(time.Millisecond))
	return c, nil
}

func (l *Lab) register(c *Cluster) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return ErrClosed
	}
	if l.clusters[c.Name] != nil {
		return fmt.Errorf("cluster %s exists already: choose another name", c.Name)
	}
	l.clusters[c.Name] = c
	return nil
}

func (c *Cluster) start(ctx context.Context) error {
	if err := os.MkdirAll(c.Dir, 0o755); err != nil {
		return fmt.Errorf("making the directory of the cluster: %w", err)
	}
	if err := c.findKubernetes(ctx); err != nil {
		return err
	}
	if err := c.layOut(); err != nil {
		return err
	}
	if err := c.connect(); err != nil {
		return err
	}
	if err := c.startPlane(ctx); err != nil {
		return err
	}
	front, err := newFront(c)
	if err != nil {
		return err
	}
	c.front = front
	if c.Options.SimulatedNodes > 0 {
		return c.AddSimulatedNodes(ctx, c.Options.SimulatedNodes)
	}
	return nil
}

// connect makes the administrator's clients; it sends nothing.
func (c *Cluster) connect() error {
	config, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig)
	if err != nil {
		return fmt.Errorf("reading the kubeconfig: %w", err)
	}
	config.QPS, config.UserAgent = -1, "lab"
	c.config = config
	if c.client, err = kubernetes.NewForConfig(config); err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	if c.liqod, err = versioned.NewForConfig(config); err != nil {
		return fmt.Errorf("making a client of liqod's kinds: %w", err)
	}
	return nil
}

func (c *Cluster) close() (err error) {
	if c.front != nil {
		err = c.front.close()
	}
	if c.etcdFront != nil {
		err = errors.Join(err, c.etcdFront.close())
	}
	return err
}

// PodCIDRs are the ranges of PodCIDR.
func (o *ClusterOptions) PodCIDRs() []string { return strings.Split(o.PodCIDR, ",") }

// ServiceCIDRs are the ranges of ServiceCIDR.
func (o *ClusterOptions) ServiceCIDRs() []string { return strings.Split(o.ServiceCIDR, ",") }

func (o *ClusterOptions) setDefaults() {
	setDefault(&o.PodCIDR, "10.244.0.0/16")
	setDefault(&o.ServiceCIDR, "10.96.0.0/16")
	setDefault(&o.NodeGrace, 6*time.Second)
	setDefault(&o.Address, "127.0.0.1")
	setDefault(&o.ProxyAddress, "127.0.0.1")
}

func setDefault[T comparable](value *T, fallback T) {
	var zero T
	if *value == zero {
		*value = fallback
	}
}

func (o *ClusterOptions) validate() error {
	if o.Name == "" {
		return fmt.Errorf("a cluster needs a name")
	}
	if o.Kubernetes != "" && otherVersions()[o.Kubernetes] == "" {
		return fmt.Errorf("cluster %s: Kubernetes %s is not one of %s", o.Name, o.Kubernetes, slices.Sorted(maps.Keys(otherVersions())))
	}
	if o.NodeGrace < 4*time.Second {
		return fmt.Errorf("cluster %s: the node grace is %s; at least 4s is accepted", o.Name, o.NodeGrace)
	}
	if o.Netns != "" && (o.EtcdFront || o.ClockAhead != 0) {
		return fmt.Errorf("cluster %s: in another network namespace neither EtcdFront nor ClockAhead is accepted", o.Name)
	}
	for _, cidr := range slices.Concat(o.PodCIDRs(), o.ServiceCIDRs()) {
		if _, _, err := net.ParseCIDR(cidr); err != nil {
			return fmt.Errorf("cluster %s: %q is not a range such as 10.244.0.0/16", o.Name, cidr)
		}
	}
	for _, address := range []string{o.Address, o.ProxyAddress} {
		if net.ParseIP(address) == nil {
			return fmt.Errorf("cluster %s: %q is not an IP address", o.Name, address)
		}
	}
	return nil
}
