package client

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"math/big"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
)

func TestLifeOf(t *testing.T) {
	t.Parallel()
	from, until := time.Unix(1_700_000_000, 0), time.Unix(1_700_086_400, 0)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: from, NotAfter: until}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	token := func(claims string) string {
		return "e30." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".c2ln"
	}
	for name, tc := range map[string]struct {
		cfg rest.Config
		ok  bool
	}{
		"a certificate":          {rest.Config{TLSClientConfig: rest.TLSClientConfig{CertData: certificate}}, true},
		"a token":                {rest.Config{BearerToken: token(`{"iat":1700000000,"exp":1700086400}`)}, true},
		"a token without an end": {rest.Config{BearerToken: token(`{"iat":1700000000}`)}, false},
		"a negative end":         {rest.Config{BearerToken: token(`{"exp":-1}`)}, false},
		"an end that is a word":  {rest.Config{BearerToken: token(`{"exp":"never"}`)}, false},
		"an end beyond integers": {rest.Config{BearerToken: token(`{"exp":1e400}`)}, false},
		"no JSON":                {rest.Config{BearerToken: token(`{`)}, false},
		"no base64":              {rest.Config{BearerToken: "a.!.c"}, false},
		"an opaque token":        {rest.Config{BearerToken: "secret"}, false},
		"no certificate":         {rest.Config{TLSClientConfig: rest.TLSClientConfig{CertData: []byte("x")}}, false},
		"nothing":                {rest.Config{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			have := LifeOf(&tc.cfg)
			if !tc.ok {
				require.Equal(t, Life{}, have)
				return
			}
			require.True(t, from.Equal(have.From) && until.Equal(have.Until), "%v", have)
		})
	}
}
