package trust

import (
	"crypto"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"k8s.io/client-go/tools/clientcmd"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
)

func TestKubeconfig(t *testing.T) {
	t.Parallel()
	certificate := Grant{ClusterID: "milan", Certificate: "cert", APIServerURL: "https://milan:6443", APIServerCA: "ca"}
	token := Grant{ClusterID: "milan", Token: "secret", APIServerURL: "https://milan:6443", APIServerCA: "ca"}
	type want struct{ server, ca, cert, key, token, name, proxy string }
	for name, tc := range map[string]struct {
		grant Grant
		over  corev1beta1.APIServerOverride
		want  want
	}{
		"a certificate": {certificate, corev1beta1.APIServerOverride{}, want{server: "https://milan:6443", ca: "ca", cert: "cert", key: "key"}},
		"a token":       {token, corev1beta1.APIServerOverride{}, want{server: "https://milan:6443", ca: "ca", token: "secret"}},
		"overrides": {token, corev1beta1.APIServerOverride{URL: "https://other", CA: "theirs", ServerName: "name", ProxyURL: "socks5://proxy:1080"},
			want{server: "https://other", ca: "theirs", token: "secret", name: "name", proxy: "socks5://proxy:1080"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text, err := Kubeconfig(tc.grant, []byte("key"), tc.over)
			require.NoError(t, err)
			config, err := clientcmd.Load(text)
			require.NoError(t, err)
			require.Equal(t, "milan", config.CurrentContext)
			cluster, user := config.Clusters["milan"], config.AuthInfos["milan"]
			require.Equal(t, tc.want, want{cluster.Server, string(cluster.CertificateAuthorityData), string(user.ClientCertificateData),
				string(user.ClientKeyData), user.Token, cluster.TLSServerName, cluster.ProxyURL})
		})
	}
}

// issue returns a certificate for key, signed by parent, or self-signed if parent is nil.
func issue(t *testing.T, key crypto.Signer, ca bool, use x509.ExtKeyUsage, end time.Time, parent *x509.Certificate, signer crypto.Signer) *x509.Certificate {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: end,
		IsCA: ca, BasicConstraintsValid: true, ExtKeyUsage: []x509.ExtKeyUsage{use},
	}
	if ca {
		template.KeyUsage = x509.KeyUsageCertSign
		template.ExtKeyUsage = nil
	}
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	require.NoError(t, err)
	cert, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	return cert
}

func TestPinnedTLS(t *testing.T) {
	t.Parallel()
	caKey, otherKey, key := newSigner(t), newSigner(t), newSigner(t)
	soon, past := time.Now().Add(time.Hour), time.Now().Add(-time.Minute)
	ca := issue(t, caKey, true, 0, soon, nil, nil)
	other := issue(t, otherKey, true, 0, soon, nil, nil)
	leaf := issue(t, key, false, x509.ExtKeyUsageServerAuth, soon, ca, caKey)
	for name, tc := range map[string]struct {
		chain []*x509.Certificate
		pins  []string
		err   string
	}{
		"the endpoint":               {[]*x509.Certificate{leaf, ca}, []string{Fingerprint(ca)}, ""},
		"one of two":                 {[]*x509.Certificate{leaf, ca}, []string{Fingerprint(other), Fingerprint(ca)}, ""},
		"another authority":          {[]*x509.Certificate{leaf, ca}, []string{Fingerprint(other)}, "another authority"},
		"no pin":                     {[]*x509.Certificate{leaf, ca}, nil, "another authority"},
		"no authority sent":          {[]*x509.Certificate{leaf}, []string{Fingerprint(ca)}, "another authority"},
		"pinned leaf":                {[]*x509.Certificate{leaf}, []string{Fingerprint(leaf)}, "another authority"},
		"the right authority beside": {[]*x509.Certificate{issue(t, key, false, x509.ExtKeyUsageServerAuth, soon, other, otherKey), ca}, []string{Fingerprint(ca)}, "verifying"},
		"self-signed":                {[]*x509.Certificate{issue(t, key, false, x509.ExtKeyUsageServerAuth, soon, nil, nil), ca}, []string{Fingerprint(ca)}, "verifying"},
		"expired":                    {[]*x509.Certificate{issue(t, key, false, x509.ExtKeyUsageServerAuth, past, ca, caKey), ca}, []string{Fingerprint(ca)}, "verifying"},
		"a client's":                 {[]*x509.Certificate{issue(t, key, false, x509.ExtKeyUsageClientAuth, soon, ca, caKey), ca}, []string{Fingerprint(ca)}, "verifying"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewUnstartedServer(http.NotFoundHandler())
			pair := tls.Certificate{PrivateKey: key}
			for _, cert := range tc.chain {
				pair.Certificate = append(pair.Certificate, cert.Raw)
			}
			server.Config.ErrorLog = zap.NewStdLog(zap.NewNop())
			server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
			server.StartTLS()
			defer server.Close()
			client := &http.Client{Transport: &http.Transport{TLSClientConfig: PinnedTLS(tc.pins...)}}
			resp, err := client.Get(server.URL)
			if tc.err != "" {
				require.ErrorContains(t, err, tc.err)
				return
			}
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
		})
	}
}
