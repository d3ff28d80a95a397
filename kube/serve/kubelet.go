package serve

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilrand "k8s.io/apimachinery/pkg/util/rand"
	certificatesv1client "k8s.io/client-go/kubernetes/typed/certificates/v1"

	"github.com/liqod/liqod/kube/loop"
)

const (
	pollFirst = 500 * time.Millisecond
	pollLast  = 10 * time.Second
	// Requests back off after a refusal, because each one leaves an object.
	retryFirst        = 2 * time.Second
	retryLast         = 5 * time.Minute
	selfSignedLife    = 10 * 365 * 24 * time.Hour
	requestNameLength = 12
	nodePrefix        = "system:node:" // of the common name of a node
)

// errRefused means that a request ended without a certificate.
var errRefused = errors.New("certificate request refused")

// KubeletCertificateConfig configures a KubeletCertificate.
type KubeletCertificateConfig struct {
	// Client creates the requests. It must not be fenced by a lease, because every replica
	// of a server needs its own certificate.
	Client certificatesv1client.CertificateSigningRequestsGetter
	// NodeName is the node of the server.
	NodeName string
	// DNSNames and Addresses are the names of the server. At least one is required.
	DNSNames  []string
	Addresses []netip.Addr
	// Directory stores the certificate and its key, so that the next process in this place
	// needs no request. It is created if it is missing. If empty, nothing is stored.
	Directory string
	// Log receives issued certificates and refusals.
	Log *zap.Logger
}

// KubeletCertificate requests and renews a serving certificate of the signer
// kubernetes.io/kubelet-serving. It does not approve its requests.
type KubeletCertificate struct {
	cfg     KubeletCertificateConfig
	current atomic.Pointer[tls.Certificate]
	issued  atomic.Bool
}

// NewKubeletCertificate returns a KubeletCertificate. Its first certificate is the one stored in
// the directory, or else a self-signed one, so that the server can answer at once. It
// starts nothing.
func NewKubeletCertificate(cfg KubeletCertificateConfig) (*KubeletCertificate, error) {
	if cfg.NodeName == "" || len(cfg.DNSNames)+len(cfg.Addresses) == 0 {
		return nil, errors.New("a kubelet's serving certificate needs a node name and a DNS name or an address")
	}
	self, err := NewCertificate(nil, []string{cfg.NodeName}, time.Now(), selfSignedLife)
	if err != nil {
		return nil, err
	}
	k := &KubeletCertificate{cfg: cfg}
	k.current.Store(self.TLS())
	k.restore(time.Now())
	return k, nil
}

// GetCertificate returns the latest certificate, for tls.Config. It is self-signed until the
// signer has issued one. GetCertificate is safe for concurrent use.
func (k *KubeletCertificate) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	return k.current.Load(), nil
}

// Issued reports whether the cluster's signer has issued a certificate yet.
func (k *KubeletCertificate) Issued() bool { return k.issued.Load() }

// Run requests a certificate and renews it after two thirds of its life, with a new key each
// time, until ctx is done. It waits without a limit for an unreachable API server and for
// the approval. It always returns nil.
func (k *KubeletCertificate) Run(ctx context.Context) error {
	if k.Issued() { // by an earlier process
		sleep(ctx, max(time.Until(renewAt(k.current.Load().Leaf)), 0))
	}
	backoff, delay := loop.Backoff{First: retryFirst, Longest: retryLast}, retryFirst
	for ctx.Err() == nil {
		cert, err := k.obtain(ctx)
		switch {
		case err == nil:
			k.current.Store(cert)
			k.issued.Store(true)
			k.keep(cert)
			delay = retryFirst
			k.cfg.Log.Info("serving certificate issued", zap.String("node", k.cfg.NodeName), zap.Time("notAfter", cert.Leaf.NotAfter))
			sleep(ctx, max(time.Until(renewAt(cert.Leaf)), retryFirst))
		case ctx.Err() != nil:
		case errors.Is(err, errRefused):
			k.cfg.Log.Warn("serving certificate refused; will retry", zap.String("node", k.cfg.NodeName), zap.Duration("after", delay), zap.Error(err))
			sleep(ctx, delay)
			delay = backoff.Next(delay)
		default:
			k.cfg.Log.Debug("serving certificate not obtained; will retry", zap.String("node", k.cfg.NodeName), zap.Error(err))
			sleep(ctx, retryFirst)
		}
	}
	return nil
}

func (k *KubeletCertificate) obtain(ctx context.Context) (*tls.Certificate, error) {
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	csr, err := k.request(key)
	if err != nil {
		return nil, err
	}
	created, err := k.cfg.Client.CertificateSigningRequests().Create(ctx, csr, metav1.CreateOptions{})
	if refuses(err) {
		return nil, fmt.Errorf("%w: %w", errRefused, err)
	}
	if err != nil {
		return nil, fmt.Errorf("creating certificate request %s: %w", csr.Name, err)
	}
	chain, err := k.await(ctx, created)
	if err != nil {
		return nil, err
	}
	return k.accept(chain, key)
}

func (k *KubeletCertificate) request(key *ecdsa.PrivateKey) (*certificatesv1.CertificateSigningRequest, error) {
	template := &x509.CertificateRequest{
		Subject:  pkix.Name{CommonName: nodePrefix + k.cfg.NodeName, Organization: []string{"system:nodes"}},
		DNSNames: k.cfg.DNSNames,
	}
	for _, addr := range k.cfg.Addresses {
		template.IPAddresses = append(template.IPAddresses, net.IP(addr.Unmap().AsSlice()))
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, template, key)
	if err != nil {
		return nil, fmt.Errorf("creating a certificate request: %w", err)
	}
	return &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: "csr-" + utilrand.String(requestNameLength)},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request:    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
			SignerName: certificatesv1.KubeletServingSignerName,
			Usages:     []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageServerAuth},
		},
	}, nil
}

// await polls until the request is issued, refused or gone. It continues after an error of
// an unreachable or overloaded API server.
func (k *KubeletCertificate) await(ctx context.Context, created *certificatesv1.CertificateSigningRequest) ([]byte, error) {
	for wait := pollFirst; ; wait = min(wait*3/2, pollLast) {
		csr, err := k.cfg.Client.CertificateSigningRequests().Get(ctx, created.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return nil, fmt.Errorf("%w: %s was deleted", errRefused, created.Name)
		case refuses(err):
			return nil, fmt.Errorf("%w: %w", errRefused, err)
		case err == nil && csr.UID != created.UID:
			return nil, fmt.Errorf("%w: %s was replaced", errRefused, created.Name)
		case err == nil && refusal(csr) != "":
			return nil, fmt.Errorf("%w: %s", errRefused, refusal(csr))
		case err == nil && len(csr.Status.Certificate) > 0:
			return csr.Status.Certificate, nil
		}
		if !sleep(ctx, wait) {
			return nil, ctx.Err()
		}
	}
}

// refuses reports whether the API server rejected a request, for example because of missing
// rights. It is false if the API server is unreachable or overloaded.
func refuses(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	code := status.Status().Code
	return code >= 400 && code < 500 && code != http.StatusTooManyRequests
}

func refusal(csr *certificatesv1.CertificateSigningRequest) string {
	for _, c := range csr.Status.Conditions {
		ends := c.Type == certificatesv1.CertificateDenied || c.Type == certificatesv1.CertificateFailed
		if ends && c.Status != corev1.ConditionFalse {
			return fmt.Sprintf("%s is %s: %s: %s", csr.Name, c.Type, c.Reason, c.Message)
		}
	}
	return ""
}

func (k *KubeletCertificate) accept(chain []byte, key *ecdsa.PrivateKey) (*tls.Certificate, error) {
	certs := parseBundle(chain)
	if len(certs) == 0 {
		return nil, fmt.Errorf("%w: the signer's answer holds no certificate", errRefused)
	}
	if !key.PublicKey.Equal(certs[0].PublicKey) {
		return nil, fmt.Errorf("%w: the certificate is for another key", errRefused)
	}
	issued := &tls.Certificate{PrivateKey: key, Leaf: certs[0]}
	for _, cert := range certs {
		issued.Certificate = append(issued.Certificate, bytes.Clone(cert.Raw))
	}
	return issued, nil
}

// sleep waits for d plus up to a tenth of it. It returns false if ctx is done before.
func sleep(ctx context.Context, d time.Duration) bool {
	return loop.Pause(ctx, d+mathrand.N(d/10+1)) == nil
}

// keptFile holds the chain, followed by the key. They are in one file so that they always
// match.
const keptFile = "kubelet-server.pem"

// restore uses the certificate that an earlier process has stored, if it is valid for the
// current names and addresses of the server.
func (k *KubeletCertificate) restore(now time.Time) {
	if k.cfg.Directory == "" {
		return
	}
	cert, err := k.kept(now)
	if err != nil {
		k.cfg.Log.Info("no stored serving certificate is used", zap.String("node", k.cfg.NodeName), zap.Error(err))
		return
	}
	k.current.Store(cert)
	k.issued.Store(true)
}

func (k *KubeletCertificate) kept(now time.Time) (*tls.Certificate, error) {
	data, err := os.ReadFile(k.keptPath())
	if err != nil {
		return nil, fmt.Errorf("reading the stored certificate: %w", err)
	}
	cert, err := tls.X509KeyPair(data, data)
	if err != nil {
		return nil, fmt.Errorf("decoding the stored certificate: %w", err)
	}
	if now.Before(cert.Leaf.NotBefore) || now.After(cert.Leaf.NotAfter) {
		return nil, fmt.Errorf("the stored certificate is valid from %s to %s", cert.Leaf.NotBefore, cert.Leaf.NotAfter)
	}
	if name := nodePrefix + k.cfg.NodeName; cert.Leaf.Subject.CommonName != name {
		return nil, fmt.Errorf("the stored certificate is for %s, not for %s", cert.Leaf.Subject.CommonName, name)
	}
	hosts := slices.Clone(k.cfg.DNSNames)
	for _, a := range k.cfg.Addresses {
		hosts = append(hosts, a.Unmap().String())
	}
	for _, host := range hosts {
		if err := cert.Leaf.VerifyHostname(host); err != nil {
			return nil, fmt.Errorf("checking the stored certificate: %w", err)
		}
	}
	return &cert, nil
}

// keep stores the certificate for the next process in this place. Without it, that process
// requests another one.
func (k *KubeletCertificate) keep(cert *tls.Certificate) {
	if k.cfg.Directory == "" {
		return
	}
	if err := k.write(cert); err != nil {
		k.cfg.Log.Warn("serving certificate not stored", zap.String("node", k.cfg.NodeName), zap.Error(err))
	}
}

func (k *KubeletCertificate) write(cert *tls.Certificate) error {
	var data []byte
	for _, der := range cert.Certificate {
		data = append(data, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})...)
	}
	key, err := encodeKey(cert.PrivateKey)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(k.cfg.Directory, 0o700); err != nil {
		return fmt.Errorf("making the directory of the certificate: %w", err)
	}
	next, err := os.CreateTemp(k.cfg.Directory, keptFile+".*") // mode 0600
	if err != nil {
		return fmt.Errorf("making a file for the certificate: %w", err)
	}
	_, err = next.Write(append(data, key...))
	if closing := next.Close(); err == nil {
		err = closing
	}
	if err == nil {
		err = os.Rename(next.Name(), k.keptPath())
	}
	if err != nil {
		_ = os.Remove(next.Name()) // the first error has the cause
		return fmt.Errorf("writing the certificate: %w", err)
	}
	return nil
}

func (k *KubeletCertificate) keptPath() string { return filepath.Join(k.cfg.Directory, keptFile) }
