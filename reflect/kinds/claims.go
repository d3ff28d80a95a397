package kinds

import (
	"context"
	"fmt"
	"slices"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/reasons"
	"github.com/liqod/liqod/reflect/engine"
	"github.com/liqod/liqod/reflect/forge"
)

// NewClaims returns a Claims and registers its handlers with the informers; it starts no
// goroutines.
func NewClaims(cfg ClaimsConfig) *Claims {
	c := &Claims{cfg: cfg, homeVolumes: newHomeVolumes(cfg.Home, cfg.Volumes, cfg.Recorder, cfg.Env)}
	c.twins = engine.NewSpaces(c.open, func(t *claimTwin) { t.stop() })
	c.loop = loop.New(loop.Config{
		Name: "claims", Sync: c.sync, Log: cfg.Log, Observer: cfg.Observer,
		// The twin namespaces may be synced before the loop runs.
		Beside: func() []loop.Key { return c.keys(corev1.NamespaceAll) },
	}, loop.From(cfg.Volumes.Informer(), claimOf))
	c.loop.Watch(store.AnyChange(cfg.VirtualNodes.Informer(), func(b, a *offloadingv1beta1.VirtualNode) bool {
		return (b.DeletionTimestamp == nil) == (a.DeletionTimestamp == nil) && engine.SameReflection(b, a)
	}, c.Resync))
	return c
}

// Run provisions volumes until ctx is done. It may be called once.
func (c *Claims) Run(ctx context.Context) error {
	if c.cfg.Workers == 0 {
		<-ctx.Done()
		return nil
	}
	defer c.cfg.Namespaces.Follow(ctx, nil, c.twins)()
	return c.loop.Run(ctx, c.cfg.Workers)
}

// Resync enqueues all claims. Callers use it after Gate has opened.
func (c *Claims) Resync() { c.enqueue(corev1.NamespaceAll) }

func (c *Claims) sync(ctx context.Context, key loop.Key) error {
	v := claimView{key: key, twin: c.twins.Get(key.Namespace)}
	if v.twin == nil {
		c.lookVolumes(&v)
		return c.releaseUnmapped(ctx, v)
	}
	if err := c.cfg.Gate(); err != nil {
		c.cfg.Log.Debug("writes to the provider are blocked", zap.Error(err))
		return nil // Resync follows
	}
	if !v.twin.synced() {
		return nil // enqueue follows when the caches have synced
	}
	c.look(&v)
	if done, err := c.release(ctx, v); !done || err != nil {
		return err
	}
	if handled, err := c.moves(ctx, v); handled {
		return err
	}
	switch {
	case v.local == nil, v.remote != nil && !c.isOurs(v.local) && !c.isNeighbours(v.local):
		return c.tidy(ctx, v)
	case v.local.DeletionTimestamp != nil, !c.isOurs(v.local):
		c.misplaced(ctx, v.local)
		return nil
	}
	return c.provision(ctx, v)
}

func (c *Claims) look(v *claimView) {
	if cached := v.twin.home.Cached(v.key); cached != nil {
		v.local = v.twin.home.Latest(v.key, cached)
	}
	v.remote = v.twin.there.Get(v.inProvider())
	c.lookVolumes(v)
}

func (c *Claims) lookVolumes(v *claimView) {
	for _, volume := range c.volumes.List() {
		if !slices.Contains(claimOf(volume), v.key) || (v.local != nil && volume.Spec.ClaimRef.UID == v.local.UID) {
			continue
		}
		v.released = append(v.released, volume)
	}
	if v.local == nil {
		return
	}
	v.volume = c.volumes.Get(loop.Key{Name: forge.VolumeName(v.local)})
}

// isOurs reports whether the claim is for this provisioner and was scheduled to this
// virtual node.
func (c *Claims) isOurs(claim *corev1.PersistentVolumeClaim) bool {
	return isVirtual(claim) && claim.Annotations[forge.SelectedNode] == c.cfg.Node
}

// misplaced records an event about a claim whose provisioner makes no volume on this virtual node,
// for which the scheduler has chosen it nevertheless.
func (c *Claims) misplaced(ctx context.Context, claim *corev1.PersistentVolumeClaim) {
	by := claim.Annotations[storageProvisionerAnnotation]
	if claim.DeletionTimestamp != nil || claim.Spec.VolumeName != "" || by == "" || isVirtual(claim) || claim.Annotations[forge.SelectedNode] != c.cfg.Node {
		return
	}
	c.tell(ctx, claim, corev1.EventTypeWarning, reasons.ProvisioningFailed, fmt.Sprintf(
		"provisioner %s makes no volumes on virtual node %s: delete the pod; where the strategy is LocalAndRemote, the next one is kept on nodes of this cluster, as this claim exists, unless it selects virtual nodes itself", by, c.cfg.Node))
}

// isNeighbours reports whether the claim belongs to another virtual node of the provider,
// or may still be scheduled to this one.
func (c *Claims) isNeighbours(claim *corev1.PersistentVolumeClaim) bool {
	node := claim.Annotations[forge.SelectedNode]
	if node == "" || claim.Spec.VolumeName == forge.VolumeName(claim) {
		return true
	}
	_, err := c.cfg.VirtualNodes.Lister().VirtualNodes(c.cfg.TenantNamespace).Get(node)
	return err == nil
}
