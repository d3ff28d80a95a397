package host

import (
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
)

// samePod reports whether two states of a Pod have the same node and the same addresses.
func samePod(a, b *corev1.Pod) bool {
	return a.Spec.NodeName == b.Spec.NodeName && slices.Equal(podAddrs(a), podAddrs(b))
}

// podAddrs returns the addresses that a Pod has for itself.
func podAddrs(p *corev1.Pod) (out []netip.Prefix) {
	if p.Spec.HostNetwork || p.Spec.NodeName == "" || offloadingv1beta1.Ended(p.Status.Phase) {
		return nil
	}
	for _, ip := range p.Status.PodIPs {
		if a, err := netip.ParseAddr(ip.IP); err == nil && a.Zone() == "" {
			out = append(out, netip.PrefixFrom(a.Unmap(), a.Unmap().BitLen()))
		}
	}
	return out
}

// podOwners counts the Pods with each address. Of two Pods with one address, one has just gone,
// and it is not clear which.
func podOwners(pods []*corev1.Pod) map[netip.Prefix]int {
	out := map[netip.Prefix]int{}
	for _, p := range pods {
		for _, a := range podAddrs(p) {
			out[a]++
		}
	}
	return out
}

// podAddresses are the addresses of Pods, by node. One of two Pods is left out.
func podAddresses(pods []*corev1.Pod) map[string][]netip.Prefix {
	owners, out := podOwners(pods), map[string][]netip.Prefix{}
	for _, p := range pods {
		for _, a := range podAddrs(p) {
			if owners[a] == 1 {
				out[p.Spec.NodeName] = append(out[p.Spec.NodeName], a)
			}
		}
	}
	return out
}

// TrimPod is TrimNode for Pods.
func TrimPod(obj any) (any, error) {
	p, ok := obj.(*corev1.Pod)
	if !ok {
		return obj, nil
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: p.Namespace, Name: p.Name, UID: p.UID, ResourceVersion: p.ResourceVersion,
			Labels: only(p.Labels, offloadingv1beta1.OriginLabel),
		},
		Spec:   corev1.PodSpec{NodeName: p.Spec.NodeName, HostNetwork: p.Spec.HostNetwork},
		Status: corev1.PodStatus{Phase: p.Status.Phase, PodIPs: p.Status.PodIPs},
	}, nil
}

// only returns the entries of m with these keys.
func only(m map[string]string, keys ...string) map[string]string {
	out := maps.Clone(m)
	maps.DeleteFunc(out, func(key, _ string) bool { return !slices.Contains(keys, key) })
	return out
}
