package trust

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
)

// Kubeconfig returns a kubeconfig for the cluster that issued a grant, with the grant's
// certificate and its key, or the grant's token. The fields of over replace those of the
// grant.
func Kubeconfig(grant Grant, keyPEM []byte, over corev1beta1.APIServerOverride) ([]byte, error) {
	cluster := &clientcmdapi.Cluster{
		Server: grant.APIServerURL, CertificateAuthorityData: []byte(grant.APIServerCA),
		TLSServerName: over.ServerName, ProxyURL: over.ProxyURL,
	}
	if over.URL != "" {
		cluster.Server = over.URL
	}
	if over.CA != "" {
		cluster.CertificateAuthorityData = []byte(over.CA)
	}
	user := &clientcmdapi.AuthInfo{Token: grant.Token}
	if grant.Certificate != "" {
		user = &clientcmdapi.AuthInfo{ClientCertificateData: []byte(grant.Certificate), ClientKeyData: keyPEM}
	}
	name := grant.ClusterID
	out, err := clientcmd.Write(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{name: cluster},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{name: user},
		Contexts:       map[string]*clientcmdapi.Context{name: {Cluster: name, AuthInfo: name}},
		CurrentContext: name,
	})
	if err != nil {
		return nil, fmt.Errorf("writing a kubeconfig: %w", err)
	}
	return out, nil
}

// Fingerprint returns the SHA-256 hash of a certificate's DER encoding in hexadecimal.
func Fingerprint(cert *x509.Certificate) string {
	sum := sha256.Sum256(cert.Raw)
	return hex.EncodeToString(sum[:])
}

// PinnedTLS accepts a server whose certificate was issued by an authority with one of the
// fingerprints. The server must send the authority in its chain. The host name is not
// verified, because the authority of an authentication endpoint issues certificates for
// that endpoint only. The endpoint may be reached under any name.
func PinnedTLS(fingerprints ...string) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		// VerifyConnection replaces the verification that this disables.
		InsecureSkipVerify: true, //nolint:gosec // see above
		VerifyConnection: func(state tls.ConnectionState) error {
			return verifyPinned(state.PeerCertificates, fingerprints)
		},
	}
}

// verifyPinned verifies a certificate chain. VerifyConnection calls it for resumed
// connections, too.
func verifyPinned(chain []*x509.Certificate, fingerprints []string) error {
	roots := x509.NewCertPool()
	found := false
	for _, cert := range chain {
		if cert.IsCA && slices.Contains(fingerprints, Fingerprint(cert)) {
			roots.AddCert(cert)
			found = true
		}
	}
	if !found {
		return errors.New("the server is not the one of the token: its certificate was issued by another authority (if a proxy terminates TLS, it must pass TLS through instead)")
	}
	if _, err := chain[0].Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}); err != nil {
		return fmt.Errorf("verifying the server's certificate: %w", err)
	}
	return nil
}
