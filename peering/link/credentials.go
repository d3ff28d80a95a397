package link

import (
	"bytes"
	"context"
	"fmt"
	"sync"

	"go.uber.org/zap"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	coreinformers "k8s.io/client-go/informers/core/v1"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	offloadinginformers "github.com/liqod/liqod/api/generated/informers/externalversions/offloading/v1beta1"
	"github.com/liqod/liqod/kube/client"
)

// Credentials follows the kubeconfig Secret that a VirtualNode names.
type Credentials struct {
	// VirtualNodes and Secrets of the tenant namespace.
	VirtualNodes offloadinginformers.VirtualNodeInformer
	Secrets      coreinformers.SecretInformer
	// Namespace and Name of the VirtualNode.
	Namespace, Name string
	Log             *zap.Logger

	mu      sync.Mutex
	data    []byte
	config  *rest.Config
	way     *client.Way
	problem error
	changed chan struct{}
}

// Watch registers for changes. Call it once, before the informers are started.
func (c *Credentials) Watch() error {
	c.changed, c.problem = make(chan struct{}), fmt.Errorf("the credentials of the provider have not been read yet")
	handler := cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { c.refresh() },
		UpdateFunc: func(any, any) { c.refresh() },
		DeleteFunc: func(any) { c.refresh() },
	}
	if _, err := c.VirtualNodes.Informer().AddEventHandler(handler); err != nil {
		return fmt.Errorf("watching VirtualNodes: %w", err)
	}
	if _, err := c.Secrets.Informer().AddEventHandler(handler); err != nil {
		return fmt.Errorf("watching Secrets: %w", err)
	}
	return nil
}

// Current returns what reaches the provider now, or why there is nothing. It is the same
// configuration for as long as the credentials are the same. Safe for concurrent use.
func (c *Credentials) Current() (*rest.Config, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.config, c.problem
}

// present returns the way to the provider, or why there is none. changed is closed when
// another way has come, or there is none for another reason.
func (c *Credentials) present() (way *client.Way, changed <-chan struct{}, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.way, c.changed, c.problem
}

// refresh reads the caches. Credentials that have gone or are broken replace good ones
// only in what is said: a Secret that is being rewritten must not stop what runs.
func (c *Credentials) refresh() {
	c.mu.Lock() // what was read last is applied last
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

// tell wakes who waits for a change.
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

// Use runs work with the current credentials until ctx ends. Renewed ones of the same user
// are used by what runs. When others come, or the provider is reached elsewhere, work is
// told to stop by its context, waited for, and run again. While there are none, waiting is
// called with the reason.
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
