package offer

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	sharingv1alpha1 "github.com/liqod/liqod/api/sharing/v1alpha1"
)

// Mode says who decides about requests of consumers.
type Mode string

// Modes of sharing.
const (
	// Automatic: the policy decides.
	Automatic Mode = "Automatic"
	// Manual: the policy makes an offer, and somebody approves it.
	Manual Mode = "Manual"
	// Never: nothing is offered.
	Never Mode = "Never"
)

// Reasons of the status of a ResourceRequest.
const (
	// ReasonOffered says that there are offers that the consumer may take.
	ReasonOffered = "Offered"
	// ReasonApprovalRequired says that somebody in the provider has to approve an offer.
	ReasonApprovalRequired = "ApprovalRequired"
	// ReasonSharingOff says that the provider shares nothing with anybody.
	ReasonSharingOff = "SharingOff"
	// ReasonNotAllowed says that this consumer may not use the provider's capacity.
	ReasonNotAllowed = "NotAllowed"
	// ReasonInvalidRequest says that the request cannot be understood.
	ReasonInvalidRequest = "InvalidRequest"
	// ReasonNoNodes says that no node of the provider is as asked for.
	ReasonNoNodes = "NoNodes"
	// ReasonNoCapacity says that nothing is left to give.
	ReasonNoCapacity = "NoCapacity"
)

// anyClass, in a list of classes, stands for all that the cluster has.
const anyClass = "*"

// Policy is what this cluster shares, and with whom.
type Policy struct {
	Mode Mode
	// Percentage of the free capacity is shared, 0 to 100, and of that no more than Limit
	// with all consumers together, and PeerLimits with each, by its id. What a limit does
	// not name it does not bound.
	Percentage int64
	Limit      corev1.ResourceList
	PeerLimits map[string]corev1.ResourceList
	// NodeSelector picks the nodes that are shared.
	NodeSelector map[string]string
	// UpdateThreshold is by how many percent an amount has to change for an offer to follow.
	UpdateThreshold int64
	// Expiration is how long an offer stands unless it is prolonged; 0: until withdrawn.
	Expiration time.Duration
	// Labels are given to the virtual nodes.
	Labels map[string]string
	// StorageClasses, IngressClasses and LoadBalancerClasses may be used by consumers; "*"
	// stands for all that there are, which is not known of load balancer classes.
	StorageClasses, IngressClasses, LoadBalancerClasses []string
	// Enforcement is that of the Quotas.
	Enforcement offloadingv1beta1.LimitsEnforcement
}

// Classes are those that the cluster has, the default first.
type Classes struct {
	Storage, Ingress []string
}

// Facts are all that is decided on.
type Facts struct {
	// Provider is this cluster's id, Consumer that of who asks.
	Provider, Consumer string
	// Request is nil where nothing is asked for.
	Request *corev1beta1.CapacityRequest
	// Refused says why the consumer gets nothing, whatever there is; empty: it may.
	Refused, RefusedMessage string
	// Nodes that pods of peers may run on, what is in use on them, and what other consumers
	// may count on.
	Nodes  []Node
	Used   []Use
	Others []Holding
	// Classes of this cluster.
	Classes Classes
	// Offers are those that the consumer has.
	Offers []*sharingv1alpha1.ResourceOffer
	Now    time.Time
}

// Decision is what a consumer is answered.
type Decision struct {
	// Phase, Reason and Message go into the status of the request.
	Phase           sharingv1alpha1.RequestPhase
	Reason, Message string
	// Offers are wanted, by name. Others are withdrawn.
	Offers map[string]sharingv1alpha1.ResourceOfferSpec
}

func refused(reason, format string, args ...any) Decision {
	return Decision{Phase: sharingv1alpha1.RequestRefused, Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// Decide answers a request. It is pure.
func Decide(f Facts, p Policy) Decision {
	switch {
	case f.Request == nil:
		return Decision{}
	case f.Refused != "":
		return refused(f.Refused, "%s", f.RefusedMessage)
	case p.Mode == Never:
		return refused(ReasonSharingOff, "cluster %s shares no capacity", f.Provider)
	}
	// A mistake ends nothing that was offered before.
	if err := checkRequest(f.Request); err != nil {
		return asItIs(f, p, refused(ReasonInvalidRequest, "%v", err))
	}
	selector, err := bothSelectors(p.NodeSelector, f.Request.NodeSelector)
	if err != nil {
		return asItIs(f, p, refused(ReasonNoNodes, "%v", err))
	}
	nodes := nodesFor(f.Nodes, selector)
	live := liveOffers(f)
	if len(nodes) == 0 && len(live) == 0 {
		return refused(ReasonNoNodes, "cluster %s has no node for pods of others with the labels %v", f.Provider, selector)
	}
	sum, short := grant(f, p, nodes, live)
	if lack := lacking(sum); len(lack) > 0 && len(live) == 0 {
		return refused(ReasonNoCapacity, "cluster %s has no %s left to give", f.Provider, strings.Join(lack, ", "))
	}
	d := Decision{Phase: sharingv1alpha1.RequestOffered, Reason: ReasonOffered, Offers: map[string]sharingv1alpha1.ResourceOfferSpec{}}
	n := min(max(int(f.Request.VirtualNodes), 1), sharingv1alpha1.MaxVirtualNodes)
	for i, part := range divide(sum, n) {
		name := sharingv1alpha1.OfferName(f.Provider, i+1)
		d.Offers[name] = offerSpec(f, p, name, part, selector)
	}
	if waiting := unapproved(d.Offers); len(waiting) > 0 {
		d.Phase, d.Reason = sharingv1alpha1.RequestManualActionRequired, ReasonApprovalRequired
		d.Message = fmt.Sprintf("somebody of cluster %s has to approve: liqod offer approve %s -n %s", f.Provider, strings.Join(waiting, " "), corev1beta1.TenantNamespace(f.Consumer))
		return d
	}
	d.Message = fmt.Sprintf("offered as %d virtual node(s)%s", n, short)
	return d
}

// asItIs leaves the offers of a consumer as they are, and prolongs those that are not ending.
func asItIs(f Facts, p Policy, d Decision) Decision {
	d.Offers = map[string]sharingv1alpha1.ResourceOfferSpec{}
	for _, o := range f.Offers {
		spec := *o.Spec.DeepCopy()
		if spec.WithdrawalTimestamp == nil {
			spec.ExpirationTime = expiration(spec.ExpirationTime, p.Expiration, f.Now)
		}
		d.Offers[o.Name] = spec
	}
	return d
}

func unapproved(offers map[string]sharingv1alpha1.ResourceOfferSpec) (names []string) {
	for _, name := range slices.Sorted(maps.Keys(offers)) {
		if !offers[name].Approved {
			names = append(names, name)
		}
	}
	return names
}

// liveOffers are those that the consumer has and that are not being withdrawn.
func liveOffers(f Facts) (live []*sharingv1alpha1.ResourceOffer) {
	for _, o := range f.Offers {
		if o.Spec.WithdrawalTimestamp == nil {
			live = append(live, o)
		}
	}
	return live
}

// bothSelectors is what both ask for. They may not contradict each other.
func bothSelectors(policy, asked map[string]string) (map[string]string, error) {
	out := maps.Clone(policy)
	for key, value := range asked {
		if other, ok := policy[key]; ok && other != value {
			return nil, fmt.Errorf("only nodes with %s=%s are shared, not such with %s=%s", key, other, key, value)
		}
		if out == nil {
			out = map[string]string{}
		}
		out[key] = value
	}
	return out, nil
}

// wantedResources are the names of what is offered: the basic ones that the nodes have, and
// what is asked for, or, where nothing is, all that the nodes have.
func wantedResources(asked corev1.ResourceList, there corev1.ResourceList) (names []corev1.ResourceName) {
	for name := range there {
		_, named := asked[name]
		if named || len(asked) == 0 || slices.Contains(basic, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// grant returns what a consumer gets in all, and a text about what it does not get.
func grant(f Facts, p Policy, nodes map[string]Node, live []*sharingv1alpha1.ResourceOffer) (sum corev1.ResourceList, short string) {
	left := roomFor(f, p, nodes)
	current := corev1.ResourceList{}
	for _, o := range live {
		add(current, o.Spec.ResourceQuota.Hard)
		for name := range o.Spec.ResourceQuota.Hard {
			if _, there := left.have[name]; !there { // its last node is gone
				left.have[name], left.share[name] = resource.Quantity{}, resource.Quantity{}
			}
		}
	}
	sum = corev1.ResourceList{}
	var less []string
	for _, name := range wantedResources(f.Request.Resources, left.have) {
		var most *resource.Quantity
		if asked, ok := f.Request.Resources[name]; ok {
			most = ptr.To(floor(name, asked))
		}
		if limit, ok := p.PeerLimits[f.Consumer][name]; ok && (most == nil || limit.Cmp(*most) < 0) {
			most = ptr.To(floor(name, limit))
		}
		target := left.share[name]
		if most != nil && most.Cmp(target) < 0 {
			target = *most
		}
		var now *resource.Quantity
		if have, ok := current[name]; ok {
			now = &have
		}
		sum[name] = settle(now, most, target, left.have[name], p.UpdateThreshold)
	}
	for name, asked := range f.Request.Resources {
		if got := sum[name]; got.Cmp(asked) < 0 {
			less = append(less, fmt.Sprintf("%s: %s of %s", name, got.String(), asked.String()))
		}
	}
	if len(less) > 0 {
		slices.Sort(less)
		short = "; less than asked for: " + strings.Join(less, ", ")
	}
	return sum, short
}

// lacking names the resources without which no pod runs, and of which there is nothing.
func lacking(sum corev1.ResourceList) (names []string) {
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourcePods} {
		if amount := sum[name]; amount.Sign() <= 0 {
			names = append(names, string(name))
		}
	}
	return names
}

// offerSpec is one offer as it is to be, made from the one that is there, if any.
func offerSpec(f Facts, p Policy, name string, hard corev1.ResourceList, selector map[string]string) sharingv1alpha1.ResourceOfferSpec {
	i := slices.IndexFunc(f.Offers, func(o *sharingv1alpha1.ResourceOffer) bool { return o.Name == name })
	var have sharingv1alpha1.ResourceOfferSpec
	used := false
	if i >= 0 {
		have, used = *f.Offers[i].Spec.DeepCopy(), inUse(f.Offers[i])
	}
	if equality.Semantic.DeepEqual(have.ResourceQuota.Hard, hard) {
		hard = have.ResourceQuota.Hard // written as it is
	}
	out := sharingv1alpha1.ResourceOfferSpec{
		ConsumerClusterID: f.Consumer, ProviderClusterID: f.Provider,
		Approved:      p.Mode == Automatic || have.Approved,
		ResourceQuota: corev1.ResourceQuotaSpec{Hard: hard}, NodeSelector: selector,
		Labels:              labelsFor(p, f.Request),
		StorageClasses:      classesFor(p.StorageClasses, f.Classes.Storage, f.Request.StorageClasses),
		IngressClasses:      classesFor(p.IngressClasses, f.Classes.Ingress, f.Request.IngressClasses),
		LoadBalancerClasses: classesFor(p.LoadBalancerClasses, nil, f.Request.LoadBalancerClasses),
		Images:              have.Images, Prices: have.Prices,
		ExpirationTime: expiration(have.ExpirationTime, p.Expiration, f.Now),
	}
	expired := out.ExpirationTime != nil && !out.ExpirationTime.After(f.Now)
	// An approval that is taken back, and an end that somebody has set, let the consumer
	// leave first.
	if used && (!out.Approved || expired) {
		out.WithdrawalTimestamp = have.WithdrawalTimestamp
		if out.WithdrawalTimestamp == nil {
			out.WithdrawalTimestamp = seconds(f.Now)
		}
	} else if expired {
		out.ExpirationTime = nil
		out.Approved = p.Mode == Automatic
	}
	return out
}

// inUse reports whether a consumer says that it has a virtual node of an offer.
func inUse(o *sharingv1alpha1.ResourceOffer) bool { return o.Status.VirtualNode != "" }

// seconds is a time as the API keeps it.
func seconds(t time.Time) *metav1.Time { return ptr.To(metav1.NewTime(t.Truncate(time.Second))) }

// expiration is when an offer ends. It is prolonged when half of the time has passed; one
// that somebody has set where the policy sets none stays.
func expiration(have *metav1.Time, lasts time.Duration, now time.Time) *metav1.Time {
	if lasts == 0 || have != nil && have.After(now.Add(lasts/2)) && !have.After(now.Add(lasts)) {
		return have
	}
	return seconds(now.Add(lasts))
}

// labelsFor are the labels of the virtual nodes: what is asked for, and what this cluster
// says of itself, which wins.
func labelsFor(p Policy, r *corev1beta1.CapacityRequest) map[string]string {
	if len(p.Labels)+len(r.Labels) == 0 {
		return nil
	}
	out := map[string]string{}
	maps.Copy(out, r.Labels)
	maps.Copy(out, p.Labels)
	return out
}

// classesFor are the classes of one kind that a consumer gets: what the policy gives, in
// the order of what is there or is asked for.
func classesFor(allowed, there, asked []string) (out []string) {
	given := slices.Clone(there)
	if !slices.Contains(allowed, anyClass) {
		given = slices.Clone(allowed)
		if there != nil {
			given = slices.DeleteFunc(given, func(name string) bool { return !slices.Contains(there, name) })
		}
	}
	if len(asked) == 0 {
		out = given
	}
	for _, name := range asked {
		if slices.Contains(given, name) && !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	const most = 64
	if len(out) == 0 {
		return nil
	}
	return out[:min(len(out), most)]
}
