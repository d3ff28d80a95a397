package namespace

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	ipamv1alpha1 "github.com/liqod/liqod/api/ipam/v1alpha1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
)

// reach has the ranges that the NetworkPolicy of a twin follows from.
type reach struct {
	// own are the ranges and addresses of this cluster, as far as they are known.
	own []netip.Prefix
	// peer are the ranges under which this cluster sees the peer.
	peer []netip.Prefix
	// reachable are further ranges that an administrator allows.
	reachable []netip.Prefix
}

var (
	// everything is the whole address space.
	everything = prefixesOf("0.0.0.0/0", "::/0")
	// never are ranges without ordinary hosts, and metadata services of clouds.
	never = ipamv1alpha1.NeverReached()
	// private are ranges that no host of the internet has.
	private = prefixesOf("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "198.18.0.0/15", "fc00::/7", "fec0::/10")
	// nodeLocalDNS is the usual address of the DNS cache of a node.
	nodeLocalDNS = netip.MustParsePrefix("169.254.20.10/32")
)

const (
	// mostExcepted is the number of exceptions of one block above which addresses of this
	// cluster are widened.
	mostExcepted = 128
	dnsPort      = 53
)

func prefixesOf(texts ...string) (out []netip.Prefix) {
	for _, text := range texts {
		out = append(out, netip.MustParsePrefix(text))
	}
	return out
}

// twinPolicy returns the NetworkPolicy of a twin. It restricts what the pods reach, and not
// who reaches them. Policies match the addresses of endpoints, so the rules name no address of a Service.
// blocks are the rules of toBlocks. The pods of a twin with home use the DNS of the consumer: that of this
// cluster is closed, so that it does not answer before the pod's node knows the pod.
func twinPolicy(peer, twin string, home bool, blocks []networkingv1.NetworkPolicyEgressRule) *networkingv1.NetworkPolicy {
	egress := []networkingv1.NetworkPolicyEgressRule{toDNS(), {To: toTwins(peer)}}
	if home {
		egress = egress[1:]
	}
	return &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: twin, Name: offloadingv1beta1.TwinBounds, Labels: boundLabels(peer)},
		Spec: networkingv1.NetworkPolicySpec{
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeEgress},
			Egress:      append(egress, blocks...),
		},
	}
}

// toDNS allows the DNS servers of the cluster, and the DNS cache of the node.
func toDNS() networkingv1.NetworkPolicyEgressRule {
	rule := networkingv1.NetworkPolicyEgressRule{To: []networkingv1.NetworkPolicyPeer{
		{
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: metav1.NamespaceSystem}},
			PodSelector:       &metav1.LabelSelector{MatchLabels: map[string]string{"k8s-app": "kube-dns"}},
		},
		{IPBlock: &networkingv1.IPBlock{CIDR: nodeLocalDNS.String()}},
	}}
	for _, protocol := range []corev1.Protocol{corev1.ProtocolUDP, corev1.ProtocolTCP} {
		port := intstr.FromInt32(dnsPort)
		rule.Ports = append(rule.Ports, networkingv1.NetworkPolicyPort{Protocol: &protocol, Port: &port})
	}
	return rule
}

// toTwins allows the pods of the own namespace, and the peer's pods in its other twins. The
// tenant namespace has the label of a twin, and liqod's own pods.
func toTwins(peer string) []networkingv1.NetworkPolicyPeer {
	pods := metav1.LabelSelector{MatchLabels: map[string]string{offloadingv1beta1.ManagedByLabel: offloadingv1beta1.ManagedByShadowPod}}
	return []networkingv1.NetworkPolicyPeer{
		{PodSelector: &metav1.LabelSelector{}},
		{
			NamespaceSelector: &metav1.LabelSelector{
				MatchLabels:      map[string]string{corev1beta1.RemoteClusterIDLabel: peer},
				MatchExpressions: []metav1.LabelSelectorRequirement{{Key: corev1beta1.TenantNamespaceLabel, Operator: metav1.LabelSelectorOpDoesNotExist}},
			},
			PodSelector: &pods,
		},
	}
}

// toBlocks allows the internet, the ranges of the peer, and those that an administrator
// allows. Each is a rule: kube-router counts the exceptions of a block for all of its rule.
func toBlocks(r reach) (out []networkingv1.NetworkPolicyEgressRule) {
	own := slices.Concat(r.own, never)
	internet := slices.Concat(own, private)
	for _, part := range []struct{ allow, deny []netip.Prefix }{{everything, internet}, {reduce(r.peer), own}, {reduce(r.reachable), never}} {
		var rule networkingv1.NetworkPolicyEgressRule
		for _, block := range part.allow {
			if b, ok := allowedIn(block, part.deny); ok {
				rule.To = append(rule.To, networkingv1.NetworkPolicyPeer{IPBlock: b})
			}
		}
		if len(rule.To) > 0 { // a rule without destinations allows all
			out = append(out, rule)
		}
	}
	return out
}

// allowedIn returns a block without the denied ranges. It returns false if nothing is left.
func allowedIn(block netip.Prefix, denied []netip.Prefix) (*networkingv1.IPBlock, bool) {
	out := &networkingv1.IPBlock{CIDR: block.String()}
	var within []netip.Prefix
	for _, d := range denied {
		if !d.Overlaps(block) {
			continue
		}
		if d.Bits() <= block.Bits() {
			return nil, false
		}
		within = append(within, d)
	}
	for _, d := range fewer(within, block.Bits()) {
		out.Except = append(out.Except, d.String())
	}
	return out, true
}

// fewer returns ranges that cover the given ones, widened if there are too many: up to a
// /24 of IPv4 and a /64 of IPv6, and never up to the size of the block that they are in.
func fewer(ranges []netip.Prefix, block int) []netip.Prefix {
	out := reduce(ranges)
	for _, step := range []struct{ v4, v6 int }{{28, 112}, {24, 64}} {
		if len(out) <= mostExcepted {
			return out
		}
		for i, p := range out {
			bits := step.v6
			if p.Addr().Is4() {
				bits = step.v4
			}
			if bits > block && p.Bits() > bits {
				out[i] = netip.PrefixFrom(p.Addr(), bits).Masked()
			}
		}
		out = reduce(out)
	}
	return out
}

// reduce returns the ranges in order, without those that others contain.
func reduce(ranges []netip.Prefix) (out []netip.Prefix) {
	sorted := slices.Clone(ranges)
	slices.SortFunc(sorted, func(a, b netip.Prefix) int {
		if c := a.Addr().Compare(b.Addr()); c != 0 {
			return c
		}
		return a.Bits() - b.Bits()
	})
	for _, p := range sorted {
		if n := len(out); n == 0 || !out[n-1].Contains(p.Addr()) {
			out = append(out, p)
		}
	}
	return out
}
