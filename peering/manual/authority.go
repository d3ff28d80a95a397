package manual

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/kube/serve"
	"github.com/liqod/liqod/peering/trust"
)

// Authority returns the fingerprint of the authority that issues the certificate of a
// cluster's authentication endpoint. namespace is the namespace of liqod.
func Authority(ctx context.Context, kube kubernetes.Interface, namespace string) (string, error) {
	secret, err := kube.CoreV1().Secrets(namespace).Get(ctx, corev1beta1.AuthCertificatesName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return "", fmt.Errorf("secret %s/%s with the certificate of the authentication is missing: is the controller running?", namespace, corev1beta1.AuthCertificatesName)
	}
	if err != nil {
		return "", fmt.Errorf("reading secret %s/%s: %w", namespace, corev1beta1.AuthCertificatesName, err)
	}
	block, _ := pem.Decode(secret.Data[serve.BundleKey])
	if block == nil {
		return "", fmt.Errorf("secret %s/%s has no certificate in %s", namespace, secret.Name, serve.BundleKey)
	}
	ca, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return "", fmt.Errorf("reading secret %s/%s: %w", namespace, secret.Name, err)
	}
	return trust.Fingerprint(ca), nil
}
