// Package join begins and ends peerings.
//
// Join obtains this cluster's identities in the clusters whose capacity it uses, and renews
// them before they expire. It sends requests to the authentication endpoints of these peers
// (package auth), stores the granted credentials in the tenant namespaces, and provides the
// condition Authenticated. It validates each answer of a peer against the request.
//
// Cluster has what an administrator does: Accept, with a token, and Leave in the consumer,
// Dismiss in the provider. All of these are idempotent, so a call that was interrupted can be
// repeated. Two clusters may use each other; what is done for one direction does not affect
// the other. Ending ends the peering of a ForeignCluster that a user deletes.
package join

import (
	"context"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/peering/link"
	"github.com/liqod/liqod/peering/trust"
)

// lookAgain is the poll interval for a token Secret that is missing or has to be replaced.
// Secrets are not watched.
const lookAgain = 3 * time.Second

// tokenAgain is the poll interval for a new token while the identity is valid. People
// provide one after the peer has revoked the identity.
const tokenAgain = time.Minute

// givenAgain is the poll interval for credentials that people provided. Their Secret is not
// watched here.
const givenAgain = time.Minute

// Config is the input of New. All fields are required unless their comment says otherwise.
type Config struct {
	link.Base

	// Version is the version of this cluster's liqod.
	Version string
	// OwnNamespace is the namespace of the Secrets with tokens.
	OwnNamespace string
	// AddressRanges are the CIDRs of this cluster's endpoints, sent to each peer. A token
	// Secret may override them. If they are empty, the peer keeps the ranges that it has.
	AddressRanges []string
	// RenewAt is the fraction of an identity's lifetime, from 0 to 1, after which it is
	// renewed.
	RenewAt float64
	// Wanted reports whether this cluster is going to use capacity of a peer.
	Wanted func(*corev1beta1.ForeignCluster) bool
	// Back says how peers get identities in this cluster in return.
	Back Back

	Events record.EventRecorder
}

// Join obtains and renews identities. Its keys are cluster ids. It runs under a lease. Each
// step is idempotent, and a new leader continues after the last write.
type Join struct {
	*loop.Loop
	cfg Config

	listeners loop.Listeners[string] // they take cluster ids

	mu      sync.Mutex
	known   map[string]known    // by cluster id; nil: does not apply
	patient map[string]patience // by kind of attempt
	backs   map[string]sentBack // by cluster id
	held    map[string]held     // by cluster id
}

// New returns a Join and registers its event handlers on the informers. It starts nothing.
func New(cfg Config) *Join {
	j := &Join{
		cfg: cfg, known: map[string]known{}, patient: map[string]patience{}, backs: map[string]sentBack{}, held: map[string]held{},
	}
	j.Loop = loop.New(loop.Config{Name: "join", Sync: j.sync, Log: cfg.Log, Observer: cfg.Observer},
		loop.From(cfg.ForeignClusters.Informer(), link.ClusterKey),
		loop.From(cfg.Namespaces.Informer(), link.TenantKey),
	)
	return j
}

// Condition returns the condition Authenticated for a peer, or nil if it does not apply.
// Before the first sync of the peer, it returns the condition in the ForeignCluster's
// status. It sends no request, and is safe for concurrent use.
func (j *Join) Condition(fc *corev1beta1.ForeignCluster) *metav1.Condition {
	j.mu.Lock()
	defer j.mu.Unlock()
	if have, ok := j.known[fc.Spec.ClusterID]; ok && have.of == fc.UID {
		return have.condition.DeepCopy()
	}
	return meta.FindStatusCondition(fc.Status.Conditions, corev1beta1.ConditionAuthenticated).DeepCopy()
}

// Subscribe registers f, which is called with a peer's id after the result of Condition has
// changed. It must be called before Run. f must not block.
func (j *Join) Subscribe(f func(clusterID string)) { j.listeners.Subscribe(f) }

// known is the condition for a peer, and the UID of the ForeignCluster that it is about: one
// that was created again begins without.
type known struct {
	of        types.UID
	condition *metav1.Condition
}

// tell stores the condition for a peer, and calls the subscribers if it differs.
func (j *Join) tell(fc *corev1beta1.ForeignCluster, now *metav1.Condition) {
	id, next := fc.Spec.ClusterID, known{fc.UID, now}
	j.mu.Lock()
	have, ok := j.known[id]
	j.known[id] = next
	j.mu.Unlock()
	if !ok || have.of != next.of || !equality.Semantic.DeepEqual(have.condition, now) {
		j.listeners.Tell(id)
	}
}

// forget drops the state of a former peer.
func (j *Join) forget(id string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	delete(j.known, id)
	delete(j.patient, enrolling(id))
	delete(j.patient, renewing(id))
	delete(j.backs, id)
	delete(j.held, id)
}

func (j *Join) sync(ctx context.Context, key loop.Key) error {
	// One that is being deleted counts: the teardown still needs the credentials.
	fc := store.Known(j.cfg.ForeignClusters.Lister().Get(key.Name))
	if fc == nil || key.Name == j.cfg.ClusterID {
		j.forget(key.Name)
		return nil
	}
	standing, err := j.advance(ctx, fc)
	if err != nil {
		return err
	}
	j.tell(fc, standing.condition)
	left, err := j.tidyBack(ctx, key.Name)
	if err != nil {
		return err
	}
	if again := sooner(standing.again, left); again > 0 {
		return loop.After(again)
	}
	return nil
}

// standing is the condition for an identity, and the delay before the next sync; zero: only
// an event requeues the key.
type standing struct {
	condition *metav1.Condition // nil: does not apply
	again     time.Duration
}

func says(status metav1.ConditionStatus, reason, format string, args ...any) standing {
	return standing{condition: &metav1.Condition{
		Type: corev1beta1.ConditionAuthenticated, Status: status, Reason: reason, Message: fmt.Sprintf(format, args...),
	}}
}

func (s standing) after(d time.Duration) standing {
	s.again = d
	return s
}

// advance takes the next step towards a valid identity in a peer.
func (j *Join) advance(ctx context.Context, fc *corev1beta1.ForeignCluster) (standing, error) {
	id := fc.Spec.ClusterID
	wanted := j.cfg.Wanted(fc)
	ready, err := j.tenant(ctx, fc, wanted && invited(fc))
	switch {
	case err != nil:
		return standing{}, err
	case !ready && !wanted:
		return standing{}, nil
	case !ready && !invited(fc):
		return j.unasked(ctx, fc)
	case !ready:
		return says(metav1.ConditionFalse, corev1beta1.ReasonTenantAwaited,
			"namespace %s is awaited, with the labels %s=true and %s=%s; liqod makes it, also after somebody has deleted it", corev1beta1.TenantNamespace(id), corev1beta1.TenantNamespaceLabel, corev1beta1.RemoteClusterIDLabel, id), nil
	}
	have, err := j.read(ctx, id)
	if err != nil {
		return standing{}, err
	}
	j.remember(fc, have)
	switch decide(have, j.cfg.Clock.Now(), wanted, invited(fc), j.cfg.RenewAt) {
	case stepNone:
		return standing{}, nil
	case stepGiven:
		return j.given(have), nil
	case stepUnasked, stepEnrol:
		given, err := j.other(ctx, id)
		switch {
		case err != nil:
			return standing{}, err
		case given != nil:
			return j.given(given), nil
		}
		if lost := j.lost(fc, have); lost != nil {
			return j.restore(ctx, fc, lost)
		}
		if !invited(fc) {
			return j.unasked(ctx, fc)
		}
		if err := j.hold(ctx, fc); err != nil {
			return standing{}, err
		}
		return j.enrol(ctx, fc, have)
	case stepRenew:
		return j.renew(ctx, fc, have, have.token)
	}
	if err := j.hold(ctx, fc); err != nil { // the identity may date from an earlier ForeignCluster of this peer
		return standing{}, err
	}
	token, err := j.another(ctx, fc, have)
	switch agreed := j.agreement(fc); {
	case err != nil:
		return standing{}, err
	case token != "":
		return j.renew(ctx, fc, have, token)
	case agreed != "" && agreed != have.agreed:
		return j.renew(ctx, fc, have, have.token)
	}
	return j.keep(ctx, fc, have)
}

// hold adds the finalizer to a peer's ForeignCluster, so that its deletion waits for the
// teardown.
func (j *Join) hold(ctx context.Context, fc *corev1beta1.ForeignCluster) error {
	_, err := store.SetFinalizer(ctx, j.cfg.Liqo.CoreV1beta1().ForeignClusters(), fc, corev1beta1.ForeignClusterFinalizer, true, "")
	return err
}

func (j *Join) given(i *identity) standing {
	return says(metav1.ConditionTrue, corev1beta1.ReasonCredentialsGiven, "the credentials in Secret %s are used; a person has put them there", i.ref()).after(givenAgain)
}

// unasked refers to the token of a peer whose ForeignCluster names none, such as one that discovery has made. Its event
// continues. Without a token it says what is missing.
func (j *Join) unasked(ctx context.Context, fc *corev1beta1.ForeignCluster) (standing, error) {
	name := trust.TokenName(fc.Spec.ClusterID)
	secret, err := store.Live(ctx, "secret", j.cfg.Kube.CoreV1().Secrets(j.cfg.OwnNamespace), name)
	switch {
	case err != nil:
		return standing{}, err
	case secret == nil:
		return says(metav1.ConditionFalse, corev1beta1.ReasonTokenMissing,
			"this cluster has no identity in cluster %s, and nothing says how to get one: put a token (there: liqod token create) into key %s of Secret %s/%s, or name in spec.tokenSecretRef another Secret of that namespace",
			fc.Spec.ClusterID, corev1beta1.TokenSecretKey, j.cfg.OwnNamespace, name).after(givenAgain), nil
	}
	next := fc.DeepCopy()
	next.Spec.TokenSecretRef = &corev1beta1.SecretReference{Name: name}
	_, err = store.Write(ctx, "ForeignCluster", j.cfg.Liqo.CoreV1beta1().ForeignClusters(), "", fc, next)
	return standing{}, err
}

// invited reports whether a ForeignCluster refers to a token.
func invited(fc *corev1beta1.ForeignCluster) bool { return fc.Spec.TokenSecretRef != nil }

// replaces reports whether an identity that the peer has revoked is to be replaced.
func (j *Join) replaces(fc *corev1beta1.ForeignCluster) bool { return invited(fc) && j.cfg.Wanted(fc) }

// tenant reports whether the tenant namespace of a peer is ready. It creates the namespace
// if it is missing and make is true.
func (j *Join) tenant(ctx context.Context, fc *corev1beta1.ForeignCluster, create bool) (bool, error) {
	id := fc.Spec.ClusterID
	ns := store.Known(j.cfg.Namespaces.Lister().Get(corev1beta1.TenantNamespace(id)))
	switch {
	case ns != nil:
		return ns.DeletionTimestamp == nil && ns.Labels[corev1beta1.TenantNamespaceLabel] == "true" && ns.Labels[corev1beta1.RemoteClusterIDLabel] == id, nil
	case !create:
		return false, nil
	}
	if err := j.hold(ctx, fc); err != nil {
		return false, err
	}
	return false, link.Tenant(ctx, j.cfg.Kube, id) // the event of the namespace makes the controller bind its rights in it
}

// A step is the next action on the identity in a peer.
type step int

const (
	// stepNone: there is no identity, and none is wanted.
	stepNone step = iota
	// stepGiven: people have provided the credentials.
	stepGiven
	// stepUnasked: an identity is wanted, but there is no token.
	stepUnasked
	// stepEnrol: exchange a token for an identity.
	stepEnrol
	// stepRenew: renew the identity.
	stepRenew
	// stepKeep: the identity is valid.
	stepKeep
)

// jitter is the maximum fraction of the time before renewal by which an identity is renewed
// earlier, so that many renewals do not coincide.
const jitter = 0.1

// decide returns the next step. It is pure. wanted means that this cluster wants to use the
// peer, invited that there is a token. renewAt is Config.RenewAt. An existing identity is
// renewed even if it is no longer wanted, because virtual nodes that are being drained
// still need it.
func decide(have *identity, now time.Time, wanted, invited bool, renewAt float64) step {
	switch {
	case have.given():
		if wanted {
			return stepGiven
		}
		return stepNone
	case have.usable(now):
		if !now.Before(have.renewal(renewAt)) {
			return stepRenew
		}
		return stepKeep
	case !wanted:
		return stepNone
	case !invited:
		return stepUnasked
	}
	return stepEnrol
}

// renewal returns the time at which an identity is renewed. It is deterministic.
func (i *identity) renewal(renewAt float64) time.Time {
	h := fnv.New32a()
	_, _ = h.Write([]byte(i.grant.User + i.issued.String())) // never fails
	early := 1 - jitter*float64(h.Sum32()%1000)/1000
	life := i.grant.NotAfter.Sub(i.issued)
	return i.issued.Add(time.Duration(float64(life) * renewAt * early))
}

// Delays between failed attempts: the first and the longest. The slow ones apply to
// problems that only people can solve.
const (
	quickDelay, quickLongest = time.Second, 30 * time.Second
	slowDelay, slowLongest   = 10 * time.Second, 5 * time.Minute
)

// attempt identifies an exchange with a peer. of is a digest of its inputs: after a change
// of the inputs, the next attempt does not wait.
type attempt struct{ kind, of string }

func enrolling(id string) string { return "enrol " + id }

func renewing(id string) string { return "renew " + id }

// patience is the back-off state of a kind of attempt. Events that wake the loop do not
// shorten the back-off.
type patience struct {
	of       string
	failures int
	until    time.Time
	said     standing
	refused  bool // the peer does not accept the identity
}

// waits reports whether the back-off of an attempt has not ended yet.
func (j *Join) waits(a attempt) (patience, bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	p := j.patient[a.kind]
	left := p.until.Sub(j.cfg.Clock.Now())
	if p.of != a.of || left <= 0 {
		return p, false
	}
	p.said = p.said.after(min(left, lookAgain))
	return p, true
}

// failed records a failed attempt, and returns its standing with the delay before the next
// sync.
func (j *Join) failed(a attempt, said standing, slow, refused bool) standing {
	delay, longest := quickDelay, quickLongest
	if slow {
		delay, longest = slowDelay, slowLongest
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	p := j.patient[a.kind]
	if p.of != a.of {
		p = patience{of: a.of}
	}
	delay = min(delay<<min(p.failures, 10), longest)
	delay = delay*3/4 + rand.N(delay/2)
	p.failures++
	p.until, p.said, p.refused = j.cfg.Clock.Now().Add(delay), said, refused
	j.patient[a.kind] = p
	return said.after(min(delay, lookAgain))
}
