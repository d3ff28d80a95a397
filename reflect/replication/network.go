package replication

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/liqod/liqod/api/generated/clientset/versioned"
	externalversions "github.com/liqod/liqod/api/generated/informers/externalversions"
	networkingv1beta1 "github.com/liqod/liqod/api/networking/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/store"
)

type configuration = *networkingv1beta1.Configuration

// configurationKind is what the Configurations of both directions have in common.
func configurationKind() kind[configuration] {
	return kind[configuration]{
		name: "Configuration",
		empty: func() configuration {
			return &networkingv1beta1.Configuration{}
		},
		client: func(c versioned.Interface, namespace string) writer[configuration] {
			return c.NetworkingV1beta1().Configurations(namespace)
		},
		informer: func(f externalversions.SharedInformerFactory) cache.SharedIndexInformer {
			return f.Networking().V1beta1().Configurations().Informer()
		},
	}
}

// configurationsOut describes the replication of this cluster's own Configuration to the
// peer that it is for. published reports, by a live read, whether this cluster has one for a
// peer.
func configurationsOut(clusterID string, published func(ctx context.Context, peer string) (bool, error)) pushed[configuration] {
	k := configurationKind()
	k.concerns, k.selector = namedAsPeer, ofOrigin(clusterID)
	return pushed[configuration]{
		kind: k,
		push: func(home, remote configuration) { remote.Spec = *home.Spec.DeepCopy() },
		// A restored cluster publishes its Configuration again: nothing of the copy is kept.
		keep: func(_, _ configuration) {},
		pull: answerConfiguration,
		fail: func(message string, now time.Time, home configuration) {
			failed(home, &home.Status.Conditions, networkingv1beta1.ConditionReady, message, now)
		},
		wanted: published,
	}
}

// configurationsIn describes the replication of a peer's Configuration for this cluster to
// this cluster. It is for peers that cannot dial this cluster; others push theirs. held
// reports whether this cluster still publishes a Configuration for the peer.
func configurationsIn(clusterID string, held func() bool) pulled[configuration] {
	k := configurationKind()
	k.loop = "ConfigurationOfPeer"
	k.concerns, k.selector = func(_, name string) bool { return name == clusterID }, offloadingv1beta1.ReplicatedLabel+"!=true"
	return pulled[configuration]{
		kind:  k,
		given: func(configuration) bool { return true },
		// What it says is checked where it is answered, with all that it may not overlap.
		check: func(configuration) error { return nil },
		refuse: func(remote configuration, why error) {
			remote.Status.ObservedGeneration = remote.Generation
			remote.Status.Conditions = slices.Clone(remote.Status.Conditions)
			store.SetCondition(&remote.Status.Conditions, metav1.Condition{
				Type: networkingv1beta1.ConditionReady, Status: metav1.ConditionFalse, Reason: networkingv1beta1.ReasonInvalid,
				Message: bounded(fmt.Sprintf("cluster %s does not use it: %s", clusterID, why)), ObservedGeneration: remote.Generation,
			})
		},
		take:   func(remote, home configuration) { home.Spec = *remote.Spec.DeepCopy() },
		answer: answerConfiguration,
		used:   func(configuration) bool { return held() },
		ended:  func(configuration) bool { return false },
	}
}

// answerConfiguration copies the answer of the cluster that has received a Configuration to
// the one that has written it. The answer may be a peer's: ranges that were not written, and
// what is no view of their size, are dropped. Until there is an answer, the previous one
// stays.
func answerConfiguration(received, written configuration) {
	if received.Status.ObservedGeneration == 0 {
		return
	}
	status := networkingv1beta1.ConfigurationStatus{
		ObservedGeneration: answeredGeneration(received, written, received.Status.ObservedGeneration, written.Status.ObservedGeneration, equality.Semantic.DeepEqual(received.Spec, written.Spec)),
	}
	for _, c := range acceptable(received.Status.Conditions, status.ObservedGeneration) {
		if c.Type == networkingv1beta1.ConditionReady {
			status.Conditions = []metav1.Condition{c}
		}
	}
	if from, to := received.Status.Local, received.Status.Remote; from != nil && to != nil {
		local, remote := &networkingv1beta1.MappedNetwork{}, &networkingv1beta1.MappedNetwork{}
		cidr := networkingv1beta1.MappedCIDR(written.Spec.Local.CIDR)
		for _, use := range networkingv1beta1.RangeUses() {
			own, seen := answers(*cidr.Of(use), *from.CIDR.Of(use), *to.CIDR.Of(use))
			if *local.CIDR.Of(use), *remote.CIDR.Of(use) = own, seen; len(own) > 0 {
				status.Local, status.Remote = local, remote
			}
		}
	}
	written.Status = status
}

// answers returns those of the ranges that have an answer, and their views.
func answers(ranges, from, to []networkingv1beta1.CIDR) (own, seen []networkingv1beta1.CIDR) {
	for _, r := range ranges {
		i := slices.Index(from, r)
		if i < 0 || i >= len(to) {
			continue
		}
		p, ok := r.Prefix()
		view, valid := to[i].Prefix()
		if ok && valid && sameSize(p, view) {
			own, seen = append(own, r), append(seen, networkingv1beta1.CIDR(view.String()))
		}
	}
	return own, seen
}

func sameSize(a, b netip.Prefix) bool {
	return a.Bits() == b.Bits() && a.Addr().BitLen() == b.Addr().BitLen()
}
