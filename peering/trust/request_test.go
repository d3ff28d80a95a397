package trust

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"maps"
	"net"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
)

func newSigner(t testing.TB) crypto.Signer {
	t.Helper()
	text, err := NewKey()
	require.NoError(t, err)
	key, err := ParseKey(text)
	require.NoError(t, err)
	return key
}

// request returns a certificate request with arbitrary content, as an attacker could send
// it.
func request(t testing.TB, key crypto.Signer, template *x509.CertificateRequest) string {
	t.Helper()
	der, err := x509.CreateCertificateRequest(rand.Reader, template, key)
	require.NoError(t, err)
	return string(pem.EncodeToMemory(&pem.Block{Type: requestBlock, Bytes: der}))
}

func named(name string) *x509.CertificateRequest {
	return &x509.CertificateRequest{Subject: pkix.Name{CommonName: name, Organization: []string{corev1beta1.PeersGroup}}}
}

func TestCSRThereAndBack(t *testing.T) {
	t.Parallel()
	_, ed, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	p384, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	require.NoError(t, err)
	rsa2048, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	for name, key := range map[string]crypto.Signer{"ours": newSigner(t), "Ed25519": ed, "P-384": p384, "RSA": rsa2048} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			user, err := User("rome", key.Public())
			require.NoError(t, err)
			require.True(t, corev1beta1.ValidPeerUser("rome", user))
			text, err := MakeCSR(key, user)
			require.NoError(t, err)
			csr, err := CheckCSR(text)
			require.NoError(t, err)
			require.Equal(t, user, csr.User)
			require.Equal(t, "liqo.io:peer:rome:"+csr.Serial, user)
			require.Len(t, csr.Serial, 32)
			require.Equal(t, text, string(csr.PEM))
			another, err := User("rome", newSigner(t).Public())
			require.NoError(t, err)
			require.NotEqual(t, user, another, "it is new with each key")
		})
	}
}

func TestCheckCSRRefusesSubjects(t *testing.T) {
	t.Parallel()
	key := newSigner(t)
	const user = "liqo.io:peer:rome:0"
	name := func(pairs ...pkix.AttributeTypeAndValue) *x509.CertificateRequest {
		raw, err := asn1.Marshal(pkix.RDNSequence{pairs})
		require.NoError(t, err)
		return &x509.CertificateRequest{RawSubject: raw}
	}
	commonName := func(value string) pkix.AttributeTypeAndValue {
		return pkix.AttributeTypeAndValue{Type: asn1.ObjectIdentifier{2, 5, 4, 3}, Value: value}
	}
	uri, err := url.Parse("spiffe://a")
	require.NoError(t, err)
	refused := map[string]string{}
	for what, template := range map[string]*x509.CertificateRequest{
		"no name":        named(""),
		"masters":        {Subject: pkix.Name{CommonName: user, Organization: []string{"system:masters"}}},
		"no group":       {Subject: pkix.Name{CommonName: user}},
		"two groups":     {Subject: pkix.Name{CommonName: user, Organization: []string{corev1beta1.PeersGroup, "system:masters"}}},
		"a unit":         {Subject: pkix.Name{Organization: []string{corev1beta1.PeersGroup}, CommonName: user, OrganizationalUnit: []string{"a"}}},
		"a country":      {Subject: pkix.Name{Organization: []string{corev1beta1.PeersGroup}, CommonName: user, Country: []string{"IT"}}},
		"a number":       {Subject: pkix.Name{Organization: []string{corev1beta1.PeersGroup}, CommonName: user, SerialNumber: "1"}},
		"another":        {Subject: pkix.Name{Organization: []string{corev1beta1.PeersGroup}, CommonName: user, ExtraNames: []pkix.AttributeTypeAndValue{{Type: asn1.ObjectIdentifier{1, 2, 3}, Value: "a"}}}},
		"two names":      name(commonName("system:admin"), commonName(user)),
		"a name twice":   {Subject: pkix.Name{Organization: []string{corev1beta1.PeersGroup}, ExtraNames: []pkix.AttributeTypeAndValue{commonName("system:admin"), commonName(user)}}},
		"DNS":            {Subject: pkix.Name{Organization: []string{corev1beta1.PeersGroup}, CommonName: user}, DNSNames: []string{"a"}},
		"address":        {Subject: pkix.Name{Organization: []string{corev1beta1.PeersGroup}, CommonName: user}, IPAddresses: []net.IP{{127, 0, 0, 1}}},
		"mail":           {Subject: pkix.Name{Organization: []string{corev1beta1.PeersGroup}, CommonName: user}, EmailAddresses: []string{"a@b"}},
		"URI":            {Subject: pkix.Name{Organization: []string{corev1beta1.PeersGroup}, CommonName: user}, URIs: []*url.URL{uri}},
		"an extension":   {Subject: pkix.Name{Organization: []string{corev1beta1.PeersGroup}, CommonName: user}, ExtraExtensions: []pkix.Extension{{Id: asn1.ObjectIdentifier{2, 5, 29, 19}, Value: []byte{0x30, 3, 1, 1, 0xff}}}},
		"an attribute":   {Subject: pkix.Name{Organization: []string{corev1beta1.PeersGroup}, CommonName: user}, Attributes: []pkix.AttributeTypeAndValueSET{{Type: asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 9, 7}, Value: [][]pkix.AttributeTypeAndValue{{{Type: asn1.ObjectIdentifier{1, 2, 3}, Value: "a"}}}}}},
		"empty name too": name(commonName("")),
	} {
		refused[what] = request(t, key, template)
	}
	weak, err := rsa.GenerateKey(rand.Reader, 1024)
	require.NoError(t, err)
	p521, err := ecdsa.GenerateKey(elliptic.P521(), rand.Reader)
	require.NoError(t, err)
	p224, err := ecdsa.GenerateKey(elliptic.P224(), rand.Reader)
	require.NoError(t, err)
	keys := map[string]crypto.Signer{"RSA 1024": weak, "P-521": p521, "P-224": p224}
	for what, key := range keys {
		refused[what] = request(t, key, named(user))
	}

	good, err := MakeCSR(key, user)
	require.NoError(t, err)
	block, _ := pem.Decode([]byte(good))
	forged := append([]byte(nil), block.Bytes...)
	forged[len(forged)-1] ^= 1
	encode := func(kind string, der []byte, headers map[string]string) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der, Headers: headers}))
	}
	maps.Copy(refused, map[string]string{ // what is no request
		"nothing":            "",
		"text":               "hello",
		"a certificate":      encode("CERTIFICATE", block.Bytes, nil),
		"headers":            encode(requestBlock, block.Bytes, map[string]string{"A": "b"}),
		"two":                good + good,
		"something behind":   good + "x",
		"bytes behind":       encode(requestBlock, append(append([]byte(nil), block.Bytes...), 0), nil),
		"another's key":      encode(requestBlock, forged, nil),
		"cut":                encode(requestBlock, block.Bytes[:len(block.Bytes)/2], nil),
		"too long":           good + strings.Repeat("\n", longestCSR),
		"DER without PEM":    string(block.Bytes),
		"an empty request":   encode(requestBlock, nil, nil),
		"a request of zeros": encode(requestBlock, make([]byte, 300), nil),
	})
	for what, text := range refused {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			_, err := CheckCSR(text)
			require.Error(t, err)
			if keys[what] != nil {
				require.ErrorContains(t, err, "are accepted")
			}
		})
	}
}

func TestParseKeyRefuses(t *testing.T) {
	t.Parallel()
	good, err := NewKey()
	require.NoError(t, err)
	for name, text := range map[string]string{
		"nothing": "", "two": string(good) + string(good), "a certificate": strings.ReplaceAll(string(good), "PRIVATE KEY", "CERTIFICATE"),
		"garbage": string(pem.EncodeToMemory(&pem.Block{Type: keyBlock, Bytes: []byte("garbage")})),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := ParseKey([]byte(text))
			require.Error(t, err)
		})
	}
}

func FuzzCheckCSR(f *testing.F) {
	key := newSigner(f)
	good, err := MakeCSR(key, "liqo.io:peer:rome:0")
	require.NoError(f, err)
	f.Add(good)
	f.Add(request(f, key, &x509.CertificateRequest{Subject: pkix.Name{CommonName: "a", Organization: []string{"b"}}, DNSNames: []string{"c"}}))
	f.Add("")
	f.Fuzz(func(t *testing.T, text string) {
		csr, err := CheckCSR(text)
		if err != nil {
			return
		}
		again, err := CheckCSR(string(csr.PEM))
		require.NoError(t, err)
		require.Equal(t, csr, again)
		require.NotEmpty(t, csr.User)
	})
}
