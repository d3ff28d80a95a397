package report

import (
	"cmp"
	"fmt"
	"strings"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
)

// Remains is what keeps liqod from being uninstalled: only its controller removes it, here and at the peers.
type Remains struct {
	// Namespaces are offloaded, Peers have a ForeignCluster in use.
	Namespaces, Peers []string
	// Objects are left of both, as kind and name.
	Objects []string
}

// OffloadedNamespaces returns the offloaded namespaces, sorted.
func (s *Snapshot) OffloadedNamespaces() []string {
	return Names(s.Offloadings, func(o *offloadingv1beta1.NamespaceOffloading) string { return o.Namespace })
}

// Remaining returns what the controller has to remove before it is removed itself. It reads
// NamespaceOffloadings, ForeignClusters, VirtualNodes and NamespaceMaps.
func (s *Snapshot) Remaining() (r Remains) {
	r.Namespaces = s.OffloadedNamespaces()
	r.Peers = Names(s.ForeignClusters, func(fc *corev1beta1.ForeignCluster) string {
		if len(fc.Finalizers) == 0 && fc.Labels[corev1beta1.DiscoveredLabel] != "" {
			return "" // only found
		}
		return fc.Name
	})
	for i := range s.VirtualNodes {
		r.Objects = append(r.Objects, "VirtualNode "+s.VirtualNodes[i].Namespace+"/"+s.VirtualNodes[i].Name)
	}
	for i := range s.Maps {
		r.Objects = append(r.Objects, "NamespaceMap "+s.Maps[i].Namespace+"/"+s.Maps[i].Name)
	}
	return r
}

// String names what remains; "" if nothing does.
func (r Remains) String() string {
	var parts []string
	if len(r.Namespaces) > 0 {
		parts = append(parts, Listed("a namespace is offloaded:", "namespaces are offloaded:", r.Namespaces))
	}
	if len(r.Peers) > 0 {
		parts = append(parts, Listed("there is a peer:", "there are peers:", r.Peers))
	}
	if len(parts) == 0 && len(r.Objects) > 0 {
		parts = append(parts, Listed("there is still", "there are still", r.Objects))
	}
	return Line(strings.Join(parts, "; "))
}

// UninstallSteps are the commands that remove the rest of liqod, when nothing of a peering remains.
func UninstallSteps(s *Snapshot) string {
	var b strings.Builder
	step := func(about, format string, args ...any) {
		fmt.Fprintf(&b, "\n%s:\n  "+format+"\n", append([]any{about}, args...)...)
	}
	if len(s.Tenants) > 0 {
		step("Tenant namespaces that were made by hand", "kubectl delete namespaces -l %s=true", corev1beta1.TenantNamespaceLabel)
	}
	if d := s.deployment(Controller); d != nil || s.unread(ReadInstallation) {
		release := "liqod"
		if d != nil {
			release = cmp.Or(d.Labels["app.kubernetes.io/instance"], release)
		}
		step("The release", "helm uninstall %s -n %s", Line(release), s.Namespace)
	}
	if len(s.Kinds) > 0 {
		step("On each node, as root, or a restart of it: devices, routes and rules of the network fabric", "liqod cleanup")
		step("Secrets with the key of the gateway and with certificates", "kubectl delete namespace %s", s.Namespace)
		step("The CRDs, and with them all that is left of their objects", "kubectl get crd -o name | grep '[.]liqo[.]io$' | xargs kubectl delete")
	}
	if b.Len() == 0 {
		return "liqod is not installed in this cluster, and nothing is left of it.\n"
	}
	return "Nothing of a peering is left. Remove the rest in this order:\n" + b.String()
}
