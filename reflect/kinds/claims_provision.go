package kinds

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	sharingv1alpha1 "github.com/liqod/liqod/api/sharing/v1alpha1"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/reasons"
	"github.com/liqod/liqod/reflect/engine"
	"github.com/liqod/liqod/reflect/forge"
)

// provision creates or updates the claim in the provider, and then the volume in this
// cluster that represents it.
func (c *Claims) provision(ctx context.Context, v claimView) error {
	begun := v.volume != nil || v.local.Spec.VolumeName != ""
	if v.local.Spec.VolumeName != "" && v.local.Spec.VolumeName != forge.VolumeName(v.local) {
		return nil // the user has bound it to another volume
	}
	vn := c.cfg.virtualNode()
	if why := notOffered(vn, c.cfg.Node); why != "" && !begun {
		return c.giveBack(ctx, v.twin.home, v.local, why)
	}
	want := c.remoteWant(ctx, v, vn)
	if want == nil {
		return nil
	}
	var err error
	switch {
	case v.remote == nil && !begun:
		v.remote, err = c.create(ctx, v, want)
	case v.remote == nil:
		return c.lost(ctx, v)
	case v.remote.DeletionTimestamp != nil:
		c.tell(ctx, v.local, corev1.EventTypeWarning, reasons.RemoteVolume,
			fmt.Sprintf("PersistentVolumeClaim %s is being deleted in cluster %s", v.there(), c.cfg.Destination))
		return nil // the end of the deletion triggers a new sync
	case v.ofAnother():
		adopts, err := c.adopts(ctx, v.local, v.remote)
		if err != nil {
			return err
		}
		if !adopts {
			return c.takenByAnother(ctx, v)
		}
		fallthrough
	default:
		v.remote, err = c.update(ctx, v, want)
	}
	if err != nil {
		return err
	}
	c.tellRemote(ctx, v)
	return c.volumeHome(ctx, v)
}

func (v claimView) there() string { return v.inProvider().String() }

// inProvider returns the key of the claim in the provider.
func (v claimView) inProvider() loop.Key { return loop.Key{Namespace: v.twin.remote, Name: v.key.Name} }

func localClaimUID(remote *corev1.PersistentVolumeClaim) string {
	return remote.Labels[offloadingv1beta1.LocalClaimUIDLabel]
}

// ofAnother reports whether the provider's claim has the data of another local claim. A
// claim without the label counts as foreign, unless this cluster has a volume for it.
func (v claimView) ofAnother() bool {
	label := localClaimUID(v.remote)
	return label != string(v.local.UID) && (label != "" || v.volume == nil)
}

// adopts reports whether a claim takes over the data of an earlier one of its name: the annotation asks
// for it, and the volume of the data has the UID of the namespace. The owner of a namespace's name is
// not the one of its former data.
func (c *Claims) adopts(ctx context.Context, local, remote *corev1.PersistentVolumeClaim) (bool, error) {
	volume := c.volumes.Get(loop.Key{Name: forge.VolumeNameFor(types.UID(localClaimUID(remote)))})
	if local.Annotations[offloadingv1beta1.AdoptRemoteVolumeAnnotation] != "true" || volume == nil || volume.Spec.ClaimRef.Namespace != local.Namespace {
		return false, nil
	}
	return c.ofNamespace(ctx, volume)
}

// remoteWant returns the claim in the provider, or nil if the claim is not reflected. It records an
// event about the reason.
func (c *Claims) remoteWant(ctx context.Context, v claimView, vn *offloadingv1beta1.VirtualNode) *corev1.PersistentVolumeClaim {
	want, err := forge.PersistentVolumeClaim(v.local, c.cfg.objectOptions(vn, v.twin.remote), offeredStorage(vn))
	var refused *forge.Refused
	if errors.As(err, &refused) {
		c.tell(ctx, v.local, corev1.EventTypeWarning, refused.Reason, refused.Message)
	}
	return want
}

// offeredStorage returns the storage classes that the provider offers. If none is marked
// as default, the first one is.
func offeredStorage(vn *offloadingv1beta1.VirtualNode) []forge.Class {
	if vn == nil {
		return nil
	}
	var out []forge.Class
	marked := false
	for _, offer := range vn.Spec.StorageClasses {
		out = append(out, forge.Class{Name: offer.StorageClassName, Default: offer.Default})
		marked = marked || offer.Default
	}
	if !marked && len(out) > 0 {
		out[0].Default = true
	}
	return out
}

// notOffered returns the reason why no volume may be created through the virtual node, or
// "" if it may.
func notOffered(vn *offloadingv1beta1.VirtualNode, name string) string {
	switch {
	case vn == nil || vn.DeletionTimestamp != nil:
		return fmt.Sprintf("virtual node %s is being removed", name)
	case len(vn.Spec.StorageClasses) == 0 && vn.Labels[offloadingv1beta1.ManagedByLabel] == sharingv1alpha1.ManagedByOffer:
		return fmt.Sprintf("cluster %s offers no storage class, so virtual node %s takes no pod with this claim: "+
			"its administrators need a class with a provisioner that their sharing.storageClasses lists; or keep the pod off that node", vn.Spec.ClusterID, name)
	case len(vn.Spec.StorageClasses) == 0:
		return fmt.Sprintf("VirtualNode %s offers no storage: list the provider's classes in spec.storageClasses (an empty storageClassName is the provider's default), or keep the pod off that node", name)
	}
	return ""
}

// create creates the claim in the provider.
func (c *Claims) create(ctx context.Context, v claimView, want *corev1.PersistentVolumeClaim) (*corev1.PersistentVolumeClaim, error) {
	return creation[*corev1.PersistentVolumeClaim]{
		all: v.twin.there, client: c.cfg.Remote.CoreV1().PersistentVolumeClaims(v.twin.remote), mine: c.reflected,
		stranger: func(*corev1.PersistentVolumeClaim) error {
			c.tell(ctx, v.local, corev1.EventTypeWarning, reasons.RemoteVolumeTaken, fmt.Sprintf(
				"PersistentVolumeClaim %s of cluster %s was not made by liqod for this cluster, and is not changed; waiting until it is gone", v.there(), c.cfg.Destination))
			return nil
		},
		failed: func(err error) error { return c.refusedThere(ctx, v, "creating", err) },
	}.create(ctx, want)
}

// reflected reports whether a claim of the provider was reflected by this consumer.
func (c *Claims) reflected(remote *corev1.PersistentVolumeClaim) bool {
	return c.cfg.Reflected(remote)
}

// takenByAnother records an event if the provider's claim has the data of another claim, and
// creates the volume that shows the data, if there is none. A claim without data is deleted instead.
func (c *Claims) takenByAnother(ctx context.Context, v claimView) error {
	if v.remote.Spec.VolumeName == "" {
		return c.tidy(ctx, v)
	}
	if err := c.remember(ctx, v); err != nil {
		return err
	}
	c.tell(ctx, v.local, corev1.EventTypeWarning, reasons.RemoteVolumeTaken, fmt.Sprintf(
		"cluster %s keeps the data of an earlier PersistentVolumeClaim of this name, or of one that this cluster has forgotten: annotate this claim with %s=true to adopt the data, or delete PersistentVolumeClaim %s there; data of an earlier namespace also needs the annotation %s of PersistentVolume %s, with the UID of this namespace",
		c.cfg.Destination, offloadingv1beta1.AdoptRemoteVolumeAnnotation, v.there(), offloadingv1beta1.NamespaceUIDAnnotation, forge.VolumeNameFor(types.UID(localClaimUID(v.remote)))))
	return nil // the annotation of the claim, or the deletion in the provider, triggers a new sync
}

// update patches the provider's claim if it differs from want.
func (c *Claims) update(ctx context.Context, v claimView, want *corev1.PersistentVolumeClaim) (*corev1.PersistentVolumeClaim, error) {
	merged := forge.MergePersistentVolumeClaim(v.remote, want)
	if equality.Semantic.DeepEqual(v.remote, merged) {
		return v.remote, nil
	}
	body, err := engine.MergePatch(v.remote, merged)
	if err != nil {
		return nil, err
	}
	written, err := v.twin.there.Note(c.cfg.Remote.CoreV1().PersistentVolumeClaims(v.twin.remote).Patch(ctx, v.key.Name, types.MergePatchType, body, metav1.PatchOptions{FieldManager: engine.FieldManager}))
	switch {
	case err == nil:
		return written, nil
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return nil, loop.After(store.CatchUp) // the claim is gone, or a newer one has the name
	}
	return nil, c.refusedThere(ctx, v, "changing", err)
}

// refusedThere records an event if the provider rejects the claim, and requeues after a long
// delay. Other errors are returned.
func (c *Claims) refusedThere(ctx context.Context, v claimView, doing string, err error) error {
	if engine.IsRefusal(err) {
		c.tell(ctx, v.local, corev1.EventTypeWarning, reasons.ProvisioningFailed, fmt.Sprintf("cluster %s refuses it: %s", c.cfg.Destination, offloadingv1beta1.ExplainBound(err.Error())))
		return loop.After(claimsRefusedRetry)
	}
	return fmt.Errorf("%s the PersistentVolumeClaim in the provider: %w", doing, err)
}

// lost handles a claim whose data was in the provider and whose claim there is gone. No
// empty claim is created instead, because pods would mistake it for their data.
func (c *Claims) lost(ctx context.Context, v claimView) error {
	if err := v.twin.there.ConfirmGone(ctx, v.inProvider()); err != nil {
		return err
	}
	if err := c.cfg.Verify(ctx); err != nil {
		return fmt.Errorf("verifying the provider before believing that the volume is lost: %w", err)
	}
	c.tell(ctx, v.local, corev1.EventTypeWarning, reasons.RemoteVolumeLost, fmt.Sprintf(
		"PersistentVolumeClaim %s was deleted in cluster %s, or the state of that cluster went back: no empty volume replaces it; if the data is there, its administrators can create the claim again; to start with an empty volume, delete this claim and create it again",
		v.there(), c.cfg.Destination))
	return nil
}

// tellRemote records an event about the state of the provider's claim.
func (c *Claims) tellRemote(ctx context.Context, v claimView) {
	if v.remote.Status.Phase == corev1.ClaimLost {
		c.tell(ctx, v.local, corev1.EventTypeWarning, reasons.RemoteVolumeLost,
			fmt.Sprintf("PersistentVolumeClaim %s of cluster %s has lost its volume", v.there(), c.cfg.Destination))
		return
	}
	for _, cond := range v.remote.Status.Conditions {
		if cond.Status != corev1.ConditionTrue {
			continue
		}
		kind := corev1.EventTypeNormal
		if cond.Type == corev1.PersistentVolumeClaimControllerResizeError || cond.Type == corev1.PersistentVolumeClaimNodeResizeError {
			kind = corev1.EventTypeWarning
		}
		c.tell(ctx, v.local, kind, reasons.RemoteVolume, fmt.Sprintf("in cluster %s: %s: %s", c.cfg.Destination, cond.Type, cond.Message))
		return
	}
}

// volumeHome creates the volume in this cluster. Once the provider's claim has grown to what
// the claim asks for, it updates the size of the volume and the claim. A provider that makes
// a claim grow without end is not followed.
func (c *Claims) volumeHome(ctx context.Context, v claimView) error {
	if v.volume == nil {
		return c.createVolume(ctx, v)
	}
	if v.volume.DeletionTimestamp != nil {
		return nil
	}
	var err error
	if v.volume, err = c.filled(ctx, v.volume, v.remote); err != nil {
		return err
	}
	size, asked := v.remote.Status.Capacity[corev1.ResourceStorage], v.local.Spec.Resources.Requests[corev1.ResourceStorage]
	if asked.Cmp(v.volume.Spec.Capacity[corev1.ResourceStorage]) > 0 && size.Cmp(asked) >= 0 {
		written, err := c.grow(ctx, v.volume, size.String())
		if err != nil {
			return err
		}
		v.volume = written
	}
	capacity := v.volume.Spec.Capacity[corev1.ResourceStorage]
	if shown, bound := v.local.Status.Capacity[corev1.ResourceStorage]; !bound || capacity.Cmp(shown) <= 0 {
		return nil
	}
	return c.showSize(ctx, v.twin.home, v.local, capacity.String())
}

func (c *Claims) createVolume(ctx context.Context, v claimView) error {
	want := forge.PersistentVolume(v.local, v.remote, c.cfg.Destination)
	written, err := c.addVolume(ctx, v.local, want)
	if apierrors.IsAlreadyExists(err) {
		return c.occupied(ctx, v.local, func(have *corev1.PersistentVolume) string { return c.notMine(v.local, have) })
	}
	if written != nil {
		c.tell(ctx, v.local, corev1.EventTypeNormal, reasons.ProvisioningSucceeded,
			fmt.Sprintf("the data is in cluster %s, in PersistentVolumeClaim %s", c.cfg.Destination, v.there()))
	}
	return err
}

// notMine says why a volume that has the name of a claim's volume is not that of the claim. If it lacks the
// label that the watch selects, a vkubelet has no right to write that label.
func (c *Claims) notMine(claim *corev1.PersistentVolumeClaim, have *corev1.PersistentVolume) string {
	const key = corev1beta1.RemoteClusterIDLabel
	ours := have.Annotations[forge.ProvisionedBy] == offloadingv1beta1.StorageProvisioner && have.Spec.ClaimRef != nil && have.Spec.ClaimRef.UID == claim.UID
	switch label := have.Labels[key]; {
	case ours && label == c.cfg.Destination:
		return ""
	case ours && label == "":
		return fmt.Sprintf("PersistentVolume %s lacks the label %s=%s, which liqod needs to find it: restore the label", have.Name, key, c.cfg.Destination)
	default:
		return fmt.Sprintf("PersistentVolume %s was not made by liqod for this claim and cluster %s, and is not changed; waiting until it is gone", have.Name, c.cfg.Destination)
	}
}
