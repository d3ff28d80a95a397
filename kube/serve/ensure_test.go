package serve

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"maps"
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

const day = 24 * time.Hour

var names = []string{"webhook.ns.svc", "webhook.ns.svc.cluster.local"}

// verify does what the API server does with the webhook's certificate.
func verify(t *testing.T, bundle, serving map[string][]byte, now time.Time) {
	t.Helper()
	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM(bundle[BundleKey]))
	pair, err := ParsePair(serving[CertKey], serving[KeyKey])
	require.NoError(t, err)
	_, err = pair.Cert.Verify(x509.VerifyOptions{Roots: roots, DNSName: names[0], CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	require.NoError(t, err)
}

func ensure(t *testing.T, have map[string][]byte, now time.Time) (map[string][]byte, bool) {
	t.Helper()
	got, changed, err := EnsureCertificates(have, names, now)
	require.NoError(t, err)
	verify(t, got, got, now)
	return got, changed
}

func TestEnsureIsIdempotent(t *testing.T) {
	now := time.Now()
	first, changed := ensure(t, map[string][]byte{"of-others": []byte("x")}, now)
	require.True(t, changed)
	require.Equal(t, "x", string(first["of-others"]))
	second, changed := ensure(t, first, now.Add(200*day))
	require.False(t, changed)
	require.Equal(t, first, second)
}

func TestEnsureRenewsTheServingCertificate(t *testing.T) {
	now := time.Now()
	first, _ := ensure(t, nil, now)
	second, changed := ensure(t, first, now.Add(250*day))
	require.True(t, changed)
	require.NotEqual(t, first[CertKey], second[CertKey])
	require.Equal(t, first[BundleKey], second[BundleKey])

	other, changed, err := EnsureCertificates(first, []string{"other.ns.svc"}, now)
	require.NoError(t, err)
	require.True(t, changed)
	require.Equal(t, first[BundleKey], other[BundleKey])
	// The order of names does not matter.
	_, changed, err = EnsureCertificates(first, []string{names[1], names[0]}, now)
	require.NoError(t, err)
	require.False(t, changed)
	_, _, err = EnsureCertificates(nil, nil, now)
	require.ErrorContains(t, err, "needs a name")

	addresses := []string{"webhook.liqod.svc", "127.0.0.1", "fd00::1"}
	data, _, err := EnsureCertificates(nil, addresses, now)
	require.NoError(t, err)
	pair, err := ParsePair(data[CertKey], data[KeyKey])
	require.NoError(t, err)
	require.NoError(t, pair.Cert.VerifyHostname("127.0.0.1"))
	require.NoError(t, pair.Cert.VerifyHostname("webhook.liqod.svc"))
	_, changed, err = EnsureCertificates(data, addresses, now)
	require.NoError(t, err)
	require.False(t, changed, "the same hosts are the same certificate")
}

// TestEnsureRotatesWithoutAGap looks each day for 25 years: whoever is a day behind,
// client or server, must still be believed.
func TestEnsureRotatesWithoutAGap(t *testing.T) {
	now := time.Now()
	data, _ := ensure(t, nil, now)
	authorities, most := map[string]bool{}, 0
	for range 25 * 365 {
		now = now.Add(day)
		next, changed, err := EnsureCertificates(data, names, now)
		require.NoError(t, err)
		if !changed {
			continue
		}
		verify(t, next, next, now)
		verify(t, data, next, now)
		verify(t, next, data, now)
		bundle := parseBundle(next[BundleKey])
		most = max(most, len(bundle))
		authorities[string(bundle[0].Raw)] = true
		data = next
	}
	require.Len(t, authorities, 4)
	require.Equal(t, 2, most)
	require.Len(t, parseBundle(data[BundleKey]), 1)
}

func TestEnsureRepairs(t *testing.T) {
	now := time.Now()
	good, _ := ensure(t, nil, now)
	later, _ := ensure(t, good, now.Add(day*365*7)) // with a next authority
	require.Contains(t, later, nextKey)
	for key := range later {
		for name, bad := range map[string][]byte{"missing": nil, "garbage": []byte("garbage"), "cut": later[key][:len(later[key])/2]} {
			t.Run(key+" "+name, func(t *testing.T) {
				broken := maps.Clone(later)
				broken[key] = bad
				got, changed := ensure(t, broken, now.Add(day*365*7))
				require.True(t, changed)
				if key == caKeyKey {
					// The lost authority is trusted for as long as its certificates live.
					verify(t, got, later, now.Add(day*365*7))
				}
				_, changed = ensure(t, got, now.Add(day*365*7))
				require.False(t, changed)
			})
		}
	}
	t.Run("all expired", func(t *testing.T) {
		got, changed := ensure(t, good, now.Add(30*365*day))
		require.True(t, changed)
		require.Len(t, parseBundle(got[BundleKey]), 1)
	})
}

func TestSourceKeepsTheLastGoodCertificate(t *testing.T) {
	var s Certificate
	_, err := s.GetCertificate(nil)
	require.ErrorIs(t, err, ErrNoCertificate)
	require.False(t, s.Ready())
	data, _ := ensure(t, nil, time.Now())
	require.NoError(t, s.Set(data))
	require.True(t, s.Ready())
	before, err := s.GetCertificate(&tls.ClientHelloInfo{})
	require.NoError(t, err)
	require.Error(t, s.Set(map[string][]byte{CertKey: []byte("x")}))
	after, err := s.GetCertificate(nil)
	require.NoError(t, err)
	require.Same(t, before, after)
	require.True(t, bytes.Contains(data[CertKey], []byte("CERTIFICATE")))
}

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
