package exchange

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	ipamv1alpha1 "github.com/liqod/liqod/api/ipam/v1alpha1"
	networkingv1beta1 "github.com/liqod/liqod/api/networking/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/netfabric/check"
	"github.com/liqod/liqod/netfabric/plan"
)

// facts is the input of the decision on one peer.
type facts struct {
	check.Surroundings
	peer string
	// theirs is the peer's Configuration, which exists and is not being deleted.
	theirs *networkingv1beta1.Configuration
	// mine is this cluster's own for the peer; nil while it publishes none.
	mine *networkingv1beta1.Configuration
	// connection is the peer's; nil if there is none.
	connection *networkingv1beta1.Connection
	// trust is spec.trust of the peer's ForeignCluster.
	trust corev1beta1.Trust
	// networks are those of the tenant namespace, by name.
	networks map[string]*ipamv1alpha1.Network
	// unknown is the reason why this cluster's own ranges are unknown; nil: they are known.
	unknown error
	now     metav1.Time
}

// networkWrite is a Network as it exists, or nil, and with all that is to be written.
type networkWrite struct{ have, next *ipamv1alpha1.Network }

// decision contains the writes for a peer's Configuration.
type decision struct {
	// networks are the Networks to write, if they differ.
	networks []networkWrite
	// release are the names of Networks that no range of the peer needs any more. They go
	// when the Connection does not have their views.
	release []string
	// status of the peer's Configuration.
	status networkingv1beta1.ConfigurationStatus
	// connection is the desired spec of its Connection; nil: no Connection.
	connection *networkingv1beta1.ConnectionSpec
}

// decide is pure. Mistakes in a Configuration are reported in its status, and then nothing of it
// is taken over.
func (f facts) decide() decision {
	out := decision{status: *f.theirs.Status.DeepCopy()}
	if f.unknown != nil {
		// What is in use stays: it was checked when the ranges were known.
		out.connection = f.kept()
		if ready := meta.FindStatusCondition(out.status.Conditions, networkingv1beta1.ConditionReady); ready == nil || ready.Status != metav1.ConditionTrue {
			f.condition(&out, metav1.ConditionFalse, networkingv1beta1.ReasonNotAllocated, fmt.Sprintf("cluster %s takes nothing of it over yet: %s", f.ClusterID, store.OneLine(f.unknown)))
		}
		return out
	}
	out.status.ObservedGeneration = f.theirs.Generation
	if wrong := f.CheckConfiguration(f.peer, f.theirs); len(wrong) > 0 {
		f.condition(&out, metav1.ConditionFalse, networkingv1beta1.ReasonInvalid, fmt.Sprintf(
			"cluster %s takes nothing of it over: %s", f.ClusterID, wrong))
		out.connection = f.kept()
		return out
	}
	c := f.claimAll(&out)
	out.status.Local, out.status.Remote = answered(c.mappings)
	out.release = f.unneeded(c.wanted)
	answer, bad := f.answer()
	switch {
	case len(c.refused) > 0:
		f.condition(&out, metav1.ConditionFalse, networkingv1beta1.ReasonNotAllocated, c.refused.String())
	case len(c.waiting) > 0 && f.mine == nil:
		f.condition(&out, metav1.ConditionFalse, networkingv1beta1.ReasonAllocating, fmt.Sprintf(
			"cluster %s publishes no Configuration for %s: it does when an offer between the two is accepted, and networking is not disabled for %s", f.ClusterID, f.peer, f.peer))
	case len(c.waiting) > 0:
		f.condition(&out, metav1.ConditionFalse, networkingv1beta1.ReasonAllocating, "no range is allocated yet for "+strings.Join(c.waiting, ", "))
	default:
		message := fmt.Sprintf("cluster %s has a view of each range", f.ClusterID)
		if bad != nil {
			message += fmt.Sprintf("; but of the views that %s has answered, some cannot be used: %s", f.peer, store.OneLine(bad))
		}
		f.condition(&out, metav1.ConditionTrue, networkingv1beta1.ReasonNetworksAllocated, message)
	}
	if out.connection = f.connectionSpec(answer, c.mappings); out.connection == nil {
		out.connection = f.kept()
	}
	return out
}

// kept returns the spec of the Connection as it is, but with the trust of today, and what third
// clusters let the peer reach today: no mistake of the peer delays either. A key that belongs to
// another peer by now is not in it. It returns nil if the Connection has to end.
func (f facts) kept() *networkingv1beta1.ConnectionSpec {
	if f.connection == nil || !managed(f.connection) || f.unknown == nil && (f.mine == nil || !f.holds()) {
		return nil
	}
	out := f.connection.Spec.DeepCopy()
	if out.Trust, out.Admits = string(f.trust), nil; f.mine != nil {
		out.Admits = f.mine.Spec.Admits
	}
	out.Gateways = slices.DeleteFunc(out.Gateways, func(g networkingv1beta1.Gateway) bool { return f.Keys[g.PublicKey] != "" })
	for i, g := range out.Gateways {
		if f.Keys[g.NextPublicKey] != "" {
			out.Gateways[i].NextPublicKey = ""
		}
	}
	return out
}

// holds reports whether this cluster may still use every view in the Connection: the view of a
// Network that is gone may be given to another peer.
func (f facts) holds() bool {
	return !slices.ContainsFunc(f.connection.Spec.Remote, func(m networkingv1beta1.Mapping) bool {
		return !slices.ContainsFunc(slices.Collect(maps.Values(f.networks)), func(n *ipamv1alpha1.Network) bool {
			own, _ := n.Spec.CIDR.Prefix()
			view, _ := n.Status.CIDR.Prefix()
			return managed(n) && n.DeletionTimestamp == nil && n.Status.CIDR == m.View && f.CheckView(own, view) == nil
		})
	})
}

func (f facts) condition(out *decision, status metav1.ConditionStatus, reason, message string) {
	store.SetCondition(&out.status.Conditions, metav1.Condition{
		Type: networkingv1beta1.ConditionReady, Status: status, Reason: reason, Message: message,
		ObservedGeneration: f.theirs.Generation, LastTransitionTime: f.now,
	})
}

// claiming is how far the claims of a Configuration are.
type claiming struct {
	wanted   map[string]bool // names of Networks
	mappings []networkingv1beta1.Mapping
	waiting  []string // ranges
	refused  check.Problems
}

// claimAll looks at the Network of each range.
func (f facts) claimAll(out *decision) claiming {
	c := claiming{wanted: map[string]bool{}}
	for _, r := range check.OwnRanges(f.theirs) {
		name := networkName(f.theirs.Name, r)
		c.wanted[name] = true
		want := f.network(name, r)
		have := f.networks[name]
		switch {
		case have == nil:
			c.waiting = append(c.waiting, string(r.CIDR))
			if f.mine != nil {
				out.networks = append(out.networks, networkWrite{nil, want})
			}
		case !managed(have) || have.Spec.CIDR != r.CIDR:
			c.refused.Add("Network %s/%s is in the way of a claim for %s: delete it", have.Namespace, have.Name, r.CIDR)
		case have.DeletionTimestamp != nil:
			c.waiting = append(c.waiting, string(r.CIDR)) // made again when it is gone
		default:
			// A Configuration that was restored from a backup has another UID, and its Networks keep what they have.
			next := have.DeepCopy()
			next.OwnerReferences = want.OwnerReferences
			out.networks = append(out.networks, networkWrite{have, next})
			f.granted(have, r, &c)
		}
	}
	return c
}

// granted reads what a Network has got.
func (f facts) granted(n *ipamv1alpha1.Network, r check.OwnRange, c *claiming) {
	is := meta.FindStatusCondition(n.Status.Conditions, ipamv1alpha1.ConditionReady)
	view, ok := n.Status.CIDR.Prefix()
	switch {
	case is != nil && is.Status == metav1.ConditionFalse:
		c.refused.Add("%s: %s", r.CIDR, is.Message)
		return
	case is == nil || is.Status != metav1.ConditionTrue || !ok:
		c.waiting = append(c.waiting, string(r.CIDR))
		return
	}
	if err := f.CheckView(r.Prefix, view); err != nil {
		c.refused.Add("%s has got a range that cannot be used: %s; delete Network %s/%s in cluster %s for another", r.CIDR, err, n.Namespace, n.Name, f.ClusterID)
		return
	}
	c.mappings = append(c.mappings, networkingv1beta1.Mapping{Own: r.CIDR, View: n.Status.CIDR, Use: r.Use})
}

// unneeded returns the Networks of the peer that no range needs, by name.
func (f facts) unneeded(wanted map[string]bool) (names []string) {
	for _, name := range slices.Sorted(maps.Keys(f.networks)) {
		if n := f.networks[name]; !wanted[name] && managed(n) && n.DeletionTimestamp == nil {
			names = append(names, name)
		}
	}
	return names
}

// managed reports whether an object is one that the negotiation has made by itself.
func managed(o metav1.Object) bool {
	return o.GetLabels()[offloadingv1beta1.ManagedByLabel] == networkingv1beta1.ManagedByConfiguration
}

// made are the labels of what the negotiation makes for a peer.
func made(peer string) map[string]string {
	return map[string]string{corev1beta1.RemoteClusterIDLabel: peer, offloadingv1beta1.ManagedByLabel: networkingv1beta1.ManagedByConfiguration}
}

// networkName is the name of the Network of a range: every other range has another name.
func networkName(configuration string, r check.OwnRange) string {
	return configuration + "-" + strings.ToLower(string(r.Use)) + "-" + strings.NewReplacer(".", "-", ":", "-", "/", "-").Replace(r.Prefix.String())
}

// network is the claim for a range of the peer. What is behind the peer keeps no addresses: whoever chooses
// them is trusted by the peer, not by this cluster.
func (f facts) network(name string, r check.OwnRange) *ipamv1alpha1.Network {
	out := &ipamv1alpha1.Network{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: f.theirs.Namespace, Name: name, Labels: made(f.peer),
			OwnerReferences: []metav1.OwnerReference{ownedBy(f.theirs)},
		},
		Spec: ipamv1alpha1.NetworkSpec{CIDR: r.CIDR},
	}
	if r.Use == networkingv1beta1.RangeTransit {
		out.Labels[ipamv1alpha1.RemappedLabel] = "true"
	}
	return out
}

func ownedBy(c *networkingv1beta1.Configuration) metav1.OwnerReference {
	return store.ControllerReference(c, networkingv1beta1.SchemeGroupVersion.WithKind("Configuration"))
}

// answered returns both sides of the status with the views. Both are nil while there is none.
func answered(mappings []networkingv1beta1.Mapping) (own, seen *networkingv1beta1.MappedNetwork) {
	if len(mappings) == 0 {
		return nil, nil
	}
	own, seen = &networkingv1beta1.MappedNetwork{}, &networkingv1beta1.MappedNetwork{}
	for _, m := range mappings {
		from, to := own.CIDR.Of(m.Use), seen.CIDR.Of(m.Use)
		*from, *to = append(*from, m.Own), append(*to, m.View)
	}
	return own, seen
}

// answer returns the views that the peer has of this cluster's own ranges, and the mistakes in
// those that are left out.
func (f facts) answer() ([]networkingv1beta1.Mapping, error) {
	if f.mine == nil {
		return nil, nil
	}
	var all []networkingv1beta1.View
	use := map[networkingv1beta1.View]networkingv1beta1.RangeUse{}
	for _, u := range networkingv1beta1.RangeUses() {
		for _, v := range f.mine.Views(u) {
			all, use[v] = append(all, v), u
		}
	}
	good, err := check.Answer(all)
	var out []networkingv1beta1.Mapping
	for _, v := range good {
		out = append(out, networkingv1beta1.Mapping{Own: networkingv1beta1.CIDR(v.Own.String()), View: networkingv1beta1.CIDR(v.View.String()), Use: use[v]})
	}
	return out, err
}

// connectionSpec is the Connection that follows from both directions: local are this
// cluster's own ranges and the peer's views of them, remote the reverse. Nil while either is
// empty.
func (f facts) connectionSpec(local, remote []networkingv1beta1.Mapping) *networkingv1beta1.ConnectionSpec {
	if len(local) == 0 || len(remote) == 0 {
		return nil
	}
	return &networkingv1beta1.ConnectionSpec{
		ClusterID: f.peer, Local: local, Remote: remote, Trust: string(f.trust),
		Gateways: f.theirs.DeepCopy().Spec.Gateways, MTU: plan.SmallerMTU(f.mine.Spec.MTU, f.theirs.Spec.MTU),
		Behind: f.theirs.Spec.Behind, Admits: f.mine.Spec.Admits, Admitted: f.theirs.Spec.Admits,
	}
}
