//go:build linux

package kernel

import (
	"context"

	"github.com/liqod/liqod/netfabric/plan"
)

// Cleanup deletes everything of ours from the host: routes, rules, the nftables table, the
// connection tracking entries that it has translated, and devices with everything on them.
// It does not reset kernel settings, because their former values are not known. It is safe
// to call it again.
func (k *Kernel) Cleanup(ctx context.Context) error { return k.Apply(ctx, plan.State{}) }
