package join

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	informers "github.com/liqod/liqod/api/generated/informers/externalversions/core/v1beta1"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/kube/store"
	"github.com/liqod/liqod/peering/link"
	"github.com/liqod/liqod/peering/trust"
	"github.com/liqod/liqod/reasons"
)

// Dismiss revokes all rights of a consumer at once, and then deletes what was created for
// it, including everything that it has offloaded here. This cluster's own use of the peer
// is not affected. It returns the objects that are still being removed; call it again until
// there are none.
func (c Cluster) Dismiss(ctx context.Context, consumer string) (left []string, err error) {
	if err := c.check(consumer); err != nil {
		return nil, err
	}
	// The invitation comes first: an unused token would allow a new enrolment.
	if err := c.dropMade(ctx, trust.SecretName(trust.BackID(consumer))); err != nil {
		return nil, err
	}
	fc, err := c.foreignCluster(ctx, consumer)
	if err != nil {
		return nil, err
	}
	if fc != nil && fc.DeletionTimestamp == nil && fc.Spec.UserName != "" { // a deletion revokes the rights, too
		if err := c.edit(ctx, consumer, false, func(fc *corev1beta1.ForeignCluster) { fc.Spec.UserName, fc.Spec.AddressRanges = "", nil }); err != nil {
			return nil, err
		}
	}
	if err := link.Retire(ctx, c.Kube, consumer, ""); err != nil {
		return nil, err
	}
	if left, err = c.dropCopies(ctx, consumer); err != nil || len(left) > 0 {
		return left, err
	}
	uses, err := c.uses(ctx, consumer)
	if err != nil {
		return nil, err
	}
	if uses {
		return nil, c.dropEnrolments(ctx, consumer)
	}
	return c.forget(ctx, consumer)
}

// dropEnrolments deletes the objects in other namespaces that the enrolments of a consumer
// have left.
func (c Cluster) dropEnrolments(ctx context.Context, consumer string) error {
	if err := c.dropSpent(ctx, consumer); err != nil {
		return err
	}
	return c.dropRequests(ctx, consumer)
}

// dropSpent deletes the Secrets of used-up tokens that only this consumer has used. Tokens
// that people wrote in clear text stay.
func (c Cluster) dropSpent(ctx context.Context, consumer string) error {
	if c.Namespace == "" {
		return nil
	}
	tokens := metav1.ListOptions{FieldSelector: "type=" + corev1beta1.PeeringTokenType}
	_, err := store.Sweep(ctx, "secret", c.Kube.CoreV1().Secrets(c.Namespace), tokens, func(secret *corev1.Secret) bool {
		token, err := trust.ReadSecret(secret)
		_, byHand := secret.Data[trust.TokenKey]
		others := slices.ContainsFunc(token.Redemptions, func(r trust.Redemption) bool { return r.ClusterID != consumer })
		return err == nil && token.UsedUp() && !others && !byHand
	})
	return err
}

// dropRequests deletes certificate requests of a consumer that a killed process left
// behind.
func (c Cluster) dropRequests(ctx context.Context, consumer string) error {
	requests := c.Kube.CertificatesV1().CertificateSigningRequests()
	theirs := metav1.ListOptions{LabelSelector: corev1beta1.MadeByLabel + "=" + corev1beta1.MadeByLiqod + "," + corev1beta1.RemoteClusterIDLabel + "=" + consumer}
	_, err := store.Sweep(ctx, "certificate request", requests, theirs, func(request *certificatesv1.CertificateSigningRequest) bool {
		return strings.HasPrefix(request.Name, corev1beta1.PeerRequestPrefix+consumer+"-")
	})
	return store.IgnoreNotFound(err) // the cluster may have no certificate API
}

const (
	// endAgain is the poll interval while objects are still being removed.
	endAgain = time.Second
	// theirPatience is how long a reachable provider may take to remove its objects. After
	// that, the peering ends without it: the provider is another organisation, and must not
	// block the end for ever.
	theirPatience = 10 * time.Minute
)

// EndingConfig is the input of NewEnding. All fields are required except Observer.
type EndingConfig struct {
	loop.Env

	// Cluster is this cluster, with the controller's rights. If its Namespace is empty, the
	// tokens there are not deleted.
	Cluster         Cluster
	ForeignClusters informers.ForeignClusterInformer
	Events          record.EventRecorder
}

// Ending ends the peering of a ForeignCluster that is being deleted, in both directions,
// and then removes the finalizer. It ignores ForeignClusters without the finalizer, as
// liqod created nothing for them. Its keys are names of ForeignClusters.
type Ending struct {
	*loop.Loop
	cfg EndingConfig

	told    sync.Map              // by UID: the text of the last event
	waiting loop.Since[types.UID] // those of which only the provider's objects are left
}

// NewEnding returns an Ending and registers its event handler on the informer. It starts
// nothing.
func NewEnding(cfg EndingConfig) *Ending {
	e := &Ending{cfg: cfg}
	e.Loop = loop.New(loop.Config{Name: "ending", Sync: e.sync, Log: cfg.Log, Observer: cfg.Observer}, loop.From(cfg.ForeignClusters.Informer(), loop.Self))
	return e
}

func (e *Ending) sync(ctx context.Context, key loop.Key) error {
	fc := store.Known(e.cfg.ForeignClusters.Lister().Get(key.Name))
	if fc == nil || fc.DeletionTimestamp == nil || !store.HasFinalizer(fc, corev1beta1.ForeignClusterFinalizer) {
		return nil
	}
	left, err := e.end(ctx, fc)
	if err != nil {
		return err
	}
	if len(left) > 0 {
		e.tell(fc, left)
		return loop.After(endAgain)
	}
	e.told.Delete(fc.UID)
	e.waiting.End(fc.UID)
	return nil
}

// end takes the next step, and returns the objects that are still being removed.
func (e *Ending) end(ctx context.Context, fc *corev1beta1.ForeignCluster) ([]string, error) {
	id := fc.Name
	if e.cfg.Cluster.check(id) != nil {
		return nil, e.cfg.Cluster.release(ctx, fc) // a cluster is not its own peer
	}
	// In a namespace that is being deleted, the controller has no rights any more, and
	// nothing to do.
	name := corev1beta1.TenantNamespace(id)
	ns, err := store.Live(ctx, "namespace", e.cfg.Cluster.Kube.CoreV1().Namespaces(), name)
	switch {
	case err != nil:
		return nil, err
	case ns == nil:
		return nil, errors.Join(e.cfg.Cluster.dropLost(ctx, id), e.cfg.Cluster.release(ctx, fc))
	case ns.DeletionTimestamp != nil:
		return []string{"namespace " + name}, nil
	}
	since := e.waiting.Begun(fc.UID)
	left, theirs, err := e.cfg.Cluster.leave(ctx, id, false, !since.IsZero() && e.cfg.Clock.Since(since) >= theirPatience)
	if err != nil || len(left) > 0 {
		if theirs {
			e.waiting.Begin(fc.UID, e.cfg.Clock.Now())
		}
		return left, err
	}
	return e.cfg.Cluster.Dismiss(ctx, id)
}

// tell records an event about the remaining objects when they change.
func (e *Ending) tell(fc *corev1beta1.ForeignCluster, left []string) {
	what := strings.Join(left, "; ")
	if before, _ := e.told.Swap(fc.UID, what); before != what {
		e.cfg.Events.Event(fc, corev1.EventTypeNormal, reasons.PeeringEnds, "still being removed: "+what)
	}
}
