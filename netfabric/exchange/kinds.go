package exchange

import (
	"context"
	"fmt"
	"net/netip"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	ipamclient "github.com/liqod/liqod/api/generated/clientset/versioned/typed/ipam/v1alpha1"
	ipamv1alpha1 "github.com/liqod/liqod/api/ipam/v1alpha1"
	networkingv1beta1 "github.com/liqod/liqod/api/networking/v1beta1"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/netfabric/ipam"
)

// newClaim returns what both kinds of claims have in common.
func newClaim(object metav1.Object, finalizer string, conditions []metav1.Condition) claim {
	ready := meta.FindStatusCondition(conditions, ipamv1alpha1.ConditionReady)
	return claim{
		object: object, key: loop.Key{Namespace: object.GetNamespace(), Name: object.GetName()}, uid: string(object.GetUID()),
		request: ipam.Request{Owner: string(object.GetUID())},
		ready:   ready != nil && ready.Status == metav1.ConditionTrue,
		deleted: object.GetDeletionTimestamp() != nil, held: store.HasFinalizer(object, finalizer),
	}
}

// networkKind is the kind of Networks.
type networkKind struct{ client ipamclient.NetworksGetter }

func (k networkKind) claim(object any) (claim, bool) {
	n, ok := object.(*ipamv1alpha1.Network)
	if !ok {
		return claim{}, false
	}
	c := newClaim(n, ipamv1alpha1.NetworkFinalizer, n.Status.Conditions)
	// What is no range stays the zero value, which no request may ask for.
	c.request.For, _ = n.Spec.CIDR.Prefix()
	c.request.Exact, c.request.Pooled = n.Labels[ipamv1alpha1.NotRemappedLabel] == "true", n.Labels[ipamv1alpha1.RemappedLabel] == "true"
	c.request.Group = corev1beta1.PeerOfNamespace(n.Namespace)
	c.given, _ = n.Status.CIDR.Prefix()
	return c, true
}

func (k networkKind) get(ctx context.Context, key loop.Key) (any, error) {
	return k.client.Networks(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})
}

func (k networkKind) list(ctx context.Context) (out []any, err error) {
	list, err := k.client.Networks(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing Networks: %w", err)
	}
	for i := range list.Items {
		out = append(out, &list.Items[i])
	}
	return out, nil
}

func (k networkKind) patch(ctx context.Context, key loop.Key, body []byte) (any, error) {
	return k.client.Networks(key.Namespace).Patch(ctx, key.Name, types.MergePatchType, body, metav1.PatchOptions{})
}

func (k networkKind) report(ctx context.Context, c claim, want outcome) error {
	n, ok := c.object.(*ipamv1alpha1.Network)
	if !ok {
		return nil
	}
	if want.given.IsValid() && want.given != c.request.For && want.condition.Reason == ipamv1alpha1.ReasonAllocated {
		want.condition.Reason = ipamv1alpha1.ReasonRemapped
		want.condition.Message = fmt.Sprintf("%s stands for %s in this cluster", want.given, c.request.For)
	}
	next := n.DeepCopy()
	next.Status.ObservedGeneration, next.Status.CIDR = n.Generation, cidr(want.given)
	store.SetCondition(&next.Status.Conditions, want.condition)
	return store.WriteStatus(ctx, "Network", k.client.Networks(n.Namespace), "", n, next)
}

func cidr(p netip.Prefix) networkingv1beta1.CIDR {
	if !p.IsValid() {
		return ""
	}
	return networkingv1beta1.CIDR(p.String())
}

// ipKind is the kind of IPs.
type ipKind struct{ client ipamclient.IPsGetter }

func (k ipKind) claim(object any) (claim, bool) {
	i, ok := object.(*ipamv1alpha1.IP)
	if !ok {
		return claim{}, false
	}
	c := newClaim(i, ipamv1alpha1.IPFinalizer, i.Status.Conditions)
	if addr, ok := i.Spec.IP.Addr(); ok {
		c.request = ipam.Address(c.uid, addr)
	}
	if addr, ok := i.Status.IP.Addr(); ok {
		c.given = netip.PrefixFrom(addr, addr.BitLen())
	}
	return c, true
}

func (k ipKind) get(ctx context.Context, key loop.Key) (any, error) {
	return k.client.IPs(key.Namespace).Get(ctx, key.Name, metav1.GetOptions{})
}

func (k ipKind) list(ctx context.Context) (out []any, err error) {
	list, err := k.client.IPs(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing IPs: %w", err)
	}
	for i := range list.Items {
		out = append(out, &list.Items[i])
	}
	return out, nil
}

func (k ipKind) patch(ctx context.Context, key loop.Key, body []byte) (any, error) {
	return k.client.IPs(key.Namespace).Patch(ctx, key.Name, types.MergePatchType, body, metav1.PatchOptions{})
}

func (k ipKind) report(ctx context.Context, c claim, want outcome) error {
	i, ok := c.object.(*ipamv1alpha1.IP)
	if !ok {
		return nil
	}
	next := i.DeepCopy()
	next.Status.ObservedGeneration, next.Status.IP, next.Status.CIDR = i.Generation, "", cidr(want.pool)
	if want.given.IsValid() {
		next.Status.IP = networkingv1beta1.IP(want.given.Addr().String())
	}
	store.SetCondition(&next.Status.Conditions, want.condition)
	return store.WriteStatus(ctx, "IP", k.client.IPs(i.Namespace), "", i, next)
}
