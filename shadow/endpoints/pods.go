package endpoints

import (
	"cmp"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/kube/store"
)

const (
	// podIndex indexes pods by namespace, consumer, and address or UID in the consumer's cluster.
	podIndex = "endpoints/pod"
	// ownPodsIndex indexes the shadows with endpoints that may be pods of this cluster: by
	// namespace, and by namespace and UID if an endpoint names the pod. It also indexes the
	// shadows of a Service, by serviceKey.
	ownPodsIndex = "endpoints/own-pods"
	// serviceIndex indexes EndpointSlices of this cluster by serviceKey.
	serviceIndex = "endpoints/service"
)

func podAddressKey(namespace, consumer string, addr netip.Addr) string {
	return namespace + "/" + consumer + "/" + addr.Unmap().String()
}

// podUIDKey never equals a podAddressKey: a consumer chooses the UIDs.
func podUIDKey(namespace, consumer, uid string) string {
	return namespace + "/" + consumer + "/uid/" + uid
}

// podKeys is the index function of podIndex. It skips terminated pods, because another pod may
// have their addresses already.
func podKeys(pod *corev1.Pod) (found []string) {
	if pod == nil || pod.Spec.HostNetwork || offloadingv1beta1.Ended(pod.Status.Phase) {
		return nil
	}
	consumer := pod.Labels[offloadingv1beta1.OriginLabel]
	for _, ip := range pod.Status.PodIPs {
		if addr, err := netip.ParseAddr(ip.IP); err == nil {
			found = append(found, podAddressKey(pod.Namespace, consumer, addr))
		}
	}
	if uid := pod.Labels[offloadingv1beta1.LocalPodUIDLabel]; uid != "" {
		found = append(found, podUIDKey(pod.Namespace, consumer, uid))
	}
	return found
}

// ownPods is the index function of ownPodsIndex.
func ownPods(shadow *offloadingv1beta1.ShadowEndpointSlice) []string {
	keys := []string{serviceKey(shadow)}
	for i := range shadow.Spec.Template.Endpoints {
		e := &shadow.Spec.Template.Endpoints[i]
		if uid := podUID(e); uid != "" {
			keys = append(keys, shadow.Namespace+"/"+uid)
		}
		if byAddress(e) {
			keys = append(keys, shadow.Namespace)
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// podUID returns the UID of the pod that an endpoint names, in the consumer's cluster.
func podUID(e *discoveryv1.Endpoint) string {
	if ref := e.TargetRef; ref != nil && ref.Kind == "Pod" {
		return string(ref.UID)
	}
	return ""
}

// byAddress reports whether the address of an endpoint may tell which pod it is: its UID does not,
// or the consumer says that it is a pod of this cluster.
func byAddress(e *discoveryv1.Endpoint) bool { return e.NodeName != nil || podUID(e) == "" }

// ownPod is the state of a pod that runs in this cluster for a consumer.
type ownPod struct {
	node   string
	ready  bool
	ending bool // it has a deletion timestamp
}

// asOwn returns the state of a pod, which may be nil.
func asOwn(pod *corev1.Pod) ownPod {
	if pod == nil {
		return ownPod{}
	}
	ready := store.PodCondition(&pod.Status, corev1.PodReady).Status == corev1.ConditionTrue
	return ownPod{node: pod.Spec.NodeName, ready: ready, ending: pod.DeletionTimestamp != nil}
}

// and merges the states of two pods that back one endpoint.
func (p ownPod) and(other ownPod) ownPod {
	return ownPod{node: other.node, ready: p.ready && other.ready, ending: p.ending || other.ending}
}

// podBy returns the pod with a key of podIndex, or nil. If two pods have an address, the one that
// is not terminating has received it from the other.
func (e *Enforcer) podBy(key string) (best *corev1.Pod) {
	for _, pod := range store.ByIndex[*corev1.Pod](e.cfg.Pods.GetIndexer(), podIndex, key) {
		if pod.Spec.NodeName != "" && (best == nil || best.DeletionTimestamp != nil && pod.DeletionTimestamp == nil) {
			best = pod
		}
	}
	return best
}

// podsOf returns functions that find the consumer's pods in a twin namespace: by address, and by
// the UID in the consumer's cluster with the address of a family.
func (e *Enforcer) podsOf(twin *corev1.Namespace) (at func(netip.Addr) (ownPod, bool), of func(string, discoveryv1.AddressType) (ownPod, string)) {
	at = func(addr netip.Addr) (ownPod, bool) {
		pod := e.podBy(podAddressKey(twin.Name, peerOf(twin), addr))
		return asOwn(pod), pod != nil
	}
	return at, func(uid string, family discoveryv1.AddressType) (ownPod, string) {
		pod := e.podBy(podUIDKey(twin.Name, peerOf(twin), uid))
		if pod == nil {
			return ownPod{}, ""
		}
		for _, ip := range pod.Status.PodIPs {
			if addr, err := netip.ParseAddr(ip.IP); err == nil && addr.Is4() == (family == discoveryv1.AddressTypeIPv4) {
				return asOwn(pod), addr.String()
			}
		}
		return ownPod{}, ""
	}
}

// podChanged queues the keys of a namespace when the addresses or the state of a pod there
// change.
func (e *Enforcer) podChanged(before, after *corev1.Pod) {
	if slices.Equal(podKeys(before), podKeys(after)) && asOwn(before) == asOwn(after) {
		return
	}
	pod := cmp.Or(after, before)
	e.loop.Wake(podsKey(pod.Namespace), podsKey(pod.Namespace+"/"+pod.Labels[offloadingv1beta1.LocalPodUIDLabel]))
}

// podsKey returns the key whose sync queues the shadows with a key of ownPodsIndex. A consumer
// may have many: the event handler, which all consumers share, must not walk through them. No
// shadow has this key, as it has no namespace.
func podsKey(of string) loop.Key { return loop.Key{Name: of} }

// podsChanged queues the shadows with a key of ownPodsIndex.
func (e *Enforcer) podsChanged(of string) {
	for _, shadow := range e.shadows.ByIndex(ownPodsIndex, of) {
		e.wake(shadow)
	}
}

// serviceKey returns the key of the Service that an EndpointSlice or its shadow belongs to.
func serviceKey(slice metav1.Object) string {
	return slice.GetNamespace() + "/service/" + slice.GetLabels()[discoveryv1.LabelServiceName]
}

// near is the state of the endpoints that a Service has in this cluster itself.
type near struct {
	ready  bool // one is ready
	hinted bool // one has a hint: the Service prefers near endpoints
}

// nearIn returns the state of the endpoints of an EndpointSlice, which may be nil. Those of a
// headless Service do not count: DNS shows all that are ready, near or not.
func nearIn(slice *discoveryv1.EndpointSlice) (n near) {
	if slice == nil || metav1.HasLabel(slice.ObjectMeta, corev1.IsHeadlessService) {
		return near{}
	}
	for i := range slice.Endpoints {
		e := &slice.Endpoints[i]
		n = near{ready: n.ready || e.Conditions.Ready == nil || *e.Conditions.Ready, hinted: n.hinted || e.Hints != nil}
	}
	return n
}

// TrimOwn reduces an EndpointSlice of this cluster to what the Enforcer reads of it. It is a
// transform of an informer, and changes obj.
func TrimOwn(obj any) (any, error) {
	slice, ok := obj.(*discoveryv1.EndpointSlice)
	if !ok {
		return obj, nil
	}
	n := nearIn(slice)
	slice.ManagedFields, slice.Annotations, slice.OwnerReferences, slice.Ports, slice.Endpoints = nil, nil, nil, nil, nil
	if n != (near{}) {
		slice.Endpoints = []discoveryv1.Endpoint{{Conditions: discoveryv1.EndpointConditions{Ready: &n.ready}}}
	}
	if n.hinted {
		slice.Endpoints[0].Hints = &discoveryv1.EndpointHints{}
	}
	return slice, nil
}

// standby reports whether endpoints in the consumer's cluster are used only while this cluster
// has none that is ready: the Service prefers near endpoints, and no zone is in both clusters.
// Hints do not suffice, as a proxy ignores them in a zone without an endpoint.
func (e *Enforcer) standby(shadow *offloadingv1beta1.ShadowEndpointSlice, r addressRules) bool {
	if r.sharedZones {
		return false
	}
	all := near{hinted: slices.ContainsFunc(shadow.Spec.Template.Endpoints, func(e discoveryv1.Endpoint) bool { return e.Hints != nil })}
	for _, slice := range store.ByIndex[*discoveryv1.EndpointSlice](e.cfg.Own.GetIndexer(), serviceIndex, serviceKey(shadow)) {
		if slice.AddressType == shadow.Spec.Template.AddressType {
			n := nearIn(slice)
			all = near{ready: all.ready || n.ready, hinted: all.hinted || n.hinted}
		}
	}
	return all == near{ready: true, hinted: true}
}

// ownChanged queues the shadows of a Service when the state of its endpoints in this cluster
// changes.
func (e *Enforcer) ownChanged(before, after *discoveryv1.EndpointSlice) {
	if nearIn(before) != nearIn(after) {
		e.loop.Wake(podsKey(serviceKey(cmp.Or(after, before))))
	}
}
