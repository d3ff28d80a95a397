package namespace

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// destination is where a pod of a peer sends to: an address outside of the cluster or of a
// node, or a pod with its labels and those of its namespace.
type destination struct {
	address          string
	namespace        string
	pod, inNamespace map[string]string
	port             int32
}

// allows evaluates the egress rules of a NetworkPolicy as the API documents them: a block
// matches addresses, and also those of pods.
func allows(t *testing.T, policy *networkingv1.NetworkPolicy, to destination) bool {
	t.Helper()
	for _, rule := range policy.Spec.Egress {
		ports := len(rule.Ports) == 0
		for _, p := range rule.Ports {
			ports = ports || p.Port.IntVal == to.port
		}
		if !ports {
			continue
		}
		requireOneSet(t, rule, to.address)
		for _, peer := range rule.To {
			if matches(t, policy.Namespace, peer, to) {
				return true
			}
		}
	}
	return false
}

// requireOneSet requires that the blocks of a rule and their exceptions mean the same in one
// set, in which the longest range that has an address decides. kube-router keeps them so.
func requireOneSet(t *testing.T, rule networkingv1.NetworkPolicyEgressRule, address string) {
	t.Helper()
	addr, longest := netip.MustParseAddr(address), -1
	inSet, byBlock := false, false
	look := func(cidr string, allowed bool) {
		if p := netip.MustParsePrefix(cidr); p.Contains(addr) && p.Bits() > longest {
			longest, inSet = p.Bits(), allowed
		}
	}
	for _, peer := range rule.To {
		if peer.IPBlock == nil {
			continue
		}
		look(peer.IPBlock.CIDR, true)
		for _, e := range peer.IPBlock.Except {
			look(e, false)
		}
		byBlock = byBlock || matches(t, "", peer, destination{address: address})
	}
	require.Equal(t, byBlock, inSet, "%s in one set of %v", address, rule.To)
}

func matches(t *testing.T, own string, peer networkingv1.NetworkPolicyPeer, to destination) bool {
	t.Helper()
	if peer.IPBlock != nil {
		addr := netip.MustParseAddr(to.address)
		if !netip.MustParsePrefix(peer.IPBlock.CIDR).Contains(addr) {
			return false
		}
		for _, e := range peer.IPBlock.Except {
			if netip.MustParsePrefix(e).Contains(addr) {
				return false
			}
		}
		return true
	}
	if to.namespace == "" {
		return false
	}
	selects := func(s *metav1.LabelSelector, of map[string]string) bool {
		selector, err := metav1.LabelSelectorAsSelector(s)
		require.NoError(t, err)
		return selector.Matches(labels.Set(of))
	}
	if peer.NamespaceSelector == nil {
		return to.namespace == own && selects(peer.PodSelector, to.pod)
	}
	return selects(peer.NamespaceSelector, to.inNamespace) && (peer.PodSelector == nil || selects(peer.PodSelector, to.pod))
}

// requireValid checks what the API server refuses: an exception that is no strict part of its
// block.
func requireValid(t *testing.T, policy *networkingv1.NetworkPolicy) {
	t.Helper()
	for _, rule := range policy.Spec.Egress {
		require.NotEmpty(t, rule.To, "an empty list allows everything")
		for _, peer := range rule.To {
			if peer.IPBlock == nil {
				continue
			}
			block := netip.MustParsePrefix(peer.IPBlock.CIDR)
			require.Equal(t, block.Masked(), block)
			for _, e := range peer.IPBlock.Except {
				p := netip.MustParsePrefix(e)
				require.Equal(t, p.Masked(), p)
				require.True(t, block.Contains(p.Addr()) && p.Bits() > block.Bits(), "%s in %s", e, block)
			}
		}
	}
}

// TestReachOfAPeersPods: without the policy a pod of a peer reaches metadata services, nodes,
// and whatever else the network of the provider has.
func TestReachOfAPeersPods(t *testing.T) {
	t.Parallel()
	own := prefixesOf("10.244.0.0/24", "10.96.0.0/16", "192.168.7.11/32", "203.0.113.9/32", "2001:db8:1::11/128", "198.51.100.0/24")
	fabric := reach{own: own, peer: prefixesOf("10.80.0.0/16", "fd6c:6971:6f00::/64")}
	twin := map[string]string{"kubernetes.io/metadata.name": "shop-rome", "liqo.io/remote-cluster-id": "rome"}
	peersPod := map[string]string{"liqo.io/managed-by": "shadowpod"}
	for name, c := range map[string]struct {
		reach reach
		to    destination
		want  bool
	}{
		"the internet":                    {fabric, destination{address: "93.184.216.34"}, true},
		"the internet, IPv6":              {fabric, destination{address: "2606:2800:220:1::1"}, true},
		"the peer":                        {fabric, destination{address: "10.80.3.4"}, true},
		"the peer, IPv6":                  {fabric, destination{address: "fd6c:6971:6f00::1"}, true},
		"the ranges of another peer":      {fabric, destination{address: "10.81.3.4"}, false},
		"metadata":                        {fabric, destination{address: "169.254.169.254", port: 80}, false},
		"metadata, asked for DNS":         {fabric, destination{address: "169.254.169.254", port: 53}, false},
		"metadata, IPv6":                  {fabric, destination{address: "fd00:ec2::254"}, false},
		"metadata of Alibaba Cloud":       {fabric, destination{address: "100.100.100.200"}, false},
		"metadata of Azure":               {fabric, destination{address: "168.63.129.16"}, false},
		"metadata by NAT64":               {fabric, destination{address: "64:ff9b::a9fe:a9fe"}, false},
		"link-local":                      {fabric, destination{address: "fe80::1"}, false},
		"the DNS cache of the node":       {fabric, destination{address: "169.254.20.10", port: 53}, true},
		"its other ports":                 {fabric, destination{address: "169.254.20.10", port: 9253}, false},
		"a node":                          {fabric, destination{address: "192.168.7.11", port: 10250}, false},
		"a node with a public address":    {fabric, destination{address: "203.0.113.9", port: 22}, false},
		"beside it":                       {fabric, destination{address: "203.0.113.10"}, true},
		"a node, IPv6":                    {fabric, destination{address: "2001:db8:1::11"}, false},
		"a reserved public range":         {fabric, destination{address: "198.51.100.3"}, false},
		"a private host of the site":      {fabric, destination{address: "172.20.1.1"}, false},
		"a Service":                       {fabric, destination{address: "10.96.0.1", port: 443}, false},
		"DNS":                             {fabric, destination{address: "10.244.0.3", namespace: "kube-system", inNamespace: map[string]string{"kubernetes.io/metadata.name": "kube-system"}, pod: map[string]string{"k8s-app": "kube-dns"}, port: 53}, true},
		"other ports of the DNS servers":  {fabric, destination{address: "10.244.0.3", namespace: "kube-system", inNamespace: map[string]string{"kubernetes.io/metadata.name": "kube-system"}, pod: map[string]string{"k8s-app": "kube-dns"}, port: 9153}, false},
		"a server that calls itself DNS":  {fabric, destination{address: "10.244.0.4", namespace: "vault", inNamespace: map[string]string{"kubernetes.io/metadata.name": "vault"}, pod: map[string]string{"k8s-app": "kube-dns"}, port: 53}, false},
		"a pod of the provider":           {fabric, destination{address: "10.244.0.5", namespace: "vault", inNamespace: map[string]string{"kubernetes.io/metadata.name": "vault"}}, false},
		"a pod of the own namespace":      {fabric, destination{address: "10.244.0.6", namespace: "shop-rome", inNamespace: twin, pod: peersPod}, true},
		"the peer's pod in another twin":  {fabric, destination{address: "10.244.0.7", namespace: "bank-rome", inNamespace: map[string]string{"liqo.io/remote-cluster-id": "rome"}, pod: peersPod}, true},
		"an owner's pod in an accepted":   {fabric, destination{address: "10.244.0.8", namespace: "accepting", inNamespace: map[string]string{"liqo.io/remote-cluster-id": "rome"}, pod: map[string]string{"app": "db"}}, false},
		"a pod of another peer":           {fabric, destination{address: "10.244.0.9", namespace: "shop-oslo", inNamespace: map[string]string{"liqo.io/remote-cluster-id": "oslo"}, pod: peersPod}, false},
		"a vkubelet of the tenant":        {fabric, destination{address: "10.244.0.10", namespace: "liqo-tenant-rome", inNamespace: map[string]string{"liqo.io/remote-cluster-id": "rome", "liqo.io/tenant-namespace": "true"}, pod: peersPod, port: 10250}, false},
		"no Connection yet":               {reach{own: own}, destination{address: "10.80.3.4"}, false},
		"no range is known":               {reach{}, destination{address: "169.254.169.254"}, false},
		"no range is known, the internet": {reach{}, destination{address: "93.184.216.34"}, true},
		"ranges that hold nodes":          {reach{own: own, peer: prefixesOf("192.168.0.0/16")}, destination{address: "192.168.7.11"}, false},
		"beside the nodes":                {reach{own: own, peer: prefixesOf("192.168.0.0/16")}, destination{address: "192.168.8.1"}, true},
		"ranges within own ones":          {reach{own: own, peer: prefixesOf("10.96.3.0/24")}, destination{address: "10.96.3.1"}, false},
		"a reachable range":               {reach{own: own, reachable: prefixesOf("172.20.0.0/16")}, destination{address: "172.20.1.1"}, true},
		"a reachable node":                {reach{own: own, reachable: prefixesOf("192.168.7.0/24")}, destination{address: "192.168.7.11"}, true},
		"a reachable public node":         {reach{own: own, reachable: prefixesOf("203.0.113.0/24")}, destination{address: "203.0.113.9"}, true},
		"never metadata":                  {reach{own: own, reachable: prefixesOf("0.0.0.0/0")}, destination{address: "169.254.169.254"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			policy := twinPolicy("rome", "shop-rome", false, toBlocks(c.reach))
			requireValid(t, policy)
			require.Equal(t, c.want, allows(t, policy, c.to))
		})
	}
}

func TestPolicyRestrictsNoIngress(t *testing.T) {
	t.Parallel()
	policy := twinPolicy("rome", "shop-rome", false, toBlocks(reach{}))
	require.Equal(t, []networkingv1.PolicyType{networkingv1.PolicyTypeEgress}, policy.Spec.PolicyTypes)
	require.Empty(t, policy.Spec.PodSelector, "all pods of the twin")
	for _, p := range policy.Spec.Egress[0].Ports {
		require.Contains(t, []corev1.Protocol{corev1.ProtocolUDP, corev1.ProtocolTCP}, *p.Protocol)
	}
}

// TestPolicyOfAManyNodedCluster: a policy stays small, and denies more rather than less.
func TestPolicyOfAManyNodedCluster(t *testing.T) {
	t.Parallel()
	var own []netip.Prefix
	for i := range 5000 {
		own = append(own, netip.MustParsePrefix(fmt.Sprintf("198.51.%d.%d/32", i/250, i%250)))
	}
	policy := twinPolicy("rome", "shop-rome", false, toBlocks(reach{own: own}))
	requireValid(t, policy)
	for _, peer := range policy.Spec.Egress[len(policy.Spec.Egress)-1].To {
		require.LessOrEqual(t, len(peer.IPBlock.Except), mostExcepted)
	}
	for _, p := range own {
		require.False(t, allows(t, policy, destination{address: p.Addr().String()}))
	}
	require.True(t, allows(t, policy, destination{address: "198.52.0.1"}))
}
