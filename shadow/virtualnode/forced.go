package virtualnode

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/reasons"
)

// ConditionDrained is False on a VirtualNode if pods of its Node were force-deleted
// without waiting for the provider. Otherwise it is absent.
const ConditionDrained = "Drained"

// tellForced records, in the condition Drained and an event, the namespaces of the provider
// in which ShadowPods of the force-deleted pods in p may remain. It reports whether it has
// written: the pods are then deleted by the next sync, after the record exists.
func (l *Lifecycle) tellForced(ctx context.Context, vn *offloadingv1beta1.VirtualNode, p plan) (bool, error) {
	if p.step != stepForce || len(p.pods) == 0 {
		return false, nil
	}
	m := store.Known(l.cfg.NamespaceMaps.Lister().NamespaceMaps(vn.Namespace).Get(vn.Spec.ClusterID))
	vn = vn.DeepCopy()
	vn.Status.ForcedIn = forcedIn(vn.Status.ForcedIn, twinsOf(m, p.pods))
	message := l.forcedMessage(vn)
	if have := meta.FindStatusCondition(vn.Status.Conditions, ConditionDrained); have != nil && have.Message == message {
		return false, nil
	}
	conditions := append(notReady(reasons.Draining, l.progress(vn, p, nil)), metav1.Condition{
		Type: ConditionDrained, Status: metav1.ConditionFalse, Reason: reasons.ForcedDeletion, Message: message,
	})
	if err := l.writeStatus(ctx, vn, conditions); err != nil {
		return false, err
	}
	l.cfg.Events.Event(vn, corev1.EventTypeWarning, reasons.ForcedDeletion, message)
	return true, nil
}

// twinsOf returns the twin namespaces of the pods' namespaces. m may be nil.
func twinsOf(m *offloadingv1beta1.NamespaceMap, pods []*corev1.Pod) []string {
	if len(offloadedNamespaces(m)) == 0 {
		return nil
	}
	var twins []string
	for _, pod := range pods {
		if twin, ok := m.Spec.DesiredMapping[pod.Namespace]; ok {
			twins = append(twins, twin)
		}
	}
	return twins
}

// forcedIn adds namespaces to those of an earlier list. It returns at most MostForcedIn of them.
func forcedIn(before, twins []string) []string {
	all := sets.List(sets.New(before...).Insert(twins...))
	return all[:min(len(all), offloadingv1beta1.MostForcedIn)]
}

// forcedMessage returns the message about the force-deleted pods of vn.
func (l *Lifecycle) forcedMessage(vn *offloadingv1beta1.VirtualNode) string {
	message := fmt.Sprintf("pods did not end in %s and are removed without waiting for cluster %s",
		l.cfg.Drain.Timeout+l.cfg.Drain.ForceAfter, vn.Spec.ClusterID)
	if len(vn.Status.ForcedIn) == 0 {
		return message
	}
	return message + fmt.Sprintf("; their ShadowPods with the label %s=%s may stay there, until a VirtualNode %s is made again or their namespace is no longer offloaded to the cluster. Namespaces there: %s",
		offloadingv1beta1.NodeNameLabel, vn.Name, vn.Name, strings.Join(vn.Status.ForcedIn, ", "))
}
