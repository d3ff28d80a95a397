package main

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
)

// TestCopier follows one object of each kind through its life.
func TestCopier(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		home, away := fake.NewClientset(), fake.NewClientset()
		defer cancel()
		done := make(chan error, 1)
		go func() {
			done <- copyAll(ctx, home, away, copierOptions{homeNamespace: "shop", awayNamespace: "shop-rome", selector: "app=bench", workers: 2})
		}()
		meta := metav1.ObjectMeta{Name: "web", Namespace: "shop", UID: "1", Labels: map[string]string{"app": "bench"}}
		_, err := home.CoreV1().ConfigMaps("shop").Create(ctx, &corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"v": "1"}}, metav1.CreateOptions{})
		require.NoError(t, err)
		_, err = home.CoreV1().Secrets("shop").Create(ctx, &corev1.Secret{ObjectMeta: meta, Data: map[string][]byte{"v": []byte("1")}}, metav1.CreateOptions{})
		require.NoError(t, err)
		_, err = home.CoreV1().Services("shop").Create(ctx, &corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{ClusterIP: "10.0.0.1"}}, metav1.CreateOptions{})
		require.NoError(t, err)
		_, err = home.DiscoveryV1().EndpointSlices("shop").Create(ctx, &discoveryv1.EndpointSlice{ObjectMeta: meta, AddressType: discoveryv1.AddressTypeIPv4}, metav1.CreateOptions{})
		require.NoError(t, err)
		time.Sleep(time.Second) // the caches are asked now and then whether they are filled
		synctest.Wait()
		service, err := away.CoreV1().Services("shop-rome").Get(ctx, "web", metav1.GetOptions{})
		require.NoError(t, err)
		require.Empty(t, service.Spec.ClusterIP)
		slice, err := away.DiscoveryV1().EndpointSlices("shop-rome").Get(ctx, "web", metav1.GetOptions{})
		require.NoError(t, err)
		require.Equal(t, discoveryv1.AddressTypeIPv4, slice.AddressType)
		secret, err := away.CoreV1().Secrets("shop-rome").Get(ctx, "web", metav1.GetOptions{})
		require.NoError(t, err)
		require.Equal(t, "1", string(secret.Data["v"]))

		_, err = home.CoreV1().ConfigMaps("shop").Patch(ctx, "web", types.MergePatchType, []byte(`{"data":{"v":"2"}}`), metav1.PatchOptions{})
		require.NoError(t, err)
		synctest.Wait()
		cm, err := away.CoreV1().ConfigMaps("shop-rome").Get(ctx, "web", metav1.GetOptions{})
		require.NoError(t, err)
		require.Equal(t, "2", cm.Data["v"])
		require.NoError(t, home.CoreV1().ConfigMaps("shop").Delete(ctx, "web", metav1.DeleteOptions{}))
		synctest.Wait()
		_, err = away.CoreV1().ConfigMaps("shop-rome").Get(ctx, "web", metav1.GetOptions{})
		require.True(t, apierrors.IsNotFound(err), err)
		cancel()
		require.NoError(t, <-done)
	})
}
