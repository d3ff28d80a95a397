package link

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationinformers "k8s.io/client-go/informers/coordination/v1"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/health"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/kube/store"
)

// PulseConfig is the input of NewPulse. All fields are required except Observer.
type PulseConfig struct {
	loop.Env

	// Interval is the time between two renewals of a peer.
	Interval time.Duration
	// Leases is an informer of the Leases named HeartbeatLease in all namespaces, with the
	// transform TrimLease. Client reads them live.
	Leases coordinationinformers.LeaseInformer
	Client coordinationv1client.LeasesGetter
}

// Pulse judges peers by the renewals of their heartbeat Leases. It is the Source of the
// condition of a peer's API server where there are neither credentials for the peer nor a
// tunnel to it. Of what a peer writes it sees that there was a write; a write changes nothing
// unless it changes the verdict. Every replica runs it, so that one that takes over has a verdict.
// Its keys have the tenant namespaces as names. It is safe for concurrent use.
type Pulse struct {
	*loop.Loop
	cfg PulseConfig

	listeners loop.Listeners[string] // they take cluster ids

	mu    sync.Mutex
	beats map[string]*beat // by namespace; those of peers that renew
	ended map[string]bool  // by namespace; those of peers that have written that they ended their use
}

// NewPulse returns a Pulse and registers its event handler on the informer. It starts
// nothing.
func NewPulse(cfg PulseConfig) *Pulse {
	p := &Pulse{cfg: cfg, beats: map[string]*beat{}, ended: map[string]bool{}}
	p.Loop = loop.New(loop.Config{Name: "heartbeats", Sync: p.sync, Log: cfg.Log, Observer: cfg.Observer})
	p.Watch(loop.On(cfg.Leases.Informer(), store.Handler[*coordinationv1.Lease]{Set: p.saw, Gone: p.gone}))
	return p
}

// TrimLease is the transform of the informer of heartbeat Leases. Whatever a peer has
// written there, it is not kept, but for whether there is a renewal, or the end of its use.
func TrimLease(obj any) (any, error) {
	l, ok := obj.(*coordinationv1.Lease)
	if !ok {
		return obj, nil
	}
	out := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: l.Namespace, Name: l.Name, UID: l.UID, ResourceVersion: l.ResourceVersion}}
	if renewed(l) {
		out.Spec.RenewTime = &metav1.MicroTime{}
	} else if l.Spec.AcquireTime != nil {
		out.Spec.AcquireTime = &metav1.MicroTime{}
	}
	return out, nil
}

// renewed reports whether somebody renews the Lease. A peer that does so no longer, because
// there is a better way to check it, says so by clearing the time.
func renewed(l *coordinationv1.Lease) bool { return l.Spec.RenewTime != nil }

// Subscribe implements Source.
func (p *Pulse) Subscribe(f func(clusterID string)) { p.listeners.Subscribe(f) }

// Condition implements Source.
func (p *Pulse) Condition(fc *corev1beta1.ForeignCluster) *metav1.Condition {
	if !p.HasSynced() {
		return Standing(fc, corev1beta1.ConditionAPIServer)
	}
	peer := fc.Spec.ClusterID
	namespace := corev1beta1.TenantNamespace(peer)
	p.mu.Lock()
	b, ok := p.beats[namespace]
	ended := p.ended[namespace]
	verdict := health.Unknown
	if ok {
		verdict = b.verdict
	}
	p.mu.Unlock()
	is := func(s metav1.ConditionStatus, reason, format string, args ...any) *metav1.Condition {
		return &metav1.Condition{Type: corev1beta1.ConditionAPIServer, Status: s, Reason: reason, Message: fmt.Sprintf(format, args...)}
	}
	switch {
	case ended && fc.Spec.UserName != "":
		return is(metav1.ConditionFalse, corev1beta1.ReasonEndedByPeer,
			"cluster %s has ended its use of this cluster, and renews Lease %s/%s no more: if its people have ended the peering, end it here, too (liqod unpeer %s)",
			peer, namespace, corev1beta1.HeartbeatLease, peer)
	case !ok || fc.Spec.UserName == "":
		return nil
	case verdict == health.Up:
		return is(metav1.ConditionTrue, corev1beta1.ReasonHeartbeatSeen, "cluster %s renews Lease %s/%s, which it does while its API server serves",
			peer, namespace, corev1beta1.HeartbeatLease)
	case verdict == health.Down:
		return is(metav1.ConditionFalse, corev1beta1.ReasonHeartbeatMissed,
			"cluster %s has not renewed Lease %s/%s for %s: its API server does not serve, its controller does not run, or it does not reach this cluster",
			peer, namespace, corev1beta1.HeartbeatLease, missedBeats*p.cfg.Interval)
	}
	// After a restart there is no verdict yet. That of before stays until there is one.
	if have := Standing(fc, corev1beta1.ConditionAPIServer); have != nil &&
		(have.Reason == corev1beta1.ReasonHeartbeatSeen || have.Reason == corev1beta1.ReasonHeartbeatMissed) {
		return have
	}
	return is(metav1.ConditionUnknown, corev1beta1.ReasonHeartbeatAwaited, "Lease %s/%s has not been watched for long enough", namespace, corev1beta1.HeartbeatLease)
}

// sync reads the Lease of a namespace if it is late, and returns when it may be so the next time.
func (p *Pulse) sync(ctx context.Context, key loop.Key) error {
	left, needed := p.left(key.Name)
	if needed && left <= 0 {
		p.read(ctx, key.Name)
		left, needed = p.left(key.Name)
	}
	switch {
	case !needed:
		return nil
	case left <= 0:
		left = p.cfg.Interval / 2 // it was read just now
	}
	return loop.After(left)
}

// left returns the time until the Lease of a namespace is to be read, if that is needed.
func (p *Pulse) left(namespace string) (left time.Duration, needed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	b, ok := p.beats[namespace]
	if !ok {
		return 0, false
	}
	at, needed := b.due(p.cfg.Interval)
	return at.Sub(p.cfg.Clock.Now()), needed
}

// read reads one Lease live. Nobody is down because this cluster's own API server does not
// answer, or its watch is behind.
func (p *Pulse) read(ctx context.Context, namespace string) {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.Interval/2)
	defer cancel()
	lease, err := p.cfg.Client.Leases(namespace).Get(ctx, corev1beta1.HeartbeatLease, metav1.GetOptions{})
	now := p.cfg.Clock.Now()
	p.mu.Lock()
	b, ok := p.beats[namespace]
	changed := false
	switch {
	case !ok:
	case err != nil:
		b.unread(now)
	case lease.ResourceVersion != b.version:
		changed = b.seen(lease.ResourceVersion, now, p.cfg.Interval)
	default:
		changed = b.silent(now, p.cfg.Interval)
	}
	p.mu.Unlock()
	if changed {
		p.turned(namespace)
	}
}

// saw takes a Lease from the watch. Only one that was there before can be renewed.
func (p *Pulse) saw(before, l *coordinationv1.Lease) {
	if l.Name != corev1beta1.HeartbeatLease || !strings.HasPrefix(l.Namespace, corev1beta1.TenantNamespacePrefix) {
		return
	}
	if !renewed(l) {
		p.rest(l.Namespace, l.Spec.AcquireTime != nil)
		return
	}
	now := p.cfg.Clock.Now()
	p.mu.Lock()
	delete(p.ended, l.Namespace)
	b, known := p.beats[l.Namespace]
	changed := !known
	switch {
	case known:
		changed = b.seen(l.ResourceVersion, now, p.cfg.Interval)
	case before == nil:
		p.beats[l.Namespace] = &beat{version: l.ResourceVersion, since: now, verdict: health.Unknown}
	default: // its first renewal
		p.beats[l.Namespace] = &beat{version: l.ResourceVersion, since: now, verdict: health.Up}
	}
	p.mu.Unlock()
	if changed {
		p.turned(l.Namespace)
	}
}

// gone forgets a Lease that was deleted.
func (p *Pulse) gone(l *coordinationv1.Lease, _ bool) {
	if l.Name == corev1beta1.HeartbeatLease {
		p.rest(l.Namespace, false)
	}
}

// rest forgets a Lease that nobody renews any more. ended says that the peer has written there
// that it has ended its use of this cluster.
func (p *Pulse) rest(namespace string, ended bool) {
	p.mu.Lock()
	_, known := p.beats[namespace]
	changed := known || p.ended[namespace] != ended
	delete(p.beats, namespace)
	delete(p.ended, namespace)
	if ended {
		p.ended[namespace] = true
	}
	p.mu.Unlock()
	if changed {
		p.turned(namespace)
	}
}

// turned notifies the subscribers of a change of the verdict on a peer.
func (p *Pulse) turned(namespace string) {
	p.Add(loop.Key{Name: namespace})
	p.listeners.Tell(strings.TrimPrefix(namespace, corev1beta1.TenantNamespacePrefix))
}
