package report

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	ipamv1alpha1 "github.com/liqod/liqod/api/ipam/v1alpha1"
	networkingv1beta1 "github.com/liqod/liqod/api/networking/v1beta1"
)

// overlays warns of hosts that take packets of the overlay from every address.
func (c *checker) overlays() {
	for _, role := range c.OpenOverlays {
		c.Add(idOverlay, Warning, "overlay", fmt.Sprintf("%s.anyOverlaySender is true: any pod of this cluster can send packets into the fabric with an address that is not its own", role),
			fmt.Sprintf("unset config.%s.anyOverlaySender in the values of the chart, and see whether packets still arrive: docs/networking.md#what-the-overlay-trusts", role))
	}
}

// network tells under which ranges a peer is seen, and which of them are missing. Whether
// packets pass is told by the conditions of its ForeignCluster.
func (c *checker) network(id string) {
	if c.unread(ReadNetworks) {
		return
	}
	for _, n := range where(c.Networks, func(n *ipamv1alpha1.Network) bool { return n.Namespace == corev1beta1.TenantNamespace(id) }) {
		c.claim(n)
	}
	if conn := c.Connection(id); conn != nil {
		c.Add(idAddresses, OK, "addresses", fmt.Sprintf("%s of %s; %s of this cluster there", mapped(conn.Spec.Remote), id, mapped(conn.Spec.Local)), "")
	}
}

// mapped lists ranges, and under which they are seen where that is another.
func mapped(ranges []networkingv1beta1.Mapping) string {
	var out []string
	for _, m := range ranges {
		if m.Own == m.View {
			out = append(out, string(m.Own))
		} else {
			out = append(out, fmt.Sprintf("%s as %s", m.Own, m.View))
		}
	}
	return strings.Join(out, ", ")
}

// claim tells of a range of a peer that has no view here.
func (c *checker) claim(n *ipamv1alpha1.Network) {
	ready := meta.FindStatusCondition(n.Status.Conditions, ipamv1alpha1.ConditionReady)
	subject := fmt.Sprintf("range %s", n.Spec.CIDR)
	switch {
	case ready == nil && c.Taken.Sub(n.CreationTimestamp.Time) < slow:
	case ready == nil:
		c.Add(idRange, Unknown, subject, fmt.Sprintf("Network %s has no answer yet", n.Name), fmt.Sprintf("kubectl -n %s get pods -l %s=ipam\nshows whether role ipam runs.", c.Namespace, ComponentLabel))
	case ready.Status == metav1.ConditionFalse:
		c.Add(idRange, Problem, subject, ready.Message, "docs/networking.md#addresses-between-clusters says what to do about "+ready.Reason)
	}
}
