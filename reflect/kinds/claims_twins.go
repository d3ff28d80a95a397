package kinds

import (
	"context"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/reflect/engine"
)

// claimTwin is an offloaded namespace with its claims in both clusters.
type claimTwin struct {
	opened
	home, there *store.Store[*corev1.PersistentVolumeClaim]
}

func (c *Claims) open(ctx context.Context, local, remote string) *claimTwin {
	homeClaims, home := c.claims(c.cfg.Home, local, "")
	// Only reflected claims are watched, to save memory. A collision with another claim
	// shows as AlreadyExists.
	ours := labels.Set{offloadingv1beta1.OriginLabel: c.cfg.Origin, offloadingv1beta1.DestinationLabel: c.cfg.Destination}
	thereClaims, there := c.claims(c.cfg.Remote, remote, ours.String())
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
	}, []cache.InformerSynced{handled(t.home.On(atHome)), handled(t.there.On(store.Each(wake)))}, home, there)
	return t
}

// claims returns the claims of one namespace that a selector chooses, and the factory of their
// informer.
func (c *Claims) claims(client kubernetes.Interface, namespace, selector string) (*store.Store[*corev1.PersistentVolumeClaim], informers.SharedInformerFactory) {
	f := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTransform(c.cfg.Transform))
	informer := engine.KubeInformer(engine.Factories{Kube: f, Tweak: func(o *metav1.ListOptions) { o.LabelSelector = selector }}, &corev1.PersistentVolumeClaim{},
		func(k kubernetes.Interface) store.Client[*corev1.PersistentVolumeClaimList] {
			return k.CoreV1().PersistentVolumeClaims(namespace)
		})
	return store.New("PersistentVolumeClaim", informer, c.cfg.Clock, func(ns string) store.API[*corev1.PersistentVolumeClaim] {
		return client.CoreV1().PersistentVolumeClaims(ns)
	}), f
}

// enqueue enqueues all claims of a namespace, or of all namespaces.
func (c *Claims) enqueue(namespace string) {
	for _, key := range c.keys(namespace) {
		c.loop.Wake(key)
	}
}

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
