package kernel

import (
	"context"

	"github.com/liqod/liqod/netfabric/plan"
)

// Cleanup deletes everything of ours from the host: routes, rules, the nftables table and
// what it has translated, devices with all that is on them. Kernel settings stay as they
// are: others may have come to rely on them. Calling it again does nothing.
func (k *Kernel) Cleanup(ctx context.Context) error { return k.Apply(ctx, plan.State{}) }
