// Package auth is the endpoint by which a cluster gives its peers identities: who has a
// token gets one for its key (enroll), who has one gets it renewed for a fresh key (renew),
// or ends it (leave). Decisions are pure (decide.go); what is done goes through
// Cluster. Every replica serves: each write is a create or a compare-and-swap.
package auth

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/peering/trust"
)

// Kinds of identities: Config.Identity.
const (
	// IdentityCertificate and IdentityToken are client certificates that the cluster signs,
	// and tokens of ServiceAccounts.
	IdentityCertificate = "certificate"
	IdentityToken       = "token"
	// IdentityAuto is a certificate, or a token where the cluster signs none in time.
	IdentityAuto = "auto"
)

// ErrNotSigned says that the cluster signs no client certificates, or not in time.
var ErrNotSigned = errors.New("the cluster has signed no certificate")

// collisions is how often a compare-and-swap is tried.
const collisions = 10

// Self tells of the endpoint's own cluster. Errors of this and the following interfaces are
// those of the API server: a conflict is tried again. Cluster implements all of them.
type Self interface {
	// UID of the namespace kube-system.
	UID(ctx context.Context) (string, error)
	// Own returns ranges and addresses of this cluster's own Nodes, pods and Services.
	Own(ctx context.Context) ([]netip.Prefix, error)
	// APIServer returns how peers reach the API server: its URL and its authorities as PEM.
	APIServer(ctx context.Context) (url, ca string, err error)
}

// Tokens keeps the tokens for peers.
type Tokens interface {
	// Token returns the Secret of a token; nil if there is none.
	Token(ctx context.Context, id string) (*corev1.Secret, error)
	// SaveToken writes a Secret, if it is still as it was read.
	SaveToken(ctx context.Context, secret *corev1.Secret) error
}

// Records keeps what is recorded of peers.
type Records interface {
	// Peers returns all ForeignClusters, as they are now.
	Peers(ctx context.Context) ([]corev1beta1.ForeignCluster, error)
	// SavePeer creates a ForeignCluster without a UID, or writes it, if it is still as it
	// was read.
	SavePeer(ctx context.Context, fc *corev1beta1.ForeignCluster) error
	// Tenant makes the tenant namespace of a peer.
	Tenant(ctx context.Context, clusterID string) error
	// KeepBack keeps the token that a peer has sent in return, for this cluster's own
	// controller. What people wrote in its place stays: the error is ErrWritten.
	KeepBack(ctx context.Context, fc *corev1beta1.ForeignCluster, token string) error
	// Told tells the people of this cluster, by an event, what concerns a peer.
	Told(fc *corev1beta1.ForeignCluster, reason, message string)
}

// Identities gives peers identities, and knows them again.
type Identities interface {
	// Sign returns a client certificate, with its chain, as PEM. The error is ErrNotSigned
	// where the cluster signs none.
	Sign(ctx context.Context, clusterID string, csr trust.CSR, lifetime time.Duration) (string, error)
	// AccountToken returns a token of a ServiceAccount in the tenant namespace of a peer,
	// which it makes, and when the token ends.
	AccountToken(ctx context.Context, clusterID, account string, lifetime time.Duration) (string, time.Time, error)
	// Retire deletes the ServiceAccounts of a peer's other enrolments.
	Retire(ctx context.Context, clusterID, account string) error
	// Authenticate returns the user of a bearer token; empty if it is not good.
	Authenticate(ctx context.Context, token string) (string, error)
	// ClientCAs returns the authorities of client certificates.
	ClientCAs(ctx context.Context) (*x509.CertPool, error)
}

// Config configures an Endpoint. Every field is needed.
type Config struct {
	// ClusterID of this cluster.
	ClusterID string
	// Version of liqod.
	Version string
	// Self, Tokens, Records and Identities are what the endpoint does in its own cluster.
	Self       Self
	Tokens     Tokens
	Records    Records
	Identities Identities
	// Authorities returns, as PEM, what the endpoint's certificate is issued by.
	Authorities func() string
	// Identity is one of the Identity constants.
	Identity string
	// Wanted tells whether this cluster is to use capacity of a peer.
	Wanted func(*corev1beta1.ForeignCluster) bool
	// Lifetime of certificates and tokens, at least 10 minutes.
	Lifetime time.Duration
	// PerMinute bounds the requests of all that have not proved an identity, and
	// PerAddress those from one address.
	PerMinute, PerAddress int
	// Count is told of each request: its path and its result, which is "granted" or one of
	// trust's reasons.
	Count func(path, result string)
	Clock clock.PassiveClock
	Log   *zap.Logger
}

// Endpoint decides and does what peers ask for. It is safe for concurrent use.
type Endpoint struct {
	cfg    Config
	limits *limits
	// redeeming keeps requests of this replica from meeting at one token.
	redeeming sync.Mutex
}

// New returns an Endpoint. It starts nothing.
func New(cfg Config) *Endpoint {
	return &Endpoint{cfg: cfg, limits: newLimits(cfg.PerMinute, cfg.PerAddress)}
}

// enroll exchanges a token for an identity. Asked again with the same key, while the
// token lives, it gives the same one.
func (e *Endpoint) enroll(ctx context.Context, req trust.EnrollRequest) (trust.Grant, error) {
	self, err := e.self(ctx)
	if err != nil {
		return trust.Grant{}, err
	}
	ask, err := read(req, self)
	if err != nil {
		return trust.Grant{}, err
	}
	if err := e.redeem(ctx, ask); err != nil {
		e.contested(ctx, ask, err)
		return trust.Grant{}, err
	}
	if ask, err = e.withoutOwn(ctx, ask); err != nil {
		return trust.Grant{}, err
	}
	if err := e.cfg.Records.Tenant(ctx, ask.ID); err != nil {
		return trust.Grant{}, err
	}
	grant, err := e.identity(ctx, ask)
	if err != nil {
		return trust.Grant{}, err
	}
	// Last: until now the user has no rights.
	if err := e.admit(ctx, ask, grant.User); err != nil {
		return trust.Grant{}, err
	}
	e.finish(ctx, ask)
	e.tellLeftOut(ctx, ask)
	e.back(ctx, ask, req.Back)
	return e.complete(ctx, grant, self)
}

func (e *Endpoint) self(ctx context.Context) (Identity, error) {
	uid, err := e.cfg.Self.UID(ctx)
	return Identity{ID: e.cfg.ClusterID, UID: uid}, err
}

// redeem uses the token: of many that come at once, as many as it has uses pass here.
func (e *Endpoint) redeem(ctx context.Context, ask enrolment) error {
	e.redeeming.Lock()
	defer e.redeeming.Unlock()
	return retry(func() error {
		secret, record, err := e.token(ctx, ask.token.ID)
		if err != nil {
			return err
		}
		use, err := good(record, ask, e.cfg.Clock.Now())
		if err != nil {
			return err
		}
		fc, err := e.judge(ctx, ask, record, use)
		if err != nil || use >= 0 || record.Uses == 0 {
			return err
		}
		next := trust.Redemption{ClusterID: ask.ID, Serial: ask.csr.Serial}
		if fc != nil {
			next.Replaces = fc.Annotations[corev1beta1.EnrolmentAnnotation]
		}
		return e.remember(ctx, secret, append(record.Redemptions, next))
	})
}

// token reads a token. One that is not there, or cannot be understood, is as one that
// never matches.
func (e *Endpoint) token(ctx context.Context, id string) (*corev1.Secret, trust.Record, error) {
	secret, err := e.cfg.Tokens.Token(ctx, id)
	if err != nil || secret == nil {
		return nil, trust.Record{}, err
	}
	record, err := trust.ReadSecret(secret)
	if err != nil {
		e.cfg.Log.Warn("a token that cannot be used", zap.Error(err))
		return nil, trust.Record{}, nil
	}
	return secret, record, nil
}

func (e *Endpoint) remember(ctx context.Context, secret *corev1.Secret, uses []trust.Redemption) error {
	next, err := trust.WithRedemptions(secret, uses)
	if err != nil {
		return err
	}
	return e.cfg.Tokens.SaveToken(ctx, next)
}

func (e *Endpoint) judge(ctx context.Context, ask enrolment, record trust.Record, use int) (*corev1beta1.ForeignCluster, error) {
	peers, err := e.cfg.Records.Peers(ctx)
	if err != nil {
		return nil, err
	}
	// The Secret goes with that record, but not at once.
	if record.Owner != "" && !slices.ContainsFunc(peers, func(fc corev1beta1.ForeignCluster) bool { return fc.UID == record.Owner && fc.DeletionTimestamp == nil }) {
		return nil, badToken()
	}
	var before *trust.Redemption
	if use >= 0 {
		before = &record.Redemptions[use]
	}
	return judge(peers, ask, record.ClusterID != "", before)
}

// identity makes the credentials of an enrolment.
func (e *Endpoint) identity(ctx context.Context, ask enrolment) (trust.Grant, error) {
	if e.cfg.Identity != IdentityToken {
		grant, err := e.certificate(ctx, ask.ID, ask.csr)
		if err == nil || e.cfg.Identity == IdentityCertificate || !errors.Is(err, ErrNotSigned) {
			return grant, err
		}
		e.cfg.Log.Info("the peer gets a token: this cluster signs no client certificates", zap.String("peer", ask.ID), zap.Error(err))
	}
	return e.account(ctx, ask.ID, corev1beta1.PeerAccountPrefix+ask.csr.Serial)
}

func (e *Endpoint) certificate(ctx context.Context, clusterID string, csr trust.CSR) (trust.Grant, error) {
	chain, err := e.cfg.Identities.Sign(ctx, clusterID, csr, e.cfg.Lifetime)
	if err != nil {
		return trust.Grant{}, err
	}
	leaf, err := signed(chain, csr, e.cfg.Clock.Now())
	if err != nil {
		return trust.Grant{}, fmt.Errorf("%w that can be used: %w", ErrNotSigned, err)
	}
	return trust.Grant{User: csr.User, Certificate: chain, NotAfter: leaf.NotAfter}, nil
}

func (e *Endpoint) account(ctx context.Context, clusterID, account string) (trust.Grant, error) {
	token, end, err := e.cfg.Identities.AccountToken(ctx, clusterID, account, e.cfg.Lifetime)
	if err != nil {
		return trust.Grant{}, err
	}
	return trust.Grant{User: corev1beta1.PeerAccountUser(clusterID, account), Token: token, NotAfter: end}, nil
}

// admit records the peer with the user that its rights are to be bound to. Whatever has
// happened since the token was used is looked at again.
func (e *Endpoint) admit(ctx context.Context, ask enrolment, user string) error {
	return retry(func() error {
		_, token, err := e.token(ctx, ask.token.ID)
		if err != nil {
			return err
		}
		use, err := good(token, ask, e.cfg.Clock.Now())
		if err != nil {
			return err
		}
		have, err := e.judge(ctx, ask, token, use)
		if err != nil {
			return err
		}
		err = e.cfg.Records.SavePeer(ctx, recorded(have, ask, user))
		if apierrors.IsAlreadyExists(err) && have == nil {
			return &nameTaken{err}
		}
		return err
	})
}

// nameTaken says that the record of a peer could not be created: another request was
// faster, or another cluster's record has its name.
type nameTaken struct{ error }

// contested records on a peer that another cluster claims its id, for the status there. The
// first one is recorded, and once: who tries again and again writes nothing.
func (e *Endpoint) contested(ctx context.Context, ask enrolment, err error) {
	var told *refusal
	if !errors.As(err, &told) || !told.rival || told.about.Annotations[corev1beta1.RivalUIDAnnotation] != "" {
		return
	}
	next := told.about.DeepCopy()
	if next.Annotations == nil {
		next.Annotations = map[string]string{}
	}
	next.Annotations[corev1beta1.RivalUIDAnnotation] = ask.UID
	if err := e.cfg.Records.SavePeer(ctx, next); err != nil {
		e.cfg.Log.Warn("another cluster claims the id of a peer, and the peer's record could not be told", zap.String("peer", ask.ID), zap.Error(err))
	}
}

// uncontested ends what was recorded of a cluster that has a place of its own by now.
func (e *Endpoint) uncontested(ctx context.Context, ask enrolment) error {
	return retry(func() error {
		peers, err := e.cfg.Records.Peers(ctx)
		if err != nil {
			return err
		}
		for i := range peers {
			if fc := &peers[i]; fc.Annotations[corev1beta1.RivalUIDAnnotation] == ask.UID {
				delete(fc.Annotations, corev1beta1.RivalUIDAnnotation)
				if err := e.cfg.Records.SavePeer(ctx, fc); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// finish remembers that the enrolment has been made, and removes what it replaces.
// Neither is needed for what has been granted.
func (e *Endpoint) finish(ctx context.Context, ask enrolment) {
	err := retry(func() error {
		secret, record, err := e.token(ctx, ask.token.ID)
		if err != nil || secret == nil {
			return err
		}
		use := record.Redemption(ask.ID, ask.csr.Serial)
		if use < 0 || !record.Redemptions[use].Granted.IsZero() {
			return nil
		}
		record.Redemptions[use].Granted = e.cfg.Clock.Now().UTC().Truncate(time.Second)
		return e.remember(ctx, secret, record.Redemptions)
	})
	if err == nil {
		err = e.cfg.Identities.Retire(ctx, ask.ID, corev1beta1.PeerAccountPrefix+ask.csr.Serial)
	}
	err = errors.Join(err, e.uncontested(ctx, ask))
	if err != nil {
		e.cfg.Log.Warn("the peer is enrolled, and what was before it could not be tidied up", zap.String("peer", ask.ID), zap.Error(err))
	}
}

// complete adds to a grant how this cluster is reached.
func (e *Endpoint) complete(ctx context.Context, grant trust.Grant, self Identity) (trust.Grant, error) {
	var err error
	grant.ClusterID, grant.ClusterUID, grant.Version, grant.AuthCA = self.ID, self.UID, e.cfg.Version, e.cfg.Authorities()
	grant.APIServerURL, grant.APIServerCA, err = e.cfg.Self.APIServer(ctx)
	return grant, err
}

// retry repeats what somebody else came before.
func retry(try func() error) (err error) {
	for range collisions {
		err = try()
		var taken *nameTaken
		if err == nil || !apierrors.IsConflict(err) && !errors.As(err, &taken) {
			return err
		}
	}
	return err
}
