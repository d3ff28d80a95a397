package quota

import (
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/shadow/rules"
)

// claim is the room that one pod name takes: that of the pod that exists under the name, and
// what is reserved beyond it. At most one pod of a name exists at a time.
type claim struct {
	account *account

	// pod is the UID of the pod that exists; empty: none is known. version is its newest
	// resource version, read at the time at.
	pod      types.UID
	version  string
	at       time.Time
	requests corev1.ResourceList // empty: the pod has ended

	// extra is reserved for a pod to be created, for the successor of a lost pod, or, with
	// resize, for what a resize in flight may already have added to the pod.
	extra  corev1.ResourceList
	resize bool
	// shadow and generation are the ShadowPod whose new pod extra is for.
	shadow     types.UID
	generation int64
	// sent is when the creation was sent; zero: not sent, or shown by the cache since. Its
	// pod may exist.
	sent time.Time
	// least is the size of a pod of the ShadowPod that was larger than predicted and was
	// deleted before it ran.
	least corev1.ResourceList
}

// charge returns the resources that the claim counts for.
func (c *claim) charge() corev1.ResourceList {
	sum := corev1.ResourceList{}
	maps.Copy(sum, c.requests)
	rules.AddResources(sum, c.extra)
	return sum
}

func keyOf(pod *corev1.Pod) loop.Key { return loop.Key{Namespace: pod.Namespace, Name: pod.Name} }

// change changes the claim of key in one step with the sum of its account, and drops a claim
// that holds nothing. It creates the claim in account a if there is none, and returns the
// account of the claim.
func (l *Ledger) change(a *account, key loop.Key, act func(*claim)) *account {
	c := l.claims[key]
	if c == nil {
		c = &claim{account: a}
		l.claims[key] = c
	}
	before := c.charge()
	act(c)
	if c.pod == "" && len(c.extra) == 0 && len(c.least) == 0 {
		delete(l.claims, key)
	}
	if after := c.charge(); !equality.Semantic.DeepEqual(before, after) {
		rules.SubResources(c.account.used, before)
		rules.AddResources(c.account.used, after)
		c.account.freed = c.account.freed || len(rules.MoreResources(before, after)) > 0
	}
	return c.account
}

// update changes the claim of key if there is one, and gives away what that frees.
func (l *Ledger) update(key loop.Key, act func(*claim)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c := l.claims[key]; c != nil {
		l.drain(l.change(c.account, key, act))
	}
}

// Seen counts a pod that the cache of pods shows, in its newest state.
func (l *Ledger) Seen(pod *corev1.Pod) {
	again := l.cfg.Again(pod)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.count(pod, again, true)
}

// count counts a pod unless a newer state of its name is counted. A pod that has been counted
// stays in its account, whatever its labels become. cached: the cache shows it.
func (l *Ledger) count(pod *corev1.Pod, again, cached bool) {
	key := keyOf(pod)
	if c := l.claims[key]; c != nil && c.pod != "" && store.OlderVersion(pod.ResourceVersion, c.version) && !l.wentBack(c.at) {
		return
	}
	ended := offloadingv1beta1.Ended(pod.Status.Phase) && !again
	a := l.change(l.account(pod.Labels[offloadingv1beta1.OriginLabel]), key, func(c *claim) {
		created := !c.resize && !c.sent.IsZero() && types.UID(pod.Annotations[offloadingv1beta1.ShadowPodUIDAnnotation]) == c.shadow
		if created || c.resize && (ended || c.pod != pod.UID) {
			c.extra, c.resize = nil, false
		}
		if created && cached {
			c.sent = time.Time{}
		}
		c.pod, c.version, c.at, c.requests = pod.UID, pod.ResourceVersion, l.cfg.Clock.Now(), nil
		if !ended {
			c.requests = rules.Requests(pod)
		}
	})
	l.drain(a)
}

// wentBack reports whether the state of the cluster has gone back since. Resource versions
// prove nothing then.
func (l *Ledger) wentBack(since time.Time) bool {
	return l.cfg.HomeLost != nil && l.cfg.HomeLost().After(since)
}

// Gone stops counting a deleted pod. Its room is kept for the ShadowPod with the UID
// successor, unless that is empty.
func (l *Ledger) Gone(pod *corev1.Pod, successor types.UID) {
	l.update(keyOf(pod), func(c *claim) {
		if c.pod != pod.UID {
			return
		}
		switch {
		case !c.resize && len(c.extra) > 0:
			c.extra = c.charge() // it was what the next pod needs beyond this one
		case successor != "" && !l.began.IsZero():
			c.shadow, c.generation, c.extra, c.sent = successor, 0, c.requests, time.Time{}
		default:
			c.extra, c.sent = nil, time.Time{}
		}
		c.pod, c.requests, c.resize = "", nil, false
	})
}

// Sent records that the creation of the pod is about to be sent.
func (l *Ledger) Sent(key loop.Key) { l.update(key, func(c *claim) { c.sent = l.cfg.Clock.Now() }) }

// Created counts the pod in the answer of a creation, unless the cache has shown it first.
// v is the answer of Reserve. Created reports whether the pod is larger than predicted, so
// that its consumer now exceeds its Quotas.
func (l *Ledger) Created(pod *corev1.Pod, v Verdict) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.claims[keyOf(pod)]
	if c != nil && !c.sent.IsZero() {
		l.count(pod, false, false)
	}
	if c == nil || v.predicted == nil {
		return false
	}
	return l.bound(c.account.consumer).Beyond(c.account.used, rules.MoreResources(rules.Requests(pod), v.predicted))
}

// TakenBack records that a new pod was deleted before it ran. The next Reserve for its
// ShadowPod asks for the size of this pod.
func (l *Ledger) TakenBack(pod *corev1.Pod) {
	l.update(keyOf(pod), func(c *claim) {
		c.pod, c.requests, c.extra, c.sent, c.least = "", nil, nil, time.Time{}, rules.Requests(pod)
	})
}

// Absent releases the room of a creation whose pod does not exist.
func (l *Ledger) Absent(key loop.Key) {
	l.update(key, func(c *claim) { c.extra, c.sent = nil, time.Time{} })
}

// Idle releases what is held for a ShadowPod that needs no new pod at present, except the
// room of a creation that was sent and that no cache has shown: its pod may exist. It returns
// the time of that creation, or zero.
func (l *Ledger) Idle(key loop.Key) (sent time.Time) {
	l.mu.Lock()
	a := l.forget(key)
	if a != nil {
		l.drain(a)
	}
	l.mu.Unlock()
	l.update(key, func(c *claim) {
		if sent = c.sent; sent.IsZero() && !c.resize {
			c.extra, c.least = nil, nil
		}
	})
	return sent
}

// Resized ends a resize of pod. answer is the resized pod, or nil if the resize was refused.
func (l *Ledger) Resized(pod, answer *corev1.Pod) {
	l.update(keyOf(pod), func(c *claim) {
		if c.pod == pod.UID && c.resize {
			c.extra, c.resize = nil, false
		}
	})
	if answer != nil {
		l.Seen(answer)
	}
}
