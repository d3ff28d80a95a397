package join

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/kube/client"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/peering/trust"
)

// invitation is the content of a token Secret.
type invitation struct {
	// ref is the Secret as namespace/name. text is the token as written there.
	ref, text string
	token     trust.Token
	ranges    []string
}

// invitation reads the token for a peer. If the token is missing or invalid, it returns a
// standing with a condition and no error.
func (j *Join) invitation(ctx context.Context, fc *corev1beta1.ForeignCluster) (invitation, standing, error) {
	name := fc.Spec.TokenSecretRef.Name
	in := invitation{ref: j.cfg.OwnNamespace + "/" + name, ranges: j.cfg.AddressRanges}
	secret, err := store.Live(ctx, "secret", j.cfg.Kube.CoreV1().Secrets(j.cfg.OwnNamespace), name)
	switch {
	case err != nil:
		return in, standing{}, err
	case secret == nil:
		return in, says(metav1.ConditionFalse, corev1beta1.ReasonTokenMissing,
			"Secret %s is awaited, whose key %s holds a token of cluster %s", in.ref, corev1beta1.TokenSecretKey, fc.Spec.ClusterID).after(lookAgain), nil
	}
	in.text = strings.TrimSpace(string(secret.Data[corev1beta1.TokenSecretKey]))
	if in.token, err = trust.ParseToken(in.text); err == nil && in.token.ClusterID != fc.Spec.ClusterID {
		err = fmt.Errorf("it is a token of cluster %s: a token of cluster %s is accepted", in.token.ClusterID, fc.Spec.ClusterID)
	}
	if err != nil {
		return in, says(metav1.ConditionFalse, corev1beta1.ReasonTokenInvalid, "Secret %s, key %s: %v", in.ref, corev1beta1.TokenSecretKey, err).after(lookAgain), nil
	}
	if said := string(secret.Data[corev1beta1.AddressRangesSecretKey]); said != "" {
		in.ranges = nil
		for r := range strings.SplitSeq(said, ",") {
			in.ranges = append(in.ranges, strings.TrimSpace(r))
		}
	}
	return in, standing{}, nil
}

// another returns the digest of a token that is newer than the identity, or "" if there is
// none. The caller then renews the identity to find out whether it is still valid.
func (j *Join) another(ctx context.Context, fc *corev1beta1.ForeignCluster, have *identity) (string, error) {
	if !invited(fc) {
		return "", nil
	}
	in, problem, err := j.invitation(ctx, fc)
	if err != nil || problem.condition != nil || digest(in.text) == have.token {
		return "", err
	}
	return digest(in.text), nil
}

// enrol exchanges a token for an identity. It stores the key before it sends the request.
// If the answer is lost, a repeated request with the same key gets the same identity.
func (j *Join) enrol(ctx context.Context, fc *corev1beta1.ForeignCluster, have *identity) (standing, error) {
	id := fc.Spec.ClusterID
	in, problem, err := j.invitation(ctx, fc)
	if err != nil || problem.condition != nil {
		return problem, err
	}
	a := attempt{enrolling(id), digest(in.text, fmt.Sprint(fc.Generation), strings.Join(in.ranges, ","))}
	if p, waiting := j.waits(a); waiting {
		return p.said, nil
	}
	if have == nil || len(have.next) == 0 {
		if have, err = j.anew(ctx, id, have); err != nil {
			return standing{}, err
		}
	}
	back, err := j.invite(ctx, fc, have.next)
	if err != nil {
		return standing{}, err
	}
	got, err := j.askEnrol(ctx, fc, in, have.next, back)
	if err != nil {
		if ctx.Err() != nil {
			return standing{}, ctx.Err()
		}
		reason, message, slow := why(id, err)
		if reason == corev1beta1.ReasonTokenRefused {
			message += fmt.Sprintf("; put the new token into key %s of Secret %s", corev1beta1.TokenSecretKey, in.ref)
		}
		var no *trust.Refusal
		if errors.As(err, &no) && no.NewKey {
			if _, err := j.anew(ctx, id, have); err != nil {
				return standing{}, err
			}
			slow = false
		}
		return j.failed(a, says(metav1.ConditionFalse, reason, "%s %s", message, in.token.Mark()), slow, false), nil
	}
	got.token, got.agreed = digest(in.text), j.agreement(fc)
	return j.finish(ctx, fc, have, got)
}

// anew starts an enrolment with a new key.
func (j *Join) anew(ctx context.Context, id string, have *identity) (*identity, error) {
	key, err := trust.NewKey()
	if err != nil {
		return nil, err
	}
	return j.begin(ctx, id, have, key)
}

func (j *Join) askEnrol(ctx context.Context, fc *corev1beta1.ForeignCluster, in invitation, keyPEM []byte, back *trust.Invitation) (identity, error) {
	key, err := trust.ParseKey(keyPEM)
	if err != nil {
		return identity{}, fmt.Errorf("the stored key: %w", err)
	}
	user, err := trust.User(j.cfg.ClusterID, key.Public())
	if err != nil {
		return identity{}, err
	}
	csr, err := trust.MakeCSR(key, user)
	if err != nil {
		return identity{}, err
	}
	uid, err := j.cfg.OwnUID()
	if err != nil {
		return identity{}, err
	}
	to := target{ca: fc.Spec.AuthCA, pins: []string{in.token.CA}, proxy: fc.Spec.APIServer.ProxyURL}
	grant, err := postTo(ctx, places(fc, in.token.AuthURL), to, trust.EnrollPath, trust.EnrollRequest{
		Token: in.text, ClusterID: j.cfg.ClusterID, ClusterUID: string(uid), CSR: csr, AddressRanges: in.ranges, Version: j.cfg.Version, Back: back,
	}, proof{})
	if err != nil {
		return identity{}, err
	}
	got := identity{grant: grant, key: keyPEM, authURL: in.token.AuthURL, authCA: in.token.CA, issued: j.cfg.Clock.Now()}
	return got, j.accept(fc, &got, expectation{user: user, key: keyPEM})
}

// renew requests new credentials of the same identity for a new key. The old credentials
// stay in use until the new ones are stored. token is the digest of the current token. A peer that is
// offered an identity in this cluster, and has none, is sent a token along.
func (j *Join) renew(ctx context.Context, fc *corev1beta1.ForeignCluster, have *identity, token string) (standing, error) {
	id := fc.Spec.ClusterID
	a := attempt{renewing(id), digest(have.grant.User, have.issued.String(), fmt.Sprint(fc.Generation), token)}
	if p, waiting := j.waits(a); waiting {
		if p.refused && j.replaces(fc) {
			return j.enrol(ctx, fc, have)
		}
		return p.said, nil
	}
	key, err := trust.NewKey()
	if err != nil {
		return standing{}, err
	}
	back, missed := j.invite(ctx, fc, key)
	if missed != nil && j.cfg.Clock.Now().Before(have.renewal(j.cfg.RenewAt)) {
		return standing{}, missed // there is time to wait for the token
	}
	got, err := j.askRenew(ctx, fc, have, key, back)
	if err == nil {
		if got.token = token; missed == nil {
			got.agreed = j.agreement(fc)
		}
		return j.finish(ctx, fc, have, got)
	}
	if ctx.Err() != nil {
		return standing{}, ctx.Err()
	}
	reason, message, slow := why(id, err)
	refused := reason == corev1beta1.ReasonTokenRefused
	said := j.good(have, j.cfg.Clock.Now())
	said.condition.Reason, said.condition.Message = corev1beta1.ReasonRenewalFails, "the identity is still valid, but could not be renewed: "+message
	if refused {
		said.condition.Status = metav1.ConditionFalse
	}
	j.cfg.Log.Warn("identity not renewed; will retry", zap.String("peer", id), zap.String("reason", reason), zap.Error(err))
	said = j.failed(a, said, slow, refused)
	if refused && j.replaces(fc) {
		return j.enrol(ctx, fc, have)
	}
	return said, nil
}

func (j *Join) askRenew(ctx context.Context, fc *corev1beta1.ForeignCluster, have *identity, newKey []byte, back *trust.Invitation) (identity, error) {
	to := target{ca: fc.Spec.AuthCA, pins: pins(have.authCA), proxy: fc.Spec.APIServer.ProxyURL}
	ask := trust.RenewRequest{ClusterID: j.cfg.ClusterID, Version: j.cfg.Version, Back: back}
	by := proof{token: have.grant.Token}
	got := identity{authURL: have.authURL, authCA: have.authCA}
	if have.grant.Certificate != "" {
		pair, err := tls.X509KeyPair([]byte(have.grant.Certificate), have.key)
		if err != nil {
			return identity{}, fmt.Errorf("the stored certificate: %w", err)
		}
		by.certificate, got.key = &pair, newKey
		key, err := trust.ParseKey(newKey)
		if err != nil {
			return identity{}, err
		}
		if ask.CSR, err = trust.MakeCSR(key, have.grant.User); err != nil {
			return identity{}, err
		}
	}
	var err error
	if got.grant, err = postTo(ctx, places(fc, have.authURL), to, trust.RenewPath, ask, by); err != nil {
		return identity{}, err
	}
	got.issued = j.cfg.Clock.Now()
	return got, j.accept(fc, &got, expectation{user: have.grant.User, key: got.key, renewed: true})
}

// places returns the URLs of a peer's authentication endpoint in the order in which they
// are tried. spec.authUrl replaces the URL that the peer announced. If discovery set
// spec.authUrl, it is tried last, because discovery records are not authenticated.
func places(fc *corev1beta1.ForeignCluster, said string) []string {
	own := fc.Spec.AuthURL
	switch {
	case own == "" || own == said:
		return []string{said}
	case fc.Labels[corev1beta1.DiscoveredLabel] != "":
		return []string{said, own}
	}
	return []string{own}
}

// postTo sends a request to the first URL that answers. The peer may receive the request
// more than once, which is harmless.
func postTo(ctx context.Context, urls []string, to target, path string, body any, by proof) (grant trust.Grant, err error) {
	for _, to.url = range urls {
		var no *trust.Refusal
		if grant, err = post(ctx, to, path, body, by); err == nil || errors.As(err, &no) {
			return grant, err
		}
	}
	return grant, unanswered{urls, err}
}

// unanswered is the error for URLs of which none answers. err is that of the last one.
type unanswered struct {
	urls []string
	err  error
}

// Error implements error.
func (u unanswered) Error() string { return strings.Join(u.urls, ", ") + ": " + u.err.Error() }

// Unwrap returns the error of the last URL.
func (u unanswered) Unwrap() error { return u.err }

// badGrant is the error for an answer that does not match the request.
type badGrant struct{ error }

// Unwrap returns the underlying error.
func (b badGrant) Unwrap() error { return b.error }

// accept validates a peer's grant, and completes what is stored of it.
func (j *Join) accept(fc *corev1beta1.ForeignCluster, got *identity, want expectation) error {
	uid, err := j.cfg.OwnUID()
	if err != nil {
		return err
	}
	want.ownID, want.ownUID, want.peerID, want.peerUID, want.now = j.cfg.ClusterID, uid, fc.Spec.ClusterID, fc.Status.ClusterUID, got.issued
	if err := check(got.grant, want); err != nil {
		return badGrant{err}
	}
	if len(got.grant.AuthCA) <= longestBundle && len(pins(got.grant.AuthCA)) > 0 && strings.Contains(got.grant.AuthCA, "CERTIFICATE") {
		got.authCA = got.grant.AuthCA
	}
	if got.grant.Certificate == "" {
		got.key = nil
	}
	if got.kubeconfig, err = trust.Kubeconfig(got.grant, got.key, fc.Spec.APIServer); err != nil {
		return badGrant{err}
	}
	if _, err := client.FromKubeconfig(got.kubeconfig); err != nil {
		return badGrant{err}
	}
	return nil
}

// finish stores an identity.
func (j *Join) finish(ctx context.Context, fc *corev1beta1.ForeignCluster, have *identity, got identity) (standing, error) {
	kept, err := j.store(ctx, have, got)
	if err != nil {
		return standing{}, err
	}
	if err := j.mark(ctx, fc, got.grant.Version); err != nil {
		return standing{}, err
	}
	j.cfg.Log.Info("identity kept", zap.String("peer", fc.Spec.ClusterID), zap.String("user", kept.grant.User), zap.Time("until", kept.grant.NotAfter))
	return j.good(kept, kept.renewal(j.cfg.RenewAt)), nil
}

// mark writes the peer's version to an annotation of its ForeignCluster.
func (j *Join) mark(ctx context.Context, fc *corev1beta1.ForeignCluster, version string) error {
	if version == "" || fc.Annotations[corev1beta1.PeerVersionAnnotation] == version {
		return nil
	}
	_, err := store.Merge(ctx, "ForeignCluster", j.cfg.Liqo.CoreV1beta1().ForeignClusters(), "", fc,
		store.Patch{"metadata": store.Patch{"annotations": store.Patch{corev1beta1.PeerVersionAnnotation: version}}})
	return store.IgnoreGone(err)
}

// good returns the standing of a valid identity. The next sync is at the time at.
func (j *Join) good(have *identity, at time.Time) standing {
	return says(metav1.ConditionTrue, corev1beta1.ReasonEnrolled, "this cluster is user %s of cluster %s", have.grant.User, have.grant.ClusterID).
		after(max(at.Sub(j.cfg.Clock.Now()), time.Second))
}

// why explains a failed exchange: the reason and message of the condition. slow means that
// only people can solve the problem, so retries are rare.
func why(id string, err error) (reason, message string, slow bool) {
	var no *trust.Refusal
	var bad badGrant
	switch {
	case errors.As(err, &no) && no.Reason == trust.ReasonUnauthorized:
		return corev1beta1.ReasonTokenRefused, fmt.Sprintf("cluster %s refuses the token: %s", id, no.Message), true
	case errors.As(err, &no) && no.Reason == trust.ReasonConflict:
		return corev1beta1.ReasonConflict, fmt.Sprintf("cluster %s refuses: %s", id, no.Message), true
	case errors.As(err, &no) && no.Reason == trust.ReasonBusy:
		return corev1beta1.ReasonPeerUnreachable, fmt.Sprintf("cluster %s cannot answer now: %s", id, no.Message), false
	case errors.As(err, &no):
		return corev1beta1.ReasonPeerRefuses, fmt.Sprintf("cluster %s refuses: %s", id, no.Message), true
	case errors.Is(err, errReplaced):
		return corev1beta1.ReasonClusterReplaced,
			err.Error() + ": it is not written to; if it is meant to be the peer, clear status.clusterUID or make the ForeignCluster anew", true
	case errors.As(err, &bad):
		return corev1beta1.ReasonGrantInvalid, fmt.Sprintf("the credentials from cluster %s are not accepted: %v", id, bad.error), true
	}
	at := ""
	var none unanswered
	if errors.As(err, &none) {
		at = " at " + legible(strings.Join(none.urls, " and at "))
	}
	return corev1beta1.ReasonPeerUnreachable, fmt.Sprintf("the authentication endpoint of cluster %s%s does not answer: %s", id, at, cause(err)), false
}

func digest(parts ...string) string { return trust.Hash(strings.Join(parts, "\x00")) }
