package exchange

import (
	"context"
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	discoveryinformers "k8s.io/client-go/informers/discovery/v1"
	"k8s.io/client-go/kubernetes"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	ipaminformers "github.com/liqod/liqod/api/generated/informers/externalversions/ipam/v1alpha1"
	offloadinginformers "github.com/liqod/liqod/api/generated/informers/externalversions/offloading/v1beta1"
	ipamv1alpha1 "github.com/liqod/liqod/api/ipam/v1alpha1"
	networkingv1beta1 "github.com/liqod/liqod/api/networking/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/kube/store"
)

// APIServerService is the name of the Service of the API server, in namespace default.
const APIServerService = "kubernetes"

// homePort is the port of APIServerService in every cluster, whatever port its API servers listen on. Gateways
// listen on it for pods of peers.
const homePort = 443

// APIServerIP returns the name of the IP for the API server that pods on a virtual node use.
// It is in the VirtualNode's namespace.
func APIServerIP(virtualNode string) string { return virtualNode + "-api-server" }

// IPConfig configures what keeps IPs: an APIServer and Endpoints. The informers are of this cluster and of all
// namespaces.
type IPConfig struct {
	Base

	// Kube reads APIServerService, and the EndpointSlices of a namespace before IPs are deleted. Client writes IPs.
	Kube         kubernetes.Interface
	VirtualNodes offloadinginformers.VirtualNodeInformer
	IPs          ipaminformers.IPInformer
	Offloadings  offloadinginformers.NamespaceOffloadingInformer
	// Slices is the informer of EndpointSlices. It is nil if no endpoint gets an IP: those from a time when
	// they did are deleted.
	Slices discoveryinformers.EndpointSliceInformer
	// Known returns the ranges of this cluster and of its peers, in which are no such endpoints.
	Known func() ([]netip.Prefix, error)
	// Off: pods are not led to the API server through the network fabric. IPs from a time when
	// they were are deleted.
	Off bool
	// NoIPAM: role ipam does not run in this cluster, so its finalizer is taken from the IPs
	// that are being deleted.
	NoIPAM bool
}

// APIServer keeps an IP for this cluster's API server for each VirtualNode, so that pods in
// the provider reach it through the network fabric. Gateways lead connections to it on to an API
// server, so it stays the same when API servers come and go. The VirtualNode owns the IP:
// Kubernetes deletes both together. Keys are those of VirtualNodes. One replica runs at a time;
// what it writes is harmless if done twice.
type APIServer struct {
	*loop.Loop
	cfg IPConfig
}

// NewAPIServer registers with the informers and starts nothing.
func NewAPIServer(cfg IPConfig) *APIServer {
	a := &APIServer{cfg: cfg}
	a.Loop = loop.New(loop.Config{Name: "api-server", Sync: a.sync, Log: cfg.Log, Observer: cfg.Observer},
		loop.From(cfg.VirtualNodes.Informer(), loop.Self),
		loop.From(cfg.IPs.Informer(), ownerKey),
		loop.From(cfg.ForeignClusters.Informer(), a.ofCluster),
	)
	return a
}

// ofCluster returns the keys of the VirtualNodes of a ForeignCluster's cluster.
func (a *APIServer) ofCluster(fc *corev1beta1.ForeignCluster) (keys []loop.Key) {
	for _, vn := range store.All[*offloadingv1beta1.VirtualNode](a.cfg.VirtualNodes.Informer().GetStore()) {
		if vn.Spec.ClusterID == fc.Name {
			keys = append(keys, loop.Self(vn)...)
		}
	}
	return keys
}

// ownerKey returns the key of the VirtualNode that owns an IP.
func ownerKey(ip *ipamv1alpha1.IP) []loop.Key {
	if owner := metav1.GetControllerOf(ip); owner != nil && owner.Kind == "VirtualNode" {
		return []loop.Key{{Namespace: ip.Namespace, Name: owner.Name}}
	}
	return nil
}

func (a *APIServer) sync(ctx context.Context, key loop.Key) error {
	have := store.Cached[*ipamv1alpha1.IP](a.cfg.IPs.Informer().GetStore(), loop.Key{Namespace: key.Namespace, Name: APIServerIP(key.Name)})
	if have != nil && have.DeletionTimestamp != nil && have.Labels[offloadingv1beta1.ManagedByLabel] == ipamv1alpha1.ManagedByAPIServer {
		return a.cfg.lift(ctx, have)
	}
	vn := store.Cached[*offloadingv1beta1.VirtualNode](a.cfg.VirtualNodes.Informer().GetStore(), key)
	if vn == nil || vn.DeletionTimestamp != nil {
		return nil // the IP goes with it
	}
	fc := clusterOf(a.cfg.ForeignClusters, vn.Spec.ClusterID)
	wanted := !a.cfg.Off && (fc == nil || !disabled(fc))
	switch {
	case have != nil && have.DeletionTimestamp != nil:
		return nil // its end is an event
	case have != nil && !metav1.IsControlledBy(have, vn) && wanted:
		return fmt.Errorf("IP %s/%s is in the way of the one for the API server: delete it", have.Namespace, have.Name)
	case !wanted && (have == nil || !metav1.IsControlledBy(have, vn)):
		return nil
	case !wanted:
		return store.Delete(ctx, "the IP of the API server", a.cfg.Client.IPAMV1alpha1().IPs(have.Namespace), have)
	case have == nil:
		return a.create(ctx, vn)
	}
	return nil
}

// create creates the IP for the address of APIServerService.
func (a *APIServer) create(ctx context.Context, vn *offloadingv1beta1.VirtualNode) error {
	service, err := a.cfg.Kube.CoreV1().Services(metav1.NamespaceDefault).Get(ctx, APIServerService, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("reading Service %s: %w", APIServerService, err)
	}
	ip := &ipamv1alpha1.IP{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: vn.Namespace, Name: APIServerIP(vn.Name),
			Labels: map[string]string{
				corev1beta1.RemoteClusterIDLabel: vn.Spec.ClusterID, offloadingv1beta1.ManagedByLabel: ipamv1alpha1.ManagedByAPIServer,
			},
			OwnerReferences: []metav1.OwnerReference{store.ControllerReference(vn, offloadingv1beta1.SchemeGroupVersion.WithKind("VirtualNode"))},
		},
		// An API server outside of the nodes has no route back to peers.
		Spec: ipamv1alpha1.IPSpec{
			IP: networkingv1beta1.IP(service.Spec.ClusterIP), Masquerade: new(true),
			// Peers reach nothing else of its host.
			Ports: []ipamv1alpha1.IPPort{{Protocol: corev1.ProtocolTCP, Port: homePort}},
		},
	}
	return write(ctx, "the IP of the API server", a.cfg.Client.IPAMV1alpha1().IPs(ip.Namespace), nil, ip)
}

// lift takes the finalizer of role ipam from an IP that is being deleted, where none runs.
func (c IPConfig) lift(ctx context.Context, ip *ipamv1alpha1.IP) error {
	if !c.NoIPAM {
		return nil // its end is an event
	}
	_, err := store.SetFinalizer(ctx, c.Client.IPAMV1alpha1().IPs(ip.Namespace), ip, ipamv1alpha1.IPFinalizer, false, "")
	return store.IgnoreNotFound(err)
}

// portOf returns the port of the API server that an IP is for. It is 0 unless it is the only one of the IP.
func portOf(ip *ipamv1alpha1.IP) uint16 {
	if p := ip.Spec.Ports; len(p) == 1 && p[0].Protocol == corev1.ProtocolTCP && p[0].Port > 0 && p[0].Port <= 65535 {
		return uint16(p[0].Port)
	}
	return 0
}

// HomeAPI finds the address at which pods on one virtual node reach this cluster's API
// server.
type HomeAPI struct {
	IPs ipaminformers.IPInformer
	// Remap translates addresses of this cluster to those that the provider reaches.
	Remap PeerRemapper
	// Namespace and VirtualNode identify the VirtualNode.
	Namespace, VirtualNode string
}

// Fabric reports whether the network fabric leads from the provider to this cluster.
func (h HomeAPI) Fabric() bool { return h.Remap.Fabric() }

// Address returns the address and port, or the reason for which none is known. atHome is for pods that use the
// Services of this cluster: they reach the one of the API server.
func (h HomeAPI) Address(atHome bool) (netip.AddrPort, error) {
	name := APIServerIP(h.VirtualNode)
	ip, err := h.IPs.Lister().IPs(h.Namespace).Get(name)
	if err != nil { // a lister returns no other error than NotFound
		return netip.AddrPort{}, fmt.Errorf("there is no IP %s/%s of the API server yet", h.Namespace, name)
	}
	external, ok := ip.Status.IP.Addr()
	ready := meta.FindStatusCondition(ip.Status.Conditions, ipamv1alpha1.ConditionReady)
	port := portOf(ip)
	switch {
	case ready != nil && ready.Status == metav1.ConditionFalse:
		return netip.AddrPort{}, fmt.Errorf("IP %s/%s of the API server is not ready: %s", h.Namespace, name, ready.Message)
	case !ok || ready == nil || ready.Status != metav1.ConditionTrue:
		return netip.AddrPort{}, fmt.Errorf("IP %s/%s of the API server has no address yet", h.Namespace, name)
	case port == 0:
		return netip.AddrPort{}, fmt.Errorf("IP %s/%s of the API server: spec.ports has %d ports: one TCP port from 1 to 65535 is accepted",
			h.Namespace, name, len(ip.Spec.Ports))
	}
	if service, ok := ip.Spec.IP.Addr(); ok && atHome {
		return netip.AddrPortFrom(service, port), nil
	}
	view, ok := h.Remap.View(external)
	if !ok {
		return netip.AddrPort{}, fmt.Errorf("the provider has no view of %s, the address of the API server in this cluster's external range, yet", external)
	}
	return netip.AddrPortFrom(view, port), nil
}
