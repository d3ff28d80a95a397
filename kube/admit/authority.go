package admit

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
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

// rotationCheck is how often the certificates' age is looked at.
const rotationCheck = time.Hour

// AuthorityConfig configures an Authority.
type AuthorityConfig struct {
	// Client writes the Secret and the configuration.
	Client kubernetes.Interface
	// Secrets and Configurations may hold more than those that are named here.
	Secrets        coreinformers.SecretInformer
	Configurations admissioninformers.MutatingWebhookConfigurationInformer
	// Namespace and Secret name the Secret that holds the certificates.
	Namespace, Secret string
	// Configuration names the MutatingWebhookConfiguration whose caBundle is kept.
	Configuration string
	// Hosts are the names and addresses that the server is reached by.
	Hosts []string
	Clock clock.PassiveClock
	Log   *zap.Logger
}

// Authority keeps the certificates of a webhook in a Secret, and what API servers are
// to trust in the webhook's configuration.
type Authority struct {
	cfg  AuthorityConfig
	loop *loop.Loop
	key  loop.Key
}

// NewAuthority returns an Authority that watches; it starts nothing.
func NewAuthority(cfg AuthorityConfig, observer loop.Observer) (*Authority, error) {
	a := &Authority{cfg: cfg, key: loop.Key{Namespace: cfg.Namespace, Name: cfg.Secret}}
	a.loop = loop.New(loop.Config{Name: "webhook-certificates", Sync: a.sync, Log: cfg.Log, Observer: observer})
	for _, inf := range []cache.SharedIndexInformer{cfg.Secrets.Informer(), cfg.Configurations.Informer()} {
		if _, err := a.loop.Watch(inf, loop.Constant(a.key)); err != nil {
			return nil, err
		}
	}
	return a, nil
}

// Run works until ctx ends.
func (a *Authority) Run(ctx context.Context) error {
	a.loop.Add(a.key)
	return a.loop.Run(ctx, 1)
}

func (a *Authority) sync(ctx context.Context, _ loop.Key) error {
	data, err := a.secret(ctx)
	if err != nil {
		return err
	}
	if err := a.trust(ctx, data[certs.BundleKey]); err != nil {
		return err
	}
	return loop.After(rotationCheck)
}

// secret returns the data of the Secret, made or renewed where needed.
func (a *Authority) secret(ctx context.Context) (map[string][]byte, error) {
	have, err := a.cfg.Secrets.Lister().Secrets(a.cfg.Namespace).Get(a.cfg.Secret)
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("reading the certificates: %w", err)
	}
	want := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: a.cfg.Namespace, Name: a.cfg.Secret}, Type: corev1.SecretTypeOpaque}
	if have != nil {
		want = have.DeepCopy()
	}
	data, changed, err := certs.Ensure(want.Data, a.cfg.Hosts, a.cfg.Clock.Now())
	if err != nil {
		return nil, fmt.Errorf("making certificates: %w", err)
	}
	if !changed {
		return data, nil
	}
	want.Data = data
	secrets := a.cfg.Client.CoreV1().Secrets(a.cfg.Namespace)
	if have == nil {
		_, err = secrets.Create(ctx, want, metav1.CreateOptions{})
	} else {
		_, err = secrets.Update(ctx, want, metav1.UpdateOptions{})
	}
	if err != nil {
		return nil, fmt.Errorf("writing the certificates to secret %s/%s: %w", a.cfg.Namespace, a.cfg.Secret, err)
	}
	a.cfg.Log.Info("webhook certificates written")
	return data, nil
}

// trust puts the bundle into every webhook of the configuration.
func (a *Authority) trust(ctx context.Context, bundle []byte) error {
	have, err := a.cfg.Configurations.Lister().Get(a.cfg.Configuration)
	if apierrors.IsNotFound(err) {
		return nil // its creation wakes us
	}
	if err != nil {
		return fmt.Errorf("reading the webhook configuration: %w", err)
	}
	want := have.DeepCopy()
	if !setBundle(want, bundle) {
		return nil
	}
	_, err = a.cfg.Client.AdmissionregistrationV1().MutatingWebhookConfigurations().Update(ctx, want, metav1.UpdateOptions{})
	if err != nil {
		return fmt.Errorf("writing the caBundle of the webhook configuration %s: %w", want.Name, err)
	}
	a.cfg.Log.Info("webhook caBundle written")
	return nil
}

func setBundle(c *admissionregistrationv1.MutatingWebhookConfiguration, bundle []byte) (changed bool) {
	for i := range c.Webhooks {
		if client := &c.Webhooks[i].ClientConfig; !bytes.Equal(client.CABundle, bundle) {
			client.CABundle, changed = bundle, true
		}
	}
	return changed
}
