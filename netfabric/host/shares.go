package host

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coreinformers "k8s.io/client-go/informers/core/v1"
	discoveryinformers "k8s.io/client-go/informers/discovery/v1"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	offloadinginformers "github.com/liqod/liqod/api/generated/informers/externalversions/offloading/v1beta1"
	networkingv1beta1 "github.com/liqod/liqod/api/networking/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/netfabric/check"
)

// Selectors of the objects that say which pods are shared with whom.
const (
	// TwinSelector selects the twin namespaces.
	TwinSelector = corev1beta1.RemoteClusterIDLabel
	// SliceSelector selects the EndpointSlices that people, or their programs, have written. Those
	// that Kubernetes makes by a selector have pods of their own namespace, those of peers none.
	SliceSelector = discoveryv1.LabelManagedBy + " notin (endpointslice-controller.k8s.io," + offloadingv1beta1.ManagedByShadowEndpointSlice + ")"
)

// Shares are the informers by which a node finds the pods that peers reach.
type Shares struct {
	Pods        coreinformers.PodInformer       // of this node
	Twins       coreinformers.NamespaceInformer // of TwinSelector
	Offloadings offloadinginformers.NamespaceOffloadingInformer
	Slices      discoveryinformers.EndpointSliceInformer // of SliceSelector
}

// Shared are the objects that say which pods are shared with which peers.
type Shared struct {
	Pods        []*corev1.Pod
	Twins       []*corev1.Namespace
	Offloadings []*offloadingv1beta1.NamespaceOffloading
	Slices      []*discoveryv1.EndpointSlice
}

// watch has a loop call changed when other pods may be shared than before.
func (s *Shares) watch(l *loop.Loop, changed func()) {
	l.Watch(
		store.AnyChange(s.Pods.Informer(), sameShare, changed),
		store.AnyChange(s.Twins.Informer(), sameTwin, changed),
		store.AnyChange(s.Offloadings.Informer(), offloadingv1beta1.SameProviders, changed),
		store.AnyChange(s.Slices.Informer(), store.SameBy(check.ReflectedAddresses), changed),
	)
}

// read reads the caches.
func (s *Shares) read() Shared {
	return Shared{
		Pods:        store.All[*corev1.Pod](s.Pods.Informer().GetStore()),
		Twins:       store.All[*corev1.Namespace](s.Twins.Informer().GetStore()),
		Offloadings: store.All[*offloadingv1beta1.NamespaceOffloading](s.Offloadings.Informer().GetStore()),
		Slices:      store.All[*discoveryv1.EndpointSlice](s.Slices.Informer().GetStore()),
	}
}

// origin is a namespace of a peer. home: its pods use the Services of the peer.
type origin struct {
	cluster, namespace string
	home               bool
}

// admissions returns the peers that reach the Pods of namespaces of other peers here.
func admissions(connections []*networkingv1beta1.Connection) map[origin][]string {
	out := map[origin][]string{}
	for _, c := range connections {
		for _, t := range c.Spec.Admits {
			for _, namespace := range t.Namespaces {
				of := origin{t.ClusterID, namespace, false}
				out[of] = append(out[of], c.Spec.ClusterID)
			}
		}
	}
	return out
}

// sharing are addresses of Pods, by peer.
type sharing struct {
	reach  map[string][]netip.Prefix // that it reaches
	home   map[string][]netip.Prefix // that run here for it, and live in its address space
	served map[string][]netip.Prefix // of this cluster's namespaces that it runs, and that use the Services of this one
	// vkubelets are of its virtual nodes: nothing else runs in tenant namespaces.
	vkubelets map[string][]netip.Prefix
}

// sharing finds them. The Pods that a peer reaches are: Pods that run here for it, or for another peer that
// shares their namespace with it; Pods of namespaces that this cluster offloads to it; and endpoints that people
// have written into such namespaces. Labels of a Pod alone say nothing, as others than liqod may write them.
func (s Shared) sharing(admitted map[origin][]string) sharing {
	consumers, providers, served := map[string]origin{}, map[string][]string{}, map[string]bool{}
	for _, ns := range s.Twins {
		consumers[ns.Name] = originOf(ns)
	}
	for _, o := range s.Offloadings {
		providers[o.Namespace] = append(providers[o.Namespace], offloadingv1beta1.ProvidersOf(o)...)
		served[o.Namespace] = o.Spec.Services == offloadingv1beta1.ServicesHome
	}
	named := map[netip.Prefix][]string{}
	for _, slice := range s.Slices {
		for _, a := range check.Singles(check.ReflectedAddresses(slice)) {
			named[a] = append(named[a], providers[slice.Namespace]...)
		}
	}
	out := sharing{map[string][]netip.Prefix{}, map[string][]netip.Prefix{}, map[string][]netip.Prefix{}, map[string][]netip.Prefix{}}
	eachAddress(s.Pods, func(a netip.Prefix, pod *corev1.Pod) {
		tenant := corev1beta1.PeerOfNamespace(pod.Namespace) // of all other pods it is "", which is no peer
		out.vkubelets[tenant] = append(out.vkubelets[tenant], a)
		for _, peer := range providers[pod.Namespace] {
			if served[pod.Namespace] {
				out.served[peer] = append(out.served[peer], a)
			}
		}
		peers := slices.Concat(providers[pod.Namespace], named[a])
		if of := consumers[pod.Namespace]; of.cluster != "" && pod.Labels[offloadingv1beta1.OriginLabel] == of.cluster {
			peers = append(append(peers, of.cluster), admitted[origin{of.cluster, of.namespace, false}]...)
			if of.home {
				out.home[of.cluster] = append(out.home[of.cluster], a)
			}
		}
		slices.Sort(peers)
		for _, peer := range slices.Compact(peers) {
			out.reach[peer] = append(out.reach[peer], a)
		}
	})
	return out
}

// originOf returns the namespace that a namespace is a twin of, or none. The controller alone writes
// its marks.
func originOf(ns *corev1.Namespace) origin {
	if offloadingv1beta1.TwinOf(ns) == "" {
		return origin{}
	}
	return origin{
		ns.Labels[corev1beta1.RemoteClusterIDLabel], ns.Annotations[offloadingv1beta1.OriginalNameAnnotation],
		ns.Annotations[offloadingv1beta1.ServicesAnnotation] == string(offloadingv1beta1.ServicesHome),
	}
}

// sameShare reports whether two states of a Pod are shared alike.
func sameShare(a, b *corev1.Pod) bool {
	return samePod(a, b) && a.Labels[offloadingv1beta1.OriginLabel] == b.Labels[offloadingv1beta1.OriginLabel]
}

func sameTwin(a, b *corev1.Namespace) bool { return originOf(a) == originOf(b) }

// TrimShared is check.TrimNode for the objects of Shared, but NamespaceOffloadings.
func TrimShared(obj any) (any, error) {
	switch o := obj.(type) {
	case *corev1.Pod:
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: o.Namespace, Name: o.Name, UID: o.UID, ResourceVersion: o.ResourceVersion,
				Labels: check.Only(o.Labels, offloadingv1beta1.OriginLabel),
			},
			Spec:   corev1.PodSpec{NodeName: o.Spec.NodeName, HostNetwork: o.Spec.HostNetwork},
			Status: corev1.PodStatus{Phase: o.Status.Phase, PodIPs: o.Status.PodIPs},
		}, nil
	case *corev1.Namespace:
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name: o.Name, UID: o.UID, ResourceVersion: o.ResourceVersion,
			Labels:      check.Only(o.Labels, corev1beta1.RemoteClusterIDLabel),
			Annotations: check.Only(o.Annotations, offloadingv1beta1.ManagedByNamespaceMapAnnotation, offloadingv1beta1.OriginalNameAnnotation, offloadingv1beta1.ServicesAnnotation),
		}}, nil
	case *discoveryv1.EndpointSlice:
		out := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{
			Namespace: o.Namespace, Name: o.Name, UID: o.UID, ResourceVersion: o.ResourceVersion,
			Annotations: check.Only(o.Annotations, offloadingv1beta1.SkipReflectionAnnotation),
		}}
		for i := range o.Endpoints {
			out.Endpoints = append(out.Endpoints, discoveryv1.Endpoint{Addresses: o.Endpoints[i].Addresses})
		}
		return out, nil
	}
	return obj, nil
}
