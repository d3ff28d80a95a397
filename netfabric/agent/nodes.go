package agent

import (
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
)

// isVirtual reports whether a Node stands for a peer.
func isVirtual(n *corev1.Node) bool {
	return n.Labels[offloadingv1beta1.TypeLabel] == offloadingv1beta1.TypeVirtualNode
}

// addresses are those at which a Node is reached, the internal ones first.
func addresses(n *corev1.Node) (out []netip.Addr) {
	for _, kind := range []corev1.NodeAddressType{corev1.NodeInternalIP, corev1.NodeExternalIP} {
		for _, a := range n.Status.Addresses {
			if addr, err := netip.ParseAddr(a.Address); err == nil && a.Type == kind && addr.Zone() == "" {
				out = append(out, addr.Unmap())
			}
		}
	}
	return out
}

// underlayOf are the addresses at which a Node is reached by the others.
func underlayOf(n *corev1.Node) []netip.Addr {
	all := addresses(n)
	internal := slices.DeleteFunc(slices.Clone(all), func(a netip.Addr) bool { return !hasAddress(n, corev1.NodeInternalIP, a) })
	if len(internal) == 0 {
		return all
	}
	return internal
}

func hasAddress(n *corev1.Node, kind corev1.NodeAddressType, a netip.Addr) bool {
	return slices.ContainsFunc(n.Status.Addresses, func(have corev1.NodeAddress) bool {
		addr, err := netip.ParseAddr(have.Address)
		return err == nil && have.Type == kind && addr.Unmap() == a
	})
}

// podRanges are the ranges of a Node's pods, as Kubernetes has given them.
func podRanges(n *corev1.Node) (out []netip.Prefix) {
	for _, text := range n.Spec.PodCIDRs {
		if p, err := netip.ParsePrefix(text); err == nil && !p.Addr().Is4In6() {
			out = append(out, p.Masked())
		}
	}
	return out
}

// watchNodes calls changed when the addresses or the podCIDRs of Nodes change, and not for
// what else they report.
func watchNodes(nodes cache.SharedIndexInformer, changed func()) error {
	_, err := nodes.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { changed() },
		UpdateFunc: func(before, after any) {
			a, isNode := before.(*corev1.Node)
			b, areNodes := after.(*corev1.Node)
			if isNode && areNodes && slices.Equal(a.Status.Addresses, b.Status.Addresses) && slices.Equal(a.Spec.PodCIDRs, b.Spec.PodCIDRs) {
				return
			}
			changed()
		},
		DeleteFunc: func(any) { changed() },
	})
	if err != nil {
		return fmt.Errorf("watching Nodes: %w", err)
	}
	return nil
}

// watchPods calls changed when the addresses or the node of a Pod change.
func watchPods(pods cache.SharedIndexInformer, changed func()) error {
	_, err := pods.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { changed() },
		UpdateFunc: func(before, after any) {
			a, isPod := before.(*corev1.Pod)
			b, arePods := after.(*corev1.Pod)
			if isPod && arePods && slices.Equal(own(a), own(b)) && a.Spec.NodeName == b.Spec.NodeName {
				return
			}
			changed()
		},
		DeleteFunc: func(any) { changed() },
	})
	if err != nil {
		return fmt.Errorf("watching Pods: %w", err)
	}
	return nil
}

// own are the addresses that a Pod has for itself.
func own(p *corev1.Pod) (out []netip.Prefix) {
	if p.Spec.HostNetwork || p.Spec.NodeName == "" || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
		return nil
	}
	for _, ip := range p.Status.PodIPs {
		if a, err := netip.ParseAddr(ip.IP); err == nil && a.Zone() == "" {
			out = append(out, netip.PrefixFrom(a.Unmap(), a.Unmap().BitLen()))
		}
	}
	return out
}

// podAddresses are the addresses of Pods, by node. Of two Pods with one address, one has
// just gone: the address is left out until it is clear which.
func podAddresses(pods []*corev1.Pod) map[string][]netip.Prefix {
	count, out := map[netip.Prefix]int{}, map[string][]netip.Prefix{}
	for _, p := range pods {
		for _, a := range own(p) {
			count[a]++
		}
	}
	for _, p := range pods {
		for _, a := range own(p) {
			if count[a] == 1 {
				out[p.Spec.NodeName] = append(out[p.Spec.NodeName], a)
			}
		}
	}
	return out
}
