package kinds

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/reflect/engine"
	"github.com/liqod/liqod/reflect/forge"
)

// Secrets returns the description of reflected Secrets. Tokens of service accounts are
// not reflected.
func Secrets() engine.Description {
	watch := func(f engine.Factories) cache.SharedIndexInformer {
		return engine.KubeInformer(f, &corev1.Secret{}, secretsOf(f.Namespace))
	}
	return engine.Kind[*corev1.Secret, *corev1.Secret]{
		Resource: "secret",
		Local:    watch,
		Remote:   watch,
		Reader: func(c engine.Clients, namespace string) store.Getter[*corev1.Secret] {
			return c.Kube.CoreV1().Secrets(namespace)
		},
		Writer: func(c engine.Clients, namespace string) engine.Writer[*corev1.Secret] {
			return c.Kube.CoreV1().Secrets(namespace)
		},
		List: func(ctx context.Context, c engine.Clients, namespace string, opts metav1.ListOptions) (runtime.Object, error) {
			return c.Kube.CoreV1().Secrets(namespace).List(ctx, opts)
		},
		Forge: func(local *corev1.Secret, s engine.Scope) (*corev1.Secret, error) {
			return forge.Secret(local, s.ObjectOptions, false)
		},
		Merge:    forge.MergeSecret,
		Whole:    true, // the type has been stable for years
		Replaces: forge.ReplacesSecret,
	}
}
