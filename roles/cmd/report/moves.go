package report

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
)

// movePatience is longer than a step of storage move lasts that leaves no trace.
const movePatience = 2 * time.Minute

// moveOf returns the move of a claim, or nil. from is the place of its data.
func (s *Snapshot) moveOf(pvc *corev1.PersistentVolumeClaim, from string) *Move {
	to, other := pvc.Annotations[offloadingv1beta1.MoveToAnnotation], pvc.Annotations[offloadingv1beta1.DiscardCopyAnnotation]
	out := &Move{Namespace: pvc.Namespace, Claim: pvc.Name, From: from, To: to}
	switch {
	case to == "" && other == "":
		return nil
	case to == "" && other == offloadingv1beta1.CopyHere:
		out.State = "the other copy, in this cluster, is being deleted"
		return out
	case to == "":
		out.State = fmt.Sprintf("the other copy, behind virtual node %s, is deleted once its cluster can be reached", other)
		return out
	}
	command := fmt.Sprintf("%s storage move -n %s %s", s.Program, pvc.Namespace, pvc.Name)
	out.Undo = command + " --undo"
	out.Finish = offloadingv1beta1.Command(command+" --to %s", to) // a user of the namespace has written it
	c, copied := s.Copies[pvc.UID]
	out.State = c.Progress
	switch idle := s.Taken.Sub(lastMoved(pvc)) > movePatience; {
	case pvc.Annotations[SelectedNode] == to:
		out.State, out.Undo, out.Stopped = "the copy is verified, and the claim gets it", "", idle
	case copied && !c.Whole.IsZero():
		out.Stopped = s.Taken.Sub(c.Whole) > movePatience
	case copied:
		out.Stopped = c.Failed
		return out
	case s.Copies == nil:
		out.State = "it is being copied"
	default:
		out.State, out.Stopped = "no pod copies it", idle
	}
	if out.Stopped {
		out.State += "; no command goes on with the move"
	}
	return out
}

// lastMoved returns the time at which storage move wrote to a claim.
func lastMoved(pvc *corev1.PersistentVolumeClaim) (at time.Time) {
	for _, f := range pvc.ManagedFields {
		if f.Manager == offloadingv1beta1.MoveFieldManager && f.Time != nil && f.Time.After(at) {
			at = f.Time.Time
		}
	}
	return at
}

// inOneLine says in one line what is moved, and how far that is.
func (m *Move) inOneLine() string {
	if m.To == "" {
		return fmt.Sprintf("in %s: %s", m.From, m.State)
	}
	return fmt.Sprintf("from %s to node %s: %s", m.From, m.To, m.State)
}

// commandsOn returns the commands by which a person goes on.
func (m *Move) commandsOn() string {
	if m.Undo == "" || m.Finish == "" {
		return m.Finish + m.Undo
	}
	return fmt.Sprintf("%s\nor, to leave the data where it is:\n%s", m.Finish, m.Undo)
}
