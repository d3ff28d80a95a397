package auth

import (
	"context"
	"errors"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/peering/trust"
)

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
		peers, err := e.cfg.Records.Peers(ctx)
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
		e.cfg.Records.Told(fc, "TokenNotTaken", "the token that cluster "+id+" sent in return for its own is not used: "+err.Error()+
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
	own, err := e.cfg.Self.Own(ctx)
	if err != nil {
		return err
	}
	token, err := trust.ReadBack(text, fc.Name, own, e.cfg.AcceptRanges)
	if err != nil {
		return err
	}
	if err := e.cfg.Records.KeepBack(ctx, fc, token.String()); err != nil {
		if apierrors.IsAlreadyExists(err) {
			return &nameTaken{err}
		}
		return err
	}
	next := fc.DeepCopy()
	next.Spec.TokenSecretRef = &corev1beta1.SecretReference{Name: trust.ReceivedName(fc.Name)}
	if next.Annotations == nil {
		next.Annotations = map[string]string{}
	}
	next.Annotations[corev1beta1.TokenIDAnnotation] = token.ID + "-" + trust.Hash(token.Secret)[:16] // a new value for each token
	if equality.Semantic.DeepEqual(fc, next) {
		return nil
	}
	return e.cfg.Records.SavePeer(ctx, next)
}
