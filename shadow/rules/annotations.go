package rules

import (
	"slices"
	"strings"
)

// kubeletAnnotations begins the annotations by which kubelets know their static pods: a
// kubelet would take a pod that has them for a mirror of such a one.
const kubeletAnnotations = "kubernetes.io/config."

// steering are the domains of annotations that a pod commands this cluster's
// infrastructure with; those below them count too. A peer's pod takes part in no network
// and has no address of its own choosing, and does not keep nodes from being drained or
// removed.
var steering = []string{
	"v1.cni.cncf.io",                   // multus: networks beside the cluster's
	"v1.multus-cni.io",                 // multus: another default network
	"cni.projectcalico.org",            // Calico: addresses, pools, floating addresses
	"ovn.kubernetes.io",                // Kube-OVN: subnets, addresses
	"ovn.org",                          // OVN-Kubernetes: networks, addresses
	"cluster-autoscaler.kubernetes.io", // keeps nodes from being scaled down
	"karpenter.sh",                     // keeps nodes from being replaced
	"descheduler.alpha.kubernetes.io",  // evictions of this and other pods
}

// AnnotationAllowed reports whether a peer's pod may carry an annotation with the given key
// here. Limits that a pod sets itself, such as kubernetes.io/egress-bandwidth, may stay.
func AnnotationAllowed(key string) bool {
	if strings.HasPrefix(key, kubeletAnnotations) {
		return false
	}
	domain, _, ok := strings.Cut(key, "/")
	return !ok || !slices.ContainsFunc(steering, func(s string) bool {
		return domain == s || strings.HasSuffix(domain, "."+s)
	})
}
