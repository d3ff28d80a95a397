package roles

import (
	"net/netip"

	"k8s.io/client-go/tools/cache"

	"github.com/liqod/liqod/netfabric/exchange"
	"github.com/liqod/liqod/shadow/endpoints"
)

// remapper returns the translation of the addresses of peers' endpoints.
func (c *controller) remapper() endpoints.Remapper {
	if !c.env.Config.Networking.Enabled {
		return unmapped{}
	}
	remap := exchange.NewRemapper(exchange.RemapConfig{
		Base: c.networkBase(c.home.plain), Connections: c.liqo.Networking().V1beta1().Connections(),
	})
	c.actors = append(c.actors, Actor{Name: "addresses", Run: remap.Run})
	return remap
}

// unmapped is the translation of addresses between clusters whose networks reach each other
// by themselves.
type unmapped struct{}

// Fabric implements endpoints.Remapper.
func (unmapped) Fabric(string) bool { return false }

// Ranges implements endpoints.Remapper.
func (unmapped) Ranges(string) ([]netip.Prefix, error) { return nil, nil }

// Remap implements endpoints.Remapper.
func (unmapped) Remap(_ string, addr netip.Addr) (netip.Addr, bool) { return addr, true }

// Direct implements endpoints.Remapper.
func (unmapped) Direct(_, _ string, _ netip.Addr) (netip.Addr, bool) { return netip.Addr{}, false }

// Unmap implements endpoints.Remapper.
func (unmapped) Unmap(_ string, addr netip.Addr) (netip.Addr, bool) { return addr, true }

// Subscribe implements endpoints.Remapper. Nothing changes.
func (unmapped) Subscribe(func(string)) cache.InformerSynced { return func() bool { return true } }

// addAddresses wires the loops that keep IPs: of the API server, and of endpoints that are no pods. The loops also run
// where nothing needs them. They then delete the objects that they created with an earlier configuration.
func (c *controller) addAddresses() {
	cfg := c.env.Config
	ips := exchange.IPConfig{
		Base: c.networkBase(c.home.fenced), Kube: c.home.plain.kube, IPs: c.liqo.IPAM().V1alpha1().IPs(), Known: c.knownRanges,
		VirtualNodes: c.liqo.Offloading().V1beta1().VirtualNodes(), Offloadings: c.liqo.Offloading().V1beta1().NamespaceOffloadings(),
		Off:    !cfg.Networking.Enabled || !cfg.VKubelet.EnableAPIServerSupport || cfg.VKubelet.HomeAPIServer != "",
		NoIPAM: !cfg.Networking.Enabled,
	}
	if cfg.Networking.Enabled && cfg.Networking.ExternalEndpoints {
		ips.Slices = c.own.Discovery().V1().EndpointSlices()
	}
	c.addLoop("api-server-addresses", exchange.NewAPIServer(ips))
	c.addLoop("endpoint-addresses", exchange.NewEndpoints(ips))
}
