package offer

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/tools/cache"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	offloadinginformers "github.com/liqod/liqod/api/generated/informers/externalversions/offloading/v1beta1"
	sharinginformers "github.com/liqod/liqod/api/generated/informers/externalversions/sharing/v1alpha1"
	sharingv1alpha1 "github.com/liqod/liqod/api/sharing/v1alpha1"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/peering/link"
	"github.com/liqod/liqod/reasons"
)

// Direction computes the condition for one direction of the peerings. It implements
// link.Source, and is safe for concurrent use.
type Direction struct {
	clusterID string
	policy    link.Policy
	outgoing  bool
	requests  sharinginformers.ResourceRequestInformer
	offers    sharinginformers.ResourceOfferInformer
	nodes     offloadinginformers.VirtualNodeInformer // of the outgoing direction; otherwise nil
	tenants   coreinformers.NamespaceInformer         // of the incoming direction; otherwise nil
}

// NewOutgoing returns the Direction for this cluster's use of its peers.
func NewOutgoing(clusterID string, policy link.Policy, requests sharinginformers.ResourceRequestInformer, offers sharinginformers.ResourceOfferInformer, nodes offloadinginformers.VirtualNodeInformer) *Direction {
	return &Direction{clusterID: clusterID, policy: policy, outgoing: true, requests: requests, offers: offers, nodes: nodes}
}

// NewIncoming returns the Direction for the peers' use of this cluster. Events of tenants lead to a
// new condition anyway.
func NewIncoming(clusterID string, policy link.Policy, requests sharinginformers.ResourceRequestInformer, offers sharinginformers.ResourceOfferInformer, tenants coreinformers.NamespaceInformer) *Direction {
	return &Direction{clusterID: clusterID, policy: policy, requests: requests, offers: offers, tenants: tenants}
}

// informers returns the informers that the condition depends on.
func (d *Direction) informers() []cache.SharedIndexInformer {
	out := []cache.SharedIndexInformer{d.requests.Informer(), d.offers.Informer()}
	if d.outgoing {
		out = append(out, d.nodes.Informer())
	}
	return out
}

// Subscribe registers f, which is called with a peer's id after each event that may change
// the peer's condition. It must be called before the informers run. f must not block.
func (d *Direction) Subscribe(f func(clusterID string)) {
	for _, inf := range d.informers() {
		// Fails for an informer that has stopped only.
		_, _ = inf.AddEventHandler(store.Each(func(obj any) {
			for _, key := range tenantKey(obj) {
				f(key.Name)
			}
		}))
	}
}

// Condition returns the condition for a peer. It returns nil if the direction is not wanted
// or, for the incoming direction, has not been in use.
func (d *Direction) Condition(fc *corev1beta1.ForeignCluster) *metav1.Condition {
	kind, provider := corev1beta1.ConditionIncomingPeering, d.clusterID
	if d.outgoing {
		if !link.OutgoingWanted(fc, d.policy) {
			return nil
		}
		kind, provider = corev1beta1.ConditionOutgoingPeering, fc.Spec.ClusterID
	}
	if slices.ContainsFunc(d.informers(), func(inf cache.SharedIndexInformer) bool { return !inf.HasSynced() }) {
		return link.Standing(fc, kind)
	}
	namespace := corev1beta1.TenantNamespace(fc.Spec.ClusterID)
	request := store.Known(d.requests.Lister().ResourceRequests(namespace).Get(provider))
	if request != nil && replicated(request) == d.outgoing {
		request = nil
	}
	all := store.Listed(d.offers.Lister().ResourceOffers(namespace).List(labels.Everything()))
	offers := slices.DeleteFunc(slices.Clone(all), func(o *sharingv1alpha1.ResourceOffer) bool { return replicated(o) != d.outgoing })
	slices.SortFunc(offers, func(a, b *sharingv1alpha1.ResourceOffer) int { return strings.Compare(a.Name, b.Name) })
	if d.outgoing {
		return outgoing(fc.Spec.ClusterID, request, offers, func(name string) bool {
			_, err := d.nodes.Lister().VirtualNodes(namespace).Get(name)
			return err == nil
		})
	}
	if c := incoming(fc.Spec.ClusterID, request, offers); c != nil || !left(fc) {
		return c
	}
	if d.lost(fc) {
		return no(corev1beta1.ReasonTenantAwaited, "namespace %s was deleted here, and with it what cluster %s asks for: liqod makes the namespace again, and cluster %s asks again within a minute after that; its pods run on",
			namespace, fc.Spec.ClusterID, fc.Spec.ClusterID)
	}
	return no(corev1beta1.ReasonEndedByPeer, "cluster %s has ended its use of this cluster, and has nothing here any more: if its people have ended the peering, end it here, too (liqod unpeer %s)",
		fc.Spec.ClusterID, fc.Spec.ClusterID)
}

// left reports whether a peer that only consumes has had a request here, and may have one again.
// The condition about it is the memory of the request: the consumer itself has deleted it, as it
// creates one again that was deleted here.
func left(fc *corev1beta1.ForeignCluster) bool {
	return fc.DeletionTimestamp == nil && fc.Spec.UserName != "" && fc.Status.Role == corev1beta1.RoleConsumer &&
		meta.FindStatusCondition(fc.Status.Conditions, corev1beta1.ConditionIncomingPeering) != nil
}

// lost reports whether the request of a peer went with the tenant namespace: the namespace is
// not there, or it is younger than the condition about the request.
func (d *Direction) lost(fc *corev1beta1.ForeignCluster) bool {
	have := meta.FindStatusCondition(fc.Status.Conditions, corev1beta1.ConditionIncomingPeering)
	ns, err := d.tenants.Lister().Get(corev1beta1.TenantNamespace(fc.Spec.ClusterID))
	return err != nil || ns.DeletionTimestamp != nil || have.Reason == corev1beta1.ReasonTenantAwaited || have.LastTransitionTime.Before(&ns.CreationTimestamp)
}

func no(reason, format string, args ...any) *metav1.Condition {
	return &metav1.Condition{Status: metav1.ConditionFalse, Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// outgoing returns the condition for the use of a provider. An accepted offer counts as
// used only once its virtual node exists. The condition quotes messages of the provider,
// but not its reasons, as the API validates the syntax of a reason.
func outgoing(provider string, request *sharingv1alpha1.ResourceRequest, offers []*sharingv1alpha1.ResourceOffer, made func(virtualNode string) bool) *metav1.Condition {
	var used, unused []string
	for _, o := range offers {
		accepted := o.Status.Phase == sharingv1alpha1.OfferAccepted
		switch {
		case accepted && made(o.Status.VirtualNode):
			used = append(used, o.Status.VirtualNode)
		case accepted:
			unused = append(unused, fmt.Sprintf("%s: virtual node %s is being created", o.Name, o.Status.VirtualNode))
		default:
			unused = append(unused, o.Name+": "+cmp.Or(o.Status.Message, "it has just come, and is being judged"))
		}
	}
	switch {
	case len(used) > 0 && request != nil && request.Status.Reason == sharingv1alpha1.ReasonReplicationFailed:
		return no(sharingv1alpha1.ReasonReplicationFailed, "cluster %s is used as virtual node %s, but does not take what this cluster asks it for; if namespace %s was deleted there, its liqod makes it again, and this passes: %s",
			provider, strings.Join(used, ", "), corev1beta1.TenantNamespace(request.Spec.ConsumerClusterID), request.Status.Message)
	case len(used) > 0:
		return &metav1.Condition{Status: metav1.ConditionTrue, Reason: reasons.Accepted, Message: "cluster " + provider + " is used as virtual node " + strings.Join(used, ", ")}
	case request == nil:
		return no(sharingv1alpha1.ReasonNotAsked, "no capacity has been requested from cluster %s yet: this cluster needs credentials for it first", provider)
	case request.Status.Reason == sharingv1alpha1.ReasonReplicationFailed:
		return no(sharingv1alpha1.ReasonReplicationFailed, "%s", request.Status.Message)
	case request.Status.Phase == sharingv1alpha1.RequestRefused:
		return no(reasons.RequestRefused, "%s", request.Status.Message)
	case len(unused) > 0:
		return no(reasons.OfferNotUsed, "%s", strings.Join(unused, "; "))
	case request.Status.Phase == sharingv1alpha1.RequestManualActionRequired:
		return no(sharingv1alpha1.ReasonApprovalRequired, "%s", request.Status.Message)
	case request.Status.Phase == sharingv1alpha1.RequestOffered:
		return no(reasons.OfferNotUsed, "cluster %s has made an offer, which is being fetched", provider)
	}
	return no(reasons.NotAnswered, "cluster %s has not answered the request yet", provider)
}

// incoming returns the condition for the use by a consumer. It returns nil if the consumer
// has no request and no offer in use.
func incoming(consumer string, request *sharingv1alpha1.ResourceRequest, offers []*sharingv1alpha1.ResourceOffer) *metav1.Condition {
	used, ending := 0, 0
	var unused []string
	for _, o := range offers {
		switch {
		case o.Spec.WithdrawalTimestamp != nil && inUse(o):
			ending++
		case o.Status.Phase == sharingv1alpha1.OfferAccepted && o.Spec.Approved:
			used++
		case o.Status.Message != "":
			unused = append(unused, fmt.Sprintf("%s: %s", o.Name, o.Status.Message))
		}
	}
	switch {
	case used > 0:
		return &metav1.Condition{Status: metav1.ConditionTrue, Reason: reasons.Accepted, Message: fmt.Sprintf("cluster %s uses %d of %d offers", consumer, used, len(offers))}
	case ending > 0:
		return no(reasons.Withdrawn, "cluster %s must return %d offer(s) and drain its pods", consumer, ending)
	case request == nil:
		return nil
	case request.Status.Phase == sharingv1alpha1.RequestRefused && request.Status.Reason != "":
		return no(request.Status.Reason, "%s", request.Status.Message)
	case request.Status.Phase == sharingv1alpha1.RequestManualActionRequired:
		return no(sharingv1alpha1.ReasonApprovalRequired, "%s", request.Status.Message)
	case len(unused) > 0:
		return no(reasons.OfferNotUsed, "%s", strings.Join(unused, "; "))
	}
	return no(reasons.NotAnswered, "cluster %s has not accepted the offer yet", consumer)
}
