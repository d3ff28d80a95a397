package serve

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap/zaptest"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/utils/clock"

	"github.com/liqod/liqod/kube/kubetest"
)

// TestAuthority: a certificate is made, API servers trust it, and a restart changes nothing. One
// that was deleted is made again, and a caBundle that was emptied is written again.
func TestAuthority(t *testing.T) {
	kubetest.Bubble(t, func(t *testing.T) {
		config := metav1.ObjectMeta{Name: "liqod"}
		kube := fake.NewClientset(
			&admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: config, Webhooks: []admissionregistrationv1.MutatingWebhook{{Name: "a"}, {Name: "b"}}},
			&admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: config, Webhooks: []admissionregistrationv1.ValidatingWebhook{{Name: "c"}}},
		)
		kubetest.WatchFromList(kube)
		secrets, mutating, validating := kube.CoreV1().Secrets("liqod"), kube.AdmissionregistrationV1().MutatingWebhookConfigurations(), kube.AdmissionregistrationV1().ValidatingWebhookConfigurations()
		trusted := func() string {
			secret := kubetest.Get(t, secrets, "certs")
			var source Certificate
			require.NoError(t, source.Set(secret.Data))
			m := kubetest.Get(t, mutating, "liqod")
			v := kubetest.Get(t, validating, "liqod")
			for _, bundle := range [][]byte{m.Webhooks[0].ClientConfig.CABundle, m.Webhooks[1].ClientConfig.CABundle, v.Webhooks[0].ClientConfig.CABundle} {
				require.Equal(t, source.Bundle(), bundle)
			}
			return string(secret.Data[CertKey])
		}

		stop := runAuthority(t, kube)
		kubetest.Settled(time.Minute)
		first := trusted()
		stop()
		kube.ClearActions()
		runAuthority(t, kube)
		require.Zero(t, kubetest.Settled(2*rotationCheck, kube), "a certificate that is good stays")
		require.Equal(t, first, trusted())

		v := kubetest.Get(t, validating, "liqod")
		v.Webhooks[0].ClientConfig.CABundle = nil
		kubetest.Update(t, validating, v)
		kubetest.Settled(time.Minute)
		require.Equal(t, first, trusted())

		require.NoError(t, secrets.Delete(t.Context(), "certs", metav1.DeleteOptions{}))
		kubetest.Settled(time.Minute)
		require.NotEqual(t, first, trusted())
	})
}

// runAuthority runs an Authority for liqod/certs until stop is called.
func runAuthority(t *testing.T, kube *fake.Clientset) (stop func()) {
	t.Helper()
	factory := informers.NewSharedInformerFactory(kube, 0)
	configurations := factory.Admissionregistration().V1()
	a := NewAuthority(AuthorityConfig{
		Keeper:  CertificateKeeper{Kube: kube, Namespace: "liqod", Name: "certs", Hosts: []string{"liqod-webhook.liqod.svc"}, Clock: clock.RealClock{}, Log: zaptest.NewLogger(t)},
		Secrets: factory.Core().V1().Secrets(), Mutating: configurations.MutatingWebhookConfigurations(), Validating: configurations.ValidatingWebhookConfigurations(), Configuration: "liqod",
	}, nil)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	factory.Start(ctx.Done())
	wg.Go(func() { _ = a.Run(ctx) })
	stop = sync.OnceFunc(func() {
		cancel()
		wg.Wait()
		factory.Shutdown()
	})
	t.Cleanup(stop)
	return stop
}
