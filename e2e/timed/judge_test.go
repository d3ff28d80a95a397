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

// sighting is a pod as a watch showed it. Those of one cluster are in the order in which
// they happened.
type sighting struct {
	kind watch.EventType
	pod  *corev1.Pod
}

// destiny is what may become of a pod of the consumer, as those asked who may ask.
type destiny struct {
	// deleted: its user or its owner has it deleted; forced: without waiting for its end.
	deleted, forced bool
	// phase and code are its end, if it has one of its own.
	phase corev1.PodPhase
	code  int32
	// lost: it ends because it was deleted in the provider.
	lost bool
	// replaced is how often it is deleted in the provider and runs there again.
	replaced int
	// restarts is how often a container starts again in one pod of the provider, -1 if that
	// does not matter.
	restarts int32
	// unmade: it may come and go without a pod in the provider.
	unmade bool
}

// slack is how much the clocks of two clusters on one machine, which tell whole seconds,
// may differ.
const slack = 1500 * time.Millisecond

// judge returns what was wrong in the lives of the pods of one namespace. It takes the
// destiny of each local pod from want; it is pure.
func judge(home, provider []sighting, want func(types.UID) destiny) []string {
	v := &verdict{want: want, homes: map[types.UID]*homeLife{}, remotes: map[types.UID]*remoteLife{}}
	for _, s := range home {
		v.seeHome(s)
	}
	for _, s := range provider {
		v.seeRemote(s)
	}
	v.conclude()
	return v.wrong
}

type verdict struct {
	want    func(types.UID) destiny
	homes   map[types.UID]*homeLife
	remotes map[types.UID]*remoteLife // by local UID
	order   []types.UID
	wrong   []string
}

// homeLife is what is known of a pod of the consumer, its last state in it.
type homeLife struct {
	last     *corev1.Pod
	askedAt  time.Time // when its deletion was asked for, by the first sighting of it
	endedOwn bool      // it ended before anybody asked for its deletion
	gone     bool
	// unbound: its deletion found it without a node, and so without anybody to wait for.
	unbound bool
}

// remoteLife is what is known of the provider's pods of one local pod.
type remoteLife struct {
	uids     []types.UID
	alive    types.UID // "" between two
	last     *corev1.Pod
	started  map[string]metav1.Time  // by UID, container and restart count
	restarts int32                   // of the pod of the provider that restarted most
	askedAt  map[types.UID]time.Time // when its deletion was asked for; zero if it just vanished
	endedOwn bool
	code     int32 // of the last end seen, -1 before
}

func (v *verdict) say(pod *corev1.Pod, format string, args ...any) {
	v.wrong = append(v.wrong, fmt.Sprintf("pod %s/%s (%s): ", pod.Namespace, pod.Name, pod.UID)+fmt.Sprintf(format, args...))
}

func over(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// askedAt is when the deletion of a pod was asked for, to the second.
func askedAt(pod *corev1.Pod) time.Time {
	grace := int64(0)
	if pod.DeletionGracePeriodSeconds != nil {
		grace = *pod.DeletionGracePeriodSeconds
	}
	return pod.DeletionTimestamp.Add(-time.Duration(grace) * time.Second)
}

func (v *verdict) seeHome(s sighting) {
	h := v.homes[s.pod.UID]
	if h == nil {
		h = &homeLife{}
		v.homes[s.pod.UID] = h
		v.order = append(v.order, s.pod.UID)
	}
	want := v.want(s.pod.UID)
	if h.last != nil {
		v.compareHome(h.last, s.pod)
	}
	asked := s.pod.DeletionTimestamp != nil
	switch {
	case h.askedAt.IsZero() && asked:
		h.askedAt, h.unbound = askedAt(s.pod), unbound(s.pod)
	case h.askedAt.IsZero() && s.kind == watch.Deleted && !want.forced:
		v.say(s.pod, "went without having been asked to")
	}
	if (asked || s.kind == watch.Deleted) && !want.deleted && (h.last == nil || h.last.DeletionTimestamp == nil) {
		v.say(s.pod, "is deleted at home, and nobody asked for it")
	}
	if over(s.pod) && h.askedAt.IsZero() && s.kind != watch.Deleted && !h.endedOwn {
		h.endedOwn = true
		v.ownEnd(s.pod, want)
	}
	if s.kind == watch.Deleted {
		h.gone = true
		if !over(s.pod) && !want.forced && s.pod.Spec.NodeName != "" && !h.unbound {
			v.say(s.pod, "went without an end: %s", s.pod.Status.Phase)
		}
	}
	h.last = s.pod
}

// unbound tells a pod, at the first sighting of its deletion, that was bound only after the
// API server had looked: what has no node gets no grace, and the API server, which tries
// again when the pod has changed meanwhile, keeps to that. No vkubelet has seen the pod;
// that vkubelets are not those who delete it, says requireDeleters.
func unbound(pod *corev1.Pod) bool {
	return *pod.DeletionGracePeriodSeconds == 0 && pod.Status.Phase == corev1.PodPending && len(pod.Status.ContainerStatuses) == 0
}

func (v *verdict) compareHome(before, after *corev1.Pod) {
	if over(before) && before.Status.Phase != after.Status.Phase {
		v.say(after, "was %s at home and is %s", before.Status.Phase, after.Status.Phase)
	}
	for _, b := range before.Status.ContainerStatuses {
		for _, a := range after.Status.ContainerStatuses {
			if a.Name == b.Name && a.RestartCount < b.RestartCount {
				v.say(after, "its restart count fell from %d to %d", b.RestartCount, a.RestartCount)
			}
		}
	}
}

// ownEnd is about a pod at home that ends though nobody deletes it.
func (v *verdict) ownEnd(pod *corev1.Pod, want destiny) {
	switch {
	case want.lost:
		if pod.Status.Phase != corev1.PodFailed || pod.Status.Reason != offloadingv1beta1.ReasonRemotePodLost {
			v.say(pod, "was lost in the provider and is %s (%s) at home", pod.Status.Phase, pod.Status.Reason)
		}
	case want.phase == "":
		v.say(pod, "is %s (%s: %s) at home, and should run", pod.Status.Phase, pod.Status.Reason, pod.Status.Message)
	case want.phase != pod.Status.Phase || exitCode(pod) != want.code:
		v.say(pod, "ended as %s with %d at home: %s with %d is right", pod.Status.Phase, exitCode(pod), want.phase, want.code)
	}
}

// exitCode is that of the first container, -1 while it has none.
func exitCode(pod *corev1.Pod) int32 {
	if len(pod.Status.ContainerStatuses) == 0 || pod.Status.ContainerStatuses[0].State.Terminated == nil {
		return -1
	}
	return pod.Status.ContainerStatuses[0].State.Terminated.ExitCode
}

func (v *verdict) seeRemote(s sighting) {
	local := types.UID(s.pod.Labels[offloadingv1beta1.LocalPodUIDLabel])
	r := v.remotes[local]
	if r == nil {
		r = &remoteLife{started: map[string]metav1.Time{}, askedAt: map[types.UID]time.Time{}, code: -1}
		v.remotes[local] = r
	}
	if !slices.Contains(r.uids, s.pod.UID) {
		r.uids = append(r.uids, s.pod.UID)
		switch {
		case r.alive != "":
			v.say(s.pod, "is made for local pod %s while pod %s is there", local, r.alive)
		case r.endedOwn:
			v.say(s.pod, "is made for local pod %s, which has ended", local)
		}
		r.alive = s.pod.UID
	}
	v.compareRemote(r, s.pod)
	_, known := r.askedAt[s.pod.UID]
	switch {
	case known || r.endedOwn: // what has ended may go
	case s.pod.DeletionTimestamp != nil:
		r.askedAt[s.pod.UID] = askedAt(s.pod)
	case s.kind == watch.Deleted:
		r.askedAt[s.pod.UID] = time.Time{}
	}
	if over(s.pod) {
		r.code = exitCode(s.pod)
		r.endedOwn = r.endedOwn || s.pod.DeletionTimestamp == nil
	}
	if s.kind == watch.Deleted && r.alive == s.pod.UID {
		r.alive = ""
	}
	r.last = s.pod
}

// compareRemote holds the start of each container against what was seen of it.
func (v *verdict) compareRemote(r *remoteLife, pod *corev1.Pod) {
	if r.endedOwn && !over(pod) && r.last.UID == pod.UID {
		v.say(pod, "had ended in the provider and is %s", pod.Status.Phase)
	}
	for _, c := range pod.Status.ContainerStatuses {
		r.restarts = max(r.restarts, c.RestartCount)
		var at metav1.Time
		switch {
		case c.State.Running != nil:
			at = c.State.Running.StartedAt
		case c.State.Terminated != nil:
			at = c.State.Terminated.StartedAt
		}
		if at.IsZero() {
			continue
		}
		key := fmt.Sprint(pod.UID, c.Name, c.RestartCount)
		if before, known := r.started[key]; known && !before.Equal(&at) {
			v.say(pod, "container %s started at %s and, without a restart, at %s", c.Name, before, at)
		}
		r.started[key] = at
	}
}

func (v *verdict) conclude() {
	for _, uid := range v.order {
		v.concludeOne(v.homes[uid], v.remotes[uid], v.want(uid))
	}
	for local, r := range v.remotes {
		if v.homes[local] == nil {
			v.say(r.last, "is made for local pod %s, which nobody has seen", local)
		}
	}
}

func (v *verdict) concludeOne(h *homeLife, r *remoteLife, want destiny) {
	if want.phase != "" && !h.endedOwn || want.lost && !h.endedOwn {
		v.say(h.last, "has no end at home: %s", h.last.Status.Phase)
	}
	if r == nil {
		if !want.unmade {
			v.say(h.last, "never was in the provider")
		}
		return
	}
	if got := len(r.uids) - 1; got != want.replaced {
		v.say(h.last, "was made %d times again in the provider: %d is right (%v)", got, want.replaced, r.uids)
	}
	if want.restarts >= 0 && r.restarts != want.restarts {
		v.say(h.last, "a container started %d times again: %d is right", r.restarts, want.restarts)
	}
	if h.gone && r.alive != "" {
		v.say(h.last, "is gone at home, and pod %s is in the provider", r.alive)
	}
	v.concludeDeletion(h, r, want)
	// A deletion at home may go by before the last exit code has been read.
	if home := exitCode(h.last); over(h.last) && r.code >= 0 && home != r.code && home != 137 && !want.lost {
		v.say(h.last, "exit code %d at home, %d in the provider", home, r.code)
	}
}

// concludeDeletion requires that the provider's pods went because the local one did, but
// for those that somebody deleted there.
func (v *verdict) concludeDeletion(h *homeLife, r *remoteLife, want destiny) {
	early := 0
	for _, at := range r.askedAt {
		if !h.gone && h.askedAt.IsZero() || !at.IsZero() && !h.askedAt.IsZero() && at.Add(slack).Before(h.askedAt) {
			early++
		}
	}
	allowed := want.replaced
	if want.lost {
		allowed++
	}
	if early > allowed {
		v.say(h.last, "%d of its pods were deleted in the provider before it was at home; %d are right", early, allowed)
	}
}

// When the table's pods were asked for, started, …: seconds after an epoch.
func second(n int) metav1.Time { return metav1.Unix(1_700_000_000+int64(n), 0) }

// made builds the pods of the table.
type made struct{ *corev1.Pod }

func homePod(uid string) made {
	return made{&corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid), Name: "web"}, Spec: corev1.PodSpec{NodeName: "milan"}}}
}

func remotePod(uid, local string) made {
	p := homePod(uid)
	p.Labels = map[string]string{offloadingv1beta1.LocalPodUIDLabel: local}
	return p
}

func (m made) copy() made { return made{m.DeepCopy()} }

func (m made) running(start, restarts int) made {
	m = m.copy()
	m.Status.Phase = corev1.PodRunning
	m.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", RestartCount: int32(restarts), State: corev1.ContainerState{
		Running: &corev1.ContainerStateRunning{StartedAt: second(start)},
	}}}
	return m
}

func (m made) ended(phase corev1.PodPhase, start int, code int32) made {
	m = m.copy()
	m.Status.Phase = phase
	m.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", State: corev1.ContainerState{
		Terminated: &corev1.ContainerStateTerminated{StartedAt: second(start), ExitCode: code},
	}}}
	return m
}

func (m made) leaving(asked int) made {
	m = m.copy()
	at, grace := second(asked+1), int64(1)
	m.DeletionTimestamp, m.DeletionGracePeriodSeconds = &at, &grace
	return m
}

func (m made) pending() made {
	m = m.copy()
	m.Status.Phase = corev1.PodPending
	return m
}

func (m made) atOnce() made {
	m = m.copy()
	m.DeletionGracePeriodSeconds = new(int64)
	return m
}

func (m made) is() sighting   { return sighting{watch.Modified, m.Pod} }
func (m made) gone() sighting { return sighting{watch.Deleted, m.Pod} }

func TestJudge(t *testing.T) {
	h, r := homePod("h"), remotePod("r", "h")
	h2 := homePod("h2")
	ends := destiny{phase: corev1.PodSucceeded}
	for name, c := range map[string]struct {
		home, provider []sighting
		want           destiny
		wrong          string // "" if nothing
	}{
		"runs": {home: []sighting{h.is(), h.running(1, 0).is()}, provider: []sighting{r.is(), r.running(1, 0).is()}},
		"deleted by its user": {
			home:     []sighting{h.running(1, 0).is(), h.running(1, 0).leaving(5).is(), h.ended("Succeeded", 1, 0).leaving(5).is(), h.ended("Succeeded", 1, 0).leaving(5).gone()},
			provider: []sighting{r.running(1, 0).is(), r.running(1, 0).leaving(5).is(), r.ended("Succeeded", 1, 0).leaving(5).gone()},
			want:     destiny{deleted: true},
		},
		"never made": {home: []sighting{h.is()}, wrong: "never was in the provider"},
		"made twice at once": {
			home: []sighting{h.is()}, provider: []sighting{r.is(), remotePod("r2", "h").is()}, want: destiny{replaced: 1},
			wrong: "while pod r is there",
		},
		"made again": {
			home: []sighting{h.is(), h.leaving(1).is()}, provider: []sighting{r.is(), r.leaving(2).gone(), remotePod("r2", "h").is()}, want: destiny{deleted: true},
			wrong: "1 times again in the provider",
		},
		"replaced as asked": {
			home: []sighting{h.is()}, provider: []sighting{r.is(), r.leaving(2).gone(), remotePod("r2", "h").is()}, want: destiny{replaced: 1},
		},
		"started again": {
			home: []sighting{h.is()}, provider: []sighting{r.running(1, 0).is(), r.running(4, 0).is()},
			wrong: "without a restart",
		},
		"restarted without cause": {
			home: []sighting{h.is()}, provider: []sighting{r.running(1, 0).is(), r.running(4, 1).is()},
			wrong: "started 1 times again",
		},
		"restarted with cause": {
			home: []sighting{h.is()}, provider: []sighting{r.running(1, 0).is(), r.running(4, 1).is()}, want: destiny{restarts: 1},
		},
		"ends": {
			home: []sighting{h.running(1, 0).is(), h.ended("Succeeded", 1, 0).is()}, provider: []sighting{r.running(1, 0).is(), r.ended("Succeeded", 1, 0).is()}, want: ends,
		},
		"does not end": {
			home: []sighting{h.running(1, 0).is()}, provider: []sighting{r.running(1, 0).is(), r.ended("Succeeded", 1, 0).is()}, want: ends,
			wrong: "has no end at home",
		},
		"ends otherwise": {
			home: []sighting{h.ended("Failed", 1, 2).is()}, provider: []sighting{r.ended("Succeeded", 1, 0).is()}, want: ends,
			wrong: "ended as Failed with 2",
		},
		"deleted while it was bound": {
			home: []sighting{h.is(), h.pending().leaving(2).atOnce().is(), h.pending().leaving(2).atOnce().gone()}, want: destiny{deleted: true, unmade: true},
		},
		"released without an end": {
			home: []sighting{h.is(), h.pending().leaving(2).is(), h.pending().leaving(2).atOnce().gone()}, want: destiny{deleted: true, unmade: true},
			wrong: "went without an end",
		},
		"runs after its end at home": {
			home: []sighting{h.ended("Succeeded", 1, 0).is(), h.running(3, 0).is()}, provider: []sighting{r.ended("Succeeded", 1, 0).is()}, want: ends,
			wrong: "was Succeeded at home and is Running",
		},
		"runs after its end in the provider": {
			home:     []sighting{h.ended("Succeeded", 1, 0).is()},
			provider: []sighting{r.ended("Succeeded", 1, 0).is(), r.ended("Succeeded", 1, 0).gone(), remotePod("r2", "h").is()}, want: ends,
			wrong: "which has ended",
		},
		"fails without reason": {
			home: []sighting{h.ended("Failed", 1, 1).is()}, provider: []sighting{r.running(1, 0).is()},
			wrong: "should run",
		},
		"lost": {
			home: []sighting{lostPod(h).is()}, provider: []sighting{r.running(1, 0).is(), r.leaving(2).gone()}, want: destiny{lost: true},
		},
		"deleted at home by nobody": {
			home: []sighting{h.is(), h.leaving(2).is()}, provider: []sighting{r.is()},
			wrong: "nobody asked for it",
		},
		"vanished at home": {
			home: []sighting{h.is(), h.ended("Succeeded", 1, 0).gone()}, provider: []sighting{r.is(), r.gone()}, want: destiny{deleted: true},
			wrong: "without having been asked",
		},
		"forced": {
			home: []sighting{h.is(), h.gone()}, provider: []sighting{r.is(), r.gone()}, want: destiny{deleted: true, forced: true},
		},
		"deleted in the provider first": {
			home:     []sighting{h.is(), h.leaving(9).is()},
			provider: []sighting{r.is(), r.leaving(2).is()}, want: destiny{deleted: true},
			wrong: "before it was at home",
		},
		"deleted in the provider only": {
			home: []sighting{h.is()}, provider: []sighting{r.is(), r.leaving(2).is()},
			wrong: "before it was at home",
		},
		"left behind": {
			home: []sighting{h.leaving(1).is(), h.ended("Succeeded", 1, 0).leaving(1).gone()}, provider: []sighting{r.is()}, want: destiny{deleted: true},
			wrong: "is in the provider",
		},
		"restart count falls": {
			home: []sighting{h.running(1, 2).is(), h.running(1, 1).is()}, provider: []sighting{r.is()},
			wrong: "fell from 2 to 1",
		},
		"of nobody": {home: []sighting{h2.is()}, provider: []sighting{r.is(), remotePod("r2", "h2").is()}, wrong: "which nobody has seen"},
		"other exit code": {
			home:     []sighting{h.leaving(1).is(), h.ended("Failed", 1, 3).leaving(1).gone()},
			provider: []sighting{r.ended("Failed", 1, 4).leaving(2).gone()}, want: destiny{deleted: true},
			wrong: "exit code 3 at home, 4",
		},
	} {
		t.Run(name, func(t *testing.T) {
			wrong := judge(c.home, c.provider, func(types.UID) destiny { return c.want })
			if c.wrong == "" {
				require.Empty(t, wrong)
				return
			}
			require.Contains(t, strings.Join(wrong, "\n"), c.wrong)
		})
	}
}

func lostPod(m made) made {
	m = m.ended("Failed", 1, 137)
	m.Status.Reason = offloadingv1beta1.ReasonRemotePodLost
	return m
}
