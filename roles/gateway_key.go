package roles

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/netfabric/host"
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

// gatewayKeys returns where the gateway keeps its private keys: in a Secret if secret names one,
// else in a file, which is read, or made, at once.
func gatewayKeys(cfg config.Gateway, secret string, secrets corev1client.SecretInterface) (host.KeyStore, error) {
	if secret != "" {
		return secretKeys{secrets, secret}, nil
	}
	files := fileKeys{cfg.StateDir}
	_, err := files.Read(context.Background())
	return files, err
}

// secretKeys keeps the key of a gateway in a Secret, and the next one in another. The next gateway
// has the same keys, on whichever node it runs, so peers notice no other gateway. A key is never
// changed: its Secret is deleted, and another one is created.
type secretKeys struct {
	secrets corev1client.SecretInterface
	name    string
}

// next is the name of the Secret with the next key.
func (s secretKeys) next() string { return s.name + "-next" }

// Read implements host.KeyStore. Without a key, the next one is the key: Promote has ended between
// two writes.
func (s secretKeys) Read(ctx context.Context) (out host.Keys, err error) {
	have, err := s.get(ctx, s.name)
	if err != nil {
		return out, err
	}
	next, err := s.get(ctx, s.next())
	if err != nil {
		return out, err
	}
	if have == nil {
		if have, err = s.first(ctx, next); err != nil {
			return out, err
		}
	}
	if out.Key, err = parseKeySecret(have); err != nil || next == nil {
		out.Made = have.CreationTimestamp.Time
		return out, err
	}
	out.Made, out.NextMade = have.CreationTimestamp.Time, next.CreationTimestamp.Time
	if out.Next, err = parseKeySecret(next); err != nil {
		return out, err
	}
	if out.Next == out.Key {
		out.Next, out.NextMade = kernel.Key{}, time.Time{}
		return out, s.remove(ctx, next)
	}
	return out, nil
}

// first creates the Secret with the key: the next key, or else a new one.
func (s secretKeys) first(ctx context.Context, next *corev1.Secret) (*corev1.Secret, error) {
	key, err := kernel.GenerateKey()
	if next != nil {
		key, err = parseKeySecret(next)
	}
	if err != nil {
		return nil, err
	}
	if err := s.create(ctx, s.name, key); err != nil {
		return nil, err
	}
	have, err := s.get(ctx, s.name)
	if err == nil && have == nil {
		err = fmt.Errorf("the key of this gateway: Secret %s (gateway.keySecret) was deleted as soon as it was there", s.name)
	}
	return have, err
}

// Prepare implements host.KeyStore.
func (s secretKeys) Prepare(ctx context.Context) error {
	key, err := kernel.GenerateKey()
	if err != nil {
		return err
	}
	return s.create(ctx, s.next(), key)
}

// Promote implements host.KeyStore. The gateway reads the keys then, and Read does what is left.
func (s secretKeys) Promote(ctx context.Context) error {
	next, err := s.get(ctx, s.next())
	if err != nil || next == nil {
		return err
	}
	if _, err := parseKeySecret(next); err != nil {
		return err
	}
	have, err := s.get(ctx, s.name)
	if err != nil || have == nil {
		return err
	}
	return s.remove(ctx, have)
}

// get returns a Secret, or nil if there is none.
func (s secretKeys) get(ctx context.Context, name string) (*corev1.Secret, error) {
	have, err := store.OrNil(s.secrets.Get(ctx, name, metav1.GetOptions{}))
	if err != nil {
		return nil, fmt.Errorf("the key of this gateway: Secret %s (gateway.keySecret): %w", name, err)
	}
	return have, nil
}

// create creates a Secret with a key, unless there is one: another gateway was faster.
func (s secretKeys) create(ctx context.Context, name string, key kernel.Key) error {
	fixed := true // nobody changes a key by accident
	_, err := s.secrets.Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Type: keySecretType, Immutable: &fixed,
		Data: map[string][]byte{keySecretField: []byte(key.Private())},
	}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("the key of this gateway: creating Secret %s (gateway.keySecret): %w", name, err)
	}
	return nil
}

// discard deletes both keys. Of what is left, Read makes the key.
func (s secretKeys) discard(ctx context.Context) error {
	for _, name := range []string{s.next(), s.name} {
		have, err := s.get(ctx, name)
		if err == nil && have != nil {
			err = s.remove(ctx, have)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (s secretKeys) remove(ctx context.Context, have *corev1.Secret) error {
	return store.Delete(ctx, "Secret", s.secrets, have)
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

// fileKeys keeps the key of a gateway in a file of a folder, and the next one in another.
type fileKeys struct{ dir string }

func (f fileKeys) path() string { return filepath.Join(f.dir, keyFile) }
func (f fileKeys) next() string { return f.path() + ".next" }

// Read implements host.KeyStore.
func (f fileKeys) Read(context.Context) (out host.Keys, err error) {
	if out.Key, out.Made, err = loadKey(f.path()); errors.Is(err, fs.ErrNotExist) {
		if err = f.make(f.path()); err == nil {
			out.Key, out.Made, err = loadKey(f.path())
		}
	}
	if err != nil {
		return out, err
	}
	if out.Next, out.NextMade, err = loadKey(f.next()); errors.Is(err, fs.ErrNotExist) {
		return out, nil
	}
	return out, err
}

// Prepare implements host.KeyStore.
func (f fileKeys) Prepare(context.Context) error {
	if _, err := os.Stat(f.next()); err == nil {
		return nil
	}
	return f.make(f.next())
}

// Promote implements host.KeyStore.
func (f fileKeys) Promote(context.Context) error {
	if err := os.Rename(f.next(), f.path()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("replacing the key of this gateway: %w", err)
	}
	return nil
}

// loadKey reads a private key, and the time at which it was made.
func loadKey(path string) (key kernel.Key, made time.Time, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return key, made, fmt.Errorf("reading the key of this gateway (gateway.stateDir): %w", err)
	}
	info, err := os.Stat(path)
	if err != nil {
		return key, made, fmt.Errorf("reading the key of this gateway (gateway.stateDir): %w", err)
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return key, made, fmt.Errorf("reading the key of this gateway: others may read or change %s, which has mode %04o: 0600 is accepted (chmod 600 %[1]s); if others have read it, delete it for another key", path, mode)
	}
	if key, err = kernel.ParseKey(strings.TrimSpace(string(text))); err != nil {
		return key, made, fmt.Errorf("reading the key of this gateway: %s: %w; delete the file for another key", path, err)
	}
	return key, info.ModTime(), nil
}

// make writes a new key. The file appears whole or not at all.
func (f fileKeys) make(path string) error {
	key, err := kernel.GenerateKey()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(f.dir, 0o700); err != nil {
		return fmt.Errorf("making the folder of gateway.stateDir: %w", err)
	}
	made, err := os.CreateTemp(f.dir, keyFile+".") // of mode 0600
	if err != nil {
		return fmt.Errorf("writing the key of this gateway (gateway.stateDir): %w", err)
	}
	defer os.Remove(made.Name())
	_, errWrite := made.WriteString(key.Private() + "\n")
	if err := errors.Join(errWrite, made.Sync(), made.Close()); err != nil {
		return fmt.Errorf("writing the key of this gateway: %w", err)
	}
	if err := os.Rename(made.Name(), path); err != nil {
		return fmt.Errorf("writing the key of this gateway: %w", err)
	}
	return nil
}
