package forge

import (
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
)

// requireLegal requires that the API server would accept a status update, and that the
// ends and restart counts follow the rules of Status.
func requireLegal(t *testing.T, local *corev1.Pod, got corev1.PodStatus) {
	t.Helper()
	old := &local.Status
	require.Equal(t, old.QOSClass, got.QOSClass)
	require.GreaterOrEqual(t, got.ObservedGeneration, old.ObservedGeneration)
	if offloadingv1beta1.Ended(old.Phase) {
		require.Equal(t, *old, got, "an end is final")
	}
	requireLegalContainers(t, &local.Spec, local.Spec.Containers, old.ContainerStatuses, got.ContainerStatuses)
	requireLegalContainers(t, &local.Spec, local.Spec.InitContainers, old.InitContainerStatuses, got.InitContainerStatuses)

	pods, hosts := addressesOf(got)
	requireLegalAddresses(t, got.PodIP, pods)
	requireLegalAddresses(t, got.HostIP, hosts)

	seen := map[corev1.PodConditionType]bool{}
	for _, c := range got.Conditions {
		require.False(t, seen[c.Type], "condition %s twice", c.Type)
		seen[c.Type] = true
		if have := findCondition(old.Conditions, c.Type); have != nil && have.Status == c.Status {
			require.Equal(t, have.LastTransitionTime, c.LastTransitionTime, "condition %s has not changed", c.Type)
		}
	}
	require.Equal(t, findCondition(old.Conditions, corev1.PodScheduled), findCondition(got.Conditions, corev1.PodScheduled))
}

func addressesOf(s corev1.PodStatus) (pods, hosts []string) {
	for _, ip := range s.PodIPs {
		pods = append(pods, ip.IP)
	}
	for _, ip := range s.HostIPs {
		hosts = append(hosts, ip.IP)
	}
	return pods, hosts
}

func requireLegalContainers(t *testing.T, spec *corev1.PodSpec, containers []corev1.Container, old, got []corev1.ContainerStatus) {
	t.Helper()
	for i := range containers {
		o, g := findStatus(old, containers[i].Name), findStatus(got, containers[i].Name)
		if o == nil {
			continue
		}
		require.NotNil(t, g, "the status of a container does not vanish")
		require.GreaterOrEqual(t, g.RestartCount, o.RestartCount)
		if stuck(spec, &containers[i], o) {
			require.NotNil(t, g.State.Terminated, "container %s may not leave its terminated state", o.Name)
		}
	}
}

func requireLegalAddresses(t *testing.T, first string, all []string) {
	t.Helper()
	if len(all) == 0 {
		return
	}
	require.Equal(t, first, all[0])
	families := map[bool]bool{}
	for _, s := range all {
		is4 := netip.MustParseAddr(s).Is4()
		require.False(t, families[is4], "two addresses of one family in %v", all)
		families[is4] = true
	}
}

func requireIdempotent(t *testing.T, in StatusInput, got corev1.PodStatus) {
	t.Helper()
	local := in.Local.DeepCopy()
	local.Status = *got.DeepCopy()
	in.Local = local
	in.Now = at(1000)
	again := Status(in)
	require.Equal(t, got, again, "a second time must change nothing")
}

// statusOf returns the status of a pod, which the API server accepts and a second computation does not change.
func statusOf(t *testing.T, in StatusInput) corev1.PodStatus {
	t.Helper()
	got := Status(in)
	requireLegal(t, in.Local, got)
	requireIdempotent(t, in, got)
	return got
}

// TestWalk applies random events of both clusters to a pod, in any order. After each step
// the API server must accept the status, and a second computation must return the same.
func TestWalk(t *testing.T) {
	t.Parallel()
	policies := []corev1.RestartPolicy{corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever}
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		in := scene()
		in.Local.Spec.RestartPolicy = policies[seed%3]
		full := in.Remote
		for step := range 40 {
			in.Now = at(100 + step)
			happen(r, &in, full, step)
			got := statusOf(t, in)
			if findCondition(got.Conditions, corev1.PodReady) != nil && !offloadingv1beta1.Ended(in.Local.Status.Phase) &&
				(in.Remote == nil || !in.NodeReady || in.losing()) {
				require.Equal(t, corev1.ConditionFalse, findCondition(got.Conditions, corev1.PodReady).Status)
			}
			if r.IntN(3) > 0 {
				in.Local.Status = got
			}
		}
	}
}

// happen applies one random event.
func happen(r *rand.Rand, in *StatusInput, full *corev1.Pod, step int) {
	states := []corev1.ContainerStatus{running("web", r.Int32N(3)), terminated("web", r.Int32N(3), 0), terminated("web", r.Int32N(3), 1), waiting("web")}
	switch r.IntN(12) {
	case 0:
		in.Remote = nil
	case 1, 2:
		in.Remote = full.DeepCopy()
	case 3:
		in.Remote = full.DeepCopy()
		in.Remote.Status = corev1.PodStatus{Phase: corev1.PodPending}
	case 4:
		in.NodeReady = !in.NodeReady
	case 5:
		in.Shadow.Status.Restarts = []offloadingv1beta1.ContainerRestarts{{Name: "web", Count: r.Int32N(5)}}
	case 6:
		in.Shadow.Status.Conditions = nil
		if r.IntN(2) == 0 {
			in.Shadow.Status.Conditions = []metav1.Condition{{Type: "Enforced", Status: metav1.ConditionFalse, Reason: "PodRefused"}}
		}
	case 7:
		if c := findCondition(in.Local.Status.Conditions, corev1.PodReady); c != nil && !offloadingv1beta1.Ended(in.Local.Status.Phase) {
			*c = condition(corev1.PodReady, corev1.ConditionFalse, 100+step)
		}
	default:
		if in.Remote == nil {
			return
		}
		in.Remote = in.Remote.DeepCopy()
		switch r.IntN(4) {
		case 0:
			now := in.Now
			in.Remote.DeletionTimestamp = &now
		case 1:
			in.Remote.Status.ContainerStatuses = []corev1.ContainerStatus{states[r.IntN(len(states))]}
		case 2:
			phases := []corev1.PodPhase{corev1.PodPending, corev1.PodRunning, corev1.PodRunning, corev1.PodSucceeded, corev1.PodFailed}
			in.Remote.Status.Phase = phases[r.IntN(len(phases))]
		case 3:
			s := []corev1.ConditionStatus{corev1.ConditionTrue, corev1.ConditionFalse}[r.IntN(2)]
			in.Remote.Status.Conditions = []corev1.PodCondition{condition(corev1.PodReady, s, 100+step), condition(corev1.ContainersReady, s, 100+step)}
		}
	}
}
