package kinds

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/reasons"
	"github.com/liqod/liqod/reflect/forge"
)

// release handles the volumes whose claims were deleted. done is true if nothing is left
// to wait for, so that a new claim of the same name may be provisioned.
func (c *Claims) release(ctx context.Context, v claimView) (done bool, err error) {
	for _, volume := range v.released {
		if !deletable(volume) {
			if v.remote != nil && localClaimUID(v.remote) == string(volume.Spec.ClaimRef.UID) && volume.DeletionTimestamp == nil {
				if _, err := c.filled(ctx, volume, v.remote); err != nil {
					return false, err
				}
			}
			continue
		}
		if volume.Status.Phase == corev1.VolumeBound {
			return false, nil // the volume controller will mark it as released, which triggers a new sync
		}
		byName, err := c.released(ctx, v, volume)
		if err != nil {
			return false, err
		}
		if !byName {
			continue
		}
		if gone, err := c.reclaim(ctx, v, volume); err != nil || !gone {
			return false, err
		}
	}
	return true, nil
}

// releaseUnmapped handles released volumes while their namespace has no twin. If the
// namespace was deleted, the data is kept; otherwise the decision waits until the
// namespace is offloaded again.
func (c *Claims) releaseUnmapped(ctx context.Context, v claimView) error {
	for _, volume := range v.released {
		if volume.Status.Phase != corev1.VolumeReleased || !deletable(volume) {
			continue
		}
		if _, err := c.released(ctx, v, volume); err != nil {
			return err
		}
	}
	return nil
}

// released reports whether the claim of a volume was deleted by itself. If its whole
// namespace was deleted, the volume is marked and its data kept: the deletion of a
// namespace is not a request to delete the data of its claims. An ephemeral volume has gone with its
// pod, and the provider deletes its claim with the twin namespace.
func (c *Claims) released(ctx context.Context, v claimView, volume *corev1.PersistentVolume) (byName bool, err error) {
	if byName, err = c.ofNamespace(ctx, volume); err != nil {
		return false, err
	}
	ephemeral := volume.Annotations[offloadingv1beta1.EphemeralVolumeLabel] != ""
	switch {
	case byName, ephemeral && v.twin != nil:
		return c.deletedByName(ctx, v, volume)
	case ephemeral:
		return false, c.volumes.Delete(ctx, volume)
	}
	return false, c.keep(ctx, volume, "cluster "+c.cfg.Destination)
}

// deletedByName confirms by a live read that the claim is gone. Its namespace still
// exists.
func (c *Claims) deletedByName(ctx context.Context, v claimView, volume *corev1.PersistentVolume) (bool, error) {
	if v.twin == nil {
		return false, nil // the decision waits until the namespace is offloaded again
	}
	err := v.twin.home.ConfirmNone(ctx, v.key, func(claim *corev1.PersistentVolumeClaim) bool { return claim.UID == volume.Spec.ClaimRef.UID })
	return err == nil, err
}

// reclaim deletes the provider's claim, and the local volume after that claim is gone.
// gone reports whether both are done.
func (c *Claims) reclaim(ctx context.Context, v claimView, volume *corev1.PersistentVolume) (gone bool, err error) {
	if c.volumes.WasDeleted(volume.UID) {
		return true, nil
	}
	if gone, err := c.deleteThere(ctx, v, volume.Spec.ClaimRef.UID); err != nil || !gone {
		return false, err
	}
	err = c.volumes.Delete(ctx, volume)
	return err == nil, err
}

// deleteThere is deleteData in the provider, for the claim with this UID.
func (c *Claims) deleteThere(ctx context.Context, v claimView, uid types.UID) (gone bool, err error) {
	if err := c.cfg.Verify(ctx); err != nil {
		return false, fmt.Errorf("verifying the provider before deleting there: %w", err)
	}
	return c.deleteData(ctx, v.twin.there, v.inProvider(), func(remote *corev1.PersistentVolumeClaim) bool {
		return c.reflected(remote) && localClaimUID(remote) == string(uid)
	})
}

// tidy handles a claim of the provider that belongs to no local claim and to no volume. One that has
// never been bound to a volume cannot have data, and is deleted.
func (c *Claims) tidy(ctx context.Context, v claimView) error {
	if v.remote == nil || v.remote.DeletionTimestamp != nil || v.twin.there.WasDeleted(v.remote.UID) {
		return nil
	}
	if v.remote.Spec.VolumeName != "" {
		return c.remember(ctx, v)
	}
	err := v.twin.home.ConfirmNone(ctx, v.key, func(local *corev1.PersistentVolumeClaim) bool {
		return string(local.UID) == localClaimUID(v.remote) && (c.isOurs(local) || c.isNeighbours(local))
	})
	if err != nil {
		return err
	}
	return c.deleteEmpty(ctx, v.twin.there, v.remote)
}

// maxRemembered bounds the volumes that a provider can cause here by claims that it makes itself.
const maxRemembered = 100

// remember creates a volume without a claim for data in the provider that nothing in this cluster leads
// to: the state of this cluster went back, or the claim was deleted before it had a volume. The volume
// is never reclaimed. It shows the data, and whose it was.
func (c *Claims) remember(ctx context.Context, v claimView) error {
	uid := types.UID(localClaimUID(v.remote))
	name := forge.VolumeNameFor(uid)
	if uid == "" || c.volumes.Get(loop.Key{Name: name}) != nil {
		return nil
	}
	for _, twin := range c.twins.Each(corev1.NamespaceAll) { // the name of a claim's volume is free while its data moves
		if !twin.synced() || slices.ContainsFunc(twin.home.List(), func(claim *corev1.PersistentVolumeClaim) bool { return claim.UID == uid }) {
			return nil // a synced twin is looked at again
		}
	}
	// The provider chooses both names, and its API server may have sent anything.
	if len(validation.IsDNS1123Subdomain(name)) > 0 || len(validation.IsDNS1123Subdomain(v.key.Name)) > 0 {
		return nil
	}
	kept := slices.DeleteFunc(c.volumes.List(), func(has *corev1.PersistentVolume) bool {
		return has.Annotations[offloadingv1beta1.DataKeptAnnotation] == ""
	})
	if len(kept) >= maxRemembered {
		return nil
	}
	if err := v.twin.home.ConfirmNone(ctx, v.key, func(local *corev1.PersistentVolumeClaim) bool { return local.UID == uid }); err != nil {
		return err
	}
	remote, err := v.twin.there.Live(ctx, v.inProvider())
	if err != nil || remote == nil || remote.UID != v.remote.UID || remote.DeletionTimestamp != nil {
		return err
	}
	// Without a class, the reclaim policy is Retain.
	earlier := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: v.key.Namespace, Name: v.key.Name, UID: uid},
		Spec:       corev1.PersistentVolumeClaimSpec{AccessModes: remote.Spec.AccessModes, Resources: remote.Spec.Resources, VolumeMode: remote.Spec.VolumeMode},
	}
	why := fmt.Sprintf("PersistentVolumeClaim %s is not known here, because the state of this cluster went back, or because it was deleted before it had a volume: its data stays in cluster %s",
		v.key.Name, c.cfg.Destination)
	volume := forge.PersistentVolume(earlier, remote, c.cfg.Destination)
	volume.Annotations[offloadingv1beta1.DataKeptAnnotation] = why
	written, err := c.addVolume(ctx, earlier, volume)
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	if written != nil {
		c.recorder.Event(written, corev1.EventTypeWarning, reasons.RemoteVolumeKept, why)
	}
	return err
}

// isHere reports whether the data of a volume is in this provider.
func (c *Claims) isHere(volume *corev1.PersistentVolume) bool {
	return volume.Labels[corev1beta1.RemoteClusterIDLabel] == c.cfg.Destination
}
