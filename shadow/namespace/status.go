package namespace

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/store"
)

// outcome is the state of a namespace with respect to one cluster.
type outcome struct {
	choice choice
	// problem says why no entry could be written for the cluster; empty: it was written.
	problem string
	// trouble says why the cluster does not answer, if known.
	trouble string
	// answer is the cluster's answer; nil: none yet.
	answer *offloadingv1beta1.RemoteNamespaceStatus
}

// summary is the input of a NamespaceOffloading's status.
type summary struct {
	name     string // name of the twins
	outcomes map[string]outcome
	invalid  string // why nothing is done at all; empty: the NamespaceOffloading is valid
	now      time.Time
}

// status returns the status. Unchanged conditions keep their transition times.
func (s summary) status(nso *offloadingv1beta1.NamespaceOffloading) offloadingv1beta1.NamespaceOffloadingStatus {
	out := offloadingv1beta1.NamespaceOffloadingStatus{
		ObservedGeneration:  nso.Generation,
		RemoteNamespaceName: s.name,
		Conditions:          slices.Clone(nso.Status.Conditions),
	}
	if s.invalid != "" {
		out.OffloadingPhase = offloadingv1beta1.PhaseAllFailed
		out.RemoteNamespaceName = nso.Status.RemoteNamespaceName // existing entries stay
		out.RemoteNamespacesConditions = nso.Status.RemoteNamespacesConditions
		s.set(&out.Conditions, nso, offloadingv1beta1.RemoteNamespaceReady, false, offloadingv1beta1.ReasonInvalid, s.invalid)
		return out
	}
	var ready, waiting, failed []string
	for _, id := range slices.Sorted(maps.Keys(s.outcomes)) {
		conditions := slices.Clone(nso.Status.RemoteNamespacesConditions[id])
		o := s.outcomes[id]
		s.cluster(&conditions, nso, id, o)
		if out.RemoteNamespacesConditions == nil {
			out.RemoteNamespacesConditions = map[string][]metav1.Condition{}
		}
		out.RemoteNamespacesConditions[id] = conditions
		if o.choice == notSelected {
			continue
		}
		c := meta.FindStatusCondition(conditions, offloadingv1beta1.RemoteNamespaceReady)
		switch {
		case c.Status == metav1.ConditionTrue:
			ready = append(ready, id)
		case c.Reason == offloadingv1beta1.ReasonCreating, c.Reason == offloadingv1beta1.ReasonTerminating:
			waiting = append(waiting, id+": "+c.Message)
		default:
			failed = append(failed, id+": "+c.Message)
		}
	}
	phase, message := s.sum(ready, waiting, failed)
	out.OffloadingPhase = phase
	s.set(&out.Conditions, nso, offloadingv1beta1.RemoteNamespaceReady, phase == offloadingv1beta1.PhaseReady, string(phase), message)
	return out
}

func (s summary) sum(ready, waiting, failed []string) (offloadingv1beta1.OffloadingPhase, string) {
	troubles := strings.Join(slices.Concat(failed, waiting), "; ")
	switch {
	case len(ready)+len(waiting)+len(failed) == 0:
		return offloadingv1beta1.PhaseNoClusterSelected, "no virtual node matches spec.clusterSelector: see the labels of the Nodes with liqo.io/type=virtual-node"
	case len(failed) > 0 && len(ready)+len(waiting) == 0:
		return offloadingv1beta1.PhaseAllFailed, troubles
	case len(failed) > 0:
		return offloadingv1beta1.PhaseSomeFailed, troubles
	case len(waiting) > 0:
		return offloadingv1beta1.PhaseInProgress, troubles
	}
	return offloadingv1beta1.PhaseReady, fmt.Sprintf("namespace %s stands in cluster %s", s.name, strings.Join(ready, ", "))
}

// cluster sets the conditions of one cluster.
func (s summary) cluster(conditions *[]metav1.Condition, nso *offloadingv1beta1.NamespaceOffloading, id string, o outcome) {
	if o.choice == notSelected {
		s.set(conditions, nso, offloadingv1beta1.RemoteNamespaceOffloadingRequired, false, offloadingv1beta1.ReasonClusterNotSelected,
			"no virtual node of the cluster matches spec.clusterSelector")
		if o.answer == nil {
			meta.RemoveStatusCondition(conditions, offloadingv1beta1.RemoteNamespaceReady)
			return
		}
		s.set(conditions, nso, offloadingv1beta1.RemoteNamespaceReady, false, offloadingv1beta1.ReasonTerminating,
			cmp.Or(o.answer.Message, fmt.Sprintf("namespace %s is being removed from the cluster", o.answer.RemoteNamespace)))
		return
	}
	s.set(conditions, nso, offloadingv1beta1.RemoteNamespaceOffloadingRequired, true, offloadingv1beta1.ReasonClusterSelected,
		"a virtual node of the cluster matches spec.clusterSelector")
	ready, reason, message := s.judge(id, o)
	s.set(conditions, nso, offloadingv1beta1.RemoteNamespaceReady, ready, reason, message)
}

func (s summary) judge(id string, o outcome) (ready bool, reason, message string) {
	switch {
	case o.problem != "":
		return false, offloadingv1beta1.ReasonInvalid, o.problem
	case o.trouble != "" && (o.answer == nil || o.answer.RemoteNamespace != s.name):
		return false, offloadingv1beta1.ReasonReplicationFailed, fmt.Sprintf("cluster %s cannot be asked for namespace %s: %s", id, s.name, o.trouble)
	case o.answer == nil || o.answer.RemoteNamespace != s.name:
		return false, offloadingv1beta1.ReasonCreating, fmt.Sprintf("cluster %s has been asked for namespace %s and has not answered yet", id, s.name)
	case o.answer.Phase == offloadingv1beta1.MappingAccepted:
		return true, offloadingv1beta1.ReasonNamespaceCreated, cmp.Or(o.answer.Message, fmt.Sprintf("namespace %s stands in cluster %s", s.name, id))
	case o.answer.Phase == offloadingv1beta1.MappingTerminating:
		return false, offloadingv1beta1.ReasonTerminating, cmp.Or(o.answer.Message, fmt.Sprintf("namespace %s is being removed from cluster %s", s.name, id))
	}
	return false, offloadingv1beta1.ReasonCreationLoopBackOff, cmp.Or(o.answer.Message, fmt.Sprintf("cluster %s cannot make namespace %s", id, s.name))
}

// trouble returns the reason for which the provider of an own map does not answer: the map
// could not be replicated, or the provider does not accept it. It returns "" if no such
// reason is known.
func trouble(m *offloadingv1beta1.NamespaceMap) string {
	c := meta.FindStatusCondition(m.Status.Conditions, offloadingv1beta1.RemoteNamespaceReady)
	if c == nil || c.Status == metav1.ConditionTrue {
		return ""
	}
	if c.Reason == offloadingv1beta1.ReasonReplicationFailed || c.Reason == offloadingv1beta1.ReasonInvalid {
		return c.Message
	}
	return ""
}

func (s summary) set(conditions *[]metav1.Condition, nso *offloadingv1beta1.NamespaceOffloading, kind string, ok bool, reason, message string) {
	store.SetCondition(conditions, condition(kind, ok, reason, message, nso.Generation, s.now))
}

func condition(kind string, ok bool, reason, message string, generation int64, now time.Time) metav1.Condition {
	status := metav1.ConditionFalse
	if ok {
		status = metav1.ConditionTrue
	}
	return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message,
		ObservedGeneration: generation, LastTransitionTime: metav1.NewTime(now)}
}
