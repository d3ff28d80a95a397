package kinds

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/reasons"
	"github.com/liqod/liqod/reflect/forge"
)

// liqod storage move gives a claim a second volume, copies the data, and lets the claim have that volume. What a
// provisioner does for it is in this file, and for nodes of this cluster in real_claims_move.go.

// moves does what a move asks of the provider of this virtual node. It reports false if it asks nothing.
func (c *Claims) moves(ctx context.Context, v claimView) (handled bool, err error) {
	claim := v.local
	if claim == nil || claim.DeletionTimestamp != nil || !isVirtual(claim) {
		return false, nil
	}
	switch {
	case claim.Annotations[offloadingv1beta1.DiscardCopyAnnotation] == c.cfg.Node:
		return true, c.discard(ctx, v.twin.home, claim, c.isHere, func() (bool, error) { return c.deleteThere(ctx, v, claim.UID) })
	case claim.Annotations[offloadingv1beta1.MoveToAnnotation] == c.cfg.Node && !awaitsCopy(claim) && claim.Spec.VolumeName == forge.VolumeName(claim):
		return true, c.copyHere(ctx, v)
	}
	return false, nil
}

// copyHere creates the claim in the provider that the data is copied to. The claim at home keeps its
// volume.
func (c *Claims) copyHere(ctx context.Context, v claimView) error {
	vn := c.cfg.virtualNode()
	if why := notOffered(vn, c.cfg.Node); why != "" {
		c.tell(ctx, v.local, corev1.EventTypeWarning, reasons.ProvisioningFailed, why)
		return nil // a change of the VirtualNode triggers a new sync
	}
	want := c.remoteWant(ctx, v, vn)
	switch {
	case want == nil:
		return nil
	case v.remote == nil:
		_, err := c.create(ctx, v, want)
		return err
	case localClaimUID(v.remote) != string(v.local.UID):
		return c.takenByAnother(ctx, v)
	}
	c.tellRemote(ctx, v)
	return nil
}
