package kinds

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	coreinformers "k8s.io/client-go/informers/core/v1"
	storageinformers "k8s.io/client-go/informers/storage/v1"
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

// RealClaimsConfig is the configuration of a RealClaims.
type RealClaimsConfig struct {
	// Kube is a client for this cluster.
	Kube kubernetes.Interface
	// Claims has all PersistentVolumeClaims of this cluster, Volumes the PersistentVolumes with
	// the label offloading.liqo.io/local-claim-uid, Nodes all Nodes.
	Claims  coreinformers.PersistentVolumeClaimInformer
	Volumes coreinformers.PersistentVolumeInformer
	Nodes   coreinformers.NodeInformer
	// Namespace has the claims of other classes whose volumes the users' claims get.
	Namespace string
	// Class returns the class of those claims, or the reason why there is none. It reads Classes.
	Class    func() (name, problem string)
	Classes  storageinformers.StorageClassInformer
	Recorder record.EventRecorder
	loop.Env
}

// RealClaims is the provisioner of volumes whose first pod was scheduled to a node of this
// cluster. For each claim of the class liqo it creates another claim, the real one, of a class
// whose volumes are in this cluster. Once that is bound, it creates a second PersistentVolume with
// the same source for the user's claim. Data is deleted as Claims does.
type RealClaims struct {
	*homeVolumes
	cfg    RealClaimsConfig
	loop   *loop.Loop
	claims claimStore
}

// ofClaim is the name of the indexes by the key of the user's claim.
const ofClaim = "of-claim"

// NewRealClaims returns a RealClaims and registers its handlers with the informers; it starts no
// goroutines.
func NewRealClaims(cfg RealClaimsConfig) *RealClaims {
	c := &RealClaims{
		cfg: cfg, homeVolumes: newHomeVolumes(cfg.Kube, cfg.Volumes, cfg.Recorder, cfg.Env),
		claims: store.New("PersistentVolumeClaim", cfg.Claims.Informer(), cfg.Clock, func(ns string) store.API[*corev1.PersistentVolumeClaim] {
			return cfg.Kube.CoreV1().PersistentVolumeClaims(ns)
		}),
	}
	c.loop = loop.New(loop.Config{Name: "real-claims", Sync: c.sync, Log: cfg.Log, Observer: cfg.Observer}, loop.From(cfg.Nodes.Informer(), loop.None), loop.From(cfg.Classes.Informer(), loop.None))
	for _, watched := range []struct {
		informer cache.SharedIndexInformer
		keys     func(any) []loop.Key
	}{{cfg.Claims.Informer(), c.keysOfClaim}, {cfg.Volumes.Informer(), claimOf}} {
		c.loop.Index(watched.informer, ofClaim, store.Index(func(obj any) (out []string) {
			for _, key := range watched.keys(obj) {
				out = append(out, key.String())
			}
			return out
		}))
		c.loop.Watch(loop.From(watched.informer, watched.keys))
	}
	c.loop.Watch(c.claims.On(store.Handler[*corev1.PersistentVolumeClaim]{Gone: func(claim *corev1.PersistentVolumeClaim, _ bool) { c.told.Delete(claim.UID) }}))
	return c
}

// keysOfClaim returns the key of a user's claim of the class, or the one that a real claim is for.
func (c *RealClaims) keysOfClaim(obj any) []loop.Key {
	claim, ok := obj.(*corev1.PersistentVolumeClaim)
	switch {
	case !ok:
		return nil
	case c.isReal(claim):
		if key, err := cache.ParseObjectName(claim.Annotations[offloadingv1beta1.LocalClaimAnnotation]); err == nil {
			return []loop.Key{key}
		}
		return nil
	case isVirtual(claim):
		return []loop.Key{{Namespace: claim.Namespace, Name: claim.Name}}
	}
	return nil
}

// isReal reports whether a claim was made for the claim of a user.
func (c *RealClaims) isReal(claim *corev1.PersistentVolumeClaim) bool {
	return claim.Namespace == c.cfg.Namespace && claim.Labels[offloadingv1beta1.LocalClaimUIDLabel] == claim.Name
}

// Run provisions volumes until ctx is done. It may be called again after it has returned.
func (c *RealClaims) Run(ctx context.Context, workers int) error { return c.loop.Run(ctx, workers) }

// realView is the known state of a claim of a user. volume and real are nil if they do not exist.
type realView struct {
	local, real *corev1.PersistentVolumeClaim
	volume      *corev1.PersistentVolume
}

func (c *RealClaims) sync(ctx context.Context, key loop.Key) error {
	local := c.claims.Get(key)
	if err := c.releaseReal(ctx, key, local); err != nil {
		return err
	}
	if local == nil || local.DeletionTimestamp != nil || !isVirtual(local) {
		return nil
	}
	v := realView{local: local, real: c.claims.Get(c.realKey(local.UID)), volume: c.volumes.Get(loop.Key{Name: forge.VolumeName(local)})}
	if handled, err := c.moves(ctx, v); handled {
		return err
	}
	if v.volume != nil {
		return c.maintain(ctx, v)
	}
	node := local.Annotations[forge.SelectedNode]
	if local.Spec.VolumeName != "" || node == "" {
		return nil // it has the volume of a provider or of its user's choice, or the scheduler is not done
	}
	switch {
	case c.isNode(node, false):
		return c.provisionReal(ctx, v, node)
	case c.isNode(node, true):
		return c.tidyReal(ctx, v.real)
	}
	return loop.After(engine.TakenRetry) // there is no such node
}

// realKey returns the key of the real claim for a claim with this UID.
func (c *RealClaims) realKey(uid types.UID) loop.Key {
	return loop.Key{Namespace: c.cfg.Namespace, Name: string(uid)}
}

// provisionReal creates the real claim, waits until that is bound, and then creates the volume of the
// user's claim.
func (c *RealClaims) provisionReal(ctx context.Context, v realView, node string) error {
	if v.real == nil {
		return c.begin(ctx, v.local, node)
	}
	switch {
	case !c.isReal(v.real) || v.real.DeletionTimestamp != nil:
		c.tell(ctx, v.local, corev1.EventTypeWarning, reasons.ProvisioningFailed, fmt.Sprintf(
			"PersistentVolumeClaim %s/%s was not made by liqod, or is being deleted; waiting until it is gone", v.real.Namespace, v.real.Name))
		return nil // its end triggers a new sync
	case v.real.Status.Phase != corev1.ClaimBound:
		return c.place(ctx, v, node)
	}
	return c.giveVolume(ctx, v)
}

// giveVolume creates the volume of the user's claim from that of the real one, which is bound.
func (c *RealClaims) giveVolume(ctx context.Context, v realView) error {
	source, err := store.Live(ctx, "PersistentVolume", c.cfg.Kube.CoreV1().PersistentVolumes(), v.real.Spec.VolumeName)
	if err != nil || source == nil {
		return err // the claim is lost, which its status will say
	}
	written, err := c.addVolume(ctx, v.local, forge.RealVolume(v.local, source))
	if apierrors.IsAlreadyExists(err) {
		return c.occupied(ctx, v.local, func(have *corev1.PersistentVolume) string {
			if have.Labels[offloadingv1beta1.LocalClaimUIDLabel] == string(v.local.UID) && claimOf(have) != nil {
				return ""
			}
			return fmt.Sprintf("PersistentVolume %s exists and is not changed: it is not of this claim and this cluster, or lacks the label %s=%s; waiting until it is gone",
				have.Name, offloadingv1beta1.LocalClaimUIDLabel, v.local.UID)
		})
	}
	if written != nil {
		c.tell(ctx, v.local, corev1.EventTypeNormal, reasons.ProvisioningSucceeded, fmt.Sprintf("the data is in this cluster, in PersistentVolumeClaim %s/%s", v.real.Namespace, v.real.Name))
	}
	return c.refusedHere(ctx, v.local, err)
}

// begin creates the real claim.
func (c *RealClaims) begin(ctx context.Context, local *corev1.PersistentVolumeClaim, node string) error {
	// Who may create claims may write the annotation of the provisioner, but not classes.
	own, err := c.cfg.Classes.Lister().Get(ptr.Deref(local.Spec.StorageClassName, ""))
	if err != nil || own.Provisioner != offloadingv1beta1.StorageProvisioner {
		return nil
	}
	class, problem := c.cfg.Class()
	if problem != "" {
		c.tell(ctx, local, corev1.EventTypeWarning, reasons.ProvisioningFailed, problem)
		return loop.After(claimsRefusedRetry)
	}
	want, err := forge.RealClaim(local, c.cfg.Namespace, class, node)
	var refused *forge.Refused
	if errors.As(err, &refused) {
		c.tell(ctx, local, corev1.EventTypeWarning, refused.Reason, refused.Message)
		return nil
	}
	_, err = c.claims.Note(store.Write(ctx, "PersistentVolumeClaim", c.cfg.Kube.CoreV1().PersistentVolumeClaims(want.Namespace), engine.FieldManager, nil, want))
	if apierrors.IsAlreadyExists(err) {
		return loop.After(store.CatchUp)
	}
	return c.refusedHere(ctx, local, err)
}

// refusedHere records an event if this cluster refused the real claim.
func (c *RealClaims) refusedHere(ctx context.Context, local *corev1.PersistentVolumeClaim, err error) error {
	if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsNotFound(err) {
		c.tell(ctx, local, corev1.EventTypeWarning, reasons.ProvisioningFailed, err.Error())
		return loop.After(claimsRefusedRetry)
	}
	return err
}

// place gives the real claim the node that the scheduler has selected. If the provisioner has no
// volume for that node, it gives the user's claim back to the scheduler.
func (c *RealClaims) place(ctx context.Context, v realView, node string) error {
	at, asked := v.real.Annotations[forge.SelectedNode], v.real.Annotations[offloadingv1beta1.AskedNodeAnnotation]
	switch {
	case at == node:
		return nil // the provisioner is at work
	case at != "" || asked != node:
		return c.patchReal(ctx, v, map[string]any{forge.SelectedNode: node, offloadingv1beta1.AskedNodeAnnotation: node}, nil)
	}
	// First, so that the next node may be the same one.
	if err := c.patchReal(ctx, v, map[string]any{offloadingv1beta1.AskedNodeAnnotation: nil}, nil); err != nil {
		return err
	}
	return c.giveBack(ctx, c.claims, v.local, fmt.Sprintf("StorageClass %s has no volume for node %s", *v.real.Spec.StorageClassName, node))
}

// patchReal changes annotations and the requested resources of the real claim.
func (c *RealClaims) patchReal(ctx context.Context, v realView, annotations map[string]any, requests corev1.ResourceList) error {
	patch := store.Patch{"metadata": store.Patch{"annotations": annotations}}
	if requests != nil {
		patch["spec"] = store.Patch{"resources": store.Patch{"requests": requests}}
	}
	return c.refusedHere(ctx, v.local, c.patchClaim(ctx, c.claims, v.real, patch))
}

// maintain lets the real claim grow with the user's claim, and that with its volume.
func (c *RealClaims) maintain(ctx context.Context, v realView) error {
	switch {
	case v.volume.DeletionTimestamp != nil:
		return nil
	case v.real == nil:
		if err := c.claims.ConfirmGone(ctx, c.realKey(v.local.UID)); err != nil {
			return err
		}
		c.tell(ctx, v.local, corev1.EventTypeWarning, reasons.RemoteVolumeLost, fmt.Sprintf(
			"PersistentVolumeClaim %s, which has the data, was deleted: no empty volume replaces it; to start with an empty volume, delete this claim and create it again", c.realKey(v.local.UID)))
		return nil
	}
	asked := v.local.Spec.Resources.Requests[corev1.ResourceStorage]
	if asked.Cmp(v.real.Spec.Resources.Requests[corev1.ResourceStorage]) > 0 {
		return c.patchReal(ctx, v, map[string]any{}, corev1.ResourceList{corev1.ResourceStorage: asked})
	}
	if asked.Cmp(v.volume.Spec.Capacity[corev1.ResourceStorage]) > 0 {
		if err := c.growVolume(ctx, v); err != nil {
			return err
		}
	}
	size, shown := v.real.Status.Capacity[corev1.ResourceStorage], v.local.Status.Capacity[corev1.ResourceStorage]
	if v.local.Status.Phase != corev1.ClaimBound || size.Cmp(shown) <= 0 {
		return nil
	}
	return c.showSize(ctx, c.claims, v.local, size.String())
}

// growVolume gives the volume the size that its source has reached. Where the file system grows
// with the next mount only, the kubelet does that, and shows the size in the user's claim.
func (c *RealClaims) growVolume(ctx context.Context, v realView) error {
	source, err := store.Live(ctx, "PersistentVolume", c.cfg.Kube.CoreV1().PersistentVolumes(), v.real.Spec.VolumeName)
	if err != nil || source == nil {
		return err
	}
	size := source.Spec.Capacity[corev1.ResourceStorage]
	if size.Cmp(v.volume.Spec.Capacity[corev1.ResourceStorage]) <= 0 {
		return nil // a change of the real claim triggers a new sync
	}
	_, err = c.grow(ctx, v.volume, size.String())
	return err
}

// releaseReal handles what earlier claims of the key have left: volumes and real claims.
func (c *RealClaims) releaseReal(ctx context.Context, key loop.Key, local *corev1.PersistentVolumeClaim) error {
	isCurrent := func(uid types.UID) bool { return local != nil && local.UID == uid }
	for _, volume := range c.volumes.ByIndex(ofClaim, key.String()) {
		if isCurrent(volume.Spec.ClaimRef.UID) || volume.Status.Phase != corev1.VolumeReleased || !deletable(volume) || c.volumes.WasDeleted(volume.UID) {
			continue
		}
		if err := c.reclaimReal(ctx, key, volume); err != nil {
			return err
		}
	}
	for _, real := range c.claims.ByIndex(ofClaim, key.String()) {
		if !c.isReal(real) || isCurrent(types.UID(real.Name)) {
			continue
		}
		if err := c.tidyReal(ctx, real); err != nil {
			return err
		}
	}
	return nil
}

// reclaimReal deletes the real claim of a volume whose claim was deleted by itself or with its pod, and the
// volume after that claim is gone. Otherwise it marks the volume as kept.
func (c *RealClaims) reclaimReal(ctx context.Context, key loop.Key, volume *corev1.PersistentVolume) error {
	alone, err := c.ofNamespace(ctx, volume)
	if err != nil {
		return err
	}
	uid := volume.Spec.ClaimRef.UID
	if !alone && volume.Annotations[offloadingv1beta1.EphemeralVolumeLabel] == "" {
		return c.keep(ctx, volume, fmt.Sprintf("PersistentVolumeClaim %s", c.realKey(uid)))
	}
	if err := c.claims.ConfirmNone(ctx, key, func(claim *corev1.PersistentVolumeClaim) bool { return claim.UID == uid }); err != nil {
		return err
	}
	if gone, err := c.deleteData(ctx, c.claims, c.realKey(uid), c.isReal); err != nil || !gone {
		return err
	}
	return c.volumes.Delete(ctx, volume)
}

// tidyReal deletes a real claim that is for no claim any more. It does so only if it was never bound
// to a volume, so that it cannot have data.
func (c *RealClaims) tidyReal(ctx context.Context, real *corev1.PersistentVolumeClaim) error {
	if real == nil || !c.isReal(real) || real.Spec.VolumeName != "" || real.DeletionTimestamp != nil || c.claims.WasDeleted(real.UID) {
		return nil
	}
	keys := c.keysOfClaim(real)
	if len(keys) == 0 {
		return nil
	}
	err := c.claims.ConfirmNone(ctx, keys[0], func(local *corev1.PersistentVolumeClaim) bool {
		return string(local.UID) == real.Name && !c.isNode(local.Annotations[forge.SelectedNode], true)
	})
	if err != nil {
		return err
	}
	return c.deleteEmpty(ctx, c.claims, real)
}

// isNode reports whether a name is that of a virtual node, or of one that is not virtual.
func (c *RealClaims) isNode(name string, virtual bool) bool {
	node := store.Known(c.cfg.Nodes.Lister().Get(name))
	return node != nil && offloadingv1beta1.IsVirtual(node) == virtual
}
