package roles

import (
	"context"
	"errors"
	"net/http"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/kube/serve"
	"github.com/liqod/liqod/shadow/rules"
)

const (
	// mostConsumers is the number of consumers that the metric of denials names, and
	// longestConsumer the longest of their ids. All others count as otherConsumers, because
	// a client of the webhook may name any.
	mostConsumers   = 256
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
	total *prometheus.CounterVec

	mu        sync.Mutex
	consumers map[string]bool
}

func newDenials() *denials {
	return &denials{
		total:     counter("liqod_consumer_refused_total", "What a consumer tried and was refused, or left out, each try once; the reasons are in docs/threat-model.md.", "consumer", "reason"),
		consumers: map[string]bool{},
	}
}

func (d *denials) count(consumer, reason string) {
	d.total.WithLabelValues(d.name(consumer), reason).Inc()
}

// name returns the name of a consumer in the metric.
func (d *denials) name(consumer string) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.consumers[consumer]:
		return consumer
	case len(consumer) > longestConsumer || len(d.consumers) >= mostConsumers:
		return otherConsumers
	}
	d.consumers[consumer] = true
	return consumer
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
