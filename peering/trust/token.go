package trust

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

const (
	tokenPrefix  = "liqod1." // contains the version of the format
	secretLength = 32        // bytes
	idLength     = 5         // bytes of the id of a token
	// longestToken is the maximum length of an encoded token in bytes, far above the length
	// of a real one.
	longestToken = 4 << 10
	// longestID is the maximum length of a cluster id in bytes. The name of the tenant
	// namespace contains it.
	longestID = 51
)

// Token allows its bearer to request an identity in a cluster. It contains everything that
// the request needs. It holds a secret: never log it.
type Token struct {
	// ID names the token. It is a DNS label, and not secret.
	ID string `json:"i"`
	// Secret is the secret of the token: 32 random bytes as base64url.
	Secret string `json:"s"`
	// AuthURL is the URL of the authentication endpoint: https, host and port.
	AuthURL string `json:"u"`
	// ClusterID is the id of the cluster that issued the token.
	ClusterID string `json:"c"`
	// CA is the Fingerprint of the authority of the endpoint's certificate.
	CA string `json:"f"`
}

// NewToken returns a token with a random id and secret. It returns an error for an invalid
// authURL, clusterID or ca.
func NewToken(authURL, clusterID, ca string) (Token, error) {
	id, secret := make([]byte, idLength), make([]byte, secretLength)
	_, _ = rand.Read(id) // never fails, since Go 1.24
	_, _ = rand.Read(secret)
	t := Token{ID: hex.EncodeToString(id), Secret: base64.RawURLEncoding.EncodeToString(secret), AuthURL: authURL, ClusterID: clusterID, CA: ca}
	return t, t.check()
}

// ParseToken parses the result of String. Its errors do not contain the secret.
func ParseToken(s string) (Token, error) {
	s = strings.TrimSpace(s)
	body, ok := strings.CutPrefix(s, tokenPrefix)
	switch {
	case len(s) > longestToken:
		return Token{}, fmt.Errorf("a token of %d bytes: at most %d are accepted", len(s), longestToken)
	case !ok:
		return Token{}, fmt.Errorf("not a token: it begins with %s, as `liqod token create` prints it", tokenPrefix)
	}
	text, err := base64.RawURLEncoding.Strict().DecodeString(body)
	if err != nil {
		return Token{}, errors.New("a damaged token: the text after the prefix is not base64url; was it copied completely?")
	}
	var t Token
	decoder := json.NewDecoder(strings.NewReader(string(text)))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&t); err != nil || decoder.More() {
		return Token{}, errors.New("a damaged token: its fields are missing or wrong; was it copied completely?")
	}
	return t, t.check()
}

func (t Token) check() error {
	secret, err := base64.RawURLEncoding.Strict().DecodeString(t.Secret)
	switch {
	case len(validation.IsDNS1123Label(t.ID)) > 0:
		return errors.New("a damaged token: its id is not a DNS label")
	case err != nil || len(secret) != secretLength:
		return fmt.Errorf("a damaged token: its secret is not %d bytes", secretLength)
	}
	if err := CheckClusterID(t.ClusterID); err != nil {
		return fmt.Errorf("the token's cluster: %w", err)
	}
	if err := CheckURL(t.AuthURL); err != nil {
		return fmt.Errorf("the token's address: %w", err)
	}
	if sum, err := hex.DecodeString(t.CA); err != nil || len(sum) != sha256.Size || t.CA != strings.ToLower(t.CA) {
		return errors.New("a damaged token: the fingerprint of its authority is not 64 hexadecimal digits")
	}
	return nil
}

// String returns the encoded token, as people pass it on. It contains the secret.
func (t Token) String() string {
	text, err := json.Marshal(t)
	if err != nil {
		return "" // strings always encode
	}
	return tokenPrefix + base64.RawURLEncoding.EncodeToString(text)
}

// Mark returns the text by which a message says that it is about this token. It contains the
// id only.
func (t Token) Mark() string { return "(token " + t.ID + ")" }

// Hash returns the SHA-256 hash of a text in hexadecimal. That of a token's secret is stored in
// place of the secret. A slower hash is not needed, because the secret is long and random.
func Hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// Matches reports whether hash is the Hash of secret. It takes constant time.
func Matches(hash, secret string) bool {
	return subtle.ConstantTimeCompare([]byte(hash), []byte(Hash(secret))) == 1
}

// CheckClusterID returns an error unless id is a valid cluster id: a DNS label of at most
// 51 characters.
func CheckClusterID(id string) error {
	if len(id) > longestID || len(validation.IsDNS1123Label(id)) > 0 {
		return fmt.Errorf("cluster id %.80q: a DNS label of at most %d characters is accepted", id, longestID)
	}
	return nil
}

// CheckURL returns an error unless s can be the URL of an authentication endpoint: https
// with a host, and without user, query or fragment.
func CheckURL(s string) error {
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Opaque != "" {
		return fmt.Errorf("URL %.200q: https, a host and a port are accepted, as https://auth.milan.example:8443", s)
	}
	return nil
}
