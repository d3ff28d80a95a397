package forge

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
)

// eachString calls f with every string in v, names of resources included.
func eachString(v reflect.Value, f func(string)) {
	switch v.Kind() {
	case reflect.String:
		f(v.String())
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			eachString(v.Elem(), f)
		}
	case reflect.Slice:
		for i := range v.Len() {
			eachString(v.Index(i), f)
		}
	case reflect.Map:
		for _, key := range v.MapKeys() {
			eachString(key, f)
			eachString(v.MapIndex(key), f)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				eachString(v.Field(i), f)
			}
		}
	}
}

// requireBounded requires that the limits of a provider's status hold. own is the size of
// what this cluster has named itself.
func requireBounded(t *testing.T, got corev1.PodStatus, own int) {
	t.Helper()
	sum := 0
	eachString(reflect.ValueOf(got), func(s string) {
		require.LessOrEqual(t, len(s), longestText)
		require.True(t, utf8.ValidString(s), "%q", s)
		sum += len(s)
	})
	require.LessOrEqual(t, sum, podTexts+containersTexts+own)
	text, err := json.Marshal(got)
	require.NoError(t, err)
	var back corev1.PodStatus
	require.NoError(t, json.Unmarshal(text, &back), "the API server would not read it")
}

// requireValid requires that the values of a status are those of Kubernetes.
func requireValid(t *testing.T, got corev1.PodStatus) {
	t.Helper()
	require.Contains(t, []corev1.PodPhase{"", corev1.PodPending, corev1.PodRunning, corev1.PodSucceeded, corev1.PodFailed, corev1.PodUnknown}, got.Phase)
	for _, c := range got.Conditions {
		require.Contains(t, []corev1.ConditionStatus{corev1.ConditionTrue, corev1.ConditionFalse, corev1.ConditionUnknown}, c.Status)
	}
	for _, set := range [][]corev1.ContainerStatus{got.InitContainerStatuses, got.ContainerStatuses, got.EphemeralContainerStatuses} {
		for _, s := range set {
			require.GreaterOrEqual(t, s.RestartCount, int32(0))
		}
	}
}

func long(n int) string { return strings.Repeat("é", n/2) }

// setText sets a text whose type is deprecated.
func setText[T ~string](to *T, text string) { *to = T(text) }

// hostileStatus is as large and as wrong as a provider can make it.
func hostileStatus(local *corev1.Pod, size int) corev1.PodStatus {
	beyond := metav1.NewTime(time.Date(123456, 1, 1, 0, 0, 0, 0, time.UTC))
	huge := corev1.ResourceList{"cpu": resource.MustParse("1e15"), "memory": resource.MustParse("-1")}
	for i := range 100 {
		huge[corev1.ResourceName(fmt.Sprintf("x/%d", i))] = resource.MustParse("1")
	}
	container := func(name string) corev1.ContainerStatus {
		signal, mode := corev1.Signal(long(size)), corev1.RecursiveReadOnlyMode(long(size))
		s := corev1.ContainerStatus{
			Name: name, Image: long(size), ImageID: long(size), ContainerID: long(size), RestartCount: math.MaxInt32, StopSignal: &signal,
			State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: long(size), Message: long(size), ContainerID: long(size), FinishedAt: beyond}},
			LastTerminationState: corev1.ContainerState{
				Waiting: &corev1.ContainerStateWaiting{Reason: long(size), Message: "\xff" + long(size)}, Running: &corev1.ContainerStateRunning{StartedAt: beyond},
			},
			AllocatedResources: huge, Resources: &corev1.ResourceRequirements{Requests: huge, Limits: huge, Claims: make([]corev1.ResourceClaim, 1000)},
			User: &corev1.ContainerUser{Linux: &corev1.LinuxContainerUser{SupplementalGroups: make([]int64, 1<<16)}},
		}
		for i := range 100 {
			s.VolumeMounts = append(s.VolumeMounts, corev1.VolumeMountStatus{Name: long(size), MountPath: fmt.Sprintf("/%d", i), RecursiveReadOnly: &mode})
			message := long(size)
			s.AllocatedResourcesStatus = append(s.AllocatedResourcesStatus, corev1.ResourceStatus{Name: "cpu", Resources: []corev1.ResourceHealth{{ResourceID: corev1.ResourceID(long(size)), Message: &message}}})
		}
		return s
	}
	out := corev1.PodStatus{
		Phase: "Dancing", Reason: long(size), Message: long(size), StartTime: &beyond,
		NominatedNodeName: long(size), QOSClass: corev1.PodQOSClass(long(size)), HostIP: long(size), AllocatedResources: huge,
		Resources: &corev1.ResourceRequirements{Requests: huge},
	}
	setText(&out.Resize, long(size))
	for i := range 1000 {
		out.PodIPs = append(out.PodIPs, corev1.PodIP{IP: fmt.Sprintf("10.2.%d.%d", i/200, i%200)}, corev1.PodIP{IP: long(size)})
		for _, t := range []corev1.PodConditionType{corev1.PodReady, corev1.PodInitialized, corev1.ContainersReady, corev1.DisruptionTarget, corev1.PodConditionType(long(100) + fmt.Sprint(i))} {
			out.Conditions = append(out.Conditions, corev1.PodCondition{Type: t, Status: "Perhaps", Reason: long(size), Message: long(size), LastTransitionTime: beyond})
		}
		out.ContainerStatuses = append(out.ContainerStatuses, corev1.ContainerStatus{Name: fmt.Sprint(i)})
	}
	for i := range local.Spec.Containers {
		out.ContainerStatuses = append(out.ContainerStatuses, container(local.Spec.Containers[i].Name))
	}
	for i := range local.Spec.InitContainers {
		out.InitContainerStatuses = append(out.InitContainerStatuses, container(local.Spec.InitContainers[i].Name))
	}
	for i := range local.Spec.EphemeralContainers {
		out.EphemeralContainerStatuses = append(out.EphemeralContainerStatuses, container(local.Spec.EphemeralContainers[i].Name))
	}
	return out
}

func TestAHostileStatusIsBounded(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(in *StatusInput){
		"running": func(*StatusInput) {},
		"new":     func(in *StatusInput) { in.Local.Status = scene().Local.Status },
		"ended": func(in *StatusInput) {
			in.Shadow.Status.Phase, in.Shadow.Status.PodStatus = corev1.PodFailed, &in.Remote.Status
		},
		"refused": func(in *StatusInput) {
			in.Remote = nil
			in.Shadow.Status.Conditions = []metav1.Condition{{Type: offloadingv1beta1.ShadowPodEnforced, Status: metav1.ConditionFalse, Reason: long(1 << 16), Message: long(1 << 16)}}
		},
		"many containers": func(in *StatusInput) {
			for i := range 60 {
				in.Local.Spec.Containers = append(in.Local.Spec.Containers, corev1.Container{Name: fmt.Sprintf("c%d", i)})
			}
			in.Remote.Status = hostileStatus(in.Local, 1<<16)
		},
		"too many": func(in *StatusInput) {
			for i := range 900 {
				in.Local.Spec.Containers = append(in.Local.Spec.Containers, corev1.Container{Name: fmt.Sprintf("c%d", i)})
			}
			in.Remote.Status = *in.Remote.Status.DeepCopy()
			for i := range 900 {
				in.Remote.Status.ContainerStatuses = append(in.Remote.Status.ContainerStatuses, corev1.ContainerStatus{Name: fmt.Sprintf("c%d", i), Image: long(1000), ImageID: long(1000)})
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := published()
			in.Remote.Status = hostileStatus(in.Local, 1<<16)
			change(&in)
			told := map[string]bool{}
			in.Refused = func(reason, _ string) { told[reason] = true }
			got := Status(in)
			requireBounded(t, got, 2000+64*in.containers())
			requireValid(t, got)
			requireIdempotent(t, in, got)
			require.LessOrEqual(t, len(got.Conditions), 10)
			for _, s := range got.ContainerStatuses {
				for _, list := range []corev1.ResourceList{s.AllocatedResources, requirements(s.Resources).Requests, requirements(s.Resources).Limits} {
					require.LessOrEqual(t, len(list), 2)
					require.LessOrEqual(t, list.Cpu().Value(), int64(100), "the quota of this cluster counts it")
				}
			}
			if name != "refused" {
				require.True(t, told[RefusedStatus])
			}
		})
	}
}

func requirements(r *corev1.ResourceRequirements) corev1.ResourceRequirements {
	if r == nil {
		return corev1.ResourceRequirements{}
	}
	return *r
}

// What an honest kubelet writes fits.
func TestAnOrdinaryStatusIsNotCut(t *testing.T) {
	in := scene()
	in.Refused = func(reason, message string) { t.Errorf("refused: %s: %s", reason, message) }
	for i := range 20 {
		name := fmt.Sprintf("c%d", i)
		in.Local.Spec.Containers = append(in.Local.Spec.Containers, corev1.Container{Name: name})
		s := running(name, 1)
		s.Image, s.ImageID, s.ContainerID = "docker.io/library/"+name, "docker.io/library/"+name+"@sha256:"+strings.Repeat("a", 64), "containerd://"+strings.Repeat("b", 64)
		s.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{Reason: "Error", Message: strings.Repeat("x", 12<<10/20)}
		in.Remote.Status.ContainerStatuses = append(in.Remote.Status.ContainerStatuses, s)
	}
	got := Status(in)
	for _, s := range in.Remote.Status.ContainerStatuses {
		have := findStatus(got.ContainerStatuses, s.Name)
		require.NotNil(t, have, s.Name)
		require.Equal(t, s, *have)
	}
}

func TestAResizeIsReportedUpToWhatWasAsked(t *testing.T) {
	list := func(cpu string) corev1.ResourceList { return corev1.ResourceList{"cpu": resource.MustParse(cpu)} }
	for name, tc := range map[string]struct{ asked, before, reported, want string }{
		"a smaller one is new":    {"1", "2", "2", "2"},
		"a larger one is on way":  {"2", "1", "1", "1"},
		"more than was asked for": {"1", "1", "1000", "1"},
		"less than nothing":       {"1", "1", "-1", "0"},
	} {
		t.Run(name, func(t *testing.T) {
			got := atMost(list(tc.reported), ceilings(&corev1.ResourceRequirements{Requests: list(tc.asked)}, list(tc.before), nil))
			require.Equal(t, tc.want, got.Cpu().String())
		})
	}
	require.Empty(t, atMost(corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("1")}, ceilings(&corev1.ResourceRequirements{Requests: list("1")}, nil, nil)))
	require.Nil(t, atMost(nil, nil))
}

func TestRefusedAddresses(t *testing.T) {
	in := scene()
	in.Remapper = refusing{}
	var told []string
	in.Refused = func(reason, message string) { told = append(told, reason+": "+message) }
	require.Empty(t, Status(in).PodIPs)
	require.Equal(t, []string{
		"address: an address that the provider reports for the pod is left out: 10.2.0.7 is a node",
		"address: an address that the provider reports for the pod is left out: fd00::7 is a node",
	}, told)
}

type refusing struct{}

func (refusing) Remap(a netip.Addr) (netip.Addr, string, bool) {
	return a, a.String() + " is a node", false
}

// FuzzStatus reads the provider's status as it comes over the wire.
func FuzzStatus(f *testing.F) {
	in := published()
	ordinary, err := in.Remote.Status.Marshal()
	require.NoError(f, err)
	f.Add(ordinary, uint8(0))
	f.Add(ordinary, uint8(7))
	hostile := hostileStatus(in.Local, longestText+2)
	hostile.PodIPs, hostile.Conditions = hostile.PodIPs[:4], hostile.Conditions[:4]
	hostile.ContainerStatuses, hostile.InitContainerStatuses = hostile.ContainerStatuses[len(hostile.ContainerStatuses)-1:], nil
	s := &hostile.ContainerStatuses[0]
	s.VolumeMounts, s.AllocatedResourcesStatus, s.User, s.Resources, s.AllocatedResources = s.VolumeMounts[:2], s.AllocatedResourcesStatus[:2], nil, nil, nil
	hostile.AllocatedResources, hostile.Resources = nil, nil
	wrong, err := hostile.Marshal()
	require.NoError(f, err)
	f.Add(wrong, uint8(0))
	f.Fuzz(func(t *testing.T, data []byte, how uint8) {
		var status corev1.PodStatus
		if status.Unmarshal(data) != nil {
			return
		}
		in := published()
		if how&1 != 0 {
			in.Local.Status = scene().Local.Status
		}
		in.Remote.Status = status
		if how&2 != 0 {
			in.Shadow.Status.Phase, in.Shadow.Status.PodStatus = corev1.PodFailed, &status
		}
		if how&4 != 0 {
			now := at(150)
			in.Remote.DeletionTimestamp = &now
		}
		got := statusOf(t, in)
		requireBounded(t, got, 2000)
		requireValid(t, got)
	})
}

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
