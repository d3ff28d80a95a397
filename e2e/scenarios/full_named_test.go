package scenarios

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/kubetest"
)

// fullNamed: pods that are bound to the virtual node before their namespace is offloaded, with 300
// ConfigMaps of 20 kB, have the variables of a ConfigMap that they could start without, and those
// of the Service.
func fullNamed(t *testing.T, w *fullWorld) {
	const namespace, pods = "crowd", 5
	ctx, core := t.Context(), w.rome.Client().CoreV1()
	w.plainNamespace(t, namespace)
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "shop"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}
	kubetest.Create(t, core.Services(namespace), service)
	for i := range 300 {
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("many-%d", i)}, Data: map[string]string{"text": strings.Repeat("x", 20_000)}}
		kubetest.Create(t, core.ConfigMaps(namespace), cm)
	}
	wanted := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "wanted"}, Data: map[string]string{"COLOUR": "blue"}}
	kubetest.Create(t, core.ConfigMaps(namespace), wanted)
	spec := testSpec(1, "pause")
	spec.NodeName, spec.Tolerations = w.milan.Name, anyTaint()
	spec.Containers[0].EnvFrom = []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{
		LocalObjectReference: corev1.LocalObjectReference{Name: "wanted"}, Optional: new(true)}}}
	for i := range pods {
		w.run(t, namespace, fmt.Sprintf("early-%d", i), spec)
	}
	w.offload(t, namespace, offloadingv1beta1.NamespaceOffloadingSpec{})
	for i := range pods {
		name := fmt.Sprintf("early-%d", i)
		within(t, 2*time.Minute, name+" is Ready", w.podReady(namespace, name))
		env := must(w.rome.Exec(ctx, namespace, name, "env"))(t)
		require.Contains(t, env, "COLOUR=blue", name)
		require.Contains(t, env, "SHOP_SERVICE_PORT=80", name)
	}
}
