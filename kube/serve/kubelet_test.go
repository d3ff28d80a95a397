package serve

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"net/netip"
	"os"
	"path/filepath"
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

// serving returns a server of node milan with three addresses.
func serving(t *testing.T, s *signer, change func(*KubeletCertificateConfig)) *KubeletCertificate {
	t.Helper()
	cfg := KubeletCertificateConfig{
		Client: s.CertificatesV1(), NodeName: "milan", DNSNames: []string{"milan"},
		Addresses: []netip.Addr{netip.MustParseAddr("10.1.2.3"), netip.MustParseAddr("::ffff:10.1.2.4"), netip.MustParseAddr("fd00::1")},
		Log:       zap.NewNop(),
	}
	if change != nil {
		change(&cfg)
	}
	k, err := NewKubeletCertificate(cfg)
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
		k := serving(t, s, nil)
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

// creates refuses requests before the n'th.
func creates(n int, err error) func(*signer) {
	return func(s *signer) {
		s.created = func(have int) error {
			if have < n {
				return err
			}
			return nil
		}
	}
}

// signs lets the n'th request have its certificate, and the others what wrong makes of them.
func signs(n int, wrong func(*signer, *certificatesv1.CertificateSigningRequest) error) func(*signer) {
	return func(s *signer) {
		s.got = func(s *signer, _ int, csr *certificatesv1.CertificateSigningRequest) error {
			if len(s.requests) >= n {
				return s.issue(csr, time.Hour)
			}
			return wrong(s, csr)
		}
	}
}

// answersLate has the certificate at the n'th read, and err before.
func answersLate(n int, err error) func(*signer) {
	return func(s *signer) {
		s.got = func(s *signer, have int, csr *certificatesv1.CertificateSigningRequest) error {
			if have < n {
				return err
			}
			return s.issue(csr, time.Hour)
		}
	}
}

func ended(kind certificatesv1.RequestConditionType) func(*signer, *certificatesv1.CertificateSigningRequest) error {
	return func(_ *signer, csr *certificatesv1.CertificateSigningRequest) error {
		csr.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: kind, Status: corev1.ConditionTrue}}
		return nil
	}
}

func TestKubeletOutlastsWhatGoesWrong(t *testing.T) {
	away := apierrors.NewServiceUnavailable("away")
	resource := schema.GroupResource{Group: "certificates.k8s.io", Resource: "certificatesigningrequests"}
	for name, tc := range map[string]struct {
		prepare func(*signer)
		want    int // requests
	}{
		"an API server that is away":                 {creates(5, away), 5},
		"rights that come late":                      {creates(3, apierrors.NewForbidden(resource, "", errors.New("no"))), 3},
		"an API server that goes away while we wait": {answersLate(10, away), 1},
		"a late approver":                            {answersLate(20, nil), 1},
		"a denied request":                           {signs(3, ended(certificatesv1.CertificateDenied)), 3},
		"a failed request":                           {signs(3, ended(certificatesv1.CertificateFailed)), 3},
		"a deleted request": {signs(2, func(_ *signer, csr *certificatesv1.CertificateSigningRequest) error {
			return apierrors.NewNotFound(resource, csr.Name)
		}), 2},
		"a certificate for another key": {signs(2, func(s *signer, csr *certificatesv1.CertificateSigningRequest) error {
			csr.Status.Certificate = s.ca.CertPEM()
			return nil
		}), 2},
		"garbage": {signs(2, func(_ *signer, csr *certificatesv1.CertificateSigningRequest) error {
			csr.Status.Certificate = []byte("garbage")
			return nil
		}), 2},
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
	run(t, signs(1<<30, ended(certificatesv1.CertificateDenied)), 24*time.Hour, func(t *testing.T, s *signer, k *KubeletCertificate) {
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

// keeping returns a server that keeps its certificate.
func keeping(t *testing.T, s *signer, directory string, change func(*KubeletCertificateConfig)) *KubeletCertificate {
	t.Helper()
	return serving(t, s, func(c *KubeletCertificateConfig) {
		c.Directory = directory
		if change != nil {
			change(c)
		}
	})
}

// live runs k for d of the bubble's time.
func live(t *testing.T, k *KubeletCertificate, d time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	require.NoError(t, k.Run(ctx))
}

func TestKeptCertificate(t *testing.T) {
	for name, tc := range map[string]struct {
		away    time.Duration // between the two processes
		between func(t *testing.T, directory string)
		change  func(*KubeletCertificateConfig)
		lasts   time.Duration
		want    int // requests of the second process
	}{
		"serves the next process":            {lasts: 10 * time.Minute, want: 0},
		"is renewed when it is due":          {lasts: 50 * time.Minute, want: 1},
		"is renewed at once when overdue":    {away: 50 * time.Minute, lasts: time.Minute, want: 1},
		"is of no use when it has ended":     {away: 2 * time.Hour, lasts: time.Minute, want: 1},
		"is of no use for another address":   {change: func(c *KubeletCertificateConfig) { c.Addresses = []netip.Addr{netip.MustParseAddr("10.1.2.5")} }, lasts: time.Minute, want: 1},
		"is of no use for another node":      {change: func(c *KubeletCertificateConfig) { c.NodeName = "turin" }, lasts: time.Minute, want: 1},
		"is of no use when it is broken":     {between: overwrite("garbage"), lasts: time.Minute, want: 1},
		"is of no use when half of it is":    {between: halve, lasts: time.Minute, want: 1},
		"is asked for when it has gone":      {between: func(t *testing.T, d string) { require.NoError(t, os.RemoveAll(d)) }, lasts: time.Minute, want: 1},
		"is asked for when nothing is kept":  {change: func(c *KubeletCertificateConfig) { c.Directory = "" }, lasts: time.Minute, want: 1},
		"is asked for where nothing is kept": {change: func(c *KubeletCertificateConfig) { c.Directory += "-other" }, lasts: time.Minute, want: 1},
	} {
		t.Run(name, func(t *testing.T) {
			directory := filepath.Join(t.TempDir(), "pki")
			synctest.Test(t, func(t *testing.T) {
				s := newSigner(t)
				live(t, keeping(t, s, directory, nil), time.Minute)
				require.Equal(t, 1, s.count())
				time.Sleep(tc.away)
				if tc.between != nil {
					tc.between(t, directory)
				}
				next := keeping(t, s, directory, tc.change)
				live(t, next, tc.lasts)
				require.Equal(t, 1+tc.want, s.count())
				require.True(t, next.Issued())
				require.NoError(t, leaf(t, next).CheckSignatureFrom(s.ca.Cert))
			})
		})
	}
}

func TestKeptCertificateIsPrivate(t *testing.T) {
	directory := filepath.Join(t.TempDir(), "pki")
	synctest.Test(t, func(t *testing.T) {
		live(t, keeping(t, newSigner(t), directory, nil), time.Minute)
	})
	files, err := os.ReadDir(directory)
	require.NoError(t, err)
	require.Len(t, files, 1)
	info, err := files[0].Info()
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
}

func TestDirectoryThatCannotBeWrittenTo(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	synctest.Test(t, func(t *testing.T) {
		k := keeping(t, newSigner(t), file, nil)
		live(t, k, time.Minute)
		require.True(t, k.Issued())
	})
}

func overwrite(text string) func(*testing.T, string) {
	return func(t *testing.T, directory string) {
		require.NoError(t, os.WriteFile(filepath.Join(directory, keptFile), []byte(text), 0o600))
	}
}

func halve(t *testing.T, directory string) {
	path := filepath.Join(directory, keptFile)
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, data[:len(data)/2], 0o600))
}
