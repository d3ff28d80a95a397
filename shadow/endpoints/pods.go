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

// podsOf returns what finds the pods that run in a twin namespace for its consumer.
func (e *Enforcer) podsOf(twin *corev1.Namespace) func(netip.Addr) (node string, ok bool) {
	return func(addr netip.Addr) (string, bool) {
		found, err := e.cfg.Pods.GetIndexer().ByIndex(podAddressIndex, podAddressKey(twin.Name, peerOf(twin), addr))
		if err != nil {
			return "", false
		}
		for _, obj := range found {
			if pod, ok := obj.(*corev1.Pod); ok && pod.Spec.NodeName != "" {
				return pod.Spec.NodeName, true
			}
		}
		return "", false
	}
}

// podChanged wakes whom the addresses of a pod concern, when they change.
func (e *Enforcer) podChanged(before, after any) {
	old, _ := podAddresses(before)
	now, _ := podAddresses(after)
	if slices.Equal(old, now) {
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
