package auth

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/peering/trust"
)

// proof is the evidence for a client's identity.
type proof struct {
	// chain is the client certificate chain of the TLS handshake, which proves the
	// possession of the key.
	chain []*x509.Certificate
	// bearer is the bearer token; empty: none.
	bearer string
}

// user returns the user that a client has proved to be. It returns a refusal if the proof
// is not valid.
func (e *Endpoint) user(ctx context.Context, p proof) (string, error) {
	if len(p.chain) == 0 {
		user, err := e.cfg.Home.Authenticate(ctx, p.bearer)
		if err == nil && user == "" {
			err = refuse(trust.ReasonUnauthorized, "the token of the present identity is invalid or has expired: a new enrolment needs a new token (liqod token create)")
		}
		return user, err
	}
	roots, err := e.cfg.Home.ClientCAs(ctx)
	if err != nil {
		return "", err
	}
	between := x509.NewCertPool()
	for _, cert := range p.chain[1:] {
		between.AddCert(cert)
	}
	_, err = p.chain[0].Verify(x509.VerifyOptions{
		Roots: roots, Intermediates: between, CurrentTime: e.cfg.Clock.Now(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		return "", refuse(trust.ReasonUnauthorized, "the certificate of the present identity is invalid or has expired: a new enrolment needs a new token (liqod token create)")
	}
	return p.chain[0].Subject.CommonName, nil
}

// renew issues new credentials for an existing identity.
func (e *Endpoint) renew(ctx context.Context, req trust.RenewRequest, p proof, user string) (trust.Grant, error) {
	self, err := e.self(ctx)
	if err != nil {
		return trust.Grant{}, err
	}
	fc, err := e.member(ctx, req.ClusterID, user)
	if err != nil {
		return trust.Grant{}, err
	}
	if fc.Spec.IncomingPeeringEnabled == corev1beta1.PeeringNo {
		return trust.Grant{}, refuse(trust.ReasonRefused, "this cluster does not let cluster %s use it (spec.incomingPeeringEnabled of ForeignCluster %s is No)", req.ClusterID, fc.Name)
	}
	grant, err := e.again(ctx, req, p, user)
	if err != nil {
		return trust.Grant{}, err
	}
	e.back(ctx, fc.Name, user, req.Back)
	return e.complete(ctx, grant, self)
}

// again issues credentials of the same kind as the presented ones.
func (e *Endpoint) again(ctx context.Context, req trust.RenewRequest, p proof, user string) (trust.Grant, error) {
	if len(p.chain) == 0 {
		account, ok := strings.CutPrefix(user, corev1beta1.PeerAccountUser(req.ClusterID, ""))
		if !ok || !strings.HasPrefix(account, corev1beta1.PeerAccountPrefix) || req.CSR != "" {
			return trust.Grant{}, refuse(trust.ReasonInvalid, "a certificate request is not accepted for the renewal of a token")
		}
		return e.account(ctx, req.ClusterID, account)
	}
	csr, err := trust.CheckCSR(req.CSR)
	if err != nil {
		return trust.Grant{}, refuse(trust.ReasonInvalid, "%v", err)
	}
	old, err := trust.Serial(p.chain[0].PublicKey)
	switch {
	case err != nil:
		return trust.Grant{}, err
	case csr.User != user || !strings.HasPrefix(user, corev1beta1.PeerUserPrefix):
		return trust.Grant{}, refuse(trust.ReasonInvalid, "the certificate request is for %.200q: %q is accepted, the name of the present identity", csr.User, user)
	case csr.Serial == old:
		return trust.Grant{}, refuse(trust.ReasonInvalid, "the certificate request has the key of the present certificate: a new key is accepted")
	}
	return e.certificate(ctx, req.ClusterID, csr)
}

func (e *Endpoint) member(ctx context.Context, clusterID, user string) (*corev1beta1.ForeignCluster, error) {
	if err := trust.CheckClusterID(clusterID); err != nil {
		return nil, refuse(trust.ReasonInvalid, "%v", err)
	}
	peers, err := e.cfg.Home.Peers(ctx)
	if err != nil {
		return nil, err
	}
	return member(peers, clusterID, user)
}

// leave ends an enrolment. It clears the user in the peer's record, and the controller then
// removes its rights.
func (e *Endpoint) leave(ctx context.Context, req trust.LeaveRequest, user string) error {
	err := retry(func() error {
		fc, err := e.member(ctx, req.ClusterID, user)
		if err != nil {
			return err
		}
		next := fc.DeepCopy()
		next.Spec.UserName = ""
		return e.cfg.Home.SavePeer(ctx, fc, next)
	})
	if err != nil {
		return err
	}
	if err := e.cfg.Home.Retire(ctx, req.ClusterID, ""); err != nil {
		e.cfg.Log.Warn("the peer has ended the peering, but its service account could not be deleted", zap.String("peer", req.ClusterID), zap.Error(err))
	}
	return nil
}

// signed checks the certificate that the signer issued for a request.
func signed(chain string, csr trust.CSR, now time.Time) (*x509.Certificate, error) {
	block, _ := pem.Decode([]byte(chain))
	if block == nil {
		return nil, errors.New("it is not PEM")
	}
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("parsing it: %w", err)
	}
	serial, err := trust.Serial(leaf.PublicKey)
	switch {
	case err != nil:
		return nil, err
	case serial != csr.Serial:
		return nil, errors.New("it is for another key")
	case leaf.Subject.CommonName != csr.User || !trust.InPeersGroup(leaf.Subject):
		return nil, fmt.Errorf("it is for %s", leaf.Subject)
	case leaf.IsCA || !slices.Contains(leaf.ExtKeyUsage, x509.ExtKeyUsageClientAuth):
		return nil, errors.New("it is not for clients")
	case !now.Before(leaf.NotAfter):
		return nil, fmt.Errorf("it ended at %s", leaf.NotAfter)
	}
	return leaf, nil
}

// ErrWritten means that people wrote the Secret, so it is not replaced.
var ErrWritten = errors.New("it was written by hand and is not replaced")

// back uses the token that peer id sent with its enrolment or a renewal as user. If this cluster is
// going to use the peer, its own controller enrols there with that token. A failure is logged and
// recorded as an event; the peer's enrolment stays valid.
func (e *Endpoint) back(ctx context.Context, id, user string, sent *trust.Invitation) {
	if sent == nil {
		return
	}
	var fc *corev1beta1.ForeignCluster
	err := retry(func() error {
		peers, err := e.cfg.Home.Peers(ctx)
		if err != nil {
			return err
		}
		if fc = peerOf(peers, id); fc == nil || !e.takesBack(fc, user) {
			return nil
		}
		return e.takeBack(ctx, fc, sent.Token)
	})
	if err == nil {
		return
	}
	e.cfg.Log.Warn("the peer is enrolled, but the token that it sent in return is not used", zap.String("peer", id), zap.Error(err))
	if fc != nil {
		e.cfg.Home.Told(fc, corev1beta1.ReasonTokenNotTaken, "the token that cluster "+id+" sent in return for its own is not used: "+err.Error()+
			"; for an identity there, name in spec.tokenSecretRef a Secret with a token of it (there: liqod token create)")
	}
}

// takesBack reports whether the peer's token is useful: this cluster is going to use the
// peer, and people have not given it another token.
func (e *Endpoint) takesBack(fc *corev1beta1.ForeignCluster, user string) bool {
	ref := fc.Spec.TokenSecretRef
	return fc.Spec.UserName == user && e.cfg.Wanted(fc) && (ref == nil || ref.Name == trust.ReceivedName(fc.Name))
}

// takeBack stores a token, and refers to it in the record of the peer.
func (e *Endpoint) takeBack(ctx context.Context, fc *corev1beta1.ForeignCluster, text string) error {
	own, err := e.cfg.Home.Own(ctx)
	if err != nil {
		return err
	}
	token, err := trust.ReadBack(text, fc.Name, own, e.cfg.AcceptRanges)
	if err != nil {
		return err
	}
	if err := e.cfg.Home.KeepBack(ctx, fc, token.String()); err != nil {
		if apierrors.IsAlreadyExists(err) {
			return &nameTaken{err}
		}
		return err
	}
	next := fc.DeepCopy()
	next.Spec.TokenSecretRef = &corev1beta1.SecretReference{Name: trust.ReceivedName(fc.Name)}
	// a new value for each token
	metav1.SetMetaDataAnnotation(&next.ObjectMeta, corev1beta1.TokenIDAnnotation, token.ID+"-"+trust.Hash(token.Secret)[:16])
	return e.cfg.Home.SavePeer(ctx, fc, next)
}
