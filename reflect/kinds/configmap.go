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

// ConfigMaps returns the description of reflected ConfigMaps.
func ConfigMaps() engine.Description {
	watch := func(f engine.Factories) cache.SharedIndexInformer {
		return engine.KubeInformer(f, &corev1.ConfigMap{}, func(c kubernetes.Interface) store.Client[*corev1.ConfigMapList] {
			return c.CoreV1().ConfigMaps(f.Namespace)
		})
	}
	return engine.Kind[*corev1.ConfigMap, *corev1.ConfigMap]{
		Resource: "configmap",
		Local:    watch,
		Remote:   watch,
		Reader: func(c engine.Clients, namespace string) store.Getter[*corev1.ConfigMap] {
			return c.Kube.CoreV1().ConfigMaps(namespace)
		},
		Writer: func(c engine.Clients, namespace string) engine.Writer[*corev1.ConfigMap] {
			return c.Kube.CoreV1().ConfigMaps(namespace)
		},
		List: func(ctx context.Context, c engine.Clients, namespace string, opts metav1.ListOptions) (runtime.Object, error) {
			return c.Kube.CoreV1().ConfigMaps(namespace).List(ctx, opts)
		},
		Forge: func(local *corev1.ConfigMap, s engine.Scope) (*corev1.ConfigMap, error) {
			return forge.ConfigMap(local, s.ObjectOptions)
		},
		Merge:    forge.MergeConfigMap,
		Whole:    true, // the type has been stable for years
		Replaces: forge.ReplacesConfigMap,
		Chosen: func(local *corev1.ConfigMap, s engine.Scope) (bool, string) {
			if local.Name == forge.RootCAConfigMap {
				return true, "" // offloaded pods verify the API server of their own cluster with it
			}
			return engine.ByAnnotations(local, s)
		},
		LocalName: func(name string, o forge.ObjectOptions) string {
			return forge.LocalConfigMapName(name, o.OriginClusterID)
		},
		RemoteName: func(name string, o forge.ObjectOptions) string {
			return forge.RemoteConfigMapName(name, o.OriginClusterID)
		},
	}
}
