package manual

import (
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/kube/apply"
)

const fieldManager = "liqod-enroll"

// longestID is the maximum length of a cluster id in bytes. The name of the tenant
// namespace contains it.
const longestID = 51

// check returns an error if peer is not a valid id of another cluster.
func (c Cluster) check(peer string) error {
	switch {
	case len(peer) > longestID || len(validation.IsDNS1123Label(peer)) > 0:
		return fmt.Errorf("cluster id %q: a DNS label of at most %d characters is accepted", peer, longestID)
	case peer == c.ID:
		return fmt.Errorf("both clusters have the id %q: a cluster cannot be a peer of itself, and each needs its own id (discovery.config.clusterID of the chart)", peer)
	}
	return nil
}

// foreignCluster returns the ForeignCluster of a peer, whatever its name is, or nil.
func (c Cluster) foreignCluster(ctx context.Context, peer string) (*corev1beta1.ForeignCluster, error) {
	list, err := c.Liqo.CoreV1beta1().ForeignClusters().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing ForeignClusters: %w", err)
	}
	for i := range list.Items {
		if list.Items[i].Spec.ClusterID == peer {
			return &list.Items[i], nil
		}
	}
	return nil, nil
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
	spec := apply.Patch{}
	if have.Spec.UserName != want.Spec.UserName {
		spec["userName"] = want.Spec.UserName
	}
	if !slices.Equal(have.Spec.AddressRanges, want.Spec.AddressRanges) {
		spec["addressRanges"] = want.Spec.AddressRanges
	}
	if len(spec) == 0 {
		return nil, nil
	}
	return apply.EncodePatch(apply.Patch{"spec": spec}, have)
}
