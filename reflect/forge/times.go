package forge

import (
	"strconv"

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
		if old.StartTime != nil && old.StartTime.Before(out.StartTime) {
			out.StartTime = old.StartTime.DeepCopy()
		}
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
	known := map[string]run{}
	if old != nil {
		runsOf(old, func(id string, r run) { known[id] = r })
	}
	runsOf(status, func(id string, r run) {
		before := known[id]
		in.past(r.started, before.started)
		in.past(r.finished, before.finished)
	})
}

// run points to the times of one run of a container; finished is nil while it runs.
type run struct{ started, finished *metav1.Time }

// runsOf calls do for the current run of a container and the one before. The name of a run
// is its container ID, or the count of earlier runs if the provider gives none.
func runsOf(status *corev1.ContainerStatus, do func(id string, r run)) {
	one := func(state *corev1.ContainerState, id string, count int32) {
		switch {
		case state.Running != nil:
			do(name(id, count), run{started: &state.Running.StartedAt})
		case state.Terminated != nil:
			if state.Terminated.ContainerID != "" {
				id = state.Terminated.ContainerID
			}
			do(name(id, count), run{&state.Terminated.StartedAt, &state.Terminated.FinishedAt})
		}
	}
	one(&status.LastTerminationState, "", status.RestartCount-1)
	one(&status.State, status.ContainerID, status.RestartCount)
}

func name(id string, count int32) string {
	if id != "" {
		return id
	}
	return strconv.Itoa(int(count))
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
