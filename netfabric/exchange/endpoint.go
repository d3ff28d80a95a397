package exchange

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	ipamlisters "github.com/liqod/liqod/api/generated/listers/ipam/v1alpha1"
	ipamv1alpha1 "github.com/liqod/liqod/api/ipam/v1alpha1"
	networkingv1beta1 "github.com/liqod/liqod/api/networking/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/netfabric/check"
)

// mostEndpoints limits the addresses of one namespace that get IPs, and mostEndpointPorts the ports of one:
// the API accepts no more.
const (
	mostEndpoints     = 64
	mostEndpointPorts = 16
)

// endpointIP names an IP in errors.
const endpointIP = "the IP of an endpoint"

// Endpoints keeps an IP for each endpoint of an offloaded namespace that is no pod, such as a node or a host
// outside of the cluster, and for each provider of the namespace: only that provider reaches it, and only at
// the ports of the EndpointSlice. Keys are namespaces. One replica runs at a time; what it writes is harmless
// if done twice.
type Endpoints struct {
	*loop.Loop
	cfg IPConfig
}

// NewEndpoints registers with the informers and starts nothing.
func NewEndpoints(cfg IPConfig) *Endpoints {
	e := &Endpoints{cfg: cfg}
	e.Loop = loop.New(loop.Config{Name: "endpoint-addresses", Sync: e.sync, Log: cfg.Log, Observer: cfg.Observer},
		loop.From(cfg.IPs.Informer(), ofEndpoint),
		loop.From(cfg.Offloadings.Informer(), func(o *offloadingv1beta1.NamespaceOffloading) []loop.Key { return []loop.Key{{Name: o.Namespace}} }),
	)
	if cfg.Slices != nil {
		e.Watch(loop.From(cfg.Slices.Informer(), e.ofSlice))
	}
	return e
}

// EndpointIP returns the name of the IP for an address of an endpoint in a namespace.
func EndpointIP(namespace, address string) string {
	sum := sha256.Sum256([]byte(namespace + "/" + address))
	return "endpoint-" + hex.EncodeToString(sum[:8])
}

// EndpointAddress returns the address that an address of an endpoint in a namespace has in this cluster's external
// range, for the peer with a tenant namespace; "": none.
func EndpointAddress(ips ipamlisters.IPLister, tenant, namespace, address string) string {
	if of, external := shown(store.Known(ips.IPs(tenant).Get(EndpointIP(namespace, address)))); of == address {
		return external
	}
	return ""
}

// shown returns the address of the endpoint that an IP is for, and the one that peers use; "": none yet.
func shown(ip *ipamv1alpha1.IP) (of, external string) {
	if ip == nil || !meta.IsStatusConditionTrue(ip.Status.Conditions, ipamv1alpha1.ConditionReady) {
		return "", ""
	}
	return string(ip.Spec.IP), string(ip.Status.IP)
}

// EndpointNamespace returns the namespace of the endpoint for which EndpointAddress returns another
// address after a change of an IP; "": none. An IP that does not exist is nil.
func EndpointNamespace(before, after *ipamv1alpha1.IP) string {
	of, external := shown(before)
	if ofNow, now := shown(after); of == ofNow && external == now {
		return ""
	}
	return cmp.Or(after, before).Labels[ipamv1alpha1.EndpointNamespaceLabel]
}

// ofEndpoint returns the key of the namespace whose endpoint an IP is for.
func ofEndpoint(ip *ipamv1alpha1.IP) []loop.Key {
	if ip.Labels[offloadingv1beta1.ManagedByLabel] != ipamv1alpha1.ManagedByEndpoints {
		return nil
	}
	return []loop.Key{{Name: ip.Labels[ipamv1alpha1.EndpointNamespaceLabel]}}
}

// ofSlice returns the key of the namespace of an EndpointSlice, if it is offloaded.
func (e *Endpoints) ofSlice(s *discoveryv1.EndpointSlice) []loop.Key {
	if len(e.providers(s.Namespace)) == 0 {
		return nil
	}
	return []loop.Key{{Name: s.Namespace}}
}

// providers returns the providers that have a namespace.
func (e *Endpoints) providers(namespace string) map[string][]metav1.Condition {
	o := store.Known(e.cfg.Offloadings.Lister().NamespaceOffloadings(namespace).Get(offloadingv1beta1.NamespaceOffloadingName))
	if o == nil {
		return nil
	}
	return o.Status.RemoteNamespacesConditions
}

func (e *Endpoints) sync(ctx context.Context, key loop.Key) error {
	var found []*discoveryv1.EndpointSlice
	if e.cfg.Slices != nil {
		found = store.Listed(e.cfg.Slices.Lister().EndpointSlices(key.Name).List(labels.Everything()))
	}
	want, err := e.wanted(key.Name, found)
	if err != nil {
		return err
	}
	have := slices.DeleteFunc(store.All[*ipamv1alpha1.IP](e.cfg.IPs.Informer().GetStore()), func(ip *ipamv1alpha1.IP) bool { return !slices.Contains(ofEndpoint(ip), key) })
	if e.cfg.Slices != nil && slices.ContainsFunc(have, func(ip *ipamv1alpha1.IP) bool { return want[cache.MetaObjectToName(ip)] == nil }) {
		list, err := e.cfg.Kube.DiscoveryV1().EndpointSlices(key.Name).List(ctx, metav1.ListOptions{})
		if err != nil {
			return fmt.Errorf("confirming which endpoints are gone: %w", err)
		}
		if want, err = e.wanted(key.Name, store.Pointers(list.Items)); err != nil {
			return err
		}
	}
	for _, ip := range have {
		name := cache.MetaObjectToName(ip)
		if err := e.keep(ctx, ip, want[name]); err != nil {
			return err
		}
		delete(want, name)
	}
	for _, ip := range want {
		if err := e.keep(ctx, nil, ip); err != nil {
			return err
		}
	}
	return nil
}

// keep creates, updates or deletes an IP. have is nil if it does not exist, and want is nil if it is not wanted.
func (e *Endpoints) keep(ctx context.Context, have, want *ipamv1alpha1.IP) error {
	client, next := e.cfg.Client.IPAMV1alpha1().IPs(cmp.Or(have, want).Namespace), want
	switch {
	case have == nil:
	case have.DeletionTimestamp != nil:
		return e.cfg.lift(ctx, have)
	case want == nil:
		return store.Delete(ctx, endpointIP, client, have)
	default:
		next = have.DeepCopy()
		next.Spec.Ports = want.Spec.Ports
	}
	_, err := store.Write(ctx, endpointIP, client, "", have, next)
	return err
}

// wanted returns the IPs for the endpoints of a namespace.
func (e *Endpoints) wanted(namespace string, found []*discoveryv1.EndpointSlice) (map[loop.Key]*ipamv1alpha1.IP, error) {
	want, providers := map[loop.Key]*ipamv1alpha1.IP{}, e.providers(namespace)
	if len(found) == 0 || len(providers) == 0 {
		return want, nil
	}
	known, err := e.cfg.Known()
	if err != nil {
		return nil, fmt.Errorf("finding endpoints that are no pods: %w", err)
	}
	ports := map[netip.Addr][]ipamv1alpha1.IPPort{}
	for _, s := range found {
		addEndpoints(ports, known, s)
	}
	sorted := slices.SortedFunc(maps.Keys(ports), netip.Addr.Compare)
	for provider := range providers {
		for _, addr := range sorted[:min(len(sorted), mostEndpoints)] {
			key := loop.Key{Namespace: corev1beta1.TenantNamespace(provider), Name: EndpointIP(namespace, addr.String())}
			want[key] = &ipamv1alpha1.IP{
				ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, Labels: map[string]string{
					offloadingv1beta1.ManagedByLabel: ipamv1alpha1.ManagedByEndpoints, ipamv1alpha1.EndpointNamespaceLabel: namespace,
				}},
				Spec: ipamv1alpha1.IPSpec{IP: networkingv1beta1.IP(addr.String()), Ports: ports[addr]},
			}
		}
	}
	return want, nil
}

// addEndpoints adds to ports those of the addresses in an EndpointSlice that no known range has. An EndpointSlice
// without ports has none that a peer could be bound to.
func addEndpoints(ports map[netip.Addr][]ipamv1alpha1.IPPort, known []netip.Prefix, s *discoveryv1.EndpointSlice) {
	if s.Labels[discoveryv1.LabelManagedBy] == offloadingv1beta1.ManagedByShadowEndpointSlice {
		return
	}
	var own []ipamv1alpha1.IPPort
	for _, p := range s.Ports {
		if protocol := ptr.Deref(p.Protocol, corev1.ProtocolTCP); p.Port != nil && protocol != corev1.ProtocolSCTP {
			own = append(own, ipamv1alpha1.IPPort{Protocol: protocol, Port: *p.Port})
		}
	}
	for _, addr := range check.ReflectedAddresses(s) {
		if len(own) == 0 || ipamv1alpha1.SpecialAddress(addr) != "" || slices.ContainsFunc(known, func(p netip.Prefix) bool { return p.Contains(addr) }) {
			continue
		}
		all := append(ports[addr], own...)
		slices.SortFunc(all, func(a, b ipamv1alpha1.IPPort) int {
			return cmp.Or(cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.Port, b.Port))
		})
		all = slices.Compact(all)
		ports[addr] = all[:min(len(all), mostEndpointPorts)]
	}
}
