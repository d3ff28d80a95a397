package kinds

import (
	"context"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"

	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/reflect/engine"
)

// claimTwin is an offloaded namespace with its claims in both clusters.
type claimTwin struct {
	opened
	home, there claimStore
}

func (c *Claims) open(ctx context.Context, local, remote string) *claimTwin {
	const kind = "PersistentVolumeClaim"
	homeClaims, home := selected(kind, &corev1.PersistentVolumeClaim{}, c.cfg.Home, c.cfg.Home.CoreV1().PersistentVolumeClaims(local), "", c.cfg.Transform, c.cfg.Clock)
	// Only reflected claims are watched, to save memory. A collision with another claim
	// shows as AlreadyExists.
	thereClaims, there := selected(kind, &corev1.PersistentVolumeClaim{}, c.cfg.Remote, c.cfg.Remote.CoreV1().PersistentVolumeClaims(remote), c.cfg.Selector(), c.cfg.Transform, c.cfg.Clock)
	t := &claimTwin{opened: opened{local: local, remote: remote}, home: homeClaims, there: thereClaims}
	wake := func(claim *corev1.PersistentVolumeClaim) { c.loop.Wake(loop.Key{Namespace: local, Name: claim.Name}) }
	atHome := store.Each(wake)
	atHome.Gone = func(claim *corev1.PersistentVolumeClaim, _ bool) {
		c.told.Delete(claim.UID)
		wake(claim)
	}
	t.run(ctx, func() {
		c.cfg.Log.Debug("claims of a namespace are known", zap.String("namespace", local), zap.String("remoteNamespace", remote))
		c.enqueue(local)
	}, []loop.Source{t.home.On(atHome), t.there.On(store.Each(wake))}, home, there)
	return t
}

// enqueue enqueues all claims of a namespace, or of all namespaces.
func (c *Claims) enqueue(namespace string) { c.loop.Wake(c.keys(namespace)...) }

// keys returns the keys of all claims and volumes that the caches have of a namespace, or
// of all namespaces.
func (c *Claims) keys(namespace string) (keys []loop.Key) {
	for local, t := range c.twins.Each(namespace) {
		for _, claim := range append(t.home.List(), t.there.List()...) {
			keys = append(keys, loop.Key{Namespace: local, Name: claim.Name})
		}
	}
	for _, v := range c.volumes.List() {
		for _, key := range claimOf(v) {
			if namespace == corev1.NamespaceAll || namespace == key.Namespace {
				keys = append(keys, key)
			}
		}
	}
	return keys
}

// ClaimsConfig is the configuration of a Claims for one virtual node.
type ClaimsConfig struct {
	OfNode
	// Home is a client for the consumer, Remote for the provider.
	Home, Remote kubernetes.Interface
	// Volumes is an informer for the PersistentVolumes of the consumer whose data is in
	// the provider (label liqo.io/remote-cluster-id).
	Volumes coreinformers.PersistentVolumeInformer
	// Workers is the number of claims synced concurrently; 0: no volumes are provisioned.
	Workers int
}

// Claims is the provisioner of volumes whose first pod was scheduled to one virtual node.
// It creates the claim in the provider, and a PersistentVolume in the consumer that
// represents its data and has node affinity to that provider. It deletes data in the
// provider only if the claim itself was deleted, not its whole namespace, and if the
// reclaim policy of its class is Delete. docs/storage.md ("When data is deleted") has all
// cases.
type Claims struct {
	*homeVolumes
	cfg   ClaimsConfig
	loop  *loop.Loop
	twins *engine.Spaces[*claimTwin]
}

// claimView is the known state of one claim. Fields are nil if an object does not exist.
type claimView struct {
	key           loop.Key
	twin          *claimTwin
	local, remote *corev1.PersistentVolumeClaim
	// volume has the data of local; released are the volumes of earlier claims of that
	// name.
	volume   *corev1.PersistentVolume
	released []*corev1.PersistentVolume
}
