package timed

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"time"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/e2e/site"
)

// undoWithin is how long it may take to undo a fault: a control plane and nodes start.
const undoWithin = 4 * time.Minute

// undo ends a fault; nil: it ends by itself.
type undo func(context.Context) error

// begin begins a fault. node is the node that dies, if a single one does.
func (w *anarchyWorld) begin(ctx context.Context, f clusterFault) (end undo, node string, err error) {
	s := w.byName[f.cluster]
	role, what, _ := strings.Cut(f.kind, "-")
	switch f.kind {
	case apiKilled:
		s.KillAPIServer()
		return s.StartAPIServer, "", nil
	case apiPaused:
		s.PauseAPIServer()
		return func(context.Context) error { s.ResumeAPIServer(); return nil }, "", nil
	case apiCut, "tunnel-cut", "tunnel-cut-from", partition:
		end, err = w.cut(ctx, f)
		return end, "", err
	case "gateway-killed":
		s.Fabric.Gateway().Kill()
		return func(context.Context) error { return s.Fabric.RestartGateway() }, "", nil
	case "gateway-paused":
		p := s.Fabric.Gateway()
		p.Pause()
		return func(context.Context) error { p.Resume(); return nil }, "", nil
	case "route-killed":
		n := w.node(f)
		s.Fabric.Route(n.Name).Kill()
		return func(context.Context) error { return s.Fabric.RestartRoute(n.Name) }, "", nil
	case nodeKilled:
		n := w.node(f)
		return func(ctx context.Context) error { return s.StartNode(ctx, n) }, n.Name, s.KillNode(ctx, n)
	case allKilled:
		return s.StartAll, "", s.KillAll(ctx)
	case rollout:
		all := append([]string{f.cluster}, uses()[f.cluster]...)
		return nil, "", w.rollOut(ctx, f.cluster, all[int(f.pick)%len(all)])
	}
	end, err = w.signal(ctx, f, role, what == "paused")
	return end, "", err
}

func (w *anarchyWorld) node(f clusterFault) *lab.Node {
	nodes := w.sites.Full.Nodes(w.byName[f.cluster].Cluster)
	return nodes[int(f.pick)%len(nodes)]
}

// signal kills or pauses the processes of a role on all nodes of a cluster, or of one of its
// vkubelets. Kubernetes starts killed processes again, after a while that grows with each kill;
// the fault ends when it has.
func (w *anarchyWorld) signal(ctx context.Context, f clusterFault, role string, pause bool) (undo, error) {
	flag := "--role=" + role
	if providers := uses()[f.cluster]; role == "vkubelet" {
		provider := providers[int(f.pick)%len(providers)]
		flag = "--vkubelet.virtualNode=" + corev1beta1.TenantNamespace(provider) + "/" + provider
	}
	signal := syscall.SIGKILL
	if pause {
		signal = syscall.SIGSTOP
	}
	var undos []undo
	for _, n := range w.sites.Full.Nodes(w.byName[f.cluster].Cluster) {
		found, err := n.Processes(ctx, flag)
		if err != nil {
			return nil, err
		}
		if err := n.Signal(ctx, signal, found...); err != nil {
			return nil, err
		}
		if !pause {
			undos = append(undos, func(ctx context.Context) error { return started(ctx, n, flag, found) })
		} else {
			undos = append(undos, func(ctx context.Context) error {
				// The kubelet may have ended the process meanwhile, as it did not answer.
				_ = n.Signal(ctx, syscall.SIGCONT, found...)
				return nil
			})
		}
	}
	return endAll(undos), nil
}

// started waits until as many other processes with a flag run on a node as were killed there.
func started(ctx context.Context, n *lab.Node, flag string, killed []string) error {
	return lab.Eventually(ctx, func(ctx context.Context) error {
		have, err := n.Processes(ctx, flag)
		if err != nil {
			return err
		}
		have = slices.DeleteFunc(have, func(p string) bool { return slices.Contains(killed, p) })
		return lab.Wrong(nil, len(have) < len(killed), "node %s runs %d of %d processes with %s", n.Name, len(have), len(killed), flag)
	})
}

// endAll ends several faults.
func endAll(undos []undo) undo {
	return func(ctx context.Context) (err error) {
		for _, u := range undos {
			err = errors.Join(err, u(ctx))
		}
		return err
	}
}

// cut drops packets of a cluster: those to its API server from other clusters, those of its
// tunnels, or all that another cluster sends it or gets from it.
func (w *anarchyWorld) cut(ctx context.Context, f clusterFault) (undo, error) {
	s := w.byName[f.cluster]
	machines, tunnel := []*lab.Machine{s.Fabric.Machine}, fmt.Sprintf("udp dport %d", site.TunnelPort)
	var drops lab.Drops
	switch f.kind {
	case apiCut:
		server, err := url.Parse(s.APIServer)
		if err != nil {
			return nil, fmt.Errorf("reading the URL of the API server of %s: %w", s.Name, err)
		}
		machines = []*lab.Machine{w.sites.Full.Nodes(s.Cluster)[0].Machine}
		drops.Arriving = []string{fmt.Sprintf("ip saddr %s tcp dport %s", addressesOf(w.others(f.cluster)), server.Port())}
	case "tunnel-cut":
		drops.Arriving, drops.Leaving = []string{tunnel}, []string{tunnel}
	case "tunnel-cut-from":
		drops.Leaving = []string{tunnel}
	case partition:
		peer := addressesOf(machinesOf(w.sites, w.byName[f.peer]))
		machines = machinesOf(w.sites, s)
		drops.Arriving = []string{"ip saddr " + peer}
		drops.Leaving = []string{"ip daddr " + peer}
	}
	var undos []undo
	for _, m := range machines {
		undos = append(undos, func(ctx context.Context) error { return m.Pass(ctx, f.kind) })
		if err := m.Drop(ctx, f.kind, drops); err != nil {
			return endAll(undos), err
		}
	}
	return endAll(undos), nil
}

// others are the machines of all other clusters.
func (w *anarchyWorld) others(cluster string) (out []*lab.Machine) {
	for _, s := range w.byName {
		if s.Name != cluster {
			out = append(out, machinesOf(w.sites, s)...)
		}
	}
	return out
}
