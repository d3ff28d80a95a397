package roles

import (
	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	corelisters "github.com/liqod/liqod/api/generated/listers/core/v1beta1"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/roles/config"
	"github.com/liqod/liqod/shadow/rules"
)

// perPeer returns a function that returns, for the id of a peer, the result of read for the
// settings that apply to this peer. The lister must be filled before the function is called:
// a peer without ForeignCluster is trusted as sharing.trust says.
func perPeer[T any](cfg *config.Effective, clusters corelisters.ForeignClusterLister, read func(config.Config) T) func(peer string) T {
	of := map[corev1beta1.Trust]T{}
	for _, trust := range []corev1beta1.Trust{corev1beta1.TrustStrict, corev1beta1.TrustOrganisation} {
		of[trust] = read(cfg.Under(trust))
	}
	return func(peer string) T {
		return of[corev1beta1.TrustOf(store.Known(clusters.Get(peer)), cfg.Sharing.Trust)]
	}
}

// metadataOf returns the rule for labels and annotations that peers set.
func metadataOf(cfg config.Config) rules.Metadata {
	return rules.Metadata{Annotations: cfg.Sharing.Annotations, Labels: cfg.Sharing.LabelsLeftOut}
}
