package engine

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/kube/store"
)

// hosted watches the pods that the provider, in the role of a consumer, has offloaded to
// this cluster. If the peering has one direction only, there are none.
type hosted struct{ *store.Informer }

func newHosted(home kubernetes.Interface, provider string) hosted {
	theirs := labels.Set{
		offloadingv1beta1.ManagedByLabel: offloadingv1beta1.ManagedByShadowPod, offloadingv1beta1.OriginLabel: provider,
	}.String()
	i := store.NewInformer(home, home.CoreV1().Pods(metav1.NamespaceAll), &corev1.Pod{}, func(o *metav1.ListOptions) { o.LabelSelector = theirs })
	i.Transform = nameOnly
	return hosted{i}
}

// nameOnly is an informer transform that keeps only the metadata that identifies a pod.
func nameOnly(obj any) (any, error) {
	if pod, ok := obj.(*corev1.Pod); ok {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion}}, nil
	}
	return obj, nil
}

// has reports whether ref is a pod that the provider has offloaded to this cluster.
func (h hosted) has(ref *corev1.ObjectReference) bool {
	if ref == nil || ref.Kind != "Pod" {
		return false
	}
	pod := store.Cached[*corev1.Pod](h.GetStore(), cache.NewObjectName(ref.Namespace, ref.Name))
	return pod != nil && (ref.UID == "" || ref.UID == pod.UID)
}

// watch calls changed with the namespace of each pod that was created, deleted or replaced by
// another of the same name.
func (h hosted) watch(changed func(namespace string)) (cache.InformerSynced, error) {
	// After a gap in the watch, an update can be from one pod to another of the same name.
	same := func(before, after *corev1.Pod) bool { return before.UID == after.UID }
	return loop.Register(store.Changes(h, same, func(pod *corev1.Pod) { changed(pod.Namespace) }))
}
