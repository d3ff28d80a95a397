package admit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	admissioninformers "k8s.io/client-go/informers/admissionregistration/v1"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/liqod/liqod/kube/certs"
	"github.com/liqod/liqod/kube/loop"
)

// rotationCheck is the interval at which the age of the certificates is checked.
const rotationCheck = time.Hour

// AuthorityConfig configures an Authority.
type AuthorityConfig struct {
	// Kube writes the Secret and the configuration.
	Kube kubernetes.Interface
	// Secrets, Mutating and Validating may have further objects.
	Secrets    coreinformers.SecretInformer
	Mutating   admissioninformers.MutatingWebhookConfigurationInformer
	Validating admissioninformers.ValidatingWebhookConfigurationInformer
	// Namespace and Secret name the Secret with the certificates.
	Namespace, Secret string
	// Configuration is the name of the MutatingWebhookConfiguration and of the
	// ValidatingWebhookConfiguration whose caBundles are set. Either may be missing.
	Configuration string
	// Hosts are the names and addresses of the server.
	Hosts []string
	Clock clock.PassiveClock
	Log   *zap.Logger
}

// Authority creates and renews the certificates of a webhook in a Secret. It writes the
// authorities that API servers must trust to the webhook's configurations.
type Authority struct {
	cfg  AuthorityConfig
	loop *loop.Loop
	key  loop.Key
}

// NewAuthority returns an Authority and registers its event handlers on the informers. It
// starts nothing.
func NewAuthority(cfg AuthorityConfig, observer loop.Observer) (*Authority, error) {
	a := &Authority{cfg: cfg, key: loop.Key{Namespace: cfg.Namespace, Name: cfg.Secret}}
	a.loop = loop.New(loop.Config{Name: "webhook-certificates", Sync: a.sync, Log: cfg.Log, Observer: observer})
	for _, inf := range []cache.SharedIndexInformer{cfg.Secrets.Informer(), cfg.Mutating.Informer(), cfg.Validating.Informer()} {
		if _, err := a.loop.Watch(inf, loop.Constant(a.key)); err != nil {
			return nil, err
		}
	}
	return a, nil
}

// Run blocks until ctx is done.
func (a *Authority) Run(ctx context.Context) error {
	a.loop.Add(a.key)
	return a.loop.Run(ctx, 1)
}

func (a *Authority) sync(ctx context.Context, _ loop.Key) error {
	data, err := a.secret(ctx)
	if err != nil {
		return err
	}
	bundle := data[certs.BundleKey]
	if err := errors.Join(a.trustMutating(ctx, bundle), a.trustValidating(ctx, bundle)); err != nil {
		return err
	}
	return loop.After(rotationCheck)
}

// secret returns the data of the Secret, after creating or renewing it where needed.
func (a *Authority) secret(ctx context.Context) (map[string][]byte, error) {
	return certs.Keeper{
		Kube: a.cfg.Kube, Secrets: a.cfg.Secrets.Lister(), Namespace: a.cfg.Namespace, Name: a.cfg.Secret,
		Hosts: a.cfg.Hosts, Clock: a.cfg.Clock, Log: a.cfg.Log,
	}.Keep(ctx)
}

// trustMutating writes the bundle to every webhook of the MutatingWebhookConfiguration.
func (a *Authority) trustMutating(ctx context.Context, bundle []byte) error {
	have, err := a.cfg.Mutating.Lister().Get(a.cfg.Configuration)
	if apierrors.IsNotFound(err) {
		return nil // its creation enqueues the key
	}
	if err != nil {
		return fmt.Errorf("reading the MutatingWebhookConfiguration: %w", err)
	}
	want, changed := have.DeepCopy(), false
	for i := range want.Webhooks {
		changed = setBundle(&want.Webhooks[i].ClientConfig, bundle) || changed
	}
	if !changed {
		return nil
	}
	_, err = a.cfg.Kube.AdmissionregistrationV1().MutatingWebhookConfigurations().Update(ctx, want, metav1.UpdateOptions{})
	if err != nil {
		return fmt.Errorf("writing the caBundle of the MutatingWebhookConfiguration %s: %w", want.Name, err)
	}
	a.cfg.Log.Info("webhook caBundle written", zap.String("kind", "MutatingWebhookConfiguration"))
	return nil
}

// trustValidating writes the bundle to every webhook of the ValidatingWebhookConfiguration.
func (a *Authority) trustValidating(ctx context.Context, bundle []byte) error {
	have, err := a.cfg.Validating.Lister().Get(a.cfg.Configuration)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading the ValidatingWebhookConfiguration: %w", err)
	}
	want, changed := have.DeepCopy(), false
	for i := range want.Webhooks {
		changed = setBundle(&want.Webhooks[i].ClientConfig, bundle) || changed
	}
	if !changed {
		return nil
	}
	_, err = a.cfg.Kube.AdmissionregistrationV1().ValidatingWebhookConfigurations().Update(ctx, want, metav1.UpdateOptions{})
	if err != nil {
		return fmt.Errorf("writing the caBundle of the ValidatingWebhookConfiguration %s: %w", want.Name, err)
	}
	a.cfg.Log.Info("webhook caBundle written", zap.String("kind", "ValidatingWebhookConfiguration"))
	return nil
}

func setBundle(c *admissionregistrationv1.WebhookClientConfig, bundle []byte) (changed bool) {
	if bytes.Equal(c.CABundle, bundle) {
		return false
	}
	c.CABundle = bundle
	return true
}
