package kinds

import (
	"context"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/reflect/engine"
)

// claimTwin is an offloaded namespace with the informers for its claims in both clusters.
type claimTwin struct {
	opened
	home, there corelisters.PersistentVolumeClaimNamespaceLister
}

// openTwins starts and stops informers until they match the mapped namespaces. It does
// not wait for the initial lists.
func (c *Claims) openTwins(ctx context.Context) {
	c.opening.Lock() // the latest state of the NamespaceMap is applied last
	defer c.opening.Unlock()
	want := map[string]string{}
	if m, err := c.cfg.NamespaceMaps.Lister().NamespaceMaps(c.cfg.TenantNamespace).Get(c.cfg.Destination); err == nil && ctx.Err() == nil {
		want = engine.Mapped(m)
	}
	c.mu.Lock()
	closing := follow(c.twins, want, func(have *claimTwin) string { return have.remote }, func(local, remote string) *claimTwin { return c.open(ctx, local, remote) })
	c.mu.Unlock()
	for _, t := range closing {
		t.stop()
		c.remotes.ForgetNamespace(t.remote)
		c.locals.ForgetNamespace(t.local)
	}
}

func (c *Claims) open(ctx context.Context, local, remote string) *claimTwin {
	home, homeSynced := c.watchClaims(c.cfg.Home, local, "", func(claim *corev1.PersistentVolumeClaim) {
		c.locals.Gone(claim)
		c.forget(claim.UID)
	})
	// Only reflected claims are watched, to save memory. A collision with another claim
	// shows as AlreadyExists.
	ours := labels.Set{offloadingv1beta1.OriginLabel: c.cfg.Origin, offloadingv1beta1.DestinationLabel: c.cfg.Destination}
	there, thereSynced := c.watchClaims(c.cfg.Remote, remote, ours.String(), c.remotes.Gone, func(k loop.Key) loop.Key {
		return loop.Key{Namespace: local, Name: k.Name}
	})
	t := &claimTwin{
		opened: opened{local: local, remote: remote},
		home:   home.Core().V1().PersistentVolumeClaims().Lister().PersistentVolumeClaims(local),
		there:  there.Core().V1().PersistentVolumeClaims().Lister().PersistentVolumeClaims(remote),
	}
	t.run(ctx, func() {
		c.cfg.Log.Debug("claims of a namespace are known", zap.String("namespace", local), zap.String("remoteNamespace", remote))
		c.enqueue(local)
	}, []cache.InformerSynced{homeSynced, thereSynced}, home, there)
	return t
}

// watchClaims registers a handler for the claims of one namespace. rename translates the
// key of a provider's claim into that of the local claim.
func (c *Claims) watchClaims(client kubernetes.Interface, namespace, selector string, gone func(*corev1.PersistentVolumeClaim), rename ...func(loop.Key) loop.Key) (informers.SharedInformerFactory, cache.InformerSynced) {
	f := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTransform(c.cfg.Transform))
	claims := engine.KubeInformer(engine.Factories{Kube: f, Tweak: func(o *metav1.ListOptions) { o.LabelSelector = selector }}, &corev1.PersistentVolumeClaim{},
		func(k kubernetes.Interface) store.Client[*corev1.PersistentVolumeClaimList] {
			return k.CoreV1().PersistentVolumeClaims(namespace)
		})
	wake := func(obj any) {
		claim, ok := obj.(*corev1.PersistentVolumeClaim)
		if !ok {
			return
		}
		key := cache.MetaObjectToName(claim)
		for _, r := range rename {
			key = r(key)
		}
		c.loop.Wake(key)
	}
	return f, handled(claims, cache.ResourceEventHandlerFuncs{
		AddFunc:    wake,
		UpdateFunc: func(_, obj any) { wake(obj) },
		DeleteFunc: func(obj any) {
			if claim, ok := loop.Object[*corev1.PersistentVolumeClaim](obj); ok {
				gone(claim)
				wake(claim)
			}
		},
	})
}

func (c *Claims) twin(namespace string) *claimTwin {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.twins[namespace]
}

func (c *Claims) closeTwins() {
	c.opening.Lock()
	defer c.opening.Unlock()
	c.mu.Lock()
	all := c.twins
	c.twins = map[string]*claimTwin{}
	c.mu.Unlock()
	for _, t := range all {
		t.stop()
	}
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
	c.mu.Lock()
	for local, t := range c.twins {
		if namespace != corev1.NamespaceAll && namespace != local {
			continue
		}
		for _, lister := range []corelisters.PersistentVolumeClaimNamespaceLister{t.home, t.there} {
			claims, _ := lister.List(labels.Everything()) // listing fails only for a broken index
			for _, claim := range claims {
				keys = append(keys, loop.Key{Namespace: local, Name: claim.Name})
			}
		}
	}
	c.mu.Unlock()
	volumes, _ := c.cfg.Volumes.Lister().List(labels.Everything())
	for _, v := range volumes {
		for _, key := range claimOf(v) {
			if namespace == corev1.NamespaceAll || namespace == key.Namespace {
				keys = append(keys, key)
			}
		}
	}
	return keys
}
