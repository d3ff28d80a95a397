package host

import (
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/liqod/liqod/netfabric/check"
)

// underlayOf are the addresses at which a Node is reached by the others.
func underlayOf(n *corev1.Node) []netip.Addr {
	all := check.Addresses(n)
	internal := slices.DeleteFunc(slices.Clone(all), func(a netip.Addr) bool { return !check.HasAddress(n, corev1.NodeInternalIP, a) })
	if len(internal) == 0 {
		return all
	}
	return internal
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

// TrimPod is TrimNode for Pods.
func TrimPod(obj any) (any, error) {
	p, ok := obj.(*corev1.Pod)
	if !ok {
		return obj, nil
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name, UID: p.UID, ResourceVersion: p.ResourceVersion},
		Spec:       corev1.PodSpec{NodeName: p.Spec.NodeName, HostNetwork: p.Spec.HostNetwork},
		Status:     corev1.PodStatus{Phase: p.Status.Phase, PodIPs: p.Status.PodIPs},
	}, nil
}
