package report

import (
	"cmp"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// PluginFacts are the objects of a cluster that show its network plugin.
type PluginFacts struct {
	DaemonSets []appsv1.DaemonSet
	// ConfigMaps are those of ConfigMapNames that exist.
	ConfigMaps []corev1.ConfigMap
	// Groups are the API groups that the cluster serves, without versions.
	Groups []string
}

// Plugin is a network plugin of a cluster, and what docs/platforms.md says of it. Fix says what
// to set; it is empty if nothing is to be set.
type Plugin struct {
	Name, Message, Fix string
	// Run reports whether the tests of liqod run it.
	Run bool
}

// knownPlugin is how a plugin is recognised: by a DaemonSet or, if byGroup, by the group of its kinds.
type knownPlugin struct {
	name, group  string
	byGroup, run bool
	daemonSets   []string
	// notes returns what is known, each with what to set. set is empty if only the kinds are there.
	notes func(p *PluginFacts, set *appsv1.DaemonSet) [][2]string
}

const calicoGroup = "crd.projectcalico.org"

// ownRanges is what to set where Nodes have no podCIDRs, or pods have other addresses.
func ownRanges(which string) string {
	return "set networking.podCIDRs of the chart to " + which + ", and networking.gatewayTemplates.podAddresses to true"
}

func knownPlugins() []knownPlugin {
	return []knownPlugin{
		{name: "flannel", run: true, daemonSets: []string{"kube-flannel-ds", "kube-flannel"}},
		{name: "kube-router", run: true, daemonSets: []string{"kube-router"}},
		{name: "Canal", group: calicoGroup, daemonSets: []string{"canal", "rke2-canal"}},
		{name: "Cilium", byGroup: true, group: "cilium.io", daemonSets: []string{"cilium"}, notes: ciliumNotes},
		{name: "Calico", byGroup: true, group: calicoGroup, daemonSets: []string{"calico-node"}, notes: calicoNotes},
		{name: "OVN-Kubernetes", byGroup: true, group: "k8s.ovn.org", daemonSets: []string{"ovnkube-node"}, notes: ovnNotes},
		{name: "GKE Dataplane V2", group: "cilium.io", daemonSets: []string{"anetd"}, notes: fixedNotes(
			"it is a managed Cilium with eBPF host routing, which cannot be switched off: packets of pods pass by the routing of the node, so that liqod is not known to work", "")},
		{name: "Amazon VPC CNI", daemonSets: []string{"aws-node"}, notes: fixedNotes("pods have addresses of the VPC", ownRanges("the ranges of the VPC in which pods are"))},
		{name: "Azure CNI", daemonSets: []string{"azure-cns"}, notes: fixedNotes("pods have addresses of ranges that Nodes do not show", ownRanges("the --pod-cidr of the cluster"))},
	}
}

func fixedNotes(message, fix string) func(*PluginFacts, *appsv1.DaemonSet) [][2]string {
	return func(*PluginFacts, *appsv1.DaemonSet) [][2]string { return [][2]string{{message, fix}} }
}

// ConfigMapNames are the ConfigMaps that have settings of the plugins among the DaemonSets.
func (p *PluginFacts) ConfigMapNames() (names []types.NamespacedName) {
	for _, set := range p.DaemonSets {
		names = append(names, map[string][]types.NamespacedName{
			"cilium":       {{Namespace: set.Namespace, Name: "cilium-config"}},
			"ovnkube-node": {{Namespace: set.Namespace, Name: "ovnkube-config"}},
			"calico-node":  {{Namespace: "kube-system", Name: "kubernetes-services-endpoint"}, {Namespace: "tigera-operator", Name: "kubernetes-services-endpoint"}},
		}[set.Name]...)
	}
	return names
}

// Plugins returns the plugins that are recognised. It is pure.
func (p *PluginFacts) Plugins() (found []Plugin) {
	explained := map[string]bool{}
	add := func(k knownPlugin, by string, set *appsv1.DaemonSet) {
		explained[k.group] = true
		out := Plugin{Name: k.name, Message: by, Run: k.run}
		if !k.run {
			out.Message += ". The tests of liqod do not run it: this is from its documentation"
		}
		var fixes []string
		if k.notes != nil {
			for _, note := range k.notes(p, set) {
				out.Message += ". " + strings.ToUpper(note[0][:1]) + note[0][1:]
				if note[1] != "" {
					fixes = append(fixes, note[1])
				}
			}
		}
		out.Fix = strings.Join(fixes, "; ")
		found = append(found, out)
	}
	for _, k := range knownPlugins() {
		if i := slices.IndexFunc(p.DaemonSets, func(s appsv1.DaemonSet) bool { return slices.Contains(k.daemonSets, s.Name) }); i >= 0 {
			set := &p.DaemonSets[i]
			add(k, "DaemonSet "+set.Namespace+"/"+set.Name+" is there", set)
		}
	}
	for _, k := range knownPlugins() {
		if k.byGroup && !explained[k.group] && slices.Contains(p.Groups, k.group) {
			add(k, "kinds of the group "+k.group+" are there, but no DaemonSet that liqod recognises", &appsv1.DaemonSet{})
		}
	}
	return found
}

// config returns a value of a ConfigMap of that name. It is empty if there is none.
func (p *PluginFacts) config(name, key string) string {
	return cmp.Or(first(p.ConfigMaps, func(c *corev1.ConfigMap) bool { return c.Name == name }), &corev1.ConfigMap{}).Data[key]
}

func ciliumNotes(p *PluginFacts, _ *appsv1.DaemonSet) (notes [][2]string) {
	of := func(key string) string { return p.config("cilium-config", key) }
	if of("enable-host-legacy-routing") == "true" {
		notes = append(notes, [2]string{"the eBPF host routing is off, as liqod needs it", ""})
	} else {
		notes = append(notes, [2]string{"the eBPF host routing may be on: packets of pods pass by the routing and nftables of the node then, where liqod works", "set bpf.hostLegacyRouting=true in Cilium's chart"})
	}
	if of("enable-bpf-masquerade") == "true" {
		notes = append(notes, [2]string{"it masquerades by eBPF, past liqod's exceptions", "set bpf.masquerade=false in Cilium's chart"})
	}
	if mode, pool := of("ipam"), of("cluster-pool-ipv4-cidr"); mode != "kubernetes" {
		notes = append(notes, [2]string{"pods have addresses of its own pools " + pool, ownRanges("clusterPoolIPv4PodCIDRList of Cilium's chart")})
		if overlapsPools(pool) {
			notes = append(notes, [2]string{"the pool " + pool + " overlaps " + defaultPool + ", the default of ipam.pools", "choose another range for one of the two"})
		}
	}
	return notes
}

// defaultPool is the default of ipam.pools.
const defaultPool = "10.80.0.0/12"

func overlapsPools(list string) bool {
	pool := netip.MustParsePrefix(defaultPool)
	return slices.ContainsFunc(strings.FieldsFunc(list, func(r rune) bool { return r == ' ' || r == ',' }), func(one string) bool {
		prefix, err := netip.ParsePrefix(one)
		return err == nil && prefix.Overlaps(pool)
	})
}

// envOf returns a variable of the containers of a DaemonSet.
func envOf(set *appsv1.DaemonSet, name string) string {
	for _, c := range set.Spec.Template.Spec.Containers {
		for _, e := range c.Env {
			if e.Name == name {
				return e.Value
			}
		}
	}
	return ""
}

func calicoNotes(p *PluginFacts, set *appsv1.DaemonSet) [][2]string {
	const look = `"kubectl get felixconfigurations.crd.projectcalico.org default -o jsonpath={.spec.bpfEnabled}" must not print true`
	notes := [][2]string{{"pods have addresses of its IPPools", ownRanges(`the CIDRs that "kubectl get ippools.crd.projectcalico.org -o yaml" has`)}}
	prepared := slices.ContainsFunc(p.ConfigMaps, func(c corev1.ConfigMap) bool { return c.Name == "kubernetes-services-endpoint" })
	if strings.EqualFold(envOf(set, "FELIX_BPFENABLED"), "true") {
		return append(notes, [2]string{"its eBPF data plane is on: packets of pods pass by the routing of the node, so that liqod is not known to work", "switch the eBPF data plane off"})
	}
	if prepared {
		return append(notes, [2]string{"ConfigMap kubernetes-services-endpoint prepares the eBPF data plane, with which liqod is not known to work", look})
	}
	return append(notes, [2]string{"with its eBPF data plane, liqod is not known to work", look})
}

// localGateway finds the gateway mode in ovnkube.conf.
var localGateway = regexp.MustCompile(`(?m)^\s*mode\s*=\s*"?local"?\s*$`)

func ovnNotes(p *PluginFacts, set *appsv1.DaemonSet) [][2]string {
	notes := [][2]string{{"pods have addresses of the cluster network", ownRanges("the cluster network")}}
	if envOf(set, "OVN_GATEWAY_MODE") == "local" || localGateway.MatchString(p.config("ovnkube-config", "ovnkube.conf")) {
		return append(notes, [2]string{"its gateway routes via the host, as liqod needs it", ""})
	}
	return append(notes, [2]string{"its gateway does not route via the host, as far as its settings show: packets of pods pass by the routing of the node",
		"set routingViaHost to true (gatewayConfig of OpenShift's Network), or the gateway mode to local"})
}
