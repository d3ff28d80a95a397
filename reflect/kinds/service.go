package kinds

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/reflect/engine"
	"github.com/liqod/liqod/reflect/forge"
)

func serviceInformer(f engine.Factories) cache.SharedIndexInformer {
	return engine.KubeInformer(f, &corev1.Service{}, func(c kubernetes.Interface) store.Client[*corev1.ServiceList] {
		return c.CoreV1().Services(f.Namespace)
	})
}

// Services returns the description of reflected Services.
func Services() engine.Description {
	return engine.Kind[*corev1.Service, *corev1.Service]{
		Resource: "service",
		Local:    serviceInformer,
		Remote:   serviceInformer,
		Reader: func(c engine.Clients, namespace string) store.Getter[*corev1.Service] {
			return c.Kube.CoreV1().Services(namespace)
		},
		Writer: func(c engine.Clients, namespace string) engine.Writer[*corev1.Service] {
			return c.Kube.CoreV1().Services(namespace)
		},
		List: func(ctx context.Context, c engine.Clients, namespace string, opts metav1.ListOptions) (runtime.Object, error) {
			return c.Kube.CoreV1().Services(namespace).List(ctx, opts)
		},
		Forge: func(local *corev1.Service, s engine.Scope) (*corev1.Service, error) {
			return forge.Service(local, s.ObjectOptions, s.LoadBalancerClasses)
		},
		Merge:    forge.MergeService,
		Replaces: forge.ReplacesService,
		Misleads: forge.MisleadsService,
	}
}
