package trust

import (
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/netip"
	"net/url"

	ipamv1alpha1 "github.com/liqod/liqod/api/ipam/v1alpha1"
)

// BackID returns the id of the token that a peer is sent for an identity in this cluster,
// in return for one in the peer. Each peer has a single such token. The id is a DNS label.
func BackID(peer string) string { return "back-" + peer }

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
