package workload

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
)

// Reasons of the condition Enforced that the API package does not name yet.
const (
	// ReasonNotTwinNamespace says that the ShadowPod stands in a namespace that liqod did
	// not make for a consumer.
	ReasonNotTwinNamespace = "NotTwinNamespace"
	// ReasonForeignOrigin says that the ShadowPod's origin label names another cluster than
	// the one that the twin namespace was made for.
	ReasonForeignOrigin = "ForeignOrigin"
	// ReasonNamespaceTerminating says that the namespace goes: no pod can be created there.
	ReasonNamespaceTerminating = string(corev1.NamespaceTerminatingCause)
	// ReasonUpdateRefused says that the pod runs, and that the API server refuses a change of it.
	ReasonUpdateRefused = "UpdateRefused"
	// ReasonPodReplaced is the reason of the event that tells of a lost pod made again.
	ReasonPodReplaced = "PodReplaced"
)

const (
	shadowKind = "ShadowPod"
	// leaveDelay is the time that a vkubelet has to delete the pod itself, with the grace
	// that its user asked for, after it has deleted the ShadowPod.
	leaveDelay = 5 * time.Second
	// freshFor is the age up to which a ShadowPod without pod is taken for a new one, with no
	// further question: no lease changes hands so fast, and no pod ends and goes so fast. One
	// made so long after this process began to lead stays new: nobody else acts meanwhile.
	freshFor = 10 * time.Second
	// clockSkew is how far this clock may be behind the API server's.
	clockSkew = 2 * time.Second
)

// facts are all that a decision rests on. Nothing in them is written to.
type facts struct {
	shadow    *offloadingv1beta1.ShadowPod // nil: there is none
	pod       *corev1.Pod                  // the pod of that name; nil: there is none
	lost      *corev1.Pod                  // last state of a pod of this ShadowPod that is gone; nil: not known
	namespace *corev1.Namespace            // nil: there is none
	want      *corev1.Pod                  // the pod asked for; nil if it is refused, or of no interest
	refused   error                        // why Harden refuses the spec
	now       time.Time
	// notBefore is when a request that was refused may be tried again.
	notBefore time.Time
	// made says that this process has asked for a pod for the ShadowPod.
	made bool
	// leadingSince is when this process began to lead; zero: not known.
	leadingSince time.Time
	// leavingSince is when the pod was first seen with no ShadowPod that wants it.
	leavingSince time.Time
	// live says that shadow and pod were read from the API server, not from a cache.
	live bool
}

type verb string

const (
	nothing         verb = "nothing"
	wait            verb = "wait"            // look again after action.after
	startLeaving    verb = "startLeaving"    // remember that the pod has no ShadowPod, and wait
	createPod       verb = "createPod"       // facts.want
	updatePod       verb = "updatePod"       // towards facts.want
	deletePod       verb = "deletePod"       // with its own grace
	releasePod      verb = "releasePod"      // remove our finalizer
	recordEnd       verb = "recordEnd"       // action.end into the status
	recordLoss      verb = "recordLoss"      // action.lost into the status
	setCondition    verb = "setCondition"    // action.condition
	removeCondition verb = "removeCondition" // all is as wanted again
)

// action is one decision: at most one write of each kind follows from it.
type action struct {
	verb verb
	// confirm asks for a new decision on live facts before anything is done.
	confirm   bool
	after     time.Duration
	end       *corev1.PodStatus
	lost      *corev1.Pod
	condition metav1.Condition
	// retry asks for another try, later each time.
	retry bool
}

// decide says what is to be done next. It is pure.
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
	case f.pod.DeletionTimestamp != nil && !settled(f.pod), collected(f.pod) && f.pod.DeletionTimestamp == nil:
		return action{verb: nothing}
	case f.pod.DeletionTimestamp != nil:
		return decideLost(f, f.pod)
	default:
		return decidePresent(f)
	}
}

// decideLeaving is about a pod that no ShadowPod wants. Its object is kept until the
// kubelet has said the last word, for who waits for the exit codes.
func decideLeaving(f facts) action {
	switch {
	case f.pod == nil || !ofAnyShadow(f.pod):
		return action{verb: nothing}
	case f.pod.DeletionTimestamp != nil && hasFinalizer(f.pod) && settled(f.pod):
		return action{verb: releasePod, confirm: !f.live}
	case f.pod.DeletionTimestamp != nil:
		return action{verb: nothing}
	case f.leavingSince.IsZero():
		return action{verb: startLeaving, after: leaveDelay}
	case f.now.Before(f.leavingSince.Add(leaveDelay)):
		return action{verb: wait, after: f.leavingSince.Add(leaveDelay).Sub(f.now)}
	default:
		return action{verb: deletePod, confirm: !f.live}
	}
}

// decideOccupied is about a name that another pod has: the predecessor's goes, anybody
// else's is not touched.
func decideOccupied(f facts) action {
	if ofAnyShadow(f.pod) {
		return decideLeaving(f)
	}
	if f.shadow.Status.Phase != "" {
		return action{verb: nothing}
	}
	if f.now.Before(f.notBefore) {
		return action{verb: wait, after: f.notBefore.Sub(f.now)}
	}
	a := deny(f, offloadingv1beta1.ReasonPodCollision, fmt.Sprintf(
		"a pod %s/%s exists that was not made for this ShadowPod; it is left alone, and the pod is created when it is gone",
		f.pod.Namespace, f.pod.Name))
	a.retry = true
	return a
}

// decideEnded is about a ShadowPod whose end is recorded: whatever happens to the pod.
func decideEnded(f facts) action {
	if f.pod != nil && hasFinalizer(f.pod) {
		return action{verb: releasePod}
	}
	return action{verb: nothing}
}

// decideAbsent is about a pod that is not there.
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
		return deny(f, ReasonNamespaceTerminating, fmt.Sprintf("namespace %s is being deleted: no pod can be created there", f.namespace.Name))
	case f.refused != nil:
		return deny(f, offloadingv1beta1.ReasonPodRefused, f.refused.Error())
	case !due:
		return action{verb: wait, after: f.notBefore.Sub(f.now)}
	default:
		return action{verb: createPod, confirm: !fresh && !f.live}
	}
}

// isNew reports whether nobody can have made a pod for the ShadowPod yet: this process has
// led since before there was one, and has not. All others are asked about: the caches may
// lag behind the end of the pod, and of the ShadowPod itself.
func isNew(f facts) bool {
	if f.made || f.leadingSince.IsZero() || f.now.Before(f.shadow.CreationTimestamp.Add(-clockSkew)) {
		return false
	}
	return f.shadow.CreationTimestamp.After(f.leadingSince.Add(freshFor))
}

// decideLost is about a pod that was taken away while it ran: pod is its last state, and
// may still be there for our finalizer's sake.
func decideLost(f facts, pod *corev1.Pod) action {
	switch {
	case !mayRunAgain(pod):
		return action{verb: recordEnd, end: lostStatus(pod, f.now), lost: pod}
	case f.shadow.Status.Replaced != pod.UID:
		return action{verb: recordLoss, lost: pod}
	case f.pod != nil && hasFinalizer(f.pod):
		return action{verb: releasePod}
	default:
		return action{verb: nothing}
	}
}

// decidePresent is about a pod that lives, as it shall.
func decidePresent(f facts) action {
	if a, bad := misplaced(f); bad {
		return a
	}
	if f.refused != nil {
		return deny(f, ReasonUpdateRefused, f.refused.Error())
	}
	behind := differs(f.want, f.pod) || len(ephemeralChanges(f.shadow, f.pod)) > 0
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

// misplaced reports a ShadowPod that nothing may be made for where it stands. Its author
// writes its labels; nobody but the provider writes the namespace's.
func misplaced(f facts) (action, bool) {
	ns := f.namespace
	if age := f.now.Sub(f.shadow.CreationTimestamp.Time); ns == nil && age < freshFor {
		return action{verb: wait, after: freshFor - max(age, 0)}, true // its event may be on its way
	}
	if ns == nil || ns.Labels[corev1beta1.RemoteClusterIDLabel] == "" || offloadingv1beta1.TwinOf(ns) == "" {
		return deny(f, ReasonNotTwinNamespace, fmt.Sprintf(
			"namespace %s is not the twin of a consumer's namespace; ShadowPods are enforced only in namespaces made by a NamespaceMap",
			f.shadow.Namespace)), true
	}
	want, have := ns.Labels[corev1beta1.RemoteClusterIDLabel], f.shadow.Labels[offloadingv1beta1.OriginLabel]
	if have != want {
		return deny(f, ReasonForeignOrigin, fmt.Sprintf(
			"label %s is %q; namespace %s belongs to cluster %q, and only that is accepted",
			offloadingv1beta1.OriginLabel, have, ns.Name, want)), true
	}
	return action{}, false
}

// deny says on the ShadowPod why it cannot be enforced.
func deny(f facts, reason, message string) action {
	return action{verb: setCondition, condition: metav1.Condition{
		Type:               offloadingv1beta1.ShadowPodEnforced,
		Status:             metav1.ConditionFalse,
		Reason:             reason,
		Message:            message,
		ObservedGeneration: f.shadow.Generation,
		LastTransitionTime: metav1.NewTime(f.now),
	}}
}

// owns reports whether pod was made for shadow: for this very one, not for one that had
// its name.
func owns(shadow *offloadingv1beta1.ShadowPod, pod *corev1.Pod) bool {
	owner := metav1.GetControllerOf(pod)
	return owner != nil && owner.Kind == shadowKind && owner.UID == shadow.UID
}

// ofAnyShadow reports whether pod was made for a ShadowPod.
func ofAnyShadow(pod *corev1.Pod) bool {
	owner := metav1.GetControllerOf(pod)
	return owner != nil && owner.Kind == shadowKind && owner.APIVersion == offloadingv1beta1.SchemeGroupVersion.String()
}

func hasFinalizer(pod *corev1.Pod) bool {
	return slices.Contains(pod.Finalizers, offloadingv1beta1.RemotePodFinalizer)
}
