package client

import (
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"strings"
	"time"

	"k8s.io/client-go/rest"
)

// Life is the time in which a certificate or a token is valid. The zero value is without an
// end.
type Life struct{ From, Until time.Time }

// CertificateLife returns the life of a certificate.
func CertificateLife(cert *x509.Certificate) Life {
	return Life{From: cert.NotBefore, Until: cert.NotAfter}
}

// LifeOf returns the life of the credentials of cfg: of its client certificate, or else of
// its token if that is a JSON Web Token with an end. It does not verify them. Other
// credentials have the zero Life.
func LifeOf(cfg *rest.Config) Life {
	if block, _ := pem.Decode(cfg.CertData); block != nil {
		if cert, err := x509.ParseCertificate(block.Bytes); err == nil {
			return CertificateLife(cert)
		}
	}
	parts := strings.Split(cfg.BearerToken, ".")
	if len(parts) != 3 {
		return Life{}
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return Life{}
	}
	var claims struct {
		IssuedAt  int64 `json:"iat"`
		ExpiresAt int64 `json:"exp"`
	}
	if err := json.Unmarshal(payload, &claims); err != nil || claims.ExpiresAt <= 0 || claims.IssuedAt < 0 {
		return Life{}
	}
	return Life{From: time.Unix(claims.IssuedAt, 0), Until: time.Unix(claims.ExpiresAt, 0)}
}
