package cmd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"github.com/liqod/liqod/roles/cmd/helper"
	"github.com/liqod/liqod/roles/cmd/network"
	"github.com/liqod/liqod/roles/cmd/report"
)

const networkCheckAbout = `Check sends packets hop by hop, both ways, and names the first hop that breaks, with figures and what to
do: pod, node, gateway, tunnel, the gateway of the peer, its node, a pod there. It tries the size of the
largest packet and the name service, too, and reads what the gateways report. Without arguments
it checks all peers. With the name of a peer it checks this one, with two pods as NAMESPACE/NAME the
way between these: both pods get packets, from a pod on the same node or in the same cluster.

The packets come from pods in new namespaces, which the command removes at its end, also when
it is interrupted. The pods have no privileges and no credentials. One for each node is in the network of its
node. Each peer in which this cluster runs pods gets a namespace of its own, for a pod there, and learns of
no other peer; of the others the command sees their gateways. It needs no rights in a peer.

It needs the rights to create and delete namespaces, and in them Pods and NamespaceOffloadings, to read
logs of Pods, and to read Nodes, ForeignClusters, Connections, Configurations, IPs, ConfigMaps, and in liqod's
namespace Leases and Pods.

  ✔ packets pass   ‼ they pass, without a reserve   ? unknown   ✘ broken

The exit code is 1 if something is broken, or if there is no reserve.`

const networkCheckExamples = `  %[1]s network check
  %[1]s network check milan
  %[1]s network check shop/web-0 shop/db-0`

func (c *commands) networkCheck() *cobra.Command {
	cmd := &cobra.Command{Use: "check [PEER | POD POD]", Short: "Send packets hop by hop, and say which hop breaks", Long: networkCheckAbout, Example: c.example(networkCheckExamples)}
	cfg, conn, run := c.packets(cmd, 5*time.Minute)
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
	run(func(cmd *cobra.Command) error {
		verdict, err := network.Run(cmd.Context(), *cfg)
		if len(verdict) > 0 {
			err = errors.Join(err, printText(cmd.OutOrStdout(), verdict.Text()))
		}
		_, broken := verdict.First()
		return measured(err, broken)
	})
	return cmd
}

// packets gives a command the flags of those that make pods, and returns what these need. run sets what
// the command does once it is complete.
func (c *commands) packets(cmd *cobra.Command, within time.Duration) (cfg *network.Config, conn *connection, run func(func(*cobra.Command) error)) {
	cfg = &network.Config{Program: c.program}
	var timeout time.Duration
	flags := cmd.Flags()
	flags.StringVar(&cfg.Image, "image", "", "`image` of the pods; else that of liqod's controller")
	flags.DurationVar(&cfg.Wait, "wait", 45*time.Second, "how long pods may take to start, and to report")
	flags.DurationVar(&timeout, "timeout", within, "how long the command may take in all; 0 is without end")
	conn = c.connection(flags)
	return cfg, conn, func(do func(*cobra.Command) error) {
		cmd.RunE = interruptible(limited(&timeout, c.connected(conn, func(cmd *cobra.Command, to *clients, _ []string) (err error) {
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
	}
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

const networkPerfAbout = `Perf measures the way from a pod of this cluster to a pod in a peer: the throughput of one TCP stream and
of eight, in both directions, and the round trip of packets of 100 bytes, the median and the one that 99
of 100 do not exceed. Below stand the round trip of ICMP to the gateway of the peer, which is the way up to the end of
the tunnel, and the same measurements of a pod of this cluster, on another node if there is one: packets to it do
not pass the network between clusters. Without an argument perf takes the only peer.

The pods are in new namespaces, as those of network check, and are removed like these, also when the
command is interrupted. It needs the same rights, and no rights in the peer. One pod in the peer has to fit into
what the peer offers. Each of the eleven measurements takes --for at most, and at most 8 GiB. They load the
gateways of both clusters: other packets wait meanwhile.

The exit code is 1 if a measurement failed.`

func (c *commands) networkPerf() *cobra.Command {
	cmd := &cobra.Command{
		Use: "perf [PEER]", Short: "Measure throughput and round trips to a pod in a peer", Long: networkPerfAbout,
		Example: c.example("  %[1]s network perf milan\n  %[1]s network perf milan --for 10s --node worker-1 --node worker-2"),
	}
	cfg, conn, run := c.packets(cmd, 8*time.Minute)
	var each time.Duration
	cmd.Flags().StringArrayVar(&cfg.Nodes, "node", nil, "`node` of this cluster from which to measure, and a second one for the pod to compare with; else the first and the last by name")
	cmd.Flags().DurationVar(&each, "for", 3*time.Second, "how long each measurement takes, at most 20s")
	cmd.Args = func(_ *cobra.Command, args []string) error {
		if len(args) > 1 {
			return Usagef("name one peer")
		}
		if each <= 0 || each > 20*time.Second {
			return Usagef("--for: %s is not accepted: more than 0s, and at most 20s", each)
		}
		cfg.Peers = args
		return nil
	}
	cmd.ValidArgsFunction = c.completer(conn, peerNames)
	run(func(cmd *cobra.Command) error {
		figures, err := network.Perf(cmd.Context(), *cfg, each)
		if len(figures.Ways) > 0 {
			err = errors.Join(err, printText(cmd.OutOrStdout(), figures.Text()))
		}
		return measured(err, figures.Failed())
	})
	return cmd
}

// networkProbe is what the pods of a check and of a measurement run.
func (c *commands) networkProbe() *cobra.Command {
	o := network.ProbeOptions{}
	var targets []string
	cmd := &cobra.Command{Use: "probe", Hidden: true, Short: "Send packets to targets, or measure the ways to them", Args: noArguments}
	flags := cmd.Flags()
	flags.BoolVar(&o.Serve, "serve", false, "answer packets")
	flags.BoolVar(&o.Streams, "streams", false, "answer streams")
	flags.BoolVar(&o.Node, "node", false, "read the routes of the host")
	flags.StringVar(&o.Resolve, "resolve", "", "`name` of an SRV record to look for")
	flags.DurationVar(&o.For, "for", 0, "how long each measurement takes; 0 measures nothing")
	flags.StringArrayVar(&targets, "to", nil, "`target`, as KIND,NAME,ADDRESS")
	cmd.RunE = interruptible(func(cmd *cobra.Command, _ []string) (err error) {
		if o.Targets, err = network.ParseTargets(targets); err != nil {
			return UsageError(err)
		}
		o.Out = cmd.OutOrStdout()
		return network.Probe(cmd.Context(), o)
	})
	return cmd
}
