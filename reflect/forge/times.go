package forge

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// pastTimes replaces the times in out that are in the future of this cluster, because the
// provider's clock is ahead. The Job controller, for example, measures the time since the
// end of a container. A time that was replaced once stays as it is when this cluster's clock
// has reached the provider's time.
func (in *StatusInput) pastTimes(out *corev1.PodStatus) {
	old := &in.Local.Status
	if in.Now.Before(out.StartTime) {
		out.StartTime = in.Now.DeepCopy()
	}
	if old.StartTime.Before(out.StartTime) { // a kubelet sets it once, and it never moves on
		out.StartTime = old.StartTime.DeepCopy()
	}
	for _, pair := range [][2][]corev1.ContainerStatus{
		{out.ContainerStatuses, old.ContainerStatuses}, {out.InitContainerStatuses, old.InitContainerStatuses},
		{out.EphemeralContainerStatuses, old.EphemeralContainerStatuses},
	} {
		for i := range pair[0] {
			in.pastRuns(&pair[0][i], findStatus(pair[1], pair[0][i].Name))
		}
	}
}

// pastRuns does it for the runs of a container. old may be nil.
func (in *StatusInput) pastRuns(status, old *corev1.ContainerStatus) {
	known := map[runName]run{}
	if old != nil {
		runsOf(old, func(n runName, r run) { known[n] = r })
	}
	runsOf(status, func(n runName, r run) {
		before := known[n]
		in.past(r.started, before.started)
		in.past(r.finished, before.finished)
	})
}

// run points to the times of one run of a container; finished is nil while it runs.
type run struct{ started, finished *metav1.Time }

// runName tells the runs of a container apart. The count of earlier runs includes those in
// earlier pods of the ShadowPod, so a run in another remote pod has another name, even if the
// provider gives its container no ID or the ID of an earlier one.
type runName struct {
	id    string
	count int32
}

// runsOf calls do for the current run of a container and the one before.
func runsOf(status *corev1.ContainerStatus, do func(runName, run)) {
	one := func(state *corev1.ContainerState, n runName) {
		switch {
		case state.Running != nil:
			do(n, run{started: &state.Running.StartedAt})
		case state.Terminated != nil:
			if state.Terminated.ContainerID != "" {
				n.id = state.Terminated.ContainerID
			}
			do(n, run{&state.Terminated.StartedAt, &state.Terminated.FinishedAt})
		}
	}
	one(&status.LastTerminationState, runName{count: status.RestartCount - 1})
	one(&status.State, runName{status.ContainerID, status.RestartCount})
}

// past sets t to an earlier time that this cluster has shown before, or to the current time if t
// is in the future. shown may be nil.
func (in *StatusInput) past(t, shown *metav1.Time) {
	switch {
	case t == nil || t.IsZero():
	case shown != nil && !shown.IsZero() && shown.Before(t):
		*t = *shown
	case in.Now.Before(t):
		*t = in.Now
	}
}
