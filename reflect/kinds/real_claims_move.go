package kinds

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/reflect/forge"
)

// moves does what a move asks of the nodes of this cluster. It reports false if it asks nothing.
func (c *RealClaims) moves(ctx context.Context, v realView) (handled bool, err error) {
	to := v.local.Annotations[offloadingv1beta1.MoveToAnnotation]
	switch {
	case v.local.Annotations[offloadingv1beta1.DiscardCopyAnnotation] == offloadingv1beta1.CopyHere:
		inThisCluster := func(volume *corev1.PersistentVolume) bool {
			return volume.Labels[corev1beta1.RemoteClusterIDLabel] == ""
		}
		return true, c.discard(ctx, c.claims, v.local, inThisCluster, func() (bool, error) {
			return c.deleteData(ctx, c.claims, c.realKey(v.local.UID), c.isReal)
		})
	case v.volume == nil && v.local.Spec.VolumeName == forge.VolumeName(v.local) && c.isNode(to, false):
		return true, c.moveHere(ctx, v, to)
	}
	return false, nil
}

// moveHere creates the real claim that the data of a bound claim is copied to. After the copy it
// gives its volume to the claim. Then it never creates another, empty one.
func (c *RealClaims) moveHere(ctx context.Context, v realView, node string) error {
	switch {
	case v.real == nil && !awaitsCopy(v.local):
		return c.begin(ctx, v.local, node)
	case v.real == nil, !c.isReal(v.real), v.real.DeletionTimestamp != nil:
		return nil // liqod storage move reports it
	case v.real.Status.Phase == corev1.ClaimBound && awaitsCopy(v.local):
		return c.giveVolume(ctx, v)
	case v.real.Status.Phase != corev1.ClaimBound && v.real.Annotations[forge.SelectedNode] != node:
		return c.patchReal(ctx, v, map[string]any{forge.SelectedNode: node, offloadingv1beta1.AskedNodeAnnotation: node}, nil)
	}
	return nil
}
