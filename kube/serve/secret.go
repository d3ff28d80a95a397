package serve

import (
	"context"
	"fmt"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/utils/clock"

	"github.com/liqod/liqod/kube/store"
)

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
	secrets := k.Kube.CoreV1().Secrets(k.Namespace)
	if have == nil {
		_, err = secrets.Create(ctx, want, metav1.CreateOptions{})
	} else {
		_, err = secrets.Update(ctx, want, metav1.UpdateOptions{})
	}
	if err != nil {
		return nil, fmt.Errorf("writing the certificates to secret %s/%s: %w", k.Namespace, k.Name, err)
	}
	k.Log.Info("certificates written", zap.String("secret", k.Name))
	return data, nil
}
