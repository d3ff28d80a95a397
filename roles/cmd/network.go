package cmd

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/liqod/liqod/netfabric/host"
)

const explainAbout = `Explain prints the path of a packet from a pod of this cluster to an address of a peer, and
the path of the answer: each rule, route and translation on the pod's node and on the gateway.
It computes them from the objects of this cluster. Run it in the peer for the path there.

The exit code is 1 if the packet is dropped on its path, or if the address belongs to no peer.`

func (c *commands) network() *cobra.Command {
	return parent("network", "Look at the network between clusters", c.explainAddress())
}

// explaining has the flags of network explain.
type explaining struct {
	conn    *connection
	from    string
	timeout time.Duration
}

func (c *commands) explainAddress() *cobra.Command {
	in := &explaining{}
	cmd := &cobra.Command{
		Use: "explain IP", Short: "Print the path of a packet to an address of a peer, and back",
		Long: explainAbout, Example: c.example("  %[1]s network explain 10.80.2.20\n  %[1]s network explain 10.80.2.20 --from 10.244.1.10"),
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return Usagef("%s takes one IP address, not %d arguments", cmd.CommandPath(), len(args))
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&in.from, "from", "", "`address` of a pod of this cluster; default: an invented one")
	cmd.Flags().DurationVar(&in.timeout, "timeout", 30*time.Second, "how long the cluster may take to answer")
	in.conn = c.connection(cmd.Flags())
	cmd.RunE = interruptible(limited(&in.timeout, func(cmd *cobra.Command, args []string) error {
		to, err := netip.ParseAddr(args[0])
		if err != nil {
			return Usagef("%q is not an IP address", args[0])
		}
		from := netip.Addr{}
		if in.from != "" {
			if from, err = netip.ParseAddr(in.from); err != nil {
				return Usagef("--from %q is not an IP address", in.from)
			}
		}
		objects, err := c.fabricObjects(cmd.Context(), in.conn)
		if err != nil {
			return unknown(err)
		}
		text, failed := host.Explain(objects, to.Unmap(), from.Unmap())
		_, err = fmt.Fprint(cmd.OutOrStdout(), text)
		return errors.Join(err, failed)
	}))
	return cmd
}

// fabricObjects reads the objects that the hosts of the network fabric watch.
func (c *commands) fabricObjects(ctx context.Context, conn *connection) (out host.Objects, err error) {
	to, err := c.connect(conn)
	if err != nil {
		return out, err
	}
	connections, err := to.liqo.NetworkingV1beta1().Connections(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return out, explain(err)
	}
	ips, err := to.liqo.IPAMV1alpha1().IPs(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return out, explain(err)
	}
	nodes, err := to.kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return out, explain(err)
	}
	leases, err := to.kube.CoordinationV1().Leases(metav1.NamespaceAll).List(ctx, metav1.ListOptions{LabelSelector: host.GatewayKey + "=true"})
	if err != nil {
		return out, explain(err)
	}
	for i := range connections.Items {
		out.Connections = append(out.Connections, &connections.Items[i])
	}
	for i := range ips.Items {
		out.IPs = append(out.IPs, &ips.Items[i])
	}
	for i := range nodes.Items {
		out.Nodes = append(out.Nodes, &nodes.Items[i])
	}
	now := time.Now()
	if to.now != nil {
		now = to.now()
	}
	out.Gateways, _ = host.ReadGateways(leases.Items, now)
	return out, nil
}
