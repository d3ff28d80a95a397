// Package kinds has the reflected kinds, one file each, and the informers for twin
// namespaces that they share. All translations of objects are made by package forge.
package kinds

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/kube/store"
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

func slimContainers(all []corev1.Container) []corev1.Container {
	slim := make([]corev1.Container, 0, len(all))
	for i := range all {
		slim = append(slim, corev1.Container{Name: all[i].Name, Image: all[i].Image, Resources: all[i].Resources})
	}
	return slim
}
