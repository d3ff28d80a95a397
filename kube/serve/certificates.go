package serve

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	admissioninformers "k8s.io/client-go/informers/admissionregistration/v1"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/utils/clock"

	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/kube/store"
)

// Keys of the Secret of EnsureCertificates.
const (
	// BundleKey holds the authorities that clients must trust, as in the caBundle of a
	// webhook configuration. The signing authority is the first one.
	BundleKey = "ca.crt"
	// CertKey and KeyKey hold the serving certificate and its key.
	CertKey = "tls.crt"
	KeyKey  = "tls.key"

	caKeyKey   = "ca.key"
	nextKey    = "next-ca.crt"
	nextKeyKey = "next-ca.key"
)

const (
	caLifetime      = 10 * 365 * 24 * time.Hour
	servingLifetime = 365 * 24 * time.Hour
	// caOverlap is how long a new authority is trusted before it signs.
	caOverlap = 24 * time.Hour
	caName    = "serving-ca"
)

// EnsureCertificates returns the wanted data of a Secret for its current data, and whether they differ.
// The data has an authority (10 years) and a serving certificate for hosts (1 year). EnsureCertificates
// renews each after two thirds of its life. A new authority is in the bundle for a day
// before it signs. An old one stays in the bundle until the certificates that it signed
// have expired. EnsureCertificates replaces values that it cannot decode, and keeps other keys of the
// data. Callers call it at least daily. It does no I/O.
func EnsureCertificates(have map[string][]byte, hosts []string, now time.Time) (map[string][]byte, bool, error) {
	s := parseState(have, now)
	if err := s.advance(hosts, now); err != nil {
		return nil, false, err
	}
	want := maps.Clone(have)
	if want == nil {
		want = map[string][]byte{}
	}
	if err := s.encode(want); err != nil {
		return nil, false, err
	}
	return want, !maps.EqualFunc(have, want, bytes.Equal), nil
}

type state struct {
	ca, next *Pair
	serving  *Pair
	bundle   []*x509.Certificate
}

// parseState decodes the certificates that are still valid.
func parseState(data map[string][]byte, now time.Time) *state {
	s := &state{bundle: parseBundle(data[BundleKey])}
	s.bundle = slices.DeleteFunc(s.bundle, func(c *x509.Certificate) bool { return !c.NotAfter.After(now) })
	s.ca = parseCA(data[BundleKey], data[caKeyKey], now)
	s.next = parseCA(data[nextKey], data[nextKeyKey], now)
	if serving, err := ParsePair(data[CertKey], data[KeyKey]); err == nil {
		s.serving = serving
	}
	return s
}

func parseCA(cert, key []byte, now time.Time) *Pair {
	pair, err := ParsePair(cert, key)
	if err != nil || !pair.Cert.IsCA || !pair.Cert.NotAfter.After(now) {
		return nil
	}
	return pair
}

func (s *state) advance(hosts []string, now time.Time) error {
	var err error
	if s.ca == nil {
		s.next = nil
		if s.ca, err = NewCA(caName, now, caLifetime); err != nil {
			return err
		}
	}
	if s.next == nil && now.After(renewAt(s.ca.Cert)) {
		if s.next, err = NewCA(caName, now, caLifetime); err != nil {
			return err
		}
	}
	if s.next != nil && !now.Before(signsFrom(s.next.Cert)) {
		s.ca, s.next = s.next, nil
	}
	s.bundle = s.trusted(now)
	if s.servingIsGood(hosts, now) {
		return nil
	}
	s.serving, err = NewCertificate(s.ca, hosts, now, servingLifetime)
	return err
}

// signsFrom returns when a new authority begins to sign.
func signsFrom(ca *x509.Certificate) time.Time { return ca.NotBefore.Add(backdate + caOverlap) }

func (s *state) trusted(now time.Time) []*x509.Certificate {
	trusted := []*x509.Certificate{s.ca.Cert}
	if s.next != nil {
		trusted = append(trusted, s.next.Cert)
	}
	// All certificates of the previous authorities have expired.
	if now.After(signsFrom(s.ca.Cert).Add(servingLifetime)) {
		return trusted
	}
	for _, old := range s.bundle {
		if !slices.ContainsFunc(trusted, old.Equal) {
			trusted = append(trusted, old)
		}
	}
	return trusted
}

func (s *state) servingIsGood(hosts []string, now time.Time) bool {
	if s.serving == nil {
		return false
	}
	cert := s.serving.Cert
	return cert.CheckSignatureFrom(s.ca.Cert) == nil && now.Before(renewAt(cert)) &&
		slices.Equal(slices.Sorted(slices.Values(hostsOf(cert))), slices.Sorted(slices.Values(hosts)))
}

func (s *state) encode(data map[string][]byte) error {
	data[BundleKey] = encodeBundle(s.bundle)
	delete(data, nextKey)
	delete(data, nextKeyKey)
	if s.next != nil {
		data[nextKey] = s.next.CertPEM()
	}
	data[CertKey] = s.serving.CertPEM()
	for key, pair := range map[string]*Pair{caKeyKey: s.ca, nextKeyKey: s.next, KeyKey: s.serving} {
		if pair == nil {
			continue
		}
		pem, err := pair.KeyPEM()
		if err != nil {
			return err
		}
		data[key] = pem
	}
	return nil
}

// rotationCheck is the interval at which the age of the certificates is checked.
const rotationCheck = time.Hour

// AuthorityConfig configures an Authority.
type AuthorityConfig struct {
	// Loop is the name of its loop.
	Loop string
	// Keeper has the Secret and what is in it. Its lister is that of Secrets. Its client writes the
	// configurations, too.
	Keeper CertificateKeeper
	// Secrets, Mutating and Validating may have further objects. The latter two are nil without
	// a webhook.
	Secrets    coreinformers.SecretInformer
	Mutating   admissioninformers.MutatingWebhookConfigurationInformer
	Validating admissioninformers.ValidatingWebhookConfigurationInformer
	// Configuration is the name of the MutatingWebhookConfiguration and of the
	// ValidatingWebhookConfiguration whose caBundles are set. Either may be missing.
	Configuration string
}

// Authority creates and renews the certificates of a server in a Secret. For a webhook, it writes
// the authorities that API servers must trust to the webhook's configurations.
type Authority struct {
	cfg  AuthorityConfig
	loop *loop.Loop
}

// NewAuthority returns an Authority and registers its event handlers on the informers. It
// starts nothing.
func NewAuthority(cfg AuthorityConfig, observer loop.Observer) *Authority {
	cfg.Keeper.Secrets = cfg.Secrets.Lister()
	a := &Authority{cfg: cfg}
	key := loop.Key{Namespace: cfg.Keeper.Namespace, Name: cfg.Keeper.Name}
	sources := []loop.Source{loop.From(cfg.Secrets.Informer(), loop.Constant(key))}
	if cfg.Mutating != nil {
		sources = append(sources, loop.From(cfg.Mutating.Informer(), loop.Constant(key)), loop.From(cfg.Validating.Informer(), loop.Constant(key)))
	}
	a.loop = loop.New(loop.Config{Name: cfg.Loop, Sync: a.sync, Log: cfg.Keeper.Log, Observer: observer, Beside: func() []loop.Key { return []loop.Key{key} }}, sources...)
	return a
}

// Run blocks until ctx is done.
func (a *Authority) Run(ctx context.Context) error { return a.loop.Run(ctx, 1) }

func (a *Authority) sync(ctx context.Context, _ loop.Key) error {
	data, err := a.cfg.Keeper.Keep(ctx)
	if err != nil {
		return err
	}
	if a.cfg.Mutating != nil {
		bundle, clients := data[BundleKey], a.cfg.Keeper.Kube.AdmissionregistrationV1()
		mutating := func(c *admissionregistrationv1.MutatingWebhookConfiguration) (out []*admissionregistrationv1.WebhookClientConfig) {
			for i := range c.Webhooks {
				out = append(out, &c.Webhooks[i].ClientConfig)
			}
			return out
		}
		validating := func(c *admissionregistrationv1.ValidatingWebhookConfiguration) (out []*admissionregistrationv1.WebhookClientConfig) {
			for i := range c.Webhooks {
				out = append(out, &c.Webhooks[i].ClientConfig)
			}
			return out
		}
		err = errors.Join(
			trust(ctx, a, "MutatingWebhookConfiguration", bundle, a.cfg.Mutating.Lister().Get, mutating, clients.MutatingWebhookConfigurations().Update),
			trust(ctx, a, "ValidatingWebhookConfiguration", bundle, a.cfg.Validating.Lister().Get, validating, clients.ValidatingWebhookConfigurations().Update))
	}
	if err != nil {
		return err
	}
	return loop.After(rotationCheck)
}

// trust writes the bundle to every webhook of the configuration of one kind, if there is one: its
// creation enqueues the key.
func trust[T interface{ DeepCopy() T }](ctx context.Context, a *Authority, kind string, bundle []byte, get func(string) (T, error),
	webhooks func(T) []*admissionregistrationv1.WebhookClientConfig, update func(context.Context, T, metav1.UpdateOptions) (T, error),
) error {
	have, err := get(a.cfg.Configuration)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading the %s: %w", kind, err)
	}
	want, changed := have.DeepCopy(), false
	for _, c := range webhooks(want) {
		changed = changed || !bytes.Equal(c.CABundle, bundle)
		c.CABundle = bundle
	}
	if !changed {
		return nil
	}
	if _, err = update(ctx, want, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("writing the caBundle of the %s %s: %w", kind, a.cfg.Configuration, err)
	}
	a.cfg.Keeper.Log.Info("webhook caBundle written", zap.String("kind", kind))
	return nil
}

// ErrNoCertificate means that a server has no certificate yet.
var ErrNoCertificate = errors.New("no certificate yet")

// Certificate has the latest certificate of a Secret, for a server. The zero value is ready to
// use. Its methods are safe for concurrent use.
type Certificate struct {
	current atomic.Pointer[served]
}

type served struct {
	cert   *tls.Certificate
	bundle []byte
}

// Set uses the certificate in the data of a Secret of EnsureCertificates. The server sends the authority
// with it, because some clients trust an authority by its fingerprint. After an error the
// former certificate stays in use.
func (s *Certificate) Set(data map[string][]byte) error {
	pair, err := ParsePair(data[CertKey], data[KeyKey])
	if err != nil {
		return err
	}
	cert := pair.TLS()
	for _, ca := range parseBundle(data[BundleKey]) {
		if pair.Cert.CheckSignatureFrom(ca) == nil {
			cert.Certificate = append(cert.Certificate, ca.Raw)
			break
		}
	}
	s.current.Store(&served{cert: cert, bundle: data[BundleKey]})
	return nil
}

// Bundle returns the authorities that clients must trust, as PEM. The next authority is
// among them before it begins to sign. Bundle returns nil before the first Set.
func (s *Certificate) Bundle() []byte {
	if now := s.current.Load(); now != nil {
		return now.bundle
	}
	return nil
}

// Ready reports whether there is a certificate.
func (s *Certificate) Ready() bool { return s.current.Load() != nil }

// GetCertificate returns the certificate, for tls.Config. Before the first Set it returns
// ErrNoCertificate.
func (s *Certificate) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if now := s.current.Load(); now != nil {
		return now.cert, nil
	}
	return nil, ErrNoCertificate
}

// CertificateKeeper stores the certificates of EnsureCertificates in a Secret. All fields are required. Several
// Keepers may share a Secret: all but one get a conflict, and their callers retry.
type CertificateKeeper struct {
	Kube kubernetes.Interface
	// Secrets may have further Secrets. An Authority sets it.
	Secrets corelisters.SecretLister
	// Namespace and Name are those of the Secret.
	Namespace, Name string
	// Hosts are the names and addresses of the server.
	Hosts []string
	Clock clock.PassiveClock
	Log   *zap.Logger
}

// Keep returns the data of the Secret, after creating or renewing it where needed. Callers
// call it at least daily.
func (k CertificateKeeper) Keep(ctx context.Context) (map[string][]byte, error) {
	have := store.Known(k.Secrets.Secrets(k.Namespace).Get(k.Name))
	want := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: k.Namespace, Name: k.Name}, Type: corev1.SecretTypeOpaque}
	if have != nil {
		want = have.DeepCopy()
	}
	data, changed, err := EnsureCertificates(want.Data, k.Hosts, k.Clock.Now())
	if err != nil {
		return nil, fmt.Errorf("renewing the certificates: %w", err)
	}
	if !changed {
		return data, nil
	}
	want.Data = data
	if _, err := store.Write(ctx, "secret", k.Kube.CoreV1().Secrets(k.Namespace), "", have, want); err != nil {
		return nil, err
	}
	k.Log.Info("certificates written", zap.String("secret", k.Name))
	return data, nil
}
