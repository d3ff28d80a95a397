package endpoints

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/loop"
)

const (
	// podAddressIndex indexes pods by namespace, consumer and address.
	podAddressIndex = "endpoints/pod-address"
	// ownPodsIndex indexes, by namespace, the shadows with endpoints that may be pods of
	// this cluster.
	ownPodsIndex = "endpoints/own-pods"
)

func podAddressKey(namespace, consumer string, addr netip.Addr) string {
	return namespace + "/" + consumer + "/" + addr.Unmap().String()
}

// podAddresses is the index function of podAddressIndex. It skips terminated pods, because
// another pod may have their addresses already.
func podAddresses(obj any) ([]string, error) {
	pod, ok := obj.(*corev1.Pod)
	if !ok || pod.Spec.HostNetwork || offloadingv1beta1.Ended(pod.Status.Phase) {
		return nil, nil
	}
	var found []string
	for _, ip := range pod.Status.PodIPs {
		if addr, err := netip.ParseAddr(ip.IP); err == nil {
			found = append(found, podAddressKey(pod.Namespace, pod.Labels[offloadingv1beta1.OriginLabel], addr))
		}
	}
	return found, nil
}

// ownPods is the index function of ownPodsIndex.
func ownPods(obj any) ([]string, error) {
	shadow, ok := obj.(*offloadingv1beta1.ShadowEndpointSlice)
	if !ok {
		return nil, nil
	}
	for i := range shadow.Spec.Template.Endpoints {
		if shadow.Spec.Template.Endpoints[i].NodeName != nil {
			return []string{shadow.Namespace}, nil
		}
	}
	return nil, nil
}

// ownPod is the state of a pod that runs in this cluster for a consumer.
type ownPod struct {
	node   string
	ready  bool
	ending bool // it has a deletion timestamp
}

// asOwn returns the state of a pod. obj may be nil.
func asOwn(obj any) ownPod {
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return ownPod{}
	}
	ready := slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
	return ownPod{node: pod.Spec.NodeName, ready: ready, ending: pod.DeletionTimestamp != nil}
}

// and merges the states of two pods that back one endpoint.
func (p ownPod) and(other ownPod) ownPod {
	return ownPod{node: other.node, ready: p.ready && other.ready, ending: p.ending || other.ending}
}

// podsOf returns a function that finds the consumer's pods in a twin namespace by address.
func (e *Enforcer) podsOf(twin *corev1.Namespace) func(netip.Addr) (pod ownPod, ok bool) {
	return func(addr netip.Addr) (best ownPod, ok bool) {
		found, err := e.cfg.Pods.GetIndexer().ByIndex(podAddressIndex, podAddressKey(twin.Name, peerOf(twin), addr))
		if err != nil {
			return ownPod{}, false
		}
		for _, obj := range found {
			pod := asOwn(obj)
			// If two pods have the address, the one that is not terminating has received it
			// from the other.
			if pod.node != "" && (!ok || best.ending && !pod.ending) {
				best, ok = pod, true
			}
		}
		return best, ok
	}
}

// podChanged queues the key of a namespace when the addresses or the state of a pod there
// change.
func (e *Enforcer) podChanged(before, after any) {
	old, _ := podAddresses(before)
	now, _ := podAddresses(after)
	if slices.Equal(old, now) && asOwn(before) == asOwn(after) {
		return
	}
	pod, ok := after.(*corev1.Pod)
	if !ok {
		pod, ok = before.(*corev1.Pod)
	}
	if ok {
		e.loop.Wake(namespaceKey(pod.Namespace))
	}
}

// namespaceKey returns the key whose sync queues the shadows of a namespace that its pods
// are endpoints of. A consumer may have many: the event handler, which all consumers share,
// must not walk through them. No shadow has this key, as it has no namespace.
func namespaceKey(namespace string) loop.Key { return loop.Key{Name: namespace} }

// podsChanged queues the shadows of a namespace that its pods are endpoints of.
func (e *Enforcer) podsChanged(namespace string) {
	for _, shadow := range e.shadows.ByIndex(ownPodsIndex, namespace) {
		e.wake(shadow)
	}
}
