package endpoints

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
)

const (
	// podAddressIndex finds pods by namespace, consumer and address.
	podAddressIndex = "endpoints/pod-address"
	// ownPodsIndex finds, by namespace, the shadows with endpoints that may be pods of this
	// cluster.
	ownPodsIndex = "endpoints/own-pods"
)

func podAddressKey(namespace, consumer string, addr netip.Addr) string {
	return namespace + "/" + consumer + "/" + addr.Unmap().String()
}

// podAddresses is the index function of podAddressIndex. A pod that has ended has none:
// its addresses may be another's by now.
func podAddresses(obj any) ([]string, error) {
	pod, ok := obj.(*corev1.Pod)
	if !ok || pod.Spec.HostNetwork || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
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

// ownPod is what is asked about a pod that runs here for a consumer.
type ownPod struct {
	node   string
	ready  bool
	ending bool // its deletion was asked for
}

// asOwn returns what obj, which may be nil, is as a pod that runs here.
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

// and returns what two pods are that only together stand for an endpoint.
func (p ownPod) and(other ownPod) ownPod {
	return ownPod{node: other.node, ready: p.ready && other.ready, ending: p.ending || other.ending}
}

// podsOf returns what finds the pods that run in a twin namespace for its consumer.
func (e *Enforcer) podsOf(twin *corev1.Namespace) func(netip.Addr) (pod ownPod, ok bool) {
	return func(addr netip.Addr) (best ownPod, ok bool) {
		found, err := e.cfg.Pods.GetIndexer().ByIndex(podAddressIndex, podAddressKey(twin.Name, peerOf(twin), addr))
		if err != nil {
			return ownPod{}, false
		}
		for _, obj := range found {
			pod := asOwn(obj)
			// An address that was given on is that of the pod that stays.
			if pod.node != "" && (!ok || best.ending && !pod.ending) {
				best, ok = pod, true
			}
		}
		return best, ok
	}
}

// podChanged wakes whom the addresses or the health of a pod concern, when they change.
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
	if !ok {
		return
	}
	shadows, err := e.cfg.Shadows.GetIndexer().ByIndex(ownPodsIndex, pod.Namespace)
	if err != nil {
		return // an index that there is does not fail
	}
	for _, shadow := range shadows {
		e.wake(shadow)
	}
}
