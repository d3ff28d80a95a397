package trust

import (
	"cmp"
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	ipamv1alpha1 "github.com/liqod/liqod/api/ipam/v1alpha1"
)

// Kubeconfig returns a kubeconfig for the cluster that issued a grant, with the grant's
// certificate and its key, or the grant's token. The fields of over replace those of the
// grant.
func Kubeconfig(grant Grant, keyPEM []byte, over corev1beta1.APIServerOverride) ([]byte, error) {
	cluster := &clientcmdapi.Cluster{
		Server: cmp.Or(over.URL, grant.APIServerURL), CertificateAuthorityData: []byte(cmp.Or(over.CA, grant.APIServerCA)),
		TLSServerName: over.ServerName, ProxyURL: over.ProxyURL,
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
func Fingerprint(cert *x509.Certificate) string { return Hash(string(cert.Raw)) }

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

// BackID returns the id of the token that a peer is sent for an identity in this cluster,
// in return for one in the peer. Each peer has a single such token. The id is a DNS label.
func BackID(peer string) string { return "back-" + peer }

// TokenName returns the name of the Secret where a token of a peer is looked for if its ForeignCluster names no other.
func TokenName(peer string) string { return "peer-" + peer + "-token" }

// ReceivedName returns the name of the Secret of the token that a peer sent with its
// enrolment or a renewal.
func ReceivedName(peer string) string { return "peer-" + peer + "-back" }

// BackToken returns the token that is sent to a peer with an enrolment or a renewal there. It is derived
// from the new private key of that request (PEM) by HKDF (RFC 5869). A repeated request
// therefore sends the same token, and only its hash has to be stored. The token does not
// reveal the key.
func BackToken(keyPEM []byte, authURL, clusterID, ca, peer string) (Token, error) {
	secret, err := hkdf.Key(sha256.New, keyPEM, nil, "liqod: token of "+clusterID+" for "+peer, secretLength)
	if err != nil {
		return Token{}, fmt.Errorf("deriving a token: %w", err)
	}
	t := Token{ID: BackID(peer), Secret: base64.RawURLEncoding.EncodeToString(secret), AuthURL: authURL, ClusterID: clusterID, CA: ca}
	return t, t.check()
}

// ReadBack parses the token that a peer sent with its enrolment or a renewal. It returns an error if the
// token is not one of that peer, or leads to an address of own, the ranges of this cluster, or to a
// special one outside of accepted.
func ReadBack(text, peer string, own, accepted []netip.Prefix) (Token, error) {
	t, err := ParseToken(text)
	if err != nil {
		return Token{}, err
	}
	if t.ClusterID != peer {
		return Token{}, fmt.Errorf("it is a token of cluster %s", t.ClusterID)
	}
	u, err := url.Parse(t.AuthURL)
	if err == nil {
		err = ipamv1alpha1.CheckServer(u.Hostname(), own, accepted)
	}
	if err != nil {
		return Token{}, fmt.Errorf("the token's address: %w", err)
	}
	return t, nil
}

// usualWords are last parts of the names of namespaces in which products are usually
// installed, such as cert-manager, istio-system, rook-ceph and open-cluster-management.
var usualWords = []string{
	"admin", "agent", "api", "apiserver", "apps", "auth", "authentication", "autoscaler", "backend", "backup", "build", "cd", "ceph",
	"chains", "ci", "cloud", "cloudwatch", "cluster", "cni", "config", "console", "control", "controller", "controllers", "core", "csi",
	"dashboard", "data", "database", "db", "default", "dev", "discovery", "dns", "driver", "engine", "etcd", "eventing", "events",
	"exporter", "flannel", "frontend", "gateway", "gitops", "grafana", "health", "identity", "infra", "ingress", "injector", "internal",
	"jaeger", "kafka", "kubernetes", "lb", "lease", "logging", "logs", "management", "manager", "marketplace", "mesh", "metrics",
	"monitoring", "multicluster", "net", "network", "nginx", "node", "ns", "observability", "operator", "operators", "pipeline",
	"pipelines", "platform", "plugin", "policy", "prod", "production", "prometheus", "provisioner", "proxy", "public", "registry",
	"release", "repository", "rollouts", "runner", "runners", "scheduler", "secrets", "security", "server", "service", "services",
	"serving", "stack", "staging", "storage", "store", "system", "telemetry", "tenant", "test", "testing", "tools", "ui", "updater",
	"vault", "viz", "vpn", "webhook", "workers", "workflows", "workloads",
}

// CheckChosenID returns an error if a cluster may not become a peer under an id that it has
// chosen itself. A peer may name its twin namespaces <any>-<id>: such a name must be that of
// no product and of no namespace of others, and lead to a single peer. peers are the ids of
// the other peers, namespaces the names of namespaces that belong to no peer. The error is
// the same for all reasons: it does not disclose names to the peer.
func CheckChosenID(id string, peers, namespaces []string) error {
	ends := func(name string) bool { return strings.HasSuffix(name, "-"+id) }
	if slices.Contains(usualWords, id) || slices.ContainsFunc(namespaces, ends) ||
		slices.ContainsFunc(peers, func(peer string) bool { return ends(peer) || strings.HasSuffix(id, "-"+peer) }) {
		return fmt.Errorf("the cluster id %s is not accepted: its namespaces here would end in -%s, as those of products, of others or of another peer do or may do. Use another id (discovery.config.clusterID), or a token that was made for this id (liqod token create --for %s)", id, id, id)
	}
	return nil
}
