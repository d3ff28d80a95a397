package report

import (
	"cmp"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/reasons"
)

// Drains reports whether a virtual node is being removed: disruption budgets may then matter.
func (s *Snapshot) Drains() bool {
	return first(s.VirtualNodes, func(vn *offloadingv1beta1.VirtualNode) bool { return vn.DeletionTimestamp != nil }) != nil
}

// removal adds the findings about a virtual node that is being removed.
func (c *checker) removal(vn *offloadingv1beta1.VirtualNode) {
	text := conditionMessage(vn.Status.Conditions, offloadingv1beta1.VirtualNodeReady)
	c.Add(idRemoval, Warning, "virtual node "+vn.Name, "it is being removed: "+text, "")
	blocked := map[string]bool{}
	for _, pod := range c.podsOn(vn) {
		if b := c.blocking(pod); b != nil && pod.DeletionTimestamp == nil && !blocked[b.Namespace+"/"+b.Name] {
			blocked[b.Namespace+"/"+b.Name] = true
			c.budget(vn, b)
		}
	}
}

// blocking returns a disruption budget that admits no eviction of a pod, or nil.
func (s *Snapshot) blocking(pod *corev1.Pod) *policyv1.PodDisruptionBudget {
	if owner := metav1.GetControllerOf(pod); owner != nil && owner.Kind == "DaemonSet" {
		return nil // it is deleted, not evicted
	}
	return first(s.Budgets, func(b *policyv1.PodDisruptionBudget) bool {
		selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
		always := ptr.Deref(b.Spec.UnhealthyPodEvictionPolicy, "") == policyv1.AlwaysAllow || pod.Status.Phase == corev1.PodPending
		evicted := !PodReady(pod) && (always || b.Status.DesiredHealthy > 0 && b.Status.CurrentHealthy >= b.Status.DesiredHealthy) // because it is not ready
		return err == nil && b.Namespace == pod.Namespace && selector.Matches(labels.Set(pod.Labels)) && b.Status.DisruptionsAllowed == 0 && !evicted
	})
}

func (c *checker) budget(vn *offloadingv1beta1.VirtualNode, b *policyv1.PodDisruptionBudget) {
	patch := `{"spec":{"minAvailable":0}}`
	if b.Spec.MaxUnavailable != nil {
		patch = `{"spec":{"maxUnavailable":"100%"}}`
	}
	c.Report(Finding{ID: idBudget, Level: Warning, Subject: "virtual node " + vn.Name, Reason: reasons.DisruptionBudget,
		Message: fmt.Sprintf("PodDisruptionBudget %s/%s admits no eviction (%d of %d wanted pods are healthy): the drain waits until its deadline",
			b.Namespace, b.Name, b.Status.CurrentHealthy, b.Status.DesiredHealthy),
		Fix: fmt.Sprintf("kubectl -n %s patch pdb %s --type=merge -p '%s'\nallows the evictions; or start more replicas on other nodes.", b.Namespace, b.Name, patch)})
}

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
	nodes := Names(s.VirtualNodes, func(vn *offloadingv1beta1.VirtualNode) string { return "VirtualNode " + vn.Namespace + "/" + vn.Name })
	maps := Names(s.Maps, func(m *offloadingv1beta1.NamespaceMap) string { return "NamespaceMap " + m.Namespace + "/" + m.Name })
	r.Objects = append(nodes, maps...)
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
