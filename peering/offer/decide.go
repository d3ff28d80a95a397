// Package offer negotiates capacity (docs/negotiation.md). In a provider, Provider answers
// the ResourceRequests of consumers with ResourceOffers, within its policy and its free
// capacity, and keeps the Quotas that enforce the offers. In a consumer, Consumer writes
// the ResourceRequests and creates VirtualNodes for accepted offers. The decisions are pure
// functions (Decide, checkOffer, virtualNode); the loops gather the facts and write.
package offer

import (
	"errors"
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
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/reasons"
)

// Mode says how requests of consumers are decided, and the offers of providers.
type Mode string

// Values of Mode.
const (
	// Automatic means that the policy decides.
	Automatic Mode = "Automatic"
	// Manual means that the policy makes an offer, and a person approves it.
	Manual Mode = "Manual"
	// Never means that nothing is offered.
	Never Mode = "Never"
)

// anyClass in a list of classes stands for all classes of the cluster.
const anyClass = "*"

// Policy says which capacity this cluster shares with its consumers.
type Policy struct {
	Mode Mode
	// Percentage (0 to 100) is the share of the free capacity that is offered. Limit is the
	// maximum for all consumers together, PeerLimits the maximum per consumer id. A
	// resource that a limit does not name is not limited by it.
	Percentage int64
	Limit      corev1.ResourceList
	PeerLimits map[string]corev1.ResourceList
	// NodeSelector selects the nodes that are shared.
	NodeSelector map[string]string
	// SelectorLabels returns the keys of the labels by which the request of a consumer may
	// select nodes, beside those of NodeSelector. With any label, the answers would tell of
	// single nodes. Selectable reports whether such a list accepts a further label; nil: none.
	SelectorLabels func(consumer string) []string
	Selectable     func(accepted []string, key string) bool
	// Accepts returns what this cluster accepts of a consumer's objects; nil: offers do not say it.
	Accepts func(consumer string) *sharingv1alpha1.Accepts
	// UpdateThreshold is the change of an amount, in percent, above which an offer follows
	// it.
	UpdateThreshold int64
	// Expiration is the lifetime of an offer, which is prolonged while the request exists.
	// 0 means that offers do not expire.
	Expiration time.Duration
	// Labels are set on the virtual nodes.
	Labels map[string]string
	// StorageClasses, IngressClasses and LoadBalancerClasses are the classes that consumers
	// may use. "*" stands for all classes of the cluster; it has no effect for load
	// balancer classes, which the API does not list.
	StorageClasses, IngressClasses, LoadBalancerClasses []string
	// Enforcement is set on the Quotas.
	Enforcement offloadingv1beta1.LimitsEnforcement
}

// Classes are the names of the cluster's classes, the default class first.
type Classes struct {
	Storage, Ingress []string
}

// Facts are the inputs of Decide.
type Facts struct {
	// Provider is this cluster's id, Consumer the id of the requesting cluster.
	Provider, Consumer string
	// Request is the consumer's request, or nil.
	Request *corev1beta1.CapacityRequest
	// Refused is the reason for which the consumer gets nothing, whatever capacity there
	// is. It is empty if the consumer may get some.
	Refused, RefusedMessage string
	// Nodes are the nodes of this cluster, Used the usage on them, and Others the holdings of
	// other consumers.
	Nodes  []*corev1.Node
	Used   []Use
	Others []Holding
	// Classes are the classes of this cluster.
	Classes Classes
	// Offers are the consumer's existing offers.
	Offers []*sharingv1alpha1.ResourceOffer
	Now    time.Time
}

// Decision is the answer to a request.
type Decision struct {
	// Phase, Reason and Message are written to the status of the request.
	Phase           sharingv1alpha1.RequestPhase
	Reason, Message string
	// Offers are the wanted offers, by name. Any other offer is withdrawn.
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
		return refused(reasons.SharingOff, "cluster %s shares no capacity", f.Provider)
	}
	// A mistake in the request ends no earlier offer.
	if err := errors.Join(checkRequest(f.Request), checkSelector(f, p)); err != nil {
		return asItIs(f, p, refused(reasons.InvalidRequest, "%v", err))
	}
	selector, err := bothSelectors(p.NodeSelector, f.Request.NodeSelector)
	if err != nil {
		return asItIs(f, p, refused(reasons.NoNodes, "%v", err))
	}
	nodes := nodesFor(f.Nodes, selector)
	live := liveOffers(f)
	if len(nodes) == 0 && len(live) == 0 {
		return refused(reasons.NoNodes, "cluster %s has no shared node with the labels %v", f.Provider, selector)
	}
	sum, short := grant(f, p, nodes, live)
	if lack := lacking(sum); len(lack) > 0 && len(live) == 0 {
		return refused(sharingv1alpha1.ReasonNoCapacity, "cluster %s has no %s left to give", f.Provider, strings.Join(lack, ", "))
	}
	d := Decision{Phase: sharingv1alpha1.RequestOffered, Reason: reasons.Offered, Offers: map[string]sharingv1alpha1.ResourceOfferSpec{}}
	n := min(max(int(f.Request.VirtualNodes), 1), sharingv1alpha1.MaxVirtualNodes)
	for i, part := range divide(sum, n) {
		name := sharingv1alpha1.OfferName(f.Provider, i+1)
		d.Offers[name] = offerSpec(f, p, name, part, selector)
	}
	if waiting := unapproved(d.Offers); len(waiting) > 0 {
		d.Phase, d.Reason = sharingv1alpha1.RequestManualActionRequired, sharingv1alpha1.ReasonApprovalRequired
		d.Message = fmt.Sprintf("an administrator of cluster %s must approve the offer: liqod offer approve %s -n %s", f.Provider, strings.Join(waiting, " "), corev1beta1.TenantNamespace(f.Consumer))
		return d
	}
	d.Message = fmt.Sprintf("offered as %d virtual node(s)%s", n, short)
	return d
}

// asItIs keeps the offers of a consumer as they are, and prolongs those that are not being
// withdrawn.
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

// liveOffers returns the consumer's offers that are not being withdrawn.
func liveOffers(f Facts) []*sharingv1alpha1.ResourceOffer {
	return slices.DeleteFunc(slices.Clone(f.Offers), func(o *sharingv1alpha1.ResourceOffer) bool { return o.Spec.WithdrawalTimestamp != nil })
}

// bothSelectors merges two node selectors. It returns an error if they contradict each
// other.
func bothSelectors(policy, asked map[string]string) (map[string]string, error) {
	for key, value := range asked {
		if other, ok := policy[key]; ok && other != value {
			return nil, fmt.Errorf("only nodes with %s=%s are shared, not such with %s=%s", key, other, key, value)
		}
	}
	return store.Merged(asked, maps.Clone(policy), nil), nil
}

// wantedResources returns the names of the resources to offer, sorted: the basic ones and
// the requested ones that the nodes have, or all that they have if the request names none.
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

// grant returns the total that a consumer gets, and a text about the amounts that fall
// short of the request.
func grant(f Facts, p Policy, nodes map[string]*corev1.Node, live []*sharingv1alpha1.ResourceOffer) (sum corev1.ResourceList, short string) {
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

// lacking returns those of the resources that every pod needs of which nothing is left.
func lacking(sum corev1.ResourceList) (names []string) {
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourcePods} {
		if amount := sum[name]; amount.Sign() <= 0 {
			names = append(names, string(name))
		}
	}
	return names
}

// offerSpec returns the wanted offer of that name, based on the existing one.
func offerSpec(f Facts, p Policy, name string, hard corev1.ResourceList, selector map[string]string) sharingv1alpha1.ResourceOfferSpec {
	i := slices.IndexFunc(f.Offers, func(o *sharingv1alpha1.ResourceOffer) bool { return o.Name == name })
	var have sharingv1alpha1.ResourceOfferSpec
	used := false
	if i >= 0 {
		have, used = *f.Offers[i].Spec.DeepCopy(), inUse(f.Offers[i])
	}
	if equality.Semantic.DeepEqual(have.ResourceQuota.Hard, hard) {
		hard = have.ResourceQuota.Hard // keep the notation of the existing offer
	}
	out := sharingv1alpha1.ResourceOfferSpec{
		ConsumerClusterID: f.Consumer, ProviderClusterID: f.Provider,
		Approved:      p.Mode == Automatic || have.Approved,
		ResourceQuota: corev1.ResourceQuotaSpec{Hard: hard}, NodeSelector: selector,
		Labels:              store.Merged(p.Labels, maps.Clone(f.Request.Labels), nil), // those of the policy override the requested ones
		Pressures:           pressuresOf(f.Nodes, selector),
		StorageClasses:      classesFor(p.StorageClasses, f.Classes.Storage, f.Request.StorageClasses),
		IngressClasses:      classesFor(p.IngressClasses, f.Classes.Ingress, f.Request.IngressClasses),
		LoadBalancerClasses: classesFor(p.LoadBalancerClasses, nil, f.Request.LoadBalancerClasses),
		Images:              have.Images, Prices: have.Prices,
		ExpirationTime: expiration(have.ExpirationTime, p.Expiration, f.Now),
	}
	if p.Accepts != nil {
		out.Accepts = p.Accepts(f.Consumer)
	}
	expired := out.ExpirationTime != nil && !out.ExpirationTime.After(f.Now)
	// If the approval is revoked or the expiration passes, the consumer drains its virtual
	// node first.
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

// inUse reports whether the consumer has a virtual node for an offer.
func inUse(o *sharingv1alpha1.ResourceOffer) bool { return o.Status.VirtualNode != "" }

// seconds truncates a time to the precision of the API.
func seconds(t time.Time) *metav1.Time { return ptr.To(metav1.NewTime(t.Truncate(time.Second))) }

// expiration returns the expiration time of an offer. It is prolonged after half of the
// lifetime. A time that a person set stays if the policy sets no lifetime.
func expiration(have *metav1.Time, lasts time.Duration, now time.Time) *metav1.Time {
	if lasts == 0 || have != nil && have.After(now.Add(lasts/2)) && !have.After(now.Add(lasts)) {
		return have
	}
	return seconds(now.Add(lasts))
}

// classesFor returns the classes of one kind that a consumer may use, in the order of the
// request, or else of the cluster. allowed is the policy's list. there is the cluster's
// list, or nil if it is unknown.
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
