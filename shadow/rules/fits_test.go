package rules

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
)

func shadowOf(p *corev1.Pod) *offloadingv1beta1.ShadowPod {
	return &offloadingv1beta1.ShadowPod{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{offloadingv1beta1.OriginLabel: "rome"}}, Spec: offloadingv1beta1.ShadowPodSpec{Pod: p.Spec},
	}
}

func TestReview(t *testing.T) {
	ranged := []*corev1.LimitRange{limitRange(defaults(list("cpu", "1", "memory", "1Gi"), nil))}
	for name, tc := range map[string]struct {
		pod    *corev1.Pod
		quotas []*offloadingv1beta1.Quota
		ranges []*corev1.LimitRange
		reason string
		says   string
	}{
		"no quota":              {pod(container("c", list("cpu", "9"), nil)), nil, nil, "", ""},
		"fits":                  {pod(container("c", list("cpu", "2"), nil)), []*offloadingv1beta1.Quota{of(none, false, "cpu", "2")}, nil, "", ""},
		"of two":                {pod(container("c", list("cpu", "3"), nil)), []*offloadingv1beta1.Quota{of(none, false, "cpu", "2"), of(none, false, "cpu", "1")}, nil, "", ""},
		"cordoned":              {pod(container("c", list("cpu", "2"), nil)), []*offloadingv1beta1.Quota{of(none, true, "cpu", "2")}, nil, "", ""},
		"too large":             {pod(container("c", list("cpu", "3"), nil)), []*offloadingv1beta1.Quota{of(none, false, "cpu", "2")}, nil, offloadingv1beta1.ReasonQuotaTooSmall, "the pod alone is larger than the quota of cluster rome (cpu: 3 requested, 2 allowed in all)"},
		"by its limits":         {pod(container("c", nil, list("cpu", "3"))), []*offloadingv1beta1.Quota{of(none, false, "cpu", "2")}, nil, offloadingv1beta1.ReasonQuotaTooSmall, "the pod alone is larger than the quota of cluster rome (cpu: 3 requested, 2 allowed in all)"},
		"by a LimitRange":       {pod(container("c", nil, nil), container("d", nil, nil)), []*offloadingv1beta1.Quota{of(none, false, "cpu", "1")}, ranged, offloadingv1beta1.ReasonQuotaTooSmall, "the pod alone is larger than the quota of cluster rome (cpu: 2 requested, 1 allowed in all)"},
		"no pods":               {pod(container("c", nil, nil)), []*offloadingv1beta1.Quota{of(none, false, "pods", "0")}, nil, offloadingv1beta1.ReasonQuotaTooSmall, "the pod alone is larger than the quota of cluster rome (pods: 1 requested, 0 allowed in all)"},
		"undeclared":            {pod(container("c", nil, nil)), []*offloadingv1beta1.Quota{of(soft, false, "cpu", "9")}, nil, offloadingv1beta1.ReasonQuotaUndeclared, "the quota of cluster rome requires declared CPU and memory (Soft): container c has no resources.requests.cpu"},
		"for other nodes":       {asksFor(pod(container("c", nil, nil)), "pool", "own"), []*offloadingv1beta1.Quota{onNodes(false, "pool", "shared")}, nil, offloadingv1beta1.ReasonQuotaNodeSelector, "the pod of cluster rome selects nodes that the cluster may not use: spec.nodeSelector selects nodes with pool=own; the quota allows nodes with pool=shared"},
		"for another host":      {asksFor(pod(container("c", nil, nil)), corev1.LabelHostname, "b"), []*offloadingv1beta1.Quota{onNodes(false, corev1.LabelHostname, "a")}, nil, "", ""},
		"cordoned there":        {asksFor(pod(container("c", nil, nil)), "pool", "own"), []*offloadingv1beta1.Quota{onNodes(true, "pool", "shared")}, nil, "", ""},
		"a device, not offered": {pod(container("c", list("cpu", "1"), list("nvidia.com/gpu", "8"))), []*offloadingv1beta1.Quota{offered("cpu", "2", "pods", "9")}, nil, offloadingv1beta1.ReasonQuotaTooSmall, "the pod alone is larger than the quota of cluster rome (nvidia.com/gpu: 8 requested, and none was offered (" + unlisted + "))"},
		"a device by people":    {pod(container("c", list("cpu", "1"), list("nvidia.com/gpu", "8"))), []*offloadingv1beta1.Quota{of(none, false, "cpu", "2", "pods", "9")}, nil, "", ""},
		"declared by others":    {pod(container("c", nil, nil)), []*offloadingv1beta1.Quota{of(soft, false, "cpu", "9")}, ranged, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			reason, message := NeverFits(shadowOf(tc.pod), tc.quotas, tc.ranges)
			require.Equal(t, tc.says, message)
			require.Equal(t, tc.reason, reason)
		})
	}
}

// FuzzReview: whatever a peer writes is judged.
func FuzzReview(f *testing.F) {
	f.Add([]byte(`{"spec":{"pod":{"containers":[{"name":"c","resources":{"requests":{"cpu":"-1e99","memory":"1"}}}]}}}`))
	f.Add([]byte(`{"spec":{"pod":{"resources":{"limits":{"cpu":"1n","hugepages-2Mi":"1"}},"overhead":{"cpu":"1"},"initContainers":[{"restartPolicy":"Always"}]}}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var s offloadingv1beta1.ShadowPod
		if json.Unmarshal(data, &s) != nil {
			return
		}
		for _, level := range []offloadingv1beta1.LimitsEnforcement{none, soft, hard} {
			NeverFits(&s, []*offloadingv1beta1.Quota{of(level, false, "cpu", "1", "pods", "1")}, nil)
		}
		for name, quantity := range Requests(&corev1.Pod{Spec: s.Spec.Pod}) {
			require.Positive(t, quantity.Sign(), name)
		}
	})
}
