package offer

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/api/generated/clientset/versioned"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	sharingv1alpha1 "github.com/liqod/liqod/api/sharing/v1alpha1"
	"github.com/liqod/liqod/kube/store"
)

// quotaChange is one write. have is nil for a creation, want is nil for a deletion.
type quotaChange struct{ have, want *offloadingv1beta1.Quota }

// quotaChanges compares the Quotas of a consumer with those of its approved offers. A
// consumer without a Quota would have no limit. So the Quota of an offer that ends is set
// to zero, and stays until another Quota limits the consumer: running pods go on, and no
// new one starts. It is pure.
func quotaChanges(consumer string, w world, d Decision, enforcement offloadingv1beta1.LimitsEnforcement) (out []quotaChange) {
	namespace, user := corev1beta1.TenantNamespace(consumer), ""
	if w.cluster != nil {
		user = w.cluster.Spec.UserName
	}
	have := map[string]*offloadingv1beta1.Quota{}
	for _, q := range w.quotas {
		if q.Namespace == namespace {
			have[q.Name] = q
		}
	}
	bounded := false
	for _, name := range slices.Sorted(maps.Keys(d.Offers)) {
		o := d.Offers[name]
		if !o.Approved || o.WithdrawalTimestamp != nil {
			continue
		}
		bounded = true
		out = put(out, have[name], quota(have[name], namespace, name, offloadingv1beta1.QuotaSpec{
			User: user, LimitsEnforcement: enforcement, Resources: o.ResourceQuota.Hard, NodeSelector: o.NodeSelector}))
		delete(have, name)
	}
	for _, name := range slices.Sorted(maps.Keys(have)) {
		q := have[name]
		if bounded && !offers(w.of(consumer), name) {
			out = append(out, quotaChange{have: q})
			continue
		}
		none := corev1.ResourceList{}
		for resourceName := range q.Spec.Resources {
			none[resourceName] = *resource.NewQuantity(0, format(resourceName))
		}
		ended := offloadingv1beta1.QuotaSpec{User: user, LimitsEnforcement: q.Spec.LimitsEnforcement, Resources: none}
		if !bounded {
			ended.NodeSelector = q.Spec.NodeSelector // without a selector, other nodes could be used
		}
		out = put(out, q, quota(q, namespace, name, ended))
	}
	return out
}

func offers(list []*sharingv1alpha1.ResourceOffer, name string) bool {
	return slices.ContainsFunc(list, func(o *sharingv1alpha1.ResourceOffer) bool { return o.Name == name })
}

// put appends a write if want differs from have.
func put(out []quotaChange, have, want *offloadingv1beta1.Quota) []quotaChange {
	if have != nil && (have.DeletionTimestamp != nil || equality.Semantic.DeepEqual(have.Spec, want.Spec)) {
		return out
	}
	return append(out, quotaChange{have, want})
}

// quota returns the wanted Quota, based on the existing one. The field cordoned belongs to
// people, and stays.
func quota(have *offloadingv1beta1.Quota, namespace, name string, spec offloadingv1beta1.QuotaSpec) *offloadingv1beta1.Quota {
	q := &offloadingv1beta1.Quota{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{
		offloadingv1beta1.ManagedByLabel: sharingv1alpha1.ManagedByOffer, corev1beta1.RemoteClusterIDLabel: peerOf(namespace)}}}
	if have != nil {
		q = have.DeepCopy()
	}
	spec.Cordoned = q.Spec.Cordoned
	spec.DeepCopyInto(&q.Spec)
	return q
}

func (c quotaChange) write(ctx context.Context, liqo versioned.Interface) error {
	switch {
	case c.have == nil:
		if _, err := liqo.OffloadingV1beta1().Quotas(c.want.Namespace).Create(ctx, c.want, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("creating Quota %s/%s: %w", c.want.Namespace, c.want.Name, err)
		}
	case c.want == nil:
		return store.Delete(ctx, "Quota", liqo.OffloadingV1beta1().Quotas(c.have.Namespace), c.have)
	default:
		if _, err := liqo.OffloadingV1beta1().Quotas(c.want.Namespace).Update(ctx, c.want, metav1.UpdateOptions{}); err != nil {
			return fmt.Errorf("updating Quota %s/%s: %w", c.want.Namespace, c.want.Name, err)
		}
	}
	return nil
}
