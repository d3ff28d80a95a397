package timed

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/e2e/lab"
	"github.com/liqod/liqod/e2e/site"
)

// mending is how long it may take to undo a fault: a control plane and nodes start.
const mending = 4 * time.Minute

// undo ends a fault; nil: it has no end of its own.
type undo func(context.Context) error

// inflict begins a fault. node is the one that dies by it, if it is only one.
func (w *anarchic) inflict(ctx context.Context, o outrage) (end undo, node string, err error) {
	s := w.byName[o.cluster]
	role, what, _ := strings.Cut(o.kind, "-")
	switch o.kind {
	case apiKilled:
		s.KillAPIServer()
		return s.StartAPIServer, "", nil
	case apiPaused:
		s.PauseAPIServer()
		return func(context.Context) error { s.ResumeAPIServer(); return nil }, "", nil
	case apiCut, "tunnel-cut", "tunnel-cut-from", partition:
		end, err = w.cut(ctx, o)
		return end, "", err
	case "gateway-killed":
		s.Fabric.Gateway().Kill()
		return func(context.Context) error { return s.Fabric.RestartGateway() }, "", nil
	case "gateway-paused":
		p := s.Fabric.Gateway()
		p.Pause()
		return func(context.Context) error { p.Resume(); return nil }, "", nil
	case "route-killed":
		n := w.node(o)
		s.Fabric.Route(n.Name).Kill()
		return func(context.Context) error { return s.Fabric.RestartRoute(n.Name) }, "", nil
	case nodeKilled:
		n := w.node(o)
		return func(ctx context.Context) error { return startNode(ctx, s, n) }, n.Name, killNode(ctx, s, n)
	case allKilled:
		return func(ctx context.Context) error { return w.startAll(ctx, s) }, "", w.killAll(ctx, s)
	case rollout:
		all := append([]string{o.cluster}, uses()[o.cluster]...)
		return nil, "", w.roll(ctx, o.cluster, all[int(o.pick)%len(all)])
	}
	end, err = w.signal(ctx, o, role, what == "paused")
	return end, "", err
}

func (w *anarchic) node(o outrage) *lab.Node {
	nodes := w.sites.Full.Nodes(w.byName[o.cluster].Cluster)
	return nodes[int(o.pick)%len(nodes)]
}

// signal kills or pauses the processes of a role on all nodes of a cluster, or of one of its
// vkubelets. Kubernetes starts again what is killed.
func (w *anarchic) signal(ctx context.Context, o outrage, role string, pause bool) (undo, error) {
	flag := "--role=" + role
	if providers := uses()[o.cluster]; role == "vkubelet" {
		provider := providers[int(o.pick)%len(providers)]
		flag = "--vkubelet.virtualNode=" + corev1beta1.TenantNamespace(provider) + "/" + provider
	}
	signal := syscall.SIGKILL
	if pause {
		signal = syscall.SIGSTOP
	}
	var undos []undo
	for _, n := range w.sites.Full.Nodes(w.byName[o.cluster].Cluster) {
		found, err := n.Processes(ctx, flag)
		if err != nil {
			return nil, err
		}
		if err := n.Signal(ctx, signal, found...); err != nil {
			return nil, err
		}
		if pause {
			undos = append(undos, func(ctx context.Context) error {
				// The kubelet may have ended it meanwhile: it did not answer.
				_ = n.Signal(ctx, syscall.SIGCONT, found...)
				return nil
			})
		}
	}
	return endAll(undos), nil
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
func (w *anarchic) cut(ctx context.Context, o outrage) (undo, error) {
	s := w.byName[o.cluster]
	machines, table := []*lab.Machine{s.Fabric.Machine}, "anarchy-"+o.kind
	var in, out string
	switch o.kind {
	case apiCut:
		server, err := url.Parse(s.APIServer)
		if err != nil {
			return nil, fmt.Errorf("reading the URL of the API server of %s: %w", s.Name, err)
		}
		machines = []*lab.Machine{w.sites.Full.Nodes(s.Cluster)[0].Machine}
		in = fmt.Sprintf("ip saddr { %s } tcp dport %s drop", w.addresses(w.others(o.cluster)...), server.Port())
	case "tunnel-cut":
		in, out = fmt.Sprintf("udp dport %d drop", site.TunnelPort), fmt.Sprintf("udp dport %d drop", site.TunnelPort)
	case "tunnel-cut-from":
		out = fmt.Sprintf("udp dport %d drop", site.TunnelPort)
	case partition:
		machines = w.machines(o.cluster)
		in, out = fmt.Sprintf("ip saddr { %s } drop", w.addresses(o.peer)), fmt.Sprintf("ip daddr { %s } drop", w.addresses(o.peer))
	}
	rules := dropTable(table, in, out)
	var undos []undo
	for _, m := range machines {
		if _, err := m.Command(ctx, "nft", rules); err != nil {
			return endAll(undos), err
		}
		undos = append(undos, func(ctx context.Context) error {
			_, err := m.Command(ctx, "nft", "delete table inet "+table)
			return err
		})
	}
	return endAll(undos), nil
}

// dropTable drops by one rule what arrives and by another what leaves; "" drops nothing.
func dropTable(name, in, out string) string {
	rules := "table inet " + name + " {\n"
	for _, hook := range []string{"prerouting", "output", "forward"} {
		rule := out
		if hook == "prerouting" {
			rule = in
		}
		if rule != "" {
			rules += fmt.Sprintf("\tchain %s { type filter hook %[1]s priority -300; %s; }\n", hook, rule)
		}
	}
	return rules + "}\n"
}

func (w *anarchic) others(cluster string) (out []string) {
	for _, c := range w.realm.clusters {
		if c != cluster {
			out = append(out, c)
		}
	}
	return out
}

// machines of a cluster: its nodes and its gateway.
func (w *anarchic) machines(cluster string) []*lab.Machine {
	s := w.byName[cluster]
	out := []*lab.Machine{s.Fabric.Machine}
	for _, n := range w.sites.Full.Nodes(s.Cluster) {
		out = append(out, n.Machine)
	}
	return out
}

// addresses of the machines of clusters, as nft takes them.
func (w *anarchic) addresses(clusters ...string) string {
	var out []string
	for _, c := range clusters {
		for _, m := range w.machines(c) {
			out = append(out, m.Address)
		}
	}
	return strings.Join(out, ", ")
}

// killNode ends a node, and its role route, which is a process of its own here.
func killNode(ctx context.Context, s *site.Site, n *lab.Node) error {
	s.Fabric.Route(n.Name).Kill()
	return n.Kill(ctx)
}

func startNode(ctx context.Context, s *site.Site, n *lab.Node) error {
	return errors.Join(s.Fabric.RestartRoute(n.Name), n.Start(ctx))
}

func (w *anarchic) killAll(ctx context.Context, s *site.Site) error {
	var everything errgroup.Group
	everything.Go(func() error { s.KillControlPlane(); return nil })
	everything.Go(func() error { s.Fabric.Gateway().Kill(); return nil })
	for _, n := range w.sites.Full.Nodes(s.Cluster) {
		everything.Go(func() error { return killNode(ctx, s, n) })
	}
	return everything.Wait()
}

func (w *anarchic) startAll(ctx context.Context, s *site.Site) error {
	if err := s.StartControlPlane(ctx); err != nil {
		return err
	}
	var everything errgroup.Group
	everything.Go(s.Fabric.RestartGateway)
	for _, n := range w.sites.Full.Nodes(s.Cluster) {
		everything.Go(func() error { return startNode(ctx, s, n) })
	}
	return everything.Wait()
}
