package report

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
)

// Each pod has one state: PodsOf, the counts of a status and its findings agree.
func TestPodsOf(t *testing.T) {
	for name, tc := range map[string]struct {
		node   string
		age    time.Duration
		change func(*corev1.Pod)
		want   Pod
	}{
		"ready": {"milan", time.Hour, func(p *corev1.Pod) { p.Status = pod("", "", "", "1", "1", corev1.PodRunning).Status },
			Pod{Peer: "milan", Level: OK, State: "Ready", Ready: true, Judged: true}},
		"starts": {"milan", 5 * time.Second, nil, Pod{Peer: "milan", Level: OK, State: "NotReady", Why: "it has not become ready", Judged: true}},
		"slow":   {"milan", 2 * time.Minute, nil, Pod{Peer: "milan", Level: Warning, State: "NotReady", Why: "it has not become ready", Judged: true}},
		"lasts":  {"milan", time.Hour, nil, Pod{Peer: "milan", Level: Problem, State: "NotReady", Why: "it has not become ready", Judged: true}},
		"completed": {"milan", time.Hour, func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded },
			Pod{Peer: "milan", Level: OK, State: "Completed", Ended: true}},
		"lost": {"milan", time.Hour, func(p *corev1.Pod) {
			p.Status = corev1.PodStatus{Phase: corev1.PodFailed, Reason: "RemotePodLost", Message: "gone"}
		},
			Pod{Peer: "milan", Level: Warning, State: "RemotePodLost", Why: "gone", Ended: true}},
		"failed": {"milan", time.Hour, func(p *corev1.Pod) {
			p.Status = corev1.PodStatus{Phase: corev1.PodFailed, ContainerStatuses: []corev1.ContainerStatus{{Name: "a", State: corev1.ContainerState{
				Terminated: &corev1.ContainerStateTerminated{ExitCode: 3, Reason: "Error"}}}}}
		}, Pod{Peer: "milan", Level: Warning, State: "Failed", Why: "container a: it ended with exit code 3 (Error)", Ended: true}},
		"crashes":         {"milan", time.Hour, func(p *corev1.Pod) { crashed(3, "Error")(&p.Status) }, Pod{Peer: "milan", Level: Problem, State: "CrashLoopBackOff", Why: "container app: it ended with exit code 3 (Error); it was started 4 times", Judged: true}},
		"crashes at home": {"rome-1", time.Hour, func(p *corev1.Pod) { crashed(3, "Error")(&p.Status) }, Pod{Level: Problem, State: "CrashLoopBackOff", Why: "container app: it ended with exit code 3 (Error); it was started 4 times"}},
		"refused":         {"milan", time.Hour, func(p *corev1.Pod) { refusing("PodRefused", "privileged")(&p.Status) }, Pod{Peer: "milan", Level: Problem, State: "PodRefused", Why: "privileged", Judged: true}},
		"no room":         {"", time.Hour, func(p *corev1.Pod) { unplaced("0/3 nodes")(&p.Status) }, Pod{Level: Problem, State: "Unschedulable", Why: "0/3 nodes", Judged: true}},
		"ends": {"milan", time.Hour, func(p *corev1.Pod) { p.DeletionTimestamp = ptr.To(ago(time.Second)) },
			Pod{Peer: "milan", Level: OK, State: "Terminating", Why: "it is being deleted", Judged: true}},
		"ends in its grace period": {"milan", time.Hour, func(p *corev1.Pod) { p.DeletionTimestamp = ptr.To(ago(-25 * time.Second)) },
			Pod{Peer: "milan", Level: OK, State: "Terminating", Why: "it is being deleted", Judged: true}},
		"two causes": {"milan", time.Hour, func(p *corev1.Pod) {
			crashed(3, "Error")(&p.Status)
			waits := p.Status.ContainerStatuses[0]
			waits.Name, waits.State = "log", corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff", Message: "no such image"}}
			waits.LastTerminationState, waits.RestartCount = corev1.ContainerState{}, 0
			p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, waits)
		}, Pod{Peer: "milan", Level: Problem, State: "CrashLoopBackOff", Judged: true,
			Why: "container app: it ended with exit code 3 (Error); it was started 4 times; container log (ImagePullBackOff): no such image"}},
		"no status": {"", time.Hour, nil, Pod{Level: Problem, State: "NotScheduled", Why: "no scheduler has given it a node", Judged: true}},
	} {
		t.Run(name, func(t *testing.T) {
			s := healthy(t)
			p := corev1.Pod{}
			p.Namespace, p.Name, p.Spec.NodeName, p.CreationTimestamp = "shop", "one", tc.node, ago(tc.age)
			p.Status.Phase = corev1.PodPending
			if tc.change != nil {
				tc.change(&p)
			}
			s.Pods = []corev1.Pod{p}
			tc.want.Name, tc.want.Node = "one", tc.node
			require.Equal(t, []Pod{tc.want}, s.PodsOf("shop"))
			require.Empty(t, s.PodsOf("other"))

			status, counts := Summarize(s), 0
			for _, ns := range status.Namespaces {
				counts += ns.NoNode.Pods
				for _, in := range ns.Peers {
					counts += in.PodCounts.Pods
				}
			}
			require.Equal(t, tc.want.Judged, counts == 1, "a judged pod is counted")
			if tc.want.Judged {
				require.Equal(t, tc.want.Level, Worse(status.Health, Worst(status.Warnings)))
			} else {
				require.Equal(t, OK, Worse(status.Health, Worst(status.Warnings)), "no other pod changes the health")
			}
		})
	}
}

func TestAmountsAndShares(t *testing.T) {
	for _, tc := range []struct {
		name                     corev1.ResourceName
		used, capacity           string
		wantUsed, wantOf, shared string
		percent                  int
	}{
		{corev1.ResourceCPU, "1500m", "4", "1.5", "4", "1.5/4 (38%)", 38},
		{corev1.ResourceCPU, "0", "4", "0", "4", "0/4 (0%)", 0},
		{corev1.ResourceMemory, "1536Mi", "8Gi", "1.5Gi", "8Gi", "1.5/8Gi (19%)", 19},
		{corev1.ResourceMemory, "100", "8Gi", "0Gi", "8Gi", "0/8Gi (0%)", 0},
		{corev1.ResourcePods, "120", "110", "120", "110", "120/110 (109%)", 109},
		{corev1.ResourcePods, "1", "0", "1", "0", "1/0", 100},
		{"example.com/gpu", "2", "8", "2", "8", "2/8 (25%)", 25},
		{corev1.ResourceEphemeralStorage, "10Gi", "100Gi", "10Gi", "100Gi", "10/100Gi (10%)", 10},
		{"hugepages-2Mi", "1Gi", "2Gi", "1Gi", "2Gi", "1/2Gi (50%)", 50},
		{corev1.ResourceCPU, "-5", "4", "-5", "4", "-5/4 (0%)", 0},
		{corev1.ResourceCPU, "9E", "1m", decimal(9e18), "0", decimal(9e18) + "/0 (999%)", 999},
	} {
		used, capacity := resource.MustParse(tc.used), resource.MustParse(tc.capacity)
		require.Equal(t, tc.wantUsed, Amount(tc.name, used))
		require.Equal(t, tc.wantOf, Amount(tc.name, capacity))
		require.Equal(t, tc.percent, Percent(used, capacity), "%s of %s", tc.used, tc.capacity)
		n := Room{Used: corev1.ResourceList{tc.name: used}, Capacity: corev1.ResourceList{tc.name: capacity}}
		require.Equal(t, tc.shared, n.share(tc.name))
	}
	n := Room{Used: resources("1500m", "1536Mi", "3"), Capacity: resources("32", "65536000Ki", "110")}
	require.Equal(t, "pods 3/110 (3%), cpu 1.5/32 (5%), memory 1.5/62.5Gi (2%)", n.inUse())
	require.Equal(t, "0/0Gi", Room{}.share(corev1.ResourceMemory))
}

// The pods of a namespace that could not be read make the state unknown.
func TestPodsThatCannotBeRead(t *testing.T) {
	s := healthy(t)
	s.Whole, s.Unread[ReadPods] = map[string]error{"shop": errors.New("forbidden")}, errors.New("forbidden")
	require.Equal(t, Unknown, Summarize(s).Health)
}
