package roles

import (
	"context"
	"encoding/json"
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/labels"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	offloadinglisters "github.com/liqod/liqod/api/generated/listers/offloading/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/admit"
	"github.com/liqod/liqod/shadow/rules"
)

// validateShadowPodPath is the path of the rule for what peers ask for.
const validateShadowPodPath = "/validate/shadowpod"

// shadowPodRule refuses ShadowPods whose pods could not ever begin under their consumer's
// Quotas. It only says earlier what the controller says of them.
type shadowPodRule struct {
	quotas offloadinglisters.QuotaLister
	ranges corelisters.LimitRangeLister
	synced []cache.InformerSynced
}

func (r shadowPodRule) decide(_ context.Context, req *admissionv1.AdmissionRequest) admit.Response {
	if req.Operation != admissionv1.Create || req.SubResource != "" {
		return admit.Allow()
	}
	for _, synced := range r.synced {
		if !synced() {
			return admit.Allow()
		}
	}
	var shadow offloadingv1beta1.ShadowPod
	if err := json.Unmarshal(req.Object.Raw, &shadow); err != nil {
		return admit.Response{Message: "reading the ShadowPod: " + err.Error(), Code: http.StatusBadRequest}
	}
	quotas, err := r.quotas.Quotas(corev1beta1.TenantNamespace(shadow.Labels[offloadingv1beta1.OriginLabel])).List(labels.Everything())
	if err != nil {
		return unjudged(err)
	}
	ranges, err := r.ranges.LimitRanges(req.Namespace).List(labels.Everything())
	if err != nil {
		return unjudged(err)
	}
	if refused := (rules.QuotaReview{New: &shadow, Quotas: quotas, LimitRanges: ranges}).Judge(); refused != "" {
		return admit.Deny(refused)
	}
	return admit.Allow()
}
