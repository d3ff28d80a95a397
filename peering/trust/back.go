package trust

import (
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/netip"
	"net/url"
)

// BackID returns the id of the one token that a peer is sent for an identity here in
// return for one there. It is no longer than a DNS label.
func BackID(peer string) string { return "back-" + peer }

// ReceivedName returns the name of the Secret of the token that a peer has sent in return.
func ReceivedName(peer string) string { return "peer-" + peer + "-back" }

// BackToken returns the token that a peer is sent with an enrolment there. It follows from
// the private key of that enrolment, as PEM: asked again it is the same, and nothing but
// its hash has to be kept. It tells nothing of the key.
func BackToken(keyPEM []byte, authURL, clusterID, ca, peer string) (Token, error) {
	secret, err := hkdf.Key(sha256.New, keyPEM, nil, "liqod: token of "+clusterID+" for "+peer, secretLength)
	if err != nil {
		return Token{}, fmt.Errorf("deriving a token: %w", err)
	}
	t := Token{ID: BackID(peer), Secret: base64.RawURLEncoding.EncodeToString(secret), AuthURL: authURL, ClusterID: clusterID, CA: ca}
	return t, t.check()
}

// ReadBack reads the token that a peer has sent in return, and refuses what is not one of
// that peer.
func ReadBack(text, peer string) (Token, error) {
	t, err := ParseToken(text)
	if err != nil {
		return Token{}, err
	}
	if t.ClusterID != peer {
		return Token{}, fmt.Errorf("it is a token of cluster %s", t.ClusterID)
	}
	u, err := url.Parse(t.AuthURL)
	if err == nil {
		err = CheckHost(u.Hostname())
	}
	if err != nil {
		return Token{}, fmt.Errorf("the token's address: %w", err)
	}
	return t, nil
}

// CheckHost refuses addresses at which no server of a peer is, but perhaps one that only
// this machine or its neighbours should reach.
func CheckHost(host string) error {
	a, err := netip.ParseAddr(host)
	if err == nil && (a.IsLinkLocalUnicast() || a.IsMulticast() || a.IsUnspecified()) {
		return fmt.Errorf("%s: no server of a peer is there", a)
	}
	return nil
}
