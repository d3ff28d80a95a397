package roles

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/liqod/liqod/netfabric/kernel"
	"github.com/liqod/liqod/roles/config"
)

const (
	// keyFile is the name of the file, in gateway.stateDir, with the private key.
	keyFile = "wireguard.key"
	// keySecretType is the type of the Secret gateway.keySecret, and keySecretField its only
	// field: the private key in base64, as wg writes it.
	keySecretType  corev1.SecretType = "networking.liqo.io/gateway-key"
	keySecretField string            = "privateKey"
)

// gatewayKey returns how the gateway gets its private key, from a Secret if secret names one.
// That of a file is read, or made, at once.
func gatewayKey(cfg config.Gateway, secret string, secrets corev1client.SecretInterface) (func(context.Context) (kernel.Key, error), error) {
	if secret != "" {
		return func(ctx context.Context) (kernel.Key, error) { return secretKey(ctx, secrets, secret) }, nil
	}
	key, err := loadKey(cfg.StateDir)
	return func(context.Context) (kernel.Key, error) { return key, nil }, err
}

// secretKey reads the private key in a Secret. Without the Secret it makes one: the next
// gateway has the same key, on whichever node it runs, so peers notice no other gateway.
func secretKey(ctx context.Context, secrets corev1client.SecretInterface, name string) (kernel.Key, error) {
	have, err := secrets.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		have, err = createKey(ctx, secrets, name)
	}
	if apierrors.IsAlreadyExists(err) { // another gateway was faster
		have, err = secrets.Get(ctx, name, metav1.GetOptions{})
	}
	if err != nil {
		return kernel.Key{}, fmt.Errorf("the key of this gateway: Secret %s (gateway.keySecret): %w", name, err)
	}
	return parseKeySecret(have)
}

func createKey(ctx context.Context, secrets corev1client.SecretInterface, name string) (*corev1.Secret, error) {
	key, err := kernel.GenerateKey()
	if err != nil {
		return nil, err
	}
	fixed := true // nobody changes a key by accident: the Secret is deleted for another one
	return secrets.Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Type: keySecretType, Immutable: &fixed,
		Data: map[string][]byte{keySecretField: []byte(key.Private())},
	}, metav1.CreateOptions{})
}

// parseKeySecret reads the key in a Secret. The error does not contain it.
func parseKeySecret(secret *corev1.Secret) (kernel.Key, error) {
	refuse := func(format string, args ...any) (kernel.Key, error) {
		return kernel.Key{}, fmt.Errorf("the key of this gateway: Secret %s/%s (gateway.keySecret): %w; delete the Secret for another key, which peers are told of",
			secret.Namespace, secret.Name, fmt.Errorf(format, args...))
	}
	if secret.Type != keySecretType {
		return refuse("type %q is not accepted: %s is", secret.Type, keySecretType)
	}
	text, ok := secret.Data[keySecretField]
	if !ok {
		return refuse("field %s is missing", keySecretField)
	}
	key, err := kernel.ParseKey(strings.TrimSpace(string(text)))
	if err != nil {
		return refuse("field %s: %w", keySecretField, err)
	}
	return key, nil
}

// loadKey reads the private key of this gateway, which it makes at its first start.
func loadKey(dir string) (kernel.Key, error) {
	path := filepath.Join(dir, keyFile)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return newKey(dir, path)
	}
	if err != nil {
		return kernel.Key{}, fmt.Errorf("reading the key of this gateway (gateway.stateDir): %w", err)
	}
	key, err := kernel.ParseKey(strings.TrimSpace(string(text)))
	if err != nil {
		return kernel.Key{}, fmt.Errorf("reading the key of this gateway: %s: %w; delete the file for another key", path, err)
	}
	return key, nil
}

// newKey writes a new key. The file appears whole or not at all.
func newKey(dir, path string) (kernel.Key, error) {
	key, err := kernel.GenerateKey()
	if err != nil {
		return kernel.Key{}, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return kernel.Key{}, fmt.Errorf("making the folder of gateway.stateDir: %w", err)
	}
	next, err := os.CreateTemp(dir, keyFile+".") // of mode 0600
	if err != nil {
		return kernel.Key{}, fmt.Errorf("writing the key of this gateway (gateway.stateDir): %w", err)
	}
	defer os.Remove(next.Name())
	_, errWrite := next.WriteString(key.Private() + "\n")
	if err := errors.Join(errWrite, next.Sync(), next.Close()); err != nil {
		return kernel.Key{}, fmt.Errorf("writing the key of this gateway: %w", err)
	}
	if err := os.Rename(next.Name(), path); err != nil {
		return kernel.Key{}, fmt.Errorf("writing the key of this gateway: %w", err)
	}
	return key, nil
}
