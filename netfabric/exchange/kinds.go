package exchange

import (
	"context"
	"fmt"
	"net/netip"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	ipamclient "github.com/liqod/liqod/api/generated/clientset/versioned/typed/ipam/v1alpha1"
	ipamv1alpha1 "github.com/liqod/liqod/api/ipam/v1alpha1"
	networkingv1beta1 "github.com/liqod/liqod/api/networking/v1beta1"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/netfabric/ipam"
	"github.com/liqod/liqod/netfabric/plan"
)

// kind reads and writes claims of one kind.
type kind interface {
	// claim returns what an object of the kind claims.
	claim(object any) (claim, bool)
	// get and list return claims as the API server has them.
	get(ctx context.Context, key loop.Key) (claim, bool, error)
	list(ctx context.Context) ([]claim, error)
	// hold gives a claim our finalizer, or takes it away.
	hold(ctx context.Context, c claim, want bool) (claim, error)
	// report writes the status of a claim if it differs.
	report(ctx context.Context, c claim, want outcome) error
}

// claimClient is the typed client of the claims in a namespace.
type claimClient[T any, L runtime.Object] interface {
	store.API[T]
	store.Patcher[T]
	store.Lister[L]
	UpdateStatus(ctx context.Context, obj T, opts metav1.UpdateOptions) (T, error)
}

// claimKind is the kind of the claims of type T.
type claimKind[T store.Applied[T], L runtime.Object] struct {
	name, finalizer string
	client          func(namespace string) claimClient[T, L]
	conditions      func(T) *[]metav1.Condition
	// read completes the claim of an object.
	read func(T, *claim)
	// answer writes an outcome into the status of an object, and may change its condition.
	answer func(next T, c claim, want *outcome)
}

func (k claimKind[T, L]) claimOf(object T) claim {
	c := claim{
		object: object, key: loop.Key{Namespace: object.GetNamespace(), Name: object.GetName()}, uid: string(object.GetUID()),
		request: ipam.Request{Owner: string(object.GetUID())},
		ready:   meta.IsStatusConditionTrue(*k.conditions(object), ipamv1alpha1.ConditionReady),
		deleted: object.GetDeletionTimestamp() != nil, held: store.HasFinalizer(object, k.finalizer),
	}
	k.read(object, &c)
	return c
}

func (k claimKind[T, L]) claim(object any) (claim, bool) {
	o, ok := object.(T)
	if !ok {
		return claim{}, false
	}
	return k.claimOf(o), true
}

func (k claimKind[T, L]) get(ctx context.Context, key loop.Key) (claim, bool, error) {
	var none T
	o, err := store.Live(ctx, k.name, k.client(key.Namespace), key.Name)
	if err != nil || o == none {
		return claim{}, false, err
	}
	return k.claimOf(o), true, nil
}

func (k claimKind[T, L]) list(ctx context.Context) (out []claim, err error) {
	all, err := store.Find[T](ctx, k.name, k.client(metav1.NamespaceAll), metav1.ListOptions{})
	for _, o := range all {
		out = append(out, k.claimOf(o))
	}
	return out, err
}

func (k claimKind[T, L]) hold(ctx context.Context, c claim, want bool) (claim, error) {
	o, ok := c.object.(T)
	if !ok {
		return c, nil
	}
	held, err := store.SetFinalizer(ctx, k.client(c.key.Namespace), o, k.finalizer, want, "")
	if err != nil {
		return c, err
	}
	return k.claimOf(held), nil
}

func (k claimKind[T, L]) report(ctx context.Context, c claim, want outcome) error {
	o, ok := c.object.(T)
	if !ok {
		return nil
	}
	next := o.DeepCopy()
	k.answer(next, c, &want)
	store.SetCondition(k.conditions(next), want.condition)
	return store.WriteStatus(ctx, k.name, k.client(c.key.Namespace), "", o, next)
}

// networkKind is the kind of Networks.
func networkKind(client ipamclient.NetworksGetter) kind {
	return claimKind[*ipamv1alpha1.Network, *ipamv1alpha1.NetworkList]{
		name: "Network", finalizer: ipamv1alpha1.NetworkFinalizer,
		client: func(namespace string) claimClient[*ipamv1alpha1.Network, *ipamv1alpha1.NetworkList] {
			return client.Networks(namespace)
		},
		conditions: func(n *ipamv1alpha1.Network) *[]metav1.Condition { return &n.Status.Conditions },
		read: func(n *ipamv1alpha1.Network, c *claim) {
			// What is no range stays the zero value, which no request may ask for.
			c.request.For, _ = n.Spec.CIDR.Prefix()
			c.request.Exact, c.request.Pooled = n.Labels[ipamv1alpha1.NotRemappedLabel] == "true", n.Labels[ipamv1alpha1.RemappedLabel] == "true"
			c.request.Group = corev1beta1.PeerOfNamespace(n.Namespace)
			c.given, _ = n.Status.CIDR.Prefix()
		},
		answer: func(next *ipamv1alpha1.Network, c claim, want *outcome) {
			if want.given.IsValid() && want.given != c.request.For && want.condition.Reason == ipamv1alpha1.ReasonAllocated {
				want.condition.Reason = ipamv1alpha1.ReasonRemapped
				want.condition.Message = fmt.Sprintf("%s stands for %s in this cluster", want.given, c.request.For)
			}
			next.Status.ObservedGeneration, next.Status.CIDR = next.Generation, cidr(want.given)
		},
	}
}

func cidr(p netip.Prefix) networkingv1beta1.CIDR {
	if !p.IsValid() {
		return ""
	}
	return networkingv1beta1.CIDR(p.String())
}

// ipKind is the kind of IPs.
func ipKind(client ipamclient.IPsGetter) kind {
	return claimKind[*ipamv1alpha1.IP, *ipamv1alpha1.IPList]{
		name: "IP", finalizer: ipamv1alpha1.IPFinalizer,
		client: func(namespace string) claimClient[*ipamv1alpha1.IP, *ipamv1alpha1.IPList] {
			return client.IPs(namespace)
		},
		conditions: func(i *ipamv1alpha1.IP) *[]metav1.Condition { return &i.Status.Conditions },
		read: func(i *ipamv1alpha1.IP, c *claim) {
			if addr, ok := i.Spec.IP.Addr(); ok {
				c.request.For = plan.Single(addr)
			}
			if addr, ok := i.Status.IP.Addr(); ok {
				c.given = plan.Single(addr)
			}
		},
		answer: func(next *ipamv1alpha1.IP, _ claim, want *outcome) {
			next.Status.ObservedGeneration, next.Status.IP, next.Status.CIDR = next.Generation, "", cidr(want.pool)
			if want.given.IsValid() {
				next.Status.IP = networkingv1beta1.IP(want.given.Addr().String())
			}
		},
	}
}
