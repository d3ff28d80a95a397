package serve

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

	"github.com/liqod/liqod/kube/loop"
)

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
func NewAuthority(cfg AuthorityConfig, observer loop.Observer) (*Authority, error) {
	cfg.Keeper.Secrets = cfg.Secrets.Lister()
	a := &Authority{cfg: cfg}
	key := loop.Key{Namespace: cfg.Keeper.Namespace, Name: cfg.Keeper.Name}
	a.loop = loop.New(loop.Config{Name: cfg.Loop, Sync: a.sync, Log: cfg.Keeper.Log, Observer: observer, Beside: func() []loop.Key { return []loop.Key{key} }})
	sources := []loop.Source{loop.From(cfg.Secrets.Informer(), loop.Constant(key))}
	if cfg.Mutating != nil {
		sources = append(sources, loop.From(cfg.Mutating.Informer(), loop.Constant(key)), loop.From(cfg.Validating.Informer(), loop.Constant(key)))
	}
	return a, a.loop.WatchAll(sources...)
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
