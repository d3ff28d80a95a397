package rules

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	sharingv1alpha1 "github.com/liqod/liqod/api/sharing/v1alpha1"
)

const (
	none = offloadingv1beta1.EnforcementNone
	soft = offloadingv1beta1.EnforcementSoft
	hard = offloadingv1beta1.EnforcementHard
)

func of(level offloadingv1beta1.LimitsEnforcement, cordoned bool, resources ...string) *offloadingv1beta1.Quota {
	return &offloadingv1beta1.Quota{Spec: offloadingv1beta1.QuotaSpec{LimitsEnforcement: level, Cordoned: &cordoned, Resources: list(resources...)}}
}

func TestSum(t *testing.T) {
	for name, tc := range map[string]struct {
		quotas    []*offloadingv1beta1.Quota
		resources corev1.ResourceList
		cordoned  bool
		level     offloadingv1beta1.LimitsEnforcement
	}{
		"none":           {nil, list(), false, none},
		"one":            {[]*offloadingv1beta1.Quota{of("", false, "cpu", "2")}, list("cpu", "2"), false, none},
		"several":        {[]*offloadingv1beta1.Quota{of(soft, false, "cpu", "2", "memory", "1Gi"), of(hard, false, "cpu", "500m", "pods", "3")}, list("cpu", "2500m", "memory", "1Gi", "pods", "3"), false, hard},
		"one cordoned":   {[]*offloadingv1beta1.Quota{of(none, true, "cpu", "2", "gpu", "1"), of(none, false, "cpu", "1")}, list("cpu", "1", "gpu", "0"), false, none},
		"all cordoned":   {[]*offloadingv1beta1.Quota{of(soft, true, "cpu", "2")}, list("cpu", "0"), true, soft},
		"lists nothing":  {[]*offloadingv1beta1.Quota{of(none, false)}, list(), false, none},
		"not said if so": {[]*offloadingv1beta1.Quota{{Spec: offloadingv1beta1.QuotaSpec{Resources: list("cpu", "1")}}}, list("cpu", "1"), false, none},
	} {
		t.Run(name, func(t *testing.T) {
			got := SumQuotas(tc.quotas)
			requireList(t, tc.resources, got.Resources)
			require.Equal(t, len(tc.quotas), got.Quotas)
			require.Equal(t, tc.cordoned, got.Cordoned)
			require.Equal(t, tc.level, got.Enforcement)
		})
	}
}

func TestShort(t *testing.T) {
	bound := SumQuotas([]*offloadingv1beta1.Quota{of(none, false, "cpu", "4", "memory", "4Gi", "pods", "10")})
	for name, tc := range map[string]struct {
		bound      Bound
		used, more corev1.ResourceList
		want       []corev1.ResourceName
	}{
		"exact fit":              {bound, list("cpu", "3", "pods", "9"), list("cpu", "1", "pods", "1"), nil},
		"a bit too much":         {bound, list("cpu", "3"), list("cpu", "1001m"), []corev1.ResourceName{"cpu"}},
		"several":                {bound, list("cpu", "4", "memory", "4Gi"), list("memory", "1", "cpu", "1m", "pods", "1"), []corev1.ResourceName{"cpu", "memory"}},
		"too much of the others": {bound, list("cpu", "9"), list("memory", "1Gi", "pods", "1"), nil},
		"not listed":             {bound, list(), list("example.com/gpu", "8", "pods", "1"), nil},
		"asked for nothing":      {bound, list("cpu", "9"), list("cpu", "0"), nil},
		"no quota":               {SumQuotas(nil), list("cpu", "9"), list("cpu", "1"), nil},
		"the zero value":         {Bound{}, list("cpu", "9"), list("cpu", "1"), nil},
		"given nothing of it":    {SumQuotas([]*offloadingv1beta1.Quota{of(none, false, "gpu", "0")}), nil, list("gpu", "1"), []corev1.ResourceName{"gpu"}},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, tc.want, tc.bound.Short(tc.used, tc.more)) })
	}
	require.True(t, bound.Beyond(list("cpu", "4001m"), list("cpu", "1m")))
	require.False(t, bound.Beyond(list("cpu", "4"), list("cpu", "1m")), "all of it")
	require.False(t, bound.Beyond(list("cpu", "9"), list("memory", "1")), "another resource")
	require.False(t, Bound{}.Beyond(list("cpu", "9"), list("cpu", "1")))
	require.Equal(t, "cpu: 5 requested, 4 allowed in all; pods: 1 requested, 10 allowed in all",
		bound.Tell([]corev1.ResourceName{"cpu", "pods"}, list("cpu", "5", "pods", "1")))
}

// offered is a Quota that the controller writes for an offer.
func offered(resources ...string) *offloadingv1beta1.Quota {
	q := of(none, false, resources...)
	q.Labels = map[string]string{offloadingv1beta1.ManagedByLabel: sharingv1alpha1.ManagedByOffer}
	return q
}

// TestWhatWasNotOfferedIsZero: who asked for cpu and memory gets no device. A Quota that
// people write adds what it lists, and alone bounds nothing else.
func TestWhatWasNotOfferedIsZero(t *testing.T) {
	const gpu, huge = corev1.ResourceName("nvidia.com/gpu"), corev1.ResourceName("hugepages-2Mi")
	devices := list("cpu", "1", "pods", "1", string(gpu), "8", string(huge), "64Mi")
	for name, tc := range map[string]struct {
		quotas []*offloadingv1beta1.Quota
		want   []corev1.ResourceName
	}{
		"an offer":                     {[]*offloadingv1beta1.Quota{offered("cpu", "4", "pods", "9")}, []corev1.ResourceName{huge, gpu}},
		"an offer that lists them":     {[]*offloadingv1beta1.Quota{offered("cpu", "4", "pods", "9", string(gpu), "8", string(huge), "1Gi")}, nil},
		"two offers":                   {[]*offloadingv1beta1.Quota{offered("cpu", "4", "pods", "9", string(gpu), "8"), offered("pods", "1")}, []corev1.ResourceName{huge}},
		"an offer and one of people":   {[]*offloadingv1beta1.Quota{offered("cpu", "4", "pods", "9"), of(none, false, string(gpu), "8")}, []corev1.ResourceName{huge}},
		"one of people":                {[]*offloadingv1beta1.Quota{of(none, false, "cpu", "4", "pods", "9")}, nil},
		"an offer that has ended":      {[]*offloadingv1beta1.Quota{offered("cpu", "0", "pods", "0")}, []corev1.ResourceName{"cpu", huge, gpu, "pods"}},
		"nothing but an ended offer's": {[]*offloadingv1beta1.Quota{offered()}, []corev1.ResourceName{"cpu", huge, gpu, "pods"}},
	} {
		t.Run(name, func(t *testing.T) {
			bound := SumQuotas(tc.quotas)
			require.Equal(t, tc.want, bound.Short(nil, devices))
			require.Equal(t, len(tc.want) > 0, bound.Beyond(devices, devices), "a webhook added them")
		})
	}
	require.Equal(t, "cpu: 5 requested, 4 allowed in all; nvidia.com/gpu: 8 requested, and none was offered "+
		"(the consumer can list it in spec.request.resources of its ForeignCluster; an administrator of the provider can write a Quota with it)",
		SumQuotas([]*offloadingv1beta1.Quota{offered("cpu", "4")}).Tell([]corev1.ResourceName{"cpu", gpu}, list("cpu", "5", string(gpu), "8")))
}

// onNodes is a Quota that bounds nothing but the nodes.
func onNodes(cordoned bool, selector ...string) *offloadingv1beta1.Quota {
	q := of(none, cordoned)
	q.Spec.NodeSelector = labelled(selector...)
	return q
}

// labelled makes a map of keys and values in turn.
func labelled(pairs ...string) map[string]string {
	out := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		out[pairs[i]] = pairs[i+1]
	}
	return out
}

func asksFor(p *corev1.Pod, selector ...string) *corev1.Pod {
	p.Spec.NodeSelector = labelled(selector...)
	return p
}

func TestNodes(t *testing.T) {
	for name, tc := range map[string]struct {
		quotas []*offloadingv1beta1.Quota
		asks   map[string]string
		refuse string
		gets   map[string]string
	}{
		"no quota":            {nil, labelled("pool", "own"), "", labelled("pool", "own")},
		"one that says none":  {[]*offloadingv1beta1.Quota{of(none, false, "cpu", "1")}, nil, "", nil},
		"picked":              {[]*offloadingv1beta1.Quota{onNodes(false, "pool", "shared")}, nil, "", labelled("pool", "shared")},
		"beside its own":      {[]*offloadingv1beta1.Quota{onNodes(false, "pool", "shared")}, labelled("arch", "arm64"), "", labelled("arch", "arm64", "pool", "shared")},
		"asked for, too":      {[]*offloadingv1beta1.Quota{onNodes(false, "pool", "shared")}, labelled("pool", "shared"), "", labelled("pool", "shared")},
		"contradicted":        {[]*offloadingv1beta1.Quota{onNodes(false, "pool", "shared")}, labelled("pool", "own"), "spec.nodeSelector selects nodes with pool=own; the quota allows nodes with pool=shared", nil},
		"an empty value":      {[]*offloadingv1beta1.Quota{onNodes(false, "pool", "")}, labelled("pool", "own"), "spec.nodeSelector selects nodes with pool=own; the quota allows nodes with pool=", nil},
		"several":             {[]*offloadingv1beta1.Quota{onNodes(false, "pool", "shared"), onNodes(false, "zone", "a", "pool", "shared"), of(none, false)}, nil, "", labelled("pool", "shared", "zone", "a")},
		"at odds":             {[]*offloadingv1beta1.Quota{onNodes(false, "pool", "b"), onNodes(false, "pool", "a")}, nil, "its quotas contradict each other: they require nodes with pool a and b", nil},
		"one of them rests":   {[]*offloadingv1beta1.Quota{onNodes(true, "pool", "b"), onNodes(false, "pool", "a")}, nil, "", labelled("pool", "a")},
		"all of them do":      {[]*offloadingv1beta1.Quota{onNodes(true, "pool", "b")}, labelled("pool", "c"), "", labelled("pool", "c")},
		"without any of them": {[]*offloadingv1beta1.Quota{}, nil, "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			bound := SumQuotas(tc.quotas)
			require.Equal(t, tc.refuse, bound.Misplaced(tc.asks))
			if tc.refuse != "" {
				return
			}
			spec := corev1.PodSpec{NodeSelector: tc.asks}
			bound.Place(&spec)
			require.Equal(t, tc.gets, spec.NodeSelector)
			require.Empty(t, bound.Misplaced(spec.NodeSelector))
		})
	}
	spec := corev1.PodSpec{NodeSelector: labelled("pool", "own")}
	Bound{}.Place(&spec)
	require.Equal(t, labelled("pool", "own"), spec.NodeSelector, "the zero value")
	require.Empty(t, Bound{}.Misplaced(spec.NodeSelector))
}

func TestUndeclared(t *testing.T) {
	both, half := list("cpu", "1", "memory", "1Gi"), list("cpu", "1")
	for name, tc := range map[string]struct {
		pod        *corev1.Pod
		soft, hard string
	}{
		"nothing":           {pod(container("c", nil, nil)), "container c has no resources.requests.cpu", "container c has no resources.requests.cpu"},
		"no memory":         {pod(container("c", half, both)), "container c has no resources.requests.memory", "container c has no resources.requests.memory"},
		"no limits":         {pod(container("c", both, nil)), "", "container c has no resources.limits.cpu"},
		"no memory limit":   {pod(container("c", both, half)), "", "container c has no resources.limits.memory"},
		"larger limits":     {pod(container("c", both, list("cpu", "2", "memory", "1Gi"))), "", "container c has resources.limits.cpu 2, which is not its request, 1"},
		"equal, else said":  {pod(container("c", both, list("cpu", "1000m", "memory", "1024Mi"))), "", ""},
		"one of two":        {pod(container("c", both, both), container("d", both, nil)), "", "container d has no resources.limits.cpu"},
		"an init container": {pod(container("c", both, both), initContainer("i", nil, nil)), "container i has no resources.requests.cpu", "container i has no resources.requests.cpu"},
		"as a whole":        {pod(container("c", nil, nil), whole(both, both)), "", ""},
		"whole, no limits":  {pod(container("c", nil, nil), whole(both, nil)), "", "the pod as a whole has no resources.limits.cpu"},
		"whole, cpu only":   {pod(container("c", nil, nil), whole(half, half)), "container c has no resources.requests.memory", "container c has no resources.requests.memory"},
	} {
		t.Run(name, func(t *testing.T) {
			require.Empty(t, Undeclared(&tc.pod.Spec, none))
			require.Empty(t, Undeclared(&tc.pod.Spec, ""))
			require.Equal(t, tc.soft, Undeclared(&tc.pod.Spec, soft))
			require.Equal(t, tc.hard, Undeclared(&tc.pod.Spec, hard))
		})
	}
}
