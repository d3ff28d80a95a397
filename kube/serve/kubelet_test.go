package serve

import (
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"

	"github.com/liqod/liqod/kube/kubetest"
)

// signer is a fake API server whose signer answers when asked for the request: at the
// get'th time with what answer makes of it.
type signer struct {
	*fake.Clientset

	ca *Pair

	mu       sync.Mutex
	requests []*certificatesv1.CertificateSigningRequest
	created  func(n int) error
	got      func(s *signer, n int, csr *certificatesv1.CertificateSigningRequest) error
	gets     int
}

func newSigner(t *testing.T) *signer {
	t.Helper()
	ca, err := NewCA("cluster", time.Now(), caLifetime)
	require.NoError(t, err)
	s := &signer{Clientset: fake.NewClientset(), ca: ca}
	s.created = func(int) error { return nil }
	s.got = func(s *signer, _ int, csr *certificatesv1.CertificateSigningRequest) error {
		return s.issue(csr, time.Hour)
	}
	s.PrependReactor("create", "certificatesigningrequests", func(a k8stesting.Action) (bool, runtime.Object, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		csr := a.(k8stesting.CreateAction).GetObject().(*certificatesv1.CertificateSigningRequest)
		s.requests = append(s.requests, csr)
		s.gets = 0
		return true, csr, s.created(len(s.requests))
	})
	s.PrependReactor("get", "certificatesigningrequests", func(k8stesting.Action) (bool, runtime.Object, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.gets++
		csr := s.requests[len(s.requests)-1].DeepCopy()
		err := s.got(s, s.gets, csr)
		return true, csr, err
	})
	return s
}

func (s *signer) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.requests)
}

func (s *signer) issue(csr *certificatesv1.CertificateSigningRequest, life time.Duration) error {
	block, _ := pem.Decode(csr.Spec.Request)
	req, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return err
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: req.Subject, DNSNames: req.DNSNames, IPAddresses: req.IPAddresses,
		NotBefore: time.Now(), NotAfter: time.Now().Add(life), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, s.ca.Cert, req.PublicKey, s.ca.Key)
	if err != nil {
		return err
	}
	csr.Status.Certificate = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return nil
}

func serving(t *testing.T, s *signer) *KubeletCertificate {
	t.Helper()
	k, err := NewKubeletCertificate(KubeletCertificateConfig{
		Client: s.CertificatesV1(), NodeName: "milan", DNSNames: []string{"milan"},
		Addresses: []netip.Addr{netip.MustParseAddr("10.1.2.3"), netip.MustParseAddr("::ffff:10.1.2.4"), netip.MustParseAddr("fd00::1")},
		Log:       zap.NewNop(),
	})
	require.NoError(t, err)
	return k
}

func leaf(t *testing.T, k *KubeletCertificate) *x509.Certificate {
	t.Helper()
	cert, err := k.GetCertificate(nil)
	require.NoError(t, err)
	return cert.Leaf
}

// run runs k inside a bubble of fake time for d, and then check.
func run(t *testing.T, prepare func(*signer), d time.Duration, check func(*testing.T, *signer, *KubeletCertificate)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := newSigner(t)
		prepare(s)
		k := serving(t, s)
		require.Equal(t, "milan", leaf(t, k).Issuer.CommonName)
		stop := kubetest.Run(t, k.Run)
		time.Sleep(d)
		synctest.Wait()
		check(t, s, k)
		stop()
	})
}

func TestKubeletRequestIsWhatTheSignerWants(t *testing.T) {
	run(t, func(*signer) {}, time.Minute, func(t *testing.T, s *signer, k *KubeletCertificate) {
		require.True(t, k.Issued())
		require.Equal(t, 1, s.count())
		cert := leaf(t, k)
		require.NoError(t, cert.CheckSignatureFrom(s.ca.Cert))
		require.Equal(t, "system:node:milan", cert.Subject.CommonName)
		require.Equal(t, []string{"system:nodes"}, cert.Subject.Organization)
		require.Equal(t, []string{"milan"}, cert.DNSNames)
		require.Len(t, cert.IPAddresses, 3)
		require.Len(t, cert.IPAddresses[1], 4)
		spec := s.requests[0].Spec
		require.Equal(t, "kubernetes.io/kubelet-serving", spec.SignerName)
		require.Equal(t, []certificatesv1.KeyUsage{"digital signature", "server auth"}, spec.Usages)
		require.Nil(t, spec.ExpirationSeconds, "the signer chooses")
	})
}

func TestKubeletRenewsWithAFreshKey(t *testing.T) {
	var first *x509.Certificate
	run(t, func(*signer) {}, 39*time.Minute, func(t *testing.T, s *signer, k *KubeletCertificate) {
		require.Equal(t, 1, s.count())
		first = leaf(t, k)
		time.Sleep(10 * time.Minute) // fake time: two thirds of an hour, and a bit
		synctest.Wait()
		require.Equal(t, 2, s.count())
		require.NotEqual(t, first.PublicKey, leaf(t, k).PublicKey)
	})
}

func TestKubeletOutlastsWhatGoesWrong(t *testing.T) {
	away := apierrors.NewServiceUnavailable("away")
	resource := schema.GroupResource{Group: "certificates.k8s.io", Resource: "certificatesigningrequests"}
	ending := func(kind certificatesv1.RequestConditionType) func(*signer) {
		return func(s *signer) {
			s.got = func(s *signer, _ int, csr *certificatesv1.CertificateSigningRequest) error {
				if len(s.requests) > 2 {
					return s.issue(csr, time.Hour)
				}
				csr.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: kind, Status: corev1.ConditionTrue}}
				return nil
			}
		}
	}
	for name, tc := range map[string]struct {
		prepare func(*signer)
		want    int // requests
	}{
		"an API server that is away": {func(s *signer) {
			s.created = func(n int) error {
				if n < 5 {
					return away
				}
				return nil
			}
		}, 5},
		"rights that come late": {func(s *signer) {
			s.created = func(n int) error {
				if n < 3 {
					return apierrors.NewForbidden(resource, "", errors.New("no"))
				}
				return nil
			}
		}, 3},
		"an API server that goes away while we wait": {func(s *signer) {
			s.got = func(s *signer, n int, csr *certificatesv1.CertificateSigningRequest) error {
				if n < 10 {
					return away
				}
				return s.issue(csr, time.Hour)
			}
		}, 1},
		"a late approver": {func(s *signer) {
			s.got = func(s *signer, n int, csr *certificatesv1.CertificateSigningRequest) error {
				if n < 20 {
					return nil
				}
				return s.issue(csr, time.Hour)
			}
		}, 1},
		"a denied request": {ending(certificatesv1.CertificateDenied), 3},
		"a failed request": {ending(certificatesv1.CertificateFailed), 3},
		"a deleted request": {func(s *signer) {
			s.got = func(s *signer, _ int, csr *certificatesv1.CertificateSigningRequest) error {
				if len(s.requests) > 1 {
					return s.issue(csr, time.Hour)
				}
				return apierrors.NewNotFound(resource, csr.Name)
			}
		}, 2},
		"a certificate for another key": {func(s *signer) {
			s.got = func(s *signer, _ int, csr *certificatesv1.CertificateSigningRequest) error {
				if len(s.requests) > 1 {
					return s.issue(csr, time.Hour)
				}
				csr.Status.Certificate = s.ca.CertPEM()
				return nil
			}
		}, 2},
		"garbage": {func(s *signer) {
			s.got = func(s *signer, _ int, csr *certificatesv1.CertificateSigningRequest) error {
				if len(s.requests) > 1 {
					return s.issue(csr, time.Hour)
				}
				csr.Status.Certificate = []byte("garbage")
				return nil
			}
		}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, tc.prepare, 10*time.Minute, func(t *testing.T, s *signer, k *KubeletCertificate) {
				require.True(t, k.Issued())
				require.NoError(t, leaf(t, k).CheckSignatureFrom(s.ca.Cert))
				require.Equal(t, tc.want, s.count())
			})
		})
	}
}

func TestKubeletRefusedForeverAsksSeldom(t *testing.T) {
	run(t, func(s *signer) {
		s.got = func(_ *signer, _ int, csr *certificatesv1.CertificateSigningRequest) error {
			csr.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateDenied}}
			return nil
		}
	}, 24*time.Hour, func(t *testing.T, s *signer, k *KubeletCertificate) {
		require.False(t, k.Issued())
		require.Less(t, s.count(), 300)
	})
}

func TestKubeletConfigIsChecked(t *testing.T) {
	for name, cfg := range map[string]KubeletCertificateConfig{
		"no node": {DNSNames: []string{"x"}},
		"no name": {NodeName: "x"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := NewKubeletCertificate(cfg)
			require.Error(t, err)
		})
	}
}
