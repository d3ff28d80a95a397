// Package kinds has the reflected kinds, one file each, and the informers for twin
// namespaces that they share. All translations of objects are made by package forge.
package kinds

import (
	"context"
	"sync"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/reflect/engine"
)

// twin is an offloaded namespace with what is in it in the provider. It ends with all that is
// remembered of it when the namespace is closed.
type twin struct {
	opened
	shadows *store.Store[*offloadingv1beta1.ShadowPod]
	pods    *store.Store[*corev1.Pod]

	mu sync.Mutex
	// left has the UIDs of local pods whose deletion the watch in the consumer has reported
	// while the provider still had a ShadowPod.
	left loop.Since[types.UID]
	// doubted has the time since when a ShadowPod seems to belong to a pod that was lost by a
	// restored backup, by the UID of the local pod.
	doubted loop.Since[types.UID]
	// newest is the highest resource version of the consumer that a ShadowPod has had.
	newest string
}

// key returns the key in the provider of an object of this name.
func (t *twin) key(name string) loop.Key { return loop.Key{Namespace: t.remote, Name: name} }

// twins runs informers for ShadowPods and Pods in each open namespace. Informers are per
// namespace because the rights are.
type twins struct {
	*engine.Spaces[*twin]

	remote    engine.Clients
	node      string
	transform cache.TransformFunc
	clock     clock.PassiveClock
	log       *zap.Logger
	// changed is called with the namespace and name of the local pod of an object in the
	// provider that has changed. gonePod is called with the local namespace when a pod was
	// deleted there; missed is true if the watch did not report the deletion and a new list
	// lacks the object. ready is called with the local namespace when the caches of a twin
	// have synced, and when it was closed.
	changed func(namespace, name string)
	gonePod func(namespace string, pod *corev1.Pod, missed bool)
	ready   func(namespace string)
	// newShadow is called like changed, for a new ShadowPod.
	newShadow func(namespace, name string)
}

// keys returns the local names of all objects in the twin of a local namespace, or in all
// twins.
func (t *twins) keys(namespace string) []loop.Key {
	var found []loop.Key
	for local, tw := range t.Each(namespace) {
		for _, there := range append(loop.Keys(tw.shadows.List()), loop.Keys(tw.pods.List())...) {
			found = append(found, loop.Key{Namespace: local, Name: there.Name})
		}
	}
	return found
}

// saw notes from which state of the consumer a ShadowPod was made.
func (t *twin) saw(shadow *offloadingv1beta1.ShadowPod) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if have := shadow.Spec.LocalResourceVersion; t.newest == "" || store.OlderVersion(t.newest, have) {
		t.newest = have
	}
}

// forget drops what is remembered of the ShadowPod of a local pod.
func (t *twin) forget(local types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.left.End(local)
	t.doubted.End(local)
}

// newest returns the highest resource version of the consumer that any ShadowPod contains.
func (t *twins) newest() (version string) {
	for _, tw := range t.Each(corev1.NamespaceAll) {
		tw.mu.Lock()
		if version == "" || store.OlderVersion(version, tw.newest) {
			version = tw.newest
		}
		tw.mu.Unlock()
	}
	return version
}

func (t *twins) close(tw *twin) {
	tw.stop()
	t.log.Info("twin namespace closed", zap.String("namespace", tw.local), zap.String("remoteNamespace", tw.remote))
	t.ready(tw.local)
}

func (t *twins) open(ctx context.Context, local, remote string) *twin {
	ours := labels.Set{offloadingv1beta1.NodeNameLabel: t.node}.String()
	pods, podsInformer := selected("the provider's pod", &corev1.Pod{}, t.remote.Kube, t.remote.Kube.CoreV1().Pods(remote), ours, t.slim, t.clock)
	shadows, shadowsInformer := selected("ShadowPod", &offloadingv1beta1.ShadowPod{}, t.remote.Liqo, t.remote.Liqo.OffloadingV1beta1().ShadowPods(remote), ours, t.transform, t.clock)
	tw := &twin{opened: opened{local: local, remote: remote}, shadows: shadows, pods: pods}
	handlers := []cache.InformerSynced{handled(tw.pods.On(t.onPod(local))), handled(tw.shadows.On(t.onShadow(tw)))}
	tw.run(ctx, func() {
		t.log.Info("twin namespace open", zap.String("namespace", local), zap.String("remoteNamespace", remote))
		t.ready(local)
	}, handlers, podsInformer, shadowsInformer)
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

func (t *twins) onPod(local string) store.Handler[*corev1.Pod] {
	return store.Handler[*corev1.Pod]{
		Set: func(_, pod *corev1.Pod) { t.changed(local, pod.Name) },
		Gone: func(pod *corev1.Pod, missed bool) {
			t.gonePod(local, pod, missed)
			t.changed(local, pod.Name)
		},
	}
}

func (t *twins) onShadow(tw *twin) store.Handler[*offloadingv1beta1.ShadowPod] {
	return store.Handler[*offloadingv1beta1.ShadowPod]{
		Set: func(before, shadow *offloadingv1beta1.ShadowPod) {
			tw.saw(shadow)
			t.changed(tw.local, shadow.Name)
			if before == nil {
				t.newShadow(tw.local, shadow.Name)
			}
		},
		Gone: func(shadow *offloadingv1beta1.ShadowPod, _ bool) {
			tw.forget(localUID(shadow))
			t.changed(tw.local, shadow.Name)
		},
	}
}

// fieldManager identifies the writes of this package in managedFields.
const fieldManager = "liqod-vkubelet"
