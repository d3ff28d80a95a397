package rules

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

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
		"nothing":            {pod(container("c", nil, nil)), list("pods", "1")},
		"one":                {pod(container("c", list("cpu", "1", "memory", "1Gi"), nil)), list("pods", "1", "cpu", "1", "memory", "1Gi")},
		"two":                {pod(container("c", list("cpu", "1"), nil), container("d", list("cpu", "250m", "example.com/gpu", "2"), nil)), list("pods", "1", "cpu", "1250m", "example.com/gpu", "2")},
		"init is larger":     {pod(container("c", list("cpu", "1"), nil), initContainer("i", list("cpu", "3"), nil)), list("pods", "1", "cpu", "3")},
		"init is smaller":    {pod(container("c", list("cpu", "1"), nil), initContainer("i", list("cpu", "500m"), nil)), list("pods", "1", "cpu", "1")},
		"sidecar":            {pod(container("c", list("cpu", "1"), nil), initContainer("s", list("cpu", "500m"), &sidecar)), list("pods", "1", "cpu", "1500m")},
		"init after sidecar": {pod(container("c", list("cpu", "1"), nil), initContainer("s", list("cpu", "500m"), &sidecar), initContainer("i", list("cpu", "2"), nil)), list("pods", "1", "cpu", "2500m")},
		"as a whole":         {pod(container("c", list("cpu", "1", "ephemeral-storage", "1Gi"), nil), whole(list("cpu", "3"), nil)), list("pods", "1", "cpu", "3", "ephemeral-storage", "1Gi")},
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
		"nothing to add":         {pod(container("c", list("cpu", "1"), list("cpu", "2"))), nil, nil, list("pods", "1", "cpu", "1")},
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
