package roles

import (
	"fmt"
	"maps"
	"os"
	"slices"

	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"github.com/liqod/liqod/netfabric/kernel"
	"github.com/liqod/liqod/netfabric/plan"
)

const cleanupAbout = `Cleanup removes from this host what the roles gateway and route have made: devices that begin
with liqod-, routes and rules with protocol 108, the nftables table inet liqod, and the
connections that it has translated. Nothing else is touched, and kernel settings stay as they
are. It needs the rights of root.

Stop the roles first: one that still runs makes everything again.`

// hostCommands work on the host that they run on, and ask no cluster.
func hostCommands() []*cobra.Command {
	return []*cobra.Command{
		{
			Use: "cleanup", Short: "Remove from this host what the roles gateway and route have made", Long: cleanupAbout, Args: noArguments,
			RunE: cleanup,
		},
		{
			Use: "prepare-gateway", Short: "Let this host forward packets, as role gateway needs it", Args: noArguments,
			Long: `Prepare-gateway writes the kernel settings that role gateway needs, in the network namespace that
it runs in. It is for a privileged container ahead of the role, which then needs no right but
NET_ADMIN; started with more rights, the role writes them itself.`,
			RunE: prepareGateway,
		},
	}
}

func cleanup(c *cobra.Command, _ []string) error {
	removed := map[string]int{}
	host := kernel.New(kernel.Config{Log: zap.NewNop(), Wrote: func(kind string) { removed[kind]++ }})
	err := host.Cleanup(c.Context())
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
