package kinds

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"

	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/kubetest"
	"github.com/liqod/liqod/kube/loop"
)

// TestLossesFollowTheNamespace: the annotation of the namespace acts on pods that exist, both
// ways, and on those that come.
func TestLossesFollowTheNamespace(t *testing.T) {
	t.Parallel()
	const keep, evict = offloadingv1beta1.OnProviderLossKeep, offloadingv1beta1.OnProviderLossEvict
	seconds := int64(300)
	usual := offloadingv1beta1.LossTolerations()
	for i := range usual {
		usual[i].TolerationSeconds = &seconds
	}
	pod := func(namespace, name string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: "1"},
			Spec: corev1.PodSpec{NodeName: "milan", Tolerations: usual}}
	}
	done := pod("shop", "done")
	done.Status.Phase = corev1.PodSucceeded
	home := fake.NewClientset(pod("shop", "web"), done, pod("other", "web"),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "other"}})
	factory := informers.NewSharedInformerFactory(home, 0)
	losses := NewLosses(LossesConfig{Home: home, Pods: factory.Core().V1().Pods(), Namespaces: factory.Core().V1().Namespaces(), Env: loop.Env{Log: zap.NewNop()}})
	ctx, cancel := context.WithCancel(t.Context())
	factory.Start(ctx.Done())
	ended := make(chan error, 1)
	go func() { ended <- losses.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-ended)
	})
	get := func(namespace, name string) *corev1.Pod {
		return kubetest.Get(t, home.CoreV1().Pods(namespace), name)
	}
	annotate := func(value string) {
		kubetest.Update(t, home.CoreV1().Namespaces(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name: "shop", Annotations: map[string]string{offloadingv1beta1.OnProviderLossAnnotation: value}}})
	}
	marked := func(name, value string) {
		t.Helper()
		require.Eventually(t, func() bool { return get("shop", name).Annotations[offloadingv1beta1.OnProviderLossAnnotation] == value },
			time.Minute, 5*time.Millisecond, "pod %s is marked %q", name, value)
	}

	annotate(keep)
	marked("web", keep)
	kept := append(offloadingv1beta1.LossTolerations(), usual...)
	require.Equal(t, kept, get("shop", "web").Spec.Tolerations)
	kubetest.Create(t, home.CoreV1().Pods("shop"), pod("shop", "late"))
	marked("late", keep)

	annotate("hold") // not accepted: nothing changes
	annotate(evict)
	marked("web", evict)
	marked("late", evict)
	require.Equal(t, append(usual, usual...), get("shop", "web").Spec.Tolerations)
	annotate(keep)
	marked("web", keep)
	require.Equal(t, kept, get("shop", "web").Spec.Tolerations)
	require.Equal(t, usual, get("shop", "done").Spec.Tolerations, "a pod that has ended")
	require.Equal(t, usual, get("other", "web").Spec.Tolerations, "a pod of another namespace")
}
