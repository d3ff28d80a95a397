package rules

import (
	"encoding/json"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
		"several":                {bound, list("cpu", "4", "memory", "4Gi"), list("memory", "1", "cpu", "1m", "pods", "1"), []corev1.ResourceName{"cpu", "memory"}},
		"too much of the others": {bound, list("cpu", "9"), list("memory", "1Gi", "pods", "1"), nil},
		"not listed":             {bound, list(), list("example.com/gpu", "8", "pods", "1"), nil},
		"asked for nothing":      {bound, list("cpu", "9"), list("cpu", "0"), nil},
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
		"no quota":           {nil, labelled("pool", "own"), "", labelled("pool", "own")},
		"one that says none": {[]*offloadingv1beta1.Quota{of(none, false, "cpu", "1")}, nil, "", nil},
		"picked":             {[]*offloadingv1beta1.Quota{onNodes(false, "pool", "shared")}, nil, "", labelled("pool", "shared")},
		"beside its own":     {[]*offloadingv1beta1.Quota{onNodes(false, "pool", "shared")}, labelled("arch", "arm64"), "", labelled("arch", "arm64", "pool", "shared")},
		"asked for, too":     {[]*offloadingv1beta1.Quota{onNodes(false, "pool", "shared")}, labelled("pool", "shared"), "", labelled("pool", "shared")},
		"contradicted":       {[]*offloadingv1beta1.Quota{onNodes(false, "pool", "shared")}, labelled("pool", "own"), "spec.nodeSelector selects nodes with pool=own; the quota allows nodes with pool=shared", nil},
		"an empty value":     {[]*offloadingv1beta1.Quota{onNodes(false, "pool", "")}, labelled("pool", "own"), "spec.nodeSelector selects nodes with pool=own; the quota allows nodes with pool=", nil},
		"several":            {[]*offloadingv1beta1.Quota{onNodes(false, "pool", "shared"), onNodes(false, "zone", "a", "pool", "shared"), of(none, false)}, nil, "", labelled("pool", "shared", "zone", "a")},
		"at odds":            {[]*offloadingv1beta1.Quota{onNodes(false, "pool", "b"), onNodes(false, "pool", "a")}, nil, "its quotas contradict each other: they require nodes with pool a and b", nil},
		"one of them rests":  {[]*offloadingv1beta1.Quota{onNodes(true, "pool", "b"), onNodes(false, "pool", "a")}, nil, "", labelled("pool", "a")},
		"all of them do":     {[]*offloadingv1beta1.Quota{onNodes(true, "pool", "b")}, labelled("pool", "c"), "", labelled("pool", "c")},
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
		"no limits":         {pod(container("c", both, nil)), "", "container c has no resources.limits.cpu"},
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

// list makes a list of name, value, name, value …
func list(pairs ...string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		out[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return out
}

func requireList(t *testing.T, want, got corev1.ResourceList) {
	t.Helper()
	text := func(l corev1.ResourceList) map[string]string {
		out := map[string]string{}
		for name, quantity := range l {
			out[string(name)] = quantity.AsDec().String()
		}
		return out
	}
	require.Equal(t, text(want), text(got))
}

type podMod = func(*corev1.Pod)

func pod(mods ...podMod) *corev1.Pod {
	p := &corev1.Pod{}
	for _, mod := range mods {
		mod(p)
	}
	return p
}

func requirements(requests, limits corev1.ResourceList) corev1.ResourceRequirements {
	return corev1.ResourceRequirements{Requests: requests, Limits: limits}
}

func container(name string, requests, limits corev1.ResourceList) podMod {
	return func(p *corev1.Pod) {
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: name, Resources: requirements(requests, limits)})
	}
}

func initContainer(name string, requests corev1.ResourceList, policy *corev1.ContainerRestartPolicy) podMod {
	return func(p *corev1.Pod) {
		p.Spec.InitContainers = append(p.Spec.InitContainers, corev1.Container{Name: name, RestartPolicy: policy, Resources: requirements(requests, nil)})
	}
}

func whole(requests, limits corev1.ResourceList) podMod {
	return func(p *corev1.Pod) { p.Spec.Resources = new(requirements(requests, limits)) }
}

func given(name string, requests corev1.ResourceList) podMod {
	return func(p *corev1.Pod) {
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{
			Name: name, Resources: new(requirements(requests, nil)), AllocatedResources: requests,
		})
	}
}

func infeasible(p *corev1.Pod) {
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodResizePending, Status: corev1.ConditionTrue, Reason: corev1.PodReasonInfeasible}}
}

func TestRequests(t *testing.T) {
	sidecar := corev1.ContainerRestartPolicyAlways
	for name, tc := range map[string]struct {
		pod  *corev1.Pod
		want corev1.ResourceList
	}{
		"two":        {pod(container("c", list("cpu", "1"), nil), container("d", list("cpu", "250m", "example.com/gpu", "2"), nil)), list("pods", "1", "cpu", "1250m", "example.com/gpu", "2")},
		"sidecar":    {pod(container("c", list("cpu", "1"), nil), initContainer("s", list("cpu", "500m"), &sidecar)), list("pods", "1", "cpu", "1500m")},
		"as a whole": {pod(container("c", list("cpu", "1", "ephemeral-storage", "1Gi"), nil), whole(list("cpu", "3"), nil)), list("pods", "1", "cpu", "3", "ephemeral-storage", "1Gi")},
		"overhead": {pod(container("c", list("cpu", "1"), nil), func(p *corev1.Pod) { p.Spec.Overhead = list("cpu", "100m", "memory", "10Mi") }),
			list("pods", "1", "cpu", "1100m", "memory", "10Mi")},
		"growing":            {pod(container("c", list("cpu", "2"), nil), given("c", list("cpu", "1"))), list("pods", "1", "cpu", "2")},
		"shrinking":          {pod(container("c", list("cpu", "1"), nil), given("c", list("cpu", "2"))), list("pods", "1", "cpu", "2")},
		"growth, infeasible": {pod(container("c", list("cpu", "2"), nil), given("c", list("cpu", "1")), infeasible), list("pods", "1", "cpu", "2")},
		"below zero":         {pod(container("c", list("cpu", "-4"), nil), container("d", list("memory", "1Gi"), nil)), list("pods", "1", "memory", "1Gi")},
		"pods of its own":    {pod(container("c", list("pods", "50"), nil)), list("pods", "1")},
	} {
		t.Run(name, func(t *testing.T) { requireList(t, tc.want, Requests(tc.pod)) })
	}
}

func limitRange(items ...corev1.LimitRangeItem) *corev1.LimitRange {
	return &corev1.LimitRange{Spec: corev1.LimitRangeSpec{Limits: items}}
}

func defaults(requests, limits corev1.ResourceList) corev1.LimitRangeItem {
	return corev1.LimitRangeItem{Type: corev1.LimitTypeContainer, DefaultRequest: requests, Default: limits}
}

func TestPredict(t *testing.T) {
	sidecar := corev1.ContainerRestartPolicyAlways
	usual := limitRange(defaults(list("cpu", "100m", "memory", "64Mi"), list("cpu", "200m", "memory", "128Mi")))
	for name, tc := range map[string]struct {
		pod      *corev1.Pod
		ranges   []*corev1.LimitRange
		overhead corev1.ResourceList
		want     corev1.ResourceList
	}{
		"requests follow limits": {pod(container("c", list("memory", "1Gi"), list("cpu", "2", "memory", "2Gi"))), nil, nil, list("pods", "1", "cpu", "2", "memory", "1Gi")},
		"whole from containers":  {pod(container("c", list("cpu", "1"), nil), whole(nil, list("cpu", "4", "memory", "4Gi"))), nil, nil, list("pods", "1", "cpu", "1", "memory", "4Gi")},
		"defaults":               {pod(container("c", nil, nil), container("d", list("cpu", "1"), nil)), []*corev1.LimitRange{usual}, nil, list("pods", "1", "cpu", "1100m", "memory", "128Mi")},
		"defaults of a sidecar":  {pod(container("c", nil, nil), initContainer("s", nil, &sidecar)), []*corev1.LimitRange{usual}, nil, list("pods", "1", "cpu", "200m", "memory", "128Mi")},
		"the larger default":     {pod(container("c", nil, nil)), []*corev1.LimitRange{usual, limitRange(defaults(list("cpu", "150m"), nil))}, nil, list("pods", "1", "cpu", "150m", "memory", "64Mi")},
		"not of pods":            {pod(container("c", nil, nil)), []*corev1.LimitRange{limitRange(corev1.LimitRangeItem{Type: corev1.LimitTypePod, Max: list("cpu", "1")})}, nil, list("pods", "1")},
		"overhead":               {pod(container("c", list("cpu", "1"), nil)), nil, list("cpu", "250m"), list("pods", "1", "cpu", "1250m")},
	} {
		t.Run(name, func(t *testing.T) {
			before := tc.pod.DeepCopy()
			requireList(t, tc.want, Requests(Predict(tc.pod, tc.ranges, tc.overhead)))
			require.Equal(t, before, tc.pod, "the argument is not changed")
		})
	}
}

func TestResized(t *testing.T) {
	have := pod(container("c", list("cpu", "1", "memory", "1Gi"), nil), container("injected", list("cpu", "100m"), nil), whole(list("cpu", "2"), nil))
	want := pod(container("c", list("cpu", "3"), list("cpu", "3")), whole(list("cpu", "4"), nil))
	got := Resized(have, want)
	require.Equal(t, "3", got.Spec.Containers[0].Resources.Requests.Cpu().String())
	require.Equal(t, "1Gi", got.Spec.Containers[0].Resources.Requests.Memory().String(), "what no resize takes away")
	require.Equal(t, "100m", got.Spec.Containers[1].Resources.Requests.Cpu().String())
	requireList(t, list("pods", "1", "cpu", "4", "memory", "1Gi"), Requests(got))
	requireList(t, list("pods", "1", "cpu", "2", "memory", "1Gi"), Requests(have))
}

// TestArithmetic: what is added and taken away again leaves nothing, in any order.
func TestArithmetic(t *testing.T) {
	sum, rest := corev1.ResourceList{}, []corev1.ResourceList{}
	random := rand.New(rand.NewPCG(1, 2))
	values := []string{"1", "100m", "1n", "3Gi", "1e3", "0.1", "7u"}
	for range 500 {
		l := list("cpu", values[random.IntN(len(values))], "memory", values[random.IntN(len(values))])
		AddResources(sum, l)
		rest = append(rest, l)
	}
	random.Shuffle(len(rest), func(i, j int) { rest[i], rest[j] = rest[j], rest[i] })
	for _, l := range rest {
		SubResources(sum, l)
	}
	require.Empty(t, sum)

	requireList(t, list("cpu", "1", "gpu", "1"), MoreResources(list("cpu", "3", "memory", "1", "gpu", "1"), list("cpu", "2", "memory", "1", "disk", "1")))
	requireList(t, list("cpu", "3", "memory", "2"), MaxResources(list("cpu", "3"), list("cpu", "1", "memory", "2")))
	requireList(t, list("cpu", "3"), MaxResources(nil, list("cpu", "3")))
	require.Empty(t, MoreResources(nil, list("cpu", "1")))
}

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
		"fits":                  {pod(container("c", list("cpu", "2"), nil)), []*offloadingv1beta1.Quota{of(none, false, "cpu", "2")}, nil, "", ""},
		"cordoned":              {pod(container("c", list("cpu", "2"), nil)), []*offloadingv1beta1.Quota{of(none, true, "cpu", "2")}, nil, "", ""},
		"too large":             {pod(container("c", list("cpu", "3"), nil)), []*offloadingv1beta1.Quota{of(none, false, "cpu", "2")}, nil, offloadingv1beta1.ReasonQuotaTooSmall, "the pod alone is larger than the quota of cluster rome (cpu: 3 requested, 2 allowed in all)"},
		"by its limits":         {pod(container("c", nil, list("cpu", "3"))), []*offloadingv1beta1.Quota{of(none, false, "cpu", "2")}, nil, offloadingv1beta1.ReasonQuotaTooSmall, "the pod alone is larger than the quota of cluster rome (cpu: 3 requested, 2 allowed in all)"},
		"by a LimitRange":       {pod(container("c", nil, nil), container("d", nil, nil)), []*offloadingv1beta1.Quota{of(none, false, "cpu", "1")}, ranged, offloadingv1beta1.ReasonQuotaTooSmall, "the pod alone is larger than the quota of cluster rome (cpu: 2 requested, 1 allowed in all)"},
		"undeclared":            {pod(container("c", nil, nil)), []*offloadingv1beta1.Quota{of(soft, false, "cpu", "9")}, nil, offloadingv1beta1.ReasonQuotaUndeclared, "the quota of cluster rome requires declared CPU and memory (Soft): container c has no resources.requests.cpu"},
		"for other nodes":       {asksFor(pod(container("c", nil, nil)), "pool", "own"), []*offloadingv1beta1.Quota{onNodes(false, "pool", "shared")}, nil, offloadingv1beta1.ReasonQuotaNodeSelector, "the pod of cluster rome selects nodes that the cluster may not use: spec.nodeSelector selects nodes with pool=own; the quota allows nodes with pool=shared"},
		"for another host":      {asksFor(pod(container("c", nil, nil)), corev1.LabelHostname, "b"), []*offloadingv1beta1.Quota{onNodes(false, corev1.LabelHostname, "a")}, nil, "", ""},
		"cordoned there":        {asksFor(pod(container("c", nil, nil)), "pool", "own"), []*offloadingv1beta1.Quota{onNodes(true, "pool", "shared")}, nil, "", ""},
		"a device, not offered": {pod(container("c", list("cpu", "1"), list("nvidia.com/gpu", "8"))), []*offloadingv1beta1.Quota{offered("cpu", "2", "pods", "9")}, nil, offloadingv1beta1.ReasonQuotaTooSmall, "the pod alone is larger than the quota of cluster rome (nvidia.com/gpu: 8 requested, and none was offered (" + unlisted + "))"},
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
