package kinds

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/liqod/liqod/kube/store"
)

const (
	// statusBurst is the number of writes of a pod's status that are not delayed: more than
	// a pod needs to start, and to end. statusInterval is the time between the writes after
	// those.
	statusBurst    = 20
	statusInterval = 10 * time.Second
	// mostTold is the number of different refusals of which a pod gets an event.
	mostTold = 8
	// reasonStatusRefused is the reason of events about a part of the provider's status that
	// is left out.
	reasonStatusRefused = "RemoteStatusRefused"
	// RefusedRate means that the status of a pod changes too often, and is written later.
	RefusedRate = "status-rate"
)

// bucket limits the writes of one pod's status.
type bucket struct {
	tokens float64
	at     time.Time // of the last change of tokens
	free   int       // bytes that do not count for the budget of the provider
}

// wait returns the time until the next write may be made; 0 means that it may be made now.
func (b *bucket) wait(now time.Time) time.Duration {
	b.tokens = min(statusBurst, b.tokens+max(0, now.Sub(b.at).Seconds())/statusInterval.Seconds())
	b.at = now
	if b.tokens < 1 {
		return time.Duration((1-b.tokens)*float64(statusInterval)) + time.Millisecond
	}
	return 0
}

// delay returns how long a write of the status has to wait, because a provider whose pods
// change all the time would fill the etcd of this cluster. Whatever the status is then is
// written. The end of a pod never waits, nor does the end of its readiness: each follows a
// write that was counted.
func (p *Pods) delay(local *corev1.Pod, want *corev1.PodStatus) time.Duration {
	now, cost := p.cfg.Clock.Now(), statusCost(local, want)
	urgency := urgencyOf(local, want)
	p.mu.Lock()
	b := p.buckets[local.UID]
	if b == nil {
		b = &bucket{tokens: statusBurst, at: now, free: podBytes}
		p.buckets[local.UID] = b
	}
	wait := b.wait(now)
	if urgency == atOnce {
		wait = 0
	}
	if wait == 0 {
		wait = p.spend(b, now, cost, urgency)
	}
	if wait == 0 && urgency != atOnce {
		b.tokens--
	}
	p.mu.Unlock()
	if wait > 0 {
		p.count(RefusedRate)
	}
	return wait
}

func isReady(s *corev1.PodStatus) bool {
	for _, c := range s.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// tellRefused counts a part of the provider's status that was left out, and records an
// event about it, once for each pod and message.
func (p *Pods) tellRefused(local *corev1.Pod, reason, message string) {
	if !p.isNews(local.UID, reason+message) {
		return
	}
	p.count(reason)
	p.cfg.Recorder.Event(local, corev1.EventTypeWarning, reasonStatusRefused, store.ClipMessage(message))
}

func (p *Pods) isNews(uid types.UID, what string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	told := p.refused[uid]
	if told[what] || len(told) >= mostTold {
		return false
	}
	if told == nil {
		told = map[string]bool{}
		p.refused[uid] = told
	}
	told[what] = true
	return true
}

func (p *Pods) count(reason string) {
	if p.cfg.Refused != nil {
		p.cfg.Refused(reason)
	}
}
