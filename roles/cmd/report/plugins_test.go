package report

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func daemonSet(namespace, name string, env ...corev1.EnvVar) appsv1.DaemonSet {
	set := appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	set.Spec.Template.Spec.Containers = []corev1.Container{{Name: "agent", Env: env}}
	return set
}

func configMap(name string, data map[string]string) corev1.ConfigMap {
	return corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: data}
}

func TestPlugins(t *testing.T) {
	cilium, calico, ovn := daemonSet("kube-system", "cilium"), daemonSet("calico-system", "calico-node"), daemonSet("openshift-ovn-kubernetes", "ovnkube-node")
	for name, tc := range map[string]struct {
		facts     PluginFacts
		name      string
		says      []string
		not       []string
		fix       string
		nothingTo bool // set
	}{
		"Cilium of its chart": {facts: PluginFacts{DaemonSets: []appsv1.DaemonSet{cilium}, Groups: []string{"cilium.io"}, ConfigMaps: []corev1.ConfigMap{
			configMap("cilium-config", map[string]string{"ipam": "cluster-pool", "cluster-pool-ipv4-cidr": "10.0.0.0/8", "enable-bpf-masquerade": "true"})}},
			name: "Cilium", says: []string{"DaemonSet kube-system/cilium is there. ", "The eBPF host routing may be on", "It masquerades by eBPF", "The pool 10.0.0.0/8 overlaps 10.80.0.0/12"},
			fix: "set bpf.hostLegacyRouting=true in Cilium's chart; set bpf.masquerade=false in Cilium's chart; set networking.podCIDRs of the chart to clusterPoolIPv4PodCIDRList"},
		"Cilium set up for liqod": {facts: PluginFacts{DaemonSets: []appsv1.DaemonSet{cilium}, ConfigMaps: []corev1.ConfigMap{
			configMap("cilium-config", map[string]string{"ipam": "kubernetes", "enable-host-legacy-routing": "true", "enable-bpf-masquerade": "false"})}},
			name: "Cilium", says: []string{"The eBPF host routing is off"}, not: []string{"masquerades", "pools"}, nothingTo: true},
		"Cilium by its kinds alone": {facts: PluginFacts{Groups: []string{"apps", "cilium.io"}},
			name: "Cilium", says: []string{"kinds of the group cilium.io are there, but no DaemonSet", "The eBPF host routing may be on"}, fix: "hostLegacyRouting"},
		"Dataplane V2": {facts: PluginFacts{DaemonSets: []appsv1.DaemonSet{daemonSet("kube-system", "anetd")}, Groups: []string{"cilium.io"}},
			name: "GKE Dataplane V2", says: []string{"not known to work"}, nothingTo: true},
		"Calico": {facts: PluginFacts{DaemonSets: []appsv1.DaemonSet{calico}, Groups: []string{calicoGroup}},
			name: "Calico", says: []string{"addresses of its IPPools", "With its eBPF data plane, liqod is not known to work"}, fix: "jsonpath={.spec.bpfEnabled}"},
		"Calico with eBPF": {facts: PluginFacts{DaemonSets: []appsv1.DaemonSet{daemonSet("kube-system", "calico-node", corev1.EnvVar{Name: "FELIX_BPFENABLED", Value: "True"})}},
			name: "Calico", says: []string{"Its eBPF data plane is on"}, fix: "switch the eBPF data plane off"},
		"Calico that may have eBPF": {facts: PluginFacts{DaemonSets: []appsv1.DaemonSet{calico}, ConfigMaps: []corev1.ConfigMap{configMap("kubernetes-services-endpoint", nil)}},
			name: "Calico", says: []string{"prepares the eBPF data plane"}, fix: "must not print true"},
		"Canal": {facts: PluginFacts{DaemonSets: []appsv1.DaemonSet{daemonSet("kube-system", "rke2-canal")}, Groups: []string{calicoGroup}},
			name: "Canal", says: []string{"DaemonSet kube-system/rke2-canal is there"}, nothingTo: true},
		"OVN-Kubernetes": {facts: PluginFacts{DaemonSets: []appsv1.DaemonSet{ovn}, Groups: []string{"k8s.ovn.org"}, ConfigMaps: []corev1.ConfigMap{
			configMap("ovnkube-config", map[string]string{"ovnkube.conf": "[gateway]\nmode=shared\nnodeport=true\n"})}},
			name: "OVN-Kubernetes", says: []string{"does not route via the host"}, fix: "set routingViaHost to true"},
		"OVN-Kubernetes via the host": {facts: PluginFacts{DaemonSets: []appsv1.DaemonSet{ovn}, ConfigMaps: []corev1.ConfigMap{
			configMap("ovnkube-config", map[string]string{"ovnkube.conf": "[gateway]\nmode=local\nnodeport=true\n"})}},
			name: "OVN-Kubernetes", says: []string{"routes via the host, as liqod needs it"}, fix: "the cluster network"},
		"OVN-Kubernetes without OpenShift": {facts: PluginFacts{DaemonSets: []appsv1.DaemonSet{daemonSet("ovn-kubernetes", "ovnkube-node", corev1.EnvVar{Name: "OVN_GATEWAY_MODE", Value: "local"})}},
			name: "OVN-Kubernetes", says: []string{"routes via the host, as liqod needs it"}, fix: "the cluster network"},
		"Amazon": {facts: PluginFacts{DaemonSets: []appsv1.DaemonSet{daemonSet("kube-system", "aws-node")}},
			name: "Amazon VPC CNI", says: []string{"addresses of the VPC"}, fix: "networking.gatewayTemplates.podAddresses"},
		"flannel": {facts: PluginFacts{DaemonSets: []appsv1.DaemonSet{daemonSet("kube-flannel", "kube-flannel-ds")}},
			name: "flannel", says: []string{"DaemonSet kube-flannel/kube-flannel-ds is there"}, nothingTo: true},
	} {
		t.Run(name, func(t *testing.T) {
			found := tc.facts.Plugins()
			require.Len(t, found, 1)
			require.Equal(t, tc.name == "flannel", found[0].Run)
			require.Equal(t, tc.name, found[0].Name)
			for _, says := range tc.says {
				require.Contains(t, found[0].Message, says)
			}
			for _, not := range tc.not {
				require.NotContains(t, found[0].Message, not)
			}
			require.Contains(t, found[0].Fix, tc.fix)
			require.Equal(t, tc.nothingTo, found[0].Fix == "", found[0].Fix)
		})
	}
	other := PluginFacts{DaemonSets: []appsv1.DaemonSet{daemonSet("kube-system", "node-exporter")}, Groups: []string{"apps"}}
	require.Empty(t, other.Plugins())
	require.Empty(t, other.ConfigMapNames())
}

// The range that Cilium's pools are compared with is the default of the setting.
func TestDefaultPool(t *testing.T) {
	config, err := os.ReadFile("../../../config.yaml")
	require.NoError(t, err)
	require.Contains(t, string(config), "pools: ["+defaultPool)
}
