package link

import (
	"bytes"
	"context"
	"fmt"
	"sync"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/rest"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	offloadinginformers "github.com/liqod/liqod/api/generated/informers/externalversions/offloading/v1beta1"
	offloadingv1beta1 "github.com/liqod/liqod/api/offloading/v1beta1"
	"github.com/liqod/liqod/kube/client"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/kube/store"
)

// Credentials follows the kubeconfig Secret that a VirtualNode refers to. Set the exported
// fields before the first call.
type Credentials struct {
	// VirtualNodes and Secrets are informers of the tenant namespace.
	VirtualNodes offloadinginformers.VirtualNodeInformer
	Secrets      coreinformers.SecretInformer
	// Namespace and Name identify the VirtualNode.
	Namespace, Name string
	Log             *zap.Logger

	mu      sync.Mutex
	data    []byte
	config  *rest.Config
	way     *client.Way
	problem error
	changed chan struct{}
}

// Watch registers event handlers on the informers. It must be called once, before the
// informers are started.
func (c *Credentials) Watch() error {
	c.changed, c.problem = make(chan struct{}), fmt.Errorf("the credentials of the provider have not been read yet")
	_, err := loop.Register(store.AnyChange[*offloadingv1beta1.VirtualNode](c.VirtualNodes.Informer(), nil, c.refresh), store.AnyChange[*corev1.Secret](c.Secrets.Informer(), nil, c.refresh))
	return err
}

// Current returns the configuration for the provider, or the reason for which there is
// none. It returns the same pointer while the credentials are unchanged. It is safe for
// concurrent use.
func (c *Credentials) Current() (*rest.Config, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.config, c.problem
}

// present returns the client.Way to the provider, or the reason for which there is none.
// changed is closed when either of them changes.
func (c *Credentials) present() (way *client.Way, changed <-chan struct{}, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.way, c.changed, c.problem
}

// refresh reads the caches. Missing or invalid credentials do not replace valid ones: a
// Secret that is being rewritten must not interrupt running work.
func (c *Credentials) refresh() {
	c.mu.Lock() // the latest read must be applied last
	defer c.mu.Unlock()
	data, err := c.read()
	var config *rest.Config
	if err == nil {
		config, err = client.FromKubeconfig(data)
	}
	if err != nil {
		if c.config != nil {
			c.Log.Warn("the provider's credentials cannot be used; the former ones stay in use", zap.Error(err))
			return
		}
		if c.problem.Error() != err.Error() {
			c.problem = err
			c.tell()
		}
		return
	}
	if bytes.Equal(data, c.data) {
		return
	}
	c.data, c.config, c.problem = data, config, nil
	if c.way != nil && c.way.Renew(config) {
		c.Log.Info("the provider's credentials were renewed")
		return
	}
	c.way = client.NewWay(config)
	c.tell()
}

// tell signals a change to the callers of present.
func (c *Credentials) tell() {
	close(c.changed)
	c.changed = make(chan struct{})
}

func (c *Credentials) read() ([]byte, error) {
	vn, err := c.VirtualNodes.Lister().VirtualNodes(c.Namespace).Get(c.Name)
	if err != nil {
		return nil, fmt.Errorf("reading the VirtualNode: %w", err)
	}
	name := vn.Spec.KubeconfigSecretRef.Name
	secret, err := c.Secrets.Lister().Secrets(c.Namespace).Get(name)
	if err != nil {
		return nil, fmt.Errorf("reading the Secret that spec.kubeconfigSecretRef names: %w", err)
	}
	data, ok := secret.Data[corev1beta1.KubeconfigSecretKey]
	if !ok {
		return nil, fmt.Errorf("secret %s/%s has no key %q", c.Namespace, name, corev1beta1.KubeconfigSecretKey)
	}
	return data, nil
}

// Use runs work with the current credentials until ctx is done. Renewed credentials of the
// same user replace the old ones without interrupting work. If the user or the server
// changes, Use cancels the context of work, waits for it to return, and runs it again.
// While there are no credentials, it calls waiting with the reason. It returns an error of
// work.
func (c *Credentials) Use(ctx context.Context, work func(context.Context, *client.Way) error, waiting func(error)) error {
	for ctx.Err() == nil {
		way, changed, problem := c.present()
		if way == nil {
			waiting(problem)
			select {
			case <-ctx.Done():
			case <-changed:
			}
			continue
		}
		if err := c.useOnce(ctx, way, changed, work); err != nil {
			return err
		}
	}
	return nil
}

func (c *Credentials) useOnce(ctx context.Context, way *client.Way, changed <-chan struct{}, work func(context.Context, *client.Way) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-changed:
			c.Log.Info("the provider's credentials have changed")
			cancel()
		case <-ctx.Done():
		}
	}()
	return work(ctx, way)
}
