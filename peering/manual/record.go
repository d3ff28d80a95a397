package manual

import (
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

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

// record creates or updates the ForeignCluster of a peer. change sets the wanted fields of
// the spec.
func (c Cluster) record(ctx context.Context, peer string, change func(*corev1beta1.ForeignClusterSpec)) error {
	have, err := c.foreignCluster(ctx, peer)
	if err != nil {
		return err
	}
	records := c.Liqo.CoreV1beta1().ForeignClusters()
	if have == nil {
		fc := &corev1beta1.ForeignCluster{ObjectMeta: metav1.ObjectMeta{Name: peer}, Spec: corev1beta1.ForeignClusterSpec{ClusterID: peer}}
		change(&fc.Spec)
		if _, err := records.Create(ctx, fc, metav1.CreateOptions{FieldManager: fieldManager}); err != nil {
			return fmt.Errorf("creating ForeignCluster %s: %w", peer, err)
		}
		return nil
	}
	if have.DeletionTimestamp != nil {
		return fmt.Errorf("ForeignCluster %s is being deleted: wait until it is gone", have.Name)
	}
	want := have.DeepCopy()
	change(&want.Spec)
	body, err := specPatch(have, want)
	if err != nil || body == nil {
		return err
	}
	if _, err := records.Patch(ctx, have.Name, types.MergePatchType, body, metav1.PatchOptions{FieldManager: fieldManager}); err != nil {
		return fmt.Errorf("changing ForeignCluster %s: %w", have.Name, err)
	}
	return nil
}

// specPatch returns the patch for the fields of a ForeignCluster that an enrolment sets, or
// nil if nothing differs.
func specPatch(have, want *corev1beta1.ForeignCluster) ([]byte, error) {
	spec := store.Patch{}
	if have.Spec.UserName != want.Spec.UserName {
		spec["userName"] = want.Spec.UserName
	}
	if !slices.Equal(have.Spec.AddressRanges, want.Spec.AddressRanges) {
		spec["addressRanges"] = want.Spec.AddressRanges
	}
	if len(spec) == 0 {
		return nil, nil
	}
	return store.EncodePatch(store.Patch{"spec": spec}, have)
}
