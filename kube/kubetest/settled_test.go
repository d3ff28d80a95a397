package kubetest

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

// TestSettled: writes count that are in work, and those that are due before the end.
func TestSettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := fake.NewClientset(), fake.NewClientset()
		create := func(c *fake.Clientset, after time.Duration) {
			time.Sleep(after)
			_, _ = c.CoreV1().Pods("n").Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}}, metav1.CreateOptions{})
			_, _ = c.CoreV1().Pods("n").List(t.Context(), metav1.ListOptions{})
		}
		require.Zero(t, Settled(0, a, b))
		go create(a, 0)
		go create(b, time.Minute)
		require.Equal(t, 1, Settled(0, a, b))
		require.Equal(t, 1, Settled(time.Minute-1, a, b))
		require.Equal(t, 2, Settled(1, a, b))
		go create(a, 0)
		require.Equal(t, 2, Settled(0, a), "a refused one counts")
	})
}
