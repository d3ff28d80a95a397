package offer

import (
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	sharingv1alpha1 "github.com/liqod/liqod/api/sharing/v1alpha1"
)

// ours reports whether a virtual node was made of an offer. One that people have made is
// never touched.
func ours(vn *offloadingv1beta1.VirtualNode) bool {
	return vn.Labels[offloadingv1beta1.ManagedByLabel] == sharingv1alpha1.ManagedByOffer
}

// virtualNode makes the virtual node of an offer, from the one that is there, if any: what
// the offer says is as it says, what people have set beside that stays. secret holds the
// credentials for the provider.
func virtualNode(have *offloadingv1beta1.VirtualNode, o *sharingv1alpha1.ResourceOffer, secret string) *offloadingv1beta1.VirtualNode {
	vn := &offloadingv1beta1.VirtualNode{ObjectMeta: metav1.ObjectMeta{Namespace: o.Namespace, Name: o.Name}}
	if have != nil {
		vn = have.DeepCopy()
	}
	if vn.Labels == nil {
		vn.Labels = map[string]string{}
	}
	vn.Labels[offloadingv1beta1.ManagedByLabel] = sharingv1alpha1.ManagedByOffer
	vn.Labels[corev1beta1.RemoteClusterIDLabel] = o.Spec.ProviderClusterID
	s := &vn.Spec
	s.ClusterID = o.Spec.ProviderClusterID
	s.KubeconfigSecretRef = corev1.LocalObjectReference{Name: secret}
	s.ResourceQuota.Hard = o.Spec.ResourceQuota.Hard.DeepCopy()
	s.Labels, s.Images = maps.Clone(o.Spec.Labels), o.DeepCopy().Spec.Images
	s.StorageClasses = offered(o.Spec.StorageClasses, func(c *offloadingv1beta1.ClassOffer) *string { return &c.StorageClassName })
	s.IngressClasses = offered(o.Spec.IngressClasses, func(c *offloadingv1beta1.ClassOffer) *string { return &c.IngressClassName })
	s.LoadBalancerClasses = offered(o.Spec.LoadBalancerClasses, func(c *offloadingv1beta1.ClassOffer) *string { return &c.LoadBalancerClassName })
	if s.OffloadingPatch != nil || len(o.Spec.NodeSelector) > 0 {
		if s.OffloadingPatch == nil {
			s.OffloadingPatch = &offloadingv1beta1.OffloadingPatch{}
		}
		s.OffloadingPatch.NodeSelector = maps.Clone(o.Spec.NodeSelector)
	}
	return vn
}

// offered makes entries of the names of classes: the first is the default.
func offered(names []string, field func(*offloadingv1beta1.ClassOffer) *string) (out []offloadingv1beta1.ClassOffer) {
	for i, name := range names {
		c := offloadingv1beta1.ClassOffer{Default: i == 0}
		*field(&c) = name
		out = append(out, c)
	}
	return out
}

// sameNode reports whether two virtual nodes are equal in what virtualNode sets.
func sameNode(a, b *offloadingv1beta1.VirtualNode) bool {
	return maps.Equal(a.Labels, b.Labels) && equality.Semantic.DeepEqual(a.Spec, b.Spec)
}

// AcceptMode says who decides about offers of providers.
type AcceptMode string

// Ways to accept offers.
const (
	// AcceptAutomatic: all that were asked for.
	AcceptAutomatic AcceptMode = "Automatic"
	// AcceptManual: those that somebody accepts (sharingv1alpha1.AcceptedAnnotation).
	AcceptManual AcceptMode = "Manual"
)

// Reasons of the status of a ResourceOffer, and of what becomes of it.
const (
	// ReasonAccepted says that a virtual node was made of the offer.
	ReasonAccepted = "Accepted"
	// ReasonAcceptanceRequired says that somebody in the consumer has to accept it.
	ReasonAcceptanceRequired = "AcceptanceRequired"
	// ReasonNotWanted says that the consumer does not use the provider (any more).
	ReasonNotWanted = "NotWanted"
	// ReasonWithdrawn says that the provider has taken the offer back.
	ReasonWithdrawn = "Withdrawn"
	// ReasonExpired says that the offer has ended.
	ReasonExpired = "Expired"
	// ReasonNameTaken says that there is a virtual node of that name that people have made.
	ReasonNameTaken = "NameTaken"
)

// plan is what is to be done about one offer.
type plan struct {
	// keep has a virtual node made, and kept as the offer says; drain removes the one that
	// was made of it; wait writes nothing at all. Else the virtual node stays as it is.
	keep, drain, wait bool
	// status to write, before anything is made and after it has gone; observedGeneration is
	// left out.
	status sharingv1alpha1.ResourceOfferStatus
	// again is when to look again, however nothing changes; 0: never.
	again time.Duration
}

// received are the facts about an offer that a provider makes this cluster.
type received struct {
	clusterID, provider string
	offer               *sharingv1alpha1.ResourceOffer
	// node is the virtual node of the offer's name; nil if there is none.
	node *offloadingv1beta1.VirtualNode
	// wanted tells whether capacity of the provider is wanted, secret the name of the
	// credentials for it; empty if there are none.
	wanted bool
	secret string
	mode   AcceptMode
	now    time.Time
}

// decide says what becomes of an offer. It is pure.
func (r received) decide() plan {
	s := r.offer.Spec
	expired := s.ExpirationTime != nil && !s.ExpirationTime.After(r.now)
	mine := r.node != nil && ours(r.node)
	is := func(phase sharingv1alpha1.OfferPhase, reason, message string) sharingv1alpha1.ResourceOfferStatus {
		out := sharingv1alpha1.ResourceOfferStatus{Phase: phase, Reason: reason, Message: message}
		if mine {
			out.VirtualNode = r.node.Name
		}
		return out
	}
	switch {
	case !r.wanted:
		return plan{drain: mine, status: is(sharingv1alpha1.OfferRefused, ReasonNotWanted, "cluster "+r.clusterID+" does not want to use cluster "+r.provider)}
	case s.WithdrawalTimestamp != nil:
		return plan{drain: mine, status: is(sharingv1alpha1.OfferRefused, ReasonWithdrawn, "cluster "+r.provider+" takes the offer back")}
	case expired:
		return plan{drain: mine, status: is(sharingv1alpha1.OfferRefused, ReasonExpired, "the offer has ended")}
	}
	var again time.Duration
	if s.ExpirationTime != nil {
		again = s.ExpirationTime.Sub(r.now)
	}
	if why := checkOffer(r.clusterID, r.provider, r.offer); why != nil {
		return plan{again: again, status: is(sharingv1alpha1.OfferRefused, sharingv1alpha1.ReasonInvalidOffer, short(why.Error()))}
	}
	switch {
	case r.node != nil && !mine:
		return plan{again: again, status: is(sharingv1alpha1.OfferManualActionRequired, ReasonNameTaken,
			"cluster "+r.clusterID+" has a VirtualNode "+r.node.Name+" that was made by hand: it stays as it is; the offer is taken when that is deleted")}
	case !mine && r.mode == AcceptManual && r.offer.Annotations[sharingv1alpha1.AcceptedAnnotation] != "true":
		return plan{again: again, status: is(sharingv1alpha1.OfferManualActionRequired, ReasonAcceptanceRequired,
			"somebody of cluster "+r.clusterID+" has to accept it: liqod offer approve "+r.offer.Name+" -n "+r.offer.Namespace)}
	}
	if r.secret == "" && !mine {
		return plan{again: again, wait: true} // who finds credentials wakes us
	}
	status := sharingv1alpha1.ResourceOfferStatus{Phase: sharingv1alpha1.OfferAccepted, Reason: ReasonAccepted, Message: "used as virtual node " + r.offer.Name, VirtualNode: r.offer.Name}
	return plan{keep: true, again: again, status: status}
}

// longestMessage bounds what is told of a peer's mistakes, in bytes.
const longestMessage = 1024

func short(message string) string {
	if len(message) > longestMessage {
		message = message[:longestMessage]
	}
	return message
}
