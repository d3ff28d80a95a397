package cmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/netfabric/host"
	"github.com/liqod/liqod/peering/join"
	"github.com/liqod/liqod/roles/cmd/helper"
	"github.com/liqod/liqod/roles/cmd/network"
	"github.com/liqod/liqod/roles/cmd/report"
)

func (c *commands) network() *cobra.Command {
	return parent("network", "Look at the network between clusters, measure it, and replace its keys", c.networkCheck(), c.networkPerf(), c.explainAddress(), c.rotateKeys(), c.networkProbe())
}

func (c *commands) explainAddress() *cobra.Command {
	cmd := &cobra.Command{
		Use: "explain IP|POD", Short: "Print the path of a packet to an address of a peer, and back",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return Usagef("%s takes one IP address, or one pod as NAMESPACE/NAME, not %d arguments", cmd.CommandPath(), len(args))
			}
			return nil
		},
	}
	from := cmd.Flags().String("from", "", "`address` of a pod of this cluster, or of a peer, or NAMESPACE/NAME of a pod; default: an invented one")
	timeout := cmd.Flags().Duration("timeout", 30*time.Second, "how long the cluster may take to answer")
	conn := c.connection(cmd.Flags())
	cmd.ValidArgsFunction = c.completePods(conn, 1, nil)
	cmd.RunE = interruptible(limited(timeout, c.connected(conn, func(cmd *cobra.Command, to *clients, args []string) error {
		dst, err := podAddress(cmd.Context(), to, args[0])
		if err != nil {
			return err
		}
		src := netip.Addr{}
		if *from != "" {
			if src, err = podAddress(cmd.Context(), to, *from); err != nil {
				return fmt.Errorf("--from: %w", err)
			}
		}
		objects, allPods, err := fabricObjects(cmd.Context(), to, src.IsValid())
		if err != nil {
			return unknown(err)
		}
		text, failed := network.Explain(objects, dst, src, allPods)
		_, err = fmt.Fprint(cmd.OutOrStdout(), text)
		return errors.Join(err, failed)
	})))
	return cmd
}

// podAddress returns the address that an argument is, or that of the pod that it names.
func podAddress(ctx context.Context, to *clients, arg string) (netip.Addr, error) {
	namespace, name, named := strings.Cut(arg, "/")
	if !named {
		addr, err := netip.ParseAddr(arg)
		if err != nil {
			return addr, Usagef("%q is not an IP address, and no pod as NAMESPACE/NAME", arg)
		}
		return addr.Unmap(), nil
	}
	pod, err := to.kube.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return netip.Addr{}, unknown(explain(err))
	}
	addr, err := netip.ParseAddr(pod.Status.PodIP)
	if err != nil {
		return addr, unknown(fmt.Errorf("pod %s has no address yet (phase %s)", arg, pod.Status.Phase))
	}
	return addr.Unmap(), nil
}

// fabricObjects reads the objects that the hosts of the network fabric watch. withShared also
// reads those that say which pods are shared, and which peers reach all pods.
func fabricObjects(ctx context.Context, to *clients, withShared bool) (out host.Objects, allPods func(corev1beta1.Trust) bool, err error) {
	namespace, err := join.Namespace(ctx, to.kube)
	if err != nil {
		return out, nil, explain(err)
	}
	if out, err = network.Fabric(ctx, to.kube, to.liqo, namespace, to.now()); err != nil || !withShared {
		return out, nil, explain(err)
	}
	if out.Shared, err = sharedObjects(ctx, to); err != nil {
		return out, nil, err
	}
	allPods, err = reachesAll(ctx, to)
	return out, allPods, err
}

// reachAll is the value of networking.reach with which peers reach all pods.
const reachAll = "All"

// reachesAll returns a function that reports whether a peer reaches all pods of this cluster, by
// spec.trust of its ForeignCluster.
func reachesAll(ctx context.Context, to *clients) (func(corev1beta1.Trust) bool, error) {
	var given struct { // its keys match in any case
		Networking struct{ Reach string }
		Sharing    struct{ Trust corev1beta1.Trust }
	}
	if _, err := join.Configuration(ctx, to.kube, &given); err != nil {
		return nil, explain(err)
	}
	return func(trust corev1beta1.Trust) bool {
		if reach := given.Networking.Reach; reach != "" {
			return reach == reachAll
		}
		return cmp.Or(trust, given.Sharing.Trust) == corev1beta1.TrustOrganisation
	}, nil
}

// sharedObjects reads the objects that say which pods are shared with peers.
func sharedObjects(ctx context.Context, to *clients) (host.Shared, error) {
	pods, e1 := to.kube.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	twins, e2 := to.kube.CoreV1().Namespaces().List(ctx, metav1.ListOptions{LabelSelector: host.TwinSelector})
	offloadings, e3 := to.liqo.OffloadingV1beta1().NamespaceOffloadings(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	endpoints, e4 := to.kube.DiscoveryV1().EndpointSlices(metav1.NamespaceAll).List(ctx, metav1.ListOptions{LabelSelector: host.SliceSelector})
	if err := cmp.Or(e1, e2, e3, e4); err != nil {
		return host.Shared{}, explain(err)
	}
	return host.Shared{
		Pods: store.Pointers(pods.Items), Twins: store.Pointers(twins.Items),
		Offloadings: store.Pointers(offloadings.Items), Slices: store.Pointers(endpoints.Items),
	}, nil
}

func (c *commands) networkCheck() *cobra.Command {
	cmd := &cobra.Command{Use: "check [PEER | POD POD]", Short: "Send packets hop by hop, and say which hop breaks"}
	cfg := &network.Config{}
	conn := c.packets(cmd, cfg, 5*time.Minute, func(cmd *cobra.Command) error {
		verdict, err := network.Run(cmd.Context(), *cfg)
		if len(verdict) > 0 {
			err = errors.Join(err, printText(cmd.OutOrStdout(), verdict.Text()))
		}
		_, broken := verdict.First()
		return measured(err, broken)
	})
	cmd.ValidArgsFunction = c.completePods(conn, 2, peerNames)
	flags := cmd.Flags()
	flags.StringArrayVar(&cfg.Nodes, "node", nil, fmt.Sprintf("`node` of this cluster to send packets from; may be repeated; else at most %d nodes", network.MostNodes))
	cmd.Args = func(_ *cobra.Command, args []string) error {
		switch {
		case len(args) == 1 && !strings.Contains(args[0], "/"):
			cfg.Peers = args
		case len(args) == 2 && strings.Contains(args[0], "/") && strings.Contains(args[1], "/"):
			cfg.Pods = args
		case len(args) > 0:
			return Usagef("name a peer, or two pods as NAMESPACE/NAME")
		}
		return nil
	}
	return cmd
}

// packets has a command make pods and call do, and gives it the flags for that.
func (c *commands) packets(cmd *cobra.Command, cfg *network.Config, within time.Duration, do func(*cobra.Command) error) *connection {
	cfg.Program = c.program
	flags := cmd.Flags()
	flags.StringVar(&cfg.Image, "image", "", "`image` of the pods; else that of liqod's controller")
	flags.DurationVar(&cfg.Wait, "wait", 45*time.Second, "how long pods may take to start, and to report")
	timeout := flags.Duration("timeout", within, "how long the command may take in all; 0 is without end")
	conn := c.connection(flags)
	cmd.RunE = interruptible(limited(timeout, c.connected(conn, func(cmd *cobra.Command, to *clients, _ []string) (err error) {
		cfg.Kube, cfg.Liqo, cfg.Every, cfg.Now = to.kube, to.liqo, c.every, to.now
		cfg.Say = func(line string) error { return say(cmd.ErrOrStderr(), "%s", report.Line(line)) }
		cfg.Logs = func(ctx context.Context, pod *corev1.Pod) ([]byte, error) {
			return helper.Logs(ctx, to.kube, pod, corev1.PodLogOptions{})
		}
		if cfg.Image == "" {
			if cfg.Image, err = ownImage(cmd.Context(), to); err != nil {
				return explain(err)
			}
		}
		return do(cmd)
	})))
	return conn
}

// measured returns the result of a command that has sent packets.
func measured(err error, failed bool) error {
	switch {
	case err != nil:
		return unknown(explain(err))
	case failed:
		return &Error{Code: ExitProblem}
	}
	return nil
}

func (c *commands) networkPerf() *cobra.Command {
	cmd := &cobra.Command{Use: "perf [PEER]", Short: "Measure throughput and round trips to a pod in a peer"}
	cfg := &network.Config{}
	each := cmd.Flags().Duration("for", 3*time.Second, "how long each measurement takes, at most 20s")
	conn := c.packets(cmd, cfg, 8*time.Minute, func(cmd *cobra.Command) error {
		figures, err := network.Perf(cmd.Context(), *cfg, *each)
		if len(figures.Ways) > 0 {
			err = errors.Join(err, printText(cmd.OutOrStdout(), figures.Text()))
		}
		return measured(err, figures.Failed())
	})
	cmd.Flags().StringArrayVar(&cfg.Nodes, "node", nil, "`node` of this cluster from which to measure, and a second one for the pod to compare with; else the first and the last by name")
	cmd.Args = func(_ *cobra.Command, args []string) error {
		if len(args) > 1 {
			return Usagef("name one peer")
		}
		if *each <= 0 || *each > 20*time.Second {
			return Usagef("--for: %s is not accepted: more than 0s, and at most 20s", *each)
		}
		cfg.Peers = args
		return nil
	}
	cmd.ValidArgsFunction = c.completer(conn, 1, peerNames)
	return cmd
}

// networkProbe is what the pods of a check and of a measurement run.
func (c *commands) networkProbe() *cobra.Command {
	o := network.ProbeOptions{}
	cmd := &cobra.Command{Use: "probe", Hidden: true, Short: "Send packets to targets, or measure the ways to them", Args: noArguments}
	flags := cmd.Flags()
	flags.BoolVar(&o.Serve, "serve", false, "answer packets")
	flags.BoolVar(&o.Streams, "streams", false, "answer streams")
	flags.BoolVar(&o.Node, "node", false, "read the routes of the host")
	flags.StringVar(&o.Resolve, "resolve", "", "`name` of an SRV record to look for")
	flags.DurationVar(&o.For, "for", 0, "how long each measurement takes; 0 measures nothing")
	targets := flags.StringArray("to", nil, "`target`, as KIND,NAME,ADDRESS")
	cmd.RunE = interruptible(func(cmd *cobra.Command, _ []string) (err error) {
		if o.Targets, err = network.ParseTargets(*targets); err != nil {
			return UsageError(err)
		}
		o.Out = cmd.OutOrStdout()
		return network.Probe(cmd.Context(), o)
	})
	return cmd
}
