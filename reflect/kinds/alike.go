package kinds

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/reflect/engine"
	"github.com/liqod/liqod/reflect/forge"
)

// objects is the client of a kind in a namespace.
type objects[T any, L runtime.Object] interface {
	engine.Writer[T]
	store.Client[L]
}

// clientOf returns the client of a kind in a namespace.
type clientOf[T any, L runtime.Object] func(c engine.Clients, namespace string) objects[T, L]

// kindBetween describes the watches and clients of a kind. local and remote are examples.
func kindBetween[T, R engine.Object, L, M runtime.Object](resource string, local T, home clientOf[T, L], remote R, there clientOf[R, M]) engine.Kind[T, R] {
	return engine.Kind[T, R]{
		Resource: resource,
		Local: func(in engine.Informers) *store.Informer {
			return engine.InformerOf(in, home(in.Clients, in.Namespace), local)
		},
		Remote: func(in engine.Informers) *store.Informer {
			return engine.InformerOf(in, there(in.Clients, in.Namespace), remote)
		},
		Reader: func(c engine.Clients, namespace string) store.Getter[T] { return home(c, namespace) },
		Writer: func(c engine.Clients, namespace string) engine.Writer[R] { return there(c, namespace) },
		List: func(ctx context.Context, c engine.Clients, namespace string, opts metav1.ListOptions) (runtime.Object, error) {
			return there(c, namespace).List(ctx, opts)
		},
	}
}

// alike is kindBetween for a kind that is the same in both clusters.
func alike[T engine.Object, L runtime.Object](resource string, example T, of clientOf[T, L]) engine.Kind[T, T] {
	return kindBetween(resource, example, of, example, of)
}

// ConfigMaps returns the description of reflected ConfigMaps.
func ConfigMaps() engine.Description {
	k := alike("configmap", &corev1.ConfigMap{}, func(c engine.Clients, namespace string) objects[*corev1.ConfigMap, *corev1.ConfigMapList] {
		return c.Kube.CoreV1().ConfigMaps(namespace)
	})
	k.Forge = func(local *corev1.ConfigMap, s engine.Scope) (*corev1.ConfigMap, error) {
		return forge.ConfigMap(local, s.ObjectOptions)
	}
	k.Merge, k.Replaces = forge.MergeConfigMap, forge.ReplacesConfigMap
	k.Whole = true // the type has been stable for years
	k.Chosen = func(local *corev1.ConfigMap, s engine.Scope) (bool, string) {
		if local.Name == forge.RootCAConfigMap {
			return true, "" // offloaded pods verify the API server of their own cluster with it
		}
		return engine.ByAnnotations(local, s)
	}
	k.LocalName = func(name string, o forge.ObjectOptions) string {
		return forge.LocalConfigMapName(name, o.OriginClusterID)
	}
	k.RemoteName = func(name string, o forge.ObjectOptions) string {
		return forge.RemoteConfigMapName(name, o.OriginClusterID)
	}
	return k
}

// Secrets returns the description of reflected Secrets. Tokens of service accounts are
// not reflected.
func Secrets() engine.Description {
	k := alike("secret", &corev1.Secret{}, func(c engine.Clients, namespace string) objects[*corev1.Secret, *corev1.SecretList] {
		return c.Kube.CoreV1().Secrets(namespace)
	})
	k.Forge = func(local *corev1.Secret, s engine.Scope) (*corev1.Secret, error) {
		return forge.Secret(local, s.ObjectOptions)
	}
	k.Merge, k.Replaces = forge.MergeSecret, forge.ReplacesSecret
	k.Whole = true // the type has been stable for years
	return k
}

func serviceKind() engine.Kind[*corev1.Service, *corev1.Service] {
	return alike("service", &corev1.Service{}, func(c engine.Clients, namespace string) objects[*corev1.Service, *corev1.ServiceList] {
		return c.Kube.CoreV1().Services(namespace)
	})
}

// Services returns the description of reflected Services.
func Services() engine.Description {
	k := serviceKind()
	k.Forge = func(local *corev1.Service, s engine.Scope) (*corev1.Service, error) {
		return forge.Service(local, s.ObjectOptions, s.LoadBalancerClasses)
	}
	k.Merge, k.Replaces, k.Misleads, k.Rest = forge.MergeService, forge.ReplacesService, forge.MisleadsService, forge.RestOfService
	return k
}

// Ingresses returns the description of reflected Ingresses.
func Ingresses() engine.Description {
	k := alike("ingress", &networkingv1.Ingress{}, func(c engine.Clients, namespace string) objects[*networkingv1.Ingress, *networkingv1.IngressList] {
		return c.Kube.NetworkingV1().Ingresses(namespace)
	})
	k.Forge = func(local *networkingv1.Ingress, s engine.Scope) (*networkingv1.Ingress, error) {
		return forge.Ingress(local, s.ObjectOptions, s.IngressClasses), nil
	}
	k.Merge, k.Misleads, k.Rest = forge.MergeIngress, forge.MisleadsIngress, forge.RestOfIngress
	return k
}
