package lab

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

//go:embed node-init.sh
var nodeInit string

// nodeStart joins the node's cgroups before it enters namespaces in which it no
// longer sees them. Its exec chain keeps the process number, and --kill-child makes
// the node die with it.
const nodeStart = `for dir in $CGROUPS; do echo $$ >"$dir/cgroup.procs"; done
exec ip netns exec "$NETNS" unshare -m -p -u -i -C --fork --kill-child --propagation private sh "$NODE_DIR/init.sh"`

// NodeOptions configure a node.
type NodeOptions struct {
	// Name of the Node, unique in the lab. Default CLUSTER-N.
	Name string
	// Labels of the Node, beyond those that the kubelet sets.
	Labels map[string]string
}

// Node is a real node: containerd, kubelet, kube-proxy and the programs of its network plugin on
// a machine of its own.
// Its methods may be called concurrently.
type Node struct {
	// Name of the Node.
	Name string
	// Machine it runs on.
	Machine *Machine
	// Dir holds its configuration and the logs of these programs.
	Dir string

	full    *Full
	cluster *Cluster
	opts    NodeOptions
	mu      sync.Mutex
	groups  nodeCgroups
	process *Process
	init    *os.Process
}

// start boots the node and returns when it is Ready.
func (n *Node) start(ctx context.Context) error {
	begin := time.Now()
	if err := n.boot(ctx); err != nil {
		return fmt.Errorf("booting node %s: %w", n.Name, err)
	}
	err := n.whileRunning(ctx, func(ctx context.Context) error { return n.connect(ctx) })
	if err != nil {
		return err
	}
	err = n.whileRunning(ctx, func(ctx context.Context) error { return errors.Join(n.beats(ctx, begin), n.ready(ctx)) })
	if err != nil {
		return err
	}
	n.full.lab.Logf("node %s is Ready after %s", n.Name, time.Since(begin).Round(time.Millisecond))
	return nil
}

func (n *Node) boot(ctx context.Context) error {
	groups, err := newNodeCgroups(n.full.lab, n.Machine.Netns)
	if err != nil {
		return err
	}
	env := map[string]string{
		"CGROUPS": strings.Join(groups.dirs, " "), "CGROUP_V1": strings.Join(groups.v1, " "),
		"NETNS": n.Machine.Netns, "NODE_DIR": n.Dir, "NODE_NAME": n.Name, "NODE_ADDRESS": strings.Join(n.addresses(), ","),
		"NODE_LABELS": labelList(n.opts.Labels), "NODE_KUBECONFIG": filepath.Join(n.Dir, "kubeconfig"),
		"KUBELAB": n.cluster.kubelab, "TEST_IMAGE": n.full.testImage,
	}
	maps.Copy(env, n.networkEnv())
	var list []string
	for name, value := range env {
		list = append(list, name+"="+value)
	}
	if err := n.writeFiles(groups); err != nil {
		return err
	}
	process, err := n.full.lab.Process(ProcessOptions{
		Name: filepath.Join(n.cluster.Name, "nodes", n.Name, "init"), Path: "/bin/sh", Args: []string{"-c", nodeStart}, Env: list,
	})
	if err != nil {
		return err
	}
	n.mu.Lock()
	n.groups, n.process, n.init = groups, process, nil
	n.mu.Unlock()
	return n.whileRunning(ctx, func(context.Context) error { return n.findInit() })
}

// findInit opens the first process of the node, which outlives n.process by a moment.
func (n *Node) findInit() error {
	data, err := os.ReadFile(filepath.Join(n.Dir, "init.pid"))
	if err != nil {
		return err
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil {
		return err
	}
	process, err := os.FindProcess(pid)
	if err != nil {
		return err
	}
	n.mu.Lock()
	n.init = process
	n.mu.Unlock()
	return nil
}

// connect waits for the pod range of the node, and connects its pods to the network, as far as
// its network plugin does not.
func (n *Node) connect(ctx context.Context) error {
	node, err := n.cluster.Client().CoreV1().Nodes().Get(ctx, n.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	pods := node.Spec.PodCIDRs
	if len(pods) == 0 {
		return errors.New("the node has no range for its pods yet")
	}
	if n.full.opts.CNI.routed() {
		if err := n.full.network.announce(ctx, n.Machine, n.cluster.Name, n.cluster.Options.PodCIDRs(), pods); err != nil {
			return err
		}
	}
	return n.writeCNI(pods)
}

// addresses are those of the node, one of each family of its cluster.
func (n *Node) addresses() (out []string) {
	for _, cidr := range n.cluster.Options.PodCIDRs() {
		out = append(out, n.Machine.AddressFor(cidr))
	}
	return out
}

// beats returns an error unless the kubelet has renewed its Lease since then: the conditions of
// the Node may date from before it was killed.
func (n *Node) beats(ctx context.Context, since time.Time) error {
	lease, err := n.cluster.Client().CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(ctx, n.Name, metav1.GetOptions{})
	return Wrong(err, lease.Spec.RenewTime == nil || lease.Spec.RenewTime.Time.Before(since), "node %s has not renewed its Lease", n.Name)
}

func (n *Node) ready(ctx context.Context) error {
	node, err := n.cluster.Client().CoreV1().Nodes().Get(ctx, n.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady && condition.Status != corev1.ConditionTrue {
			return fmt.Errorf("node %s is not Ready: %s", n.Name, condition.Message)
		}
		if condition.Type == corev1.NodeReady {
			return nil
		}
	}
	return fmt.Errorf("node %s has said nothing yet", n.Name)
}

// Kill ends the node at once, as if its power failed, and returns when none of its processes
// runs. The Node object stays. A killed node may be started again.
func (n *Node) Kill(ctx context.Context) error {
	n.mu.Lock()
	process, init, groups := n.process, n.init, n.groups
	n.mu.Unlock()
	if process == nil {
		return nil
	}
	process.Kill()
	if init == nil {
		return nil
	}
	err := Eventually(ctx, func(context.Context) error {
		if err := init.Signal(killSignal); !errors.Is(err, os.ErrProcessDone) {
			return fmt.Errorf("the first process of node %s has not ended (%v)", n.Name, err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	// The next kubelet would take 3 s for each container whose cgroup it still finds.
	return groups.remove(ctx)
}

// Start boots a killed node again, as after a power failure: its images are kept, its
// pods are not. It returns when the node is Ready.
func (n *Node) Start(ctx context.Context) error {
	n.mu.Lock()
	running := n.process != nil && n.process.Running()
	n.mu.Unlock()
	if running {
		return fmt.Errorf("node %s runs already", n.Name)
	}
	if err := os.Remove(filepath.Join(n.Dir, "init.pid")); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("forgetting the node's last run: %w", err)
	}
	return n.start(ctx)
}

// Reboot kills the node and boots it again on a machine with a fresh network: a test that has
// changed the former network has to repeat the change. It returns when the node is Ready. The
// first node's machine keeps its network: the control plane runs there too.
func (n *Node) Reboot(ctx context.Context) error {
	if n.Machine.Netns == n.cluster.Options.Netns {
		return fmt.Errorf("node %s shares its machine with the control plane: another node may be rebooted", n.Name)
	}
	if err := n.Kill(ctx); err != nil {
		return err
	}
	if err := n.full.network.Restart(ctx, n.Machine); err != nil {
		return fmt.Errorf("restarting the machine of node %s: %w", n.Name, err)
	}
	return n.Start(ctx)
}

// Exec runs a program inside the node, in its file system, network and process
// namespaces, and returns its output.
func (n *Node) Exec(ctx context.Context, name string, args ...string) (string, error) {
	n.mu.Lock()
	init := n.init
	n.mu.Unlock()
	if init == nil {
		return "", fmt.Errorf("node %s has not been started", n.Name)
	}
	enter := append([]string{"-t", strconv.Itoa(init.Pid), "-m", "-n", "-p", "-u", "-i", "--", name}, args...)
	return command(ctx, "", "nsenter", enter...)
}

// whileRunning waits for cond, and no longer than the node runs.
func (n *Node) whileRunning(ctx context.Context, cond func(context.Context) error) error {
	n.mu.Lock()
	process := n.process
	n.mu.Unlock()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-process.Exited():
			cancel()
		case <-ctx.Done():
		}
	}()
	err := Eventually(ctx, cond)
	if err != nil && !process.Running() {
		return fmt.Errorf("node %s ended (%w)%s", n.Name, err, n.tails())
	}
	if err != nil {
		return fmt.Errorf("waiting for node %s: %w%s", n.Name, err, n.tails())
	}
	return nil
}

// tails returns the ends of the logs, because the files are deleted with the lab.
func (n *Node) tails() string {
	var all strings.Builder
	for _, name := range []string{"init", "containerd", "kubelet", "kube-proxy", "kube-router", "flannel"} {
		data, err := os.ReadFile(filepath.Join(n.Dir, name+".log"))
		if err == nil {
			fmt.Fprintf(&all, "\n--- the end of %s's log:\n%s", name, data[max(0, len(data)-1500):])
		}
	}
	return all.String()
}

func labelList(labels map[string]string) string {
	pairs := make([]string, 0, len(labels))
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		pairs = append(pairs, key+"="+labels[key])
	}
	return strings.Join(pairs, ",")
}
