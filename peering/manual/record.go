package manual

import (
	"context"
	"fmt"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/peering/trust"
)

const fieldManager = "liqod-enroll"

// check returns an error if peer is not a valid id of another cluster.
func (c Cluster) check(peer string) error {
	if peer == c.ID {
		return fmt.Errorf("both clusters have the id %q: a cluster cannot be a peer of itself, and each needs its own id (discovery.config.clusterID of the chart)", peer)
	}
	return trust.CheckClusterID(peer)
}

// foreignCluster returns the ForeignCluster of a peer, or nil.
func (c Cluster) foreignCluster(ctx context.Context, peer string) (*corev1beta1.ForeignCluster, error) {
	return store.Live(ctx, "ForeignCluster", c.Liqo.CoreV1beta1().ForeignClusters(), peer)
}
