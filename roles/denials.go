package roles

import (
	"context"
	"errors"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/kube/serve"
	"github.com/liqod/liqod/shadow/rules"
)

const (
	// longestConsumer is the longest id of a consumer that the metric of denials names. All others,
	// and those beyond mostValues, count as otherConsumers, because a client of the webhook may name any.
	longestConsumer = 63
	otherConsumers  = "others"
)

// Reasons of denials by the webhook. Those of pods are the reasons of package rules.
const (
	deniedService     = "Service"
	deniedIngress     = "Ingress"
	deniedClaim       = "Claim"
	deniedSession     = "Session"
	deniedAnnotations = "Annotations"
	deniedQuota       = "Quota"
)

// denials counts what consumers tried in this cluster in vain. It is safe for concurrent use.
type denials struct {
	total     *prometheus.CounterVec
	consumers bound
}

func newDenials() *denials {
	return &denials{
		total: counter("liqod_consumer_refused_total", "What a consumer tried and was refused, or left out, each try once; the reasons are in docs/threat-model.md.", "consumer", "reason"),
	}
}

func (d *denials) count(consumer, reason string) {
	if len(consumer) > longestConsumer || d.consumers.value(consumer) == theRest {
		consumer = otherConsumers
	}
	d.total.WithLabelValues(consumer, reason).Inc()
}

// countPods counts the pods that harden refuses.
func countPods(denied func(consumer, reason string), harden func(string, *corev1.PodSpec) error) func(string, *corev1.PodSpec) error {
	return func(consumer string, spec *corev1.PodSpec) error {
		err := harden(consumer, spec)
		var refused *rules.Refused
		if errors.As(err, &refused) {
			denied(consumer, refused.Reason)
		}
		return err
	}
}

// countRequests counts the requests of peers that decide refuses, and those that it changes.
func countRequests(denied func(consumer, reason string), reason string, decide serve.Rule) serve.Rule {
	return func(ctx context.Context, req *admissionv1.AdmissionRequest) serve.Decision {
		answer := decide(ctx, req)
		peer := corev1beta1.PeerOfUser(req.UserInfo.Username)
		switch {
		case peer == "" || answer.Code == http.StatusServiceUnavailable || answer.Code == http.StatusNotFound:
		case !answer.Allowed:
			denied(peer, reason)
		case len(answer.Patch) > 0:
			denied(peer, deniedAnnotations)
		}
		return answer
	}
}
