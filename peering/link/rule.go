package link

import (
	"context"
	"errors"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	corelisters "github.com/liqod/liqod/api/generated/listers/core/v1beta1"
	"github.com/liqod/liqod/kube/serve"
	"github.com/liqod/liqod/kube/store"
)

// Rule is the webhook's rule for ForeignClusters.
type Rule struct {
	ForeignClusters corelisters.ForeignClusterLister
	// Synced reports whether ForeignClusters is known.
	Synced cache.InformerSynced
	// ClusterID is this cluster's id.
	ClusterID string
}

// Decide judges what is written. An error says that the cache could not be read.
func (r Rule) Decide(_ context.Context, req *admissionv1.AdmissionRequest) (serve.Decision, error) {
	obj, old, answer := serve.Objects[corev1beta1.ForeignCluster](req)
	switch {
	case answer != nil:
		return *answer, nil
	case obj.DeletionTimestamp != nil:
		return serve.Allow(), nil
	case !r.Synced():
		return serve.Decision{}, errors.New("the ForeignClusters are not read yet")
	}
	all := store.Listed(r.ForeignClusters.List(labels.Everything()))
	review := Review{New: obj, Old: old, ClusterID: r.ClusterID}
	for _, fc := range all {
		if fc.Name != obj.Name {
			review.Others = append(review.Others, fc)
		}
	}
	return serve.Verdict(review.Judge()), nil
}
