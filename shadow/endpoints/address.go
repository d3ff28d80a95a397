package endpoints

import (
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/tools/cache"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	ipamv1alpha1 "github.com/liqod/liqod/api/ipam/v1alpha1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/shadow/rules"
)

// Remapper translates addresses as the network fabric does. Its methods must be safe for
// concurrent use and must not block.
type Remapper interface {
	// Fabric reports whether the network fabric connects this cluster with the peer's. If
	// not, both reach each other's addresses as they are.
	Fabric(peer string) bool
	// Ranges returns the ranges that the peer's own addresses are in, as far as the fabric
	// leads there. The error is the reason for which none are known.
	Ranges(peer string) ([]netip.Prefix, error)
	// Remap returns the address at which this cluster reaches addr, an address of the
	// peer's own. It returns false if addr is not reachable.
	Remap(peer string, addr netip.Addr) (netip.Addr, bool)
	// Direct returns the address at which this cluster reaches, without the peer, a pod in a third
	// cluster that addr stands for, in a namespace of the peer. It returns false if it does not.
	Direct(peer, namespace string, addr netip.Addr) (netip.Addr, bool)
	// Unmap returns the address in this cluster that the peer reaches at addr. It returns
	// false if there is none.
	Unmap(peer string, addr netip.Addr) (netip.Addr, bool)
	// Subscribe registers a function that is called with the id of each peer for which the
	// other methods may return something else than before. synced reports whether it has
	// been called for all that was there at the start.
	Subscribe(changed func(peer string)) (synced cache.InformerSynced)
}

// addressRules decide which addresses of a peer's endpoints are accepted.
type addressRules struct {
	peer     string
	home     string // the twin's namespace in the peer's cluster
	remap    Remapper
	metadata rules.Metadata
	// names: endpoints may be names of hosts.
	names bool
	// problem, if not empty, is the reason for which no address of the peer is accepted.
	problem string
	// ranges are those of the peer's own addresses, and source is the field that has them.
	source string
	ranges []netip.Prefix
	// node reports whether an address belongs to a node of this cluster.
	node func(netip.Addr) bool
	// sharedZones: zones of the peer are those of this cluster with the same names. zone returns
	// the zone of a node of this cluster; empty: none.
	sharedZones bool
	zone        func(node string) string
	// standby: endpoints in the peer's cluster are used only while none here is ready.
	standby bool
	// pod returns the pod with an address that runs in this cluster for the peer. podOf returns
	// the one of a pod in the peer's cluster, by its UID, and its address; empty: none.
	pod   func(netip.Addr) (pod ownPod, ok bool)
	podOf func(uid string, family discoveryv1.AddressType) (pod ownPod, address string)
}

// translate returns the local address of an endpoint in the peer's cluster, or the reason
// for which it is refused.
func (r addressRules) translate(text string, family discoveryv1.AddressType) (address, refused string) {
	if family == discoveryv1.AddressTypeFQDN {
		return r.name(text)
	}
	addr, refused := r.parse(text, family)
	if refused != "" {
		return "", refused
	}
	if !slices.ContainsFunc(r.ranges, func(p netip.Prefix) bool { return p.Contains(addr) }) {
		return "", fmt.Sprintf("%s is not in %s (%s)", addr, r.source, ipamv1alpha1.RangesText(r.ranges))
	}
	here, refused := r.here(addr, r.nearest)
	if refused != "" {
		return "", refused
	}
	return here.String(), ""
}

// name returns the name of a host as it is, or the reason for which it is refused.
func (r addressRules) name(text string) (name, refused string) {
	if r.problem == "" && len(validation.IsDNS1123Subdomain(text)) > 0 {
		return "", fmt.Sprintf("%.64q is not the name of a host", text)
	}
	return text, r.problem
}

// nearest is Remapper.Remap, but without the way through the peer's cluster where there is a shorter one.
func (r addressRules) nearest(peer string, addr netip.Addr) (netip.Addr, bool) {
	if here, ok := r.remap.Direct(peer, r.home, addr); ok {
		return here, true
	}
	return r.remap.Remap(peer, addr)
}

// own returns the local address of a pod that runs in this cluster for the peer, and the
// pod. text is the address that the pod has in the peer's cluster. ok is false for any
// other address.
func (r addressRules) own(text string, family discoveryv1.AddressType) (address string, pod ownPod, ok bool) {
	addr, refused := r.parse(text, family)
	if refused != "" {
		return "", ownPod{}, false
	}
	here, refused := r.here(addr, r.remap.Unmap)
	if refused != "" {
		return "", ownPod{}, false
	}
	pod, ok = r.pod(here)
	return here.String(), pod, ok
}

// parse returns an address that a peer may use, or the reason for which it is refused.
func (r addressRules) parse(text string, family discoveryv1.AddressType) (addr netip.Addr, refused string) {
	if r.problem != "" {
		return netip.Addr{}, r.problem
	}
	addr, err := netip.ParseAddr(text)
	if err != nil || addr.Zone() != "" || addr.Is4In6() || addr.Is4() != (family == discoveryv1.AddressTypeIPv4) {
		return netip.Addr{}, fmt.Sprintf("%.64q is not an address of type %s", text, family)
	}
	if why := ipamv1alpha1.SpecialAddress(addr); why != "" {
		return netip.Addr{}, fmt.Sprintf("%s is in %s", addr, why)
	}
	return addr, ""
}

// here translates a peer's address to the local one with one of the methods of r.remap, or
// returns the reason for which it is refused.
func (r addressRules) here(addr netip.Addr, translate func(peer string, addr netip.Addr) (netip.Addr, bool)) (here netip.Addr, refused string) {
	here, ok := translate(r.peer, addr)
	if !ok {
		return netip.Addr{}, fmt.Sprintf("%s has no address in this cluster", addr)
	}
	if why := ipamv1alpha1.SpecialAddress(here); why != "" {
		return netip.Addr{}, fmt.Sprintf("%s is here in %s", addr, why)
	}
	if r.node(here) {
		return netip.Addr{}, fmt.Sprintf("%s is the address of a node of this cluster", addr)
	}
	return here, ""
}

// nodeAddressIndex indexes Nodes by their addresses.
const nodeAddressIndex = "endpoints/node-address"

// nodeAddresses is the index function of nodeAddressIndex.
func nodeAddresses(node *corev1.Node) (found []string) {
	if node == nil {
		return nil
	}
	for _, a := range node.Status.Addresses {
		if addr, err := netip.ParseAddr(a.Address); err == nil {
			found = append(found, addr.Unmap().String())
		}
	}
	return found
}

// isNode reports whether an address belongs to a node of this cluster.
func (e *Enforcer) isNode(addr netip.Addr) bool {
	keys, err := e.cfg.Nodes.GetIndexer().IndexKeys(nodeAddressIndex, addr.Unmap().String())
	return err != nil || len(keys) > 0
}

// zoneOf returns the zone of a Node; empty: none.
func (e *Enforcer) zoneOf(name string) string {
	if node := store.Cached[*corev1.Node](e.cfg.Nodes.GetStore(), loop.Key{Name: name}); node != nil {
		return node.Labels[corev1.LabelTopologyZone]
	}
	return ""
}

func peerOf(ns *corev1.Namespace) string { return ns.Labels[corev1beta1.RemoteClusterIDLabel] }

// rules returns the rules for the addresses of a twin namespace's peer, and the conditions
// of the peer's ForeignCluster.
func (e *Enforcer) rules(twin *corev1.Namespace) (addressRules, []metav1.Condition) {
	peer := peerOf(twin)
	r := addressRules{peer: peer, home: twin.Annotations[offloadingv1beta1.OriginalNameAnnotation], remap: e.cfg.Remap, metadata: e.cfg.Metadata(peer), names: e.cfg.Names(peer), node: e.isNode, sharedZones: e.cfg.SharesZones(peer), zone: e.zoneOf}
	r.pod, r.podOf = e.podsOf(twin)
	fc := e.clusters.Cached(loop.Key{Name: peer})
	if fc == nil || fc.DeletionTimestamp != nil {
		r.problem = fmt.Sprintf("there is no ForeignCluster %s, whose spec.addressRanges says which addresses are accepted", peer)
		return r, nil
	}
	r.from(fc)
	return r, fc.Status.Conditions
}

// from sets the ranges of the peer's own addresses. With the network fabric, people do not
// write them: they are those that the fabric leads to.
func (r *addressRules) from(fc *corev1beta1.ForeignCluster) {
	if !r.remap.Fabric(r.peer) {
		r.source, r.ranges = "spec.addressRanges of ForeignCluster "+fc.Name, ipamv1alpha1.Ranges(fc.Spec.AddressRanges)
		return
	}
	r.source = fmt.Sprintf("the ranges that cluster %s has in its Connection", r.peer)
	var err error
	if r.ranges, err = r.remap.Ranges(r.peer); err != nil {
		r.problem = err.Error()
	}
}

// shadowsIn returns the keys of the shadows in a namespace.
func (e *Enforcer) shadowsIn(ns *corev1.Namespace) []loop.Key {
	return loop.Keys(e.shadows.ByIndex(cache.NamespaceIndex, ns.Name))
}

func (e *Enforcer) shadowsOfPeer(peer string) (keys []loop.Key) {
	for _, ns := range e.namespaces.List() {
		if peerOf(ns) == peer {
			keys = append(keys, e.shadowsIn(ns)...)
		}
	}
	return keys
}

// remapped queues the shadows of a peer whose addresses may have other translations now.
func (e *Enforcer) remapped(peer string) { e.loop.Wake(e.shadowsOfPeer(peer)...) }

// nodeChanged queues the affected shadows when the addresses of a Node change. Most Node
// updates are heartbeats and do not change them.
func (e *Enforcer) nodeChanged(before, after *corev1.Node) {
	now := nodeAddresses(after)
	if slices.Equal(nodeAddresses(before), now) {
		return
	}
	for _, slice := range e.slices.List() {
		if holds(slice, now) {
			e.wake(slice)
		}
	}
	// Refused addresses are not stored. The condition Enforced marks the shadows that may
	// have some.
	for _, shadow := range e.shadows.List() {
		if meta.FindStatusCondition(shadow.Status.Conditions, offloadingv1beta1.ShadowEndpointSliceEnforced) != nil {
			e.wake(shadow)
		}
	}
}

// holds reports whether an endpoint of slice has one of the addresses.
func holds(slice *discoveryv1.EndpointSlice, addresses []string) bool {
	return slices.ContainsFunc(slice.Endpoints, func(e discoveryv1.Endpoint) bool {
		return slices.ContainsFunc(e.Addresses, func(a string) bool { return slices.Contains(addresses, a) })
	})
}
