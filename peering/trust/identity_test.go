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
	"net/netip"
	"strings"
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

func TestBackToken(t *testing.T) {
	t.Parallel()
	key, err := NewKey()
	require.NoError(t, err)
	other, err := NewKey()
	require.NoError(t, err)
	make := func(key []byte, own, peer string) Token {
		token, err := BackToken(key, "https://rome:8443", own, fingerprint, peer)
		require.NoError(t, err)
		return token
	}
	first := make(key, "rome", "milan")
	require.Equal(t, first, make(key, "rome", "milan"), "asked again it is the same")
	require.Equal(t, "back-milan", first.ID)
	secrets := map[string]bool{first.Secret: true}
	for _, token := range []Token{make(other, "rome", "milan"), make(key, "turin", "milan"), make(key, "rome", "turin")} {
		secrets[token.Secret] = true
	}
	require.Len(t, secrets, 4)
	parsed, err := ParseToken(make(key, "rome", strings.Repeat("a", longestID)).String())
	require.NoError(t, err)
	require.Equal(t, "rome", parsed.ClusterID)
	_, err = BackToken(key, "http://rome", "rome", fingerprint, "milan")
	require.Error(t, err)
}

func TestReadBack(t *testing.T) {
	t.Parallel()
	text := func(url, id string) string {
		token, err := NewToken(url, id, fingerprint)
		require.NoError(t, err)
		return token.String()
	}
	for name, tc := range map[string]struct{ text, want string }{
		"good":              {text("https://rome.example.com:8443", "rome"), ""},
		"accepted":          {text("https://127.0.7.1:8443", "rome"), ""},
		"loopback":          {text("https://127.0.0.1:10250", "rome"), "127.0.0.1: a peer cannot have a server at this address (127.0.0.0/8: loopback addresses)"},
		"mapped loopback":   {text("https://[::ffff:127.0.0.1]:10250", "rome"), "a peer cannot have a server at this address"},
		"metadata":          {text("https://100.100.100.200", "rome"), "a metadata service of a cloud"},
		"a Service":         {text("https://10.96.0.1", "rome"), "which is one of this cluster"},
		"name of a Service": {text("https://kubernetes.default.svc", "rome"), "a name inside of a cluster"},
		"a short name":      {text("https://liqod-auth:8443", "rome"), "an IP address or a full DNS name is"},
		"number":            {text("https://rome.0x7f000001:8443", "rome"), "an IP address or a full DNS name is"},
		"by address":        {text("https://[fd00::1]:8443", "rome"), ""},
		"of another":        {text("https://rome:8443", "turin"), "it is a token of cluster turin"},
		"link-local":        {text("https://169.254.169.254", "rome"), "169.254.169.254: a peer cannot have a server at this address"},
		"link-local IPv6":   {text("https://[fe80::1]:8443", "rome"), "a peer cannot have a server at this address"},
		"no address at all": {text("https://0.0.0.0:8443", "rome"), "a peer cannot have a server at this address"},
		"no token":          {"liqod1.x", "a damaged token"},
		"far too long":      {"liqod1." + strings.Repeat("a", longestToken), "at most"},
		"nothing":           {"", "not a token"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			token, err := ReadBack(tc.text, "rome", []netip.Prefix{netip.MustParsePrefix("10.96.0.0/12"), netip.MustParsePrefix("127.0.0.0/8")}, []netip.Prefix{netip.MustParsePrefix("127.0.7.0/24")})
			if tc.want == "" {
				require.NoError(t, err)
				require.Equal(t, tc.text, token.String())
				return
			}
			require.ErrorContains(t, err, tc.want)
		})
	}
}

// TestChosenIDs: by its id a peer may name its namespaces as a product that is installed later.
func TestChosenIDs(t *testing.T) {
	t.Parallel()
	peers, namespaces := []string{"b-a", "oslo"}, []string{"payments-blue", "bank", "team-x-green"}
	texts := map[string]bool{}
	for id, accepted := range map[string]bool{
		"rome": true, "milan-2": true, "eu-west-1": true, "bank": true, "team": true, "x": true, "b": true, "managers": true, "my-manager": true, "slo": true,
		"manager": false, "system": false, "nginx": false, "dns": false, "operator": false, "controller": false, "prod": false,
		"management": false, "apiserver": false, "ceph": false, "viz": false, "rollouts": false, "workflows": false, "chains": false, "etcd": false, "gitops": false, "kafka": false,
		"blue": false, "green": false, "x-green": false,
		"a": false, "north-oslo": false, "c-b-a": false,
	} {
		err := CheckChosenID(id, peers, namespaces)
		require.Equal(t, accepted, err == nil, "%s: %v", id, err)
		if err != nil {
			texts[err.Error()[len("the cluster id "+id):][:40]] = true
		}
	}
	require.Len(t, texts, 1, "the answer does not disclose what there is")
}
