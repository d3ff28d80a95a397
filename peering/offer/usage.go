package offer

import (
	"context"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	resourcehelper "k8s.io/component-helpers/resource"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/kube/store"
)

// usage sums up the requests of the cluster's pods. It watches the pods from the first call
// of get until the context is done, so a cluster without requests for capacity has no such
// watch. It caches only the fields that it sums up. It is safe for concurrent use.
type usage struct {
	kube    kubernetes.Interface
	changed func() // called when a sum may have changed

	mu       sync.Mutex
	informer *store.Informer // nil without a watch
	stale    bool
	sums     []Use
	running  sync.WaitGroup
}

// get returns the sums. It returns false until the watch has delivered all pods.
func (u *usage) get(ctx context.Context) ([]Use, bool, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.informer == nil {
		if err := u.watch(ctx); err != nil {
			return nil, false, err
		}
	}
	if !u.informer.HasSynced() {
		return nil, false, nil
	}
	if u.stale {
		u.stale = false
		u.sums = sumUp(u.informer.GetStore().List())
	}
	return u.sums, true, nil
}

// watch starts the watch. The caller holds the lock.
func (u *usage) watch(ctx context.Context) error {
	inf := store.NewInformer(u.kube, u.kube.CoreV1().Pods(metav1.NamespaceAll), &corev1.Pod{}, func(o *metav1.ListOptions) {
		o.FieldSelector = "status.phase!=Succeeded,status.phase!=Failed"
	})
	if err := inf.SetTransform(slim); err != nil {
		return err
	}
	same := func(a, b *corev1.Pod) bool {
		return a.Spec.NodeName == b.Spec.NodeName && equality.Semantic.DeepEqual(a.Spec.Resources, b.Spec.Resources)
	}
	_, err := loop.Changes("Pods", inf, same, func(*corev1.Pod) { u.touch() })
	if err != nil {
		return err
	}
	u.informer, u.stale = inf, true
	u.running.Go(func() { inf.RunWithContext(ctx) })
	return nil
}

func (u *usage) touch() {
	u.mu.Lock()
	u.stale = true
	u.mu.Unlock()
	u.changed()
}

// end waits until the watch has stopped; its context is done. The next call of get starts a
// new one.
func (u *usage) end() {
	u.running.Wait()
	u.mu.Lock()
	defer u.mu.Unlock()
	u.informer, u.sums = nil, nil
}

// slim reduces a pod to its consumer, its node and its total requests.
func slim(obj any) (any, error) {
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return obj, nil
	}
	out := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion}}
	out.Spec.NodeName = pod.Spec.NodeName
	if consumer := consumerOf(pod); consumer != "" {
		out.Labels = map[string]string{offloadingv1beta1.OriginLabel: consumer}
	}
	requests := resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{})
	requests[corev1.ResourcePods] = *resource.NewQuantity(1, resource.DecimalSI)
	out.Spec.Resources = &corev1.ResourceRequirements{Requests: requests}
	return out, nil
}

// consumerOf returns the id of the consumer of a pod, or "" for the cluster's own pods.
func consumerOf(pod *corev1.Pod) string {
	if pod.Labels[offloadingv1beta1.ManagedByLabel] != offloadingv1beta1.ManagedByShadowPod {
		return ""
	}
	return pod.Labels[offloadingv1beta1.OriginLabel]
}

// sumUp adds up the requests of slim pods per node and consumer. It skips the cluster's own
// pods without a node.
func sumUp(pods []any) []Use {
	type place struct{ node, consumer string }
	sums := map[place]corev1.ResourceList{}
	for _, obj := range pods {
		pod, ok := obj.(*corev1.Pod)
		if !ok || pod.Spec.Resources == nil {
			continue
		}
		at := place{pod.Spec.NodeName, pod.Labels[offloadingv1beta1.OriginLabel]}
		if at == (place{}) {
			continue
		}
		if sums[at] == nil {
			sums[at] = corev1.ResourceList{}
		}
		add(sums[at], pod.Spec.Resources.Requests)
	}
	out := make([]Use, 0, len(sums))
	for at, sum := range sums {
		out = append(out, Use{Node: at.node, Consumer: at.consumer, Resources: sum})
	}
	return out
}

// peerOf returns the id of the peer of a tenant namespace, or "" for any other namespace.
func peerOf(namespace string) string {
	id, ok := strings.CutPrefix(namespace, corev1beta1.TenantNamespacePrefix)
	if !ok {
		return ""
	}
	return id
}
