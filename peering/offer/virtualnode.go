package offer

import (
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	sharingv1alpha1 "github.com/liqod/liqod/api/sharing/v1alpha1"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/reasons"
)

// ours reports whether a VirtualNode was created for an offer. VirtualNodes that people
// created are never changed.
func ours(vn *offloadingv1beta1.VirtualNode) bool {
	return vn.Labels[offloadingv1beta1.ManagedByLabel] == sharingv1alpha1.ManagedByOffer
}

// virtualNode returns the VirtualNode of an offer, based on the existing one. It sets the
// fields that the offer determines; other fields stay. secret is the name of the Secret
// with the credentials for the provider.
func virtualNode(have *offloadingv1beta1.VirtualNode, o *sharingv1alpha1.ResourceOffer, secret string) *offloadingv1beta1.VirtualNode {
	vn := &offloadingv1beta1.VirtualNode{ObjectMeta: metav1.ObjectMeta{Namespace: o.Namespace, Name: o.Name}}
	if have != nil {
		vn = have.DeepCopy()
	}
	metav1.SetMetaDataLabel(&vn.ObjectMeta, offloadingv1beta1.ManagedByLabel, sharingv1alpha1.ManagedByOffer)
	metav1.SetMetaDataLabel(&vn.ObjectMeta, corev1beta1.RemoteClusterIDLabel, o.Spec.ProviderClusterID)
	s := &vn.Spec
	s.ClusterID = o.Spec.ProviderClusterID
	s.KubeconfigSecretRef = corev1.LocalObjectReference{Name: secret}
	s.ResourceQuota.Hard = o.Spec.ResourceQuota.Hard.DeepCopy()
	s.Labels, s.Images = maps.Clone(o.Spec.Labels), o.DeepCopy().Spec.Images
	s.Pressures = slices.Clone(o.Spec.Pressures)
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

// offered returns the class entries for a list of names. The first one is the default.
func offered(names []string, field func(*offloadingv1beta1.ClassOffer) *string) (out []offloadingv1beta1.ClassOffer) {
	for i, name := range names {
		c := offloadingv1beta1.ClassOffer{Default: i == 0}
		*field(&c) = name
		out = append(out, c)
	}
	return out
}

// plan is the decision on one offer.
type plan struct {
	// keep creates or updates the virtual node; drain deletes it; wait writes nothing at
	// all. If none is set, the virtual node stays as it is.
	keep, drain, wait bool
	// status is written before a virtual node is created and after it is deleted, without
	// observedGeneration.
	status sharingv1alpha1.ResourceOfferStatus
	// again is the delay before the next sync; 0: none is needed.
	again time.Duration
}

// received are the facts about an offer of a provider.
type received struct {
	clusterID, provider string
	offer               *sharingv1alpha1.ResourceOffer
	// node is the VirtualNode with the offer's name, or nil.
	node *offloadingv1beta1.VirtualNode
	// wanted reports whether this cluster wants capacity of the provider. secret is the
	// name of the Secret with the credentials for it, or "".
	wanted bool
	secret string
	mode   Mode
	now    time.Time
}

// decide returns the plan for the offer. It is pure.
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
		return plan{drain: mine, status: is(sharingv1alpha1.OfferRefused, reasons.NotWanted, "cluster "+r.clusterID+" does not want to use cluster "+r.provider)}
	case s.WithdrawalTimestamp != nil:
		return plan{drain: mine, status: is(sharingv1alpha1.OfferRefused, reasons.Withdrawn, "cluster "+r.provider+" withdraws the offer")}
	case expired:
		return plan{drain: mine, status: is(sharingv1alpha1.OfferRefused, reasons.Expired, "the offer has ended")}
	}
	var again time.Duration
	if s.ExpirationTime != nil {
		again = s.ExpirationTime.Sub(r.now)
	}
	if why := checkOffer(r.clusterID, r.provider, r.offer); why != nil {
		return plan{again: again, status: is(sharingv1alpha1.OfferRefused, sharingv1alpha1.ReasonInvalidOffer, store.ClipMessage(why.Error()))}
	}
	switch {
	case r.node != nil && !mine:
		return plan{again: again, status: is(sharingv1alpha1.OfferManualActionRequired, reasons.NameTaken,
			"cluster "+r.clusterID+" has a VirtualNode "+r.node.Name+" that was made by hand: it stays as it is; the offer is taken when that is deleted")}
	case !mine && r.mode == Manual && r.offer.Annotations[sharingv1alpha1.AcceptedAnnotation] != "true":
		return plan{again: again, status: is(sharingv1alpha1.OfferManualActionRequired, sharingv1alpha1.ReasonAcceptanceRequired,
			"somebody of cluster "+r.clusterID+" has to accept it: liqod offer approve "+r.offer.Name+" -n "+r.offer.Namespace)}
	}
	if r.secret == "" && !mine {
		return plan{again: again, wait: true} // Consumer.Changed queues the key when there are credentials
	}
	status := sharingv1alpha1.ResourceOfferStatus{Phase: sharingv1alpha1.OfferAccepted, Reason: reasons.Accepted, Message: "used as virtual node " + r.offer.Name, VirtualNode: r.offer.Name}
	return plan{keep: true, again: again, status: status}
}
