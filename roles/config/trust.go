package config

import (
	"fmt"
	"net/netip"
	"slices"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/netfabric/plan"
	podrules "github.com/liqod/liqod/shadow/rules"
)

// byTrust is the origin of the values that sharing.trust gives.
const byTrust = "sharing.trust " + string(corev1beta1.TrustOrganisation)

// followed is a setting whose default follows the trust in a peer.
type followed struct {
	key   string
	field func(*Config) any // a *[]string, or a *string
	// open is its default for peers that are trusted as TrustOrganisation. For others it has the
	// default of config.yaml.
	open any
}

// following returns the settings that follow the trust in a peer.
func following() []followed {
	return []followed{
		{"controller.twinNames", func(c *Config) any { return &c.Controller.TwinNames }, []string{"*"}},
		{"controller.volumeTypes", func(c *Config) any { return &c.Controller.VolumeTypes }, volumesOfOrganisation()},
		{"controller.tolerations", func(c *Config) any { return &c.Controller.Tolerations }, []string{podrules.AllKeys}},
		{"sharing.selectorLabels", func(c *Config) any { return &c.Sharing.SelectorLabels }, []string{podrules.AllKeys}},
		{"sharing.serviceTypes", func(c *Config) any { return &c.Sharing.ServiceTypes }, []string{"ClusterIP", "NodePort", "LoadBalancer", "ExternalName"}},
		{"sharing.serviceFields", func(c *Config) any { return &c.Sharing.ServiceFields }, []string{podrules.FieldNodePort}},
		{"sharing.annotations", func(c *Config) any { return &c.Sharing.Annotations }, []string{podrules.AllKeys}},
		{"sharing.labelsLeftOut", func(c *Config) any { return &c.Sharing.LabelsLeftOut }, []string{}},
		{"networking.reach", func(c *Config) any { return &c.Networking.Reach }, ReachAll},
		{"ipam.keep", func(c *Config) any { return &c.IPAM.Keep }, privateRanges()},
	}
}

// volumesOfOrganisation returns all types of volumes but those by which a pod gets files of a
// node, or runs programs on it.
func volumesOfOrganisation() []string {
	return slices.DeleteFunc(podrules.VolumeTypes(), func(name string) bool {
		return slices.Contains([]string{"hostPath", "flexVolume", "gitRepo"}, name)
	})
}

// privateRanges returns the ranges of addresses that no network outside of an organisation has.
func privateRanges() []string {
	return []string{"10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7"}
}

// trust replaces the defaults of settings as sharing.trust says. A setting that any source
// gives keeps its value.
func (e *Effective) trust() {
	if e.value("sharing.trust") != string(corev1beta1.TrustOrganisation) {
		return
	}
	for _, s := range following() {
		if e.origin[s.key] == "default" {
			e.set(s.key, s.open, byTrust)
		}
	}
}

// Under returns the configuration for a peer that is trusted as given. A setting that any
// source gives has the same value for all peers.
func (e *Effective) Under(trust corev1beta1.Trust) Config {
	out := e.Config
	out.Sharing.Trust = trust
	for _, s := range following() {
		if origin := e.origin[s.key]; origin != "default" && origin != byTrust {
			continue
		}
		value := s.open
		if trust != corev1beta1.TrustOrganisation {
			value = e.usual(s.key)
		}
		switch field := s.field(&out).(type) {
		case *[]string:
			*field, _ = value.([]string)
		case *string:
			*field, _ = value.(string)
		}
	}
	return out
}

// usual returns the value that config.yaml has for a setting.
func (e *Effective) usual(key string) any {
	i := slices.IndexFunc(e.settings, func(s Setting) bool { return s.Key == key })
	value, _ := rules[key].parse(e.settings[i].Default)
	return value
}

// Values of Networking.Reach.
const (
	ReachShared = "Shared"
	ReachAll    = "All"
)

// mostPodRanges is how many pod ranges peers accept of a cluster.
const mostPodRanges = 8

// owned is a range with the setting that has it.
type owned struct {
	netip.Prefix
	setting string
}

// ranges returns the ranges of a setting.
func ranges(setting string, texts []string) (out []owned) {
	for _, p := range Prefixes(texts) {
		out = append(out, owned{p, "networking." + setting})
	}
	return out
}

// together checks that the ranges of this cluster do not overlap. In an overlap, an address
// would lead to two places.
func (n Networking) together() (errs []error) {
	pods, services, external := ranges("podCIDRs", n.PodCIDRs), ranges("serviceCIDRs", n.ServiceCIDRs), ranges("externalCIDRs", n.ExternalCIDRs)
	nodes, reserved := ranges("nodeCIDRs", n.NodeCIDRs), ranges("reservedSubnets", n.ReservedSubnets)
	for _, r := range pods {
		if err := plan.CheckRange(r.Prefix); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w: write ranges of ordinary addresses, as 10.42.0.0/16", r.setting, err))
		}
	}
	if len(pods) > mostPodRanges {
		errs = append(errs, fmt.Errorf("networking.podCIDRs: %d ranges are not accepted: write at most %d, such as one of IPv4 and one of IPv6 that hold all", len(pods), mostPodRanges))
	}
	errs = append(errs, checkExternal(external)...)
	errs = append(errs, overlaps(pods, services, external)...)
	// The ranges of pods may overlap those of nodes: in some networks, nodes and pods share one.
	errs = append(errs, overlaps(nodes, external)...)
	return append(errs, overlaps(reserved, external)...)
}

func checkExternal(external []owned) (errs []error) {
	families := map[bool]netip.Prefix{}
	for _, r := range external {
		if err := plan.CheckExternal(r.Prefix); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w: write a free range of at least 32 ordinary addresses, as 10.70.0.0/16", r.setting, err))
		}
		if first, ok := families[r.Addr().Is4()]; ok {
			errs = append(errs, fmt.Errorf("%s: %s and %s are not accepted beside each other: write at most one range of IPv4 and one of IPv6", r.setting, first, r.Prefix))
		}
		families[r.Addr().Is4()] = r.Prefix
	}
	return errs
}

// overlaps returns an error for each overlap between ranges of the lists. Only the ranges
// within networking.nodeCIDRs, or within networking.reservedSubnets, may overlap each other.
func overlaps(lists ...[]owned) (errs []error) {
	var before []owned
	for _, list := range lists {
		for _, r := range list {
			for _, other := range before {
				if r.Overlaps(other.Prefix) && (r.setting != other.setting || r.setting != "networking.nodeCIDRs" && r.setting != "networking.reservedSubnets") {
					errs = append(errs, fmt.Errorf("%s: %s is not accepted: it overlaps %s of %s; write ranges that share no address", r.setting, r.Prefix, other.Prefix, other.setting))
				}
			}
			before = append(before, r)
		}
	}
	return errs
}
