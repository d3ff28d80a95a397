package host

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/netfabric/plan"
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
			out = append(out, plan.Single(a.Unmap()))
		}
	}
	return out
}

// eachAddress calls f with each address of the Pods that one of them alone has, in their order. Of two Pods
// with one address, one has just gone, and it is not clear which.
func eachAddress(pods []*corev1.Pod, f func(a netip.Prefix, owner *corev1.Pod)) {
	owners := map[netip.Prefix]int{}
	for _, p := range pods {
		for _, a := range podAddrs(p) {
			owners[a]++
		}
	}
	for _, p := range pods {
		for _, a := range podAddrs(p) {
			if owners[a] == 1 {
				f(a, p)
			}
		}
	}
}

// podAddresses are the addresses of eachAddress, by node.
func podAddresses(pods []*corev1.Pod) map[string][]netip.Prefix {
	out := map[string][]netip.Prefix{}
	eachAddress(pods, func(a netip.Prefix, owner *corev1.Pod) {
		out[owner.Spec.NodeName] = append(out[owner.Spec.NodeName], a)
	})
	return out
}
