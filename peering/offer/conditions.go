package offer

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	sharingv1alpha1 "github.com/liqod/liqod/api/sharing/v1alpha1"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/peering/link"
	"github.com/liqod/liqod/reasons"
)

// Subscribe implements link.Source.
func (c *Consumer) Subscribe(f func(clusterID string)) { tellPeers(f, c.conditionInformers()...) }

// conditionInformers returns the informers that the condition depends on.
func (c *Consumer) conditionInformers() []cache.SharedIndexInformer {
	return []cache.SharedIndexInformer{c.cfg.Requests.Informer(), c.cfg.Offers.Informer(), c.cfg.VirtualNodes.Informer()}
}

// Condition implements link.Source: it returns the condition for this cluster's use of a peer, or
// nil if that is not wanted.
func (c *Consumer) Condition(fc *corev1beta1.ForeignCluster) *metav1.Condition {
	if !link.OutgoingWanted(fc, c.cfg.Outgoing) {
		return nil
	}
	if !cachesFilled(c.conditionInformers()...) {
		return link.Standing(fc, corev1beta1.ConditionOutgoingPeering)
	}
	s := c.gather(fc.Spec.ClusterID)
	return outgoing(s.provider, s.request, offersInOrder(s.offers), func(name string) bool { return s.nodes[name] != nil })
}

// Subscribe implements link.Source. Events of tenant namespaces lead to a new condition anyway.
func (p *Provider) Subscribe(f func(clusterID string)) {
	tellPeers(f, p.cfg.Requests.Informer(), p.cfg.Offers.Informer())
}

// Condition implements link.Source: it returns the condition for a peer's use of this cluster, or nil
// if that has not been in use.
func (p *Provider) Condition(fc *corev1beta1.ForeignCluster) *metav1.Condition {
	if !cachesFilled(p.cfg.Requests.Informer(), p.cfg.Offers.Informer()) {
		return link.Standing(fc, corev1beta1.ConditionIncomingPeering)
	}
	consumer, namespace := fc.Spec.ClusterID, corev1beta1.TenantNamespace(fc.Spec.ClusterID)
	request := store.Known(p.cfg.Requests.Lister().ResourceRequests(namespace).Get(p.cfg.ClusterID))
	if request != nil && !replicated(request) {
		request = nil
	}
	offers := store.Listed(p.cfg.Offers.Lister().ResourceOffers(namespace).List(labels.Everything()))
	offers = slices.DeleteFunc(offers, func(o *sharingv1alpha1.ResourceOffer) bool { return replicated(o) })
	if c := incoming(consumer, request, offersInOrder(offers)); c != nil || !left(fc) {
		return c
	}
	if p.lost(fc) {
		return no(corev1beta1.ReasonTenantAwaited, "namespace %s was deleted here, and with it what cluster %s asks for: liqod makes the namespace again, and cluster %s asks again within a minute after that; its pods run on",
			namespace, consumer, consumer)
	}
	return no(corev1beta1.ReasonEndedByPeer, "cluster %s has ended its use of this cluster, and has nothing here any more: if its people have ended the peering, end it here, too (liqod unpeer %s)",
		consumer, consumer)
}

// tellPeers calls f with the peer of each object that changes.
func tellPeers(f func(clusterID string), informers ...cache.SharedIndexInformer) {
	for _, inf := range informers {
		// Fails for an informer that has stopped only.
		_, _ = inf.AddEventHandler(store.Each(func(obj any) {
			for _, key := range tenantKey(obj) {
				f(key.Name)
			}
		}))
	}
}

func cachesFilled(informers ...cache.SharedIndexInformer) bool {
	return !slices.ContainsFunc(informers, func(inf cache.SharedIndexInformer) bool { return !inf.HasSynced() })
}

func offersInOrder(offers []*sharingv1alpha1.ResourceOffer) []*sharingv1alpha1.ResourceOffer {
	slices.SortFunc(offers, func(a, b *sharingv1alpha1.ResourceOffer) int { return strings.Compare(a.Name, b.Name) })
	return offers
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
func (p *Provider) lost(fc *corev1beta1.ForeignCluster) bool {
	have := meta.FindStatusCondition(fc.Status.Conditions, corev1beta1.ConditionIncomingPeering)
	ns, err := p.cfg.Namespaces.Lister().Get(corev1beta1.TenantNamespace(fc.Spec.ClusterID))
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
