package roles

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/liqod/liqod/kube/serve"
	"github.com/liqod/liqod/reasons"
	"github.com/liqod/liqod/shadow/rules"
)

// denied returns the counts by "<consumer> <reason>".
func denied(t *testing.T, d *denials) map[string]float64 {
	t.Helper()
	registry, out := prometheus.NewRegistry(), map[string]float64{}
	require.NoError(t, registry.Register(d.total))
	for name, value := range observed(t, registry) {
		_, labels, _ := strings.Cut(name, " ")
		out[labels] = value
	}
	return out
}

func TestDenialsAreCounted(t *testing.T) {
	t.Parallel()
	d := newDenials()
	pods := countPods(d.count, func(_ string, spec *corev1.PodSpec) error {
		switch spec.NodeName {
		case "refused":
			return fmt.Errorf("pod: %w", &rules.Refused{Reason: reasons.VolumeTypeRefused})
		case "failed":
			return errors.New("no answer")
		}
		return nil
	})
	for _, name := range []string{"refused", "refused", "failed", ""} {
		require.Equal(t, name == "", pods("rome", &corev1.PodSpec{NodeName: name}) == nil)
	}
	for _, answer := range []serve.Decision{
		serve.Deny("no"), {Code: 400}, {Code: 404}, {Code: 503}, serve.Allow(), serve.Allow(serve.Operation{Op: "replace"}),
	} {
		decide := countRequests(d.count, deniedService, func(context.Context, *admissionv1.AdmissionRequest) serve.Decision { return answer })
		for _, user := range []string{"liqo.io:peer:rome:1", "system:serviceaccount:liqo-tenant-oslo:peer-1", "kubernetes-admin"} {
			require.Equal(t, answer, decide(t.Context(), &admissionv1.AdmissionRequest{UserInfo: authenticationv1.UserInfo{Username: user}}))
		}
	}
	require.Equal(t, map[string]float64{
		"rome VolumeTypeRefused": 2, "rome Service": 2, "oslo Service": 2, "rome Annotations": 1, "oslo Annotations": 1,
	}, denied(t, d))
}

// TestDenialsAreBounded: whoever reaches the webhook can name any consumer, and fills no memory.
func TestDenialsAreBounded(t *testing.T) {
	t.Parallel()
	d := newDenials()
	d.count(strings.Repeat("a", longestConsumer+1), "x")
	for i := range 2 * mostValues {
		d.count(fmt.Sprint(i), "x")
	}
	d.count("0", "x")
	counts := denied(t, d)
	require.Len(t, counts, mostValues+1)
	require.EqualValues(t, mostValues+1, counts[otherConsumers+" x"])
	require.EqualValues(t, 2, counts["0 x"])
}
