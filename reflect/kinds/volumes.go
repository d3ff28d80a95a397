package kinds

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/ptr"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/reasons"
	"github.com/liqod/liqod/reflect/engine"
	"github.com/liqod/liqod/reflect/forge"
)

// podsTold bounds the events that one event about a claim makes about pods.
const podsTold = 10

// Annotations that the scheduler and the volume controller write for provisioners, and
// reasons of events.
const (
	storageProvisionerAnnotation = "volume.kubernetes.io/storage-provisioner"
	storageProvisionerBeta       = "volume.beta.kubernetes.io/storage-provisioner"
	claimsRefusedRetry           = engine.TakenRetry * 6
)

// homeVolumes writes the claims of the class liqo in this cluster and their volumes, wherever
// the data is.
type homeVolumes struct {
	kube     kubernetes.Interface
	volumes  *store.Store[*corev1.PersistentVolume]
	recorder record.EventRecorder
	log      *zap.Logger

	// told is the last event that was recorded about each claim, by its UID.
	told sync.Map
}

func newHomeVolumes(kube kubernetes.Interface, volumes coreinformers.PersistentVolumeInformer, recorder record.EventRecorder, env loop.Env) *homeVolumes {
	return &homeVolumes{kube: kube, recorder: recorder, log: env.Log, volumes: store.New("PersistentVolume", volumes.Informer(), env.Clock,
		func(string) store.API[*corev1.PersistentVolume] { return kube.CoreV1().PersistentVolumes() })}
}

// tell records an event about a claim, unless it equals the last one, and a warning also about the first
// pods that wait for the claim.
func (h *homeVolumes) tell(ctx context.Context, claim *corev1.PersistentVolumeClaim, kind, reason, message string) {
	message = store.ClipMessage(message) // the message may quote the provider
	if before, _ := h.told.Swap(claim.UID, reason+message); before == reason+message {
		return
	}
	h.recorder.Event(claim, kind, reason, message)
	if kind != corev1.EventTypeWarning {
		return
	}
	pods, err := h.kube.CoreV1().Pods(claim.Namespace).List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=", Limit: 500})
	if err != nil {
		h.log.Debug("the pods of a claim are not told", zap.String("key", claim.Namespace+"/"+claim.Name), zap.Error(err))
		return // the claim has the event
	}
	told := 0
	for i := range pods.Items {
		if pod := &pods.Items[i]; told < podsTold && slices.Contains(claimsOf(pod), claim.Name) {
			h.recorder.Event(pod, kind, reason, fmt.Sprintf("PersistentVolumeClaim %s: %s", claim.Name, message))
			told++
		}
	}
}

// annotated is the patch of one annotation; a nil value removes it.
func annotated(key string, value any) store.Patch {
	return store.Patch{"metadata": store.Patch{"annotations": store.Patch{key: value}}}
}

func (h *homeVolumes) patchVolume(ctx context.Context, volume *corev1.PersistentVolume, patch store.Patch) (*corev1.PersistentVolume, error) {
	return h.volumes.Note(store.Merge(ctx, "PersistentVolume", h.kube.CoreV1().PersistentVolumes(), engine.FieldManager, volume, patch))
}

// claimStore has claims of one namespace or of all.
type claimStore = *store.Store[*corev1.PersistentVolumeClaim]

func (h *homeVolumes) patchClaim(ctx context.Context, claims claimStore, claim *corev1.PersistentVolumeClaim, patch store.Patch, sub ...string) error {
	_, err := claims.Note(store.Merge(ctx, "PersistentVolumeClaim", h.kube.CoreV1().PersistentVolumeClaims(claim.Namespace), engine.FieldManager, claim, patch, sub...))
	return err
}

// giveBack removes the selected node from the claim. That is how a provisioner reports to the
// scheduler that it cannot serve the selected node.
func (h *homeVolumes) giveBack(ctx context.Context, claims claimStore, claim *corev1.PersistentVolumeClaim, why string) error {
	err := h.patchClaim(ctx, claims, claim, store.Patch{"metadata": store.Patch{"resourceVersion": claim.ResourceVersion, "annotations": store.Patch{forge.SelectedNode: nil}}})
	if err != nil {
		return store.IgnoreNotFound(err)
	}
	h.tell(ctx, claim, corev1.EventTypeWarning, reasons.ReschedulingRequired, why)
	return nil
}

// addVolume creates a volume for a claim, with the reclaim policy of the claim's class. It returns
// nil if the namespace of the claim is gone.
func (h *homeVolumes) addVolume(ctx context.Context, claim *corev1.PersistentVolumeClaim, volume *corev1.PersistentVolume) (*corev1.PersistentVolume, error) {
	ns, err := store.Live(ctx, "Namespace", h.kube.CoreV1().Namespaces(), claim.Namespace)
	if err != nil || ns == nil {
		return nil, err
	}
	volume.Spec.PersistentVolumeReclaimPolicy, err = h.reclaimPolicy(ctx, claim)
	if err != nil {
		return nil, err
	}
	if forge.OfPod(claim) {
		volume.Annotations[offloadingv1beta1.EphemeralVolumeLabel] = "true"
	}
	if volume.Annotations[offloadingv1beta1.DataKeptAnnotation] == "" { // else nobody knows which namespace had it
		volume.Annotations[offloadingv1beta1.NamespaceUIDAnnotation] = string(ns.UID)
	}
	written, err := h.volumes.Note(h.kube.CoreV1().PersistentVolumes().Create(ctx, volume, metav1.CreateOptions{FieldManager: engine.FieldManager}))
	if err != nil {
		return nil, fmt.Errorf("creating the PersistentVolume: %w", err)
	}
	h.log.Info("volume provisioned", zap.String("key", claim.Namespace+"/"+claim.Name), zap.String("volume", written.Name))
	return written, nil
}

// reclaimPolicy returns the policy of the claim's class. Without a class it is Retain.
func (h *homeVolumes) reclaimPolicy(ctx context.Context, claim *corev1.PersistentVolumeClaim) (corev1.PersistentVolumeReclaimPolicy, error) {
	name := ptr.Deref(claim.Spec.StorageClassName, "")
	if name == "" {
		return corev1.PersistentVolumeReclaimRetain, nil
	}
	class, err := store.Live(ctx, "StorageClass", h.kube.StorageV1().StorageClasses(), name)
	if err != nil || class == nil {
		return corev1.PersistentVolumeReclaimRetain, err
	}
	return ptr.Deref(class.ReclaimPolicy, corev1.PersistentVolumeReclaimRetain), nil
}

// grow writes a new size of a volume.
func (h *homeVolumes) grow(ctx context.Context, volume *corev1.PersistentVolume, size string) (*corev1.PersistentVolume, error) {
	return h.patchVolume(ctx, volume, store.Patch{"spec": store.Patch{"capacity": store.Patch{"storage": size}}})
}

// showSize writes the new size of a claim to its status. No other controller does this for the
// class liqo.
func (h *homeVolumes) showSize(ctx context.Context, claims claimStore, claim *corev1.PersistentVolumeClaim, size string) error {
	return h.patchClaim(ctx, claims, claim, store.Patch{"status": store.Patch{"capacity": store.Patch{"storage": size}}}, "status")
}

// ofNamespace reports whether the namespace that had the claim of a volume still exists: if the claim
// does not, it was deleted by itself. The deletion of a namespace is not a request to delete the data
// of its claims.
func (h *homeVolumes) ofNamespace(ctx context.Context, volume *corev1.PersistentVolume) (bool, error) {
	ns, err := store.Live(ctx, "Namespace", h.kube.CoreV1().Namespaces(), volume.Spec.ClaimRef.Namespace)
	return ns != nil && ns.DeletionTimestamp == nil && string(ns.UID) == volume.Annotations[offloadingv1beta1.NamespaceUIDAnnotation], err
}

// keep marks a volume whose data stays, and records an event. where names the place of the data.
func (h *homeVolumes) keep(ctx context.Context, volume *corev1.PersistentVolume, where string) error {
	ref := volume.Spec.ClaimRef
	why := fmt.Sprintf("namespace %s was deleted, and not PersistentVolumeClaim %s itself: its data stays in %s", ref.Namespace, ref.Name, where)
	_, err := h.patchVolume(ctx, volume, annotated(offloadingv1beta1.DataKeptAnnotation, why))
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // the end of the deletion triggers a new sync
	}
	if err != nil {
		return fmt.Errorf("marking the volume as kept: %w", err)
	}
	h.recorder.Event(volume, corev1.EventTypeNormal, reasons.RemoteVolumeKept, why)
	h.log.Info("data kept", zap.String("volume", volume.Name))
	return nil
}

// filled removes the annotation of a volume whose claim in the provider had no volume, once that has
// one. It returns the volume.
func (h *homeVolumes) filled(ctx context.Context, volume *corev1.PersistentVolume, remote *corev1.PersistentVolumeClaim) (*corev1.PersistentVolume, error) {
	if volume.Annotations[offloadingv1beta1.NoVolumeAnnotation] == "" || remote == nil || remote.Spec.VolumeName == "" {
		return volume, nil
	}
	return h.patchVolume(ctx, volume, annotated(offloadingv1beta1.NoVolumeAnnotation, nil))
}

// deletable reports whether the data of a volume is deleted with its claim.
func deletable(volume *corev1.PersistentVolume) bool {
	_, kept := volume.Annotations[offloadingv1beta1.DataKeptAnnotation]
	return volume.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimDelete && volume.DeletionTimestamp == nil && !kept
}

// claimOf returns the key of the claim that a volume is or was bound to.
func claimOf(obj any) []loop.Key {
	if v, ok := obj.(*corev1.PersistentVolume); ok && v.Spec.ClaimRef != nil && v.Annotations[forge.ProvisionedBy] == offloadingv1beta1.StorageProvisioner {
		return []loop.Key{{Namespace: v.Spec.ClaimRef.Namespace, Name: v.Spec.ClaimRef.Name}}
	}
	return nil
}

// isVirtual reports whether a claim is for a provisioner of liqod.
func isVirtual(claim *corev1.PersistentVolumeClaim) bool {
	for _, key := range []string{storageProvisionerAnnotation, storageProvisionerBeta} {
		if p := claim.Annotations[key]; p != "" {
			return p == offloadingv1beta1.StorageProvisioner
		}
	}
	return false
}

// awaitsCopy reports whether the data of a claim has been copied to the node that it moves to, and the
// claim waits for the volume there.
func awaitsCopy(claim *corev1.PersistentVolumeClaim) bool {
	to := claim.Annotations[offloadingv1beta1.MoveToAnnotation]
	return to != "" && to == claim.Annotations[forge.SelectedNode]
}

// elsewhere reports, by live reads, whether a claim whose second volume is to be deleted is bound to
// its volume, and that is not here.
func (h *homeVolumes) elsewhere(ctx context.Context, claim *corev1.PersistentVolumeClaim, here func(*corev1.PersistentVolume) bool) (bool, error) {
	live, err := store.Live(ctx, "PersistentVolumeClaim", h.kube.CoreV1().PersistentVolumeClaims(claim.Namespace), claim.Name)
	if err != nil || live == nil || live.UID != claim.UID || live.DeletionTimestamp != nil || live.Status.Phase != corev1.ClaimBound || live.Spec.VolumeName != forge.VolumeName(claim) ||
		live.Annotations[offloadingv1beta1.DiscardCopyAnnotation] != claim.Annotations[offloadingv1beta1.DiscardCopyAnnotation] {
		return false, err
	}
	volume, err := store.Live(ctx, "PersistentVolume", h.kube.CoreV1().PersistentVolumes(), live.Spec.VolumeName)
	if err != nil || volume == nil {
		return false, err
	}
	return claimOf(volume) != nil && volume.Spec.ClaimRef.UID == claim.UID && volume.DeletionTimestamp == nil && !here(volume), nil
}

// discard deletes the data that a claim has here besides its volume, once the claim is bound to a volume that is
// not here, and then removes the annotation that asks for it.
func (h *homeVolumes) discard(ctx context.Context, claims claimStore, claim *corev1.PersistentVolumeClaim, here func(*corev1.PersistentVolume) bool, deleteIt func() (gone bool, err error)) error {
	if elsewhere, err := h.elsewhere(ctx, claim, here); err != nil || !elsewhere {
		return cmp.Or(err, loop.After(engine.TakenRetry))
	}
	if gone, err := deleteIt(); err != nil || !gone {
		return err
	}
	return h.patchClaim(ctx, claims, claim, annotated(offloadingv1beta1.DiscardCopyAnnotation, nil))
}

// deleteData deletes the claim that has the data of a claim of a user. gone: there is none that is ours.
func (h *homeVolumes) deleteData(ctx context.Context, claims claimStore, key loop.Key, mine func(*corev1.PersistentVolumeClaim) bool) (gone bool, err error) {
	data, err := claims.Live(ctx, key)
	switch {
	case err != nil:
		return false, err
	case data == nil || !mine(data):
		return true, nil
	case data.DeletionTimestamp != nil:
		return false, nil // the end of the deletion triggers a new sync
	}
	if err := claims.Delete(ctx, data); err != nil {
		return false, err
	}
	h.log.Info("claim with the data deleted", zap.Stringer("key", key))
	return false, loop.After(store.CatchUp)
}

// deleteEmpty deletes a claim for the data of a claim of a user. A live read confirms that it was never
// bound to a volume, so that it cannot have data.
func (h *homeVolumes) deleteEmpty(ctx context.Context, claims claimStore, data *corev1.PersistentVolumeClaim) error {
	live, err := claims.Live(ctx, cache.MetaObjectToName(data))
	if err != nil || live == nil || live.UID != data.UID || live.Spec.VolumeName != "" {
		return err
	}
	return claims.Delete(ctx, live, store.Unchanged(live))
}

// occupied reads the volume that has the name of a claim's volume. If problem returns an empty text, the
// watch will report the volume. Otherwise an event says the text.
func (h *homeVolumes) occupied(ctx context.Context, claim *corev1.PersistentVolumeClaim, problem func(*corev1.PersistentVolume) string) error {
	mine := func(have *corev1.PersistentVolume) bool { return awaitsCopy(claim) || problem(have) == "" }
	return taken(ctx, h.volumes, loop.Key{Name: forge.VolumeName(claim)}, mine, func(have *corev1.PersistentVolume) error {
		h.tell(ctx, claim, corev1.EventTypeWarning, reasons.ProvisioningFailed, problem(have))
		return nil
	})
}
