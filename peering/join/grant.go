package join

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/kube/client"
	"github.com/liqod/liqod/peering/trust"
)

const (
	// skew is the accepted difference between the clocks of two clusters.
	skew = 5 * time.Minute
	// longestBundle is the maximum length of certificates, in bytes.
	longestBundle = 32 << 10
	longestText   = 253
)

// expectation is what a grant is checked against.
type expectation struct {
	ownID, peerID string
	// ownUID is the UID of this cluster. peerUID is the recorded UID of the peer, or "".
	ownUID, peerUID types.UID
	// user is the user that a certificate must be for, and key the private key that it must
	// match. An enrolment may return a token instead, for a user that the peer chooses.
	user string
	key  []byte
	// renewed: the user must not change.
	renewed bool
	now     time.Time
}

// errReplaced means that another cluster answers.
var errReplaced = errors.New("another cluster answers")

// check returns an error for a grant that does not match the request. It is pure.
func check(g trust.Grant, want expectation) error {
	switch {
	case g.ClusterID != want.peerID:
		return fmt.Errorf("it is cluster %q that answers, and not %s", legible(g.ClusterID), want.peerID)
	case g.ClusterUID == "" || len(g.ClusterUID) > longestText:
		return errors.New("the UID of its cluster is missing")
	case types.UID(g.ClusterUID) == want.ownUID:
		return errors.New("the endpoint is the one of this cluster itself")
	case want.peerUID != "" && types.UID(g.ClusterUID) != want.peerUID:
		return fmt.Errorf("%w: its kube-system namespace has UID %s, recorded is %s", errReplaced, legible(g.ClusterUID), want.peerUID)
	case (g.Certificate == "") == (g.Token == ""):
		return errors.New("exactly one of a certificate and a token is accepted")
	case len(g.Version) > longestText || len(g.ClusterName) > longestText:
		return fmt.Errorf("a name or version of more than %d bytes", longestText)
	case !g.NotAfter.After(want.now):
		return errors.New("the credentials have ended already: do the clocks of both clusters agree?")
	}
	if err := checkServer(g); err != nil {
		return err
	}
	if g.Certificate != "" {
		return checkCertificate(g, want)
	}
	return checkToken(g, want)
}

// checkServer checks the URL and the authorities of the peer's API server.
func checkServer(g trust.Grant) error {
	u, err := url.Parse(g.APIServerURL)
	switch {
	case err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return fmt.Errorf("the address of its API server %q: an https URL is accepted", legible(g.APIServerURL))
	case len(g.APIServerCA) > longestBundle:
		return fmt.Errorf("certificates of its API server of more than %d bytes", longestBundle)
	case g.APIServerCA != "" && !x509.NewCertPool().AppendCertsFromPEM([]byte(g.APIServerCA)):
		return errors.New("the certificates of its API server are invalid")
	}
	// No server of a peer has such an address, but services of the local machine or network may.
	if a, err := netip.ParseAddr(u.Hostname()); err == nil && (a.IsLinkLocalUnicast() || a.IsMulticast() || a.IsUnspecified()) {
		return fmt.Errorf("the address of its API server: %s: a peer cannot have a server at this address", a)
	}
	return nil
}

func checkCertificate(g trust.Grant, want expectation) error {
	if g.User != want.user {
		return fmt.Errorf("a certificate for user %q: one for %s is accepted", legible(g.User), want.user)
	}
	if len(g.Certificate) > longestBundle {
		return fmt.Errorf("a certificate of more than %d bytes", longestBundle)
	}
	pair, err := tls.X509KeyPair([]byte(g.Certificate), want.key)
	if err != nil {
		return errors.New("a certificate for another key than that of the request")
	}
	leaf, err := x509.ParseCertificate(pair.Certificate[0])
	switch {
	case err != nil:
		return errors.New("a certificate that cannot be read")
	case leaf.Subject.CommonName != want.user || !trust.InPeersGroup(leaf.Subject):
		return fmt.Errorf("a certificate for subject %q: one for %s is accepted", legible(leaf.Subject.String()), want.user)
	case leaf.IsCA:
		return errors.New("a certificate of a certificate authority")
	case leaf.NotBefore.After(want.now.Add(skew)):
		return errors.New("a certificate that is not valid yet: do the clocks of both clusters agree?")
	case !leaf.NotAfter.After(want.now) || g.NotAfter.After(leaf.NotAfter.Add(time.Second)):
		return errors.New("a certificate that expires before the time given with it")
	}
	return nil
}

// checkToken checks a token of a ServiceAccount in this cluster's tenant namespace in the
// peer.
func checkToken(g trust.Grant, want expectation) error {
	account := corev1beta1.PeerAccountUser(want.ownID, "")
	switch {
	case len(g.Token) > longestBundle || bytes.ContainsAny([]byte(g.Token), " \r\n\t"):
		return errors.New("an invalid token")
	case want.renewed && g.User != want.user:
		return fmt.Errorf("a token for user %q: a renewed one for %s is accepted", legible(g.User), want.user)
	case !strings.HasPrefix(g.User, account) || !corev1beta1.ValidPeerUser(want.ownID, g.User):
		return fmt.Errorf("a token for user %q: one for %s… is accepted", legible(g.User), account)
	}
	if subject := client.TokenSubject(g.Token); subject != "" && subject != g.User {
		return fmt.Errorf("a token of %q, where it says %s", legible(subject), g.User)
	}
	return nil
}
