package roles

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"github.com/liqod/liqod/netfabric/kernel"
	"github.com/liqod/liqod/netfabric/plan"
)

const hostStateAbout = `Host-state prints the objects of the roles gateway and route on this host: devices, addresses,
neighbours, rules, routes, the peers of the tunnel, and the counters of dropped packets. It
changes nothing and prints no private key. It needs the rights of root. liqod gather runs it in the
pods of both roles.`

const cleanupAbout = `Cleanup removes the objects that the roles gateway and route have made on this host: devices
whose names begin with liqod-, routes and rules with protocol 108, the nftables table inet
liqod, and the connections that this table has translated. Cleanup removes nothing else, and
does not change kernel settings. It needs the rights of root.

Stop the roles first: a role that still runs makes its objects again.`

// hostCommands returns the commands that work on their own host, without a cluster.
func hostCommands() []*cobra.Command {
	return []*cobra.Command{
		{
			Use: "cleanup", Short: "Remove the objects of the roles gateway and route from this host", Long: cleanupAbout, Args: noArguments,
			RunE: cleanup,
		},
		{
			Use: "prepare-gateway", Short: "Write the kernel settings that role gateway needs to forward packets", Args: noArguments,
			Long: `Prepare-gateway writes the kernel settings that role gateway needs. It writes them in the network
namespace of its own process. A privileged init container runs it, so that the role needs no
capability but NET_ADMIN. A role with more rights writes the settings itself.`,
			RunE: prepareGateway,
		},
		{
			Use: "host-state", Short: "Print the objects of the roles gateway and route on this host", Long: hostStateAbout, Args: noArguments,
			RunE: func(c *cobra.Command, _ []string) error {
				if err := kernel.New(kernel.Config{Log: zap.NewNop()}).Describe(c.Context(), c.OutOrStdout(), time.Now()); err != nil {
					return fmt.Errorf("reading this host: %w", err)
				}
				return nil
			},
		},
	}
}

func cleanup(c *cobra.Command, _ []string) error {
	removed := map[string]int{}
	host := kernel.New(kernel.Config{Log: zap.NewNop(), Wrote: func(kind string) { removed[kind]++ }})
	err := host.Apply(c.Context(), plan.State{})
	out := c.OutOrStdout()
	for _, kind := range slices.Sorted(maps.Keys(removed)) {
		fmt.Fprintf(out, "removed: %s × %d\n", kind, removed[kind])
	}
	if len(removed) == 0 && err == nil {
		fmt.Fprintln(out, "nothing of liqod is on this host")
	}
	if err != nil {
		return fmt.Errorf("cleaning up: %w", err)
	}
	return nil
}

func prepareGateway(c *cobra.Command, _ []string) error {
	families := []plan.Family{plan.V4}
	if _, err := os.Stat("/proc/sys/net/ipv6"); err == nil {
		families = append(families, plan.V6)
	}
	want := plan.GatewaySysctls(families...)
	if err := kernel.New(kernel.Config{Log: zap.NewNop()}).Prepare(want); err != nil {
		return fmt.Errorf("preparing this host: %w", err)
	}
	for _, s := range want {
		fmt.Fprintln(c.OutOrStdout(), s)
	}
	return nil
}
