package workload

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
)

// Reasons of the condition Enforced that the API package does not name.
const (
	// ReasonNotTwinNamespace means that liqod did not create the ShadowPod's namespace for
	// a consumer.
	ReasonNotTwinNamespace = "NotTwinNamespace"
	// ReasonForeignOrigin means that the ShadowPod's origin label names another cluster
	// than the consumer of its twin namespace.
	ReasonForeignOrigin = "ForeignOrigin"
	// ReasonNamespaceTerminating means that the namespace is being deleted, so no pod can
	// be created in it.
	ReasonNamespaceTerminating = string(corev1.NamespaceTerminatingCause)
	// ReasonUpdateRefused means that the pod runs, but the API server refuses a change of
	// it.
	ReasonUpdateRefused = "UpdateRefused"
	// ReasonPodReplaced is the reason of the event for a lost pod that is created again.
	ReasonPodReplaced = "PodReplaced"
)

const (
	shadowKind    = "ShadowPod"
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

// uncounted reports whether the pod replaces one whose loss is not recorded: the cache had
// dropped the lost pod before the event of its deletion was handled.
func uncounted(f facts) bool {
	return f.lost != nil && owns(f.shadow, f.lost) && f.lost.UID != f.pod.UID && f.lost.UID != f.shadow.Status.Replaced && offloadingv1beta1.MayRunAgain(f.lost)
}

// decideLeaving handles a pod without a ShadowPod. The pod keeps its finalizer until the
// kubelet has reported its final status, because clients that wait for the pod read the
// exit codes from it.
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

// decideOccupied handles a ShadowPod whose name another pod has. A pod of an earlier
// ShadowPod of that name is deleted. Any other pod is not touched.
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
		"a pod %s/%s exists that was not made for this ShadowPod; it is not changed, and the pod is created when it is gone",
		f.pod.Namespace, f.pod.Name))
	a.retry = true
	return a
}

// decideEnded handles a ShadowPod whose end is recorded. The pod is only released.
func decideEnded(f facts) action {
	if f.pod != nil && hasFinalizer(f.pod) {
		return action{verb: releasePod}
	}
	return action{verb: nothing}
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
		return deny(f, ReasonNamespaceTerminating, fmt.Sprintf("namespace %s is being deleted: no pod can be created there", f.namespace.Name))
	case f.refused != nil:
		return deny(f, offloadingv1beta1.ReasonPodRefused, f.refused.Error())
	case !due:
		return action{verb: wait, after: f.notBefore.Sub(f.now)}
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

// decideLost handles a pod that was deleted while it ran. pod is its last state; liqod's
// finalizer may still keep it.
func decideLost(f facts, pod *corev1.Pod) action {
	switch {
	case !offloadingv1beta1.MayRunAgain(pod):
		return action{verb: recordEnd, end: lostStatus(pod, f.now), lost: pod}
	case f.shadow.Status.Replaced != pod.UID:
		return action{verb: recordLoss, lost: pod}
	case f.pod != nil && hasFinalizer(f.pod):
		return action{verb: releasePod}
	default:
		return action{verb: nothing}
	}
}

// decidePresent handles a pod that runs and has its ShadowPod.
func decidePresent(f facts) action {
	if a, bad := misplaced(f); bad {
		return a
	}
	if f.refused != nil {
		return deny(f, ReasonUpdateRefused, f.refused.Error())
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

// misplaced returns the action for a ShadowPod in a namespace where liqod may not create
// its pod. The check rests on the namespace's labels: only the provider writes those, and
// the ShadowPod's author writes the ShadowPod's.
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

// deny returns the action that sets the condition Enforced to false.
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

// owns reports whether pod was created for shadow, and not for an earlier ShadowPod of that
// name.
func owns(shadow *offloadingv1beta1.ShadowPod, pod *corev1.Pod) bool {
	uid := shadowOf(pod)
	return uid != "" && uid == shadow.UID
}

// ofAnyShadow reports whether pod was created for any ShadowPod.
func ofAnyShadow(pod *corev1.Pod) bool { return shadowOf(pod) != "" }

// shadowOf returns the UID of the ShadowPod that pod was created for, or "" for a pod of
// others. A pod stays the ShadowPod's if its label or its owner reference was removed, or if
// another controller has adopted the pod since.
func shadowOf(pod *corev1.Pod) types.UID {
	owner := metav1.GetControllerOf(pod)
	switch {
	case owner != nil && owner.Kind == shadowKind && owner.APIVersion == offloadingv1beta1.SchemeGroupVersion.String():
		return owner.UID // an earlier version has made it
	case pod.Labels[offloadingv1beta1.ManagedByLabel] == offloadingv1beta1.ManagedByShadowPod, owner != nil && owner.Kind == namespaceKind:
		return types.UID(pod.Annotations[offloadingv1beta1.ShadowPodUIDAnnotation])
	}
	return ""
}

// controlledBy returns the owner reference of the pods in a twin namespace. It keeps other
// controllers from adopting them. It names no ShadowPod: the garbage collector would send
// three requests for each deleted one.
func controlledBy(ns *corev1.Namespace) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: "v1", Kind: namespaceKind, Name: ns.Name, UID: ns.UID, Controller: new(true)}
}

func hasFinalizer(pod *corev1.Pod) bool {
	return slices.Contains(pod.Finalizers, offloadingv1beta1.RemotePodFinalizer)
}
