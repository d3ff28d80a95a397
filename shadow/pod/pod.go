package pod

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/reasons"
	"github.com/liqod/liqod/shadow/rules"
)

// sync gathers the facts about one key, decides on one action, and does it. It gathers and
// decides again from live reads if the action needs that. A pod that waits for room in its
// consumer's Quotas costs no read.
func (e *Enforcer) sync(ctx context.Context, key loop.Key) error {
	f := e.cached(key)
	a := decide(f)
	if a.confirm && a.verb == createPod {
		if room, err := e.reserve(ctx, f); err != nil || !room.OK() {
			return err
		}
	}
	if a.confirm {
		var err error
		if f, err = e.live(ctx, key); err != nil {
			return err
		}
		a = decide(f)
	}
	return e.do(ctx, key, f, a)
}

const (
	namespaceKind = "Namespace"
	// leaveDelay is the head start of a vkubelet. It deletes the ShadowPod first, and then
	// the pod, with the grace period of the pod's user.
	leaveDelay = 5 * time.Second
	// freshFor separates the writes of an earlier leader from a ShadowPod's creation, where
	// resource versions do not show it. A ShadowPod created more than freshFor after this
	// process began to lead cannot have a pod of an earlier leader. It is also how long a sync
	// waits for the namespace of a new ShadowPod to appear in the cache.
	freshFor = 10 * time.Second
	// clockSkew is how far this clock may be behind the API server's.
	clockSkew = 2 * time.Second
)

// facts are the inputs of a decision. They are read-only.
type facts struct {
	shadow    *offloadingv1beta1.ShadowPod // nil: there is none
	pod       *corev1.Pod                  // the pod of that name; nil: there is none
	lost      *corev1.Pod                  // last state of a deleted pod of this ShadowPod; nil: unknown
	namespace *corev1.Namespace            // nil: there is none
	want      *corev1.Pod                  // the pod that forge returned; nil if refused or not needed
	refused   error                        // error of Harden for the spec
	full      string                       // why the namespace has no room for a further pod; "": it has
	now       time.Time
	// notBefore is when a refused request may be tried again.
	notBefore time.Time
	// made: this process has already sent a creation for the ShadowPod.
	made bool
	// leadingSince is when this process began to lead; zero: unknown.
	leadingSince time.Time
	// newer: the resource version of the ShadowPod is newer than all that the API server had
	// when this process began to lead.
	newer bool
	// leavingSince is when the pod was first seen without a ShadowPod.
	leavingSince time.Time
	// live: shadow and pod were read from the API server, not from a cache.
	live bool
}

// written returns the object whose writes may be refused: the pod, or a ShadowPod that has none.
func (f facts) written() types.UID {
	if f.pod != nil {
		return f.pod.UID
	}
	return f.shadow.UID
}

// cached gathers the facts about key from the caches.
func (e *Enforcer) cached(key loop.Key) facts {
	known := e.memory.of(key)
	return e.gather(key, known, e.shadows.Cached(key), e.pods.Cached(key))
}

// live gathers the facts about key with two requests to the API server.
func (e *Enforcer) live(ctx context.Context, key loop.Key) (facts, error) {
	known := e.memory.of(key)
	shadow, err := e.shadows.Live(ctx, key)
	if err != nil {
		return facts{}, err
	}
	pod, err := e.pods.Live(ctx, key)
	if err != nil {
		return facts{}, err
	}
	f := e.gather(key, known, shadow, pod)
	f.live = true
	return f, nil
}

func (e *Enforcer) gather(key loop.Key, known remembered, shadow *offloadingv1beta1.ShadowPod, pod *corev1.Pod) facts {
	ns := e.namespaces.Cached(loop.Key{Name: key.Namespace})
	f := facts{shadow: shadow, pod: pod, namespace: ns, now: e.cfg.Clock.Now()}
	if since := e.since.Load(); since != nil {
		f.leadingSince = *since
	}
	if pod != nil {
		f.leavingSince = e.memory.leaving.Begun(pod.UID)
	}
	if shadow == nil {
		return f
	}
	if head := e.head.Load(); head != nil {
		f.newer = store.OlderVersion(*head, shadow.ResourceVersion)
	}
	if known.lost != nil && owns(shadow, known.lost) {
		f.lost = known.lost
	}
	f.made = known.made == shadow.UID
	f.notBefore = e.memory.refusals.NotBefore(f.written(), shadow.Generation)
	if f.namespace != nil && shadow.Status.Phase == "" {
		consumer := ns.Labels[corev1beta1.RemoteClusterIDLabel]
		if pod == nil {
			f.full = e.full(ns.Name)
		}
		f.want, f.refused = forge(shadow, ns, e.cfg.Metadata(consumer), func(spec *corev1.PodSpec) error { return e.cfg.Harden(consumer, spec) })
	}
	return f
}

type verb string

const (
	nothing         verb = "nothing"
	wait            verb = "wait"            // requeue after action.after
	startLeaving    verb = "startLeaving"    // remember that the pod has no ShadowPod, and wait
	createPod       verb = "createPod"       // facts.want
	updatePod       verb = "updatePod"       // patch the pod to match facts.want
	deletePod       verb = "deletePod"       // with the pod's own grace period
	releasePod      verb = "releasePod"      // remove liqod's finalizer
	recordEnd       verb = "recordEnd"       // write action.end to the status
	recordLoss      verb = "recordLoss"      // write action.lost to the status
	setCondition    verb = "setCondition"    // action.condition
	removeCondition verb = "removeCondition" // the pod is as wanted again
)

// action is one decision. It leads to at most one write of each kind.
type action struct {
	verb verb
	// confirm: decide again on live facts before the action is carried out.
	confirm   bool
	after     time.Duration
	end       *corev1.PodStatus
	lost      *corev1.Pod
	condition metav1.Condition
	// retry: requeue with back-off.
	retry bool
}

// decide returns the next action. It is pure.
func decide(f facts) action {
	switch {
	case f.shadow == nil || f.shadow.DeletionTimestamp != nil:
		return decideLeaving(f)
	case f.pod != nil && !owns(f.shadow, f.pod):
		return decideOccupied(f)
	case f.shadow.Status.Phase != "":
		return decideEnded(f)
	case f.pod == nil:
		return decideAbsent(f)
	case endedItself(f.pod):
		return action{verb: recordEnd, end: f.pod.Status.DeepCopy()}
	case f.pod.DeletionTimestamp != nil && !settled(f.pod), offloadingv1beta1.Collected(f.pod) && f.pod.DeletionTimestamp == nil:
		return action{verb: nothing}
	case f.pod.DeletionTimestamp != nil:
		return decideLost(f, f.pod)
	case uncounted(f):
		return action{verb: recordLoss, lost: f.lost}
	default:
		return decidePresent(f)
	}
}

// decideAbsent handles a ShadowPod without a pod.
func decideAbsent(f facts) action {
	unrecorded := f.lost != nil && f.shadow.Status.Replaced != f.lost.UID
	fresh := isNew(f) && f.lost == nil && f.shadow.Status.Replaced == ""
	due := !f.now.Before(f.notBefore)
	switch {
	case unrecorded && !f.live:
		return action{verb: recordLoss, confirm: true}
	case unrecorded && endedItself(f.lost):
		return action{verb: recordEnd, end: f.lost.Status.DeepCopy()}
	case unrecorded:
		return decideLost(f, f.lost)
	}
	if a, bad := misplaced(f); bad {
		return a
	}
	switch {
	case f.namespace.DeletionTimestamp != nil:
		return deny(f, reasons.NamespaceTerminating, fmt.Sprintf("namespace %s is being deleted: no pod can be created there", f.namespace.Name))
	case f.refused != nil:
		return deny(f, offloadingv1beta1.ReasonPodRefused, f.refused.Error())
	case !due:
		return action{verb: wait, after: f.notBefore.Sub(f.now)}
	case f.full != "":
		return denyForNow(f, offloadingv1beta1.ReasonPodRefused, f.full)
	default:
		return action{verb: createPod, confirm: !fresh && !f.live}
	}
}

// isNew reports whether no process can have created a pod for the ShadowPod yet: the
// ShadowPod was created during this process's term, and this process has sent no creation
// for it. Any other creation is confirmed by live reads, because the caches may not yet
// show the end of the pod or of the ShadowPod. A newer ShadowPod may be an older one that was
// changed since, and the clock of the API server may be ahead of this one: only both together
// show that a ShadowPod was created in the first seconds of the term.
func isNew(f facts) bool {
	if f.made || f.leadingSince.IsZero() || f.now.Before(f.shadow.CreationTimestamp.Add(-clockSkew)) {
		return false
	}
	if f.newer && f.shadow.Generation == 1 && f.shadow.CreationTimestamp.After(f.leadingSince) {
		return true
	}
	return f.shadow.CreationTimestamp.After(f.leadingSince.Add(freshFor))
}

// misplaced returns the action for a ShadowPod in a namespace where liqod may not create
// its pod.
func misplaced(f facts) (action, bool) {
	if age := f.now.Sub(f.shadow.CreationTimestamp.Time); f.namespace == nil && age < freshFor {
		return action{verb: wait, after: freshFor - max(age, 0)}, true // its event may be on its way
	}
	if reason, message := rules.Misplaced(f.namespace, f.shadow, "ShadowPods"); reason != "" {
		return deny(f, reason, message), true
	}
	return action{}, false
}

// decidePresent handles a pod that runs and has its ShadowPod.
func decidePresent(f facts) action {
	if a, bad := misplaced(f); bad {
		return a
	}
	if f.refused != nil {
		return deny(f, reasons.UpdateRefused, f.refused.Error())
	}
	behind := differs(f.want, f.pod) || len(ephemeralChanges(f.shadow, f.pod, false)) > 0
	switch {
	case behind && f.now.Before(f.notBefore):
		return action{verb: wait, after: f.notBefore.Sub(f.now)}
	case behind:
		return action{verb: updatePod}
	case meta.FindStatusCondition(f.shadow.Status.Conditions, offloadingv1beta1.ShadowPodEnforced) != nil:
		return action{verb: removeCondition}
	default:
		return action{verb: nothing}
	}
}

// do carries out an action. It decides nothing itself, except how to react to the API
// server's answers.
func (e *Enforcer) do(ctx context.Context, key loop.Key, f facts, a action) error {
	if f.pod != nil && f.shadow != nil && owns(f.shadow, f.pod) {
		e.settle(key, f)
	}
	var err error
	switch a.verb {
	case createPod:
		return e.create(ctx, key, f)
	case updatePod:
		return e.update(ctx, f)
	case wait:
		return loop.After(a.after)
	case startLeaving:
		e.memory.leaving.Begin(f.pod.UID, f.now)
		return loop.After(a.after)
	case releasePod:
		return e.release(ctx, f.pod)
	case recordLoss:
		return e.recordLoss(ctx, f.shadow, a.lost)
	case deletePod:
		err = e.deletePod(ctx, f.pod)
	case recordEnd:
		err = e.recordEnd(ctx, f, a)
	case setCondition:
		err = e.deny(ctx, f, a)
	case removeCondition:
		err = e.removeCondition(ctx, f.shadow)
	}
	if err != nil {
		return err
	}
	return e.giveBack(ctx, key, f)
}

// reserve reserves room for the pod that is to be created. Without room it sets the condition
// once per reason and generation: the numbers in its message change with every other pod, so
// they are not kept up to date. Then the error is the result of the sync.
func (e *Enforcer) reserve(ctx context.Context, f facts) (Verdict, error) {
	room := e.quota.Reserve(f.shadow, f.want)
	if room.Reason == "" {
		return room, nil
	}
	have := meta.FindStatusCondition(f.shadow.Status.Conditions, offloadingv1beta1.ShadowPodEnforced)
	if have != nil && have.Reason == room.Reason && have.ObservedGeneration == f.shadow.Generation {
		return room, nil
	}
	return room, e.deny(ctx, f, deny(f, room.Reason, room.Message))
}

// create creates the pod if it has room in the Quotas of its consumer.
func (e *Enforcer) create(ctx context.Context, key loop.Key, f facts) error {
	room, err := e.reserve(ctx, f)
	if err != nil || !room.OK() {
		return err
	}
	e.memory.asking(key, f.shadow.UID)
	e.quota.Sent(key)
	pod, err := e.cfg.Kube.CoreV1().Pods(key.Namespace).Create(ctx, f.want, metav1.CreateOptions{FieldManager: FieldManager})
	switch {
	case err == nil:
		e.memory.forget(key, f.lost)
		e.memory.refusals.Forget(f.written())
		e.cfg.Log.Debug("remote pod created", zap.Stringer("key", key))
		if e.quota.Created(pod, room) {
			return e.surprise(ctx, key, pod)
		}
		return nil
	case apierrors.IsAlreadyExists(err):
		return e.afterCollision(ctx, key)
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		e.quota.Absent(key)
		return e.deny(ctx, f, denyForNow(f, reasons.NamespaceTerminating, fmt.Sprintf("namespace %s is being deleted: no pod can be created there", key.Namespace)))
	case loop.IsRefusal(err):
		if !apierrors.IsInternalError(err) { // an internal error may follow the creation
			e.quota.Absent(key)
		}
		return e.deny(ctx, f, denyForNow(f, offloadingv1beta1.ReasonPodRefused, offloadingv1beta1.ExplainBound(err.Error())))
	default:
		return fmt.Errorf("creating the pod of ShadowPod %s: %w", key, err)
	}
}

// settle drops what memory holds for a pod that exists and is wanted.
func (e *Enforcer) settle(key loop.Key, f facts) {
	e.memory.arrived(f.pod.UID)
	if f.lost != nil && f.lost.UID != f.pod.UID && !uncounted(f) {
		e.memory.forget(key, f.lost)
	}
}
