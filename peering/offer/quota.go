package offer

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	sharingv1alpha1 "github.com/liqod/liqod/api/sharing/v1alpha1"
)

// quotaChanges compares the Quotas of a consumer with those of its approved offers. A
// consumer without a Quota would have no limit. So the Quota of an offer that ends is set
// to zero, and stays until another Quota limits the consumer: running pods go on, and no
// new one starts. It is pure.
func quotaChanges(consumer string, w world, d Decision, enforcement offloadingv1beta1.LimitsEnforcement) (out []change[*offloadingv1beta1.Quota]) {
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
			out = append(out, change[*offloadingv1beta1.Quota]{have: q})
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
func put(out []change[*offloadingv1beta1.Quota], have, want *offloadingv1beta1.Quota) []change[*offloadingv1beta1.Quota] {
	if have != nil && (have.DeletionTimestamp != nil || equality.Semantic.DeepEqual(have.Spec, want.Spec)) {
		return out
	}
	return append(out, change[*offloadingv1beta1.Quota]{have, want})
}

// quota returns the wanted Quota, based on the existing one. The field cordoned belongs to
// people, and stays.
func quota(have *offloadingv1beta1.Quota, namespace, name string, spec offloadingv1beta1.QuotaSpec) *offloadingv1beta1.Quota {
	q := &offloadingv1beta1.Quota{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{
		offloadingv1beta1.ManagedByLabel: sharingv1alpha1.ManagedByOffer, corev1beta1.RemoteClusterIDLabel: corev1beta1.PeerOfNamespace(namespace)}}}
	if have != nil {
		q = have.DeepCopy()
	}
	spec.Cordoned = q.Spec.Cordoned
	spec.DeepCopyInto(&q.Spec)
	return q
}

const (
	// mostOf is the maximum of an amount. The sum of a thousand such amounts fits into an
	// int64. CPUs are counted in thousandths.
	mostOf    = math.MaxInt64 / 1000
	mostCPUOf = mostOf / 1000
	// mostResources is the maximum number of resources.
	mostResources = 64
	// mostImages is the maximum number of images, as in the status of a Node of a kubelet.
	// longestImage is the maximum length of all names of an image, in bytes. Each heartbeat
	// of the Node writes them again.
	mostImages   = 50
	longestImage = 256
)

// given are the labels in reserved domains that a virtual node may have nevertheless: they
// describe its location and type.
var given = []string{corev1.LabelTopologyRegion, corev1.LabelTopologyZone, corev1.LabelInstanceTypeStable, offloadingv1beta1.ProviderLabel}

// reserved reports whether a label has a meaning for Kubernetes or liqod, so that a peer
// may not set it.
func reserved(key string) bool {
	domain, _, ok := strings.Cut(key, "/")
	if !ok || slices.Contains(given, key) {
		return false
	}
	return slices.ContainsFunc([]string{"kubernetes.io", "k8s.io", "liqo.io"}, func(d string) bool {
		return domain == d || strings.HasSuffix(domain, "."+d)
	})
}

// checkOffer returns the reason for which an offer is invalid. The provider is another
// organisation, so every field is checked.
func checkOffer(clusterID, provider string, o *sharingv1alpha1.ResourceOffer) error {
	s := &o.Spec
	switch {
	case s.ConsumerClusterID != clusterID || s.ProviderClusterID != provider:
		return fmt.Errorf("it is an offer of %q to %q: an offer of %s to %s is accepted", s.ProviderClusterID, s.ConsumerClusterID, provider, clusterID)
	case !sharingv1alpha1.ValidOfferName(provider, o.Name):
		return fmt.Errorf("its name is %s; %s is accepted, and %s-<n> from 2 to %d", o.Name, provider, provider, sharingv1alpha1.MaxVirtualNodes)
	}
	return errors.Join(checkResources(s.ResourceQuota.Hard), checkLabels("labels", s.Labels), reservedLabels(s.Labels), checkLabels("nodeSelector", s.NodeSelector),
		checkClasses("storageClasses", s.StorageClasses, validation.IsDNS1123Subdomain), checkClasses("ingressClasses", s.IngressClasses, validation.IsDNS1123Subdomain),
		checkClasses("loadBalancerClasses", s.LoadBalancerClasses, validation.IsQualifiedName), checkImages(s.Images))
}

// checkRequest returns the reason for which a request is invalid.
func checkRequest(r *corev1beta1.CapacityRequest) error {
	return errors.Join(checkResources(r.Resources), checkLabels("labels", r.Labels), reservedLabels(r.Labels), checkLabels("nodeSelector", r.NodeSelector),
		checkClasses("storageClasses", r.StorageClasses, validation.IsDNS1123Subdomain), checkClasses("ingressClasses", r.IngressClasses, validation.IsDNS1123Subdomain), checkClasses("loadBalancerClasses", r.LoadBalancerClasses, validation.IsQualifiedName))
}

// checkSelector returns an error if the node selector of a request has a label that the provider does
// not accept from this consumer.
func checkSelector(f Facts, p Policy) error {
	listed := p.SelectorLabels(f.Consumer)
	accepted := slices.Concat(listed, slices.Sorted(maps.Keys(p.NodeSelector)))
	for _, key := range slices.Sorted(maps.Keys(f.Request.NodeSelector)) {
		if !slices.Contains(accepted, key) && (p.Selectable == nil || !p.Selectable(listed, key)) {
			return fmt.Errorf("nodeSelector: label %s is not accepted: cluster %s accepts from peers: %s; its administrators can allow more by the setting sharing.selectorLabels",
				key, f.Provider, cmp.Or(strings.Join(accepted, ", "), "none"))
		}
	}
	return nil
}

func checkResources(list corev1.ResourceList) error {
	if len(list) > mostResources {
		return fmt.Errorf("it has %d resources; %d are accepted", len(list), mostResources)
	}
	for _, name := range slices.Sorted(maps.Keys(list)) {
		amount, most := list[name], int64(mostOf)
		if name == corev1.ResourceCPU {
			most = mostCPUOf
		}
		switch {
		case len(validation.IsQualifiedName(string(name))) > 0:
			return fmt.Errorf("resource %.80q: a name such as cpu or example.com/gpu is accepted", name)
		case amount.Sign() < 0 || amount.AsApproximateFloat64() > float64(most):
			return fmt.Errorf("resource %s: %s is not accepted: from 0 to %d is", name, amount.String(), most)
		}
	}
	return nil
}

func checkLabels(what string, labels map[string]string) error {
	if errs := metav1validation.ValidateLabels(labels, field.NewPath(what)); len(errs) > 0 {
		return errs.ToAggregate()
	}
	return nil
}

func reservedLabels(labels map[string]string) error {
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		if reserved(key) {
			return fmt.Errorf("label %s is not accepted on a virtual node: of the labels of Kubernetes and of liqod only %s are", key, strings.Join(given, ", "))
		}
	}
	return nil
}

func checkClasses(what string, names []string, invalid func(name string) []string) error {
	for _, name := range names {
		if len(invalid(name)) > 0 {
			return fmt.Errorf("%s: %.80q is not the name of a class", what, name)
		}
	}
	return nil
}

func checkImages(images []corev1.ContainerImage) error {
	if len(images) > mostImages {
		return fmt.Errorf("images: %d are named; at most %d are accepted", len(images), mostImages)
	}
	for _, image := range images {
		length := 0
		for _, name := range image.Names {
			length += len(name)
		}
		if len(image.Names) == 0 || length > longestImage || image.SizeBytes < 0 {
			return fmt.Errorf("images: one with %d names of %d bytes in all and a size of %d bytes is not accepted; accepted are one name or more, of at most %d bytes in all",
				len(image.Names), length, image.SizeBytes, longestImage)
		}
	}
	return nil
}
