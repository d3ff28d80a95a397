package main

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/ptr"
)

// TestMirror follows one pod through its life.
func TestMirror(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		home, away := fake.NewClientset(), fake.NewClientset()
		m := newMirror(home, away, mirrorOptions{homeNamespace: "shop", awayNamespace: "shop-rome", node: "mirror"})
		require.NoError(t, m.start(ctx))
		go m.work(ctx, 2)
		locals, remotes := home.CoreV1().Pods("shop"), away.CoreV1().Pods("shop-rome")

		_, err := locals.Create(ctx, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop", UID: "1", Labels: map[string]string{"app": "web"}},
			Spec:       corev1.PodSpec{NodeName: "mirror", Containers: []corev1.Container{{Name: "c"}}},
		}, metav1.CreateOptions{})
		require.NoError(t, err)
		synctest.Wait()
		remote, err := remotes.Get(ctx, "web", metav1.GetOptions{})
		require.NoError(t, err)
		require.Empty(t, remote.Spec.NodeName)
		require.Equal(t, map[string]string{"app": "web"}, remote.Labels)

		remote.Status.Phase = corev1.PodRunning
		_, err = remotes.UpdateStatus(ctx, remote, metav1.UpdateOptions{})
		require.NoError(t, err)
		synctest.Wait()
		local, err := locals.Get(ctx, "web", metav1.GetOptions{})
		require.NoError(t, err)
		require.Equal(t, corev1.PodRunning, local.Status.Phase)

		// The fake deletes at once: what a kubelet would be waited for is set by hand.
		local.DeletionTimestamp, local.DeletionGracePeriodSeconds, local.Finalizers = ptr.To(metav1.Now()), ptr.To[int64](1), []string{"example.com/keep"}
		_, err = locals.Update(ctx, local, metav1.UpdateOptions{})
		require.NoError(t, err)
		synctest.Wait()
		left, err := remotes.List(ctx, metav1.ListOptions{})
		require.NoError(t, err)
		require.Empty(t, left.Items)
		have, err := locals.List(ctx, metav1.ListOptions{})
		require.NoError(t, err)
		require.Empty(t, have.Items)
		cancel()
		synctest.Wait()
	})
}
