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
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	corev1beta1 "github.com/liqod/liqod/api/core/v1beta1"
	"github.com/liqod/liqod/health"
	"github.com/liqod/liqod/kube/loop"
	"github.com/liqod/liqod/kube/store"
)

// PulseConfig is the input of NewPulse. All fields are required.
type PulseConfig struct {
	// Interval is the time between two renewals of a peer.
	Interval time.Duration
	// Leases is an informer of the Leases named HeartbeatLease in all namespaces, with the
	// transform TrimLease. Client reads them live.
	Leases coordinationinformers.LeaseInformer
	Client coordinationv1client.LeasesGetter
	Clock  clock.Clock
}

// Pulse judges peers by the renewals of their heartbeat Leases. It is the Source of the
// condition of a peer's API server where there are neither credentials for the peer nor a
// tunnel to it. Of what a peer writes it sees that there was a write; a write changes nothing
// unless it changes the verdict. It is safe for concurrent use.
type Pulse struct {
	cfg    PulseConfig
	synced cache.InformerSynced
	again  loop.Signal // the time of the next read may have changed

	listeners loop.Listeners[string] // they take cluster ids

	mu    sync.Mutex
	beats map[string]*beat // by namespace; those of peers that renew
	ended map[string]bool  // by namespace; those of peers that have written that they ended their use
}

// NewPulse returns a Pulse and registers its event handler on the informer. It starts
// nothing.
func NewPulse(cfg PulseConfig) (*Pulse, error) {
	p := &Pulse{cfg: cfg, again: loop.NewSignal(), beats: map[string]*beat{}, ended: map[string]bool{}}
	registration, err := cfg.Leases.Informer().AddEventHandler(store.Handler[*coordinationv1.Lease]{Set: p.saw, Gone: p.gone})
	if err != nil {
		return nil, fmt.Errorf("watching heartbeat Leases: %w", err)
	}
	p.synced = registration.HasSynced
	return p, nil
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
	if !p.synced() {
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

// Run judges until ctx is done. Every replica does so, so that one that takes over has a
// verdict.
func (p *Pulse) Run(ctx context.Context) error {
	if !cache.WaitForCacheSync(ctx.Done(), p.synced) {
		return nil
	}
	for ctx.Err() == nil {
		next, ok := p.judge(ctx)
		p.wait(ctx, next, ok)
	}
	return nil
}

// wait returns at a time, if there is one, or when another may be due earlier.
func (p *Pulse) wait(ctx context.Context, until time.Time, limited bool) {
	var due <-chan time.Time
	if limited {
		timer := p.cfg.Clock.NewTimer(until.Sub(p.cfg.Clock.Now()))
		defer timer.Stop()
		due = timer.C()
	}
	select {
	case <-ctx.Done():
	case <-due:
	case <-p.again:
	}
}

// judge reads the Leases that are late, and returns when the next one is.
func (p *Pulse) judge(ctx context.Context) (next time.Time, ok bool) {
	for _, namespace := range p.late() {
		p.read(ctx, namespace)
	}
	now := p.cfg.Clock.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, b := range p.beats {
		at, needed := b.due(p.cfg.Interval)
		if !needed {
			continue
		}
		if soon := now.Add(p.cfg.Interval / 2); !at.After(now) {
			at = soon // it was read just now
		}
		if !ok || at.Before(next) {
			next, ok = at, true
		}
	}
	return next, ok
}

func (p *Pulse) late() (namespaces []string) {
	now := p.cfg.Clock.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	for namespace, b := range p.beats {
		if at, needed := b.due(p.cfg.Interval); needed && !at.After(now) {
			namespaces = append(namespaces, namespace)
		}
	}
	return namespaces
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
	p.again.Notify()
	p.listeners.Tell(strings.TrimPrefix(namespace, corev1beta1.TenantNamespacePrefix))
}
