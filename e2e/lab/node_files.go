package lab

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// TestImage is the name of the image that every node of the full tier has: one small
// program, e2e/image, that waits, serves and looks around. It is the pods' sandbox too.
const TestImage = "lab.local/test:1"

const containerdV1 = `version = 2
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "` + TestImage + `"
  restrict_oom_score_adj = true
  tolerate_missing_hugetlb_controller = true
[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = "%[1]s"
  conf_dir = "%[2]s"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
# The conformance suite asks for it.
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.test-handler]
  runtime_type = "io.containerd.runc.v2"
`

const containerdV2 = `version = 3
[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = '` + TestImage + `'
[plugins.'io.containerd.cri.v1.runtime']
  restrict_oom_score_adj = true
[plugins.'io.containerd.cri.v1.runtime'.cni]
  bin_dirs = ['%[1]s']
  conf_dir = '%[2]s'
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
  runtime_type = 'io.containerd.runc.v2'
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.test-handler]
  runtime_type = 'io.containerd.runc.v2'
`

const kubeletConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: "%[1]s"
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: %[2]s}}
authorization: {mode: Webhook}
tlsCertFile: %[3]s/kubelet.crt
tlsPrivateKeyFile: %[3]s/kubelet.key
cgroupDriver: cgroupfs
enforceNodeAllocatable: [pods]
failSwapOn: false
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
resolvConf: %[3]s/resolv.conf
clusterDomain: cluster.local
clusterDNS: ["%[4]s"]
serializeImagePulls: false
maxPods: 250
# The machine's disk is shared with everything else on it: only a nearly full one evicts.
evictionHard: {memory.available: "50Mi", nodefs.available: "1%%", nodefs.inodesFree: "1%%", imagefs.available: "1%%"}
imageGCHighThresholdPercent: 100
nodeStatusUpdateFrequency: 5s
nodeLeaseDurationSeconds: 4
syncFrequency: 10s
`

const proxyConfig = `apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: %[4]s
clusterCIDR: "%[1]s"
clientConnection: {kubeconfig: %[2]s}
hostnameOverride: %[3]s
# These sysctls belong to the machine, not to the node.
conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
`

// writeFiles writes what the processes of the node read, its certificates included.
func (n *Node) writeFiles(groups nodeCgroups) error {
	for _, dir := range []string{"containerd", "cni", "volumes"} {
		if err := os.MkdirAll(filepath.Join(n.Dir, dir), 0o755); err != nil {
			return fmt.Errorf("making a directory of the node: %w", err)
		}
	}
	err := n.cluster.Authority().IssueFiles(filepath.Join(n.Dir, "kubelet"), CertificateRequest{
		CommonName: "system:node:" + n.Name, Organizations: []string{"system:nodes"}, Hosts: append(n.addresses(), n.Name),
	})
	if err != nil {
		return err
	}
	kubeconfig, err := n.cluster.KubeconfigForNode(n.Name)
	if err != nil {
		return err
	}
	identity, err := os.ReadFile(kubeconfig)
	if err != nil {
		return fmt.Errorf("reading the node's kubeconfig: %w", err)
	}
	dns, err := dnsAddress(n.cluster.Options.ServiceCIDRs()[0])
	if err != nil {
		return err
	}
	kubelet := fmt.Sprintf(kubeletConfig, n.addresses()[0], n.cluster.CAFile(), n.Dir, dns)
	if len(groups.v1) > 0 {
		kubelet += "failCgroupV1: false\n"
	}
	plugins, err := cniPlugins()
	if err != nil {
		return err
	}
	flannel, err := n.flannelConfig()
	if err != nil {
		return err
	}
	proxy, _ := n.full.kubeconfigs(n.cluster)
	return writeFiles(map[string][]byte{
		filepath.Join(n.Dir, "init.sh"):         []byte(nodeInit),
		filepath.Join(n.Dir, "kubeconfig"):      identity,
		filepath.Join(n.Dir, "kubelet.yaml"):    []byte(kubelet),
		filepath.Join(n.Dir, "kube-proxy.yaml"): fmt.Appendf(nil, proxyConfig, n.cluster.Options.PodCIDR, proxy, n.Name, n.full.opts.Proxy),
		filepath.Join(n.Dir, "flannel.json"):    flannel,
		filepath.Join(n.Dir, "containerd.toml"): fmt.Appendf(nil, n.full.containerdConfig, plugins, filepath.Join(n.Dir, "cni")),
		filepath.Join(n.Dir, "resolv.conf"):     []byte("nameserver " + n.full.network.machine(wanGateway).AddressFor(n.cluster.Options.PodCIDR) + "\n"),
	})
}

// writeCNI gives containerd its network, in one step: a half written file would do harm.
func (n *Node) writeCNI(pods []string) error {
	var ranges [][]map[string]string
	var routes []map[string]string
	for _, subnet := range pods {
		everything := "0.0.0.0/0"
		if isIPv6(subnet) {
			everything = "::/0"
		}
		ranges, routes = append(ranges, []map[string]string{{"subnet": subnet}}), append(routes, map[string]string{"dst": everything})
	}
	pod := map[string]any{"ipMasq": false, "mtu": podMTU, "ipam": map[string]any{"type": "host-local", "ranges": ranges, "routes": routes}}
	if n.full.opts.CNI == CNIPointToPoint {
		pod["type"] = "ptp"
	} else {
		pod["type"], pod["bridge"], pod["isGateway"], pod["hairpinMode"] = "bridge", n.full.opts.CNI.bridge(), true, true
	}
	plugins := []map[string]any{pod}
	if n.full.opts.HostPorts {
		plugins = append(plugins, map[string]any{"type": "portmap", "capabilities": map[string]bool{"portMappings": true}})
	}
	data, err := json.Marshal(map[string]any{"cniVersion": "1.0.0", "name": "lab", "plugins": plugins})
	if err != nil {
		return fmt.Errorf("encoding the network configuration: %w", err)
	}
	path := filepath.Join(n.Dir, "cni", "10-lab.conflist")
	if err := writeFiles(map[string][]byte{path + ".new": data}); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// dnsAddress is the tenth address of the range, as in most clusters.
func dnsAddress(serviceCIDR string) (string, error) {
	prefix, err := netip.ParsePrefix(serviceCIDR)
	if err != nil {
		return "", fmt.Errorf("reading the range %q: %w", serviceCIDR, err)
	}
	addr := prefix.Masked().Addr()
	for range 10 {
		addr = addr.Next()
	}
	if !prefix.Contains(addr) {
		return "", fmt.Errorf("the Service range %s is too small: DNS needs its tenth address", serviceCIDR)
	}
	return addr.String(), nil
}

// cniPlugins is where the distribution put the plugins.
func cniPlugins() (string, error) {
	for _, dir := range []string{"/usr/lib/cni", "/opt/cni/bin", "/usr/libexec/cni"} {
		if _, err := os.Stat(filepath.Join(dir, "bridge")); err == nil {
			return dir, nil
		}
	}
	return "", fmt.Errorf("no CNI plugins found: install containernetworking-plugins")
}

// containerdConfig is the form that the installed containerd reads.
func containerdConfig(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "containerd", "--version").Output()
	if err != nil {
		return "", fmt.Errorf("asking containerd for its version: %w", err)
	}
	// containerd github.com/containerd/containerd 1.6.20~ds1 …
	if fields := strings.Fields(string(out)); len(fields) > 2 && strings.HasPrefix(strings.TrimPrefix(fields[2], "v"), "1.") {
		return containerdV1, nil
	}
	return containerdV2, nil
}
