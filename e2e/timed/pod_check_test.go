package timed

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
)

// podEvent is an event of a watch of pods. Those of one cluster are in the order in which
// they happened.
type podEvent struct {
	kind watch.EventType
	pod  *corev1.Pod
}

// expected is what may happen to a pod of the consumer, by the requests of its users.
type expected struct {
	// deleted: a user or the owner deletes it; forced: with grace 0.
	deleted, forced bool
	// phase and code are its end, if it ends by itself.
	phase corev1.PodPhase
	code  int32
	// lost: it fails because it was deleted in the provider.
	lost bool
	// replaced is how often it is deleted in the provider and created there again.
	replaced int
	// restarts is how often a container restarts in one pod of the provider; -1: any number.
	restarts int32
	// uncreated: it may be deleted before the provider has a pod of it.
	uncreated bool
}

// slack is how much times of two clusters on one machine may differ: they are whole seconds.
const slack = 1500 * time.Millisecond

// checkPods returns the rules that the pods of one namespace have broken. want returns what is
// expected of each local pod. It is pure.
func checkPods(home, provider []podEvent, want func(types.UID) expected) []string {
	c := &podCheck{want: want, homes: map[types.UID]*homeState{}, remotes: map[types.UID]*remoteState{}}
	for _, e := range home {
		c.addHome(e)
	}
	for _, e := range provider {
		c.addRemote(e)
	}
	c.finish()
	return c.wrong
}

type podCheck struct {
	want    func(types.UID) expected
	homes   map[types.UID]*homeState
	remotes map[types.UID]*remoteState // by local UID
	order   []types.UID
	wrong   []string
}

// homeState is what the events have shown of a pod of the consumer.
type homeState struct {
	last      *corev1.Pod
	deleted   time.Time // when it was deleted, by the first event that shows it
	endedSelf bool      // it ended before it was deleted
	gone      bool
	// unbound: it had no node when it was deleted, and so no kubelet to wait for.
	unbound bool
}

// remoteState is what the events have shown of the provider's pods of one local pod.
type remoteState struct {
	uids      []types.UID
	present   types.UID // "" between two
	last      *corev1.Pod
	started   map[string]metav1.Time  // by UID, container and restart count
	restarts  int32                   // of the pod of the provider that restarted most
	deleted   map[types.UID]time.Time // when it was deleted; zero if only its end was seen
	endedSelf bool
	code      int32 // of the last end seen, -1 before
}

func (c *podCheck) report(pod *corev1.Pod, format string, args ...any) {
	c.wrong = append(c.wrong, fmt.Sprintf("pod %s/%s (%s): ", pod.Namespace, pod.Name, pod.UID)+fmt.Sprintf(format, args...))
}

func hasEnded(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// deletedAt is when a pod was deleted, to the second.
func deletedAt(pod *corev1.Pod) time.Time {
	grace := int64(0)
	if pod.DeletionGracePeriodSeconds != nil {
		grace = *pod.DeletionGracePeriodSeconds
	}
	return pod.DeletionTimestamp.Add(-time.Duration(grace) * time.Second)
}

func (c *podCheck) addHome(s podEvent) {
	h := c.homes[s.pod.UID]
	if h == nil {
		h = &homeState{}
		c.homes[s.pod.UID] = h
		c.order = append(c.order, s.pod.UID)
	}
	want := c.want(s.pod.UID)
	if h.last != nil {
		c.compareHome(h.last, s.pod)
	}
	asked := s.pod.DeletionTimestamp != nil
	switch {
	case h.deleted.IsZero() && asked:
		h.deleted, h.unbound = deletedAt(s.pod), unbound(s.pod)
	case h.deleted.IsZero() && s.kind == watch.Deleted && !want.forced:
		c.report(s.pod, "is gone and was not deleted")
	}
	if (asked || s.kind == watch.Deleted) && !want.deleted && (h.last == nil || h.last.DeletionTimestamp == nil) {
		c.report(s.pod, "is deleted at home, and no user has deleted it")
	}
	if hasEnded(s.pod) && h.deleted.IsZero() && s.kind != watch.Deleted && !h.endedSelf {
		h.endedSelf = true
		c.checkEnd(s.pod, want)
	}
	if s.kind == watch.Deleted {
		h.gone = true
		if !hasEnded(s.pod) && !want.forced && s.pod.Spec.NodeName != "" && !h.unbound {
			c.report(s.pod, "is gone without an end: %s", s.pod.Status.Phase)
		}
	}
	h.last = s.pod
}

// unbound reports, at the first event that shows its deletion, whether a pod was bound only
// while it was being deleted: the API server gives no grace to a pod without a node, and does
// so still if the pod is bound before the deletion is written. No vkubelet has seen the pod;
// requireDeleters requires that no vkubelet has deleted it.
func unbound(pod *corev1.Pod) bool {
	return *pod.DeletionGracePeriodSeconds == 0 && pod.Status.Phase == corev1.PodPending && len(pod.Status.ContainerStatuses) == 0
}

func (c *podCheck) compareHome(before, after *corev1.Pod) {
	if hasEnded(before) && before.Status.Phase != after.Status.Phase {
		c.report(after, "was %s at home and is %s", before.Status.Phase, after.Status.Phase)
	}
	for _, b := range before.Status.ContainerStatuses {
		for _, a := range after.Status.ContainerStatuses {
			if a.Name == b.Name && a.RestartCount < b.RestartCount {
				c.report(after, "its restart count fell from %d to %d", b.RestartCount, a.RestartCount)
			}
		}
	}
}

// checkEnd checks a pod at home that ends without being deleted.
func (c *podCheck) checkEnd(pod *corev1.Pod, want expected) {
	switch {
	case want.lost:
		if pod.Status.Phase != corev1.PodFailed || pod.Status.Reason != offloadingv1beta1.ReasonRemotePodLost {
			c.report(pod, "was lost in the provider and is %s (%s) at home", pod.Status.Phase, pod.Status.Reason)
		}
	case want.phase == "":
		c.report(pod, "is %s (%s: %s) at home, and should run", pod.Status.Phase, pod.Status.Reason, pod.Status.Message)
	case want.phase != pod.Status.Phase || exitCode(pod) != want.code:
		c.report(pod, "ended as %s with %d at home: %s with %d is right", pod.Status.Phase, exitCode(pod), want.phase, want.code)
	}
}

// exitCode is that of the first container, -1 while it has none.
func exitCode(pod *corev1.Pod) int32 {
	if len(pod.Status.ContainerStatuses) == 0 || pod.Status.ContainerStatuses[0].State.Terminated == nil {
		return -1
	}
	return pod.Status.ContainerStatuses[0].State.Terminated.ExitCode
}

func (c *podCheck) addRemote(s podEvent) {
	local := types.UID(s.pod.Labels[offloadingv1beta1.LocalPodUIDLabel])
	r := c.remotes[local]
	if r == nil {
		r = &remoteState{started: map[string]metav1.Time{}, deleted: map[types.UID]time.Time{}, code: -1}
		c.remotes[local] = r
	}
	if !slices.Contains(r.uids, s.pod.UID) {
		r.uids = append(r.uids, s.pod.UID)
		switch {
		case r.present != "":
			c.report(s.pod, "is created for local pod %s while pod %s exists", local, r.present)
		case r.endedSelf:
			c.report(s.pod, "is created for local pod %s, which has ended", local)
		}
		r.present = s.pod.UID
	}
	c.compareRemote(r, s.pod)
	_, known := r.deleted[s.pod.UID]
	switch {
	case known || r.endedSelf: // what has ended may go
	case s.pod.DeletionTimestamp != nil:
		r.deleted[s.pod.UID] = deletedAt(s.pod)
	case s.kind == watch.Deleted:
		r.deleted[s.pod.UID] = time.Time{}
	}
	if hasEnded(s.pod) {
		r.code = exitCode(s.pod)
		r.endedSelf = r.endedSelf || s.pod.DeletionTimestamp == nil
	}
	if s.kind == watch.Deleted && r.present == s.pod.UID {
		r.present = ""
	}
	r.last = s.pod
}

// compareRemote compares the start of each container with earlier events.
func (c *podCheck) compareRemote(r *remoteState, pod *corev1.Pod) {
	if r.endedSelf && !hasEnded(pod) && r.last.UID == pod.UID {
		c.report(pod, "had ended in the provider and is %s", pod.Status.Phase)
	}
	for _, status := range pod.Status.ContainerStatuses {
		r.restarts = max(r.restarts, status.RestartCount)
		var at metav1.Time
		switch {
		case status.State.Running != nil:
			at = status.State.Running.StartedAt
		case status.State.Terminated != nil:
			at = status.State.Terminated.StartedAt
		}
		if at.IsZero() {
			continue
		}
		key := fmt.Sprint(pod.UID, status.Name, status.RestartCount)
		if before, known := r.started[key]; known && !before.Equal(&at) {
			c.report(pod, "container %s started at %s and, without a restart, at %s", status.Name, before, at)
		}
		r.started[key] = at
	}
}

func (c *podCheck) finish() {
	for _, uid := range c.order {
		c.finishOne(c.homes[uid], c.remotes[uid], c.want(uid))
	}
	for local, r := range c.remotes {
		if c.homes[local] == nil {
			c.report(r.last, "is created for local pod %s, which does not exist", local)
		}
	}
}

func (c *podCheck) finishOne(h *homeState, r *remoteState, want expected) {
	if want.phase != "" && !h.endedSelf || want.lost && !h.endedSelf {
		c.report(h.last, "has no end at home: %s", h.last.Status.Phase)
	}
	if r == nil {
		if !want.uncreated {
			c.report(h.last, "was never created in the provider")
		}
		return
	}
	if got := len(r.uids) - 1; got != want.replaced {
		c.report(h.last, "was created %d times again in the provider: %d is right (%v)", got, want.replaced, r.uids)
	}
	if want.restarts >= 0 && r.restarts != want.restarts {
		c.report(h.last, "a container started %d times again: %d is right", r.restarts, want.restarts)
	}
	if h.gone && r.present != "" {
		c.report(h.last, "is gone at home, and pod %s exists in the provider", r.present)
	}
	c.finishDeletion(h, r, want)
	// A deletion at home may go by before the last exit code has been read.
	if home := exitCode(h.last); hasEnded(h.last) && r.code >= 0 && home != r.code && home != 137 && !want.lost {
		c.report(h.last, "exit code %d at home, %d in the provider", home, r.code)
	}
}

// finishDeletion requires that the provider's pods were deleted after the local one, but for
// those that a user of the provider has deleted.
func (c *podCheck) finishDeletion(h *homeState, r *remoteState, want expected) {
	early := 0
	for _, at := range r.deleted {
		if !h.gone && h.deleted.IsZero() || !at.IsZero() && !h.deleted.IsZero() && at.Add(slack).Before(h.deleted) {
			early++
		}
	}
	allowed := want.replaced
	if want.lost {
		allowed++
	}
	if early > allowed {
		c.report(h.last, "%d of its pods were deleted in the provider before it was at home; %d are right", early, allowed)
	}
}

// second is a time of the table: seconds after an epoch.
func second(n int) metav1.Time { return metav1.Unix(1_700_000_000+int64(n), 0) }

// podBuilder builds the pods of the table.
type podBuilder struct{ *corev1.Pod }

func homePod(uid string) podBuilder {
	return podBuilder{&corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid), Name: "web"}, Spec: corev1.PodSpec{NodeName: "milan"}}}
}

func remotePod(uid, local string) podBuilder {
	p := homePod(uid)
	p.Labels = map[string]string{offloadingv1beta1.LocalPodUIDLabel: local}
	return p
}

func (m podBuilder) copy() podBuilder { return podBuilder{m.DeepCopy()} }

func (m podBuilder) running(start, restarts int) podBuilder {
	m = m.copy()
	m.Status.Phase = corev1.PodRunning
	m.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", RestartCount: int32(restarts), State: corev1.ContainerState{
		Running: &corev1.ContainerStateRunning{StartedAt: second(start)},
	}}}
	return m
}

func (m podBuilder) ended(phase corev1.PodPhase, start int, code int32) podBuilder {
	m = m.copy()
	m.Status.Phase = phase
	m.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", State: corev1.ContainerState{
		Terminated: &corev1.ContainerStateTerminated{StartedAt: second(start), ExitCode: code},
	}}}
	return m
}

func (m podBuilder) deleting(asked int) podBuilder {
	m = m.copy()
	at, grace := second(asked+1), int64(1)
	m.DeletionTimestamp, m.DeletionGracePeriodSeconds = &at, &grace
	return m
}

func (m podBuilder) pending() podBuilder {
	m = m.copy()
	m.Status.Phase = corev1.PodPending
	return m
}

func (m podBuilder) atOnce() podBuilder {
	m = m.copy()
	m.DeletionGracePeriodSeconds = new(int64)
	return m
}

func (m podBuilder) is() podEvent   { return podEvent{watch.Modified, m.Pod} }
func (m podBuilder) gone() podEvent { return podEvent{watch.Deleted, m.Pod} }

func TestCheckPods(t *testing.T) {
	h, r := homePod("h"), remotePod("r", "h")
	h2 := homePod("h2")
	ends := expected{phase: corev1.PodSucceeded}
	for name, c := range map[string]struct {
		home, provider []podEvent
		want           expected
		wrong          string // "" if nothing
	}{
		"runs": {home: []podEvent{h.is(), h.running(1, 0).is()}, provider: []podEvent{r.is(), r.running(1, 0).is()}},
		"deleted by its user": {
			home:     []podEvent{h.running(1, 0).is(), h.running(1, 0).deleting(5).is(), h.ended("Succeeded", 1, 0).deleting(5).is(), h.ended("Succeeded", 1, 0).deleting(5).gone()},
			provider: []podEvent{r.running(1, 0).is(), r.running(1, 0).deleting(5).is(), r.ended("Succeeded", 1, 0).deleting(5).gone()},
			want:     expected{deleted: true},
		},
		"never created": {home: []podEvent{h.is()}, wrong: "was never created in the provider"},
		"created twice at once": {
			home: []podEvent{h.is()}, provider: []podEvent{r.is(), remotePod("r2", "h").is()}, want: expected{replaced: 1},
			wrong: "while pod r exists",
		},
		"created again": {
			home: []podEvent{h.is(), h.deleting(1).is()}, provider: []podEvent{r.is(), r.deleting(2).gone(), remotePod("r2", "h").is()}, want: expected{deleted: true},
			wrong: "1 times again in the provider",
		},
		"replaced as asked": {
			home: []podEvent{h.is()}, provider: []podEvent{r.is(), r.deleting(2).gone(), remotePod("r2", "h").is()}, want: expected{replaced: 1},
		},
		"started again": {
			home: []podEvent{h.is()}, provider: []podEvent{r.running(1, 0).is(), r.running(4, 0).is()},
			wrong: "without a restart",
		},
		"restarted without cause": {
			home: []podEvent{h.is()}, provider: []podEvent{r.running(1, 0).is(), r.running(4, 1).is()},
			wrong: "started 1 times again",
		},
		"restarted with cause": {
			home: []podEvent{h.is()}, provider: []podEvent{r.running(1, 0).is(), r.running(4, 1).is()}, want: expected{restarts: 1},
		},
		"ends": {
			home: []podEvent{h.running(1, 0).is(), h.ended("Succeeded", 1, 0).is()}, provider: []podEvent{r.running(1, 0).is(), r.ended("Succeeded", 1, 0).is()}, want: ends,
		},
		"does not end": {
			home: []podEvent{h.running(1, 0).is()}, provider: []podEvent{r.running(1, 0).is(), r.ended("Succeeded", 1, 0).is()}, want: ends,
			wrong: "has no end at home",
		},
		"ends otherwise": {
			home: []podEvent{h.ended("Failed", 1, 2).is()}, provider: []podEvent{r.ended("Succeeded", 1, 0).is()}, want: ends,
			wrong: "ended as Failed with 2",
		},
		"deleted while it was bound": {
			home: []podEvent{h.is(), h.pending().deleting(2).atOnce().is(), h.pending().deleting(2).atOnce().gone()}, want: expected{deleted: true, uncreated: true},
		},
		"released without an end": {
			home: []podEvent{h.is(), h.pending().deleting(2).is(), h.pending().deleting(2).atOnce().gone()}, want: expected{deleted: true, uncreated: true},
			wrong: "is gone without an end",
		},
		"runs after its end at home": {
			home: []podEvent{h.ended("Succeeded", 1, 0).is(), h.running(3, 0).is()}, provider: []podEvent{r.ended("Succeeded", 1, 0).is()}, want: ends,
			wrong: "was Succeeded at home and is Running",
		},
		"runs after its end in the provider": {
			home:     []podEvent{h.ended("Succeeded", 1, 0).is()},
			provider: []podEvent{r.ended("Succeeded", 1, 0).is(), r.ended("Succeeded", 1, 0).gone(), remotePod("r2", "h").is()}, want: ends,
			wrong: "which has ended",
		},
		"fails without reason": {
			home: []podEvent{h.ended("Failed", 1, 1).is()}, provider: []podEvent{r.running(1, 0).is()},
			wrong: "should run",
		},
		"lost": {
			home: []podEvent{lostPod(h).is()}, provider: []podEvent{r.running(1, 0).is(), r.deleting(2).gone()}, want: expected{lost: true},
		},
		"deleted at home, by no user": {
			home: []podEvent{h.is(), h.deleting(2).is()}, provider: []podEvent{r.is()},
			wrong: "no user has deleted it",
		},
		"vanished at home": {
			home: []podEvent{h.is(), h.ended("Succeeded", 1, 0).gone()}, provider: []podEvent{r.is(), r.gone()}, want: expected{deleted: true},
			wrong: "was not deleted",
		},
		"forced": {
			home: []podEvent{h.is(), h.gone()}, provider: []podEvent{r.is(), r.gone()}, want: expected{deleted: true, forced: true},
		},
		"deleted in the provider first": {
			home:     []podEvent{h.is(), h.deleting(9).is()},
			provider: []podEvent{r.is(), r.deleting(2).is()}, want: expected{deleted: true},
			wrong: "before it was at home",
		},
		"deleted in the provider only": {
			home: []podEvent{h.is()}, provider: []podEvent{r.is(), r.deleting(2).is()},
			wrong: "before it was at home",
		},
		"left behind": {
			home: []podEvent{h.deleting(1).is(), h.ended("Succeeded", 1, 0).deleting(1).gone()}, provider: []podEvent{r.is()}, want: expected{deleted: true},
			wrong: "exists in the provider",
		},
		"restart count falls": {
			home: []podEvent{h.running(1, 2).is(), h.running(1, 1).is()}, provider: []podEvent{r.is()},
			wrong: "fell from 2 to 1",
		},
		"of no local pod": {home: []podEvent{h2.is()}, provider: []podEvent{r.is(), remotePod("r2", "h2").is()}, wrong: "which does not exist"},
		"other exit code": {
			home:     []podEvent{h.deleting(1).is(), h.ended("Failed", 1, 3).deleting(1).gone()},
			provider: []podEvent{r.ended("Failed", 1, 4).deleting(2).gone()}, want: expected{deleted: true},
			wrong: "exit code 3 at home, 4",
		},
	} {
		t.Run(name, func(t *testing.T) {
			wrong := checkPods(c.home, c.provider, func(types.UID) expected { return c.want })
			if c.wrong == "" {
				require.Empty(t, wrong)
				return
			}
			require.Contains(t, strings.Join(wrong, "\n"), c.wrong)
		})
	}
}

func lostPod(m podBuilder) podBuilder {
	m = m.ended("Failed", 1, 137)
	m.Status.Reason = offloadingv1beta1.ReasonRemotePodLost
	return m
}
