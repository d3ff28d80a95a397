package cmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/netfabric/host"
	"github.com/liqod/liqod/peering/manual"
	"github.com/liqod/liqod/roles/cmd/network"
)

const explainAbout = `Explain prints the path of a packet from a pod of this cluster to an address of a peer, and
the path of the answer: each rule, route and translation on the pod's node and on the gateway.
With an address of a peer as --from, and that of a pod of this cluster as IP, it prints how the
packet arrives, and the setting that lets it pass if it is dropped. NAMESPACE/NAME of a pod of this
cluster stands for its address, also of one that runs in a peer. It computes the path from the
objects of this cluster. Run it in the peer for the path there.

The exit code is 1 if the packet is dropped on its path, or if the address belongs to no peer.`

func (c *commands) network() *cobra.Command {
	return parent("network", "Look at the network between clusters, measure it, and replace its keys", c.networkCheck(), c.networkPerf(), c.explainAddress(), c.rotateKeys(), c.networkProbe())
}

const rotateAbout = `Rotate-keys has gateways of this cluster replace their WireGuard keys, and waits until they have. Each
gateway announces its next key, and uses it as soon as the gateways of all peers have accepted it, or
are down. Packets go on meanwhile. A gateway waits for an hour at most: a peer that has not accepted
the key by then is reached again when it has got the key from its API server.

The command may be interrupted, and run again. It needs the right to patch Leases in the namespace of liqod.`

func (c *commands) rotateKeys() *cobra.Command {
	cmd := &cobra.Command{
		Use: "rotate-keys [NUMBER...]", Short: "Replace the WireGuard keys of gateways", Long: rotateAbout,
		Example: c.example("  %[1]s network rotate-keys\n  %[1]s network rotate-keys 2   # of gateway 2 alone"),
	}
	cfg, timeout := network.Rotation{}, time.Duration(0)
	cmd.Flags().DurationVar(&timeout, "timeout", 5*time.Minute, "how long to wait; 0 is without end")
	conn := c.connection(cmd.Flags())
	cmd.RunE = interruptible(limited(&timeout, func(cmd *cobra.Command, args []string) error {
		for _, arg := range args {
			number, err := strconv.ParseInt(arg, 10, 32)
			if err != nil || number < 1 {
				return Usagef("%q is not the number of a gateway: 1, 2 and so on are accepted", arg)
			}
			cfg.Numbers = append(cfg.Numbers, int32(number))
		}
		to, err := c.connect(conn)
		if err != nil {
			return err
		}
		namespace, err := manual.Namespace(cmd.Context(), to.kube)
		if err != nil {
			return explain(err)
		}
		cfg.Leases, cfg.Every, cfg.Out = to.kube.CoordinationV1().Leases(namespace), c.every, cmd.OutOrStdout()
		return explain(cfg.Run(cmd.Context()))
	}))
	return cmd
}

func (c *commands) explainAddress() *cobra.Command {
	from, timeout := "", time.Duration(0)
	cmd := &cobra.Command{
		Use: "explain IP|POD", Short: "Print the path of a packet to an address of a peer, and back",
		Long: explainAbout, Example: c.example("  %[1]s network explain 10.80.2.20\n  %[1]s network explain 10.80.2.20 --from 10.244.1.10\n  %[1]s network explain 10.244.1.10 --from 10.80.2.20\n  %[1]s network explain shop/db-0 --from shop/web-0"),
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return Usagef("%s takes one IP address, or one pod as NAMESPACE/NAME, not %d arguments", cmd.CommandPath(), len(args))
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&from, "from", "", "`address` of a pod of this cluster, or of a peer, or NAMESPACE/NAME of a pod; default: an invented one")
	cmd.Flags().DurationVar(&timeout, "timeout", 30*time.Second, "how long the cluster may take to answer")
	conn := c.connection(cmd.Flags())
	cmd.ValidArgsFunction = c.completePods(conn, 1, nil)
	cmd.RunE = interruptible(limited(&timeout, c.connected(conn, func(cmd *cobra.Command, to *clients, args []string) error {
		dst, err := podAddress(cmd.Context(), to, args[0])
		if err != nil {
			return err
		}
		src := netip.Addr{}
		if from != "" {
			if src, err = podAddress(cmd.Context(), to, from); err != nil {
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
	namespace, err := manual.Namespace(ctx, to.kube)
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
	if _, err := manual.Configuration(ctx, to.kube, &given); err != nil {
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
