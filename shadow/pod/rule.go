package pod

import (
	"context"
	"slices"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	offloadinglisters "github.com/liqod/liqod/api/generated/listers/offloading/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/serve"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/shadow/rules"
)

// Rule is the webhook's rule for ShadowPods: it refuses those whose pods could not ever
// begin under their consumer's Quotas. It only says earlier what the Enforcer says of them.
type Rule struct {
	Quotas      offloadinglisters.QuotaLister
	LimitRanges corelisters.LimitRangeLister
	// Synced tell whether the caches are known; until then all is let through.
	Synced []cache.InformerSynced
}

// Decide judges a creation by a peer, under the Quotas of that peer. The labels of the
// ShadowPod do not count: by the answers, a peer would read the Quotas of another one. An
// error says that the caches could not be read.
func (r Rule) Decide(_ context.Context, req *admissionv1.AdmissionRequest) (serve.Decision, error) {
	peer := corev1beta1.PeerOfUser(req.UserInfo.Username)
	if req.Operation != admissionv1.Create || peer == "" || slices.ContainsFunc(r.Synced, func(synced cache.InformerSynced) bool { return !synced() }) {
		return serve.Allow(), nil
	}
	shadow, _, answer := serve.Objects[offloadingv1beta1.ShadowPod](req)
	if answer != nil {
		return *answer, nil
	}
	quotas := store.Listed(r.Quotas.Quotas(corev1beta1.TenantNamespace(peer)).List(labels.Everything()))
	ranges := store.Listed(r.LimitRanges.LimitRanges(req.Namespace).List(labels.Everything()))
	reason, message := rules.NeverFits(shadow, quotas, ranges)
	return serve.Decision{Allowed: message == "", Message: message, Cause: metav1.CauseType(reason)}, nil
}
