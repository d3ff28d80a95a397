package kinds

import (
	"context"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/reflect/engine"
	"github.com/liqod/liqod/reflect/forge"
)

// Ingresses returns the description of reflected Ingresses.
func Ingresses() engine.Description {
	watch := func(f engine.Factories) cache.SharedIndexInformer {
		return engine.KubeInformer(f, &networkingv1.Ingress{}, func(c kubernetes.Interface) store.Client[*networkingv1.IngressList] {
			return c.NetworkingV1().Ingresses(f.Namespace)
		})
	}
	return engine.Kind[*networkingv1.Ingress, *networkingv1.Ingress]{
		Resource: "ingress",
		Local:    watch,
		Remote:   watch,
		Reader: func(c engine.Clients, namespace string) store.Getter[*networkingv1.Ingress] {
			return c.Kube.NetworkingV1().Ingresses(namespace)
		},
		Writer: func(c engine.Clients, namespace string) engine.Writer[*networkingv1.Ingress] {
			return c.Kube.NetworkingV1().Ingresses(namespace)
		},
		List: func(ctx context.Context, c engine.Clients, namespace string, opts metav1.ListOptions) (runtime.Object, error) {
			return c.Kube.NetworkingV1().Ingresses(namespace).List(ctx, opts)
		},
		Forge: func(local *networkingv1.Ingress, s engine.Scope) (*networkingv1.Ingress, error) {
			return forge.Ingress(local, s.ObjectOptions, s.IngressClasses)
		},
		Merge:    forge.MergeIngress,
		Misleads: forge.MisleadsIngress,
	}
}
