package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// FullOptions of the full tier. The zero value is a usable one.
type FullOptions struct {
	// Network says how clusters reach each other.
	Network NetworkOptions
	// CNI is the network plugin of all clusters. Default CNIBridge.
	CNI CNI
	// Proxy is the mode of kube-proxy in all clusters. Default ProxyNFTables.
	Proxy ProxyMode
	// KubeRouter says what kube-router does beside the network plugin.
	KubeRouter KubeRouterMode
	// HostPorts gives pods the ports of the node that their containers have as hostPort.
	HostPorts bool
}

// Full is the full tier of a lab: clusters with real nodes, each a machine on one
// network. Closing the lab ends it. Its methods may be called concurrently.
type Full struct {
	lab              *Lab
	network          *Network
	opts             FullOptions
	testImage        string
	kubeRouter       string // the paths of programs, if there is a use for them
	flannel          string
	containerdConfig string

	mu       sync.Mutex
	clusters map[*Cluster]*fullCluster
}

type fullCluster struct {
	first          *Machine
	proxy, network string // the kubeconfigs of kube-proxy and of the network plugin
	made           int
	nodes          []*Node
}

// FullTierMissing says what this machine lacks for the full tier, one line for each
// thing, with the Debian package that brings it. Empty: nothing.
func FullTierMissing() []string {
	var missing []string
	if os.Geteuid() != 0 {
		missing = append(missing, "root: the full tier makes network namespaces, mounts and cgroups")
	}
	for _, need := range [][2]string{
		{"containerd", "containerd"}, {"ctr", "containerd"}, {"runc", "runc"}, {"ip", "iproute2"},
		{"nft", "nftables"}, {"iptables-save", "iptables"}, {"ipset", "ipset"}, {"nsenter", "util-linux"}, {"unshare", "util-linux"},
	} {
		if _, err := exec.LookPath(need[0]); err != nil {
			missing = append(missing, fmt.Sprintf("command %s: install package %s", need[0], need[1]))
		}
	}
	if _, err := cniPlugins(); err != nil {
		missing = append(missing, "CNI plugins: install package containernetworking-plugins")
	}
	return missing
}

// NewFull prepares the full tier: the network and the test image.
func NewFull(ctx context.Context, l *Lab, opts FullOptions) (*Full, error) {
	if missing := FullTierMissing(); len(missing) > 0 {
		return nil, fmt.Errorf("the full tier is not possible here; missing: %s", strings.Join(missing, "; "))
	}
	for _, hidden := range []string{"/run/", "/var/lib/", "/var/log/"} {
		for _, dir := range []string{l.Dir(), l.Kubelab()} {
			if strings.HasPrefix(dir, hidden) {
				return nil, fmt.Errorf("%s is below %s, which nodes have their own of: choose another directory", dir, hidden)
			}
		}
	}
	if err := raiseInotify(inotifyLimit, l.Logf); err != nil {
		return nil, err
	}
	config, err := containerdConfig(ctx)
	if err != nil {
		return nil, err
	}
	image, err := buildTestImage(ctx, l)
	if err != nil {
		return nil, err
	}
	f := &Full{lab: l, opts: opts, testImage: image, containerdConfig: config, clusters: map[*Cluster]*fullCluster{}}
	if err := f.prepareNetwork(ctx); err != nil {
		return nil, err
	}
	if f.network, err = l.NewNetwork(ctx, opts.Network); err != nil {
		return nil, fmt.Errorf("making the network: %w", err)
	}
	return f, nil
}

const (
	inotifyLimit = "/proc/sys/fs/inotify/max_user_instances"
	// Every containerd, kubelet and API server takes a few; all are root's together, with
	// what else root runs. A containerd that gets none runs no pods.
	inotifyNeeded = 1024
)

// raiseInotify raises a limit of this machine that a few nodes reach. It stays raised:
// another lab may have come to rely on it.
func raiseInotify(file string, log func(string, ...any)) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("reading the limit of inotify instances: %w", err)
	}
	have, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil {
		return fmt.Errorf("reading the limit of inotify instances in %s: %w", file, err)
	}
	if have >= inotifyNeeded {
		return nil
	}
	if err := os.WriteFile(file, []byte(strconv.Itoa(inotifyNeeded)), 0o644); err != nil {
		log("the limit of inotify instances stays %d, which several clusters may reach: %v", have, err)
		return nil
	}
	log("raised fs.inotify.max_user_instances from %d to %d, until the machine restarts", have, inotifyNeeded)
	return nil
}

// Lab that this is a tier of.
func (f *Full) Lab() *Lab { return f.lab }

// Network that the machines are on.
func (f *Full) Network() *Network { return f.network }

// Start makes a cluster with real nodes and returns when they are Ready. The control
// plane runs on the first node's machine, and outlives the node. There is no DNS
// before ApplyCoreDNS. Several clusters may be started at once.
func (f *Full) Start(ctx context.Context, opts ClusterOptions, nodes int) (*Cluster, error) {
	machine, err := f.network.AddMachine(ctx, opts.Name+"-1")
	if err != nil {
		return nil, fmt.Errorf("making the first machine of cluster %s: %w", opts.Name, err)
	}
	opts.Netns, opts.Address = machine.Netns, machine.AddressFor(opts.PodCIDR)
	setDefault(&opts.ProxyAddress, f.network.root().AddressFor(opts.PodCIDR))
	c, err := f.lab.Start(ctx, opts)
	if err != nil {
		return nil, err
	}
	proxy, err := c.KubeconfigForUser("system:kube-proxy")
	if err != nil {
		return nil, err
	}
	network, err := c.KubeconfigForUser("network-plugin", "system:masters")
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	f.clusters[c] = &fullCluster{first: machine, proxy: proxy, network: network}
	f.mu.Unlock()
	errs := make([]error, nodes)
	var wg sync.WaitGroup
	for i := range nodes {
		wg.Go(func() { _, errs[i] = f.AddNode(ctx, c, NodeOptions{}) })
	}
	wg.Wait()
	return c, errors.Join(errs...)
}

// AddNode adds a node to a cluster of this tier and returns when it is Ready.
func (f *Full) AddNode(ctx context.Context, c *Cluster, opts NodeOptions) (*Node, error) {
	machine, err := f.claim(c, &opts)
	if err != nil {
		return nil, err
	}
	if machine == nil {
		if machine, err = f.network.AddMachine(ctx, opts.Name); err != nil {
			return nil, fmt.Errorf("making the machine of node %s: %w", opts.Name, err)
		}
	}
	n := &Node{Name: opts.Name, Machine: machine, Dir: c.path("nodes", opts.Name), full: f, cluster: c, opts: opts}
	f.mu.Lock()
	f.clusters[c].nodes = append(f.clusters[c].nodes, n)
	f.mu.Unlock()
	return n, n.start(ctx)
}

// claim names the node and gives the machine of the control plane to the first one.
func (f *Full) claim(c *Cluster, opts *NodeOptions) (*Machine, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	state := f.clusters[c]
	if state == nil {
		return nil, fmt.Errorf("cluster %s was not started by the full tier", c.Name)
	}
	state.made++
	setDefault(&opts.Name, fmt.Sprintf("%s-%d", c.Name, state.made))
	machine := state.first
	state.first = nil
	return machine, nil
}

// Nodes of a cluster, in the order in which they were added.
func (f *Full) Nodes(c *Cluster) []*Node {
	f.mu.Lock()
	defer f.mu.Unlock()
	if state := f.clusters[c]; state != nil {
		return slices.Clone(state.nodes)
	}
	return nil
}

// Node of that name, or nil.
func (f *Full) Node(c *Cluster, name string) *Node {
	for _, n := range f.Nodes(c) {
		if n.Name == name {
			return n
		}
	}
	return nil
}

// kubeconfigs returns those of kube-proxy and of the network plugin.
func (f *Full) kubeconfigs(c *Cluster) (proxy, network string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.clusters[c].proxy, f.clusters[c].network
}

// Serve runs the server of the test image on a machine that is no node.
func (f *Full) Serve(m *Machine, port string) (*Process, error) {
	return f.lab.Process(ProcessOptions{
		Name: m.Name + "-serve-" + port, Path: filepath.Join(f.lab.Dir(), testProgram), Args: []string{"serve", port}, Netns: m.Netns,
	})
}

// LoadImage puts an image archive on every running node of a cluster, as a registry
// would; pods then use it with imagePullPolicy IfNotPresent or Never.
func (f *Full) LoadImage(ctx context.Context, c *Cluster, archive string) error {
	path, err := filepath.Abs(archive)
	if err != nil {
		return fmt.Errorf("looking for the image %s: %w", archive, err)
	}
	nodes := slices.DeleteFunc(f.Nodes(c), func(n *Node) bool { return !n.Running() })
	errs := make([]error, len(nodes))
	var wg sync.WaitGroup
	for i, n := range nodes {
		wg.Go(func() { errs[i] = n.loadImage(ctx, path) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// loadImage imports an archive into the containerd of the node.
func (n *Node) loadImage(ctx context.Context, path string) error {
	if _, err := n.Exec(ctx, "ctr", "-n", "k8s.io", "images", "import", path); err != nil {
		return fmt.Errorf("loading image %s on node %s: %w", path, n.Name, err)
	}
	return nil
}

// Running says whether the node has been started and not been killed.
func (n *Node) Running() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.process != nil && n.process.Running()
}
