package report

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
)

// exited is a container that has ended.
func exited(name, reason string, code int32) corev1.ContainerStatus {
	return corev1.ContainerStatus{Name: name, State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: reason, ExitCode: code}}}
}

// again is a container that waits for its next start.
func again(name, reason, last string) corev1.ContainerStatus {
	c := corev1.ContainerStatus{Name: name, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}}
	if last != "" {
		c.LastTerminationState = exited(name, last, 1).State
	}
	return c
}

// TestArgumentsOfFixes: each argument of a fix of reasons.yaml has a value.
func TestArgumentsOfFixes(t *testing.T) {
	data, err := os.ReadFile("../../../reasons/reasons.yaml")
	require.NoError(t, err)
	var all map[string]map[string]struct{ Fix string }
	require.NoError(t, yaml.Unmarshal(data, &all))
	s := healthy(t)
	broken(s, "web-3", "milan", unreadyFor("ContainersNotReady", "containers with unready status"))
	s.Claims = []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data"}}}
	c := &checker{Snapshot: s}
	pod := c.workloads()[0]
	pod.verdict.pvc = "data"
	s.Program = "liqod"
	values := map[string]map[string]string{
		"ForeignCluster": c.peerArguments(&s.ForeignClusters[0], corev1beta1.ConditionOutgoingPeering), kindPod: c.podArguments(pod),
	}
	rendered := map[string]func(code string) string{
		kindOffloading: func(code string) string { return c.offloadingFix(&s.Offloadings[0], strings.TrimPrefix(code, "*")) },
		kindMap:        func(code string) string { return mapFix(c.ownMap("milan"), code) },
		kindNode:       func(string) string { return keptOff(&appsv1.DaemonSet{}) },
	}
	values["Connection"], values[kindContainer], values[kindClaim] = values["ForeignCluster"], values[kindPod], values[kindPod]
	for kind, of := range all {
		for code, r := range of {
			if r.Fix == "" {
				continue
			}
			if render := rendered[kind]; render != nil {
				require.NotContains(t, render(code), "?", "%s: the fix of %s has an argument that nothing gives", kind, code)
				continue
			}
			require.Contains(t, values, kind, "%s: nothing reads the fix of %s", kind, code)
			os.Expand(r.Fix, func(name string) string {
				require.Contains(t, values[kind], name, "%s: the fix of %s has an argument that nothing gives", kind, code)
				return ""
			})
		}
	}
}

// TestFixesOfContainers: the log that a fix reads exists, and is that of the container that fails.
func TestFixesOfContainers(t *testing.T) {
	const edit, never, memory = "kubectl -n shop edit deployment web\nCorrect its command, or what the message names: container ", " did not start, and has no log.",
		"kubectl -n shop edit deployment web\nRaise the memory limit of container app. Its log may show what takes the memory:\n"
	for name, tc := range map[string]struct {
		init, containers []corev1.ContainerStatus
		owner            string
		fix              string
	}{
		"ends again and again":          {containers: []corev1.ContainerStatus{again("app", "CrashLoopBackOff", "Error")}, fix: "kubectl -n shop logs web-3 -c app --previous"},
		"has ended, before its pause":   {containers: []corev1.ContainerStatus{exited("app", "OOMKilled", 137)}, fix: memory + "kubectl -n shop logs web-3 -c app"},
		"out of memory again and again": {containers: []corev1.ContainerStatus{again("app", "CrashLoopBackOff", "OOMKilled")}, fix: memory + "kubectl -n shop logs web-3 -c app --previous"},
		"one of two":                    {containers: []corev1.ContainerStatus{{Name: "proxy"}, again("app", "CrashLoopBackOff", "Error")}, fix: "kubectl -n shop logs web-3 -c app --previous"},
		"of a Job that has others":      {containers: []corev1.ContainerStatus{exited("app", "Error", 1), {Name: "proxy"}}, owner: "Job", fix: "kubectl -n shop logs web-3 -c app"},
		"init container": {init: []corev1.ContainerStatus{exited("first", "Completed", 0), again("migrate", "CrashLoopBackOff", "Error")},
			containers: []corev1.ContainerStatus{again("app", "PodInitializing", "")}, fix: "kubectl -n shop logs web-3 -c migrate --previous"},
		"init container that is not started again": {init: []corev1.ContainerStatus{exited("migrate", "Error", 1)}, fix: "kubectl -n shop logs web-3 -c migrate"},
		"does not start":                  {containers: []corev1.ContainerStatus{exited("app", "StartError", 128)}, fix: edit + "app" + never},
		"does not start, waiting":         {containers: []corev1.ContainerStatus{again("app", "RunContainerError", "StartError")}, fix: edit + "app" + never},
		"does not start, the first time":  {containers: []corev1.ContainerStatus{again("app", "RunContainerError", "")}, fix: edit + "app" + never},
		"does not start, again and again": {containers: []corev1.ContainerStatus{again("app", "CrashLoopBackOff", "StartError")}, fix: edit + "app" + never},
		"does not start, of a Job": {containers: []corev1.ContainerStatus{exited("app", "StartError", 128)}, owner: "Job",
			fix: "kubectl -n shop delete job web-6c9f\nand create it again: the template of a Job cannot change.\nCorrect its command, or what the message names: container app" + never},
		"no image, of a Job": {containers: []corev1.ContainerStatus{again("app", "ImagePullBackOff", "")}, owner: "Job",
			fix: "kubectl -n shop delete job web-6c9f\nand create it again: the template of a Job cannot change.\nCorrect the image, or name an imagePullSecret; the nodes of cluster milan must reach the registry."},
		"of which the last end is not told": {containers: []corev1.ContainerStatus{again("app", "CrashLoopBackOff", "")}, fix: "kubectl -n shop describe pod web-3\nshows the events of both clusters."},
		"with a name that is none":          {containers: []corev1.ContainerStatus{again("$(id)", "CrashLoopBackOff", "Error")}, fix: "kubectl -n shop describe pod web-3\nshows the events of both clusters."},
	} {
		t.Run(name, func(t *testing.T) {
			s := healthy(t)
			p := broken(s, "web-3", "milan", unreadyFor("ContainersNotReady", "containers with unready status"))
			p.Status.InitContainerStatuses, p.Status.ContainerStatuses = tc.init, tc.containers
			if tc.owner != "" {
				p.OwnerReferences[0].Kind = tc.owner
			}
			require.Equal(t, tc.fix, onlyProblem(t, s).Fix)
		})
	}
}

func onlyProblem(t *testing.T, s *Snapshot) Finding {
	t.Helper()
	status := Summarize(s)
	require.Len(t, status.Problems, 1, status.Text(false))
	return status.Problems[0]
}

// TestFixesOfSchedulers: the fix follows what the scheduler of the provider, or of this cluster, says.
func TestFixesOfSchedulers(t *testing.T) {
	there := func(message string) func(*corev1.PodStatus) {
		return func(st *corev1.PodStatus) {
			unreadyFor(corev1.PodReasonUnschedulable, message)(st)
			st.Phase = corev1.PodPending
		}
	}
	const change = "kubectl -n shop edit deployment web\nLower its requests, or change its node selector, affinity or topology spread; or cluster milan gets nodes that fit."
	for name, tc := range map[string]struct {
		node   string
		status func(*corev1.PodStatus)
		fix    string
	}{
		"cordoned there": {"milan", there("in the provider: 0/2 nodes are available: 2 node(s) were unschedulable. no new claims to deallocate, preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling."),
			"In cluster milan:\nkubectl get nodes\nkubectl uncordon NODE\nlets a node that is cordoned there get pods again."},
		"cordoned and full there": {"milan", there("in the provider: 0/2 nodes are available: 1 node(s) were unschedulable, 1 Insufficient cpu."),
			"In cluster milan:\nkubectl get nodes\nkubectl uncordon NODE\nlets a node that is cordoned there get pods again. Or, in this cluster:\n" + change},
		"full there": {"milan", there("in the provider: 0/2 nodes are available: 2 Insufficient cpu."), change},
		"cordoned here": {"", unplaced("0/3 nodes are available: 3 node(s) were unschedulable. no new claims to deallocate, preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling."),
			"kubectl get nodes\nkubectl uncordon NODE\nlets a node that is cordoned get pods again."},
		"cordoned and full here": {"", unplaced("0/3 nodes are available: 1 node(s) were unschedulable, 2 Insufficient cpu."),
			"kubectl get nodes\nkubectl uncordon NODE\nlets a node that is cordoned get pods again. Or:\n" +
				"kubectl -n shop edit deployment web\nChange its requests, node selector or affinity. The free room:\nkubectl describe nodes"},
	} {
		t.Run(name, func(t *testing.T) {
			s := healthy(t)
			broken(s, "web-3", tc.node, tc.status)
			require.Equal(t, tc.fix, onlyProblem(t, s).Fix)
			pastes(t, Summarize(s))
		})
	}
}

// TestStaleWarnings: a warning that is older than the state of its pod is not the cause of that state.
func TestStaleWarnings(t *testing.T) {
	for name, tc := range map[string]struct {
		event, unready, started time.Duration
		reason                  string
	}{
		"of this state":                    {event: time.Minute, unready: 6 * time.Minute, reason: "Unhealthy"},
		"that has led to it":               {event: 6*time.Minute + 2*time.Second, unready: 6 * time.Minute, reason: "Unhealthy"},
		"of a state before":                {event: 40 * time.Minute, unready: 6 * time.Minute, reason: "ContainersNotReady"},
		"of the time before its container": {event: 8 * time.Minute, unready: 10 * time.Minute, started: 7 * time.Minute, reason: "ContainersNotReady"},
	} {
		t.Run(name, func(t *testing.T) {
			s := healthy(t)
			p := broken(s, "web-3", "milan", unreadyFor("ContainersNotReady", "containers with unready status: [app]"))
			p.CreationTimestamp, p.Status.Conditions[0].LastTransitionTime = ago(time.Hour), ago(tc.unready)
			if tc.started > 0 {
				p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: ago(tc.started)}}}}
			}
			s.Events = []corev1.Event{warningAbout(p, "Unhealthy", "Readiness probe failed")}
			s.Events[0].LastTimestamp = ago(tc.event)
			require.Equal(t, tc.reason, onlyProblem(t, s).Reason)
		})
	}
}
