package roles

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/miekg/dns"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/api/generated/informers/externalversions"
	ipamv1alpha1 "github.com/liqod/liqod/api/ipam/v1alpha1"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/netfabric/exchange"
	"github.com/liqod/liqod/reflect/forge"
	"github.com/liqod/liqod/reflect/kinds"
)

// watchAddresses watches the objects that decide the translation of addresses: the
// Connection in the tenant namespace, the ForeignCluster, and the IP of the API server. It
// does nothing without the network fabric. Every replica watches them, so that a standby
// can take over at once.
func (v *vkubelet) watchAddresses() error {
	if !v.env.Config.Networking.Enabled {
		return nil
	}
	v.clusters = externalversions.NewSharedInformerFactoryWithOptions(v.home.plain.liqo, 0, externalversions.WithTransform(networkingOf))
	v.remap = exchange.NewRemapper(exchange.RemapConfig{
		Base:        exchange.Base{Env: v.env.component(), Client: v.home.plain.liqo, ForeignClusters: v.clusters.Core().V1beta1().ForeignClusters()},
		Connections: v.tenant.Networking().V1beta1().Connections(),
	})
	v.remap.Subscribe(v.tellRemapped)
	_, err := v.tenant.IPAM().V1alpha1().IPs().Informer().AddEventHandler(store.OnChange(v.addressChanged))
	return err
}

// runAddresses confirms that what is absent from the caches of watchAddresses is gone, and
// reads which addresses are this cluster's own.
func (v *vkubelet) runAddresses(ctx context.Context) error {
	if v.remap == nil {
		return v.keepRanges(ctx)
	}
	return together(v.keepRanges, v.remap.Run)(ctx)
}

// networkingOf strips a ForeignCluster to the fields that the translation of addresses
// reads. There may be many ForeignClusters, and many vkubelets that cache them.
func networkingOf(obj any) (any, error) {
	fc, ok := obj.(*corev1beta1.ForeignCluster)
	if !ok {
		return obj, nil
	}
	return &corev1beta1.ForeignCluster{
		ObjectMeta: metav1.ObjectMeta{Name: fc.Name, UID: fc.UID, ResourceVersion: fc.ResourceVersion},
		Spec:       corev1beta1.ForeignClusterSpec{ClusterID: fc.Spec.ClusterID, NetworkingEnabled: fc.Spec.NetworkingEnabled},
	}, nil
}

// addressesKnown reports whether the caches of watchAddresses are filled, and this
// cluster's own addresses are known. Before that, no pod may lose or get its address.
func (v *vkubelet) addressesKnown() bool {
	return v.ranges.Get() != nil && v.fabricKnown()
}

func (v *vkubelet) fabricKnown() bool {
	return v.remap == nil || v.remap.HasSynced() && v.tenant.IPAM().V1alpha1().IPs().Informer().HasSynced()
}

// remapper returns the translation of the addresses of the provider's pods, and their
// check.
func (v *vkubelet) remapper(peer string) forge.Remapper {
	return providerAddresses{peer: peer, remap: v.remap, ranges: &v.ranges}
}

// homeAPI returns the lookup of the address under which the provider's pods reach the API
// server of this cluster. It is nil without the network fabric.
func (v *vkubelet) homeAPI(peer string) kinds.HomeAPI {
	if v.remap == nil {
		return nil
	}
	return exchange.HomeAPI{IPs: v.tenant.IPAM().V1alpha1().IPs(), Remap: v.remap.Peer(peer), Namespace: v.namespace, VirtualNode: v.name}
}

// resolvConf is where a process finds its DNS.
const resolvConf = "/etc/resolv.conf"

// homeDNS returns the DNS of this cluster, or the reason why pods in the provider do not reach it.
func (v *vkubelet) homeDNS(peer string) (out forge.DNS, err error) {
	if v.remap == nil || !v.remap.Peer(peer).Fabric() {
		return out, errors.New("the network fabric does not connect the two (networking.enabled, spec.networkingEnabled of the ForeignCluster)")
	}
	cfg := v.env.Config.VKubelet
	if out = (forge.DNS{Servers: cfg.ClusterDNS, Domain: cfg.ClusterDomain}); len(out.Servers) == 0 || out.Domain == "" {
		own, err := dns.ClientConfigFromFile(resolvConf)
		if err != nil {
			return out, fmt.Errorf("reading the DNS of this process: %w; set vkubelet.clusterDNS and vkubelet.clusterDomain", err)
		}
		out = ownDNS(own, out)
	}
	if out.Domain == "" {
		return out, errors.New("the domain of Services is in no search list of " + resolvConf + ": set vkubelet.clusterDomain")
	}
	var servers []netip.Addr
	for _, s := range out.Servers {
		a, err := netip.ParseAddr(s)
		if err != nil {
			return out, fmt.Errorf("the name server %q is no address: set vkubelet.clusterDNS", s)
		}
		servers = append(servers, a)
	}
	return out, v.remap.Peer(peer).Serves(servers)
}

// ownDNS completes a DNS with that of a pod.
func ownDNS(own *dns.ClientConfig, out forge.DNS) forge.DNS {
	if len(out.Servers) == 0 {
		out.Servers = own.Servers
	}
	for _, search := range own.Search {
		if domain, ok := strings.CutPrefix(search, "svc."); ok && out.Domain == "" {
			out.Domain = strings.TrimSuffix(domain, ".")
		}
	}
	return out
}

// addressed is what depends on the addresses of a provider. remapped is called if their translation
// changes, and endpoints with each namespace whose endpoints have other addresses. Both may be nil.
type addressed struct {
	peer      string
	remapped  func()
	endpoints func(namespace string)
}

// tellRemapped reports a change of the translation of the addresses of a peer, or of all
// peers for "".
func (v *vkubelet) tellRemapped(peer string) {
	if of := v.addressed.Get(); of.remapped != nil && (peer == of.peer || peer == "") {
		of.remapped()
	}
}

// addressChanged syncs the objects that have the address of the API server, or of an endpoint. after is
// nil if the IP is gone.
func (v *vkubelet) addressChanged(before, after *ipamv1alpha1.IP) {
	if after != nil && after.Name == exchange.APIServerIP(v.name) {
		v.tellRemapped("")
	}
	changed := v.addressed.Get().endpoints
	if namespace := exchange.EndpointNamespace(before, after); namespace != "" && changed != nil {
		changed(namespace)
	}
}
