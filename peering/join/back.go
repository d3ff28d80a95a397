package join

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/kube/client"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/peering/link"
	"github.com/liqod/liqod/peering/trust"
	"github.com/liqod/liqod/reasons"
)

const (
	// backLife is the lifetime of a token for a peer. backLeft is the minimum that remains
	// of it when the token is sent.
	backLife = 15 * time.Minute
	backLeft = 10 * time.Minute
)

// errNotMade means that a Secret of that name exists which liqod did not create.
var errNotMade = errors.New("liqod has not made it and does not replace it")

// Back says how peers get identities in this cluster, in return for this cluster's
// identities in theirs.
type Back struct {
	// URL is the URL of this cluster's authentication endpoint for peers. Empty: no peer is
	// sent a token.
	URL string
	// Offered reports whether this cluster offers an identity to a peer.
	Offered func(*corev1beta1.ForeignCluster) bool
}

// sentBack is the cached state of the token for a peer: whether it exists, and when to read
// it again. Another replica may have changed it since.
type sentBack struct {
	there bool
	again time.Time
}

// invites reports whether a peer is offered an identity in this cluster, and has none.
func (j *Join) invites(fc *corev1beta1.ForeignCluster) bool {
	return j.cfg.Back.URL != "" && fc.Spec.UserName == "" && j.cfg.Back.Offered(fc)
}

// agreement identifies the ForeignCluster's spec by which a peer is offered an identity in this
// cluster; empty: it is not.
func (j *Join) agreement(fc *corev1beta1.ForeignCluster) string {
	if !j.invites(fc) {
		return ""
	}
	return strconv.FormatInt(fc.Generation, 10)
}

// invite returns the token for an identity in this cluster that is sent along with an
// enrolment or a renewal. It returns nil if none is offered or the peer already has one. The token is
// derived from the key of the request, so a repeated request sends the same token. A
// token that cannot be created does not prevent the request; an error means that a retry
// may succeed.
func (j *Join) invite(ctx context.Context, fc *corev1beta1.ForeignCluster, keyPEM []byte) (*trust.Invitation, error) {
	if !j.invites(fc) {
		return nil, nil
	}
	peer := fc.Spec.ClusterID
	ca, err := Authority(ctx, j.cfg.Kube, j.cfg.OwnNamespace)
	if err != nil {
		return nil, err // the controller creates the certificate soon after its start
	}
	token, err := trust.BackToken(keyPEM, j.cfg.Back.URL, j.cfg.ClusterID, ca, peer)
	stays := err != nil
	if err == nil {
		err = j.keepBack(ctx, fc, token)
		stays = errors.Is(err, errNotMade) || apierrors.IsForbidden(err) || apierrors.IsInvalid(err)
	}
	if stays {
		j.cfg.Log.Warn("no token is sent to the peer in return", zap.String("peer", peer), zap.Error(err))
		j.cfg.Events.Eventf(fc, corev1.EventTypeWarning, reasons.TokenNotSent,
			"cluster %s is not told how to use this one in return: %v; its people need a token (here: liqod token create --for %s)", peer, err, peer)
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &trust.Invitation{Token: token.String()}, nil
}

// keepBack stores the hash of the token for a peer before it is sent. Each peer has one
// token; a new one replaces it. The ForeignCluster owns the Secret.
func (j *Join) keepBack(ctx context.Context, fc *corev1beta1.ForeignCluster, token trust.Token) error {
	peer, now := fc.Spec.ClusterID, j.cfg.Clock.Now()
	want := trust.Record{ID: token.ID, Hash: trust.Hash(token.Secret), Uses: 1, ClusterID: peer, Expiration: now.Add(backLife)}
	next := trust.NewSecret(j.cfg.OwnNamespace, want)
	next.Labels[corev1beta1.MadeByLabel], next.Labels[corev1beta1.RemoteClusterIDLabel] = corev1beta1.MadeByLiqod, peer
	next.OwnerReferences = []metav1.OwnerReference{link.OwnedBy(fc)}
	secret, have, err := j.sent(ctx, peer)
	switch {
	case err != nil:
		return err
	case secret != nil && have.Hash == want.Hash && equality.Semantic.DeepEqual(secret.OwnerReferences, next.OwnerReferences) && (have.UsedUp() || have.Expiration.Sub(now) >= backLeft):
		j.setBack(peer, sentBack{true, have.Expiration})
		return nil
	case secret != nil:
		next.ResourceVersion = secret.ResourceVersion
	}
	if _, err := store.Write(ctx, "secret", j.cfg.Kube.CoreV1().Secrets(j.cfg.OwnNamespace), "", secret, next); err != nil {
		return err
	}
	j.setBack(peer, sentBack{true, want.Expiration})
	return nil
}

// sent returns the Secret of the token for a peer and its content, or nil if there is none.
func (j *Join) sent(ctx context.Context, peer string) (*corev1.Secret, trust.Record, error) {
	name := trust.SecretName(trust.BackID(peer))
	secret, err := store.Live(ctx, "secret", j.cfg.Kube.CoreV1().Secrets(j.cfg.OwnNamespace), name)
	if err != nil || secret == nil {
		return nil, trust.Record{}, err
	}
	record, err := trust.ReadSecret(secret)
	if err != nil || secret.Labels[corev1beta1.MadeByLabel] != corev1beta1.MadeByLiqod {
		return nil, trust.Record{}, fmt.Errorf("secret %s/%s: %w", j.cfg.OwnNamespace, name, errNotMade)
	}
	return secret, record, nil
}

// tidyBack deletes the expired token for a peer, used or not. It returns the delay before
// the next check; 0: there is no token.
func (j *Join) tidyBack(ctx context.Context, peer string) (time.Duration, error) {
	if j.cfg.Back.URL == "" {
		return 0, nil
	}
	now := j.cfg.Clock.Now()
	j.mu.Lock()
	known := j.backs[peer]
	j.mu.Unlock()
	if left := known.again.Sub(now); left > 0 {
		if !known.there {
			left = 0
		}
		return left, nil
	}
	none := sentBack{again: now.Add(backLife)}
	secret, record, err := j.sent(ctx, peer)
	switch {
	case err != nil && !errors.Is(err, errNotMade):
		return 0, err
	case secret == nil || record.Expiration.IsZero():
		j.setBack(peer, none)
		return 0, nil
	case !record.Expired(now):
		j.setBack(peer, sentBack{true, record.Expiration})
		return record.Expiration.Sub(now), nil
	}
	if err := store.Delete(ctx, "secret", j.cfg.Kube.CoreV1().Secrets(secret.Namespace), secret); err != nil {
		return 0, err
	}
	j.setBack(peer, none)
	return 0, nil
}

func (j *Join) setBack(peer string, known sentBack) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.backs[peer] = known
}

// sooner returns the shorter of two delays, where zero means that nothing is scheduled.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

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
	case len(g.Version) > longestText:
		return fmt.Errorf("a version of more than %d bytes", longestText)
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
	switch leaf := pair.Leaf; {
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
