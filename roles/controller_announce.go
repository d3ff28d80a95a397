package roles

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
)

// addAnnouncements records an event at each change of the main condition of a ForeignCluster or a
// NamespaceOffloading, while this replica leads. A change that no replica sees has no event.
func (c *controller) addAnnouncements() {
	informers := []cache.SharedIndexInformer{
		c.liqo.Core().V1beta1().ForeignClusters().Informer(), c.liqo.Offloading().V1beta1().NamespaceOffloadings().Informer(),
	}
	c.leased("announcements", func(ctx context.Context) (err error) {
		for _, informer := range informers {
			handler, failed := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{UpdateFunc: c.announce})
			if failed != nil {
				return errors.Join(err, fmt.Errorf("following changes of conditions: %w", failed))
			}
			defer func() { err = errors.Join(err, informer.RemoveEventHandler(handler)) }()
		}
		<-ctx.Done()
		return nil
	})
}

// announce records the event of an update, if the main condition has changed.
func (c *controller) announce(before, now any) {
	object, created, condition := mainCondition(now)
	_, _, had := mainCondition(before)
	if condition == nil || had != nil && had.Status == condition.Status && had.Reason == condition.Reason {
		return
	}
	kind := corev1.EventTypeWarning
	if condition.Status == metav1.ConditionTrue || c.begins(created, had) && !corev1beta1.NeedsPeople(condition.Reason) {
		kind = corev1.EventTypeNormal
	}
	c.events.Event(object, kind, condition.Reason, condition.Message)
}

// beginning is how long the steps of an object that was never ready are no reason for a Warning,
// unless they wait for people.
const beginning = time.Minute

// begins reports whether an object with this time of creation is new, and has not been ready yet.
func (c *controller) begins(created metav1.Time, had *metav1.Condition) bool {
	return (had == nil || had.Status != metav1.ConditionTrue) && c.env.Clock.Since(created.Time) < beginning
}

// mainCondition returns the condition that sums up an object, or nil.
func mainCondition(object any) (main runtime.Object, created metav1.Time, condition *metav1.Condition) {
	switch o := object.(type) {
	case *corev1beta1.ForeignCluster:
		return o, o.CreationTimestamp, meta.FindStatusCondition(o.Status.Conditions, corev1beta1.ConditionReady)
	case *offloadingv1beta1.NamespaceOffloading:
		return o, o.CreationTimestamp, meta.FindStatusCondition(o.Status.Conditions, offloadingv1beta1.RemoteNamespaceReady)
	}
	return nil, metav1.Time{}, nil
}
