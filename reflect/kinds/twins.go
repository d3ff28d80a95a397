// Package kinds has the reflected kinds, one file each, and the informers for twin
// namespaces that they share. All translations of objects are made by package forge.
package kinds

import (
	"context"
	"sync"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/liqod/liqod/api/generated/clientset/versioned"
	"github.com/liqod/liqod/api/generated/informers/externalversions"
	offloadinglisters "github.com/liqod/liqod/api/generated/listers/offloading/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/reflect/engine"
)

// Remote has the clients for the provider.
type Remote struct {
	// Kube is the client for the built-in kinds of Kubernetes.
	Kube kubernetes.Interface
	// Liqo is the client for the kinds of liqod.
	Liqo versioned.Interface
}

// twin is an offloaded namespace with its informers in the provider.
type twin struct {
	opened
	shadows offloadinglisters.ShadowPodNamespaceLister
	pods    corelisters.PodNamespaceLister
}

// twins runs informers for ShadowPods and Pods in each mapped twin namespace, and stops
// them when it is unmapped. Informers are per namespace because the rights are.
type twins struct {
	remote    Remote
	node      string
	transform cache.TransformFunc
	log       *zap.Logger
	// changed is called with the namespace and name of the local pod of an object in the
	// provider that has changed. gonePod (with the local namespace) and goneShadow are
	// called when an object was deleted there; missed is true if the watch did not report
	// the deletion and a new list lacks the object. ready is called with the local
	// namespace when the caches of a twin have synced, and when it was closed.
	changed    func(namespace, name string)
	gonePod    func(namespace string, pod *corev1.Pod, missed bool)
	goneShadow func(*offloadingv1beta1.ShadowPod)
	ready      func(namespace string)
	// newShadow is called like changed, for a new ShadowPod.
	newShadow func(namespace, name string)
	// closed is called with the name of a twin namespace whose informers have stopped.
	closed func(remote string)

	mu      sync.RWMutex
	byLocal map[string]*twin
}

// get returns the open twin of a local namespace, or nil.
func (t *twins) get(namespace string) *twin {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.byLocal[namespace]
}

// keys returns the local names of all objects in the twin of a local namespace, or in all
// twins.
func (t *twins) keys(namespace string) []loop.Key {
	t.mu.RLock()
	defer t.mu.RUnlock()
	var found []loop.Key
	for local, tw := range t.byLocal {
		if namespace != corev1.NamespaceAll && namespace != local {
			continue
		}
		// Listing fails only for a broken index.
		shadows, _ := tw.shadows.List(labels.Everything())
		for _, s := range shadows {
			found = append(found, loop.Key{Namespace: local, Name: s.Name})
		}
		pods, _ := tw.pods.List(labels.Everything())
		for _, pod := range pods {
			found = append(found, loop.Key{Namespace: local, Name: pod.Name})
		}
	}
	return found
}

// newest returns the highest resource version of the consumer that any ShadowPod
// contains.
func (t *twins) newest() (version string) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	for _, tw := range t.byLocal {
		// Listing fails only for a broken index.
		shadows, _ := tw.shadows.List(labels.Everything())
		for _, s := range shadows {
			if have := s.Spec.LocalResourceVersion; version == "" || store.OlderVersion(version, have) {
				version = have
			}
		}
	}
	return version
}

// set starts and stops informers until they match want, which maps local to remote
// namespaces. It does not wait for the initial lists.
func (t *twins) set(ctx context.Context, want map[string]string) {
	t.mu.Lock()
	closing := follow(t.byLocal, want, func(have *twin) string { return have.remote }, func(local, remote string) *twin { return t.open(ctx, local, remote) })
	t.mu.Unlock()
	for _, c := range closing {
		c.stop()
		t.log.Info("twin namespace closed", zap.String("namespace", c.local), zap.String("remoteNamespace", c.remote))
		t.closed(c.remote)
		t.ready(c.local)
	}
}

func (t *twins) open(ctx context.Context, local, remote string) *twin {
	ours := labels.Set{offloadingv1beta1.NodeNameLabel: t.node}.String()
	tweak := func(o *metav1.ListOptions) { o.LabelSelector = ours }
	core := informers.NewSharedInformerFactoryWithOptions(t.remote.Kube, 0,
		informers.WithNamespace(remote), informers.WithTweakListOptions(tweak), informers.WithTransform(t.slim))
	own := externalversions.NewSharedInformerFactoryWithOptions(t.remote.Liqo, 0,
		externalversions.WithNamespace(remote), externalversions.WithTweakListOptions(tweak), externalversions.WithTransform(t.transform))
	watches := engine.Factories{Kube: core, Liqo: own, Namespace: remote, Tweak: tweak}
	// The listers below find these informers in the factories.
	podsInformer := engine.KubeInformer(watches, &corev1.Pod{}, func(c kubernetes.Interface) store.Client[*corev1.PodList] { return c.CoreV1().Pods(remote) })
	shadowsInformer := engine.LiqoInformer(watches, &offloadingv1beta1.ShadowPod{}, func(c versioned.Interface) store.Client[*offloadingv1beta1.ShadowPodList] {
		return c.OffloadingV1beta1().ShadowPods(remote)
	})
	pods, shadows := core.Core().V1().Pods(), own.Offloading().V1beta1().ShadowPods()

	tw := &twin{opened: opened{local: local, remote: remote}, shadows: shadows.Lister().ShadowPods(remote), pods: pods.Lister().Pods(remote)}
	handlers := []cache.InformerSynced{handled(podsInformer, t.handler(local)), handled(shadowsInformer, t.handler(local))}
	tw.run(ctx, func() {
		t.log.Info("twin namespace open", zap.String("namespace", local), zap.String("remoteNamespace", remote))
		t.ready(local)
	}, handlers, core, own)
	return tw
}

// slim keeps the used fields of a remote pod. The spec is most of the size of a pod, and
// is only needed to see whether a change has arrived.
func (t *twins) slim(obj any) (any, error) {
	if pod, ok := obj.(*corev1.Pod); ok {
		pod.Spec = corev1.PodSpec{
			NodeName: pod.Spec.NodeName, Containers: slimContainers(pod.Spec.Containers), InitContainers: slimContainers(pod.Spec.InitContainers),
			EphemeralContainers: pod.Spec.EphemeralContainers,
		}
	}
	return t.transform(obj)
}

func slimContainers(all []corev1.Container) []corev1.Container {
	slim := make([]corev1.Container, 0, len(all))
	for i := range all {
		slim = append(slim, corev1.Container{Name: all[i].Name, Image: all[i].Image, Resources: all[i].Resources})
	}
	return slim
}

func (t *twins) handler(local string) cache.ResourceEventHandler {
	enqueue := func(obj any) {
		if m, ok := obj.(metav1.Object); ok {
			t.changed(local, m.GetName())
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) {
			enqueue(obj)
			if s, ok := obj.(*offloadingv1beta1.ShadowPod); ok {
				t.newShadow(local, s.Name)
			}
		},
		UpdateFunc: func(_, obj any) { enqueue(obj) },
		DeleteFunc: func(obj any) {
			obj, missed := loop.Deleted(obj)
			switch o := obj.(type) {
			case *corev1.Pod:
				t.gonePod(local, o, missed)
			case *offloadingv1beta1.ShadowPod:
				t.goneShadow(o)
			}
			enqueue(obj)
		},
	}
}
