// Package auth is the HTTPS endpoint from which the peers of a cluster obtain their
// identities. A peer exchanges a token for an identity (enroll), renews it for a fresh key
// (renew), or gives it up (leave). The decisions are pure (decide.go); all effects go
// through the interface Cluster. Every replica serves requests, so each write is a create
// or a compare-and-swap. docs/peering.md describes the protocol.
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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/kube/serve"
	"github.com/liqod/liqod/peering/trust"
)

// Values of Config.Identity, the kind of identity that a peer gets.
const (
	// IdentityCertificate is a client certificate signed by the cluster. IdentityToken is a
	// token of a ServiceAccount.
	IdentityCertificate = "certificate"
	IdentityToken       = "token"
	// IdentityAuto is a certificate, or a token if the cluster does not sign the
	// certificate in time.
	IdentityAuto = "auto"
)

// ErrNotSigned means that the cluster signs no client certificates, or not in time.
var ErrNotSigned = errors.New("the cluster has not signed a certificate")

// collisions is the number of attempts of a compare-and-swap.
const collisions = 10

// Home is what the endpoint does in its own cluster. Its errors are those of the API server; the
// endpoint retries after a conflict. Its methods are safe for concurrent use. Cluster implements it.
type Home interface {
	// UID returns the UID of the namespace kube-system.
	UID(ctx context.Context) (string, error)
	// Namespaces returns the names of the namespaces that belong to no peer.
	Namespaces(ctx context.Context) ([]string, error)
	// Own returns the ranges and addresses of this cluster: those of its Nodes, pods and
	// Services, and those of its settings.
	Own(ctx context.Context) ([]netip.Prefix, error)
	// APIServer returns how peers reach the API server: its URL and its authorities as PEM.
	APIServer(ctx context.Context) (url, ca string, err error)

	// Token returns the Secret of a token, or nil if there is none.
	Token(ctx context.Context, id string) (*corev1.Secret, error)
	// SaveToken updates a Secret. It fails with a conflict if the Secret has changed since
	// it was read.
	SaveToken(ctx context.Context, have, next *corev1.Secret) error

	// Peers returns all ForeignClusters. It reads live.
	Peers(ctx context.Context) ([]*corev1beta1.ForeignCluster, error)
	// SavePeer creates a ForeignCluster if have is nil, and otherwise updates it if next differs. The
	// update fails with a conflict if the object has changed since it was read.
	SavePeer(ctx context.Context, have, next *corev1beta1.ForeignCluster) error
	// Tenant creates the tenant namespace of a peer.
	Tenant(ctx context.Context, clusterID string) error
	// KeepBack stores the token that a peer has sent in return, for this cluster's own
	// controller. A token that a person wrote stays, and the error is ErrWritten.
	KeepBack(ctx context.Context, fc *corev1beta1.ForeignCluster, token string) error
	// Told records an event about the ForeignCluster of a peer, or about the Secret of a token.
	Told(about runtime.Object, reason, message string)

	// Sign returns a client certificate, with its chain, as PEM. The error is ErrNotSigned
	// where the cluster signs none.
	Sign(ctx context.Context, clusterID string, csr trust.CSR, lifetime time.Duration) (string, error)
	// AccountToken creates a ServiceAccount in the tenant namespace of a peer, if it is
	// missing, and returns a token of it with its expiry.
	AccountToken(ctx context.Context, clusterID, account string, lifetime time.Duration) (string, time.Time, error)
	// Retire deletes the peer's other ServiceAccounts, those of earlier enrolments.
	Retire(ctx context.Context, clusterID, account string) error
	// Authenticate returns the user of a bearer token, or "" if the token is not valid.
	Authenticate(ctx context.Context, token string) (string, error)
	// ClientCAs returns the authorities of client certificates.
	ClientCAs(ctx context.Context) (*x509.CertPool, error)
}

// Config is the input of New. All fields are required.
type Config struct {
	// ClusterID is the id of this cluster.
	ClusterID string
	// Version is the version of liqod.
	Version string
	Home    Home
	// Authorities returns, as PEM, what the endpoint's certificate is issued by.
	Authorities func() string
	// Identity is one of the Identity constants.
	Identity string
	// Wanted reports whether this cluster is going to use capacity of a peer.
	Wanted func(*corev1beta1.ForeignCluster) bool
	// Lifetime is the lifetime of certificates and tokens, at least 10 minutes.
	Lifetime time.Duration
	// PerMinute limits the requests per minute of all clients without a proven identity,
	// PerAddress those of a single address, and of a single peer with a certificate.
	PerMinute, PerAddress int
	// MaxPeers is the number of enrolled peers beyond which a cluster enrols only if people have
	// named it, by a token for its id or by a ForeignCluster.
	MaxPeers int
	// AcceptRanges has the ranges within which those of a peer have to be.
	AcceptRanges []netip.Prefix
	// Connections limits the connections that wait for their clients, ConnectionsPerAddress
	// those of a single address.
	Connections, ConnectionsPerAddress int
	// Count is called for each request with its path and its result, which is "granted" or
	// one of the reasons of package trust.
	Count func(path, result string)
	// Closed is called for each connection that is closed because there are too many.
	Closed func()
	Clock  clock.PassiveClock
	Log    *zap.Logger
}

// Endpoint answers the requests of peers. It is safe for concurrent use.
type Endpoint struct {
	cfg    Config
	limits *limits
	// strangers and peers have the places of requests in work, without and with a verified user.
	strangers, peers serve.Places[string]
	// redeeming serialises the redemptions of this replica, which would otherwise conflict
	// on a shared token.
	redeeming sync.Mutex
	// joining has the ids of the clusters whose enrolment has begun: they count as peers.
	joining sync.Map
}

// New returns an Endpoint. It starts nothing.
func New(cfg Config) *Endpoint {
	return &Endpoint{cfg: cfg, limits: newLimits(cfg.PerMinute, cfg.PerAddress)}
}

// enroll exchanges a token for an identity. A repeated request with the same key gets the
// same identity while the token is valid.
func (e *Endpoint) enroll(ctx context.Context, req trust.EnrollRequest) (trust.Grant, error) {
	self, err := e.self(ctx)
	if err != nil {
		return trust.Grant{}, err
	}
	ask, err := read(req, self)
	if err != nil {
		return trust.Grant{}, err
	}
	defer e.joining.Delete(ask.ID)
	if err := e.redeem(ctx, ask); err != nil {
		e.contested(ctx, ask, err)
		return trust.Grant{}, err
	}
	if ask, err = e.withoutOwn(ctx, ask); err != nil {
		return trust.Grant{}, err
	}
	if err := e.cfg.Home.Tenant(ctx, ask.ID); err != nil {
		return trust.Grant{}, err
	}
	grant, err := e.identity(ctx, ask)
	if err != nil {
		return trust.Grant{}, err
	}
	// The record comes last, because it gives the user its rights.
	if err := e.admit(ctx, ask, grant.User); err != nil {
		return trust.Grant{}, err
	}
	e.finish(ctx, ask)
	e.tellLeftOut(ctx, ask)
	e.back(ctx, ask.ID, grant.User, req.Back)
	return e.complete(ctx, grant, self)
}

func (e *Endpoint) self(ctx context.Context) (Identity, error) {
	uid, err := e.cfg.Home.UID(ctx)
	return Identity{ID: e.cfg.ClusterID, UID: uid}, err
}

// redeem uses the token once. If more concurrent requests arrive than the token has uses,
// the surplus ones are refused here.
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
		// After the token, so that a stranger does not learn the accepted ranges. Ranges that
		// people have written stay, and others do not matter.
		if err == nil && (fc == nil || len(fc.Spec.AddressRanges) == 0) {
			err = accepts(ask, e.cfg.AcceptRanges)
		}
		var told *refusal
		if errors.As(err, &told) && told.about == nil {
			told.about = secret // the token is good, so its maker may know why it gives nothing
		}
		if err != nil {
			return err
		}
		e.joining.Store(ask.ID, true)
		if use >= 0 || record.Uses == 0 {
			return nil
		}
		next := trust.Redemption{ClusterID: ask.ID, Serial: ask.csr.Serial}
		if fc != nil {
			next.Replaces = fc.Annotations[corev1beta1.EnrolmentAnnotation]
		}
		return e.remember(ctx, secret, append(record.Redemptions, next))
	})
}

// token reads a token. A missing or invalid token returns the zero Record, which matches no
// request.
func (e *Endpoint) token(ctx context.Context, id string) (*corev1.Secret, trust.Record, error) {
	secret, err := e.cfg.Home.Token(ctx, id)
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
	return e.cfg.Home.SaveToken(ctx, secret, next)
}

func (e *Endpoint) judge(ctx context.Context, ask enrolment, record trust.Record, use int) (*corev1beta1.ForeignCluster, error) {
	peers, err := e.cfg.Home.Peers(ctx)
	if err != nil {
		return nil, err
	}
	// The Secret is deleted with that ForeignCluster, but later.
	if record.Owner != "" && !slices.ContainsFunc(peers, func(fc *corev1beta1.ForeignCluster) bool {
		return fc.UID == record.Owner && fc.DeletionTimestamp == nil
	}) {
		return nil, badToken()
	}
	var before *trust.Redemption
	if use >= 0 {
		before = &record.Redemptions[use]
	}
	fc, err := judge(peers, ask, record.ClusterID != "", before)
	if err != nil || record.ClusterID != "" || fc != nil && !onlyDiscovered(fc) {
		return fc, err // people have named the peer, or it is one
	}
	return fc, e.chosen(ctx, ask.ID, peers)
}

// onlyDiscovered reports whether discovery has made the record of a cluster that never was a
// peer. Discovery takes the id from an answer that nobody authenticates.
func onlyDiscovered(fc *corev1beta1.ForeignCluster) bool {
	return fc.Labels[corev1beta1.DiscoveredLabel] != "" && fc.Annotations[corev1beta1.EnrolmentAnnotation] == ""
}

// chosen refuses a new peer beyond the limit, and an id that a new peer may not choose itself.
func (e *Endpoint) chosen(ctx context.Context, id string, all []*corev1beta1.ForeignCluster) error {
	namespaces, err := e.cfg.Home.Namespaces(ctx)
	if err != nil {
		return err
	}
	var peers []string
	enrolled := map[any]bool{}
	for _, fc := range all {
		peers = append(peers, fc.Spec.ClusterID)
		if fc.Annotations[corev1beta1.EnrolmentAnnotation] != "" {
			enrolled[fc.Name] = true
		}
	}
	e.joining.Range(func(other, _ any) bool {
		enrolled[other] = true
		return true
	})
	delete(enrolled, id)
	if len(enrolled) >= e.cfg.MaxPeers {
		return refuse(trust.ReasonRefused, "cluster %s accepts %d enrolled peers (its setting authentication.maxPeers) and has them: "+
			"its administrator can end one of these peerings, or make a token for this cluster alone (liqod token create --for %s)", e.cfg.ClusterID, e.cfg.MaxPeers, id)
	}
	if err := trust.CheckChosenID(id, peers, namespaces); err != nil {
		return refuse(trust.ReasonRefused, "%v", err)
	}
	return nil
}

// identity creates the credentials of an enrolment.
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
	chain, err := e.cfg.Home.Sign(ctx, clusterID, csr, e.cfg.Lifetime)
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
	token, end, err := e.cfg.Home.AccountToken(ctx, clusterID, account, e.cfg.Lifetime)
	if err != nil {
		return trust.Grant{}, err
	}
	return trust.Grant{User: corev1beta1.PeerAccountUser(clusterID, account), Token: token, NotAfter: end}, nil
}

// admit writes the record of the peer with the user that its rights are bound to. It checks
// the token and the record again, since they may have changed after the redemption.
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
		err = e.cfg.Home.SavePeer(ctx, have, recorded(have, ask, user, token.Trust))
		if apierrors.IsAlreadyExists(err) && have == nil {
			return &nameTaken{err}
		}
		return err
	})
}

// nameTaken means that a peer's ForeignCluster or Secret could not be created, because
// another request was faster or the name is in use.
type nameTaken struct{ error }

// contested records on a peer's ForeignCluster that another cluster claims its id. Only the
// first claim is written, so repeated attempts cause no writes.
func (e *Endpoint) contested(ctx context.Context, ask enrolment, err error) {
	var told *refusal
	if !errors.As(err, &told) || told.rival == nil || told.rival.Annotations[corev1beta1.RivalUIDAnnotation] != "" {
		return
	}
	next := told.rival.DeepCopy()
	metav1.SetMetaDataAnnotation(&next.ObjectMeta, corev1beta1.RivalUIDAnnotation, ask.UID)
	if err := e.cfg.Home.SavePeer(ctx, told.rival, next); err != nil {
		e.cfg.Log.Warn("another cluster claims the id of a peer, but the condition of the peer's ForeignCluster could not be written", zap.String("peer", ask.ID), zap.Error(err))
	}
}

// uncontested removes the record of a claim by a cluster that is now enrolled under its own
// id.
func (e *Endpoint) uncontested(ctx context.Context, ask enrolment) error {
	return retry(func() error {
		peers, err := e.cfg.Home.Peers(ctx)
		if err != nil {
			return err
		}
		for _, fc := range peers {
			if fc.Annotations[corev1beta1.RivalUIDAnnotation] == ask.UID {
				next := fc.DeepCopy()
				delete(next.Annotations, corev1beta1.RivalUIDAnnotation)
				if err := e.cfg.Home.SavePeer(ctx, fc, next); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// finish marks the redemption as granted, and removes what the enrolment replaces. A
// failure does not affect the grant.
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
		err = e.cfg.Home.Retire(ctx, ask.ID, corev1beta1.PeerAccountPrefix+ask.csr.Serial)
	}
	err = errors.Join(err, e.uncontested(ctx, ask))
	if err != nil {
		e.cfg.Log.Warn("the peer is enrolled, but the objects of its earlier identity could not be deleted", zap.String("peer", ask.ID), zap.Error(err))
	}
}

// complete adds this cluster's identity and the access to its API server to a grant.
func (e *Endpoint) complete(ctx context.Context, grant trust.Grant, self Identity) (trust.Grant, error) {
	var err error
	grant.ClusterID, grant.ClusterUID, grant.Version, grant.AuthCA = self.ID, self.UID, e.cfg.Version, e.cfg.Authorities()
	grant.APIServerURL, grant.APIServerCA, err = e.cfg.Home.APIServer(ctx)
	return grant, err
}

// retry repeats try after conflicts.
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
