package kinds

import (
	"context"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"

	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/kube/store"
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
