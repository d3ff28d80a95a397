package replication

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/liqod/liqod/api/generated/clientset/versioned"
	externalversions "github.com/liqod/liqod/api/generated/informers/externalversions"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	sharingv1alpha1 "github.com/liqod/liqod/api/sharing/v1alpha1"
)

// resourceRequests describes the replication of ResourceRequests to the provider. wanted
// reports, by a live read, whether this cluster wants capacity of a peer.
func resourceRequests(clusterID string, wanted func(ctx context.Context, peer string) (bool, error)) pushed[*sharingv1alpha1.ResourceRequest] {
	type rr = *sharingv1alpha1.ResourceRequest
	return pushed[rr]{
		kind: kind[rr]{
			name: "ResourceRequest", concerns: namedAsPeer, selector: ofOrigin(clusterID),
			empty: func() rr { return &sharingv1alpha1.ResourceRequest{} },
			client: func(c versioned.Interface, namespace string) writer[rr] {
				return c.SharingV1alpha1().ResourceRequests(namespace)
			},
			informer: func(f externalversions.SharedInformerFactory) cache.SharedIndexInformer {
				return f.Sharing().V1alpha1().ResourceRequests().Informer()
			},
		},
		push: func(home, remote rr) { remote.Spec = *home.Spec.DeepCopy() },
		keep: func(_, _ rr) {},
		pull: pullRequest,
		fail: func(message string, _ time.Time, home rr) {
			status := sharingv1alpha1.ResourceRequestStatus{ObservedGeneration: home.Status.ObservedGeneration}
			if message != "" {
				status.Phase, status.Reason, status.Message = sharingv1alpha1.RequestPending, sharingv1alpha1.ReasonReplicationFailed, bounded(message)
			} else if home.Status.Reason != sharingv1alpha1.ReasonReplicationFailed {
				return
			}
			home.Status = status
		},
		wanted: wanted,
	}
}

// pullRequest copies the status of a ResourceRequest from the provider. Until the
// provider has answered, its previous answer stays.
func pullRequest(remote, home *sharingv1alpha1.ResourceRequest) {
	if remote.Status.ObservedGeneration == 0 {
		return
	}
	home.Status = sharingv1alpha1.ResourceRequestStatus{
		ObservedGeneration: answeredGeneration(remote, home, remote.Status.ObservedGeneration, home.Status.ObservedGeneration, equality.Semantic.DeepEqual(remote.Spec, home.Spec)),
		Phase:              remote.Status.Phase, Reason: bounded(remote.Status.Reason), Message: bounded(remote.Status.Message),
	}
}

// resourceOffers describes the replication of ResourceOffers from one provider to this
// cluster.
func resourceOffers(clusterID, provider string) pulled[*sharingv1alpha1.ResourceOffer] {
	type ro = *sharingv1alpha1.ResourceOffer
	return pulled[ro]{
		kind: kind[ro]{
			name: "ResourceOffer", concerns: sharingv1alpha1.ValidOfferName,
			selector: offloadingv1beta1.ReplicatedLabel + "!=true",
			empty:    func() ro { return &sharingv1alpha1.ResourceOffer{} },
			client: func(c versioned.Interface, namespace string) writer[ro] {
				return c.SharingV1alpha1().ResourceOffers(namespace)
			},
			informer: func(f externalversions.SharedInformerFactory) cache.SharedIndexInformer {
				return f.Sharing().V1alpha1().ResourceOffers().Informer()
			},
		},
		given: func(remote ro) bool { return remote.Spec.Approved },
		check: func(remote ro) error {
			if remote.Spec.ConsumerClusterID != clusterID || remote.Spec.ProviderClusterID != provider {
				return fmt.Errorf("it is an offer of %q to %q: an offer of %s to %s is accepted", remote.Spec.ProviderClusterID, remote.Spec.ConsumerClusterID, provider, clusterID)
			}
			return nil
		},
		refuse: func(remote ro, why error) {
			remote.Status = sharingv1alpha1.ResourceOfferStatus{ObservedGeneration: remote.Generation, Phase: sharingv1alpha1.OfferRefused,
				Reason: sharingv1alpha1.ReasonInvalidOffer, Message: bounded(why.Error())}
		},
		take:   func(remote, home ro) { home.Spec = *remote.Spec.DeepCopy() },
		answer: answerOffer,
		used:   func(home ro) bool { return home.Status.VirtualNode != "" },
		ended:  func(home ro) bool { return home.Spec.WithdrawalTimestamp != nil },
		end: func(home ro, now time.Time) {
			at := metav1.NewTime(now)
			home.Spec.WithdrawalTimestamp = &at
		},
	}
}

// answerOffer copies the status of the local copy to the provider's ResourceOffer.
func answerOffer(home, remote *sharingv1alpha1.ResourceOffer) {
	if home.Status.ObservedGeneration == 0 {
		return // there is no answer yet
	}
	generation := answeredGeneration(home, remote, home.Status.ObservedGeneration, remote.Status.ObservedGeneration, equality.Semantic.DeepEqual(home.Spec, remote.Spec))
	remote.Status = home.Status
	remote.Status.ObservedGeneration = generation
}
